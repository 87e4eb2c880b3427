"""Why disks stay with the machine, in words, and what to declare so that spare ones are offered."""

import re
from collections import defaultdict

from common.hardware import explain_words as words
from common.hardware.delivery import natural
from common.hardware.disks import BLOCKLESS, UNDECLARED, UNKNOWN
from common.hardware.policy import ALONG
from common.inventory import Inventory, Withheld

_PARTITION = re.compile(r"(?<=[a-z])\d+$|(?<=\d)p\d+$")  # sda1, nvme0n1p2, mmcblk0p1

_NOT_SEEN = {UNDECLARED, UNKNOWN, BLOCKLESS}  # details that name no user of a disk


def disk_words(inventory: Inventory, entries: list[Withheld]) -> tuple[str, tuple[str, ...]]:
    """Why hardware with these storage nodes is withheld, as the end of a sentence, and what to do."""
    used = [entry for entry in entries if _is_in_use(entry)]
    if used:
        return f"carries {_disks(used, entries)}, which this machine uses: {used[0].detail}", ()
    own = [entry for entry in entries if not _goes_along(entry)]
    if not own:
        return f"is withheld with its disk: {entries[0].detail.removeprefix(f'{ALONG}: ')}", ()
    disks = _disks(own, entries)
    if any(entry.detail == UNKNOWN for entry in entries):
        return (
            f"carries {disks}, and which disks this machine needs is unknown: {inventory.facts.reason}",
            ("let liken read the host's mount table: proc/1/mountinfo below LIKEN_HOST_PROC",),
        )
    if any(entry.detail == BLOCKLESS for entry in entries):
        return f"has {disks}, which {words.BLOCKLESS}", ()
    return f"carries {disks}, {words.UNDECLARED}", words.roles_advice(disks_in_use(inventory))


def disks_in_use(inventory: Inventory) -> tuple[str, ...]:
    """The disks that something on this machine is known to use, sorted."""
    by_slot: dict[tuple[str, str], list[Withheld]] = defaultdict(list)
    for entry in inventory.withheld:
        by_slot[entry.bus, entry.address].append(entry)
    found: set[str] = set()
    for entries in by_slot.values():
        used = [entry for entry in entries if _is_in_use(entry)]
        found.update(_disks(used, entries).split(", ") if used else ())
    return tuple(sorted(found, key=natural))


def _is_in_use(entry: Withheld) -> bool:
    return entry.reason == "storage" and not _goes_along(entry) and entry.detail not in _NOT_SEEN


def _goes_along(entry: Withheld) -> bool:
    return entry.detail.startswith(ALONG)


def _disks(entries: list[Withheld], siblings: list[Withheld]) -> str:
    """The disks behind these nodes; a partition stands for its disk when that is among the siblings."""
    names = {entry.node.removeprefix("/dev/") for entry in siblings}
    found = set()
    for entry in entries:
        name = entry.node.removeprefix("/dev/")
        disk = _PARTITION.sub("", name)
        found.add(disk if disk in names else name)
    return ", ".join(sorted(found, key=natural))
