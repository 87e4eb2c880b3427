"""The publisher's one loop: the bus, the watch and the order to stop wake it; each turn does what is due."""

import logging
import threading
from collections.abc import Callable
from pathlib import Path

from common.bus import BusReader, decode
from common.cluster import connect
from common.errors import MachineError
from common.inventory import InventoryMessage, Presence
from common.locks import LifeLock
from common.process import Context
from services.publisher.metrics import Metrics
from services.publisher.publisher import Publisher
from services.publisher.seen import Seen
from services.publisher.watching import Watching
from services.publisher.writer import Clocks

log = logging.getLogger(__name__)

LOCK = "publisher.active.lock"
STANDBY_S = 0.1  # how often an instance that stands by asks whether it is its turn
END_S = 1.0  # a request without an answer does not hold up the end of the process
TURN_S = 60.0  # the loop turns at least this often; the inventory's heartbeat comes as often


def start(context: Context) -> None:
    """Publish until the order to stop. The slices stay where they are.

    Raises MachineError when the lock or the bus cannot be used.
    """
    settings = context.settings
    make_folder(settings.plugin_dir)
    cluster = connect(settings)
    metrics = Metrics(context.registry)
    seen = Seen()
    publisher = Publisher(cluster, settings.node_name, settings.driver, seen, metrics, Clocks())
    reader = BusReader(settings.bus_dir, "publisher", ("inventory", "presence"))
    context.stop.call(reader.wake)
    loop = Loop(context, reader, publisher)
    watching = Watching(cluster, seen, loop.wake, metrics)
    lock = LifeLock(settings.plugin_dir / LOCK)  # kept until the end: the kernel gives it back with the file
    workers = [
        Worker("watch", lambda: watching.run(context.stop), context),
        Worker("publish", lambda: loop.run(lock), context),
    ]
    for worker in workers:
        worker.start()
    context.stop.wait()
    cluster.close()
    for worker in workers:
        worker.end()


def make_folder(path: Path) -> None:
    """The folder of the lock. Raises MachineError when it cannot be made."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise MachineError(
            f"cannot make {path}: {error.strerror}; set LIKEN_KUBELET to another place"
        ) from error


class Loop:
    """Turns the publisher and feeds it from the bus."""

    def __init__(self, context: Context, reader: BusReader, publisher: Publisher) -> None:
        self._context = context
        self._reader = reader
        self._publisher = publisher
        self._last: dict[str, bytes | None] = {}

    def run(self, lock: LifeLock) -> None:
        """Publish as soon as this is the only instance, until the order to stop."""
        self._context.ready()
        if not lock.try_take():
            log.info("another publisher of this node is active; stands by")
            while not lock.try_take():
                if self._context.stop.is_set():
                    return
                self._receive(STANDBY_S)
            log.info("takes over: the other publisher ended")
        self._publisher.activate()
        wait_s = 0.0
        while not self._context.stop.is_set():
            self._receive(wait_s)
            wanted_s = self._publisher.turn()
            wait_s = TURN_S if wanted_s is None else min(wanted_s, TURN_S)

    def wake(self) -> None:
        """Have another turn; for other threads."""
        self._reader.wake()

    def _receive(self, timeout_s: float) -> None:
        for message in self._reader.wait(timeout_s):
            if message.payload is not None and message.payload != self._last.get(message.topic):
                self._last[message.topic] = message.payload  # a heartbeat repeats the last one
                self._take(message.topic, message.payload)
        self._context.beat()

    def _take(self, topic: str, payload: bytes) -> None:
        try:
            if topic == "inventory":
                self._publisher.inventory(decode(topic, payload, InventoryMessage))
            else:
                self._publisher.presence(decode(topic, payload, Presence))
        except MachineError as error:
            log.error("%s", error)


class Worker(threading.Thread):
    """A thread that does part of the work. A defect in it ends the process; nothing is left half alive."""

    def __init__(self, name: str, work: Callable[[], None], context: Context) -> None:
        super().__init__(name=name, daemon=True)
        self._work = work
        self._context = context
        self._defect: Exception | None = None

    def run(self) -> None:
        try:
            self._work()
        except Exception as error:  # noqa: BLE001 - carried to `end`
            self._defect = error
            self._context.stop.set()

    def end(self) -> None:
        """Wait for the end of the work, not longer than for a request that hangs; raise what ended it."""
        self.join(END_S)
        if self._defect is not None:
            raise self._defect
