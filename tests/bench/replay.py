"""The baseline of everything that reads /sys: the very same files, links and folders, by plain calls.

The reads are noted once, at the one door to /sys, and then repeated in a loop that decides nothing.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from common.hardware.tree import Entries, Tree

_SIZE = 65536  # bytes asked for at once, as the tree does


class Recorder:
    """A source for a Tree that gives what `tree` gives and notes what it was asked for, each thing once."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self.asked: dict[tuple[str, str], None] = {}  # how ("read", "link", "entries") and where

    def read(self, path: str) -> bytes | None:
        self.asked["read", path] = None
        return self._tree.read(path)

    def link(self, path: str) -> str | None:
        self.asked["link", path] = None
        return self._tree.link(path)

    def entries(self, path: str) -> Entries | None:
        self.asked["entries", path] = None
        return self._tree.entries(path)


class Replay:
    """The reads of `work` below `root`, ready to be done again: calling it does them all.

    It gives how many found something: what is not there is an answer, too, and the walk asked for it.
    """

    def __init__(self, root: Path, asked: list[tuple[str, str]]) -> None:
        self.asked = asked
        self._calls = [(_plain(how, path), f"{root}/{path}") for how, path in asked]

    def __call__(self) -> int:
        found = len(self._calls)
        for call, path in self._calls:
            try:
                call(path)
            except OSError:
                found -= 1
        return found

    def __len__(self) -> int:
        return len(self._calls)


def record(root: Path, work: Callable[[Tree], object]) -> Replay:
    """What `work` reads of the machine below `root`."""
    recorder = Recorder(Tree(root))
    work(Tree(root, source=recorder))
    return Replay(root, list(recorder.asked))


def _plain(how: str, path: str) -> Callable[[str], Any]:
    if how == "link":
        return os.readlink
    if how == "entries":
        return _names
    return _whole if path.startswith("proc") else _attribute


def _names(path: str) -> list[str]:
    with os.scandir(path) as entries:
        return [entry.name for entry in entries]


def _attribute(path: str) -> bytes:
    """An attribute of /sys comes in one piece."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(handle, _SIZE)
    finally:
        os.close(handle)


def _whole(path: str) -> int:
    """A file of /proc comes in pieces of about a page."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    size = 0
    try:
        while piece := os.read(handle, _SIZE):
            size += len(piece)
        return size
    finally:
        os.close(handle)
