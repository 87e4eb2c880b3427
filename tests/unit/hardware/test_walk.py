"""The whole machine: errors, hardware that vanishes, any input."""

import os
import re
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from common.hardware.machine import Machine
from common.hardware.slot import inspect
from common.hardware.text import MAX_BYTES
from common.hardware.tree import Entries, ExhaustedError, Tree, TreeError
from common.hardware.walk import walk
from common.inventory import Inventory
from tests.builders import BOOT_ID, MachineBuilder
from tests.unit.hardware.ask import SPARE, inventory, offered
from tests.unit.hardware.machines import every_shape

LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


class Faulty:
    """A tree's source whose answers `spoil` changes: it is given the kind of call and the path."""

    def __init__(self, root: Path, spoil: Callable[[str, str], bytes | None]) -> None:
        self._tree = Tree(root)
        self._spoil = spoil

    def read(self, path: str) -> bytes | None:
        spoilt = self._spoil("read", path)
        return self._tree.read(path) if spoilt is None else spoilt or None

    def link(self, path: str) -> str | None:
        return None if self._spoil("link", path) == b"" else self._tree.link(path)

    def entries(self, path: str) -> Entries | None:
        return None if self._spoil("entries", path) == b"" else self._tree.entries(path)


def look(
    root: Path, spoil: Callable[[str, str], bytes | None], previous: Inventory | None = None
) -> Inventory:
    return walk(Tree(root, source=Faulty(root, spoil)), SPARE, "n1", "t", previous)


def fail(error: type[TreeError], *names: str) -> Callable[[str, str], None]:
    """Calls for a path with one of these names in it fail."""

    def spoil(_call: str, path: str) -> None:
        if any(name in path for name in names):
            raise error(f"cannot read /{path}: Input/output error")

    return spoil


def check(found: Inventory) -> None:
    """What holds for every inventory, whatever the machine."""
    names = [device.name for device in found.devices]
    assert len(set(names)) == len(names)
    assert names == sorted(names)
    assert all(LABEL.fullmatch(name) for name in names)
    for device in found.devices:
        assert len(device.attributes) <= 32
        texts = [value["string"] for value in device.attributes.values() if "string" in value]
        assert all(0 < len(str(text).encode()) <= MAX_BYTES for text in texts)
        assert device.nodes
        assert not any(node.path.startswith("/dev/..") for node in device.nodes)
    assert msgspec.json.decode(msgspec.json.encode(found), type=Inventory) == found


def test_an_inventory_says_whose_it_is_and_of_which_boot(machine: MachineBuilder) -> None:
    found = inventory(machine)
    assert (found.schema, found.node, found.boot, found.taken) == (1, "n1", BOOT_ID, "2026-01-01T00:00:00Z")


def test_a_tree_without_a_boot_id_has_an_empty_one(machine: MachineBuilder) -> None:
    machine.path("proc/sys/kernel/random/boot_id").unlink()
    assert inventory(machine).boot == ""


def test_a_machine_without_hardware_is_an_empty_inventory(machine: MachineBuilder) -> None:
    found = inventory(machine)
    assert (found.devices, found.withheld, found.unclaimed) == ((), (), ())


@pytest.mark.parametrize("missing", ["devices", "bus"])
def test_a_folder_where_sysfs_is_not_mounted_is_an_error(tmp_path: Path, missing: str) -> None:
    for folder in {"devices", "bus"} - {missing}:
        (tmp_path / "sys" / folder).mkdir(parents=True)
    with pytest.raises(TreeError, match="is sysfs mounted"):
        walk(Tree(tmp_path), Machine(), "n1", "t")


@pytest.mark.parametrize(
    "folder", ["sys/bus/pci/devices", "sys/bus/usb/devices", "sys/dev/char", "sys/dev/block"]
)
def test_an_index_that_cannot_be_listed_is_an_error(machine: MachineBuilder, folder: str) -> None:
    every_shape(machine)
    with pytest.raises(TreeError):
        look(machine.root, lambda call, path: fail(TreeError, folder)(call, path) if path == folder else None)


def test_a_process_out_of_descriptors_is_an_error(machine: MachineBuilder) -> None:
    every_shape(machine)
    with pytest.raises(ExhaustedError):
        look(machine.root, fail(ExhaustedError, "0000:00:1f.3/sound"))


def test_hardware_that_cannot_be_read_spoils_no_other(machine: MachineBuilder) -> None:
    every_shape(machine)
    whole = inventory(machine, SPARE)
    found = look(machine.root, fail(TreeError, "0000:00:1f.3/sound"))
    assert {device.name for device in whole.devices} - {device.name for device in found.devices} == {
        "pci-0000-00-1f-3"
    }


def test_hardware_that_cannot_be_read_keeps_its_last_known_form(machine: MachineBuilder) -> None:
    every_shape(machine)
    whole = inventory(machine, SPARE)
    found = look(machine.root, fail(TreeError, "0000:00:02.0/drm", "0000:00:1f.3/sound"), whole)
    assert found.devices == whole.devices


def test_a_console_that_cannot_be_read_offers_nothing(machine: MachineBuilder) -> None:
    every_shape(machine)
    with pytest.raises(TreeError):
        look(machine.root, fail(TreeError, "console/active"))


def test_module_tables_that_cannot_be_read_hold_back_no_device(machine: MachineBuilder) -> None:
    every_shape(machine)
    machine.pci("0000:07:00.0")
    machine.write("lib/modules/6.12.0/modules.alias", "alias pci:v* thing\n")
    whole = inventory(machine, SPARE)
    found = look(machine.root, fail(TreeError, "modules.alias"))
    assert (found.devices, found.unclaimed, len(whole.unclaimed)) == (whole.devices, (), 1)


