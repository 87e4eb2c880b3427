"""inotify(7): a file that becomes readable when entries of watched folders come, go or are written."""

import contextlib
import ctypes
import os
from pathlib import Path

# linux/inotify.h
CLOSE_WRITE, MOVED_FROM, MOVED_TO, DELETE, DELETE_SELF, MOVE_SELF = 0x8, 0x40, 0x80, 0x200, 0x400, 0x800
COMES_OR_GOES = DELETE | DELETE_SELF | MOVE_SELF | MOVED_FROM | MOVED_TO  # an entry, or the folder itself
_ONLYDIR = 0x1000000
_READ_BYTES = 65536


class Inotify:
    """Tells that something happened, not what: an event is a reason to look."""

    def __init__(self) -> None:
        """Raises OSError when the system gives no more of them (fs.inotify.max_user_instances)."""
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._file = self._done(self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))

    def fileno(self) -> int:
        return self._file

    def add(self, folder: Path, events: int) -> int:
        """Watch `folder` itself, whatever its name will be; the number for `remove`. Raises OSError."""
        return self._done(
            self._libc.inotify_add_watch(self._file, os.fsencode(folder), events | _ONLYDIR), folder
        )

    def remove(self, watch: int) -> None:
        """Watch it no longer; nothing when the folder is gone, and its watch with it."""
        self._libc.inotify_rm_watch(self._file, watch)

    def drain(self) -> None:
        """Take what was told; until the next event the file is not readable."""
        with contextlib.suppress(BlockingIOError):
            while True:
                os.read(self._file, _READ_BYTES)

    def close(self) -> None:
        os.close(self._file)

    @staticmethod
    def _done(returned: int, folder: Path | None = None) -> int:
        if returned < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), None if folder is None else str(folder))
        return returned
