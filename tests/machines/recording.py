"""Recorded machines in memory: what their files say, nothing interpreted.

This module and `ownership` share no code with `common.hardware`: they are the second opinion.
"""

import os
import posixpath
import re
import tarfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

_REPOSITORY = Path(__file__).resolve().parents[2]
MACHINES = Path(os.environ.get("LIKEN_MACHINES") or _REPOSITORY.parent / "shared" / "machines")
OWN = Path(__file__).resolve().parent / "recordings"  # made by tests/kernel/make_recordings.py


class Recording:
    """The files, links and folders below one recorded root; paths have no leading slash."""

    def __init__(self, name: str, files: dict[str, bytes], links: dict[str, str], folders: set[str]) -> None:
        self.name = name
        self.files = files
        self.links = links
        self._children: dict[str, set[str]] = {}
        for path in (*files, *links, *folders):
            while path:
                parent, _, leaf = path.rpartition("/")
                self._children.setdefault(parent, set()).add(leaf)
                path = parent

    def text(self, path: str) -> str | None:
        """The trimmed text of a file; None when there is no such file."""
        content = self.files.get(path)
        return None if content is None else content.decode("utf-8", "replace").strip()

    def names(self, folder: str) -> list[str]:
        """The sorted names in a folder."""
        return sorted(self._children.get(folder, ()))

    def has(self, path: str) -> bool:
        """Whether there is a file, link or folder of that path."""
        return path in self.files or path in self.links or path in self._children

    def resolve(self, link: str) -> str:
        """Where a path leads, a link followed once (the target need not exist)."""
        if link not in self.links:
            return link
        return posixpath.normpath(posixpath.join(posixpath.dirname(link), self.links[link]))

    def leaf(self, link: str) -> str:
        """The last element of a link's target, "" when there is no such link."""
        return self.links.get(link, "").rpartition("/")[2]

    def uevent(self, folder: str) -> dict[str, str]:
        """The KEY=VALUE lines of a device's uevent file."""
        lines = (self.text(f"{folder}/uevent") or "").splitlines()
        return dict(line.split("=", 1) for line in lines if "=" in line)


def archives() -> list[Path]:
    """Every recorded machine: this project's own, then those beside the checkout when there are any."""
    return sorted(OWN.glob("*.tar.xz")) + shared()


def shared() -> list[Path]:
    """The machines that other people recorded, sorted; empty when there are none beside the checkout."""
    return sorted(MACHINES.glob("*.tar.xz"))


def dumps() -> list[Path]:
    """Every recording of a single device in the format of umockdev, sorted."""
    return sorted(MACHINES.glob("*.umockdev"))


def machine_name(archive: Path) -> str:
    """`laptop-two-gpus` for `.../laptop-two-gpus.tar.xz`."""
    return archive.name.removesuffix(".tar.xz").removesuffix(".umockdev")


@cache
def load(archive: Path) -> Recording:
    """A recorded machine, read once in a test run."""
    return _of_dump(archive) if archive.suffix == ".umockdev" else _of_archive(archive)


def _of_archive(archive: Path) -> Recording:
    files: dict[str, bytes] = {}
    links: dict[str, str] = {}
    folders: set[str] = set()
    with tarfile.open(archive) as tar:
        for member in tar:
            path = posixpath.normpath(member.name)
            if member.issym():
                links[path] = member.linkname
            elif member.isdir():
                folders.add(path)
            elif member.isfile():
                content = tar.extractfile(member)
                files[path] = content.read() if content else b""
    return Recording(machine_name(archive), files, links, folders)


def _of_dump(archive: Path) -> Recording:
    """The tree that umockdev would build: devices, and the links that the kernel makes to them."""
    files: dict[str, bytes] = {}
    links: dict[str, str] = {}
    for block in archive.read_text("utf-8", "surrogateescape").split("\n\n"):
        lines = [line.split(": ", 1) for line in block.splitlines() if ": " in line]
        if lines and lines[0][0] == "P":
            _add_device("sys" + lines[0][1], [(key, value) for key, value in lines[1:]], files, links)
    return Recording(machine_name(archive), files, links, set())


def _add_device(
    place: str, lines: list[tuple[str, str]], files: dict[str, bytes], links: dict[str, str]
) -> None:
    properties = dict(value.split("=", 1) for key, value in lines if key == "E" and "=" in value)
    for key, value in lines:
        name, _, content = value.partition("=")
        if key == "A":
            files[f"{place}/{name}"] = _unescape(content)
        elif key == "L":
            links[f"{place}/{name}"] = content
    if "DRIVER" in properties and f"{place}/driver" not in links:
        links[f"{place}/driver"] = f"../drivers/{properties['DRIVER']}"
    device = properties.get("DEVNAME", "").removeprefix("/dev/")
    kernel = {"DEVNAME": device} if device else {}
    kernel |= {key: properties[key] for key in ("MAJOR", "MINOR", "DRIVER", "MODALIAS") if key in properties}
    files[f"{place}/uevent"] = "".join(f"{key}={value}\n" for key, value in kernel.items()).encode()
    _add_kernel_links(place, properties, links)


def _add_kernel_links(place: str, properties: dict[str, str], links: dict[str, str]) -> None:
    subsystem, leaf = properties["SUBSYSTEM"], place.rpartition("/")[2]
    on_bus = subsystem in {"usb", "pci", "hid", "scsi"}
    home = f"sys/bus/{subsystem}" if on_bus else f"sys/class/{subsystem}"
    links[f"{place}/subsystem"] = posixpath.relpath(home, place)
    entry = f"{home}/devices/{leaf}" if on_bus else f"{home}/{leaf}"
    links[entry] = posixpath.relpath(place, posixpath.dirname(entry))
    if "MAJOR" in properties:
        folder = "sys/dev/block" if subsystem == "block" else "sys/dev/char"
        links[f"{folder}/{properties['MAJOR']}:{properties['MINOR']}"] = posixpath.relpath(place, folder)


def _unescape(text: str) -> bytes:
    r"""The bytes of an attribute: a dump writes \n, \\ and three octal digits."""
    raw = text.encode("utf-8", "surrogateescape")

    def one(found: re.Match[bytes]) -> bytes:
        escape = found.group(1)
        return {b"n": b"\n", b"\\": b"\\"}.get(escape) or bytes([int(escape, 8)])

    return re.sub(rb"\\(n|\\|[0-7]{3})", one, raw)


def write_tree(recording: Recording, root: Path) -> Path:
    """Put a recording on disk, for a reader that wants a folder. Returns `root`."""
    for path, content in recording.files.items():
        place = root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
    for path, target in recording.links.items():
        place = root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(target)
    return root


def ancestors(place: str) -> Iterator[str]:
    """A device folder and the folders above it, innermost first, up to but without sys/devices."""
    while place.startswith("sys/devices/"):
        yield place
        place = place.rpartition("/")[0]
