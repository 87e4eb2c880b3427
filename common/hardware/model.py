"""What the rules speak of: nodes, hardware, what it delivers, and the verdict on it. No I/O here."""

import re
from collections.abc import Mapping
from typing import Literal

import msgspec

Form = Literal["function", "interface", "whole", "board"]
_NATURES = tuple(
    (kind, re.compile(names))
    for kind, names in (
        ("usb", r"bus/usb/.*"),
        ("graphics", r"fb\d+"),
        ("vfio-dev", r"vfio/.*"),
        ("nvme", r"nvme\d+"),
        ("nvme-generic", r"ng\d+n\d+"),
        ("scsi_generic", r"sg\d+"),
        ("bsg", r"bsg/.*"),
        ("block", r"(nvme\d+n|sd[a-z]|hd[a-z]|vd[a-z]|xvd[a-z]|sr\d|mmcblk\d|dasd[a-z]|pmem\d|fd\d).*"),
        ("tty", r"tty.*"),
        ("ptp", r"ptp\d+"),
    )
)
PLUMBING = frozenset({"usb", "hub", "pcieport"})  # drivers of the structure that peripherals hang on


class Node(msgspec.Struct, frozen=True):
    """One device node the kernel has: its path below /dev, its subsystem, its directory in the tree.

    `kind` is "" when the subsystem cannot be read.
    """

    path: str
    kind: str
    directory: str

    @property
    def devname(self) -> str:
        return self.path[len("/dev/") :]

    @property
    def nature(self) -> str:
        """The kind, or, while that cannot be read, the one the name speaks for: what must not be given away
        stays so. "" when the name says nothing.
        """
        return self.kind or next((kind for kind, names in _NATURES if names.fullmatch(self.devname)), "")


class Hardware(msgspec.Struct, frozen=True):
    """One piece of hardware that rule 1 of the discovery finds.

    `form`: a PCI function, a USB interface, a whole USB device, a board device. `driver` is "" for none.
    `device` is the directory of the USB device (of an interface: its parent), "" off the USB.
    """

    bus: str
    address: str
    directory: str
    driver: str
    form: Form
    device: str = ""


class Dropped(msgspec.Struct, frozen=True):
    """A node that exists and is delivered by nothing, with the rule: a key of `delivery.DROP_REASONS`."""

    node: Node
    rule: str


class Delivery(msgspec.Struct, frozen=True):
    """What one piece of hardware has, before anything is held, withheld or split.

    `cards` are the DRM cards that have a connector directory ("card0"). `usbfs` is the node of the USB device
    that the hardware belongs to. `bluetooth`: a radio hangs below. `refused` says why the hardware may not be
    offered although its own nodes look fine ("" when it may).
    """

    nodes: tuple[Node, ...] = ()
    dropped: tuple[Dropped, ...] = ()
    cards: frozenset[str] = frozenset()
    usbfs: Node | None = None
    bluetooth: bool = False
    refused: str = ""


class Situation(msgspec.Struct, frozen=True):
    """What policy must know besides the delivery, all read before.

    `consoles`: names in class/tty/console/active. `release`: held kinds the machine file gives back.
    `disks`: for each node of a disk that must not be offered, why. `line`: the USB device is a declared
    serial line. `radio`: this btusb interface is the one that publishes. `inlets`: those of uinput and uhid
    that the misc class has. `claimed`: what is asked is not what to offer but what an existing claim gets: a
    program that holds the hardware through usbfs may be the claim's own.
    """

    consoles: frozenset[str] = frozenset()
    release: frozenset[str] = frozenset()
    disks: Mapping[str, str] = msgspec.field(default_factory=dict)
    line: bool = False
    radio: bool = False
    inlets: tuple[str, ...] = ()
    claimed: bool = False


class Offer(msgspec.Struct, frozen=True):
    """One device to publish. `nodes` are the hardware's own; `extra` are usbfs and the Bluetooth inlets."""

    variant: str
    nodes: tuple[Node, ...]
    subsystem: str = ""
    shareable: bool = False
    render: bool = False
    display: bool = False
    sound: bool = False
    usbfs: bool = False
    inlets: tuple[str, ...] = ()

    @property
    def kinds(self) -> tuple[str, ...]:
        return tuple(sorted({node.kind for node in self.nodes if node.kind}))


class HeldNode(msgspec.Struct, frozen=True):
    """A node taken out of the delivery: `reason` is a held kind ("console", ...) or "storage"."""

    node: Node
    reason: str
    detail: str


class Verdict(msgspec.Struct, frozen=True):
    """What one piece of hardware publishes, and what of it is kept back. `shape` names the row that decided:
    "line", "bluetooth", "unreadable", "graphics", "sound", "whole", "single", "mix", or why nothing is
    offered: "plumbing", "undriven", "usbfs", "companion-radio", "empty".
    """

    shape: str
    offers: tuple[Offer, ...] = ()
    held: tuple[HeldNode, ...] = ()
