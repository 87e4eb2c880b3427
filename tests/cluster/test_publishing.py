"""The watcher and the publisher against real API servers: slices come, come back, and cause no loop."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cluster.accounts import install, node_token
from tests.cluster.api import Object
from tests.cluster.conftest import Tell
from tests.cluster.control_plane import ControlPlane, fake_node
from tests.cluster.played import PlayedMachine
from tests.cluster.services import Services
from tests.cluster.watching import Witness
from tests.waiting import eventually

NODE = "publishing"
SLICE = f"{NODE}-liken.sh"
GPU, RENDER = "pci-0000-00-02-0-display", "pci-0000-00-02-0"
BACK_WITHIN_S = 1.0

Started = tuple[ControlPlane, PlayedMachine, Services]


@pytest.fixture(scope="module")
def published(control_plane: ControlPlane, folder: Path) -> Iterator[Started]:
    """A node with one card, published by our processes with a token that is bound to it."""
    yield from _publish(control_plane, folder / "publishing")


@pytest.fixture(scope="module")
def published_on_oldest(oldest: ControlPlane, folder: Path) -> Iterator[Started]:
    yield from _publish(oldest, folder / "publishing-oldest")


def test_the_slice_belongs_to_the_node_and_lists_the_hardware(published: Started) -> None:
    plane, _, _ = published

    item = plane.api.get("ResourceSlice", SLICE)

    owner = {"apiVersion": "v1", "kind": "Node", "name": NODE, "controller": True}
    owner["uid"] = plane.api.get("Node", NODE)["metadata"]["uid"]
    assert item["metadata"]["ownerReferences"] == [owner]
    assert [device["name"] for device in item["spec"]["devices"]] == [RENDER, GPU, f"{RENDER}-i2c-dev"]


def test_a_deleted_slice_is_back_within_a_second(published: Started, tell: Tell) -> None:
    plane, _, _ = published
    before = plane.api.get("ResourceSlice", SLICE)["spec"]

    after_s = _back_after(plane, "ADDED", lambda: plane.api.delete("ResourceSlice", SLICE))

    tell(f"deleted slice back after {after_s * 1000:.0f} ms")
    assert plane.api.get("ResourceSlice", SLICE)["spec"] == before
    assert after_s < BACK_WITHIN_S


def test_an_altered_slice_is_put_right_within_a_second(published: Started, tell: Tell) -> None:
    plane, _, _ = published
    item = plane.api.get("ResourceSlice", SLICE)
    before = item["spec"]["devices"]
    item["spec"]["devices"] = before[:1]

    after_s = _back_after(plane, "MODIFIED", lambda: plane.api.replace(item), skip=1)

    tell(f"altered slice put right after {after_s * 1000:.0f} ms")
    assert plane.api.get("ResourceSlice", SLICE)["spec"]["devices"] == before
    assert after_s < BACK_WITHIN_S


def test_a_new_device_is_published_after_the_settle_time(published: Started, tell: Tell) -> None:
    plane, machine, _ = published
    begun = time.monotonic()

    place = machine.add_hidraw("0000:00:05.0", 5, "loop5", announce=True)

    eventually(lambda: "pci-0000-00-05-0" in _names(plane), 5, "the new device is published")
    tell(f"hot-plug to slice in {time.monotonic() - begun:.2f} s, 1.0 s of it settling")
    machine.remove(place)
    assert eventually(lambda: "pci-0000-00-05-0" not in _names(plane), 5, "the device is gone from the slice")


def test_a_slice_comes_back_after_the_api_server_was_away(published: Started) -> None:
    plane, machine, _ = published
    plane.restart_api_server()
    place = machine.add_hidraw("0000:00:06.0", 6, "loop6", announce=True)

    assert eventually(lambda: "pci-0000-00-06-0" in _names(plane), 30, "the new device is published")
    machine.remove(place)
    assert eventually(
        lambda: "pci-0000-00-06-0" not in _names(plane), 10, "the device is gone from the slice"
    )


def test_what_the_oldest_api_server_drops_is_said_once_and_causes_no_loop(
    published_on_oldest: Started,
) -> None:
    plane, machine, services = published_on_oldest
    assert not any("allowMultipleAllocations" in device for device in _slice(plane)["spec"]["devices"])
    eventually(lambda: _dropped_events(plane), 10, "an Event on the node")
    first = _slice(plane)["metadata"]["resourceVersion"]

    # two more writes: each comes back without the field, too
    place = machine.add_hidraw("0000:00:05.0", 5, "loop5", announce=True)
    eventually(lambda: "pci-0000-00-05-0" in _names(plane), 5, "the new device is published")
    second = _slice(plane)["metadata"]["resourceVersion"]
    machine.remove(place)
    eventually(lambda: "pci-0000-00-05-0" not in _names(plane), 5, "the device is gone from the slice")

    writes = int(_slice(plane)["metadata"]["generation"])
    assert first != second
    assert writes == 3, "one write for each change"
    assert len(services.said("publisher", "allowMultipleAllocations")) == 1
    assert len(_dropped_events(plane)) == 1


def _publish(plane: ControlPlane, folder: Path) -> Iterator[Started]:
    machine = PlayedMachine(folder / "machine")
    machine.add_gpu()
    fake_node(plane.api, NODE)
    install(plane)
    config = plane.token_config(NODE, node_token(plane.api, NODE))
    services = Services(folder, machine, NODE, config, kubelet=folder / "kubelet")
    services.start("watcher", "publisher")
    try:
        eventually(lambda: _published(plane, services), 30, "the slice is published", step_s=0.05)
        yield plane, machine, services
    finally:
        services.stop()
        plane.api.delete("Node", NODE)
        plane.api.delete_all("ResourceSlice")


def _published(plane: ControlPlane, services: Services) -> bool:
    services.check_alive()
    return plane.api.find("ResourceSlice", SLICE) is not None


def _slice(plane: ControlPlane) -> Object:
    return plane.api.get("ResourceSlice", SLICE)


def _names(plane: ControlPlane) -> list[str]:
    return [device["name"] for device in _slice(plane)["spec"].get("devices", [])]


def _dropped_events(plane: ControlPlane) -> list[Object]:
    found = plane.api.list("Event", "default", fieldSelector=f"involvedObject.name={NODE}")
    return [event for event in found if event["reason"] == "FieldsDropped"]


def _back_after(plane: ControlPlane, cure: str, act: Callable[[], object], skip: int = 0) -> float:
    """Seconds from just before the harm until a third party sees the event of its cure."""
    witness = Witness(plane, "ResourceSlice", fieldSelector=f"spec.nodeName={NODE}")
    begun = time.monotonic()
    act()
    cures = eventually(
        lambda: [seen for seen in witness.seen if seen.type == cure][skip:], 10, f"{cure} as cure"
    )
    witness.close()
    return cures[0].at - begun
