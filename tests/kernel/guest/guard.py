"""Reads every CDI spec at the moment it is written, and notes when one names a node of other hardware.

fanotify gives the very file that was written, opened, whatever replaces it a moment later. Whose its nodes
are is asked when the event is read. The numbers are those of linux/fanotify.h.
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
_END = "no spec: the guard ends"
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
        self._last = cdi / ".guard"  # written at the end: what came before it has been read then
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._failure = ""
        libc = ctypes.CDLL(None, use_errno=True)
        self._group = libc.fanotify_init(FAN_CLOEXEC, os.O_RDONLY | os.O_CLOEXEC)
        mask = ctypes.c_uint64(FAN_CLOSE_WRITE | FAN_EVENT_ON_CHILD)
        if self._group < 0 or libc.fanotify_mark(self._group, FAN_MARK_ADD, mask, AT_FDCWD, bytes(cdi)) < 0:
            raise OSError(ctypes.get_errno(), f"fanotify: {os.strerror(ctypes.get_errno())}")
        self._thread.start()

    def look_again(self, why: str) -> None:
        """Look whose the nodes are that the newest specs name: hardware came, a number may be another's."""
        with self._lock:
            for claim, paths in self._newest.items():
                self._look(claim, paths, why)

    def end(self) -> dict[str, Any]:
        """What was seen up to now. Raises RuntimeError when it may not be all."""
        self._last.write_text(_END)
        self._thread.join(timeout=60)
        self._last.unlink()
        if self._thread.is_alive() or self._failure:
            raise RuntimeError(f"the guard is blind: {self._failure or 'it does not end'}")
        with self._lock:
            self._newest = {}
            return {"looks": self.looks, "written": self.written, "wrong": self.wrong}

    def _run(self) -> None:
        try:
            while not self._take():
                pass
        except Exception as error:  # noqa: BLE001 - `end` tells
            self._failure = f"{type(error).__name__}: {error}"
        os.close(self._group)

    def _take(self) -> bool:
        """Read what waits; whether the end was among it."""
        ended = False
        for length, _, _, _, _, file, _ in _EVENT.iter_unpack(os.read(self._group, 4096)):
            if length != _EVENT.size or file < 0:
                raise ValueError("the kernel dropped events" if file < 0 else f"an event of {length} bytes")
            try:
                content = os.pread(file, 1 << 20, 0)
            finally:
                os.close(file)
            ended = ended or content == _END.encode()
            self._read(content)
        return ended

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
