"""What stands in the slots of this machine now, as the life of a claim needs it: one slot at a time."""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from common.hardware.machine import Machine
from common.hardware.slot import Slot, inspect, serial_lines
from common.hardware.storage import StorageFacts, storage_facts
from common.hardware.tree import Tree, TreeError
from common.inventory import Inventory


class Standing(NamedTuple):
    """One slot now. Where a USB slot publishes nothing, `drivers` tells how its device is driven:
    its interfaces, each with the name of its driver, "" without.
    """

    slot: Slot
    drivers: Mapping[str, str] = {}


class Slots(Protocol):
    """The hardware, narrowed to single slots. Every method raises TreeError when /sys cannot be read."""

    def inspect(self, bus: str, address: str, facts: StorageFacts | None = None) -> Standing:
        """What the slot is and would publish now. `facts` spare the reading when they are at hand."""

    def hear(self, inventory: Inventory) -> None:
        """Take over what only a walk can tell, as its reading can hang: which devices are serial lines."""

    def facts(self) -> StorageFacts:
        """Which disks the machine needs, now."""

    def addresses(self, bus: str) -> frozenset[str]:
        """Everything that the folder of a bus lists."""

    def drivers(self, device: str) -> Mapping[str, str]:
        """The interfaces of a USB device, each with the name of its driver, "" where it has none."""


class SysfsSlots:
    """The slots of a tree, which may be this machine's own /sys."""

    def __init__(self, tree: Tree, machine: Machine) -> None:
        self._tree = tree
        self._machine = machine
        self._lines: frozenset[str] | None = None

    def inspect(self, bus: str, address: str, facts: StorageFacts | None = None) -> Standing:
        slot = inspect(self._tree, self._machine, bus, address, facts, self._lines)
        device = usb_device(bus, address)
        if not device or not slot.exists or slot.devices:
            return Standing(slot)
        return Standing(slot, self.drivers(device))

    def hear(self, inventory: Inventory) -> None:
        self._lines = serial_lines(inventory)

    def facts(self) -> StorageFacts:
        return storage_facts(self._tree, self._machine)

    def addresses(self, bus: str) -> frozenset[str]:
        folder = f"sys/bus/{bus}/devices"
        entries = self._tree.entries(folder)
        if entries is None:
            # a bus that is not there lists nothing, and so tells nothing about what it lacks
            raise TreeError(f"cannot read /{folder}: there is no such folder; check that /sys is mounted")
        return frozenset((*entries.links, *entries.dirs))

    def drivers(self, device: str) -> Mapping[str, str]:
        place = self._tree.target(_folder(device))
        entries = self._tree.entries(place) if place is not None else None
        names = (
            [name for name in entries.dirs if name.startswith(f"{device}:")] if entries is not None else []
        )
        return {name: self._tree.link_name(f"{place}/{name}/driver") for name in names}


def usb_device(bus: str, address: str) -> str:
    """The USB device (its port path, "1-2") behind a slot, "" for a slot of another bus."""
    return address.partition(":")[0] if bus == "usb" else ""


def same_hardware(one: tuple[str, str], other: tuple[str, str]) -> bool:
    """Whether two slots (bus, address) overlap: the same one, or a whole USB device and one interface."""
    (bus, address), (other_bus, other_address) = one, other
    if bus != other_bus:
        return False
    if address == other_address:
        return True
    # one of them is the device of the other; a prepare asks this of each device that any claim holds
    return bus == "usb" and (
        address.startswith(f"{other_address}:") or other_address.startswith(f"{address}:")
    )


def _folder(address: str) -> str:
    return f"sys/bus/usb/devices/{address}"
