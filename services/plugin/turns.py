"""The lock of records and specs, taken once for all claims that wait for it.

Taking the lock and listing the records costs as much as the work for one claim. Whoever gets the lock does
the work of all who asked by then, each claim with its own result and its own error.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar, cast

from services.plugin.calls import CallTime
from services.plugin.holders import Holding

T = TypeVar("T")

# Claims of one turn. Others want the lock as well, and a claim costs some 0.5 ms.
AT_ONCE = 8
_LISTEN_S = 0.05  # how long one that waits for another thread does not see that its call ended


class Turn:
    """What the holder of the lock knows of who holds which hardware, for as long as it has the lock."""

    def __init__(self, look: Callable[[], list[Holding]]) -> None:
        """`look` lists the holdings of all records; it is asked when they are first needed."""
        self._look = look
        self._held: list[Holding] | None = None

    def held_by_others(self, uid: str) -> list[Holding]:
        """The holdings of all claims but this one. Raises MachineError when the records cannot be listed."""
        if self._held is None:
            self._held = self._look()
        return [one for one in self._held if one.entry.uid != uid]

    def changed(self) -> None:
        """A record may be written, removed or neither: look again before the next answer."""
        self._held = None

    def holds(self, uid: str, holdings: list[Holding]) -> None:
        """The record of a claim was written, or removed: then it holds nothing."""
        if self._held is not None:
            self._held = self.held_by_others(uid) + holdings


class Lock(Protocol):
    """The lock of the store."""

    def __call__(
        self, timeout_s: float, cancelled: threading.Event | None = None
    ) -> AbstractContextManager[float]:
        """See Store.lock."""


class Turns:
    """Hands work to whoever holds the lock. Safe in many threads.

    Of all who wait, the one who asked first takes the lock, does the work of those behind it as well, wakes
    each as soon as its own is done, and gives the lead to the next.
    """

    def __init__(
        self, lock: Lock, look: Callable[[], list[Holding]], waited: Callable[[float], None]
    ) -> None:
        """`look` as in Turn; `waited` is told the seconds that each claim waited for its turn."""
        self._lock = lock
        self._look = look
        self._waited = waited
        self._guard = threading.Lock()  # around the two below, for an instant
        self._waiting: deque[_Job] = deque()
        self._led = False  # whether somebody takes the lock, or is told to, for those who wait

    @property
    def waiting(self) -> int:
        """How many claims wait for a turn that has not begun."""
        return len(self._waiting)

    def do(self, work: Callable[[Turn], T], call: CallTime) -> T:
        """The result of `work`, done once under the lock, in this thread or in another one's turn.

        Raises what `work` raises, and MachineError when the time of the call is over before its turn. What
        was begun ends, and its result counts, whatever became of the call meanwhile.
        """
        job = _Job(work, call)
        with self._guard:
            self._waiting.append(job)
            if not self._led:
                self._led = job.leads = True
        try:
            job.wait()
            if not job.done:
                self._lead(call)
        except BaseException:
            if self._withdraw(job):
                raise
            job.end()
        if job.error is not None:
            raise job.error
        return cast(T, job.result)

    def _lead(self, call: CallTime) -> None:
        with self._lock(call.left_s(), call.cancelled):
            turn = Turn(self._look)
            for _ in range(AT_ONCE):
                with self._guard:
                    if not self._waiting:
                        break
                    job = self._waiting.popleft()
                job.run(turn, self._waited)
        self._hand_over()

    def _hand_over(self) -> None:
        with self._guard:
            self._led = bool(self._waiting)
            if self._led:
                self._waiting[0].lead()

    def _withdraw(self, job: "_Job") -> bool:
        """Take back what nobody began. False when somebody did."""
        with self._guard:
            began = job not in self._waiting
            if not began:
                self._waiting.remove(job)
        if job.leads:
            self._hand_over()
        return not began


class _Job:
    """One claim's work, and what came of it."""

    def __init__(self, work: Callable[[Turn], Any], call: CallTime) -> None:
        self.call = call
        self.leads = False  # it takes the lock for all
        self.done = False
        self.result: Any = None
        self.error: BaseException | None = None
        self._work = work
        self._asked_at = time.monotonic()
        self._woken = threading.Event()

    def lead(self) -> None:
        """Tell its thread to take the lock. In the guard of the turns."""
        self.leads = True
        self._woken.set()

    def wait(self) -> None:
        """Until it is done or leads. Raises MachineError when the time of its call is over."""
        while not self.leads and not self._woken.wait(min(self.call.left_s(), _LISTEN_S)):
            pass

    def end(self) -> None:
        """Until it is done; a thread works at it."""
        while not self.done:
            self._woken.wait()

    def run(self, turn: Turn, waited: Callable[[float], None]) -> None:
        try:
            waited(time.monotonic() - self._asked_at)
            self.call.left_s()
            self.result = self._work(turn)
        except BaseException as error:  # noqa: BLE001 - raised again where the work was asked for
            self.error = error
            turn.changed()  # it may have got half-way
        self.done = True
        self._woken.set()
