"""Hardware that comes and goes in a played tree, in the order in which the kernel changes /sys and tells it.

At a removal the kernel takes `dev`, `uevent` and the entries in bus/*/devices, class/* and dev/* away, then
lets the driver go (its link, what it made below), then sends `remove`, then the directory goes:
drivers/base/core.c device_del, drivers/base/dd.c __device_release_driver. A USB device loses its interfaces
before itself: drivers/usb/core/hub.c usb_disconnect. An arrival is the same backwards.
"""

import hashlib
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from common.errors import MachineError, RequestError
from common.files import write_atomically
from common.locks import FileLock
from services.console.numbers import remember_devnums, renumber
from services.console.played_tree import Node, find, format_fields, is_device
from services.console.uevents import Sender, Sent

LOCK_S = 60.0  # one unplug or plug at a time; a slow disconnect keeps the lock
_MOVED_LATER = ("dev", "driver", "uevent")  # made or taken away at a moment of their own


class _Memory(msgspec.Struct):
    """What the kernel would remember: the next device number per USB bus, the last event."""

    next_devnum: dict[str, int] = {}
    seqnum: int = 0


class Player:
    """Plays one machine: `tree_root` holds sys/, `run_dir` is the LIKEN_RUN of the watcher.

    What is unplugged is kept in `unplugged/` below the root. Every method returns the events it sent, in
    order. Raises RequestError when what was asked for cannot be, MachineError when the tree cannot be
    written.
    """

    def __init__(self, tree_root: Path, run_dir: Path, sleep: Callable[[float], None] = time.sleep) -> None:
        self._root = Path(os.path.realpath(tree_root))
        self._sys = self._root / "sys"
        self._aside = self._root / "unplugged"
        self._run_dir = run_dir
        self._sleep = sleep

    def unplug(self, path: str, disconnect_s: float = 0.0) -> tuple[Sent, ...]:
        """Take the device at `path` (a bus address, or a path below /sys) and all below it away.

        `disconnect_s`: its drivers let go that many seconds before the device itself goes.
        """
        with self._turn() as play:
            node = find(self._sys, path)
            remember_devnums(node, play.memory.next_devnum)
            self._keep(node)
            if disconnect_s > 0:
                for each in reversed(list(node.all())):
                    if each.driver and not each.is_usb_device:
                        play.release(each)
                self._sleep(disconnect_s)
            play.remove(node)
        return tuple(play.sent)

    def plug(self, path: str) -> tuple[Sent, ...]:
        """Give back what was unplugged at `path`, with the numbers of a new enumeration."""
        with self._turn() as play:
            kept = self._kept(path)
            home = Path((kept / "home").read_text())
            node = Node(self._sys, kept / "tree", self._sys / home)
            if not node.home.parent.is_dir():
                raise RequestError(f"what {path} was plugged into is unplugged too: plug that first")
            if node.home.exists():
                raise RequestError(f"{path} is plugged already")
            renumber(node, play.memory.next_devnum)
            play.add(node)
            shutil.rmtree(kept)
        return tuple(play.sent)

    def rebind(self, path: str) -> tuple[Sent, ...]:
        """Take the driver off the device at `path` and bind it again: what it makes gets new numbers."""
        return self.unbind(path) + self.bind(path)

    def unbind(self, path: str) -> tuple[Sent, ...]:
        """Take the driver off the device at `path`; the device stays."""
        with self._turn() as play:
            node = find(self._sys, path)
            if not node.driver:
                raise RequestError(f"{path} has no driver to unbind")
            self._keep(node)
            play.release(node)
        return tuple(play.sent)

    def bind(self, path: str) -> tuple[Sent, ...]:
        """Bind the driver that `unbind` took off again."""
        with self._turn() as play:
            there = find(self._sys, path)
            kept = self._kept(there.devpath)
            if there.driver:
                raise RequestError(f"{path} has a driver already")
            node = Node(self._sys, kept / "tree", there.place)
            renumber(node, play.memory.next_devnum)
            play.attach(node)
            shutil.rmtree(kept)
        return tuple(play.sent)

    def announce(self, path: str, action: str = "change") -> tuple[Sent, ...]:
        """Send `action` for the device at `path` as it is, for changes that a test made by itself."""
        with self._turn() as play:
            play.send(action, find(self._sys, path))
        return tuple(play.sent)

    def unplugged(self) -> list[str]:
        """The addresses of what is kept aside, sorted."""
        return sorted(Path(path.read_text()).name for path in self._aside.glob("*/home"))

    @contextmanager
    def _turn(self) -> Iterator["_Play"]:
        try:
            self._aside.mkdir(exist_ok=True)
            with FileLock(self._aside / "lock").held(LOCK_S):
                play = _Play(self._sys, Sender(self._run_dir), self._memory())
                try:
                    yield play
                finally:
                    play.sender.close()
                    write_atomically(self._aside / "memory.json", msgspec.json.encode(play.memory))
        except OSError as error:
            raise MachineError(f"cannot change the played machine {self._root}: {error}") from error

    def _memory(self) -> _Memory:
        path = self._aside / "memory.json"
        return msgspec.json.decode(path.read_bytes(), type=_Memory) if path.is_file() else _Memory()

    def _keep(self, node: Node) -> None:
        kept = self._aside / hashlib.sha256(node.devpath.encode()).hexdigest()[:16]
        if kept.exists() and not node.driver:
            return  # an unbind before this unplug kept it, with its driver
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(node.place, kept / "tree", symlinks=True)
        (kept / "home").write_text(str(node.home.relative_to(self._sys)))

    def _kept(self, path: str) -> Path:
        wanted = path.removeprefix("/sys/").strip("/")
        for home in sorted(self._aside.glob("*/home")):
            if wanted in (home.read_text(), Path(home.read_text()).name):
                return home.parent
        names = ", ".join(self.unplugged())
        raise RequestError(
            f"{path} is not unplugged: " + (f"unplugged is {names}" if names else "nothing is")
        )


