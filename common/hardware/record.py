"""A recording of this machine: what the rules read of /sys, /proc and lib/modules, and no more.

The rules themselves choose: they run once over a tree that notes what they look at. Serial numbers are always
masked, equal ones alike; mount points and file-system sources are not kept.
"""

import contextlib
import io
import re
import tarfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from common.hardware.machine import FILE, Machine
from common.hardware.modules import KernelModules, kernel_modules
from common.hardware.slot import inspect
from common.hardware.tree import Entries, Tree, TreeError
from common.hardware.walk import walk

FORMATS = {".tar": "w", ".tar.gz": "w:gz", ".tgz": "w:gz", ".tar.bz2": "w:bz2", ".tar.xz": "w:xz"}
# Files whose whole text tells one unit from all others.
_UNIQUE = frozenset({"serial", "serial_number", "uniq", "unique_id", "wwid", "cid", "subsysnqn"})
_UNIQUE_LINES = re.compile(rb"^(?:HID_UNIQ|UNIQ|SERIAL|ID_SERIAL)=\"?(.*?)\"?$", re.MULTILINE)
_MACHINE_SERIAL = re.compile(
    rb"(\bserial:[ \t]*['\"]?)([^'\",}\n]*?)(?=['\"]?[ \t]*(?:[,}]|$))", re.MULTILINE
)
# Files that tell something by being there, and need not have been read.
_TELLING = frozenset({"dev", "type"})
# A shorter serial number can be a word of anything; it is masked only where it is said to be one.
_DISTINCT = 5
# Text that people wrote. Elsewhere the same signs are an identifier: a serial number may be "hidraw0".
_FREE_TEXT = frozenset({"product", "manufacturer", "name", "model", "label", "product_name"})
_FREE_LINES = re.compile(rb"(?m)^(?:HID_NAME|HID_PHYS|HID_UNIQ|NAME|PHYS|UNIQ|SERIAL|ID_SERIAL)=.*$")
_UNKNOWN = "unknown"


@dataclass
class Recording:
    """Paths as a Tree takes them: files with their content, links with their text, and directories."""

    files: dict[str, bytes] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    folders: set[str] = field(default_factory=set)

    def pack(self, suffix: str) -> bytes:
        """The archive, the same bytes for the same recording. `suffix` is a key of FORMATS."""
        output = io.BytesIO()
        with tarfile.open(fileobj=output, mode=FORMATS[suffix]) as archive:  # type: ignore[call-overload]
            for path in sorted({*self.folders, *self.files, *self.links}):
                archive.addfile(*self._member(path))
        return output.getvalue()

    def _member(self, path: str) -> tuple[tarfile.TarInfo, io.BytesIO | None]:
        member = tarfile.TarInfo(path)
        member.mode = 0o644
        if path in self.files:
            member.size = len(self.files[path])
            return member, io.BytesIO(self.files[path])
        if path in self.links:
            member.type, member.linkname = tarfile.SYMTYPE, self.links[path]
        else:
            member.type, member.mode = tarfile.DIRTYPE, 0o755
        return member, None


