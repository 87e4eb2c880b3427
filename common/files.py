"""The one way liken replaces a file: whole, or not at all."""

import itertools
import os
import posixpath
import stat
from pathlib import Path

from common.errors import MachineError

TEMPORARY_PREFIX = ".liken-"  # readers of CDI and record folders take *.json and *.yaml only
_PIECE = 64 * 1024
# Of temporary names: processes of several containers have the same number. Not the module tempfile, which
# loads random numbers and three kinds of compression into each process.
_WRITER = os.urandom(6).hex()
_NUMBERS = itertools.count()


def write_atomically(path: str | Path, content: bytes, mode: int = 0o644) -> os.stat_result:
    """Put `content` at `path` by a temporary name in the same folder and a rename.

    Gives the status of the new file. A reader sees the old one or the new one. Nothing is synced: what liken
    writes dies with the boot.
    Raises MachineError when the folder cannot be written (full, read-only, missing).
    """
    folder, name = posixpath.split(str(path))
    temporary = posixpath.join(folder, f"{TEMPORARY_PREFIX}{name}-{_WRITER}-{next(_NUMBERS)}")
    try:
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        try:
            try:
                _write(handle, content)
                status = os.fstat(handle)
                if stat.S_IMODE(status.st_mode) != mode:  # the process has an umask of its own
                    os.fchmod(handle, mode)
            finally:
                os.close(handle)
            os.replace(temporary, path)  # noqa: PTH105 - a Path costs more than the call
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise MachineError(
            f"cannot write {path}: {error.strerror}; check that its folder exists and has room"
        ) from error
    return status


def _write(handle: int, content: bytes) -> None:
    left = memoryview(content)
    while left:
        left = left[os.write(handle, left) :]


def read_up_to(path: str | Path, limit: int) -> tuple[bytes, os.stat_result]:
    """The first `limit` bytes of a file, and its status. Raises OSError.

    A file object would ask the kernel five more things about each file.
    """
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        status = os.fstat(handle)
        pieces = []
        while limit > 0 and (piece := os.read(handle, min(limit, _PIECE))):
            pieces.append(piece)
            limit -= len(piece)
        return b"".join(pieces), status
    finally:
        os.close(handle)


def names_in(folder: Path) -> list[str]:
    """The names of what lies in `folder`, sorted; none when there is no such folder.

    Raises MachineError when it cannot be read: that is never the same as an empty folder.
    """
    try:
        with os.scandir(folder) as entries:
            return sorted(entry.name for entry in entries)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise MachineError(f"cannot read {folder}: {error.strerror}") from error
