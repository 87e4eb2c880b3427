"""Everything one pass over a tree finds, before it is put into words."""

from collections.abc import Callable, Iterator
from functools import partial

import msgspec

from common.hardware.discovery import Ownership, UsbDevice, board_devices, functions, usb_devices
from common.hardware.disks import idle_roles, is_named, role_words
from common.hardware.examine import Examiner, Finding, is_line, wanted_serials
from common.hardware.machine import Machine
from common.hardware.model import Hardware
from common.hardware.policy import DISK_KINDS
from common.hardware.storage import StorageFacts
from common.hardware.strings import DirectReader, StringReader
from common.hardware.tree import ExhaustedError, Tree, TreeError


class Survey(msgspec.Struct, frozen=True):
    """What one pass over a tree found; `liken explain` reads this.

    `findings`: every PCI function, USB interface, whole USB device and board device that owns a node, driven
    or not, sorted by bus and address. `usb`: the USB devices that have interfaces. `broken`: hardware that
    could not be read, with the error. `ownership.owner(directory)` answers for any node directory whose it
    is, or why nobody's.
    """

    facts: StorageFacts
    findings: tuple[Finding, ...]
    usb: tuple[UsbDevice, ...]
    broken: tuple[tuple[Hardware, str], ...]
    ownership: Ownership


class _Pass(msgspec.Struct):
    findings: list[Finding] = msgspec.field(default_factory=list)
    broken: list[tuple[Hardware, str]] = msgspec.field(default_factory=list)
    _delivered: frozenset[str] = frozenset()
    _broken_places: tuple[str, ...] = ()

    def take(self, hardware: Hardware, examine: Callable[[], Finding]) -> None:
        """One unreadable piece of hardware never spoils its neighbours."""
        try:
            self.findings.append(examine())
        except ExhaustedError:
            raise
        except TreeError as error:
            self.broken.append((hardware, str(error)))

    def covers(self, directory: str) -> bool:
        """True for a node's directory whose owner is known: it is delivered, or its hardware is broken."""
        return directory in self._delivered or directory.startswith(self._broken_places)

    def settle(self) -> None:
        """Fill in what `covers` asks, once functions and USB devices are examined."""
        self._delivered = frozenset(self._directories())
        self._broken_places = tuple(f"{hardware.directory}/" for hardware, _ in self.broken)

    def _directories(self) -> Iterator[str]:
        for found in self.findings:
            yield from (node.directory for node in found.delivery.nodes)
            yield from (dropped.node.directory for dropped in found.delivery.dropped)


def survey(tree: Tree, machine: Machine, is_declared: Callable[[UsbDevice], bool] | None = None) -> Survey:
    """Examine all hardware of the tree.

    `is_declared` decides which USB devices are declared serial lines (default: `declared_by`, all reads at
    once). Raises TreeError when /sys or a bus of it cannot be listed, or nothing in it can be read.
    """
    for folder in ("sys/devices", "sys/bus"):
        if tree.entries(folder) is None:
            raise TreeError(f"/{folder} is not there; is sysfs mounted?")
    decide = is_declared if is_declared is not None else declared_by(tree, machine, DirectReader())
    examiner = Examiner(tree, machine)
    examiner.read_shared()
    done = _Pass()
    for hardware in functions(tree):
        done.take(hardware, partial(examiner.function, hardware))
    devices = usb_devices(tree)
    for device in devices:
        _take_usb(done, examiner, device, decide(device))
    done.settle()
    for hardware in board_devices(tree, examiner.ownership, done.covers):
        done.take(hardware, partial(examiner.board, hardware))
    if done.broken and not done.findings:
        raise TreeError(done.broken[0][1])
    facts = _with_idle_roles(examiner, done)
    findings = sorted(done.findings, key=lambda found: (found.hardware.bus, found.hardware.address))
    return Survey(facts, tuple(findings), tuple(devices), tuple(done.broken), examiner.ownership)


def _with_idle_roles(examiner: Examiner, done: _Pass) -> StorageFacts:
    """The storage facts; their reason names the roles that no disk is called by now.

    Such a role may be for a disk that comes later, or a slip that gives the disk away which it was to keep.
    Nothing is told of it while some hardware cannot be read: that may be what it names.
    """
    facts = examiner.facts
    if not facts.roles or facts.state == "unknown" or done.broken:
        return facts
    disks = [found for found in done.findings if DISK_KINDS & {node.nature for node in found.delivery.nodes}]
    words = {word for found in disks for word in role_words(found.hardware, found.delivery.nodes)}
    idle = [
        role
        for role in sorted(facts.roles)
        if not is_named(role, words) and not _is_namespace(examiner, role)
    ]
    return msgspec.structs.replace(facts, reason=idle_roles(idle)) if idle else facts


def _is_namespace(examiner: Examiner, role: str) -> bool:
    """Whether a role names an NVMe namespace of multipath, or may name one."""
    try:
        return is_named(role, {node.devname.lower() for node in examiner.multipath.every})
    except ExhaustedError:
        raise
    except TreeError:
        return True


def _take_usb(done: _Pass, examiner: Examiner, device: UsbDevice, line: bool) -> None:
    for interface in device.interfaces:
        done.take(interface, partial(examiner.interface, interface, device, line))
    if device.interfaces and device.undriven:
        hardware = Hardware("usb", device.address, device.directory, "", "whole", device.directory)
        done.take(hardware, partial(examiner.whole, device, line))


def declared_by(
    tree: Tree, machine: Machine, strings: StringReader, before: frozenset[str] = frozenset()
) -> Callable[[UsbDevice], bool]:
    """Tells whether a USB device is a declared serial line.

    Asks a device for its serial only where an entry with its ids wants one. A device that hangs is one if it
    was one before (`before`: addresses), or if nothing is known of it yet.
    """

    def is_declared(device: UsbDevice) -> bool:
        serials = wanted_serials(machine, tree, device)
        if not serials or "" in serials:
            return bool(serials)
        spoken = strings.read(tree, device.directory)
        if spoken is None and before:
            return device.address in before
        return is_line(serials, spoken.serial if spoken is not None else None)

    return is_declared
