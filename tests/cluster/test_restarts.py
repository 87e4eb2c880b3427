"""Restarts on a real node: of the plugin, of the kubelet, and a rolling update. Pods keep starting."""

import signal
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.api import Api, Object
from tests.cluster.conftest import Tell
from tests.cluster.control_plane import ControlPlane
from tests.cluster.node import Worker
from tests.cluster.objects import NAMESPACE, clear, running
from tests.cluster.played import PlayedMachine
from tests.cluster.services import Services
from tests.cluster.starts import (
    WAITS_AT_MOST_S,
    delays_of_pods_while,
    described,
    failures,
    longest_wait_s,
    start,
)
from tests.cluster.watching import Witness
from tests.waiting import eventually

SLICE_BACK_WITHIN_S = 1.0


@pytest.fixture
def api(liken: Services, worker: Worker) -> Iterator[Api]:
    yield worker.api
    clear(worker.api)


def test_a_pod_starts_although_the_plugin_was_killed(api: Api, liken: Services, tell: Tell) -> None:
    liken.running["plugin"].restart(signal.SIGKILL)
    begun = time.monotonic()

    start(api, "unlucky")
    started = running(api, "unlucky", timeout_s=100)

    tell(f"a pod ran {time.monotonic() - begun:.1f} s after the plugin was killed and started again")
    assert started["status"]["containerStatuses"][0]["restartCount"] == 0


def test_a_running_pod_ends_cleanly_after_the_plugin_was_killed(api: Api, liken: Services) -> None:
    start(api, "survivor")
    running(api, "survivor")
    liken.running["plugin"].restart(signal.SIGKILL)

    api.delete_and_wait("Pod", "survivor", NAMESPACE)

    assert liken.said("plugin", "unprepare done")


def test_a_restarted_kubelet_gets_the_slices_back_within_a_second(
    api: Api, liken: Services, worker: Worker, control_plane: ControlPlane, tell: Tell
) -> None:
    start(api, "steady")
    before = running(api, "steady")
    witness = Witness(control_plane, "ResourceSlice", fieldSelector=f"spec.nodeName={worker.name}")

    worker.restart_kubelet()

    gone = witness.first("DELETED")
    back = witness.first("ADDED", gone.at)
    witness.close()
    tell(f"the kubelet deleted our slice at its start; back after {(back.at - gone.at) * 1000:.0f} ms")
    assert back.at - gone.at < SLICE_BACK_WITHIN_S
    start(api, "later")
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
    tell: Tell,
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

    delays = delays_of_pods_while(control_plane, roll)

    tell(f"handed over twice: {described(delays)}")
    assert failures(api) == []
    assert longest_wait_s(delays) < WAITS_AT_MOST_S


def _container(thing: Object) -> Object:
    found: Object = thing["status"]["containerStatuses"][0]
    return found
