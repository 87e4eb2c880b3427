"""The real plugin process, called by a stand-in for the kubelet over its real sockets."""

import contextlib
import os
import signal
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import yaml

from common.claims import Store
from services.plugin.api import dra_v1_pb2, dra_v1_pb2_grpc
from tests.builders import BOOT_ID
from tests.services.api_stand_in import ApiStandIn
from tests.services.kubelet_stand_in import Claim, Kubelet
from tests.services.played_node import DRIVER, PlayedNode
from tests.services.process import Process, clean_environment
from tests.unit.claims.shapes import ADAPTER, GPU, adapter, graphics_card
from tests.waiting import eventually

POD, OTHER_POD = "8f4d1c52-9a35-4d6e-8d0c-3b7a9d4f2e11", "1e5b7c3a-0f6d-4c2b-9a8e-7d6f5e4c3b2a"
OLD_BOOT = "11111111-2222-4333-8444-555555555555"


@pytest.fixture
def node(run_dir: Path) -> Iterator[PlayedNode]:
    node = PlayedNode(run_dir)
    adapter(node.machine)
    yield node
    node.close()


@pytest.fixture
def api() -> Iterator[ApiStandIn]:
    with ApiStandIn() as api:
        yield api


def is_answered(kubelet: Kubelet, claim: Claim) -> bool:
    """Whether a prepare is answered, with or without an error, before the connection goes."""
    with contextlib.suppress(grpc.RpcError):
        return bool(kubelet.prepare(claim))
    return False


def sockets(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.is_socket())


# -- registration


def test_the_plugin_registers_before_any_inventory_and_answers_at_once(node: PlayedNode) -> None:
    """K2, D3: no watcher runs here."""
    node.start("plugin", POD_UID=POD)
    instance = node.registered().instances[0]
    assert instance.driver == DRIVER
    assert instance.endpoint == str(node.plugin_dir / f"dra-{POD}.sock")
    assert instance.versions == ("v1.DRAPlugin", "v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth")
    assert instance.get_info_s < 1.0  # the kubelet's limit
    claim = node.claim(ADAPTER)
    assert node.kubelet.prepare(claim)[claim.uid].error == ""


# Runs the plugin beside a thread that tells the log what of the process has changed.
WATCHED = """
import gc, runpy, sys, threading, time

def tell():
    told = ""
    while True:
        now = f"collects={gc.isenabled()} client={'kubernetes.client' in sys.modules}"
        if now != told:
            print(now, flush=True)
        told = now
        time.sleep(0.01)

threading.Thread(target=tell, daemon=True).start()
runpy.run_module("services.plugin", run_name="__main__")
"""


def test_the_client_of_the_cluster_is_loaded_when_the_kubelet_has_its_answers(
    node: PlayedNode, api: ApiStandIn
) -> None:
    kubeconfig = api.kubeconfig(node.run / "kubeconfig")
    environment = node.environment() | {"LIKEN_CLUSTER": "kubernetes", "KUBECONFIG": str(kubeconfig)}
    plugin = Process(["-c", WATCHED], clean_environment(**environment), node.run / "plugin.log")
    node.processes.append(plugin)
    eventually(lambda: sockets(node.registry), 10, "the plugin waits for the kubelet")

    def told() -> list[str]:
        return [line for line in plugin.log.splitlines() if line.startswith("collects=")]

    before = ["collects=False client=False", "collects=True client=False"]
    eventually(lambda: told()[-2:] == before, 10, "what the imports made is kept apart")
    assert node.registered()
    loaded = [*before, "collects=True client=True"]
    eventually(lambda: told()[-3:] == loaded, 10, "the client is loaded before the first prepare")


def test_the_end_removes_both_sockets_and_nothing_else(node: PlayedNode) -> None:
    """K1, D3."""
    foreign = node.registry / "gpu.example.com-reg.sock"
    with socket.create_server(str(foreign), family=socket.AF_UNIX):
        plugin = node.start("plugin", POD_UID=POD)
        claim = node.prepared(ADAPTER)
        assert plugin.stop() == 0
        assert sockets(node.registry) == [foreign.name]
        assert sockets(node.plugin_dir) == []
        assert node.records() == [claim.uid]
        assert node.paths(claim)[ADAPTER][0] == "/dev/ttyUSB0"


