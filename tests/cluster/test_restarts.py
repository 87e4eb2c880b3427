"""Restarts on a real node: of the plugin, of the kubelet, and a rolling update. Pods keep starting."""

import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cluster.api import Api, Object
from tests.cluster.control_plane import ControlPlane
from tests.cluster.node import Worker
from tests.cluster.objects import NAMESPACE, claim, clear, pod, running
from tests.cluster.played import PlayedMachine
from tests.cluster.services import Services
from tests.cluster.watching import Witness
from tests.waiting import eventually

START_WITHIN_S = 5.0  # from creation to running, while the driver is handed over
SLICE_BACK_WITHIN_S = 1.0


@pytest.fixture
def api(liken: Services, worker: Worker) -> Iterator[Api]:
    yield worker.api
    clear(worker.api)


def test_a_pod_starts_although_the_plugin_was_killed(api: Api, liken: Services) -> None:
    liken.running["plugin"].restart(signal.SIGKILL)
    begun = time.monotonic()

    _start(api, "unlucky")
    started = running(api, "unlucky", timeout_s=100)

    print(f"a pod ran {time.monotonic() - begun:.1f} s after the plugin was killed and started again")
    assert started["status"]["containerStatuses"][0]["restartCount"] == 0


def test_a_running_pod_ends_cleanly_after_the_plugin_was_killed(api: Api, liken: Services) -> None:
    _start(api, "survivor")
    running(api, "survivor")
    liken.running["plugin"].restart(signal.SIGKILL)

    api.delete_and_wait("Pod", "survivor", NAMESPACE)

    assert liken.said("plugin", "unprepare done")


def test_a_restarted_kubelet_gets_the_slices_back_within_a_second(
    api: Api, liken: Services, worker: Worker, control_plane: ControlPlane
) -> None:
    _start(api, "steady")
    before = running(api, "steady")
    witness = Witness(control_plane, "ResourceSlice", fieldSelector=f"spec.nodeName={worker.name}")

    worker.restart_kubelet()

    gone = witness.first("DELETED")
    back = witness.first("ADDED", gone.at)
    witness.close()
    print(f"the kubelet deleted our slice at its start; back after {(back.at - gone.at) * 1000:.0f} ms")
    assert back.at - gone.at < SLICE_BACK_WITHIN_S
    _start(api, "later")
    running(api, "later", timeout_s=60)
    after = api.get("Pod", "steady", NAMESPACE)
    assert _container(after)["containerID"] == _container(before)["containerID"]


def test_pods_keep_starting_while_the_driver_is_handed_over(
    api: Api,
    liken: Services,
    machine: PlayedMachine,
    worker: Worker,
    control_plane: ControlPlane,
    folder: Path,
) -> None:
    config = Path(liken.environment["KUBECONFIG"])
    second = Services(folder / "second", machine, worker.name, config, pod_uid=str(uuid.uuid4()))

    def roll() -> None:
        second.start()
        eventually(lambda: second.said("plugin", "registered"), 30, "the new plugin is registered")
        liken.stop()
        liken.start()
        eventually(lambda: liken.said("plugin", "registered"), 30, "the other plugin is registered again")
        second.stop()

    delays = _delays_of_pods_while(control_plane, roll)

    print(f"{len(delays)} pods: slowest start {max(delays.values()):.2f} s, all {_rounded(delays)}")
    assert len(delays) >= 5
    assert {name: delay for name, delay in delays.items() if delay > START_WITHIN_S} == {}
    assert _failures(api) == []


def _start(api: Api, name: str) -> None:
    api.create(claim(name, "gpu-render"))
    api.create(pod(name, claim=name))


def _delays_of_pods_while(plane: ControlPlane, act: Callable[[], None]) -> dict[str, float]:
    """Start a pod every second until `act` is done and three more; seconds from ADDED to running by pod."""
    witness = Witness(plane, "Pod", fieldSelector=f"metadata.namespace={NAMESPACE}")
    done = threading.Event()
    names: list[str] = []
    starter = threading.Thread(target=_start_every_second, args=(plane.api, names, done))
    starter.start()
    try:
        act()
    finally:
        done.set()
        starter.join()
    eventually(lambda: _delays(witness, names).keys() == set(names), 120, "all pods run", step_s=0.1)
    witness.close()
    return _delays(witness, names)


def _start_every_second(api: Api, names: list[str], done: threading.Event) -> None:
    more = 3  # pods that only the last instance can have served
    while more:
        name = f"rolled-{len(names)}"
        _start(api, name)
        names.append(name)
        if done.wait(1.0):
            more -= 1
            threading.Event().wait(0.5)


def _delays(witness: Witness, names: list[str]) -> dict[str, float]:
    delays = {}
    for name in names:
        seen = [one for one in list(witness.seen) if one.object["metadata"]["name"] == name]
        runs = [one.at for one in seen if one.object["status"].get("phase") == "Running"]
        if runs:
            delays[name] = runs[0] - seen[0].at
    return delays


def _rounded(delays: dict[str, float]) -> list[float]:
    return [round(delay, 2) for delay in delays.values()]


def _failures(api: Api) -> list[str]:
    found = api.list("Event", NAMESPACE, fieldSelector="type=Warning")
    return [
        event["message"]
        for event in found
        if event["reason"].startswith("Failed") and event["involvedObject"]["name"].startswith("rolled-")
    ]


def _container(thing: Object) -> Object:
    found: Object = thing["status"]["containerStatuses"][0]
    return found
