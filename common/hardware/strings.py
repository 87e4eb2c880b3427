"""The texts a USB device states about itself.

The kernel takes the device's lock to read `serial`, `product` and `manufacturer`; while a device resets, such
a read blocks for seconds. Everything that must not block reads them through a StringReader with a limit.
"""

import queue
import threading
from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeAlias

import msgspec

from common.hardware.tree import ExhaustedError, Tree


class UsbStrings(NamedTuple):
    """Clean texts; "" for one that the device does not state."""

    manufacturer: str = ""
    product: str = ""
    serial: str = ""


class StringReader(Protocol):
    """Reads the strings of the USB device at a directory; None when it hangs."""

    def read(self, tree: Tree, directory: str) -> UsbStrings | None: ...


def read_strings(tree: Tree, directory: str) -> UsbStrings:
    """Read at once, however long it takes."""
    return UsbStrings(*(tree.text(f"{directory}/{name}") for name in UsbStrings._fields))


class DirectReader:
    """For recordings and commands: no device of a recording resets."""

    def read(self, tree: Tree, directory: str) -> UsbStrings | None:
        return read_strings(tree, directory)


class _Job(msgspec.Struct):
    tree: Tree
    directory: str
    done: threading.Event
    answer: UsbStrings | None = None
    failure: ExhaustedError | None = None


_Queue: TypeAlias = "queue.SimpleQueue[_Job | None]"


class PatientReader:
    """Reads in a worker thread and gives up on a device after `limit_s`.

    A device that hangs costs one thread until the kernel answers; it is not asked again before that, and
    reads as hanging meanwhile at no cost; `answered` is called, from that thread, when it has the answer at
    last, for the caller to walk again. One caller at a time.
    """

    def __init__(
        self,
        limit_s: float = 0.1,  # a healthy device answers from the kernel's cache in microseconds
        read: Callable[[Tree, str], UsbStrings] = read_strings,
        answered: Callable[[], None] = lambda: None,
    ) -> None:
        self._limit_s = limit_s
        self._read = read
        self._answered = answered
        self._jobs: _Queue | None = None
        self._stuck: dict[str, _Job] = {}

    @property
    def hanging(self) -> frozenset[str]:
        return frozenset(directory for directory, job in self._stuck.items() if not job.done.is_set())

    def read(self, tree: Tree, directory: str) -> UsbStrings | None:
        """The strings, or None when the device hangs. Raises ExhaustedError as a direct read would."""
        stuck = self._stuck.get(directory)
        if stuck is not None:
            if not stuck.done.is_set():
                return None
            del self._stuck[directory]
        job = _Job(tree, directory, threading.Event())
        jobs = self._jobs = self._jobs or self._new_worker()
        jobs.put(job)
        if not job.done.wait(self._limit_s):
            self._stuck = {place: each for place, each in self._stuck.items() if not each.done.is_set()}
            self._stuck[directory] = job
            jobs.put(None)  # that worker ends when it has done this; the next read gets a new one
            self._jobs = None
            return None
        if job.failure is not None:
            raise job.failure
        return job.answer

    def _new_worker(self) -> _Queue:
        jobs: _Queue = queue.SimpleQueue()
        threading.Thread(target=self._work, args=(jobs,), name="usb-strings", daemon=True).start()
        return jobs

    def _work(self, jobs: _Queue) -> None:
        """Serve one queue until it is given up: then its last job is the one that hung."""
        while (job := jobs.get()) is not None:
            try:
                job.answer = self._read(job.tree, job.directory)
            except ExhaustedError as error:
                job.failure = error
            finally:
                job.done.set()
        self._answered()
