"""The watcher's main loop: when it is time, one walk, one inventory on the bus."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from common.errors import MachineError
from common.inventory import SCHEMA, Device, Inventory, InventoryMessage
from common.logs import device_log
from services.watcher.listener import ListeningThread, Stirred
from services.watcher.metrics import Metrics

log = logging.getLogger(__name__)

HEARTBEAT_S = 60.0  # the bus topology promises it
RETRY_FIRST_S, RETRY_LAST_S = 1.0, 30.0


def boot_seconds() -> float:
    """Seconds since the boot, sleep included: a clock that all processes of this machine share."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Frame(Protocol):
    """What the loop needs of the process it runs in."""

    @property
    def stop(self) -> threading.Event: ...

    def beat(self) -> None: ...

    def ready(self, yes: bool = True) -> None: ...


class Watch:
    """Walks at start, after each settled burst and, while /sys cannot be read, with growing pauses."""

    def __init__(
        self,
        frame: Frame,
        send: Callable[[InventoryMessage], None],
        walk: Callable[[Inventory | None], Inventory],
        metrics: Metrics,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """`walk` takes the last good inventory and raises MachineError when /sys cannot be read."""
        self._frame, self._send, self._walk, self._metrics, self._now = frame, send, walk, metrics, now
        self._wake = threading.Event()
        self._last: Inventory | None = None
        self._message: InventoryMessage | None = None
        self._heartbeat_at = 0.0
        self._retry_at: float | None = None
        self._retry_s = RETRY_FIRST_S

    def wake(self) -> None:
        """Have the loop look around now. May be called from any thread."""
        self._wake.set()

    def run(self, stirred: Stirred, threads: Sequence[ListeningThread]) -> None:
        """Turn until the process is told to stop. Raises what a listening thread failed with."""
        for thread in threads:
            thread.start()
        self.walk_once(0.0)
        while not self._frame.stop.is_set():
            for thread in threads:
                if thread.failure is not None:
                    raise thread.failure
            self._frame.beat()
            self.turn(stirred)
            self._wake.wait(self._pause(stirred))
            self._wake.clear()
        for thread in threads:
            thread.join()

    def walk_once(self, stirred: float) -> None:
        """Walk and send what came of it. `stirred`: the moment the burst began, 0.0 when none did."""
        begin = time.perf_counter()
        try:
            inventory = self._walk(self._last)
        except MachineError as error:
            self._fail(error, stirred)
            return
        took = time.perf_counter() - begin
        self._metrics.walk.observe(took)
        self._metrics.failed.set(0)
        self._metrics.inventory(inventory, time.time())
        self._tell(inventory, took)
        self._last, self._retry_at, self._retry_s = inventory, None, RETRY_FIRST_S
        self._publish(InventoryMessage(SCHEMA, inventory, stirred=stirred))
        self._frame.ready()

    def turn(self, stirred: Stirred) -> None:
        """Do what is due now, and nothing when nothing is."""
        now = self._now()
        if stirred.walk_due_in() == 0.0:
            self.walk_once(stirred.take())
        elif self._retry_at is not None and now >= self._retry_at:
            self.walk_once(0.0)
        elif self._message is not None and now >= self._heartbeat_at:
            # no walk: the burst of the cached one is over and must not be measured again
            self._publish(msgspec.structs.replace(self._message, stirred=0.0))

    def _pause(self, stirred: Stirred) -> float:
        now = self._now()
        pauses = [self._heartbeat_at - now]
        if self._retry_at is not None:
            pauses.append(self._retry_at - now)
        due = stirred.walk_due_in()
        if due is not None:
            pauses.append(due)
        return max(0.0, min(pauses))

    def _publish(self, message: InventoryMessage) -> None:
        self._message = message
        self._heartbeat_at = self._now() + HEARTBEAT_S
        self._send(message)

    def _fail(self, error: MachineError, stirred: float) -> None:
        log.error("no inventory: %s; tries again in %.0f s", error, self._retry_s)
        self._metrics.failed.set(1)
        self._retry_at = self._now() + self._retry_s
        self._retry_s = min(2 * self._retry_s, RETRY_LAST_S)
        self._publish(InventoryMessage(SCHEMA, error=str(error), stirred=stirred))

    def _tell(self, inventory: Inventory, took_s: float) -> None:
        reason = inventory.facts.reason
        if reason != (self._last.facts.reason if self._last else ""):
            log.log(
                logging.WARNING if reason else logging.INFO,
                "storage %s: %s",
                inventory.facts.storage,
                reason or "all is well again",
            )
        before = {device.name: device for device in self._last.devices} if self._last else {}
        after = {device.name: device for device in inventory.devices}
        told = [*_changes(before, after)] if self._last else []
        for name, words in told:
            device_log(log, name).info(words)
        if told or self._last is None:
            log.info(
                "walked in %.0f ms: %d devices, storage %s",
                took_s * 1000,
                len(after),
                inventory.facts.storage,
            )


def _changes(before: dict[str, Device], after: dict[str, Device]) -> list[tuple[str, str]]:
    gone = [(name, "is gone") for name in before.keys() - after.keys()]
    new = [(name, "is new") for name in after.keys() - before.keys()]
    moved = [
        (name, "has other nodes")
        for name in before.keys() & after.keys()
        if before[name].nodes != after[name].nodes
    ]
    return sorted(gone + new + moved)
