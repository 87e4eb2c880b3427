"""The kernel's side of uevents: events at our word, a plain reader, and what the kernel says of a socket."""

import ctypes
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.bench.plain import running

KOBJECT_UEVENT = 15  # linux/netlink.h
SO_RCVBUFFORCE = 33  # asm-generic/socket.h
SMALL = 212_992  # bytes; net.core.rmem_max of many kernels, all that a process without CAP_NET_ADMIN gets
_PIDFD_GETFD = 438  # asm-generic/unistd.h; the same on every architecture
QUIET = Path("/sys/devices/virtual/mem/null/uevent")  # whose events harm nobody and wake no watcher
MISC = Path("/sys/devices/virtual/misc")
# Takes events and does nothing with them, not even reading them.
_READER = """
import errno, socket, sys
taker = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 15)
taker.setsockopt(socket.SOL_SOCKET, 33, int(sys.argv[1]))
taker.bind((0, 1))
print("listens", flush=True)
while True:
    try:
        taker.recv(16384)
    except OSError as error:
        if error.errno != errno.ENOBUFS:
            raise
"""


def size_text(size: int) -> str:
    """A buffer's size for people."""
    return f"{size // 1024 // 1024} MiB" if size >= 1024 * 1024 else f"{size // 1024} KiB"


def why_not() -> str:
    """Why no event can be sent here; "" when they can."""
    if os.geteuid() != 0:
        return "this is not root: the kernel sends no events at our word"
    return "" if os.access(QUIET, os.W_OK) else f"{QUIET} cannot be written"


def waking() -> Path | None:
    """A file whose events count for a watcher, as those of hardware do, and harm nobody; None without one."""
    devices = sorted(MISC.glob("*/uevent"))
    return next((path for path in devices if os.access(path, os.W_OK)), None)


def send(count: int, path: Path = QUIET) -> float:
    """Seconds to have the kernel send so many events."""
    file = os.open(path, os.O_WRONLY)
    begin = time.perf_counter()
    for _ in range(count):
        os.write(file, b"change")
    os.close(file)
    return time.perf_counter() - begin


def plain_per_s(count: int, buffer: int) -> float:
    """How many events per second a plain recv takes that wait in a buffer of so many bytes."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, KOBJECT_UEVENT) as taker:
        taker.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, buffer)
        taker.bind((0, 1))
        send(count)
        begin = time.perf_counter()
        for _ in range(count):
            taker.recv(16384)
        return count / (time.perf_counter() - begin)


@contextmanager
def reader(buffer: int) -> Iterator[int]:
    """A plain process that takes events with a buffer of so many bytes; its number."""
    with running("-c", _READER, str(buffer)) as process:
        yield process.pid


class Waits(NamedTuple):
    """What the kernel says of a socket: bytes that wait in it, events that it dropped so far."""

    bytes: int
    dropped: int


class Listener:
    """The socket on which another process listens to the kernel's uevents."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        files = {path.name: os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir()}  # noqa: PTH115 - no path
        rows = [row for row in _rows() if int(row["Eth"]) == KOBJECT_UEVENT]
        self._inode = next(row["Inode"] for row in rows if f"socket:[{row['Inode']}]" in files.values())
        self._file = next(int(name) for name, to in files.items() if to == f"socket:[{self._inode}]")

    def waits(self) -> Waits:
        row = next(row for row in _rows() if row["Inode"] == self._inode)
        return Waits(int(row["Rmem"]), int(row["Drops"]))

    def shrink(self, size: int) -> None:
        """Give it the buffer that it would have got where a process may ask for `size` bytes at the most."""
        process = os.pidfd_open(self._pid)
        file = ctypes.CDLL(None, use_errno=True).syscall(_PIDFD_GETFD, process, self._file, 0)
        os.close(process)
        if file < 0:
            raise OSError(ctypes.get_errno(), "pidfd_getfd")
        with socket.socket(fileno=file) as same:
            same.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size)


def _rows() -> list[dict[str, str]]:
    heads, *lines = Path("/proc/net/netlink").read_text().splitlines()
    return [dict(zip(heads.split(), each.split(), strict=True)) for each in lines]
