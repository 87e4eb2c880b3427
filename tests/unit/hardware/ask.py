"""Short questions to a machine under test."""

from common.hardware.machine import Machine
from common.hardware.slot import Slot, inspect
from common.hardware.walk import walk
from common.inventory import Device, Inventory
from tests.builders import MachineBuilder

NOTHING = Machine()
SPARE = Machine(roles=frozenset())  # a machine that needs none of its disks


def inventory(machine: MachineBuilder, declared: Machine = NOTHING) -> Inventory:
    return walk(machine.tree(), declared, "n1", "2026-01-01T00:00:00Z")


def devices(machine: MachineBuilder, declared: Machine = NOTHING) -> dict[str, Device]:
    return {device.name: device for device in inventory(machine, declared).devices}


def offered(machine: MachineBuilder, declared: Machine = NOTHING) -> dict[str, list[str]]:
    """Device name -> the paths below /dev that a claim on it receives."""
    return {name: paths(device) for name, device in devices(machine, declared).items()}


def paths(device: Device) -> list[str]:
    return [node.path.removeprefix("/dev/") for node in device.nodes]


def kept(machine: MachineBuilder, declared: Machine = NOTHING) -> dict[str, str]:
    """Path below /dev -> the reason why it is held or withheld."""
    return {each.node.removeprefix("/dev/"): each.reason for each in inventory(machine, declared).withheld}


def details(machine: MachineBuilder, declared: Machine = NOTHING) -> dict[str, str]:
    return {each.node.removeprefix("/dev/"): each.detail for each in inventory(machine, declared).withheld}


def texts(device: Device) -> dict[str, object]:
    """The attributes with bare values."""
    return {name: next(iter(value.values())) for name, value in device.attributes.items()}


def slot(machine: MachineBuilder, bus: str, address: str, declared: Machine = NOTHING) -> Slot:
    return inspect(machine.tree(), declared, bus, address)
