"""A /sys tree in a folder, made directory by directory as the kernel makes it."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from common.hardware.tree import Tree

# Subsystems that are a bus in /sys; every other one is a class.
_BUS_WORDS = """
acpi amba auxiliary ccw cec cxl dax gpio hid hdaudio i2c iio media mmc nd pci pci_express platform pnp scsi
serial-base serio spi usb vio virtio vmbus xen xen-backend
"""
BUSES = frozenset(_BUS_WORDS.split())
MAJORS = {
    "tty": 4,
    "input": 13,
    "sound": 116,
    "usb": 189,
    "drm": 226,
    "i2c-dev": 89,
    "hidraw": 240,
    "block": 8,
    "misc": 10,
}


class Sysfs:
    """A tree below `root`; a directory gets its `uevent`, `dev`, links and index entries."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._minors: dict[int, int] = {}

    def tree(self) -> Tree:
        return Tree(self.root)

    def path(self, directory: str) -> Path:
        """The real path of a directory or file of this machine."""
        return self.root / directory

    def write(self, path: str, content: str | bytes) -> None:
        """Put a file anywhere below the root, its folders too."""
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content.encode() if isinstance(content, str) else content)

    def link(self, path: str, target: str) -> None:
        """A relative link from `path` to `target`, both below the root; the target need not exist."""
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        if place.is_symlink():
            place.unlink()
        place.symlink_to(os.path.relpath(self.root / target, place.parent))

    def _folder(self, path: str) -> None:
        (self.root / path).mkdir(parents=True, exist_ok=True)

    # -- devices in general

    def device(
        self,
        parent: str,
        name: str,
        subsystem: str = "",
        driver: str = "",
        files: Mapping[str, str | bytes] | None = None,
        uevent: Mapping[str, str] | None = None,
    ) -> str:
        """A directory `name` below `parent` with its `uevent`, links, index entries and attribute `files`."""
        directory = f"{parent}/{name}"
        self._folder(directory)
        pairs = dict(uevent or {})
        if driver:
            pairs = {"DRIVER": driver, **pairs}
        self.write(f"{directory}/uevent", "".join(f"{key}={value}\n" for key, value in pairs.items()))
        for file, content in (files or {}).items():
            self.write(f"{directory}/{file}", content)
        if subsystem in BUSES:
            self.link(f"{directory}/subsystem", f"sys/bus/{subsystem}")
            self.link(f"sys/bus/{subsystem}/devices/{name}", directory)
        elif subsystem:
            self.link(f"{directory}/subsystem", f"sys/class/{subsystem}")
            self.link(f"sys/class/{subsystem}/{name}", directory)
        if driver:
            self.bind(directory, driver)
        return directory

    def bind(self, directory: str, driver: str) -> None:
        """Bind a driver to a device, in place of the one it has."""
        self.unbind(directory)
        bus = self._subsystem(directory)
        self.link(f"{directory}/driver", f"sys/bus/{bus}/drivers/{driver}")
        self.link(f"sys/bus/{bus}/drivers/{driver}/{directory.rpartition('/')[2]}", directory)

    def unbind(self, directory: str) -> None:
        """Take the driver off a device; what the driver made below it stays until `remove`."""
        driver = self.root / directory / "driver"
        if driver.is_symlink():
            name = driver.readlink().name
            bus = self._subsystem(directory)
            entry = self.root / f"sys/bus/{bus}/drivers/{name}" / directory.rpartition("/")[2]
            entry.unlink(missing_ok=True)
            driver.unlink()

    def _subsystem(self, directory: str) -> str:
        link = self.root / directory / "subsystem"
        return link.readlink().name if link.is_symlink() else ""

    def node(
        self,
        parent: str,
        kind: str,
        name: str,
        devname: str = "",
        number: str = "",
        folder: str | None = None,
        files: Mapping[str, str | bytes] | None = None,
        uevent: Mapping[str, str] | None = None,
    ) -> str:
        """A device node: a directory with `dev`, below `<parent>/<folder>/` (`folder` default: the kind).

        `devname` is the path below /dev (default: the name), `number` "major:minor" (default: the next free
        one of the kind).
        """
        where = f"{parent}/{kind if folder is None else folder}".rstrip("/")
        number = number or self._next_number(kind)
        major, minor = number.split(":")
        pairs = {"MAJOR": major, "MINOR": minor, "DEVNAME": devname or name, **(uevent or {})}
        directory = self.device(
            where, name, kind, files={"dev": number + "\n", **(files or {})}, uevent=pairs
        )
        index = "block" if kind == "block" else "char"
        self.link(f"sys/dev/{index}/{number}", directory)
        return directory

    def _next_number(self, kind: str) -> str:
        major = MAJORS.get(kind, 250)
        minor = self._minors.get(major, 64 if kind == "input" else 0)
        self._minors[major] = minor + 1
        return f"{major}:{minor}"

    def remove(self, directory: str) -> None:
        """Everything of a device and below it, with all index entries, as after a finished removal."""
        target = self.root / directory
        for place in [
            target,
            *(path for path in target.rglob("*") if path.is_dir() and not path.is_symlink()),
        ]:
            self._remove_index_entries(place)
        shutil.rmtree(target)

    def _remove_index_entries(self, place: Path) -> None:
        subsystem = place / "subsystem"
        if subsystem.is_symlink():
            kind = subsystem.readlink().name
            entries = [f"sys/class/{kind}/{place.name}", f"sys/bus/{kind}/devices/{place.name}"]
            driver = place / "driver"
            if driver.is_symlink():
                entries.append(f"sys/bus/{kind}/drivers/{driver.readlink().name}/{place.name}")
            if (place / "dev").is_file():
                number = (place / "dev").read_text().strip()
                entries.append(f"sys/dev/{'block' if kind == 'block' else 'char'}/{number}")
            for entry in entries:
                if (self.root / entry).is_symlink():
                    (self.root / entry).unlink()
