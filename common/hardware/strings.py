"""The texts a USB device states about itself.

The kernel takes the device's lock to read `serial`, `product` and `manufacturer`; while a device resets, such
a read blocks for seconds. Everything that must not block reads them through a StringReader with a limit.
"""

import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

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


@dataclass
class _Job:
    tree: Tree
    directory: str
    done: threading.Event
    answer: UsbStrings | None = None
    failure: ExhaustedError | None = None


class PatientReader:
    """Reads in a worker thread and gives up on a device after `limit_s`.

    A device that hangs costs one thread until the kernel answers; it is not asked again before that, and
    reads as hanging meanwhile at no cost. `hanging` names the directories that did not answer, for the caller
    who wants to walk again later. For one caller at a time.
    """

    def __init__(
        self,
        limit_s: float = 0.25,  # a healthy device answers from the kernel's cache in microseconds
        read: Callable[[Tree, str], UsbStrings] = read_strings,
    ) -> None:
        self._limit_s = limit_s
        self._read = read
        self._jobs: queue.SimpleQueue[_Job] | None = None
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
            self._stuck[directory] = job
            self._jobs = None  # that worker is busy with the device; the next read gets a new one
            return None
        if job.failure is not None:
            raise job.failure
        return job.answer

    def _new_worker(self) -> "queue.SimpleQueue[_Job]":
        jobs: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        threading.Thread(target=self._work, args=(jobs,), name="usb-strings", daemon=True).start()
        return jobs

    def _work(self, jobs: "queue.SimpleQueue[_Job]") -> None:
        """Serve one queue; ends once the queue has been given up, that is after the job that hung."""
        while True:
            job = jobs.get()
            try:
                job.answer = self._read(job.tree, job.directory)
            except ExhaustedError as error:
                job.failure = error
            finally:
                job.done.set()
            if self._jobs is not jobs:
                return
