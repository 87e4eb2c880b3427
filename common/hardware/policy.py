"""What one piece of hardware publishes. Facts in, verdict out: nothing here reads a file.

The order of `publish` is the order of the rules; the first that speaks decides.
"""

from collections.abc import Iterable

import msgspec

from common.hardware.held import SERIO_DETAIL, held
from common.hardware.model import (
    PLUMBING,
    Delivery,
    Hardware,
    HeldNode,
    Node,
    Offer,
    Situation,
    Verdict,
)
from common.hardware.names import variant_label

ALONG = "goes with the disk"  # how the detail of a node begins that is withheld for another node's sake
DISK_KINDS = frozenset({"block", "nvme", "nvme-generic", "scsi_generic"})
_RESERVED_VARIANTS = frozenset({"", "display"})  # a companion of a kind called so would take another's name


def publish(hardware: Hardware, delivery: Delivery, situation: Situation) -> Verdict:
    """The devices that `hardware` publishes with this delivery, and the nodes kept back, with reasons."""
    nothing = _never(hardware, situation)
    if nothing:
        return Verdict(nothing)
    if situation.line and (hardware.form == "whole" or any(node.nature == "tty" for node in delivery.nodes)):
        return _serial_line(hardware, delivery, situation)
    nodes, kept = _without_held(delivery, situation)
    shape, offers = _shape(hardware, delivery, situation, nodes)
    offers = _with_usbfs(hardware, delivery, situation, offers)
    offers, withheld = _without_disks(delivery, situation, offers)
    return Verdict(shape, tuple(offers), _sorted((*kept, *withheld)))


def _never(hardware: Hardware, situation: Situation) -> str:
    """Why hardware of this kind publishes nothing, whatever nodes it has; "" when it may."""
    if hardware.form == "whole":
        return ""
    if not hardware.driver:
        return "undriven"
    if hardware.driver in PLUMBING:
        return "plumbing"
    if is_with_program(hardware) and not situation.claimed:
        return "usbfs"
    if hardware.driver == "btusb" and hardware.form == "interface" and not situation.radio:
        return "companion-radio"
    return ""


def is_with_program(hardware: Hardware) -> bool:
    """True when a program holds the USB interface; the kernel then shows usbfs as its driver."""
    return hardware.form == "interface" and hardware.driver == "usbfs"


def _serial_line(hardware: Hardware, delivery: Delivery, situation: Situation) -> Verdict:
    """A declared serial line: its CEC bus and its remote once attached; never the tty, nor usbfs."""
    offers, kept = [], []
    if hardware.form == "whole" and delivery.usbfs is not None:
        kept.append(HeldNode(delivery.usbfs, "serio", SERIO_DETAIL))
    nodes, other = _without_held(delivery, situation)
    kept.extend(other)
    for kind in ("cec", "input"):
        of_kind = tuple(node for node in nodes if node.kind == kind)
        if of_kind:
            offers.append(Offer(kind, of_kind, subsystem=kind))
    kept.extend(HeldNode(node, "serio", SERIO_DETAIL) for node in nodes if node.nature == "tty")
    return Verdict("line", tuple(offers), _sorted(kept))


def _without_held(delivery: Delivery, situation: Situation) -> tuple[tuple[Node, ...], list[HeldNode]]:
    with_disk = any(node.nature == "block" for node in delivery.nodes)
    nodes, kept = [], []
    for node in delivery.nodes:
        reason = held(node, situation.consoles, situation.release, with_disk)
        if reason is None:
            nodes.append(node)
        else:
            kept.append(HeldNode(node, *reason))
    return tuple(nodes), kept


def _shape(
    hardware: Hardware, delivery: Delivery, situation: Situation, nodes: tuple[Node, ...]
) -> tuple[str, list[Offer]]:
    kinds = {node.kind for node in nodes}
    if hardware.form == "interface" and hardware.driver == "btusb":
        return "bluetooth", [Offer("", nodes, usbfs=True, inlets=situation.inlets)]
    if hardware.form == "whole" or (is_with_program(hardware) and not nodes):
        return "whole", [Offer("", (), usbfs=True)]
    if not nodes:
        return "empty", []
    if "" in kinds:
        return "unreadable", [Offer("", nodes)]
    if "drm" in kinds:
        return "graphics", _graphics(delivery, nodes)
    if "sound" in kinds and kinds <= {"sound", "input"}:
        plays = any(node.devname.startswith("snd/pcm") for node in nodes)
        return "sound", [Offer("", nodes, subsystem="sound", sound=plays)]
    if len(kinds) == 1:
        return "single", [Offer("", nodes, subsystem=nodes[0].kind)]
    return "mix", [Offer("", nodes)]


def _graphics(delivery: Delivery, nodes: tuple[Node, ...]) -> list[Offer]:
    """Render nodes for everybody, card nodes for one, each further kind for one."""
    drm = [node for node in nodes if node.kind == "drm"]
    render = tuple(node for node in drm if node.devname.startswith("dri/renderD"))
    cards = tuple(node for node in drm if node not in render)
    drives = any(node.directory.rpartition("/")[2] in delivery.cards for node in cards)
    offers = []
    if render:
        offers.append(Offer("", render, subsystem="drm", shareable=True, render=True))
    if cards:
        offers.append(Offer("display" if render else "", cards, subsystem="drm", display=drives))
    return [*offers, *_companions(node for node in nodes if node.kind != "drm")]


def _companions(nodes: Iterable[Node]) -> list[Offer]:
    """One exclusive device per further kind. Kinds that would give one suffix share a device."""
    by_variant: dict[str, list[Node]] = {}
    for node in nodes:
        label = variant_label(node.kind)
        by_variant.setdefault("other" if label in _RESERVED_VARIANTS else label, []).append(node)
    return [
        Offer(
            variant, tuple(found), subsystem=found[0].kind if len({node.kind for node in found}) == 1 else ""
        )
        for variant, found in sorted(by_variant.items())
    ]


def _with_usbfs(
    hardware: Hardware, delivery: Delivery, situation: Situation, offers: list[Offer]
) -> list[Offer]:
    """The first published device of a USB interface carries the usbfs node, unless it is shareable."""
    if not offers or hardware.bus != "usb":
        return offers
    first = offers[0]
    carries = delivery.usbfs is not None and not first.shareable and not situation.line
    first = msgspec.structs.replace(first, usbfs=carries)
    # a whole device is nothing without its usbfs node, and a radio has to deliver something
    if not (first.nodes or first.usbfs or first.inlets):
        return []
    return [first, *offers[1:]]


def _without_disks(
    delivery: Delivery, situation: Situation, offers: list[Offer]
) -> tuple[list[Offer], list[HeldNode]]:
    """A device with a disk that must not be offered is withheld whole."""
    remaining, withheld = [], []
    for offer in offers:
        refused = delivery.refused if any(node.nature in DISK_KINDS for node in offer.nodes) else ""
        details = [situation.disks[node.path] for node in offer.nodes if node.path in situation.disks]
        details = [refused] if refused else details
        if not details:
            remaining.append(offer)
            continue
        for node in offer.nodes:
            own = "" if refused else situation.disks.get(node.path, "")
            detail = own or f"{ALONG}: {details[0]}"
            withheld.append(HeldNode(node, "storage", detail))
    return remaining, withheld


def _sorted(kept: Iterable[HeldNode]) -> tuple[HeldNode, ...]:
    return tuple(sorted(kept, key=lambda each: (each.node.path, each.reason)))
