"""Which disk nodes of one piece of hardware must not be offered, given the facts of the machine."""

import re
from collections.abc import Collection, Iterable, Sequence

from common.hardware.model import Hardware, Node
from common.hardware.names import device_name
from common.hardware.storage import StorageFacts
from common.hardware.text import uevent
from common.hardware.tree import Tree

UNDECLARED = "not declared spare"
BLOCKLESS = "its disk has no block device now that spec.storage.roles could name"
UNKNOWN = "it cannot be told whether the machine uses it"
_ROLES_TOLD, _ROLE_LENGTH = 5, 64  # of roles without a disk: how many, and letters of each

# Peripheral device types that are disks (SPC-4, table of types), as the kernel states them in a SCSI device's
# uevent: direct access, optical memory, simplified, zoned. One that states none may be a disk.
_SCSI_DISKS = frozenset({"scsi:t-0x00", "scsi:t-0x07", "scsi:t-0x0e", "scsi:t-0x14"})
_SCSI_DEVICE = re.compile(r"/\d+:\d+:\d+:\d+$")  # host:channel:target:lun
_OPTICAL = re.compile(r"sr\d+")
_CARD = re.compile(r"mmcblk\d+")
_PARTITION = re.compile(r"(?<=[a-z])\d+$|(?<=\d)p\d+$")  # sda1, nvme0n1p2, mmcblk0p1


def withheld_disks(
    tree: Tree, facts: StorageFacts, hardware: Hardware, nodes: Iterable[Node]
) -> dict[str, str]:
    """For each disk node of `hardware` that must not be offered: its path and why."""
    nodes = tuple(nodes)
    disks = [node for node in nodes if node.nature == "block"]
    found = {}
    for node in _blockless(tree, nodes, disks):
        detail = _undeclared(tree, facts, hardware, node)
        if not detail and not _removable(tree, hardware, node):
            detail = BLOCKLESS
        if detail:
            found[node.path] = detail
    busy = {node.directory: in_use(tree, facts, node) for node in disks}
    declared = _declared(facts, hardware, nodes)
    for node in disks:
        detail = (
            busy[node.directory]
            or _partition_in_use(node, busy)
            or declared
            or _undeclared(tree, facts, hardware, node)
        )
        if detail:
            found[node.path] = detail
    return found


def _blockless(tree: Tree, nodes: Iterable[Node], disks: list[Node]) -> list[Node]:
    """Nodes that reach a disk which has no block device now, so that no declaration can name it.

    An NVMe controller without a namespace makes and destroys namespaces. An sg or bsg node still reaches a
    SCSI disk whose driver was unbound, and the members of a RAID that the controller hides from that driver.
    """
    found = []
    for node in nodes:
        if node.nature in {"nvme", "nvme-generic"} and not disks:
            found.append(node)
        elif node.nature in {"scsi_generic", "bsg"}:
            target = node.directory.rpartition("/")[0].removesuffix(f"/{node.nature}")
            if node.nature == "bsg" and not _SCSI_DEVICE.search(target):
                continue  # of the host adapter itself
            of_disk = any(disk.directory.startswith(f"{target}/") for disk in disks)
            if not of_disk and _may_be_disk(uevent(tree.read(f"{target}/uevent")).get("MODALIAS", "")):
                found.append(node)
    return found


def _may_be_disk(modalias: str) -> bool:
    return modalias in _SCSI_DISKS or not modalias.startswith("scsi:")


def _partition_in_use(disk: Node, busy: dict[str, str]) -> str:
    """Why a partition of the disk is in use; "" when none is."""
    within = f"{disk.directory}/"
    return next((why for place, why in sorted(busy.items()) if why and place.startswith(within)), "")


def in_use(tree: Tree, facts: StorageFacts, node: Node) -> str:
    """Why the block device at `node` is in use; "" when nothing known uses it."""
    name = node.directory.rpartition("/")[2]
    number = tree.word(f"{node.directory}/dev")
    if not number:
        return f"{name} has no device number that the mount table could name"
    mounted = facts.used.get(number)
    if mounted:
        return f"{name} is {mounted}"
    if name in facts.named:
        return facts.named[name]
    holders = tree.names(f"{node.directory}/holders")
    if holders:
        return f"{name} is part of {holders[0]}"
    return facts.every


def _declared(facts: StorageFacts, hardware: Hardware, nodes: Iterable[Node]) -> str:
    """Why the machine file keeps this hardware; "" when it does not.

    A role names the owner's address or the device it would publish, any of its nodes, or a partition of one
    of its disks, there now or not. Capitals do not matter: lspci and /sys write addresses differently.
    """
    words = role_words(hardware, nodes)
    role = next((role for role in sorted(facts.roles or ()) if is_named(role, words)), "")
    return f"spec.storage.roles names {role}: the machine needs it" if role else ""


def role_words(hardware: Hardware, nodes: Iterable[Node]) -> set[str]:
    """What a role may call hardware with these nodes, in small letters."""
    words = {hardware.address, device_name(hardware.bus, hardware.address)}
    words.add(hardware.address.partition(":")[0] if hardware.bus == "usb" else "")
    words.update(node.devname for node in nodes)
    words.update(node.directory.rpartition("/")[2] for node in nodes)
    return {word.lower() for word in words}


def is_named(role: str, words: Collection[str]) -> bool:
    """Whether `role` is one of these words, or a partition of a disk called so."""
    return role.lower() in words or _PARTITION.sub("", role.lower()) in words


def idle_roles(roles: Sequence[str]) -> str:
    """What to tell of roles that no disk of this machine goes by now."""
    told = ", ".join(role[:_ROLE_LENGTH] for role in roles[:_ROLES_TOLD])
    more = f" and {len(roles) - _ROLES_TOLD} more" if len(roles) > _ROLES_TOLD else ""
    return (
        f"spec.storage.roles names {told}{more}, and no disk that could be offered goes by that name now:"
        " it keeps nothing back; correct the machine file, unless the disk is to come"
    )


def _undeclared(tree: Tree, facts: StorageFacts, hardware: Hardware, node: Node) -> str:
    if facts.state == "unknown":
        return UNKNOWN
    if facts.state == "observed" and not _removable(tree, hardware, node):
        return UNDECLARED
    return ""


def _removable(tree: Tree, hardware: Hardware, node: Node) -> bool:
    """A disk on USB, an SD card or an optical drive: offered without a declaration."""
    if hardware.bus == "usb" or _OPTICAL.fullmatch(node.devname):
        return True
    if not _CARD.match(node.devname):
        return False
    place = node.directory
    for _ in range(4):  # partition, disk, the block folder, the card
        place = place.rpartition("/")[0]
        kind = uevent(tree.read(f"{place}/uevent")).get("MMC_TYPE")
        if kind is not None:
            return kind == "SD"
    return False
