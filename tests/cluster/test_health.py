"""What a pod's status says of its devices: the kubelet's view of our health stream."""

from collections.abc import Iterator

import pytest

from tests.cluster.api import Api, Object
from tests.cluster.conftest import Tell
from tests.cluster.node import Worker
from tests.cluster.objects import NAMESPACE, claim, clear, pod, running
from tests.cluster.played import PlayedMachine
from tests.cluster.services import Services
from tests.waiting import eventually

ADDRESS = "0000:00:07.0"
DEVICE = "pci-0000-00-07-0"


@pytest.fixture
def api(liken: Services, worker: Worker) -> Iterator[Api]:
    yield worker.api
    clear(worker.api)


def test_an_unplugged_device_is_unhealthy_in_the_pods_status_and_healthy_when_back(
    api: Api, machine: PlayedMachine, worker: Worker, tell: Tell
) -> None:
    place = machine.add_hidraw(ADDRESS, 7, "loop7", announce=True)
    eventually(lambda: DEVICE in _published(api, worker), 10, "the device is published")
    api.create(claim("held", "played", f'device.attributes["liken.sh"].address == "{ADDRESS}"'))
    api.create(pod("holder", claim="held"))
    running(api, "holder")
    eventually(lambda: _health(api)["health"] == "Healthy", 40, "the device is healthy", step_s=0.1)

    machine.remove(place)

    eventually(lambda: _health(api)["health"] == "Unhealthy", 40, "the device is unhealthy", step_s=0.1)
    told = _health(api)
    tell(f"allocatedResourcesStatus: {told}")
    assert told["resourceID"].startswith("liken.sh/device=")
    assert DEVICE in told["resourceID"]
    assert "unplugged" in told["message"] or "absent" in told["message"]
    machine.add_hidraw(ADDRESS, 7, "loop7", announce=True)
    assert eventually(lambda: _health(api)["health"] == "Healthy", 40, "healthy again", step_s=0.1)


def _published(api: Api, worker: Worker) -> list[str]:
    item = api.get("ResourceSlice", f"{worker.name}-liken.sh")
    return [device["name"] for device in item["spec"]["devices"]]


def _health(api: Api) -> Object:
    """The only entry of the only container; AssertionError while there is none."""
    container = api.get("Pod", "holder", NAMESPACE)["status"]["containerStatuses"][0]
    status = container.get("allocatedResourcesStatus")
    assert status, "no allocatedResourcesStatus yet"
    found: Object = status[0]["resources"][0]
    return found
