"""Where uevents come from: the kernel's netlink socket, or a unix socket for a played machine."""

import contextlib
import errno
import logging
import os
import socket
from pathlib import Path
from typing import NamedTuple, Protocol

from common.errors import MachineError
from common.settings import Settings
from services.watcher.uevent import MAX_BYTES, Uevent, parse

log = logging.getLogger(__name__)

RECEIVE_BUFFER = 16 * 1024 * 1024  # bytes; some 20000 events, more than a docking station makes
BATCH = 1000  # events taken before the loop looks at its other duties
_FATAL = {errno.EBADF, errno.ENOTSOCK, errno.ENOTCONN, errno.ECONNRESET, errno.ESHUTDOWN, errno.EPIPE}
_MAX_REFUSED = 100  # messages in a row that cannot be read: then it is the socket and not the messages


class SourceDeadError(MachineError):
    """The socket will never deliver again; another one may."""


class Batch(NamedTuple):
    """What was waiting. `lost`: events were dropped or could not be read, so nothing is known but that."""

    events: list[Uevent]
    lost: bool


class Source(Protocol):
    """A socket that delivers uevents; it listens from the moment it exists."""

    def fileno(self) -> int: ...

    def receive(self) -> Batch:
        """All that waits, without blocking. Raises SourceDeadError."""

    def close(self) -> None: ...


def open_source(settings: Settings) -> Source:
    """The source of this machine's events. Raises MachineError when it cannot be opened."""
    if settings.played:
        return PlayedSource(played_socket(settings.run))
    return KernelSource()


def played_socket(run: Path) -> Path:
    """Where a played machine sends its uevents, one datagram each."""
    return run / "uevents.sock"


class KernelSource:
    """The kernel's own events: without udevd, in every network namespace of the first user namespace."""

    def __init__(self, receive_buffer: int = RECEIVE_BUFFER) -> None:
        import pyudev  # here, because it needs libudev, which a machine that is only played may lack

        try:
            self._monitor = pyudev.Monitor.from_netlink(pyudev.Context(), source="kernel")
            self._monitor.start()
            self._socket = socket.socket(fileno=os.dup(self._monitor.fileno()))
        except OSError as error:
            raise MachineError(
                f"cannot listen to the kernel's uevents: {error}; NETLINK_KOBJECT_UEVENT must be allowed here"
            ) from error
        if not sees_kernel_events(Path("/proc/self/uid_map").read_text()):
            log.error("no kernel event arrives in this user namespace: run with hostUsers: true")
        self._enlarge(receive_buffer)

    def fileno(self) -> int:
        return self._socket.fileno()

    def receive(self) -> Batch:
        events: list[Uevent] = []
        lost = self._take_error()
        refused = 0
        while len(events) < BATCH and refused < _MAX_REFUSED:
            try:
                device = self._monitor.poll(timeout=0)
                if device is None:
                    return Batch(events, lost)
                events.append(Uevent(device.action or "", device.device_path))
                refused = 0
            except (OSError, ValueError) as error:
                lost = True
                refused += 1
                self._judge(error)
        if refused:
            raise SourceDeadError("the kernel's uevents cannot be read any more")
        return Batch(events, lost)

    def close(self) -> None:
        self._socket.close()
        del self._monitor  # its socket closes with the last reference

    def _take_error(self) -> bool:
        try:
            number = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        except OSError as error:
            number = error.errno or errno.EBADF
        if number and number != errno.ENOBUFS:
            raise SourceDeadError(f"the socket of the kernel's uevents failed: {os.strerror(number)}")
        return number == errno.ENOBUFS

    def _judge(self, error: OSError | ValueError) -> None:
        # libudev's poll tells an overflow as an error without a number and leaves the number in the socket
        self._take_error()
        if isinstance(error, OSError) and error.errno in _FATAL:
            raise SourceDeadError(f"the socket of the kernel's uevents failed: {error.strerror}") from error

    def _enlarge(self, size: int) -> None:
        try:
            self._monitor.set_receive_buffer_size(size)
        except (
            OSError
        ):  # EPERM without CAP_NET_ADMIN is the normal case; the ordinary way has the system's limit
            with contextlib.suppress(OSError):
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size)
        got = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
        log.info("listens to the kernel's uevents with a receive buffer of %d KiB", got // 1024)


class PlayedSource:
    """A unix datagram socket that takes the same datagrams as the kernel's."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        try:
            path.unlink(
                missing_ok=True
            )  # one that a killed process left behind; the bus lock keeps others away
            self._socket.bind(str(path))
            path.chmod(0o600)
            self._inode = path.stat().st_ino
        except OSError as error:
            self._socket.close()
            raise MachineError(
                f"cannot listen for played uevents at {path}: {error.strerror or error}; set LIKEN_RUN"
                " to a folder that this user can write, with a short name"
            ) from error
        log.info("listens for played uevents at %s", path)

    def fileno(self) -> int:
        return self._socket.fileno()

    def receive(self) -> Batch:
        events: list[Uevent] = []
        lost = False
        while len(events) < BATCH:
            try:
                events.append(parse(self._socket.recv(MAX_BYTES)))
            except BlockingIOError:
                break
            except ValueError as error:
                log.warning("%s", error)
                lost = True
            except OSError as error:
                raise SourceDeadError(f"the socket of the played uevents failed: {error.strerror}") from error
        return Batch(events, lost)

    def close(self) -> None:
        self._socket.close()
        with contextlib.suppress(OSError):
            if self._path.stat().st_ino == self._inode:
                self._path.unlink()


def sees_kernel_events(uid_map: str) -> bool:
    """Whether kernel events can arrive in the user namespace of `uid_map` (/proc/self/uid_map).

    They come from the host's uid 0; where that has no name, the kernel and libudev drop them without a word.
    """
    rows = (line.split() for line in uid_map.splitlines())
    return any(len(row) == 3 and int(row[1]) == 0 for row in rows)
