"""The whole machine in words: from a tree to an Inventory."""

import logging

import msgspec

from common.hardware.attributes import (
    Identity,
    attributes,
    board_identity,
    pci_identity,
    pci_name,
    usb_identity,
    usb_name,
)
from common.hardware.classes import board_class
from common.hardware.discovery import UsbDevice
from common.hardware.examine import Finding, device_nodes, withheld_nodes
from common.hardware.machine import Machine
from common.hardware.model import Hardware
from common.hardware.modules import Candidate, unclaimed
from common.hardware.names import assign_names, device_name
from common.hardware.slot import serial_lines
from common.hardware.strings import DirectReader, StringReader, UsbStrings
from common.hardware.survey import Survey, declared_by, survey
from common.hardware.tree import ExhaustedError, Tree, TreeError
from common.inventory import SCHEMA, Device, Facts, Inventory, Unclaimed, Withheld

_log = logging.getLogger(__name__)


def walk(
    tree: Tree,
    machine: Machine,
    node: str,
    taken: str,
    previous: Inventory | None = None,
    strings: StringReader | None = None,
) -> Inventory:
    """Everything this machine offers, withholds and leaves without a driver.

    `node`: the node's name. `taken`: when, RFC 3339. `previous`: the last inventory; a USB device whose
    strings hang keeps the ones it had there, hardware that cannot be read keeps its devices. `strings` reads
    USB strings: at once by default; a service gives a PatientReader. Raises TreeError when /sys cannot be
    read: that is never an empty inventory.
    """
    reader = strings if strings is not None else DirectReader()
    before = serial_lines(previous) if previous is not None else frozenset()
    found = survey(tree, machine, declared_by(tree, machine, reader, before))
    builder = _Builder(tree, found, reader, previous)
    return Inventory(
        schema=SCHEMA,
        node=node,
        boot=tree.text("proc/sys/kernel/random/boot_id"),
        taken=taken,
        facts=Facts(found.facts.state, found.facts.reason),
        devices=tuple(sorted(builder.devices(), key=lambda device: device.name)),
        withheld=tuple(sorted(builder.withheld(), key=msgspec.structs.astuple)),
        unclaimed=tuple(_unclaimed(tree, found, builder)),
    )


class _Builder:
    """Puts a survey into the words of the inventory."""

    def __init__(self, tree: Tree, found: Survey, strings: StringReader, previous: Inventory | None) -> None:
        self._tree = tree
        self._found = found
        self._strings = strings
        self._previous = previous
        self._usb = {device.directory: device for device in found.usb}
        self._spoken: dict[str, UsbStrings] = {}
        self._broken = {(hardware.bus, hardware.address) for hardware, _ in found.broken}
        for hardware, error in found.broken:
            _log.warning("%s %s keeps its last known form: %s", hardware.bus, hardware.address, error)

    def devices(self) -> list[Device]:
        offering = [finding for finding in self._found.findings if finding.verdict.offers]
        slots = {
            (each.hardware.bus, each.hardware.address): tuple(offer.variant for offer in each.verdict.offers)
            for each in offering
        }
        kept = [device for device in self._before() if (device.bus, device.address) in self._broken]
        for device in kept:
            key = device.bus, device.address
            slots[key] = (*slots.get(key, ()), device.variant)
        hashed = assign_names((*key, variants) for key, variants in slots.items())
        found = [
            device
            for each in offering
            for device in self._published(each, hashed[each.hardware.bus, each.hardware.address])
        ]
        return [*found, *(_renamed(device, hashed[device.bus, device.address]) for device in kept)]

    def withheld(self) -> list[Withheld]:
        found = [each for finding in self._found.findings for each in withheld_nodes(finding)]
        before = self._previous.withheld if self._previous is not None else ()
        return [*found, *(each for each in before if (each.bus, each.address) in self._broken)]

    def name(self, hardware: Hardware) -> str:
        """What people call a piece of hardware on pci or usb."""
        if hardware.bus == "pci":
            return pci_name(self._tree, hardware)
        device = self._usb[hardware.device]
        return usb_name(self._tree, device, self._strings_of(device, hardware))

    def _before(self) -> tuple[Device, ...]:
        return self._previous.devices if self._previous is not None else ()

    def _published(self, finding: Finding, hashed: bool) -> list[Device]:
        hardware = finding.hardware
        identity = self._identity(finding)
        return [
            Device(
                name=device_name(hardware.bus, hardware.address, offer.variant, hashed),
                bus=hardware.bus,
                address=hardware.address,
                variant=offer.variant,
                kinds=offer.kinds,
                shareable=offer.shareable,
                nodes=device_nodes(offer, finding.delivery.usbfs),
                attributes=attributes(hardware, identity, offer),
            )
            for offer in finding.verdict.offers
        ]

    def _identity(self, finding: Finding) -> Identity:
        hardware = finding.hardware
        if hardware.bus == "pci":
            return pci_identity(self._tree, hardware)
        if hardware.bus == "usb":
            device = self._usb[hardware.device]
            return usb_identity(self._tree, hardware, device, self._strings_of(device, hardware))
        kinds = {kind for offer in finding.verdict.offers for kind in offer.kinds}
        return board_identity(self._tree, hardware, board_class(finding.verdict.shape, kinds))

    def _strings_of(self, device: UsbDevice, hardware: Hardware) -> UsbStrings:
        """Each device is asked once per walk; one that hangs says what it said before."""
        spoken = self._spoken.get(device.directory)
        if spoken is None:
            spoken = self._strings.read(self._tree, device.directory) or self._last_words(hardware)
            self._spoken[device.directory] = spoken
        return spoken

    def _last_words(self, hardware: Hardware) -> UsbStrings:
        _log.warning("usb %s does not answer; it keeps what it said before", hardware.address)
        device = hardware.address.partition(":")[0]
        for before in self._before():
            if before.bus == "usb" and before.address.partition(":")[0] == device:
                texts = {key: str(value.get("string", "")) for key, value in before.attributes.items()}
                return UsbStrings("", texts.get("name", ""), texts.get("serial", ""))
        return UsbStrings()


def _renamed(device: Device, hashed: bool) -> Device:
    name = device_name(device.bus, device.address, device.variant, hashed)
    return msgspec.structs.replace(device, name=name)


def _unclaimed(tree: Tree, found: Survey, builder: _Builder) -> list[Unclaimed]:
    """Functions and interfaces without a driver that a module would drive, named only when listed."""
    idle = {
        (each.hardware.bus, each.hardware.address): each.hardware
        for each in found.findings
        if not each.hardware.driver and each.hardware.form in {"function", "interface"}
    }
    candidates = [
        Candidate(*key, name="", modalias=tree.text(f"{hardware.directory}/modalias"))
        for key, hardware in idle.items()
    ]
    try:
        found_modules = unclaimed(tree, candidates)
    except ExhaustedError:
        raise
    except TreeError as error:  # what could drive idle hardware is no reason to offer nothing
        _log.warning("hardware without a driver is not listed: %s", error)
        return []
    return [
        msgspec.structs.replace(each, name=builder.name(idle[each.bus, each.address]))
        for each in found_modules
    ]
