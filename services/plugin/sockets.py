"""Unix sockets in folders that we share with the kubelet, other drivers and our own other instance."""

import base64
import hashlib
import logging
import os
import re
import secrets
import socket
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import grpc.aio

from common.errors import MachineError, RequestError
from common.files import names_in

log = logging.getLogger(__name__)

MAX_PATH = 107  # bytes; struct sockaddr_un, unix(7)
HASH_BYTES = 8  # of SHA-256: 11 signs of URL-safe base64; enough for the few instances of a node
# The kubelet passes over names that begin with a dot. No longer than the shortest final name, "dra.sock".
TEMPORARY = ".lk"
_TEMPORARY = re.compile(r"\.lk[0-9a-f]{4}")
_TEMPORARY_AGE_S = 10.0  # a younger one may be about to be renamed
_CONNECT_S = 1.0


class Names(NamedTuple):
    """Where this instance listens."""

    service: Path
    registration: Path


def socket_names(plugin_dir: Path, registry_dir: Path, driver: str, pod_uid: str) -> Names:
    """Paths of this instance's two sockets, of at most 107 bytes: readable, or else with a hash.

    Raises RequestError when the folders leave no room for either.
    """
    instance = re.sub(r"[^A-Za-z0-9-]", "-", pod_uid)
    between = f"-{instance}" if instance else ""
    digest = hashlib.sha256(os.fsencode(f"{driver}\0{pod_uid}")).digest()[:HASH_BYTES]
    short = base64.urlsafe_b64encode(digest).decode().rstrip("=")
    return Names(
        _fitting(plugin_dir, f"dra{between}.sock", f"dra-{short}.sock"),
        _fitting(registry_dir, f"{driver}{between}-reg.sock", f"liken-{short}-reg.sock"),
    )


def _fitting(folder: Path, *names: str) -> Path:
    for name in names:
        if len(os.fsencode(folder / name)) <= MAX_PATH:
            return folder / name
    raise RequestError(
        f"{folder / names[-1]} is too long for a unix socket ({MAX_PATH} bytes): set LIKEN_KUBELET"
        " to a shorter path"
    )


def remove_leftovers(names: Names, driver: str) -> list[Path]:
    """Remove sockets that other instances of this driver left and that nobody answers; return them.

    Raises MachineError when somebody answers on our own names: another instance of the same pod runs.
    """
    ours = (
        (names.service.parent, re.compile(r"dra(-.+)?\.sock")),
        (
            names.registration.parent,
            re.compile(rf"{re.escape(driver)}(-.+)?-reg\.sock|liken-.{{11}}-reg\.sock"),
        ),
    )
    removed = []
    for folder, pattern in ours:
        for name in names_in(folder):
            path = folder / name
            if not (pattern.fullmatch(name) or _is_old_temporary(path)):
                continue
            if _is_dead(path):
                path.unlink(missing_ok=True)
                removed.append(path)
            elif path in names:
                raise MachineError(f"another plugin of liken listens on {path}: stop that one first")
    return removed


def _is_old_temporary(path: Path) -> bool:
    if not _TEMPORARY.fullmatch(path.name):
        return False
    try:
        return time.time() - path.lstat().st_mtime > _TEMPORARY_AGE_S
    except OSError:
        return False


def _is_dead(path: Path) -> bool:
    """True for a socket that refuses a connection; False for anything else, a busy one included."""
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            return False
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.settimeout(_CONNECT_S)
            client.connect(str(path))
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    return False


class Endpoint:
    """One gRPC server on one path, which is bound again when somebody takes the path away."""

    def __init__(self, path: Path, add_services: Callable[[grpc.aio.Server], None]) -> None:
        self.path = path
        self._add_services = add_services
        self._server: grpc.aio.Server | None = None
        self._inode: tuple[int, int] | None = None

    async def bind(self) -> None:
        """Serve on the path. The calls of a server that was there before are cut off: the kubelet drops the
        connection with the socket, and repeats them.

        gRPC removes what lies at the path it is told, and again at its end, whoever's file that is by then.
        So it is told a name of its own, and the socket is renamed.
        """
        temporary = self.path.parent / f"{TEMPORARY}{secrets.token_hex(2)}"
        server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        self._add_services(server)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            server.add_insecure_port(f"unix:{temporary}")
            await server.start()
            found = temporary.stat()
            self.unlink()  # the kubelet must see one go before the next comes
            temporary.rename(self.path)
        except (OSError, RuntimeError) as error:
            await server.stop(None)
            raise MachineError(
                f"cannot listen on {self.path}: {error}; check that its folder exists and can be written"
            ) from error
        old, self._server = self._server, server
        self._inode = (found.st_dev, found.st_ino)
        if old is not None:
            await old.stop(None)

    def intact(self) -> bool:
        """Whether the path still leads to our socket."""
        try:
            found = self.path.lstat()
        except OSError:
            return False
        return (found.st_dev, found.st_ino) == self._inode

    def unlink(self) -> None:
        """Take the path away if it is ours: the kubelet forgets it, calls that run go on."""
        if self._inode is not None and self.intact():
            self.path.unlink(missing_ok=True)

    async def stop(self, grace_s: float | None) -> None:
        """Remove our socket and no other; give running calls `grace_s` seconds to end (None: no time)."""
        self.unlink()
        if self._server is not None:
            await self._server.stop(grace_s)