def test_a_killed_plugin_leaves_sockets_that_the_next_one_removes(node: PlayedNode) -> None:
    """K1."""
    node.start("plugin", POD_UID=POD).kill()
    assert sockets(node.registry) == [f"{DRIVER}-{POD}-reg.sock"]
    node.start("plugin", POD_UID=OTHER_POD)
    assert sockets(node.registry) == [f"{DRIVER}-{OTHER_POD}-reg.sock"]
    assert sockets(node.plugin_dir) == [f"dra-{OTHER_POD}.sock"]


def test_a_restarted_container_of_the_same_pod_takes_its_own_names_again(node: PlayedNode) -> None:
    node.start("plugin", POD_UID=POD).kill()
    node.start("plugin", POD_UID=POD)
    claim = node.claim(ADAPTER)
    eventually(lambda: node.kubelet.registrations >= 1, 10, "the new process is registered")
    assert node.registered().prepare(claim)[claim.uid].error == ""
    assert node.records() == [claim.uid]


@pytest.mark.parametrize("lost", ["service", "registration"])
def test_a_socket_that_somebody_removes_is_bound_and_registered_again(node: PlayedNode, lost: str) -> None:
    """K3."""
    plugin = node.start("plugin", POD_UID=POD)
    node.registered()
    paths = {
        "service": node.plugin_dir / f"dra-{POD}.sock",
        "registration": node.registry / f"{DRIVER}-{POD}-reg.sock",
    }
    paths[lost].unlink()
    eventually(lambda: node.kubelet.registrations == 2, 15, "the plugin registers again")
    eventually(lambda: all(path.is_socket() for path in paths.values()), 5, "both sockets are there")
    claim = node.claim(ADAPTER)
    assert node.kubelet.prepare(claim)[claim.uid].error == ""
    assert plugin.metric(f'liken_socket_losses_total{{socket="{lost}"}}') == 1.0


def test_a_restarted_kubelet_finds_the_plugin_and_prepares_again(node: PlayedNode) -> None:
    """D2: same devices, same CDI ids."""
    node.start("plugin", POD_UID=POD)
    claim = node.claim(ADAPTER)
    before = node.registered().prepare(claim)
    node.kubelet.restart()
    eventually(lambda: node.kubelet.instances, 5, "registered with the restarted kubelet")
    assert node.kubelet.prepare(claim) == before
    assert node.kubelet.registrations == 2


def test_a_kubelet_that_refuses_or_says_nothing_is_asked_again(node: PlayedNode) -> None:
    """K2, in a cluster: LIKEN_CLUSTER=kubernetes. No API server is needed for it."""
    with Kubelet(node.registry, refuse="not today") as kubelet:
        plugin = node.launch(
            "plugin",
            POD_UID=POD,
            LIKEN_CLUSTER="kubernetes",
            KUBERNETES_SERVICE_HOST="127.0.0.1",
            KUBERNETES_SERVICE_PORT="1",
        )
        rejected = 'liken_registrations_total{outcome="rejected"}'
        eventually(lambda: plugin.metric(rejected) == 1.0, 10, "the refusal is counted")
        assert plugin.get("/readyz")[0] == 503, "a rolling update must not end the old instance yet"
        kubelet.refuse = ""
        eventually(lambda: kubelet.instances, 20, "the plugin registers again by itself")
    assert plugin.metric('liken_registrations_total{outcome="accepted"}') == 1.0
    plugin.wait_ready()


