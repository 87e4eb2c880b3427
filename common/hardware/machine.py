"""The machine file: what its owner declares about this machine.

    spec:
      serio:
      - {protocol: pulse8-cec, vendor: "2548", product: "1002"}
      storage:
        roles: [nvme0n1, /dev/sda, "0000:00:17.0"]
      release: [watchdog]

All values are read as text, so vendor 0403 needs no quotes.
"""

import difflib
import posixpath
import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

import msgspec

from common.errors import RequestError
from common.hardware.held import RELEASABLE
from common.hardware.tree import Tree, TreeError
from common.yamltext import MAX_BYTES, YamlError, read_yaml

PROTOCOLS = ("pulse8-cec", "rainshadow-cec")
FILE = "etc/liken/machine.yaml"  # below the root
_ID = re.compile(r"[0-9a-f]{4}")
_LINKS = ("disk/", "mapper/")  # folders of /dev with links of udev's making
_SHORT_PCI = re.compile(r"[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]")  # as lspci prints an address of domain 0000


class SerialLine(msgspec.Struct, frozen=True):
    """A USB device whose tty the machine keeps attached to the kernel's serio layer."""

    protocol: str
    vendor: str
    product: str
    serial: str = ""

    def matches(self, vendor: str, product: str) -> bool:
        return (self.vendor, self.product) == (vendor, product)


class Machine(msgspec.Struct, frozen=True):
    """What is declared. `roles` is None where nothing is: then internal disks are not offered."""

    serio: tuple[SerialLine, ...] = ()
    roles: frozenset[str] | None = None
    release: frozenset[str] = msgspec.field(default_factory=frozenset)


def load_machine(path: Path, where: str = "") -> Machine:
    """The machine file at `path`; a missing one declares nothing.

    Raises RequestError that names file and place for anything it does not understand. `where`: what people
    know the file by, when `path` is a copy of theirs.
    """
    where = where or str(path)
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        return Machine()
    except OSError as error:
        raise RequestError(f"cannot read the machine file {where}: {error.strerror}") from error
    return parse_machine(content, where)


def machine_of(tree: Tree, where: str = FILE) -> Machine:
    """The machine file inside a tree (`etc/liken/machine.yaml`): a recording may carry its own."""
    try:
        content = tree.read(FILE)
    except TreeError as error:
        raise RequestError(str(error)) from error
    return parse_machine(content, where) if content is not None else Machine()


def file_of(source: Path) -> str:
    """What people know the machine file of `source` by, a folder or a recording."""
    return str(source / FILE) if source.is_dir() else f"{FILE} in {source}"


def parse_machine(content: bytes, where: str) -> Machine:
    """The text of a machine file. `where` names it in errors (RequestError)."""
    try:
        document = read_yaml(content, typed=False)
    except YamlError as error:
        place = f"{where}, line {error.line}" if error.line else where
        raise RequestError(f"{place}: this is not YAML: {error}; correct it or remove the file") from error
    return _Parser(where).machine(document)


class _Parser:
    def __init__(self, where: str) -> None:
        self._where = where

    def machine(self, document: Any) -> Machine:
        top = self._mapping(document, "", ("apiVersion", "kind", "metadata", "spec"))
        spec = self._mapping(top.get("spec"), "spec", ("serio", "storage", "release"))
        storage = self._mapping(spec.get("storage"), "spec.storage", ("roles",))
        roles = self._roles(storage["roles"]) if "roles" in storage else None
        release = self._list(spec.get("release"), "spec.release")
        for index, kind in enumerate(release):
            self._text(kind, f"spec.release[{index}]", sorted(RELEASABLE))
        return Machine(
            serio=tuple(
                self._line(entry, f"spec.serio[{index}]")
                for index, entry in enumerate(self._list(spec.get("serio"), "spec.serio"))
            ),
            roles=roles,
            release=frozenset(release),
        )

    def _roles(self, given: Any) -> frozenset[str]:
        place = "spec.storage.roles"
        if given in (None, ""):
            # it would give every disk away that nothing uses right now
            raise self._error(place, "names no disk; write [] when this machine needs none, else remove it")
        roles = self._list(given, place)
        return frozenset(self._role(role, f"{place}[{index}]") for index, role in enumerate(roles))

    def _role(self, role: Any, place: str) -> str:
        """The name of a block device as the kernel has it, or an owner's address.

        A role that matches no disk gives the disk away that it should protect: no other form is taken.
        """
        name = self._text(role, place)
        if name.startswith("/dev/"):
            name = posixpath.normpath(name).removeprefix("/dev/")
        if name.startswith(_LINKS) or "=" in name or name.startswith("/"):
            problem = "is no name of a disk; write the kernel's, such as sda, or the owner's address"
            raise self._error(place, f"{role!r} {problem}")
        return f"0000:{name}" if _SHORT_PCI.fullmatch(name) else name

    def _line(self, entry: Any, place: str) -> SerialLine:
        given = self._mapping(entry, place, ("protocol", "vendor", "product", "serial"))
        serial = self._text(given["serial"], f"{place}.serial") if "serial" in given else ""
        protocol = self._text(given.get("protocol"), f"{place}.protocol", PROTOCOLS)
        return SerialLine(
            protocol, self._id(given, place, "vendor"), self._id(given, place, "product"), serial
        )

    def _id(self, given: dict[str, Any], place: str, key: str) -> str:
        text = self._text(given.get(key), f"{place}.{key}").lower().removeprefix("0x")
        if not _ID.fullmatch(text):
            raise self._error(f"{place}.{key}", f"{text!r} is not a USB id; write four hex digits")
        return text

    def _mapping(self, value: Any, place: str, allowed: Collection[str]) -> dict[str, Any]:
        if value in (None, ""):
            return {}
        if not isinstance(value, dict):
            raise self._error(place, f"has to be a mapping with {_either(allowed)}")
        for given in value:
            if given not in allowed:
                key = " ".join(given.split())[:64]
                near = difflib.get_close_matches(key, allowed, 1)
                hint = f"did you mean {near[0]}?" if near else f"allowed is {_either(allowed)}"
                raise self._error(f"{place}.{key}".lstrip("."), f"is not known; {hint}")
        return value

    def _list(self, value: Any, place: str) -> list[Any]:
        if value in (None, ""):
            return []
        if not isinstance(value, list):
            raise self._error(place, "has to be a list")
        return value

    def _text(self, value: Any, place: str, allowed: Collection[str] = ()) -> str:
        if not isinstance(value, str) or not value.strip():
            raise self._error(place, "has to be a text that is not empty")
        if allowed and value not in allowed:
            raise self._error(place, f"{value!r} is not known; allowed is {_either(allowed)}")
        return value.strip()

    def _error(self, place: str, problem: str) -> RequestError:
        return RequestError(f"{self._where}: {place or 'the file'} {problem}"[:400])


def _either(words: Collection[str]) -> str:
    return ", ".join(words)