class _Noting:
    """A tree's source that remembers what was asked of it."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self.files: dict[str, bytes] = {}
        self.links: dict[str, str] = {}
        self.listed: dict[str, Entries] = {}

    def read(self, path: str) -> bytes | None:
        content = self._tree.read(path)
        if content is not None:
            self.files[path] = content
        return content

    def link(self, path: str) -> str | None:
        text = self._tree.link(path)
        if text is not None:
            self.links[path] = text
        return text

    def entries(self, path: str) -> Entries | None:
        found = self._tree.entries(path)
        if found is not None:
            self.listed[path] = found
        return found


def record(tree: Tree, machine: Machine, machine_file: bytes = b"") -> Recording:
    """Run the rules over `tree` and keep what they read. `machine_file` is the text `machine` came from.

    Raises TreeError when the tree cannot be read.
    """
    noting = _Noting(tree)
    noted = Tree(tree.root, source=noting)
    inventory = walk(noted, machine, _UNKNOWN, _UNKNOWN)
    slots = {(device.bus, device.address) for device in inventory.devices}
    slots |= {(entry.bus, entry.address) for entry in inventory.withheld}
    for bus, address in sorted(slots):
        with contextlib.suppress(TreeError):  # a tree without that bus's folder: the walk did without it, too
            inspect(noted, machine, bus, address)
    recording = Recording(dict(noting.files), dict(noting.links))
    _add_listed(tree, noting, recording)
    _make_playable(tree, recording)
    _keep_matching_modules(noted, recording)
    _reduce_proc(recording)
    if machine_file:
        recording.files[FILE] = machine_file
    mask_serials(recording)
    _add_parents(recording)
    return recording


def _add_listed(tree: Tree, noting: _Noting, recording: Recording) -> None:
    """What stood in the listed directories: links, directories, and files of names that the rules read."""
    names = {path.rpartition("/")[2] for path in noting.files} | _TELLING
    for folder, found in noting.listed.items():
        recording.folders.add(folder)
        recording.folders.update(f"{folder}/{name}" for name in found.dirs)
        for path in (f"{folder}/{name}" for name in found.links):
            text = recording.links.get(path) or tree.link(path)
            if text is not None:
                recording.links[path] = text
        for path in (f"{folder}/{name}" for name in found.files & names):
            if path not in recording.files and (content := _quietly(tree, path)) is not None:
                recording.files[path] = content


def _make_playable(tree: Tree, recording: Recording) -> None:
    """What a device is when it is plugged and unplugged: the rules need no `uevent` of a USB device, its
    kernel events do."""
    devices = [path.rpartition("/")[0] for path in recording.links if path.endswith("/subsystem")]
    for path in (f"{device}/{name}" for device in devices for name in ("uevent", "dev")):
        if path not in recording.files and (content := _quietly(tree, path)) is not None:
            recording.files[path] = content


def _quietly(tree: Tree, path: str) -> bytes | None:
    try:
        return tree.read(path)
    except OSError:
        return None


def _keep_matching_modules(tree: Tree, recording: Recording) -> None:
    """Of the modules' indexes the lines that can matter to hardware that is here."""
    aliases = next((path for path in recording.files if path.endswith("/modules.alias")), None)
    known = kernel_modules(tree)
    if aliases is None or known is None:
        return
    modaliases = {
        content.decode("utf-8", "replace").strip()
        for path, content in recording.files.items()
        if path.startswith("sys/") and path.endswith("/modalias")
    }
    wanted = {module for modalias in modaliases for module in _all_matching(known, modalias)}
    folder = aliases.rpartition("/")[0]
    _keep_lines(recording, aliases, lambda line: _one_name(line.rpartition(b" ")[2]) in wanted)
    for name in ("modules.dep", "modules.builtin"):
        _keep_lines(recording, f"{folder}/{name}", lambda line: _one_name(_file_stem(line)) in wanted)


def _all_matching(known: KernelModules, modalias: str) -> Iterable[str]:
    return known._replace(builtin=frozenset()).matching(modalias)


def _keep_lines(recording: Recording, path: str, wanted: Callable[[bytes], bool]) -> None:
    if path in recording.files:
        lines = recording.files[path].splitlines()
        recording.files[path] = b"".join(_without_needs(line) + b"\n" for line in lines if wanted(line))


def _without_needs(line: bytes) -> bytes:
    # what a module needs in turn is of no interest: `drivers/x.ko: drivers/y.ko` keeps `drivers/x.ko:`
    return line.partition(b":")[0] + b":" if b".ko" in line and b":" in line else line


def _file_stem(line: bytes) -> bytes:
    return line.partition(b":")[0].rpartition(b"/")[2].partition(b".ko")[0]


def _one_name(name: bytes) -> str:
    return name.strip().replace(b"-", b"_").decode("utf-8", "replace")


