"""The publisher's one loop: the bus, the watch and the order to stop wake it; each turn does what is due."""

import logging
import threading

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
TURN_S = 60.0  # the loop turns at least this often; the inventory's heartbeat comes as often


def start(context: Context) -> None:
    """Publish until the order to stop. The slices stay where they are.

    Raises MachineError when the lock or the bus cannot be used.
    """
    settings = context.settings
    cluster = connect(settings)
    metrics = Metrics(context.registry)
    seen = Seen()
    publisher = Publisher(cluster, settings.node_name, settings.driver, seen, metrics, Clocks())
    reader = BusReader(settings.bus_dir, "publisher", ("inventory", "presence"))
    context.stop.call(reader.wake)
    loop = Loop(context, reader, publisher)
    lock = LifeLock(settings.plugin_dir / LOCK)  # kept until the end: the kernel gives it back with the file
    watch = WatchThread(Watching(cluster, seen, loop.wake, metrics), context)
    try:
        settings.plugin_dir.mkdir(parents=True, exist_ok=True)
        watch.start()  # also while standing by: what the cluster holds is known when the turn comes
        loop.stand_by(lock)
        loop.publish()
    except OSError as error:
        raise MachineError(f"cannot make {settings.plugin_dir}: {error.strerror}") from error
    finally:
        cluster.close()
        reader.close()
        lock.release()
    watch.check()


class Loop:
    """Turns the publisher and feeds it from the bus."""

    def __init__(self, context: Context, reader: BusReader, publisher: Publisher) -> None:
        self._context = context
        self._reader = reader
        self._publisher = publisher
        self._last: dict[str, bytes | None] = {}

    def stand_by(self, lock: LifeLock) -> None:
        """Wait until this is the only instance; return also at the order to stop."""
        self._context.ready()
        if lock.try_take():
            self._publisher.activate()
            return
        log.info("another publisher of this node is active; stands by")
        while not self._context.stop.is_set():
            self._receive(STANDBY_S)
            if lock.try_take():
                log.info("takes over: the other publisher ended")
                self._publisher.activate()
                return

    def wake(self) -> None:
        """Have another turn; for other threads."""
        if not self._context.stop.is_set():  # after that the reader may be closed
            self._reader.wake()

    def publish(self) -> None:
        """Turn until the order to stop."""
        wait_s = 0.0
        while not self._context.stop.is_set():
            self._receive(wait_s)
            wanted_s = self._publisher.turn()
            wait_s = TURN_S if wanted_s is None else min(wanted_s, TURN_S)

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


class WatchThread(threading.Thread):
    """Runs the watch; a defect in it ends the process instead of leaving it blind."""

    def __init__(self, watching: Watching, context: Context) -> None:
        super().__init__(name="watch", daemon=True)
        self._watching = watching
        self._context = context
        self._defect: BaseException | None = None

    def run(self) -> None:
        try:
            self._watching.run(self._context.stop)
        except BaseException as error:
            self._defect = error
            self._context.stop.set()
            raise

    def check(self) -> None:
        """Raise what ended the watch, if anything did."""
        if self._defect is not None:
            raise self._defect
