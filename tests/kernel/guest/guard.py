"""Reads every CDI spec at the moment it is written, and notes when one names a node of other hardware.

fanotify gives the very file that was written, opened; whatever replaces it a moment later, nothing is missed.
The numbers are those of linux/fanotify.h.
"""

import ctypes
import json
import os
import struct
import threading
import time
from pathlib import Path
from typing import Any

from tests.kernel.guest.ownership import foreign

FAN_CLOEXEC, FAN_MARK_ADD, FAN_CLOSE_WRITE, FAN_EVENT_ON_CHILD = 0x1, 0x1, 0x8, 0x08000000
AT_FDCWD = -100
_EVENT = struct.Struct("=IBBHQii")  # length, version, reserved, length of this, mask, file, process


class Guard:
    """`written`: each version of each spec, in order; `wrong`: each sight of a node of other hardware."""

    def __init__(self, cdi: Path, owners: dict[str, str]) -> None:
        """`owners`: claim -> the USB interface, such as 1-8:1.0, whose nodes alone its specs may name."""
        self.written: list[dict[str, Any]] = []
        self.wrong: list[dict[str, Any]] = []
        self.looks = 0
        self._owners = dict(owners)
        self._newest: dict[str, list[str]] = {}
        self._lock = threading.Lock()
        libc = ctypes.CDLL(None, use_errno=True)
        self._group = libc.fanotify_init(FAN_CLOEXEC, os.O_RDONLY | os.O_CLOEXEC)
        mask = ctypes.c_uint64(FAN_CLOSE_WRITE | FAN_EVENT_ON_CHILD)
        if self._group < 0 or libc.fanotify_mark(self._group, FAN_MARK_ADD, mask, AT_FDCWD, bytes(cdi)) < 0:
            raise OSError(ctypes.get_errno(), f"fanotify: {os.strerror(ctypes.get_errno())}")
        threading.Thread(target=self._watch, daemon=True).start()

    def look_again(self, why: str) -> None:
        """Look whose the nodes are that the newest specs name: hardware came, a number may be another's."""
        with self._lock:
            for claim, paths in self._newest.items():
                self._look(claim, paths, why)

    def report(self) -> dict[str, Any]:
        with self._lock:
            return {"looks": self.looks, "written": list(self.written), "wrong": list(self.wrong)}

    def end(self) -> None:
        with self._lock:
            self._owners = {}
            self._newest = {}

    def _watch(self) -> None:
        while self._owners:
            data = os.read(self._group, 4096)
            for length, _, _, _, _, file, _ in _EVENT.iter_unpack(data):
                if length != _EVENT.size:
                    raise ValueError(f"an event of {length} bytes")
                try:
                    self._read(os.pread(file, 1 << 20, 0))
                finally:
                    os.close(file)
        os.close(self._group)

    def _read(self, content: bytes) -> None:
        try:
            devices = json.loads(content)["devices"]
        except (ValueError, KeyError):
            return  # no spec of ours
        with self._lock:
            for claim in self._owners:
                own = [device for device in devices if device["name"].startswith(claim)]
                if own:
                    paths = [node["path"] for each in own for node in each["containerEdits"]["deviceNodes"]]
                    self.written.append({"at": time.monotonic(), "claim": claim, "paths": sorted(paths)})
                    self._newest[claim] = paths
                    self._look(claim, paths, "a spec was written")

    def _look(self, claim: str, paths: list[str], why: str) -> None:
        self.looks += 1
        for path in paths:
            if place := foreign(path, self._owners[claim]):
                self.wrong.append({"claim": claim, "path": path, "is": place, "why": why})
