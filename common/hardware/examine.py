"""One piece of hardware, examined: its delivery read, its verdict given. Walk and slot both go through here,
so what is published, prepared and projected can never disagree.
"""

import re
from collections.abc import Collection
from functools import cached_property

import msgspec

from common.hardware.delivery import by_path, deliver, usbfs_node
from common.hardware.discovery import Ownership, UsbDevice
from common.hardware.disks import in_use, is_named, withheld_disks
from common.hardware.machine import Machine
from common.hardware.model import PLUMBING, Delivery, Hardware, Node, Offer, Situation, Verdict
from common.hardware.nvme import Multipath, multipath
from common.hardware.policy import DISK_KINDS, is_with_program, publish
from common.hardware.storage import StorageFacts, storage_facts
from common.hardware.tree import Tree
from common.inventory import DeviceNode, Withheld

INLETS = ("uinput", "uhid")  # where a Bluetooth program hands input devices to the kernel
# The kernel fixes the numbers of the first 32 event nodes; Documentation/admin-guide/devices.txt
INPUT_MAJOR = 13
FIRST_EVENT_MINOR = 64
EVENT_NODES = 32
_CONTROLLER = re.compile(r"nvme\d+")


class Finding(msgspec.Struct, frozen=True):
    """One piece of hardware with all that is known of its nodes."""

    hardware: Hardware
    delivery: Delivery
    verdict: Verdict


class Examiner:
    """One pass over one tree. Reads what several pieces of hardware share at most once, when first needed.

    `facts`: the storage facts, read when missing. `claimed`: see model.Situation.
    """

    def __init__(
        self, tree: Tree, machine: Machine, facts: StorageFacts | None = None, claimed: bool = False
    ) -> None:
        self.tree = tree
        self.machine = machine
        self.ownership = Ownership(tree)
        self._given_facts = facts
        self._claimed = claimed

    @cached_property
    def facts(self) -> StorageFacts:
        return self._given_facts if self._given_facts is not None else storage_facts(self.tree, self.machine)

    @cached_property
    def consoles(self) -> frozenset[str]:
        return frozenset(self.tree.word("sys/class/tty/console/active").split())

    def read_shared(self) -> None:
        """Read what every piece of hardware depends on; TreeError here means that nothing can be offered."""
        _ = self.consoles, self.facts

    @cached_property
    def inlets(self) -> tuple[str, ...]:
        return tuple(name for name in INLETS if self.tree.link(f"sys/class/misc/{name}") is not None)

    @cached_property
    def multipath(self) -> Multipath:
        return multipath(self.tree)

    @cached_property
    def lost_namespace(self) -> str:
        """Why no NVMe controller may be offered: a namespace in use that belongs to no known one."""
        for node in self.multipath.unmapped:
            why = in_use(self.tree, self.facts, node) if node.nature == "block" else ""
            if why or any(is_named(role, {node.devname.lower()}) for role in self.facts.roles or ()):
                return f"{why or f'spec.storage.roles names {node.devname}'}, and its controller is unknown"
        return ""

    def function(self, hardware: Hardware) -> Finding:
        """A PCI function."""
        if not hardware.driver or hardware.driver in PLUMBING:
            return self._finding(hardware, Delivery(), Situation())
        return self._judged(hardware, deliver(self.tree, hardware))

    def board(self, hardware: Hardware) -> Finding:
        """A board device; nodes below it that another piece of hardware owns are not its own."""
        if not hardware.driver or hardware.driver in PLUMBING:
            return self._finding(hardware, Delivery(), Situation())
        found = deliver(self.tree, hardware)
        own = tuple(node for node in found.nodes if self._owns(hardware, node))
        dropped = tuple(dropped for dropped in found.dropped if self._owns(hardware, dropped.node))
        return self._judged(hardware, msgspec.structs.replace(found, nodes=own, dropped=dropped))

    def _owns(self, hardware: Hardware, node: Node) -> bool:
        owner = self.ownership.owner(node.directory).owner
        return owner is not None and owner.directory == hardware.directory

    def interface(self, hardware: Hardware, device: UsbDevice, line: bool) -> Finding:
        """A USB interface of `device`; `line`: the device is a declared serial line."""
        quiet = not hardware.driver or hardware.driver in PLUMBING
        if quiet or (is_with_program(hardware) and not self._claimed):
            return self._finding(hardware, Delivery(), Situation())
        found = msgspec.structs.replace(
            deliver(self.tree, hardware), usbfs=usbfs_node(self.tree, device.directory)
        )
        radio = hardware.driver == "btusb" and self._publishes_radio(hardware, device)
        return self._judged(hardware, found, line, radio)

    def _publishes_radio(self, hardware: Hardware, device: UsbDevice) -> bool:
        """True for the interface with the radio below it, else for the lowest one that btusb drives."""
        driven = [interface for interface in device.interfaces if interface.driver == "btusb"]
        with_radio = [interface for interface in driven if deliver(self.tree, interface).bluetooth]
        chosen = (with_radio or driven or [hardware])[0]
        return chosen.address == hardware.address

    def whole(self, device: UsbDevice, line: bool) -> Finding:
        """A USB device that publishes whole; `line`: it is a declared serial line."""
        driver = self.tree.link_name(f"{device.directory}/driver")
        hardware = Hardware("usb", device.address, device.directory, driver, "whole", device.directory)
        found = Delivery(usbfs=usbfs_node(self.tree, device.directory))
        return self._judged(hardware, found, line)

    def _judged(
        self, hardware: Hardware, found: Delivery, line: bool = False, radio: bool = False
    ) -> Finding:
        if any(node.nature == "nvme" for node in found.nodes):
            found = self._with_namespaces(found)
        disks = {}
        if any(node.nature in DISK_KINDS for node in found.nodes):
            disks = withheld_disks(self.tree, self.facts, hardware, found.nodes)
        situation = Situation(
            # consoles are ttys; for others the file need not be read
            consoles=self.consoles if any(node.nature == "tty" for node in found.nodes) else frozenset(),
            release=self.machine.release,
            disks=disks,
            line=line,
            radio=radio,
            inlets=self.inlets if radio else (),
            claimed=self._claimed,
        )
        return self._finding(hardware, found, situation)

    def _with_namespaces(self, found: Delivery) -> Delivery:
        controllers = [
            node.devname
            for node in found.nodes
            if node.nature == "nvme" and _CONTROLLER.fullmatch(node.devname)
        ]
        nodes = dict.fromkeys(found.nodes)
        refused = self.lost_namespace
        for controller in controllers:
            nodes.update(dict.fromkeys(self.multipath.nodes.get(controller, ())))
            refused = refused or self.multipath.shared.get(controller, "")
        return msgspec.structs.replace(found, nodes=tuple(sorted(nodes, key=by_path)), refused=refused)

    def _finding(self, hardware: Hardware, delivery: Delivery, situation: Situation) -> Finding:
        return Finding(hardware, delivery, publish(hardware, delivery, situation))