def _reduce_proc(recording: Recording) -> None:
    """Paths tell of people and servers. Kept are those of disks, which the rules put into their reasons."""
    disks = {
        path.rpartition("/")[2].encode() for path in recording.links if path.startswith("sys/dev/block/")
    }
    for path, content in recording.files.items():
        lines = content.splitlines()
        if path.endswith("/mountinfo"):
            named = set(disks)  # the reason names the first place where a disk is mounted
            lines = [_reduced_mount(number, line, named) for number, line in enumerate(lines)]
        elif path.endswith("proc/swaps"):
            lines = [line for number, line in enumerate(lines) if not number or b"partition" in line.split()]
        elif path.endswith("/loop/backing_file"):
            lines = [line if line.startswith(b"/dev/") else b"/file" for line in lines]
        else:
            continue
        recording.files[path] = b"".join(line + b"\n" for line in lines if line)


def _reduced_mount(number: int, line: bytes, named: set[bytes]) -> bytes:
    """Fields as proc(5) has them; all that is not a device number or a type becomes a placeholder.

    The mount point of a device in `named` is kept, once.
    """
    left, separator, right = line.partition(b" - ")
    fields, kind = left.split(), right.split()
    if not separator or len(fields) < 5 or len(kind) < 2:
        return b""
    point = fields[4] if fields[2] in named else b"/mount/%d" % number
    named.discard(fields[2])
    source = kind[1] if kind[1].startswith(b"/dev/") or kind[0] == b"zfs" else b"none"
    return b"%s %s %s / %s rw - %s %s rw" % (*fields[:3], point, kind[0], source)


def mask_serials(recording: Recording) -> None:
    """Put SERIAL-1, SERIAL-2, ... for every serial number; equal ones get the same word."""
    masks: dict[bytes, bytes] = {}
    for path in sorted(recording.files):
        for serial in _serials(path, recording.files[path]):
            masks.setdefault(serial, b"SERIAL-%d" % (len(masks) + 1))
    pattern = _any_of([serial for serial in masks if len(serial) >= _DISTINCT])
    for path, content in recording.files.items():
        recording.files[path] = _masked(path, content, masks, pattern)


def _any_of(serials: list[bytes]) -> re.Pattern[bytes]:
    """Any of the serial numbers as a word of its own, the longest first; of none: nothing at all."""
    longest_first = sorted(serials, key=lambda serial: (-len(serial), serial))
    words = b"|".join(re.escape(serial) for serial in longest_first) or rb"(?!)"
    return re.compile(rb"(?<![0-9A-Za-z])(?:" + words + rb")(?![0-9A-Za-z])")


def _serials(path: str, content: bytes) -> list[bytes]:
    if path == FILE:
        found = [match.group(2) for match in _MACHINE_SERIAL.finditer(content)]
    elif path.rpartition("/")[2] in _UNIQUE:
        found = [content.strip()]
    elif path.endswith("/uevent"):
        found = [match.group(1).strip() for match in _UNIQUE_LINES.finditer(content)]
    else:
        return []
    # a root hub's serial number is the name of its controller, which is part of every path below it
    parts = path.encode("utf-8", "replace").split(b"/")
    return [serial for serial in found if serial and serial not in parts]


def _masked(path: str, content: bytes, masks: dict[bytes, bytes], anywhere: re.Pattern[bytes]) -> bytes:
    def spread(text: bytes) -> bytes:
        return anywhere.sub(lambda match: masks[match.group(0)], text)

    name = path.rpartition("/")[2]
    if name in _UNIQUE:
        return masks[content.strip()] + b"\n" if content.strip() in masks else content
    if path == FILE:
        return _MACHINE_SERIAL.sub(lambda match: match.group(1) + masks.get(match.group(2), b""), content)
    if name == "uevent":
        content = _UNIQUE_LINES.sub(lambda match: _in_place(match, masks), content)
        return _FREE_LINES.sub(lambda match: spread(match.group(0)), content)
    return spread(content) if name in _FREE_TEXT else content


def _in_place(match: re.Match[bytes], masks: dict[bytes, bytes]) -> bytes:
    whole, serial = match.group(0), match.group(1)
    return whole.replace(serial, masks.get(serial.strip(), serial)) if serial.strip() else whole


def _add_parents(recording: Recording) -> None:
    for path in [*recording.files, *recording.links, *recording.folders]:
        parent = path.rpartition("/")[0]
        while parent and parent not in recording.folders:
            recording.folders.add(parent)
            parent = parent.rpartition("/")[0]
