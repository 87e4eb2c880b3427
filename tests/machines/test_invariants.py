"""What must be true of every recorded machine, whatever it is."""

import re
from collections import defaultdict
from pathlib import Path

import msgspec
import pytest

from common.inventory import Device, Inventory
from services.publisher.slices import slices
from tests.machines.opinion import held, opinion
from tests.machines.ownership import Reader
from tests.machines.product import inventory
from tests.machines.recording import MACHINES, archives, dumps, load, machine_name
from tests.machines.slice_rules import problems

RECORDINGS = [pytest.param(path, id=machine_name(path)) for path in archives() + dumps()]
pytestmark = pytest.mark.skipif(
    not RECORDINGS, reason="no recorded machines: set LIKEN_MACHINES to their folder"
)

LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
SHARED = re.compile(r"/dev/(bus/usb/\d+/\d+|uinput|uhid|input/event([12]?\d|3[01]))")
VIRTUAL = (
    "kfd kvm fuse net/tun vhost-net vhost-vsock snd/seq snd/timer input/mice mapper/control loop-control"
)


def of(machine: str) -> Inventory:
    return inventory(MACHINES / f"{machine}.tar.xz")


def device(machine: str, name: str) -> Device:
    return {device.name: device for device in of(machine).devices}[name]


def delivered(machine: str) -> set[str]:
    return {node.path for device in of(machine).devices for node in device.nodes}


@pytest.mark.parametrize("path", RECORDINGS)
def test_names_are_unique_dns_labels_in_order(path: Path) -> None:
    names = [device.name for device in inventory(path).devices]
    assert names == sorted(set(names))
    assert [name for name in names if not LABEL.fullmatch(name)] == []


@pytest.mark.parametrize("path", RECORDINGS)
def test_every_device_delivers_something_and_says_where_it_is(path: Path) -> None:
    for device in inventory(path).devices:
        assert device.nodes, device.name
        assert device.attributes["bus"] == {"string": device.bus}
        assert device.attributes["address"] == {"string": device.address}


@pytest.mark.parametrize("path", RECORDINGS)
def test_only_devices_with_render_nodes_are_shareable(path: Path) -> None:
    found = {device.name: device.shareable for device in inventory(path).devices}
    expected = {device.name: "renderNode" in device.attributes for device in inventory(path).devices}
    assert found == expected


@pytest.mark.parametrize("path", RECORDINGS)
def test_the_slices_are_valid(path: Path) -> None:
    made = slices(inventory(path), "node").slices
    assert problems(made, "liken.sh", "node") == []
    published = {device["name"] for item in made for device in item["spec"]["devices"]}
    assert published == {device.name for device in inventory(path).devices}


def test_an_attribute_has_one_type_on_all_devices_of_all_machines() -> None:
    types: dict[str, set[str]] = defaultdict(set)
    for path in archives() + dumps():
        for device in inventory(path).devices:
            for name, value in device.attributes.items():
                types[name].update(value)
    assert {name: kinds for name, kinds in types.items() if len(kinds) != 1} == {}


@pytest.mark.parametrize("path", RECORDINGS)
def test_no_held_node_is_delivered(path: Path) -> None:
    reader = Reader(load(path))
    kept = {node.path for node in reader.nodes() if held(reader, node)}
    paths = {node.path for device in inventory(path).devices for node in device.nodes}
    assert paths & kept == set()


@pytest.mark.parametrize("path", RECORDINGS)
def test_no_storage_node_is_delivered(path: Path) -> None:
    kept = {node for node, (_, reason) in opinion(load(path)).withheld.items() if reason == "storage"}
    paths = {node.path for device in inventory(path).devices for node in device.nodes}
    assert paths & kept == set()


@pytest.mark.parametrize("path", RECORDINGS)
def test_nothing_is_both_delivered_and_withheld(path: Path) -> None:
    found = inventory(path)
    delivered = {node.path for device in found.devices for node in device.nodes}
    assert delivered & {entry.node for entry in found.withheld} == set()


@pytest.mark.parametrize("path", RECORDINGS)
def test_no_node_is_in_two_exclusive_devices(path: Path) -> None:
    holders: dict[str, list[str]] = defaultdict(list)
    for device in inventory(path).devices:
        radio = any(node.path == "/dev/uinput" for node in device.nodes)
        for node in device.nodes:
            excepted = SHARED.fullmatch(node.path) and (radio or node.kind == "usb")
            if not device.shareable and not excepted:
                holders[node.path].append(device.name)
    assert {node: names for node, names in holders.items() if len(names) > 1} == {}


@pytest.mark.parametrize("path", RECORDINGS)
def test_no_virtual_node_is_delivered_outside_of_a_bluetooth_claim(path: Path) -> None:
    reader = Reader(load(path))
    virtual = {node.path for node in reader.nodes() if node.place.startswith("sys/devices/virtual/")}
    virtual -= {node.path for node in reader.nodes() if "/nvme-subsystem/" in node.place}
    virtual |= {f"/dev/{name}" for name in VIRTUAL.split()}
    for device in inventory(path).devices:
        driver = device.attributes.get("driver", {}).get("string")
        excepted = {"/dev/uinput", "/dev/uhid"} if driver == "btusb" else set()
        assert {node.path for node in device.nodes} & (virtual - excepted) == set(), device.name


@pytest.mark.parametrize("path", RECORDINGS)
def test_every_node_is_stated_by_path_only_except_the_input_nodes_of_a_radio(path: Path) -> None:
    for device in inventory(path).devices:
        for node in device.nodes:
            numbered = bool(node.type or node.major or node.minor or node.fileMode)
            radio = device.attributes.get("driver", {}).get("string") == "btusb"
            assert numbered == (radio and node.kind == "input"), node


@pytest.mark.parametrize("path", RECORDINGS)
def test_the_inventory_survives_the_bus(path: Path) -> None:
    found = inventory(path)
    assert msgspec.json.decode(msgspec.json.encode(found), type=Inventory) == found


@pytest.mark.parametrize("path", RECORDINGS)
def test_a_second_walk_finds_the_same(path: Path) -> None:
    assert inventory.__wrapped__(path) == inventory(path)
