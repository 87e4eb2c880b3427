"""The product says of every recorded machine what its expectation file and the second opinion say."""

from pathlib import Path

import pytest

from common.hardware.machine import Machine
from tests.machines.expectation import read
from tests.machines.opinion import opinion
from tests.machines.product import inventory, offer
from tests.machines.recording import archives, dumps, load, machine_name

RECORDINGS = [pytest.param(path, id=machine_name(path)) for path in archives() + dumps()]
pytestmark = pytest.mark.skipif(
    not RECORDINGS, reason="no recorded machines: set LIKEN_MACHINES to their folder"
)


@pytest.mark.parametrize("path", RECORDINGS)
def test_the_devices_are_those_of_the_file(path: Path) -> None:
    expected = read(machine_name(path))
    assert {device.name: offer(device) for device in inventory(path).devices} == expected.devices


@pytest.mark.parametrize("path", RECORDINGS)
def test_the_withheld_nodes_are_those_of_the_file(path: Path) -> None:
    expected = read(machine_name(path))
    entries = inventory(path).withheld
    found = {entry.node: (f"{entry.bus} {entry.address}", entry.reason) for entry in entries}
    assert found == expected.withheld
    assert all(entry.detail for entry in entries)


@pytest.mark.parametrize("path", RECORDINGS)
def test_the_storage_facts_are_those_of_the_file(path: Path) -> None:
    facts = inventory(path).facts
    assert facts.storage == read(machine_name(path)).storage
    assert bool(facts.reason) == (facts.storage == "unknown")


@pytest.mark.parametrize("path", RECORDINGS)
def test_the_unclaimed_hardware_is_that_of_the_file(path: Path) -> None:
    expected = read(machine_name(path))
    found = [f"{entry.bus} {entry.address}" for entry in inventory(path).unclaimed]
    assert len(found) == len(set(found)) == expected.unclaimed_count
    assert expected.unclaimed_among <= set(found)
    assert expected.unclaimed in (None, set(found))


@pytest.mark.parametrize("path", RECORDINGS)
def test_the_attributes_the_file_names_are_exactly_so(path: Path) -> None:
    devices = {device.name: device for device in inventory(path).devices}
    for name, attributes in read(machine_name(path)).attributes.items():
        found = {
            key: next(iter(devices[name].attributes.get(key, {"": None}).values())) for key in attributes
        }
        assert (name, found) == (name, attributes)


@pytest.mark.parametrize("path", RECORDINGS)
@pytest.mark.parametrize(
    "roles", [(), ("sda", "nvme0n1", "mmcblk0")], ids=["nothing declared", "some declared"]
)
def test_product_and_second_opinion_agree_when_disks_are_declared(path: Path, roles: tuple[str, ...]) -> None:
    said = opinion(load(path), roles)
    found = inventory(path, Machine(roles=frozenset(roles)))
    assert {device.name: offer(device) for device in found.devices} == said.devices
    assert {entry.node: entry.reason for entry in found.withheld} == {
        node: reason for node, (_, reason) in said.withheld.items()
    }
