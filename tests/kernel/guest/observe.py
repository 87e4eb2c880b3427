"""The guest's witness: kernel events, bus, specs and slices, each noted with its time as it comes.

Runs inside the agent. Four threads only note what they see; `wait` and `since` read the notes, and raise
when a thread has failed: nobody may take its silence for quiet.
"""

import ctypes
import json
import os
import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import msgspec
import yaml

from common.bus import BusReader, decode
from common.inventory import InventoryMessage, Presence
from tests.kernel.guest.guard import Guard

NETLINK_KOBJECT_UEVENT = 15  # linux/netlink.h
KERNEL_EVENTS = 1  # the multicast group that the kernel itself sends to
IN_MOVED_TO, IN_DELETE, IN_CLOSE_WRITE = 0x80, 0x200, 0x8  # linux/inotify.h
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

NODE_FIELDS = {"path", "type", "major", "minor", "fileMode"}

Note = dict[str, Any]  # "at": CLOCK_BOOTTIME seconds, "what": kind of the note, and what belongs to it


@dataclass(frozen=True)
class Places:
    """The folders of one `liken up`."""

    run: Path
    cdi: Path
    slices: Path


@dataclass
class Seen:
    """The newest of everything."""

    specs: dict[str, dict[str, list[str]]] = field(default_factory=dict)  # claim -> device -> node paths
    left: list[str] = field(default_factory=list)  # what lies among the specs and is none
    slices: list[dict[str, Any]] = field(default_factory=list)  # the spec of each
    slice: list[str] = field(default_factory=list)  # names of all devices in all slices
    offered: dict[str, dict[str, Any]] = field(default_factory=dict)  # name -> the device as its slice has it
    inventory: list[str] = field(default_factory=list)
    whole: dict[str, Any] = field(default_factory=dict)  # the inventory as the bus carries it
    presence: dict[str, dict[str, str]] = field(default_factory=dict)  # claim -> device -> state


SEEN = tuple(each.name for each in fields(Seen))


