"""The numbers that the kernel gives a device that comes back: devnum, tty, minor."""

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from common.errors import RequestError
from services.console.played_tree import Node, format_fields, natural

MAX_DEVNUM = 127  # a USB bus has 7-bit addresses
USB_MINORS = 128  # per bus, of major 189; drivers/usb/core
_NUMBERED = re.compile(r"(.*\D)(\d+)")
_MOST = 1 << 12  # no subsystem gives more numbers than this


def renumber(top: Node, next_devnum: dict[str, int]) -> None:
    """Give the device in `top`, kept aside, the numbers of its next enumeration.

    Writes below `top.place` only. A USB device gets the next number of its bus, a tty the next one that is
    free, anything else keeps its number unless something took it meanwhile. `next_devnum`: by bus number, and
    brought up to date. Raises RequestError when a number is taken and this kind has no simple next one.
    """
    for node in top.all():
        if node.is_usb_device:
            _renumber_usb(node, next_devnum)
    exchange: dict[str, str] = {}
    given: set[Path] = set()  # what devices of this very tree get, which /sys does not show yet
    for node in list(top.all()):
        if not node.numbers or node.is_usb_device:
            continue
        if node.place != top.place and (node.subsystem == "tty" or _is_taken(node, given)):
            exchange[node.name], node = _next_free(node, given)
        given.update(node.entries())
    rename_parts(top.place, exchange)


def remember_devnums(top: Node, next_devnum: dict[str, int]) -> None:
    """Before `top` goes: note where the numbers of its bus went on, as the kernel does by itself."""
    for node in top.all():
        if node.is_usb_device:
            bus = _bus(node)
            next_devnum.setdefault(bus, max(used_devnums(node.sys, bus), default=0) + 1)


def used_devnums(sys: Path, bus: str) -> set[int]:
    """The device numbers on one USB bus."""
    return {
        int((device / "devnum").read_text())
        for device in sorted((sys / "bus/usb/devices").glob("*"))
        if (device / "busnum").is_file() and (device / "busnum").read_text().strip() == bus
    }


def _renumber_usb(node: Node, next_devnum: dict[str, int]) -> None:
    bus = _bus(node)
    used = used_devnums(node.sys, bus)
    first = next_devnum.get(bus, 1)
    # drivers/usb/core/hub.c choose_devnum: onwards from the last one, then from 1 again
    order = [*range(first, MAX_DEVNUM + 1), *range(1, first)]
    number = next((number for number in order if number not in used), None)
    if number is None:
        raise RequestError(f"bus {bus} of the played machine has no free device number: unplug something")
    next_devnum[bus] = 1 if number >= MAX_DEVNUM else number + 1
    minor = (int(bus) - 1) * USB_MINORS + number - 1
    name = f"bus/usb/{int(bus):03}/{number:03}"
    _patch(node, {"DEVNUM": f"{number:03}", "DEVNAME": name, "MINOR": str(minor)})
    (node.place / "devnum").write_text(f"{number}\n")
    if node.numbers:
        (node.place / "dev").write_text(f"{node.numbers.split(':')[0]}:{minor}\n")


def _bus(node: Node) -> str:
    return (node.place / "busnum").read_text().strip()


def _next_free(node: Node, given: set[Path]) -> tuple[str, Node]:
    """The node's next free name, and the node as it will be: files written, folder not yet renamed."""
    match = _NUMBERED.fullmatch(node.name)
    if match is None or node.subsystem == "block":
        raise RequestError(
            f"/dev/{node.fields.get('DEVNAME', node.name)} belongs to another device of the played machine"
            " by now: unplug that one first"
        )
    stem, old = match.group(1), int(match.group(2))
    major, minor = (int(part) for part in node.numbers.split(":"))
    first_minor = max(minor - old, 0)
    # a tty takes the next number and not the first free one: a program may hold the old one open
    for number in [*range(old + 1, _MOST), *range(old)]:
        numbers = f"{major}:{first_minor + number}"
        candidate = Node(node.sys, node.place, node.home.with_name(f"{stem}{number}"), numbers)
        if not _is_taken(candidate, given):
            _write_name(node, candidate)
            return candidate.name, candidate
    raise RequestError(f"the played machine has no free number for {node.name}: unplug something")


def _write_name(node: Node, candidate: Node) -> None:
    changes = {"MINOR": candidate.numbers.split(":")[1]}
    devname = node.fields.get("DEVNAME", "")
    if devname.endswith(node.name):
        changes["DEVNAME"] = devname.removesuffix(node.name) + candidate.name
    _patch(node, changes)
    (node.place / "dev").write_text(f"{candidate.numbers}\n")


def _is_taken(node: Node, given: set[Path]) -> bool:
    return any(path.is_symlink() or path in given for path in node.entries())


def rename_parts(folder: Path, exchange: Mapping[str, str]) -> None:
    """Rename directories below `folder`, and the parts of links' texts in it, as `exchange` says."""
    for place in list(_links(folder)):
        text = str(place.readlink())
        new = "/".join(exchange.get(part, part) for part in text.split("/"))
        if new != text:
            place.unlink()
            place.symlink_to(new)
    for parent, folders, _ in os.walk(folder, topdown=False):
        for name in sorted(
            folders, key=natural, reverse=True
        ):  # the ports of one interface move up one by one
            if name in exchange and not Path(parent, name).is_symlink():
                Path(parent, name).rename(Path(parent, exchange[name]))


def _links(folder: Path) -> Iterator[Path]:
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(parent, name)
            if path.is_symlink():
                yield path


def _patch(node: Node, changes: Mapping[str, str]) -> None:
    fields = node.fields
    known = {key: value for key, value in changes.items() if key in fields}
    (node.place / "uevent").write_text(format_fields({**fields, **known}), errors="surrogateescape")