def test_a_device_that_vanishes_on_the_way_is_normal(machine: MachineBuilder) -> None:
    every_shape(machine)
    whole = inventory(machine, SPARE)
    found = look(machine.root, lambda _call, path: b"" if "1-4/1-4:1.0/" in path else None)
    assert [device for device in whole.devices if device.address != "1-4:1.0"] == list(found.devices)


def test_the_same_tree_gives_the_same_inventory(machine: MachineBuilder) -> None:
    every_shape(machine)
    assert inventory(machine, SPARE) == inventory(machine, SPARE)


@pytest.fixture(scope="module")
def shapes(tmp_path_factory: pytest.TempPathFactory) -> MachineBuilder:
    machine = MachineBuilder(tmp_path_factory.mktemp("shapes"))
    every_shape(machine)
    return machine


def all_paths(machine: MachineBuilder) -> list[str]:
    return sorted(str(path.relative_to(machine.root)) for path in machine.path("sys").rglob("*"))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_hardware_may_vanish_at_any_moment(shapes: MachineBuilder, data: st.DataObject) -> None:
    gone = data.draw(st.lists(st.sampled_from(all_paths(shapes)), max_size=6))
    after = data.draw(st.integers(0, 400))
    calls = 0

    def spoil(_call: str, path: str) -> bytes | None:
        nonlocal calls
        calls += 1
        vanished = calls > after and any(path == each or path.startswith(f"{each}/") for each in gone)
        return b"" if vanished and path.count("/") > 2 else None

    check(look(shapes.root, spoil))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_files_may_hold_any_bytes(shapes: MachineBuilder, data: st.DataObject) -> None:
    files = [path for path in all_paths(shapes) if shapes.path(path).is_file()]
    names = sorted({path.rpartition("/")[2] for path in files})
    odd = data.draw(st.dictionaries(st.sampled_from(names), st.binary(max_size=80), max_size=4))

    def spoil(call: str, path: str) -> bytes | None:
        return odd.get(path.rpartition("/")[2]) if call == "read" and path.startswith("sys/") else None

    found = look(shapes.root, spoil)
    check(found)
    assert found == look(shapes.root, spoil)


NAMES = (
    (
        st.binary(min_size=1, max_size=40)
        | st.text(min_size=1, max_size=40).map(lambda text: text.encode("utf-8", "replace"))
    )
    .filter(lambda name: name not in {b".", b".."} and not {0, ord("/")} & set(name))
    .map(os.fsdecode)
)


@settings(max_examples=40, deadline=None)
@given(
    addresses=st.sets(NAMES, max_size=5),
    kinds=st.lists(NAMES, min_size=1, max_size=3, unique=True),
    devname=st.text(st.characters(exclude_categories=["Cs"]), max_size=30),
)
def test_directories_may_have_any_names(
    tmp_path_factory: pytest.TempPathFactory, addresses: set[str], kinds: list[str], devname: str
) -> None:
    machine = MachineBuilder(tmp_path_factory.mktemp("any"))
    for index, address in enumerate(sorted(addresses)):
        function = machine.device("sys/devices/pci0000:00", address, "pci", "odd")
        board = machine.device("sys/devices/platform", address, "platform", "odd")
        for number, kind in enumerate(kinds):
            machine.node(function, kind, f"f{index}.{number}", devname=f"f{index}.{number}{devname}")
            machine.node(board, kind, f"b{index}.{number}", devname=f"b{index}.{number}{devname}")
    found = inventory(machine)
    check(found)
    assert inventory(machine) == found
    for device in found.devices:
        assert inspect(machine.tree(), Machine(), device.bus, device.address).exists


def test_plugging_during_walks_breaks_none_and_the_last_one_is_right(machine: MachineBuilder) -> None:
    every_shape(machine)
    settled = inventory(machine)
    stop = threading.Event()

    def plug_and_unplug() -> None:
        while not stop.is_set():
            stick = machine.usb("1-9", serial="1")
            machine.tty(machine.interface(stick, 0, driver="ch341"), "ttyUSB9")
            machine.remove(stick)

    thread = threading.Thread(target=plug_and_unplug)
    thread.start()
    try:
        seen = [inventory(machine) for _ in range(40)]
    finally:
        stop.set()
        thread.join()
    for found in seen:
        check(found)
        assert [device for device in found.devices if "1-9" not in device.address] == list(settled.devices)
    assert inventory(machine) == settled


def test_a_swap_of_two_ttys_follows_the_ports(machine: MachineBuilder) -> None:
    parts = [
        machine.interface(machine.usb(address, devnum=number), 0, driver="ch341")
        for number, address in ((2, "1-2"), (3, "1-3"))
    ]
    ttys = [machine.tty(part, f"ttyUSB{number}") for number, part in enumerate(parts)]
    for tty in ttys:
        machine.remove(tty)
    for part, name in zip(parts, ("ttyUSB1", "ttyUSB0"), strict=True):
        machine.tty(part, name)
    assert offered(machine) == {
        "usb-1-2-1-0": ["ttyUSB1", "bus/usb/001/002"],
        "usb-1-3-1-0": ["ttyUSB0", "bus/usb/001/003"],
    }


def test_hundreds_of_devices_are_all_in_the_inventory(machine: MachineBuilder) -> None:
    for number in range(130):
        function = machine.pci(f"0000:{number:02x}:00.0", driver="gasket")
        machine.node(function, "apex", f"apex_{number}")
    assert len(inventory(machine).devices) == 130