def test_claims_that_arrive_while_the_plugin_is_away_succeed_after_its_return(node: PlayedNode) -> None:
    """K5: the scheduler binds pods all the same; nobody has to touch them."""
    plugin = node.start("plugin", POD_UID=POD)
    node.registered()
    plugin.kill()
    claim = node.claim(ADAPTER)
    with pytest.raises(grpc.RpcError):
        node.kubelet.prepare(claim, timeout_s=1.0)
    node.start("plugin", POD_UID=POD)

    def prepared() -> bool:
        with contextlib.suppress(grpc.RpcError, AssertionError):
            return node.kubelet.prepare(claim, timeout_s=5.0)[claim.uid].error == ""
        return False

    eventually(prepared, 15, "the kubelet's retry succeeds")
    assert node.paths(claim)[ADAPTER][0] == "/dev/ttyUSB0"


# -- two instances


def test_two_instances_serve_at_once_and_the_end_of_one_takes_nothing_from_the_other(
    node: PlayedNode,
) -> None:
    """K9: a rolling update."""
    graphics_card(node.machine)
    old = node.start("plugin", POD_UID=POD)
    node.registered()
    claim = node.claim(ADAPTER)
    first = node.kubelet.prepare(claim)
    node.start("plugin", POD_UID=OTHER_POD, LIKEN_RUN=str(node.run / "r2"))
    eventually(lambda: len(node.kubelet.instances) == 2, 10, "both are registered")
    assert node.kubelet.instances[-1].endpoint.endswith(f"dra-{OTHER_POD}.sock")
    assert node.kubelet.prepare(claim) == first  # by the other one
    assert old.stop() == 0
    eventually(lambda: len(node.kubelet.instances) == 1, 10, "the kubelet forgot the old one")
    assert sockets(node.registry) == [f"{DRIVER}-{OTHER_POD}-reg.sock"]
    assert sockets(node.plugin_dir) == [f"dra-{OTHER_POD}.sock"]
    other = node.claim(GPU)
    assert node.kubelet.prepare(other)[other.uid].error == ""
    assert node.kubelet.unprepare(claim, other) == {claim.uid: "", other.uid: ""}
    assert node.records() == []


def test_of_two_instances_that_are_asked_at_once_for_one_device_one_gives_it(node: PlayedNode) -> None:
    """D12, K9: the lock is between processes."""
    node.start("plugin", POD_UID=POD)
    node.start("plugin", POD_UID=OTHER_POD, LIKEN_RUN=str(node.run / "r2"))
    eventually(lambda: len(node.kubelet.instances) == 2, 10, "both are registered")
    for _ in range(10):
        claims = [node.claim(ADAPTER), node.claim(ADAPTER)]
        calls = []
        for instance, claim in zip(node.kubelet.instances, claims, strict=True):
            stub: Any = dra_v1_pb2_grpc.DRAPluginStub(instance.channel)  # type: ignore[no-untyped-call]
            asked = dra_v1_pb2.Claim(namespace=claim.namespace, name=claim.name, uid=claim.uid)
            request = dra_v1_pb2.NodePrepareResourcesRequest(claims=[asked])
            calls.append(stub.NodePrepareResources.future(request, timeout=20))
        errors = [next(iter(call.result().claims.values())).error for call in calls]
        assert sorted(bool(error) for error in errors) == [False, True], errors
        assert len(node.records()) == 1
        assert set(node.kubelet.unprepare(*claims).values()) == {""}


# -- calls


def test_one_bad_claim_does_not_fail_the_others_of_its_call(node: PlayedNode) -> None:
    graphics_card(node.machine)
    node.start("plugin")
    good, unknown, unallocated = node.claim(ADAPTER), node.claim("usb-9-9"), node.claim()
    missing = Claim("default", "nobody-made-it", str(uuid.uuid4()))
    odd = Claim("default", good.name, "../../../tmp/x")
    replaced = good._replace(uid=str(uuid.uuid4()))
    gpu = node.claim(GPU)
    node.put_claim(unallocated, {})
    answer = node.registered().prepare(good, unknown, unallocated, missing, odd, replaced, gpu)
    assert answer[good.uid].error == ""
    assert answer[gpu.uid].devices[0].cdi_ids == (f"liken.sh/device={gpu.uid}-{GPU}",)
    assert answer[gpu.uid].devices[0].share_id is None
    words = {
        unknown.uid: "no device usb-9-9",
        unallocated.uid: "not allocated",
        missing.uid: "there is no claim",
        odd.uid: "is not the UID",
        replaced.uid: "was replaced",
    }
    for uid, word in words.items():
        assert word in answer[uid].error
        assert "\n" not in answer[uid].error
    assert node.records() == sorted([good.uid, gpu.uid])


