"""The product says of every recorded machine what its expectation file and the second opinion say."""

from collections.abc import Iterable
from pathlib import Path

import pytest

from common.hardware.machine import Machine
from common.hardware.slot import inspect
from common.hardware.storage import storage_facts
from common.inventory import Device
from tests.machines.expectation import read
from tests.machines.opinion import opinion
from tests.machines.product import inventory, offer, opened, surveyed
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
def test_product_and_second_opinion_find_the_same_owner_of_every_node(path: Path) -> None:
    said = {node: (owner.bus, owner.address) for node, owner in opinion(load(path)).owners.items()}
    found = {}
    for finding in surveyed(path).findings:
        dropped = [each.node for each in finding.delivery.dropped]
        for node in (*finding.delivery.nodes, *dropped):
            found[node.path] = (finding.hardware.bus, finding.hardware.address)
    assert found == said


@pytest.mark.parametrize("path", RECORDINGS)
def test_looking_at_one_slot_finds_what_the_walk_found_there(path: Path) -> None:
    whole = inventory(path)
    slots = {(device.bus, device.address) for device in whole.devices}
    slots |= {(entry.bus, entry.address) for entry in whole.withheld}
    with opened(path) as tree:
        facts = storage_facts(tree, Machine())
        for bus, address in sorted(slots):
            found = inspect(tree, Machine(), bus, address, facts)
            here = [device for device in whole.devices if (device.bus, device.address) == (bus, address)]
            kept = [entry for entry in whole.withheld if (entry.bus, entry.address) == (bus, address)]
            assert sorted(promised(found.devices)) == sorted(promised(here)), address
            assert list(found.withheld) == kept, address


def promised(devices: Iterable[Device]) -> list[tuple[object, ...]]:
    """What a claim depends on; attributes such as the serial are not read for one slot."""
    return [(one.variant, one.name, one.kinds, one.shareable, one.nodes) for one in devices]


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
