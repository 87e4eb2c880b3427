"""The one way liken replaces a file: whole, or not at all."""

import os
from pathlib import Path

from common.errors import MachineError

TEMPORARY_PREFIX = ".liken-"  # readers of CDI and record folders take *.json and *.yaml only


def write_atomically(path: Path, content: bytes, mode: int = 0o644) -> None:
    """Put `content` at `path` by a temporary name in the same folder and a rename.

    A reader sees the old file or the new one. Nothing is synced: what liken writes dies with the boot.
    Raises MachineError when the folder cannot be written (full, read-only, missing).
    """
    try:
        # not the module tempfile: it loads random numbers and three kinds of compression into each process
        temporary = f"{path.parent}/{TEMPORARY_PREFIX}{path.name}-{os.urandom(6).hex()}"
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                os.fchmod(file.fileno(), mode)
            os.replace(temporary, path)  # noqa: PTH105 - a Path costs more than the call
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise MachineError(
            f"cannot write {path}: {error.strerror}; check that its folder exists and has room"
        ) from error


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
