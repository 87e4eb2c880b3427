"""Where the sockets of the bus lie, and who may bind them."""

import contextlib
import fcntl
import os
import socket
from pathlib import Path
from typing import IO

from common.errors import MachineError, RequestError
from common.settings import Service

MAX_SOCKET_PATH = 107  # bytes; struct sockaddr_un, unix(7)
_BACKLOG = 100  # ZeroMQ's own


def address(bus_dir: Path, service: Service) -> str:
    """The ZeroMQ address of a service. Raises RequestError when the folder's name is too long."""
    path = bus_dir / f"{service}.sock"
    if len(os.fsencode(path)) > MAX_SOCKET_PATH:
        raise RequestError(
            f"{path} is too long for a unix socket ({MAX_SOCKET_PATH} bytes at the most):"
            " set LIKEN_RUN to a shorter path"
        )
    return f"ipc://{path}"


def make_folder(bus_dir: Path) -> None:
    """The folder of the bus, for this user alone. Raises RequestError when it cannot be made."""
    try:
        bus_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        if bus_dir.stat().st_mode & 0o077:
            bus_dir.chmod(0o700)
    except OSError as error:
        raise _unusable(bus_dir, error) from error


def _unusable(folder: Path, error: OSError) -> RequestError:
    return RequestError(
        f"cannot use {folder}: {error.strerror}; set LIKEN_RUN to a folder that this user can write"
    )


class Place:
    """The lock and the socket file of one sender.

    Whoever holds the lock may put a socket at the path, whatever lies there; nobody else. Both are files that
    somebody may delete, so both are known by their inode, whose number is not given away while they are open.
    """

    def __init__(self, bus_dir: Path, service: Service) -> None:
        """Takes nothing yet. Raises RequestError when the folder's name is too long."""
        self.address = address(bus_dir, service)
        self.folder = bus_dir
        self._service = service
        self._path = bus_dir / f"{service}.sock"
        self._lock = bus_dir / f"{service}.lock"
        self._held: IO[bytes] | None = None
        self._socket: tuple[int, int] | None = None
        self._number = 0

    def lost(self) -> str:
        """What of the place is not ours now, in words; "" when all is."""
        if not os.path.isdir(self.folder):  # noqa: PTH112 - is_dir raises where a folder above lets nobody in
            return f"the folder of the bus {self.folder} is gone"
        if not self._holds_lock():
            return f"the lock {self._lock} was removed or replaced"
        if _inode(self._path) != self._socket or self._socket is None:
            return f"the socket {self._path} was removed or replaced"
        return ""

    def take(self) -> None:
        """Hold the lock; nothing when it is held.

        Raises RequestError when the folder or the lock cannot be made, MachineError when another process has
        the lock. One whose file was deleted is kept until there is one with a name.
        """
        make_folder(self.folder)
        if not self._holds_lock():
            held, self._held = self._held, _own(self._lock, self._service)
            if held is not None:
                held.close()

    def listen(self) -> int:
        """A new listening socket at our path, for ZeroMQ; hold the lock before. Raises MachineError.

        ZeroMQ itself would remove what lies at the path it is told, before it binds and again when it closes,
        whoever's file that is by then.
        """
        self._number += 1  # each has a name of its own in ZeroMQ, no longer than the path
        temporary = self._path.with_suffix(f".{self._number % 10_000:04}")
        try:
            with contextlib.ExitStack() as undo:
                end = undo.enter_context(
                    socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
                )
                temporary.unlink(missing_ok=True)  # of a process that was killed here
                end.bind(os.fsencode(temporary))
                undo.callback(temporary.unlink, missing_ok=True)
                end.listen(_BACKLOG)
                made = _inode(temporary)
                temporary.replace(self._path)
                undo.pop_all()
        except OSError as error:
            raise MachineError(f"cannot open the bus at {self._path}: {error.strerror}") from error
        self._socket = made
        return end.detach()

    def withdraw(self) -> None:
        """Take our socket away, and nobody else's."""
        if self._socket is not None and _inode(self._path) == self._socket:
            with contextlib.suppress(OSError):  # one that stays is replaced by the next sender
                self._path.unlink()
        self._socket = None

    def leave(self) -> None:
        """Take our socket away and give the lock back. A second call does nothing."""
        self.withdraw()
        if self._held is not None:
            self._held.close()
            self._held = None

    def _holds_lock(self) -> bool:
        if self._held is None:
            return False
        try:
            found = self._lock.stat()  # what whoever opens it gets, a link's target as well
        except OSError:
            return False
        return os.path.samestat(found, os.fstat(self._held.fileno()))


def _inode(path: Path) -> tuple[int, int] | None:
    try:
        found = path.lstat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _own(path: Path, service: Service) -> IO[bytes]:
    """Hold `path` for the life of this process.

    Raises RequestError when it cannot be made, MachineError when another process holds it.
    """
    try:
        file = path.open("ab")
    except OSError as error:
        raise _unusable(path.parent, error) from error
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.close()
        raise MachineError(
            f"another {service} already serves {path.parent}: stop it, or give this one another LIKEN_RUN"
        ) from error
    return file