class _Play:
    """The single steps of one change, and the events they sent."""

    def __init__(self, sys: Path, sender: Sender, memory: _Memory) -> None:
        self.sys = sys
        self.sender = sender
        self.memory = memory
        self.sent: list[Sent] = []

    def send(self, action: str, node: Node, fields: dict[str, str] | None = None) -> None:
        self.memory.seqnum += 1
        given = node.fields if fields is None else fields
        told = {"SUBSYSTEM": node.subsystem, **given, "SEQNUM": str(self.memory.seqnum)}
        self.sent.append(self.sender.send(action, node.devpath, told))

    def remove(self, node: Node) -> None:
        """device_del for `node` and all below it."""
        if node.is_usb_device:
            for child in reversed(node.children()):
                self.remove(child)
        fields = node.fields
        for path in node.entries():
            path.unlink(missing_ok=True)
        for name in ("dev", "uevent"):
            (node.place / name).unlink(missing_ok=True)
        self._let_go(node, fields)
        for child in reversed(node.children()):
            self.remove(child)
        fields.pop("DRIVER", None)
        self.send("remove", node, fields)
        shutil.rmtree(node.place)

    def release(self, node: Node) -> None:
        """Unbind the driver of a device that stays."""
        fields = node.fields
        self._let_go(node, fields)
        fields.pop("DRIVER", None)
        (node.place / "uevent").write_text(format_fields(fields), errors="surrogateescape")

    def _let_go(self, node: Node, fields: dict[str, str]) -> None:
        if not node.driver:
            return
        for path in [*node.driver_entries(), node.place / "driver"]:
            path.unlink(missing_ok=True)
        for child in reversed(node.children()):
            self.remove(child)
        self.send("unbind", node, {key: value for key, value in fields.items() if key != "DRIVER"})

    def add(self, node: Node) -> None:
        """device_add for what is kept at `node.place`, then its driver."""
        node.home.mkdir()
        self._copy_attributes(node.place, node.home)
        fields = node.fields
        fields.pop("DRIVER", None)
        (node.home / "uevent").write_text(format_fields(fields), errors="surrogateescape")
        for path in node.entries():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
            path.symlink_to(os.path.relpath(node.home, path.parent))
        if node.numbers:
            (node.home / "dev").write_text(f"{node.numbers}\n")
        self.send("add", node, fields)
        self.attach(node)

    def attach(self, node: Node) -> None:
        """Bind the driver of what is kept at `node.place` and lies at `node.home`; add its children."""
        if node.driver:
            (node.home / "driver").symlink_to((node.place / "driver").readlink())
            for path in node.driver_entries():
                path.unlink(missing_ok=True)
                path.symlink_to(os.path.relpath(node.home, path.parent))
            shutil.copyfile(node.place / "uevent", node.home / "uevent")
        for child in node.children():
            if not child.home.exists():
                child.home.parent.mkdir(parents=True, exist_ok=True)
                self.add(child)
        if node.driver:
            self.send("bind", node)

    def _copy_attributes(self, source: Path, target: Path) -> None:
        # everything but what has its own moment and the devices below, which come after their parent's event
        with os.scandir(source) as entries:
            for entry in entries:
                if entry.name in _MOVED_LATER or is_device(Path(entry.path)):
                    continue
                copy = target / entry.name
                if entry.is_symlink():
                    copy.symlink_to(Path(entry.path).readlink())
                elif entry.is_dir():
                    copy.mkdir(exist_ok=True)
                    self._copy_attributes(Path(entry.path), copy)
                else:
                    shutil.copyfile(entry.path, copy)
