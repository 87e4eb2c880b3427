"""The specs of the Container Device Interface: names, places, JSON. No other module knows their form.

Source of the rules: SPEC.md of cncf-tags/container-device-interface. A runtime reads *.json and *.yaml of a
folder, follows renames within it, and refuses the whole file for one device without edits or one name twice.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from common.claims import MAX_BYTES, sweep
from common.errors import MachineError
from common.files import TEMPORARY_PREFIX, names_in, read_up_to, write_atomically
from common.inventory import DeviceNode

CDI_VERSION = "0.6.0"  # the lowest that every supported runtime reads and that covers what we write
CLASS = "device"
_END = ".json"

Nodes = Mapping[str, tuple[DeviceNode, ...]]  # by device name


class CdiError(MachineError):
    """The CDI folder or a spec in it cannot be read or written."""


class Specs:
    """The specs of one driver in one CDI folder. Whoever changes something holds the lock of the records."""

    def __init__(self, folder: Path, driver: str) -> None:
        """Touches no file."""
        self._folder = folder
        self._driver = driver
        self._prefix = f"{driver}-{CLASS}_"
        self._start = f"{folder}/{self._prefix}"

    def device_id(self, uid: str, device: str) -> str:
        """The name by which a container is given `device` of the claim: vendor/class=name."""
        return f"{self._driver}/{CLASS}={_name(uid, device)}"

    def absent(self, device: str) -> tuple[DeviceNode, ...]:
        """A node that never exists, so that a container start fails and says that the device is away."""
        return (DeviceNode(f"/dev/{self._driver}/absent/{device}", "placeholder"),)

    def withheld(self, device: str) -> tuple[DeviceNode, ...]:
        """A node that never exists, so that a container start fails and says: not to be had."""
        return (DeviceNode(f"/dev/{self._driver}/withheld/{device}", "placeholder"),)

    def make_folder(self) -> None:
        """Make the CDI folder. Raises CdiError."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CdiError(
                f"cannot make {self._folder}: {error.strerror}; set LIKEN_CDI to a folder that the container"
                " runtime reads and that this user can write"
            ) from error

    def render(self, uid: str, nodes: Nodes) -> bytes:
        """The content of the spec of claim `uid`. Every device has a node, or no runtime reads it."""
        if not nodes or not all(nodes.values()):
            raise ValueError(f"a device without a node in the spec of {uid}: {nodes}")
        document = {
            "cdiVersion": CDI_VERSION,
            "kind": f"{self._driver}/{CLASS}",
            "devices": [
                {
                    "name": _name(uid, device),
                    "containerEdits": {"deviceNodes": [_node(node) for node in nodes[device]]},
                }
                for device in sorted(nodes)
            ],
        }
        return msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n"

    def read(self, uid: str) -> bytes | None:
        """The content of a spec, None when there is none. Raises CdiError."""
        try:
            return read_up_to(self._at(uid), MAX_BYTES)[0]  # a longer one is not ours: read as another text
        except FileNotFoundError:
            return None
        except OSError as error:
            raise CdiError(
                f"cannot read {self.path(uid)}: {error.strerror}; check the folder that LIKEN_CDI names"
            ) from error

    def nodes(self, uid: str) -> dict[str, tuple[DeviceNode, ...]]:
        """What the spec says now, by device name; empty when it is missing or not ours to read."""
        content = self.read(uid)
        try:
            return _parse(uid, msgspec.json.decode(content, type=_Spec)) if content else {}
        except (msgspec.DecodeError, RecursionError):
            return {}

    def write(self, uid: str, content: bytes) -> None:
        """Put a spec in place. Needs the lock.

        Raises MachineError when it cannot be written; then there is none, because the old one is no longer
        true, and a container must rather not start than get its nodes.
        """
        try:
            write_atomically(self._at(uid), content)
        except MachineError:
            self.make_folder()  # somebody emptied the runtime's folder, itself included
            try:
                write_atomically(self._at(uid), content)
            except MachineError:
                self._remove(self.path(uid))
                raise

    def remove(self, uid: str) -> bool:
        """Remove a spec. Needs the lock. True when there was one. Raises CdiError."""
        return self._remove(self.path(uid))

    def identifiers(self) -> list[str]:
        """What stands for the UID in the names of all files with our prefix. Raises MachineError."""
        names = names_in(self._folder)
        ours = (name for name in names if name.startswith(self._prefix) and name.endswith(_END))
        return sorted(name.removeprefix(self._prefix).removesuffix(_END) for name in ours)

    def remove_orphan(self, identifier: str) -> bool:
        """Remove a file that carries our prefix, whatever follows it. Needs the lock. Raises CdiError."""
        if "/" in identifier:
            raise ValueError(f"not a part of a file's name: {identifier!r}")
        return self._remove(self._folder / f"{self._prefix}{identifier}{_END}")

    def leftovers(self) -> bool:
        """Whether there are temporary files of this driver: a writer is at work, or was killed."""
        return any(name.startswith(f"{TEMPORARY_PREFIX}{self._prefix}") for name in names_in(self._folder))

    def sweep(self) -> int:
        """Remove temporary files of this driver that a killed process left. Needs the lock."""
        return sweep(self._folder, f"{TEMPORARY_PREFIX}{self._prefix}")

    def changed_at(self, uid: str) -> float | None:
        """When the spec got its present content, in seconds since 1970; None when there is no spec."""
        try:
            return self.path(uid).stat().st_mtime
        except OSError:
            return None

    def path(self, uid: str) -> Path:
        """Where the spec of a claim lies. The UID must have been checked."""
        return Path(self._at(uid))

    def _at(self, uid: str) -> str:
        return f"{self._start}{uid}{_END}"

    def _remove(self, path: Path) -> bool:
        try:
            path.unlink()
        except FileNotFoundError:
            return False
        except OSError as error:
            raise CdiError(f"cannot remove {path}: {error.strerror}") from error
        return True


class _Node(msgspec.Struct):
    path: str
    type: str = ""
    major: int = 0
    minor: int = 0
    fileMode: int = 0  # noqa: N815 - the word of the CDI specification


class _Edits(msgspec.Struct):
    deviceNodes: list[_Node] = []  # noqa: N815 - the word of the CDI specification


class _Device(msgspec.Struct):
    name: str
    containerEdits: _Edits  # noqa: N815 - the word of the CDI specification


class _Spec(msgspec.Struct):
    devices: list[_Device]


def _name(uid: str, device: str) -> str:
    return f"{uid}-{device}"


def _node(node: DeviceNode) -> dict[str, Any]:
    """A node by path alone: the runtime takes type and numbers of the moment of each container start.

    Numbers only where a node is stated by them; uid, gid and permissions never: non-root works without.
    """
    if not node.type:
        return {"path": node.path}
    return {
        "path": node.path,
        "type": node.type,
        "major": node.major,
        "minor": node.minor,
        "fileMode": node.fileMode,
    }


def _parse(uid: str, spec: _Spec) -> dict[str, tuple[DeviceNode, ...]]:
    return {
        device.name.removeprefix(f"{uid}-"): tuple(
            DeviceNode(node.path, "", node.type, node.major, node.minor, node.fileMode)
            for node in device.containerEdits.deviceNodes
        )
        for device in spec.devices
        if device.name.startswith(f"{uid}-")
    }
