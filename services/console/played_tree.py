"""One device of a played tree: what its folder says, and the entries elsewhere in /sys that point to it."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

from common.errors import RequestError

_NUMBERS = re.compile(r"(\d+)")


class Node:
    """A directory below sys/devices that is a device: it has a `uevent` file and a `subsystem` link.

    `place` is where it lies now; `home` is where it lies in the tree when it is plugged (the two differ for
    a device that is kept aside). `numbers`: in place of those its folder says.
    """

    def __init__(self, sys: Path, place: Path, home: Path | None = None, numbers: str = "") -> None:
        self.sys = sys
        self.place = place
        self.home = home or place
        self._numbers = numbers

    @property
    def name(self) -> str:
        return self.home.name

    @property
    def devpath(self) -> str:
        """The kernel's DEVPATH."""
        return "/" + str(self.home.relative_to(self.sys))

    @property
    def subsystem(self) -> str:
        return _link_name(self.place / "subsystem")

    @property
    def driver(self) -> str:
        """The name of the driver, "" without one."""
        return _link_name(self.place / "driver")

    @property
    def fields(self) -> dict[str, str]:
        """The lines of `uevent`, in their order."""
        return parse_fields((self.place / "uevent").read_text(errors="surrogateescape"))

    @property
    def is_usb_device(self) -> bool:
        return self.fields.get("DEVTYPE") == "usb_device"

    @property
    def numbers(self) -> str:
        """`major:minor`, "" where the device has no node."""
        path = self.place / "dev"
        return self._numbers or (path.read_text().strip() if path.is_file() else "")

    def children(self) -> list["Node"]:
        """The devices right below this one, in the order of their numbers."""
        found = [
            Node(self.sys, path, self.home / path.relative_to(self.place)) for path in _devices_in(self.place)
        ]
        return sorted(found, key=lambda node: natural(str(node.home)))

    def all(self) -> Iterator["Node"]:
        """This device and every one below it, parents first."""
        yield self
        for child in self.children():
            yield from child.all()

    def entries(self) -> list[Path]:
        """The links in bus/*/devices, class/*, block and dev/* that stand for this device."""
        link = (self.place / "subsystem").readlink()
        devices = "devices" if link.parent.name == "bus" else ""
        found = [self.sys / link.parent.name / link.name / devices / self.name]
        if link.name == "block" and (self.sys / "block").is_dir():
            found.append(self.sys / "block" / self.name)
        return found + self.number_entries()

    def number_entries(self) -> list[Path]:
        if not self.numbers:
            return []
        return [self.sys / "dev" / ("block" if self.subsystem == "block" else "char") / self.numbers]

    def driver_entries(self) -> list[Path]:
        """The link in the driver's folder, where the tree has that folder."""
        folder = self.sys / "bus" / self.subsystem / "drivers" / self.driver
        return [folder / self.name] if self.driver and folder.is_dir() else []


def find(sys: Path, what: str) -> Node:
    """The device that `what` names: a bus address, or a path below /sys. Raises RequestError."""
    for path in _candidates(sys, what):
        place = Path(os.path.realpath(path))
        if place.is_relative_to(sys / "devices") and is_device(place):
            return Node(sys, place)
    raise RequestError(
        f"the played machine has no device {what}: name a bus address such as 1-2, or a path below /sys"
    )


def is_device(path: Path) -> bool:
    return (path / "uevent").is_file() and (path / "subsystem").is_symlink()


def parse_fields(text: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


def format_fields(fields: dict[str, str]) -> str:
    return "".join(f"{key}={value}\n" for key, value in fields.items())


def natural(text: str) -> list[tuple[int, str]]:
    """A sort key that puts 1-2:1.10 after 1-2:1.9."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in _NUMBERS.split(text)]


def _candidates(sys: Path, what: str) -> Iterator[Path]:
    relative = what.removeprefix("/sys/").removeprefix("/")
    if "/" in relative and ".." not in relative.split("/"):
        yield sys / relative
    elif relative and "/" not in what and what not in (".", ".."):
        for folder in sorted([*sys.glob("bus/*/devices"), *sys.glob("class/*")]):
            if (folder / what).is_symlink():
                yield folder / what


def _devices_in(place: Path) -> Iterator[Path]:
    with os.scandir(place) as entries:
        folders = [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]
    for folder in folders:
        if is_device(folder):
            yield folder
        else:
            yield from _devices_in(folder)


def _link_name(path: Path) -> str:
    return path.readlink().name if path.is_symlink() else ""
