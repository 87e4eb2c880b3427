"""The whole chain on a node with real hot-plug: a QEMU guest with kubelet, containerd and our processes."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.accounts import install
from tests.cluster.api import Api, Object
from tests.cluster.conftest import Tell
from tests.cluster.control_plane import ControlPlane
from tests.cluster.guest_node import NAME, GuestNode
from tests.cluster.objects import (
    DEPLOY,
    MANIFESTS,
    NAMESPACE,
    claim,
    clear,
    container,
    load,
    pod,
    refused_by_scheduler,
)
from tests.kernel.plugs import KINDS
from tests.kernel.provision import UnavailableError, provide
from tests.waiting import eventually

FTDI = KINDS["ftdi serial"]
PORT = "8"
DEVICE = "usb-1-8-1-0"
ADDRESS = 'device.attributes["liken.sh"].address == "1-8:1.0"'
SLICE = f"{NAME}-liken.sh"
GUEST_S = 120  # one step of an emulated and perhaps busy machine
# Numbers of the nodes that came with the claim, then nothing until it is ended.
LOOK = "for n in /dev/tty[A-Z]* /dev/bus/usb/*/*; do stat -c '%n %t:%T' $n; done; echo end"
# Adapters that are there at the boot: the kernel numbers port 3 before port 8.
AT_BOOT = tuple(
    word
    for port, name in (("3", "first"), (PORT, "second"))
    for word in (
        *("-chardev", f"null,id={name}"),
        *("-device", f"usb-serial,bus=xhci.0,port={port},chardev={name},always-plugged=on,id=boot-{name}"),
    )
)

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def node(control_plane: ControlPlane, folder: Path, tell: Tell) -> Iterator[GuestNode]:
    """The guest as a node of the newest cluster, with nothing plugged into port 8."""
    try:
        provide()
    except UnavailableError as reason:
        pytest.skip(f"no guest: {reason}")
    shipped = DEPLOY / "examples/deviceclasses.yaml"
    for path in (shipped, MANIFESTS / "classes.yaml", MANIFESTS / "node-claims.yaml"):
        for thing in load(path):
            control_plane.api.apply(thing)
    install(control_plane)
    begun = time.monotonic()
    node = GuestNode(control_plane, folder / "guest")
    try:
        node.boot()
        eventually(lambda: control_plane.api.find("ResourceSlice", SLICE), GUEST_S, "a slice", step_s=0.1)
        tell(f"guest booted, node ready and published in {time.monotonic() - begun:.0f} s")
        yield node
    finally:
        node.power_off()
        control_plane.api.delete("Node", NAME)
        control_plane.api.delete_all("ResourceSlice")


@pytest.fixture
def api(control_plane: ControlPlane, node: GuestNode) -> Iterator[Api]:
    yield control_plane.api
    clear(control_plane.api, force=True)


def test_a_pod_follows_its_device_through_plug_unplug_and_replug(
    api: Api, node: GuestNode, tell: Tell
) -> None:
    api.create(claim("serial", "played", ADDRESS))
    api.create(_guest_pod("reader"))
    refused_by_scheduler(api, "reader")

    begun = node.plugs.plug(FTDI, PORT)
    eventually(lambda: DEVICE in _published(api), GUEST_S, "the adapter is published")
    tell(f"device_add to slice {time.monotonic() - begun:.2f} s")
    eventually(
        lambda: api.get("ResourceClaim", "serial", NAMESPACE)["status"].get("allocation"),
        GUEST_S,
        "allocation",
    )
    tell(f"device_add to allocation {time.monotonic() - begun:.2f} s")
    first = _await_running(api, "reader")
    tell(f"device_add to container {time.monotonic() - begun:.2f} s")
    assert _seen(node) == _nodes_of_port(node)

    before = _nodes_of_port(node)
    begun = node.plugs.unplug(FTDI, PORT)
    eventually(lambda: DEVICE not in _published(api), GUEST_S, "the adapter is published no more")
    tell(f"device_del to slice {time.monotonic() - begun:.2f} s")
    _end_container(node)
    refusal = eventually(lambda: _refusal(api, "reader"), GUEST_S, "the start is refused", step_s=0.1)
    tell(f"refused: {refusal}")
    assert f"/dev/liken.sh/absent/{DEVICE}" in refusal

    node.plugs.free(FTDI, PORT)
    begun = node.plugs.plug(FTDI, PORT)
    second = _await_running(api, "reader", other_than=_container_id(first))
    tell(f"device_add to the container's next start {time.monotonic() - begun:.2f} s")
    assert _seen(node) == _nodes_of_port(node)
    assert _nodes_of_port(node) != before, "the kernel gave the adapter another number"
    assert _uid(second) == _uid(first)


def test_after_a_reboot_the_pod_runs_again_on_the_device_of_its_port(
    api: Api, node: GuestNode, tell: Tell
) -> None:
    if DEVICE not in _published(api):
        node.plugs.plug(FTDI, PORT)
        eventually(lambda: DEVICE in _published(api), GUEST_S, "the adapter is published")
    api.create(claim("serial", "played", ADDRESS))
    api.create(_guest_pod("reader"))
    first = _await_running(api, "reader")
    assert {path for path in _seen(node) if "tty" in path} == {"/dev/ttyUSB0"}

    node.power_off()
    begun = time.monotonic()
    node.boot(*AT_BOOT)

    second = _await_running(api, "reader", other_than=_container_id(first), timeout_s=2 * GUEST_S)
    tell(f"power-on to the container's next start {time.monotonic() - begun:.0f} s")
    assert _uid(second) == _uid(first)
    assert _seen(node) == _nodes_of_port(node)
    assert {path for path in _seen(node) if "tty" in path} == {"/dev/ttyUSB1"}


def _guest_pod(name: str) -> Object:
    thing = pod(name, claim="serial", containers=[container(script=LOOK)], node=NAME)
    thing["spec"]["hostNetwork"] = True
    return thing


def _published(api: Api) -> list[str]:
    return [device["name"] for device in api.get("ResourceSlice", SLICE)["spec"].get("devices", [])]


def _await_running(api: Api, name: str, other_than: str = "", timeout_s: float = GUEST_S) -> Object:
    """The pod once its container runs, and is another than that."""

    def runs() -> Object:
        thing = api.get("Pod", name, NAMESPACE)
        statuses = thing["status"].get("containerStatuses", [])
        up = statuses and "running" in statuses[0]["state"] and statuses[0]["containerID"] != other_than
        return thing if up else {}

    return eventually(runs, timeout_s, f"pod {name} runs", step_s=0.05)


def _allocated(api: Api) -> bool:
    return "allocation" in api.get("ResourceClaim", "serial", NAMESPACE).get("status", {})


def _seen(node: GuestNode) -> dict[str, str]:
    """Path and number of the claim's nodes as the container of now sees them."""

    def lines() -> list[str]:
        # nothing reaches the guest from here, so the log cannot be asked of its kubelet
        newest = node.guest.run("sh", "-c", "cat $(ls -t /run/pods.log/*_reader_*/main/*.log | head -1)")
        found = [line.split(" ", 3)[3] for line in newest.splitlines()]
        return found[:-1] if found and found[-1] == "end" else []

    looked = eventually(lines, GUEST_S, "the container has looked", step_s=0.2)
    return dict(line.rsplit(" ", 1) for line in looked)


def _nodes_of_port(node: GuestNode) -> dict[str, str]:
    """The same of port 8, as the guest's kernel has it."""
    base = f"/sys/bus/usb/devices/1-{PORT}"
    (tty,) = [name for name in node.guest.call("listing", f"{base}:1.0") if name.startswith("ttyUSB")]
    number = int(str(node.guest.call("read", f"{base}/devnum")))
    paths = (f"/dev/{tty}", f"/dev/bus/usb/001/{number:03d}")
    nodes = node.guest.call("nodes")
    return {path: f"{nodes[path][1]:x}:{nodes[path][2]:x}" for path in paths}


def _end_container(node: GuestNode) -> None:
    """What a program does whose device is gone."""
    node.guest.run("pkill", "-KILL", "-f", "sleep 100000")


def _refusal(api: Api, name: str) -> str:
    status = api.get("Pod", name, NAMESPACE)["status"]["containerStatuses"][0]
    waiting = status["state"].get("waiting", {})
    return str(waiting.get("message", "")) if waiting.get("reason") == "CreateContainerError" else ""


def _container_id(thing: Object) -> str:
    return str(thing["status"]["containerStatuses"][0]["containerID"])


def _uid(thing: Object) -> str:
    return str(thing["metadata"]["uid"])
