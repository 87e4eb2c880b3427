"""Locks between processes: one file, one flock. The kernel gives a lock back when its holder dies."""

import contextlib
import fcntl
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from common.errors import MachineError

# A waiter asks again after these times, the last one for ever. The holder keeps the lock for about half a
# millisecond per claim; flock has no time-out, and a signal cannot end the wait of one thread of many.
_ASK_AGAIN_S = (0.0002, 0.0005, 0.001, 0.001, 0.002, 0.002, 0.005)
_LISTEN_S = 0.05  # how long a thread that waits for another of its process does not see a cancellation


class LockTimeoutError(MachineError):
    """The lock was not to be had in time, or whoever wanted it gave up."""


class _Taken:
    """A locked file. The lock belongs to this opening of it: closing it, or dying, gives it back."""

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def __enter__(self) -> "_Taken":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        os.close(self._handle)


class FileLock:
    """A lock over threads and processes that several callers take for a short time.

    Who is next waits with a second file, the turn: else a process whose threads take the lock again and again
    would always be before one that asks now and then.
    """

    def __init__(self, path: Path) -> None:
        """`path` is made when it is missing; its folder must exist when the lock is taken."""
        self._path = str(path)
        self._turn = f"{path}.turn"
        self._threads = threading.Lock()  # queues the threads of this process, so that one of them asks

    @contextlib.contextmanager
    def held(self, timeout_s: float, cancelled: threading.Event | None = None) -> Iterator[float]:
        """Hold the lock inside the `with`; gives the seconds that the wait took.

        Raises LockTimeoutError after `timeout_s` seconds or soon after `cancelled` is set, MachineError when
        the lock file cannot be opened.
        """
        start = time.monotonic()
        deadline = start + max(timeout_s, 0.0)
        while not self._threads.acquire(timeout=min(max(deadline - time.monotonic(), 0.0), _LISTEN_S)):
            self._check(deadline, timeout_s, cancelled)
        try:
            with self._ask(self._turn, deadline, timeout_s, cancelled):
                file = self._ask(self._path, deadline, timeout_s, cancelled)
            with file:
                yield time.monotonic() - start
        finally:
            self._threads.release()

    def _ask(self, path: str, deadline: float, timeout_s: float, cancelled: threading.Event | None) -> _Taken:
        tries = 0
        while True:
            if cancelled is not None and cancelled.is_set():
                raise LockTimeoutError("gave up: the call was cancelled")
            if file := _take(path):
                return file
            self._check(deadline, timeout_s, cancelled)
            time.sleep(_ASK_AGAIN_S[min(tries, len(_ASK_AGAIN_S) - 1)])
            tries += 1

    def _check(self, deadline: float, timeout_s: float, cancelled: threading.Event | None) -> None:
        if cancelled is not None and cancelled.is_set():
            raise LockTimeoutError(f"gave up waiting for {self._path}: the call was cancelled")
        if time.monotonic() >= deadline:
            raise LockTimeoutError(
                f"{self._path} was held by another liken process for all of {timeout_s:.1f} s;"
                " it is tried again with the next call"
            )


class LifeLock:
    """A lock that a process takes once and holds until it ends: who has it is the active one of several."""

    def __init__(self, path: Path) -> None:
        self._path = str(path)
        self._file: _Taken | None = None

    def try_take(self) -> bool:
        """Whether this process holds the lock now. Taking it again after success costs nothing.

        Raises MachineError when the lock file cannot be opened.
        """
        if self._file is not None:
            return True
        self._file = _take(self._path)
        return self._file is not None

    def release(self) -> None:
        """Give the lock back. Not needed at the end of a process."""
        if self._file is not None:
            self._file.close()
            self._file = None


def _take(path: str) -> _Taken | None:
    """The locked file, or None when somebody else has it. Raises MachineError when it cannot be opened."""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise MachineError(
            f"cannot open the lock {path}: {error.strerror}; check that its folder exists and can be written"
        ) from error
    locked = False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        locked = os.path.samestat(os.fstat(handle), os.stat(path))  # noqa: PTH116 - a Path costs more
    except (BlockingIOError, FileNotFoundError):
        pass  # busy, or somebody removed the file meanwhile and the next one makes another
    except OSError as error:
        raise MachineError(f"cannot lock {path}: {error.strerror}") from error
    finally:
        if not locked:
            os.close(handle)
    return _Taken(handle) if locked else None
