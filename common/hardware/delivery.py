"""What hardware delivers: the device nodes below its own directory."""

import re

import msgspec

from common.hardware.model import Delivery, Dropped, Hardware, Node
from common.hardware.text import clean, uevent
from common.hardware.tree import Entries, Tree

BORDERS = frozenset({"pci", "usb", "bluetooth"})  # subsystems whose directories belong to somebody else
DESCRIBED = frozenset({"platform", "acpi", "pnp", "amba", "vmbus", "ccw", "vio", "xen"})
# Folders of attributes that can hold thousands of entries and never a device: no class has such a name.
_ATTRIBUTES = frozenset({"power", "msi_irqs", "statistics", "queues", "holders", "slaves", "queue", "mq"})
_CONNECTOR = re.compile(r"card\d+-")
_NEVER = {"graphics": "graphics", "vfio-dev": "vfio"}  # kind -> rule
_CONTROL = re.compile(r"dri/controlD\d+")

DROP_REASONS = {
    "phantom": "a serial port with no UART behind it (its type reads 0)",
    "graphics": "a framebuffer: holding it gives the whole display away",
    "control": "a legacy DRM control node, which nothing uses",
    "vfio": "a handle for passing the whole function to a virtual machine",
    "network": "a clock or firmware channel of a network card, which nobody can claim apart from the card",
}


class _Found(msgspec.Struct):
    nodes: list[Node] = msgspec.field(default_factory=list)
    dropped: list[Dropped] = msgspec.field(default_factory=list)
    cards: set[str] = msgspec.field(default_factory=set)
    net: bool = False
    bluetooth: bool = False


def deliver(tree: Tree, hardware: Hardware) -> Delivery:
    """Everything below the hardware's real directory, the directory itself included.

    Symbolic links are not followed; directories of subsystem pci, usb and bluetooth are not entered, nor
    those that own their nodes themselves. A directory that vanishes on the way is skipped. Raises TreeError
    for one that cannot be listed or whose node cannot be read.
    """
    found = _Found()
    on_board = hardware.form == "board"
    waiting = [hardware.directory]
    while waiting:
        here = waiting.pop()
        entries = tree.entries(here)
        if entries is None:
            continue
        kind = tree.link_name(f"{here}/subsystem") if "subsystem" in entries.links else ""
        if here != hardware.directory and _is_foreign(here, entries, kind, on_board):
            found.bluetooth |= kind == "bluetooth" or (here.endswith("/bluetooth") and bool(entries.dirs))
            continue
        # The folder, not the interfaces in it: sysfs shows those of its own network namespace only.
        found.net = found.net or "net" in entries.dirs
        if kind == "drm" and _CONNECTOR.match(here.rpartition("/")[2]):
            found.cards.add(here.rsplit("/", 2)[1])
        if "dev" in entries.files and not _take(tree, found, here, kind, entries):
            continue
        waiting.extend(f"{here}/{name}" for name in reversed(entries.dirs) if name not in _ATTRIBUTES)
    return _settle(found)


def _is_foreign(here: str, entries: Entries, kind: str, on_board: bool) -> bool:
    if kind in BORDERS or here.endswith("/bluetooth"):  # the class's own folder has no subsystem
        return True
    if "driver" not in entries.links:
        return False
    # Below a PCI function or USB interface a described device is an owner when the firmware tree describes
    # it (boards whose I/O sits behind PCI); on the board every driven device of a described bus is one.
    return kind in DESCRIBED if on_board else "of_node" in entries.links


def _take(tree: Tree, found: _Found, here: str, kind: str, entries: Entries) -> bool:
    """Put the node where it belongs. False for a USB device's own: what lies below is not looked at."""
    path = node_path(tree.read(f"{here}/uevent"))
    if not path:
        return True
    node = Node(path, kind if kind.isascii() else "", here)  # no kernel has other words
    nature = node.nature
    if nature == "usb":
        return False
    if nature == "tty" and "type" in entries.files and tree.word(f"{here}/type") == "0":
        found.dropped.append(Dropped(node, "phantom"))
    elif nature in _NEVER:
        found.dropped.append(Dropped(node, _NEVER[nature]))
    elif _CONTROL.fullmatch(node.devname):
        found.dropped.append(Dropped(node, "control"))
    else:
        found.nodes.append(node)
    return True


def _settle(found: _Found) -> Delivery:
    if found.net:
        for node in [node for node in found.nodes if node.nature in {"ptp", "fwctl"}]:
            found.nodes.remove(node)
            found.dropped.append(Dropped(node, "network"))
    return Delivery(
        nodes=tuple(sorted(found.nodes, key=by_path)),
        dropped=tuple(sorted(found.dropped, key=lambda dropped: by_path(dropped.node))),
        cards=frozenset(found.cards),
        bluetooth=found.bluetooth,
    )


def node_path(content: bytes | None) -> str:
    """The path below /dev that a `uevent` file names; "" when it names none, or one that leaves /dev."""
    name = uevent(content).get("DEVNAME", "")
    if not name or clean(name.encode("utf-8", "replace")) != name or "\ufffd" in name:
        return ""
    if any(part in {"", ".", ".."} for part in name.split("/")):
        return ""
    return f"/dev/{name}"


_DIGITS = re.compile(r"(\d+)")


def natural(text: str) -> tuple[tuple[int, str], ...]:
    """A sort key that counts: event2 before event10, interface 1.2 before 1.10."""
    parts = _DIGITS.split(text)
    return tuple((int(part), "") if index % 2 else (-1, part) for index, part in enumerate(parts))


def by_path(node: Node) -> tuple[tuple[int, str], ...]:
    return natural(node.path)


def usbfs_node(tree: Tree, device: str) -> Node | None:
    """The usbfs node of the USB device at `device`; None while the kernel states no numbers for it."""
    bus, number = tree.word(f"{device}/busnum"), tree.word(f"{device}/devnum")
    if not (bus.isascii() and bus.isdigit() and number.isascii() and number.isdigit()):
        return None
    return Node(f"/dev/bus/usb/{int(bus):03d}/{int(number):03d}", "usb", device)
