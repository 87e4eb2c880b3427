"""The threads that listen. They drain, tick and note; a walk is another thread's work and delays nothing."""

import logging
import select
import threading
from collections.abc import Callable
from typing import Protocol

from common.errors import MachineError
from common.process import Stop
from services.watcher.metrics import Metrics
from services.watcher.mounts import MountWatch
from services.watcher.settle import Settle, Throttle
from services.watcher.sources import Batch, Source, SourceDeadError
from services.watcher.uevent import counts

log = logging.getLogger(__name__)

TICK_PERIOD_S = 0.01
REOPEN_PERIOD_S = 60.0  # a socket that dies twice within this time is a case for a new process


class Stirred:
    """What the listening threads tell: a tick at once for the bus, a burst for the walk. Thread-safe."""

    def __init__(
        self, settle: Settle, throttle: Throttle, tick: Callable[[], None], wake: Callable[[], None]
    ):
        self._settle, self._throttle = settle, throttle
        self._tick, self._wake = tick, wake
        self._lock = threading.Lock()

    def stir(self) -> None:
        """Something happened."""
        with self._lock:
            began, now = self._settle.stir(), self._throttle.stir()
        if now:
            self._tick()
        if began:
            self._wake()

    def tick_due_in(self) -> float | None:
        """Seconds until `flush` has something to send; None when nothing waits."""
        with self._lock:
            return self._throttle.due_in()

    def flush(self) -> None:
        """Send the tick that waited for its time."""
        with self._lock:
            now = self._throttle.take()
        if now:
            self._tick()

    def walk_due_in(self) -> float | None:
        """Seconds until the burst has settled; None when there is none."""
        with self._lock:
            return self._settle.due_in()

    def take(self) -> float:
        """The walk begins: the moment its burst began, 0.0 without one."""
        with self._lock:
            return self._settle.take()


class Listening(Protocol):
    """One thing to listen to: readable by `fileno`, then `handle` is called."""

    def fileno(self) -> int: ...

    def handle(self) -> None: ...

    def close(self) -> None: ...


def listen(listening: Listening, stirred: Stirred, stop: int) -> None:
    """Handle what comes until the file `stop` is readable."""
    try:
        while True:
            # not kept from turn to turn: a socket that was opened again has another number
            poll = select.poll()
            poll.register(stop, select.POLLIN)
            poll.register(listening.fileno(), select.POLLIN)
            due = stirred.tick_due_in()
            ready = poll.poll(None if due is None else due * 1000)
            if any(file == stop for file, _ in ready):
                return
            if ready:
                listening.handle()
            stirred.flush()
    finally:
        listening.close()


class Uevents:
    """The uevent socket: drained, filtered, and opened again once when it dies."""

    def __init__(
        self, open_: Callable[[], Source], stirred: Stirred, metrics: Metrics, now: Callable[[], float]
    ) -> None:
        """Listens from now on. Raises MachineError when the socket cannot be opened."""
        self._open, self._stirred, self._metrics, self._now = open_, stirred, metrics, now
        self._source = open_()
        self._died: float | None = None

    def fileno(self) -> int:
        return self._source.fileno()

    def handle(self) -> None:
        """Take all that waits. Raises MachineError when the socket died and a new one did not help."""
        try:
            batch = self._source.receive()
        except SourceDeadError as error:
            self._reopen(error)
            batch = Batch([], True)
        for event in batch.events:
            woke = counts(event)
            log.debug("%s %s", event.action, event.devpath)
            self._metrics.uevent(event, woke)
            if woke:
                self._stirred.stir()
        if batch.lost:
            log.warning("uevents were lost; walks")
            self._metrics.lost.inc()
            self._stirred.stir()

    def close(self) -> None:
        self._source.close()

    def _reopen(self, error: MachineError) -> None:
        died, self._died = self._died, self._now()
        if died is not None and self._died - died < REOPEN_PERIOD_S:
            raise error
        log.warning("%s; opens it again", error)
        self._source.close()
        self._source = self._open()
        self._metrics.reopened.inc()


class Mounts:
    """The tables of mounts and swaps."""

    def __init__(self, watch: MountWatch, stirred: Stirred, metrics: Metrics) -> None:
        self._watch, self._stirred, self._metrics = watch, stirred, metrics

    def fileno(self) -> int:
        return self._watch.fileno()

    def handle(self) -> None:
        if self._watch.changed():
            log.info("the disks in use changed; walks")
            self._metrics.mounts.inc()
            self._stirred.stir()

    def close(self) -> None:
        self._watch.close()


class ListeningThread(threading.Thread):
    """Runs `listen`; what ends it before its time is kept in `failure` and told by `wake`."""

    def __init__(self, listening: Listening, stirred: Stirred, stop: Stop, wake: Callable[[], None]) -> None:
        super().__init__(name=type(listening).__name__.lower(), daemon=True)
        self.failure: Exception | None = None
        self._listening, self._stirred, self._order, self._wake = listening, stirred, stop, wake

    def run(self) -> None:
        try:
            listen(self._listening, self._stirred, self._order.fileno())
        except Exception as error:  # noqa: BLE001 - handed to the main thread, which ends the process with it
            self.failure = error
            self._wake()
