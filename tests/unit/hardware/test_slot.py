"""One slot, now: what preparing and projecting ask."""

from pathlib import Path

import pytest

from common.hardware.machine import Machine
from common.hardware.slot import inspect
from common.hardware.storage import storage_facts
from common.hardware.tree import Entries, Tree, TreeError
from tests.builders import MachineBuilder
from tests.unit.hardware.ask import NOTHING, SPARE, inventory, paths, slot
from tests.unit.hardware.machines import every_shape

FORBIDDEN = ("serial", "product", "manufacturer")  # reading them takes the device's lock


@pytest.mark.parametrize("declared", [NOTHING, SPARE])
def test_walk_and_slot_never_disagree(machine: MachineBuilder, declared: Machine) -> None:
    every_shape(machine)
    found = inventory(machine, declared)
    places = {(device.bus, device.address) for device in found.devices}
    places |= {(each.bus, each.address) for each in found.withheld}
    walked = {
        place: (
            [
                (device.variant, device.name, device.kinds, device.shareable, device.nodes)
                for device in found.devices
                if (device.bus, device.address) == place
            ],
            [each for each in found.withheld if (each.bus, each.address) == place],
        )
        for place in places
    }
    seen = {}
    for place in places:
        now = slot(machine, *place, declared)
        devices = [
            (device.variant, device.name, device.kinds, device.shareable, device.nodes)
            for device in sorted(now.devices, key=lambda device: device.name)
        ]
        seen[place] = (devices, sorted(now.withheld, key=lambda each: each.node))
    assert seen == walked
    assert len(places) == 10


class Noting:
    """A tree that notes every file that is read."""

    def __init__(self, root: Path) -> None:
        self._tree = Tree(root)
        self.read_files: list[str] = []

    def read(self, path: str) -> bytes | None:
        self.read_files.append(path)
        return self._tree.read(path)

    def link(self, path: str) -> str | None:
        return self._tree.link(path)

    def entries(self, path: str) -> Entries | None:
        return self._tree.entries(path)


def test_a_slot_never_reads_the_strings_of_a_usb_device(machine: MachineBuilder) -> None:
    every_shape(machine)
    noting = Noting(machine.root)
    tree = Tree(machine.root, source=noting)
    for bus, address in (("usb", "1-4:1.0"), ("usb", "1-5"), ("usb", "1-7:1.0"), ("pci", "0000:00:02.0")):
        assert inspect(tree, NOTHING, bus, address).devices
    assert [path for path in noting.read_files if path.rpartition("/")[2] in FORBIDDEN] == []


def test_a_slot_without_a_disk_reads_no_mount_table(machine: MachineBuilder) -> None:
    every_shape(machine)
    noting = Noting(machine.root)
    inspect(Tree(machine.root, source=noting), NOTHING, "usb", "1-4:1.0")
    assert [path for path in noting.read_files if path.startswith("proc/")] == []


def test_an_address_that_the_bus_lists_not_is_empty(machine: MachineBuilder) -> None:
    for bus, address in (("usb", "1-9"), ("usb", "1-9:1.0"), ("pci", "0000:09:00.0"), ("usb", "../x")):
        assert slot(machine, bus, address).exists is False


def test_a_bus_that_is_not_there_says_nothing_about_its_slots(machine: MachineBuilder) -> None:
    with pytest.raises(TreeError, match="is sysfs mounted"):
        slot(machine, "platform", "i8042")


def test_a_slot_that_cannot_be_read_is_an_error(machine: MachineBuilder) -> None:
    stick = machine.usb("1-4")
    machine.tty(machine.interface(stick, 0, driver="ch341"), "ttyUSB0")
    machine.path(f"{stick}/devnum").unlink()
    machine.path(f"{stick}/devnum").mkdir()
    with pytest.raises(TreeError, match="devnum"):
        slot(machine, "usb", "1-4:1.0")


def test_a_slot_whose_driver_left_is_there_and_gives_nothing(machine: MachineBuilder) -> None:
    part = machine.interface(machine.usb("1-4"), 0, driver="ch341")
    machine.tty(part, "ttyUSB0")
    machine.unbind(part)
    now = slot(machine, "usb", "1-4:1.0")
    assert (now.exists, now.devices, now.physical_path) == (True, (), "0000:00:14.0/usb2/4:1.0")


def test_a_node_without_dev_is_not_there_yet(machine: MachineBuilder) -> None:
    tty = machine.tty(machine.interface(machine.usb("1-4"), 0, driver="ch341"), "ttyUSB0")
    machine.path(f"{tty}/dev").unlink()
    assert slot(machine, "usb", "1-4:1.0").devices == ()


def test_a_claimed_interface_that_its_program_took_keeps_the_usbfs_node(machine: MachineBuilder) -> None:
    part = machine.interface(machine.usb("1-4", devnum=6), 0, driver="usbhid")
    machine.bind(part, "usbfs")
    now = slot(machine, "usb", "1-4:1.0")
    assert [(device.variant, device.kinds, paths(device)) for device in now.devices] == [
        ("", (), ["bus/usb/001/006"])
    ]
    assert now.busy is True


def test_a_claimed_whole_device_that_its_program_took_keeps_the_usbfs_node(machine: MachineBuilder) -> None:
    camera = machine.usb("1-4", devnum=6)
    machine.interface(camera, 0, driver="usbfs")
    now = slot(machine, "usb", "1-4")
    assert ([paths(device) for device in now.devices], now.busy) == ([["bus/usb/001/006"]], True)


def test_a_whole_device_that_got_a_driver_gives_nothing_more(machine: MachineBuilder) -> None:
    radio = machine.usb("1-4")
    machine.interface(radio, 0, driver="dvb_usb_rtl28xxu")
    now = slot(machine, "usb", "1-4")
    assert (now.exists, now.devices, now.busy) == (True, (), False)


def test_a_board_child_is_no_slot_of_its_own(machine: MachineBuilder) -> None:
    every_shape(machine)
    assert slot(machine, "serio", "serio0").devices == ()


def test_a_new_device_number_shows_at_once(machine: MachineBuilder) -> None:
    machine.interface(machine.usb("1-4", devnum=6), 0)
    machine.remove("sys/devices/pci0000:00/0000:00:14.0/usb1/1-4")
    machine.interface(machine.usb("1-4", devnum=7), 0)
    assert [paths(device) for device in slot(machine, "usb", "1-4").devices] == [["bus/usb/001/007"]]


def test_storage_facts_may_be_handed_in(machine: MachineBuilder) -> None:
    every_shape(machine)
    facts = storage_facts(machine.tree(), SPARE)
    machine.path("proc/1/mountinfo").unlink()
    now = inspect(machine.tree(), SPARE, "pci", "0000:00:17.0", facts)
    assert [device.name for device in now.devices] == ["pci-0000-00-17-0"]
