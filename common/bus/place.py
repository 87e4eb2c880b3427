"""Where the sockets of the bus lie, and who may bind them."""

import fcntl
import os
from pathlib import Path
from typing import IO

from common.errors import MachineError, RequestError
from common.settings import Service

MAX_SOCKET_PATH = 107  # bytes; struct sockaddr_un, unix(7)


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


def own(path: Path, service: Service) -> IO[bytes]:
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