def test_a_second_holder_is_refused_until_the_first_is_unprepared(node: PlayedNode) -> None:
    """D12."""
    plugin = node.start("plugin")
    first = node.prepared(ADAPTER)
    second = node.claim(ADAPTER)
    assert "still held by the claim" in node.kubelet.prepare(second)[second.uid].error
    assert node.kubelet.unprepare(first) == {first.uid: ""}
    assert node.kubelet.prepare(second)[second.uid].error == ""
    assert plugin.metric('liken_prepare_seconds_count{outcome="refused"}') == 1.0
    assert plugin.metric('liken_prepare_seconds_count{outcome="ok"}') == 2.0
    assert f"claim={second.name} uid={second.uid}" in plugin.log


def test_unprepare_needs_neither_the_cluster_nor_the_hardware_nor_a_known_claim(node: PlayedNode) -> None:
    """K6."""
    node.start("plugin")
    claim = node.prepared(ADAPTER)
    node.machine.remove("sys/devices/pci0000:00/0000:00:14.0/usb1/1-1")
    (node.cluster / "claims").rename(node.run / "away")
    unknown = Claim("default", "x", str(uuid.uuid4()))
    assert node.kubelet.unprepare(claim, unknown) == {claim.uid: "", unknown.uid: ""}
    assert node.records() == []
    assert not node.spec_path(claim).exists()


def test_prepare_says_that_another_process_keeps_the_lock_and_ends_in_time(node: PlayedNode) -> None:
    """K8: the deadline of the call holds also while waiting for the lock."""
    node.start("plugin")
    claim = node.claim(ADAPTER)
    node.registered()
    with Store(node.plugin_dir, BOOT_ID).lock(5.0):
        begin = time.monotonic()
        error = node.kubelet.prepare(claim, timeout_s=2.5)[claim.uid].error
        assert "held by another liken process" in error
        assert time.monotonic() - begin < 2.5
    assert node.kubelet.prepare(claim)[claim.uid].error == ""


def test_a_re_bind_that_hangs_does_not_hold_the_answer(node: PlayedNode) -> None:
    """K7, W3: a FIFO that nobody reads stands for a driver that never ends its probe."""
    plugin = node.start("plugin")
    claim = node.prepared(ADAPTER)
    node.machine.unbind("sys/devices/pci0000:00/0000:00:14.0/usb1/1-1/1-1:1.0")
    node.probe.unlink()
    os.mkfifo(node.probe)
    begin = time.monotonic()
    assert node.kubelet.unprepare(claim) == {claim.uid: ""}
    assert time.monotonic() - begin < 4.0
    assert plugin.metric('liken_rebinds_total{outcome="hung"}') == 1.0
    assert plugin.stop() == 0  # nor the end of the process


# -- an API server that fails


def test_an_api_server_that_does_not_answer_is_told_to_that_claim_and_holds_no_unprepare(
    node: PlayedNode,
) -> None:
    """K6, K8."""
    graphics_card(node.machine)
    with ApiStandIn() as api:
        config = str(api.kubeconfig(node.run / "config"))
        plugin = node.launch("plugin", LIKEN_CLUSTER="kubernetes", KUBECONFIG=config)
        first, slow = node.claim(ADAPTER), node.claim(GPU)
        for claim in (first, slow):
            api.store.add_claim(yaml.safe_load(node.claim_path(claim).read_text()))
        assert node.registered().prepare(first)[first.uid].error == ""
        fault = api.fail("get", "hang", times=1000)
        begin = time.monotonic()
        error = node.kubelet.prepare(slow, timeout_s=3.0)[slow.uid].error
        assert error
        assert "\n" not in error
        assert time.monotonic() - begin < 3.0
        hanging = [
            threading.Thread(target=node.kubelet.prepare, args=(slow,), daemon=True) for _ in range(20)
        ]
        for thread in hanging:
            thread.start()
        assert node.kubelet.unprepare(first, timeout_s=5.0) == {first.uid: ""}
        fault.left = 0
        fault.end.set()
        for thread in hanging:
            thread.join(30)
        assert node.kubelet.prepare(slow)[slow.uid].error == ""
        assert node.records() == [slow.uid]
        fault = api.fail("get", "hang", times=1000)
        asking = threading.Thread(target=is_answered, args=(node.kubelet, slow), daemon=True)
        asking.start()
        eventually(lambda: fault.met > 0, 5, "a prepare waits for the API server")
        begin = time.monotonic()
        assert plugin.stop() == 0
        assert time.monotonic() - begin < 10  # a running call gets 5 s, and holds nothing up after that
        asking.join(10)
        assert not asking.is_alive()


