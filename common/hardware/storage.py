"""Which disks the machine depends on: facts from the host's mount table, its swaps and /sys."""

import re

import msgspec

from common.hardware.machine import Machine
from common.hardware.text import clean
from common.hardware.tree import ExhaustedError, Tree, TreeError
from common.inventory import StorageState

_STACKED = re.compile(r"(dm-|md|bcache)\d+")  # virtual disks made of other disks
_VIRTUAL = "sys/devices/virtual/block"
_OCTAL = re.compile(rb"\\([0-7]{3})")  # how mountinfo and swaps write blanks; proc(5)


class StorageFacts(msgspec.Struct, frozen=True):
    """What is known of the disks in use.

    `used`: "major:minor" -> why. `named`: block device name as in /sys -> why. `every`: why no disk at all
    may be offered, "" normally. `roles`: what the machine file declares (None: nothing).
    """

    state: StorageState
    reason: str = ""
    used: dict[str, str] = msgspec.field(default_factory=dict)
    named: dict[str, str] = msgspec.field(default_factory=dict)
    every: str = ""
    roles: frozenset[str] | None = None


def storage_facts(tree: Tree, machine: Machine) -> StorageFacts:
    """The facts of now: a handful of reads, no device is looked at.

    An unreadable mount table is a fact ("unknown"), not an error; only ExhaustedError passes through.
    """
    try:
        return _known_facts(tree, machine)
    except ExhaustedError:
        raise
    except TreeError as error:
        return StorageFacts("unknown", str(error), roles=machine.roles)


def _known_facts(tree: Tree, machine: Machine) -> StorageFacts:
    mounts = _mounts(tree)
    swaps = _swaps(tree)
    if not mounts.used:
        reason = "/proc/1/mountinfo of the host is missing or empty; is the host's /proc mounted?"
        return StorageFacts("unknown", reason, roles=machine.roles)
    named, every = _stacks(tree, mounts.used, swaps)
    for name in sorted(swaps):
        named.setdefault(name, f"{name} is used as swap")
    for name in _members(tree):
        named.setdefault(name, f"{name} is a member of a mounted btrfs or bcachefs file system")
    pools = _pools(tree) or mounts.pools
    if pools:
        every = f"the ZFS pool {pools[0]} is imported and does not tell which disks it uses"
    state: StorageState = "observed" if machine.roles is None else "roles"
    return StorageFacts(state, "", mounts.used, named, every, machine.roles)


class _Mounts(msgspec.Struct):
    used: dict[str, str] = msgspec.field(default_factory=dict)
    pools: list[str] = msgspec.field(default_factory=list)


def _mounts(tree: Tree) -> _Mounts:
    """/proc/1/mountinfo: ID PARENT MAJOR:MINOR ROOT POINT OPTIONS... - TYPE SOURCE OPTIONS; proc(5)."""
    found = _Mounts()
    for line in (tree.read("proc/1/mountinfo") or b"").split(b"\n"):
        parts = line.split(b" ")
        if len(parts) < 6 or b":" not in parts[2]:
            continue
        point = clean(_unescape(parts[4]))
        found.used.setdefault(parts[2].decode("ascii", "replace"), f"mounted at {point}")
        tail = line.partition(b" - ")[2].split(b" ")
        if tail[0] == b"zfs" and len(tail) > 1:
            found.pools.append(clean(_unescape(tail[1])).partition("/")[0])
    return found


def _swaps(tree: Tree) -> set[str]:
    """Names of block devices used as swap. A kernel without swap has no /proc/swaps.

    Raises TreeError for a path that leads to no block device: what it stands for may be any disk.
    """
    names = set()
    for line in (tree.read("proc/swaps") or b"").split(b"\n")[1:]:
        parts = line.split()
        if len(parts) < 2 or parts[1] != b"partition":
            continue  # a swap file lies on a mounted file system
        path = clean(_unescape(parts[0]).removesuffix(b" (deleted)"))
        name = _block_name(tree, path)
        if not name:
            raise TreeError(f"/proc/swaps names {path}, which no block device of /sys is called")
        names.add(name)
    return names


def _block_name(tree: Tree, path: str) -> str:
    """The /sys name of the block device a /dev path stands for: itself, or a device-mapper name; else ""."""
    if not path.startswith("/dev/"):
        return ""
    wanted = path.removeprefix("/dev/")
    name = wanted.replace("/", "!")
    if tree.link(f"sys/class/block/{name}") is not None or tree.link(f"sys/block/{name}") is not None:
        return name
    if wanted.startswith("mapper/"):
        for mapped in _virtual_disks(tree):
            if mapped.startswith("dm-") and tree.word(f"{_VIRTUAL}/{mapped}/dm/name") == wanted[7:]:
                return mapped
    return ""


def _virtual_disks(tree: Tree) -> list[str]:
    entries = tree.entries(_VIRTUAL)
    return entries.dirs if entries is not None else []


def _stacks(tree: Tree, used: dict[str, str], swaps: set[str]) -> tuple[dict[str, str], str]:
    """Members of dm, md and bcache disks and backing devices of loops, with why; and why every disk is used.

    A stacked disk in use whose members cannot be seen may stand on any disk.
    """
    named: dict[str, str] = {}
    every = ""
    for disk in _virtual_disks(tree):
        if disk.startswith("loop"):
            backing = _block_name(tree, tree.word(f"{_VIRTUAL}/{disk}/loop/backing_file"))
            if backing:
                named.setdefault(backing, f"{backing} backs {disk}")
        elif _STACKED.fullmatch(disk):
            slaves = tree.names(f"{_VIRTUAL}/{disk}/slaves")
            why = used.get(tree.word(f"{_VIRTUAL}/{disk}/dev")) or ("used as swap" if disk in swaps else "")
            for slave in slaves:
                named.setdefault(slave, f"{slave} is part of {disk}" + (f", which is {why}" if why else ""))
            if why and not slaves:
                every = f"{disk} is {why} and its member disks cannot be seen"
    return named, every


def _members(tree: Tree) -> list[str]:
    """Block devices of mounted btrfs and bcachefs file systems, which mount under numbers of their own."""
    names = []
    for system in _folders(tree, "sys/fs/btrfs"):
        names.extend(tree.names(f"sys/fs/btrfs/{system}/devices"))
    for system in _folders(tree, "sys/fs/bcachefs"):
        for member in _folders(tree, f"sys/fs/bcachefs/{system}"):
            if member.startswith("dev-"):
                names.append(tree.link_name(f"sys/fs/bcachefs/{system}/{member}/block"))
    return sorted(filter(None, names))


def _pools(tree: Tree) -> list[str]:
    return _folders(tree, "proc/spl/kstat/zfs")


def _folders(tree: Tree, path: str) -> list[str]:
    entries = tree.entries(path)
    return entries.dirs if entries is not None else []


def _unescape(text: bytes) -> bytes:
    return _OCTAL.sub(lambda match: bytes([int(match.group(1), 8) & 0xFF]), text)
