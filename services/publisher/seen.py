"""What the cluster holds of ours, as far as we know: lists, watch events and our own answers together."""

import threading
from typing import NamedTuple

from common.cluster import Raw, SliceEvent, SliceList


class View(NamedTuple):
    """One look. `revision` counts changes, `deletions` slices that others removed, `breaks` lost watches."""

    known: bool
    revision: int
    slices: dict[str, Raw]
    deletions: int
    breaks: int


class Seen:
    """Our slices by name. One thread lists and watches, another writes; both tell what they learn.

    A list or event may be older than an answer that came meanwhile: of one object the higher
    resourceVersion counts (Kubernetes makes them comparable numbers).
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known = False
        self._slices: dict[str, Raw] = {}
        self._gone: dict[
            str, int
        ] = {}  # versions at which slices were removed; an answer may come after that
        self._listed = 0  # version of the last list: what it lacked was gone by then
        self._revision = 0
        self._deletions = 0
        self._breaks = 0

    def view(self) -> View:
        with self._lock:
            return View(self._known, self._revision, dict(self._slices), self._deletions, self._breaks)

    def replace(self, listed: SliceList) -> None:
        """A whole list: what it lacks is gone, unless it is newer than the list."""
        with self._lock:
            found = {item["metadata"]["name"]: item for item in listed.items}
            for name, item in self._slices.items():
                if name in found:
                    found[name] = item if _older(found[name], item) else found[name]
                elif _version(item) > _number(listed.version) > 0:
                    found[name] = item
                else:
                    self._deletions += 1
            self._listed = _number(listed.version)
            self._gone.clear()
            if found != self._slices or not self._known:
                self._revision += 1
            self._slices = found
            self._known = True

    def change(self, event: SliceEvent) -> None:
        """One event of the watch."""
        name = event.object["metadata"]["name"]
        with self._lock:
            held = self._slices.get(name)
            if held is not None and _older(event.object, held):
                return
            if event.kind == "DELETED":
                self._gone[name] = _version(event.object)
                if self._slices.pop(name, None) is not None:
                    self._revision += 1
                    self._deletions += 1
            elif not self._was_gone(name, held, event.object):
                self._revision += held != event.object
                self._slices[name] = event.object

    def _was_gone(self, name: str, held: Raw | None, item: Raw) -> bool:
        """Whether `item` was removed after it was as it says."""
        last = max(self._gone.get(name, 0), 0 if held is not None else self._listed)
        return 0 < _version(item) <= last

    def put(self, item: Raw) -> None:
        """The answer to a write of ours. It may come after the event of a removal that followed the write."""
        self.change(SliceEvent("MODIFIED", item))
        with self._lock:
            self._deletions += item["metadata"]["name"] not in self._slices

    def remove(self, item: Raw) -> None:
        """A deletion of ours."""
        with self._lock:
            self._slices.pop(item["metadata"]["name"], None)
            self._revision += 1

    def broke(self) -> None:
        """The watch was lost: things may have happened that no event told."""
        with self._lock:
            self._breaks += 1


def _older(item: Raw, than: Raw) -> bool:
    return 0 < _version(item) < _version(than)  # without a version, what comes later is newer


def _version(item: Raw) -> int:
    return _number(str(item["metadata"].get("resourceVersion", "")))


def _number(version: str) -> int:
    return int(version) if version.isascii() and version.isdigit() else 0