def test_every_failure_of_the_api_server_is_one_sentence_and_the_retry_succeeds(
    node: PlayedNode, api: ApiStandIn
) -> None:
    node.launch("plugin", LIKEN_CLUSTER="kubernetes", KUBECONFIG=str(api.kubeconfig(node.run / "config")))
    for fault in (500, 503, 403, "cut", "garbage", "lost"):
        claim = node.claim(ADAPTER)
        api.store.add_claim(yaml.safe_load(node.claim_path(claim).read_text()))
        api.fail("get", fault, times=1000)
        error = node.registered().prepare(claim, timeout_s=3.0)[claim.uid].error
        assert error, fault
        assert "\n" not in error
        assert node.records() == []
        api.faults.clear()
        assert node.kubelet.prepare(claim)[claim.uid].error == ""
        assert node.kubelet.unprepare(claim) == {claim.uid: ""}


# -- what earlier boots left


def test_records_and_specs_of_an_earlier_boot_go_and_prepare_makes_them_anew(node: PlayedNode) -> None:
    """D1, D3: the kubelet's checkpoint survives a reboot, so it prepares again."""
    node.start("plugin")
    claim, gone = node.prepared(ADAPTER), str(uuid.uuid4())
    node.processes[-1].stop()
    node.machine.write("proc/sys/kernel/random/boot_id", OLD_BOOT + "\n")
    stale = node.cdi / f"{DRIVER}-device_{gone}.json"
    stale.write_text("{}")
    (node.plugin_dir / "claims" / BOOT_ID / f"{gone}.json").write_text("{}")
    (node.cdi / "display.liken.sh-device_x.json").write_text("{}")
    node.start("plugin")
    eventually(lambda: not (node.plugin_dir / "claims" / BOOT_ID).exists(), 5, "the other boot is removed")
    assert not stale.exists()
    assert sorted(path.name for path in node.cdi.iterdir()) == ["display.liken.sh-device_x.json"]
    node.kubelet.restart()
    assert node.registered().prepare(claim)[claim.uid].error == ""
    assert node.records(OLD_BOOT) == [claim.uid]
    assert node.paths(claim)[ADAPTER][0] == "/dev/ttyUSB0"


# -- health


def test_health_follows_the_device_and_any_number_of_streams_starves_nobody(node: PlayedNode) -> None:
    """K11, K12, K14."""
    node.watcher  # noqa: B018 - connected before the reconciler starts, so that it is not alone
    node.start("reconciler")
    plugin = node.start("plugin")
    claim = node.prepared(ADAPTER)
    node.inventory()
    streams = [node.kubelet.health(version) for version in ("v1", "v1alpha1") for _ in range(20)]
    for stream in streams:
        eventually(lambda stream=stream: stream.word(ADAPTER) == "HEALTHY", 10)  # type: ignore[misc]
    assert plugin.metric("liken_health_streams") == 40.0
    node.machine.remove("sys/devices/pci0000:00/0000:00:14.0/usb1/1-1")
    begin = time.monotonic()
    node.stir()
    for stream in streams:
        eventually(lambda stream=stream: stream.word(ADAPTER) == "UNHEALTHY", 10)  # type: ignore[misc]
    assert time.monotonic() - begin < 5.0
    report = streams[0].of(ADAPTER)
    assert report is not None
    assert report.message.startswith("unplugged since 20")
    assert report.timeout_s == 30
    other = node.claim(ADAPTER)
    assert node.kubelet.prepare(claim, other)[claim.uid].error == ""  # prepare still has its threads
    adapter(node.machine)
    node.stir()
    for stream in streams:
        eventually(lambda stream=stream: stream.word(ADAPTER) == "HEALTHY", 10)  # type: ignore[misc]
    assert plugin.stop() == 0  # open streams do not keep it alive
    assert streams[0].ended.wait(5)


