"""USB strings block while a device resets; a walk must not."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from common.hardware.ids import database
from common.hardware.machine import Machine, SerialLine
from common.hardware.strings import DirectReader, PatientReader, UsbStrings, read_strings
from common.hardware.tree import ExhaustedError, Tree
from common.hardware.walk import walk
from common.inventory import Inventory
from tests.builders import MachineBuilder
from tests.unit.hardware.ask import inventory, texts
from tests.waiting import eventually

LIMIT_S = 0.2


@dataclass
class Resetting:
    """Reads like the kernel; the devices at `places` answer only after `answer` is set."""

    places: set[str] = field(default_factory=set)
    answer: threading.Event = field(default_factory=threading.Event)

    def __call__(self, tree: Tree, directory: str) -> UsbStrings:
        if directory.rpartition("/")[2] in self.places:
            self.answer.wait(20)
        return read_strings(tree, directory)


@pytest.fixture
def resetting() -> Iterator[Resetting]:
    kernel = Resetting()
    yield kernel
    kernel.answer.set()


def two_sticks(machine: MachineBuilder) -> None:
    for address in ("1-2", "1-3"):
        device = machine.usb(address, vendor="2548", product="1002", serial=f"S{address}", name="Stick")
        machine.tty(machine.interface(device, 0, driver="cdc_acm"), f"ttyACM{address[-1]}")


def look(
    machine: MachineBuilder,
    reader: PatientReader,
    previous: Inventory | None = None,
    declared: Machine = Machine(),
) -> dict[str, dict[str, object]]:
    found = walk(machine.tree(), declared, "n1", "t", previous, reader)
    return {device.name: texts(device) for device in found.devices}


def test_a_device_that_hangs_keeps_its_last_words(machine: MachineBuilder, resetting: Resetting) -> None:
    two_sticks(machine)
    before = inventory(machine)
    resetting.places = {"1-2"}
    found = look(machine, PatientReader(LIMIT_S, resetting), before)
    assert found == {device.name: texts(device) for device in before.devices}


def test_a_device_that_hangs_at_first_sight_is_offered_without_them(
    machine: MachineBuilder, resetting: Resetting
) -> None:
    two_sticks(machine)
    resetting.places = {"1-2"}
    found = look(machine, PatientReader(LIMIT_S, resetting))
    assert ("serial" in found["usb-1-2-1-0"], found["usb-1-3-1-0"]["serial"]) == (False, "S1-3")
    assert found["usb-1-2-1-0"]["name"] == database("usb.ids").find("2548", "1002")


def test_a_hanging_device_is_not_asked_again_until_it_answered(
    machine: MachineBuilder, resetting: Resetting
) -> None:
    two_sticks(machine)
    resetting.places = {"1-2"}
    answered = threading.Event()
    reader = PatientReader(LIMIT_S, resetting, answered.set)
    threads = threading.active_count()
    for _ in range(5):
        look(machine, reader)
    assert threading.active_count() <= threads + 2
    assert [place.rpartition("/")[2] for place in reader.hanging] == ["1-2"]
    resetting.answer.set()
    eventually(answered.is_set, 10, "the stuck read to come back")
    assert look(machine, reader)["usb-1-2-1-0"]["serial"] == "S1-2"
    assert reader.hanging == frozenset()


def test_a_declared_line_that_hangs_stays_what_it_was(machine: MachineBuilder, resetting: Resetting) -> None:
    two_sticks(machine)
    declared = Machine(serio=(SerialLine("pulse8-cec", "2548", "1002", "S1-2"),))
    before = inventory(machine, declared)
    resetting.places = {"1-2", "1-3"}
    assert list(look(machine, PatientReader(LIMIT_S, resetting), before, declared)) == ["usb-1-3-1-0"]


def test_a_possible_line_that_hangs_at_first_sight_is_withheld(
    machine: MachineBuilder, resetting: Resetting
) -> None:
    two_sticks(machine)
    declared = Machine(serio=(SerialLine("pulse8-cec", "2548", "1002", "S1-2"),))
    resetting.places = {"1-3"}
    assert look(machine, PatientReader(LIMIT_S, resetting), None, declared) == {}


def test_both_readers_read_the_same(machine: MachineBuilder) -> None:
    device = machine.usb("1-4", serial="1", manufacturer="Maker", name="Thing")
    tree = machine.tree()
    expected = UsbStrings("Maker", "Thing", "1")
    assert DirectReader().read(tree, device) == expected
    assert PatientReader(20).read(tree, device) == expected


def test_a_process_out_of_descriptors_is_told(machine: MachineBuilder) -> None:
    def exhausted(tree: Tree, directory: str) -> UsbStrings:
        raise ExhaustedError("cannot read /sys: Too many open files")

    reader = PatientReader(20, exhausted)
    for _ in range(2):
        with pytest.raises(ExhaustedError):
            reader.read(machine.tree(), "sys/devices/x")
