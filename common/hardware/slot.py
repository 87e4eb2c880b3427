"""One slot, now: what a claim on the hardware at this place would get."""

from collections.abc import Collection

import msgspec

from common.hardware.attributes import physical_path
from common.hardware.discovery import UsbDevice, hardware_at, usb_device_at
from common.hardware.examine import Examiner, Finding, device_nodes, is_line, wanted_serials, withheld_nodes
from common.hardware.machine import Machine
from common.hardware.model import Hardware
from common.hardware.names import device_name
from common.hardware.storage import StorageFacts
from common.hardware.tree import Tree
from common.inventory import Device, Inventory, Withheld


class Slot(msgspec.Struct, frozen=True):
    """What is in one place. `exists` is False when the bus lists and lacks the address.

    `devices` carry no attributes: those are for the slice, and a claim depends on none. Their names are those
    without collisions: match them by variant. `physical_path` is "" off the USB.
    `busy`: a program holds the USB hardware through usbfs; it is not in the slice then, but `devices` names
    what an existing claim keeps: at least the usbfs node.
    """

    exists: bool
    devices: tuple[Device, ...] = ()
    withheld: tuple[Withheld, ...] = ()
    physical_path: str = ""
    busy: bool = False


def inspect(
    tree: Tree,
    machine: Machine,
    bus: str,
    address: str,
    facts: StorageFacts | None = None,
    lines: Collection[str] | None = None,
) -> Slot:
    """Read the slot (bus, address): a handful of listings and links, and never a USB device's strings.

    `facts`: storage facts, read here when a disk is found and none are given. `lines`: addresses of the
    USB devices that the last inventory took for declared serial lines (`serial_lines`); they decide for
    spec.serio entries that ask for a serial; without them every device with the entry's ids counts as one.
    Raises TreeError when anything of it cannot be read; then nothing is known about the slot.
    """
    hardware = hardware_at(tree, bus, address)
    if hardware is None:
        return Slot(False)
    examiner = Examiner(tree, machine, facts, claimed=True)
    if hardware.form == "function":
        return _slot(tree, examiner.function(hardware))
    if hardware.form == "board":
        return _slot(tree, examiner.board(hardware))
    if hardware.form == "interface":
        device = _around(tree, machine, hardware)
        line = _is_line(tree, machine, device, lines)
        return _slot(tree, examiner.interface(hardware, device, line), busy=hardware.driver == "usbfs")
    device = usb_device_at(tree, hardware.address, hardware.directory)
    drivers = {interface.driver for interface in device.interfaces}
    if not device.interfaces or drivers - {"", "usbfs"}:
        return Slot(True, physical_path=physical_path(tree, hardware))
    line = _is_line(tree, machine, device, lines)
    return _slot(tree, examiner.whole(device, line), busy="usbfs" in drivers)


def _around(tree: Tree, machine: Machine, interface: Hardware) -> UsbDevice:
    """The device of an interface; its other interfaces are looked up only for those who ask for them."""
    address = interface.device.rpartition("/")[2]
    if interface.driver == "btusb" or machine.serio:
        return usb_device_at(tree, address, interface.device)
    return UsbDevice(address, interface.device, (interface,))


def _is_line(tree: Tree, machine: Machine, device: UsbDevice, lines: Collection[str] | None) -> bool:
    serials = wanted_serials(machine, tree, device)
    if serials and "" not in serials and lines is not None:
        return device.address in lines
    return is_line(serials, None)


def _slot(tree: Tree, finding: Finding, busy: bool = False) -> Slot:
    hardware = finding.hardware
    devices = tuple(
        Device(
            name=device_name(hardware.bus, hardware.address, offer.variant),
            bus=hardware.bus,
            address=hardware.address,
            variant=offer.variant,
            kinds=offer.kinds,
            shareable=offer.shareable,
            nodes=device_nodes(offer, finding.delivery.usbfs),
            attributes={},
        )
        for offer in finding.verdict.offers
    )
    return Slot(True, devices, tuple(withheld_nodes(finding)), physical_path(tree, hardware), busy)


def serial_lines(inventory: Inventory) -> frozenset[str]:
    """The addresses of the USB devices that an inventory takes for declared serial lines, for `inspect`."""
    return frozenset(
        each.address.partition(":")[0]
        for each in inventory.withheld
        if each.reason == "serio" and each.bus == "usb"
    )