def test_health_is_told_without_a_reconciler_too(node: PlayedNode) -> None:
    node.start("plugin")
    node.prepared(ADAPTER)
    stream = node.kubelet.health()
    eventually(lambda: stream.word(ADAPTER) == "HEALTHY", 5, "healthy")
    node.machine.remove("sys/devices/pci0000:00/0000:00:14.0/usb1/1-1")
    eventually(lambda: stream.word(ADAPTER) == "UNHEALTHY", 5, "unhealthy")
    assert stream.messages >= 2
    stream.close()


# -- storms


def test_get_info_is_quick_while_the_pool_is_busy(node: PlayedNode) -> None:
    """K2: the kubelet gives one second."""
    node.start("plugin")
    node.registered()
    claims = [node.claim(ADAPTER) for _ in range(64)]
    stop = threading.Event()

    def call() -> None:
        while not stop.is_set():
            node.kubelet.prepare(*claims[:8])

    callers = [threading.Thread(target=call, daemon=True) for _ in range(8)]
    for caller in callers:
        caller.start()
    with Kubelet(node.registry) as second:
        times = []
        for _ in range(20):
            second.restart()
            times.append(eventually(lambda: second.instances, 10, "GetInfo answered")[0].get_info_s)
    stop.set()
    for caller in callers:
        caller.join()
    print(f"GetInfo under load: median {sorted(times)[10] * 1000:.1f} ms, worst {max(times) * 1000:.1f} ms")
    assert max(times) < 1.0


def test_a_socket_path_of_107_bytes_works_and_a_longer_one_takes_the_hashed_name(run_dir: Path) -> None:
    base = run_dir / "x"
    fits = 107 - len(f"/plugins_registry/liken.sh-{POD}-reg.sock") - len(str(base))
    for extra, readable in ((0, True), (1, False), (len("liken.sh-") + 36 - len("liken-") - 11, False)):
        node = PlayedNode(run_dir / f"node{extra}")
        adapter(node.machine)
        node.kubelet_dir = Path(f"{base}{'k' * (fits + extra)}")
        node.registry, node.plugin_dir = (
            node.kubelet_dir / "plugins_registry",
            node.kubelet_dir / "plugins" / DRIVER,
        )
        try:
            node.start("plugin", POD_UID=POD)
            claim = node.prepared(ADAPTER)
            assert node.paths(claim)[ADAPTER][0] == "/dev/ttyUSB0"
            assert sockets(node.registry)[0].startswith(f"{DRIVER}-{POD}" if readable else "liken-")
        finally:
            node.close()


def test_wrong_folders_end_with_one_line(run_dir: Path) -> None:
    node = PlayedNode(run_dir)
    (run_dir / "file").write_text("")
    try:
        plugin = node.launch("plugin", LIKEN_KUBELET=str(run_dir / "file" / "k"))
        assert plugin.wait() == 1
        assert plugin.log.count("\n") <= 2
        assert "LIKEN_KUBELET" in plugin.log
        long = node.launch("plugin", LIKEN_KUBELET=str(run_dir / ("k" * 100)))
        assert long.wait() == 2
        assert "107 bytes" in long.log
    finally:
        node.close()


def test_the_process_ends_on_sigint_as_on_sigterm(node: PlayedNode) -> None:
    plugin = node.start("plugin", POD_UID=POD)
    plugin.signal(signal.SIGINT)
    assert plugin.wait() == 0
    assert sockets(node.registry) == []
