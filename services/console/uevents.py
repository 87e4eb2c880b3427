"""Kernel uevents as a played machine sends them: datagrams in the kernel's form, to a socket of the watcher.

The form is that of the kernel's netlink broadcast (lib/kobject_uevent.c): `ACTION@DEVPATH`, then KEY=VALUE
fields, each ended by a zero byte.
"""

import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

SOCKET = "uevents.sock"  # below LIKEN_RUN; the watcher binds it
_PATIENCE_S = (
    1.0  # a listener that does not read for so long loses the event, as with the kernel's full buffer
)


class Sent(NamedTuple):
    """One event. `at` is time.monotonic() when it was sent; `heard` is False when nobody took it."""

    action: str
    devpath: str
    at: float
    heard: bool


def encode(action: str, devpath: str, fields: Mapping[str, str]) -> bytes:
    """The datagram for one event; `fields` in the order in which the kernel adds them."""
    lines = [f"{action}@{devpath}", f"ACTION={action}", f"DEVPATH={devpath}"]
    lines += [f"{key}={value}" for key, value in fields.items()]
    return b"".join(line.encode(errors="surrogateescape") + b"\0" for line in lines)


class Sender:
    """Sends to the watcher of one run folder; an event that nobody listens to is lost, as with the kernel."""

    def __init__(self, run_dir: Path) -> None:
        self._path = str(run_dir / SOCKET)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.settimeout(_PATIENCE_S)

    def send(self, action: str, devpath: str, fields: Mapping[str, str]) -> Sent:
        try:
            self._socket.sendto(encode(action, devpath, fields), self._path)
        except (FileNotFoundError, ConnectionRefusedError, TimeoutError):
            return Sent(action, devpath, time.monotonic(), heard=False)
        return Sent(action, devpath, time.monotonic(), heard=True)

    def close(self) -> None:
        self._socket.close()