class Observer:
    def __init__(self, places: Places) -> None:
        self._places = places
        self.seen = Seen()
        self._notes: list[Note] = []
        self._guard: Guard | None = None
        self._changed = threading.Condition()
        self._failure = ""
        for watch in (self._kernel, self._files, self._inventories, self._presences):
            threading.Thread(target=self._run, args=(watch,), daemon=True).start()

    def _run(self, watch: Callable[[], None]) -> None:
        try:
            watch()
        except Exception as error:  # noqa: BLE001 - told to whoever asks next
            with self._changed:
                self._failure = f"the witness is blind: {watch.__name__}: {type(error).__name__}: {error}"
                self._changed.notify_all()

    def _check(self) -> None:
        if self._failure:
            raise RuntimeError(self._failure)

    def mark(self) -> int:
        """A place in the notes: what comes later has an index of at least this."""
        with self._changed:
            self._check()
            return len(self._notes)

    def since(self, mark: int, what: str = "") -> list[Note]:
        """Notes from `mark` on, of one kind when `what` is given."""
        with self._changed:
            self._check()
            return [note for note in self._notes[mark:] if not what or note["what"] == what]

    def walks(self, mark: int) -> int:
        """How many inventories came from `mark` on that had not come before.

        The bus repeats the last one, every minute and to whoever joins it.
        """
        with self._changed:
            old, new = (_taken(notes) for notes in (self._notes[:mark], self._notes[mark:]))
        return len(new - old)

    def wait(self, true: Callable[[Seen], bool], timeout_s: float) -> float:
        """Wait until `true` holds of what was seen; the time of the last note then. Raises TimeoutError."""
        with self._changed:
            held = self._changed.wait_for(lambda: bool(self._failure) or true(self.seen), timeout_s)
            self._check()
            if not held:
                raise TimeoutError(f"not within {timeout_s} s; last seen: {self.seen}")
            return float(self._notes[-1]["at"]) if self._notes else now()

    def wait_note(self, mark: int, what: str, timeout_s: float) -> Note:
        """The first note of a kind from `mark` on. Raises TimeoutError."""
        with self._changed:
            held = self._changed.wait_for(
                lambda: bool(self._failure or self.since_locked(mark, what)), timeout_s
            )
            self._check()
            if not held:
                raise TimeoutError(f"no {what} within {timeout_s} s")
            return self.since_locked(mark, what)[0]

    def since_locked(self, mark: int, what: str) -> list[Note]:
        return [note for note in self._notes[mark:] if note["what"] == what]

    def guard(self, owners: dict[str, str]) -> None:
        """From now on look at each spec as it is written, and at all of them whenever USB hardware comes."""
        self._guard = Guard(self._places.cdi, owners)

    def guard_end(self) -> dict[str, Any]:
        """What the guard saw; it ends."""
        if self._guard is None:
            raise ValueError("there is no guard")
        guard, self._guard = self._guard, None
        return guard.end()

    def _note(self, at: float, what: str, **more: Any) -> None:
        with self._changed:
            for name in SEEN:
                if f"new_{name}" in more:
                    setattr(self.seen, name, more.pop(f"new_{name}"))
            self._notes.append({"at": at, "what": what, **more})
            self._changed.notify_all()

    def _kernel(self) -> None:
        events = socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, NETLINK_KOBJECT_UEVENT)
        events.setsockopt(socket.SOL_SOCKET, getattr(socket, "SO_RCVBUFFORCE", 33), 16 << 20)
        events.bind((0, KERNEL_EVENTS))
        while True:
            try:
                data = events.recv(65536)
            except OSError:  # the buffer overflowed; the end of the session asks whether it ever did
                self._note(now(), "overflow")
                if (guard := self._guard) is not None:
                    guard.look_again("events were lost")
                continue
            action, _, path = data.split(b"\0", 1)[0].decode(errors="replace").partition("@")
            self._note(now(), "uevent", action=action, path=path)
            guard = self._guard
            if guard is not None and action == "add" and "/usb" in path:
                guard.look_again(path)

    def _files(self) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        handle = libc.inotify_init()
        if handle < 0:
            raise OSError(ctypes.get_errno(), "inotify_init")
        folders: dict[int, Path] = {}
        for folder in (self._places.cdi, self._places.slices):
            folder.mkdir(parents=True, exist_ok=True)
            watch = libc.inotify_add_watch(handle, bytes(folder), IN_MOVED_TO | IN_DELETE | IN_CLOSE_WRITE)
            if watch < 0:
                raise OSError(ctypes.get_errno(), f"inotify_add_watch: {folder}")
            folders[watch] = folder
        self._read_specs(now())
        self._read_slices(now())
        while True:
            data = os.read(handle, 65536)
            at = now()
            touched = set()
            while data:
                watch, _, _, length = struct.unpack_from("iIII", data)
                name = data[16 : 16 + length].split(b"\0", 1)[0].decode()
                if not name.startswith("."):
                    touched.add(folders[watch])
                data = data[16 + length :]
            if self._places.cdi in touched:
                self._read_specs(at)
            if self._places.slices in touched:
                self._read_slices(at)

    def _read_specs(self, at: float) -> None:
        specs, left = {}, []
        for path in sorted(self._places.cdi.glob("*.json")):
            if not path.name.startswith("liken.sh-"):
                continue  # another driver's
            try:
                spec = json.loads(path.read_bytes())
            except FileNotFoundError:
                continue
            except ValueError:
                left.append(path.name)
                continue
            claim = path.stem.rpartition("_")[2]
            if not _only_nodes(claim, spec):
                left.append(path.name)
                continue
            specs[claim] = {
                device["name"].removeprefix(f"{claim}-"): sorted(
                    node["path"] for node in device["containerEdits"]["deviceNodes"]
                )
                for device in spec["devices"]
            }
        self._note(at, "specs", specs=specs, new_specs=specs, new_left=left)

    def _read_slices(self, at: float) -> None:
        specs = []
        for path in sorted(self._places.slices.glob("*.yaml")):
            try:
                spec = yaml.load(path.read_text(), _LOADER)["spec"]
            except FileNotFoundError:
                continue
            specs.append(spec)
        devices = [device for spec in specs for device in spec.get("devices") or []]
        names = sorted(device["name"] for device in devices)
        offered = {device["name"]: device for device in devices}
        self._note(at, "slice", names=names, new_slice=names, new_offered=offered, new_slices=specs)

    def _inventories(self) -> None:
        reader = BusReader(self._places.run / "bus", "reconciler", ("inventory", "stirred"))
        while True:
            for message in reader.wait(None):
                at = now()
                if message.payload is None:
                    self._note(at, message.topic)
                    continue
                inventory = decode("inventory", message.payload, InventoryMessage)
                found = inventory.inventory
                names = [device.name for device in found.devices] if found else []
                self._note(
                    at,
                    "inventory",
                    error=inventory.error,
                    names=names,
                    taken=found.taken if found else "",
                    new_inventory=names,
                    new_whole=msgspec.to_builtins(found) if found else {},
                )

    def _presences(self) -> None:
        reader = BusReader(self._places.run / "bus", "publisher", ("presence",))
        while True:
            for message in reader.wait(None):
                at = now()
                presence = decode("presence", message.payload or b"", Presence)
                states = {
                    claim.uid: {device.device: device.state for device in claim.devices}
                    for claim in presence.claims
                }
                self._note(at, "presence", states=states, new_presence=states)


def _only_nodes(claim: str, spec: dict[str, Any]) -> bool:
    """Whether a spec edits nothing but device nodes, by path or stated by numbers, for its own claim."""
    return (
        spec.keys() == {"cdiVersion", "kind", "devices"}
        and spec["kind"] == "liken.sh/device"
        and all(
            device.keys() == {"name", "containerEdits"}
            and device["name"].startswith(f"{claim}-")
            and device["containerEdits"].keys() == {"deviceNodes"}
            and all(node.keys() <= NODE_FIELDS for node in device["containerEdits"]["deviceNodes"])
            for device in spec["devices"]
        )
    )


def _taken(notes: list[Note]) -> set[str]:
    return {note["taken"] for note in notes if note["what"] == "inventory"}


def now() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)