def device_nodes(offer: Offer, usbfs: Node | None) -> tuple[DeviceNode, ...]:
    """What a claim on this offer receives: own nodes, the usbfs node, the inlets of a Bluetooth radio."""
    found = [DeviceNode(node.path, node.kind) for node in offer.nodes]
    if offer.usbfs and usbfs is not None:
        found.append(DeviceNode(usbfs.path, usbfs.kind))
    found.extend(DeviceNode(f"/dev/{name}", "misc") for name in offer.inlets)
    if "uinput" in offer.inlets:
        found.extend(
            DeviceNode(
                f"/dev/input/event{number}", "input", "c", INPUT_MAJOR, FIRST_EVENT_MINOR + number, 0o600
            )
            for number in range(EVENT_NODES)
        )
    return tuple(found)


def withheld_nodes(finding: Finding) -> list[Withheld]:
    """The held and withheld nodes of one piece of hardware as the inventory tells them."""
    hardware = finding.hardware
    return [
        Withheld(hardware.bus, hardware.address, kept.node.path, kept.reason, kept.detail)
        for kept in finding.verdict.held
    ]


def wanted_serials(machine: Machine, tree: Tree, device: UsbDevice) -> list[str]:
    """The serials of all spec.serio entries whose ids match the device; "" for one that asks for none."""
    if not machine.serio:
        return []
    vendor, product = tree.word(f"{device.directory}/idVendor"), tree.word(f"{device.directory}/idProduct")
    return [line.serial for line in machine.serio if line.matches(vendor.lower(), product.lower())]


def is_line(serials: Collection[str], serial: str | None) -> bool:
    """Whether a device with `serial` (None: not known) is declared by entries with these serials.

    Not known counts as declared: a tty withheld for a moment harms nobody.
    """
    return bool(serials) and ("" in serials or serial is None or serial in serials)
