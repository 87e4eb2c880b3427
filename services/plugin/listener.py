"""The plugin's ear on the bus: newer inventories for prepare, newer states for the health streams."""

import asyncio
import logging
import threading
from collections.abc import Callable

from common.bus import BusReader, Message, decode
from common.errors import MachineError
from common.inventory import InventoryMessage, Presence
from common.slots import Slots
from services.plugin.health import HealthHub
from services.plugin.metrics import PluginMetrics
from services.plugin.offers import Offers

log = logging.getLogger(__name__)


class BusListener:
    """One thread that waits on the bus; what concerns the health streams goes to their event loop."""

    def __init__(
        self, reader: BusReader, offers: Offers, hub: HealthHub, slots: Slots, metrics: PluginMetrics
    ) -> None:
        """To be made in the thread of the event loop."""
        self._reader = reader
        self._offers = offers
        self._hub = hub
        self._slots = slots
        self._metrics = metrics
        self._loop = asyncio.get_running_loop()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="bus-reader", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the thread and leave the bus."""
        self._stopped.set()
        if self._thread.is_alive():
            self._reader.wake()
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._stopped.is_set():
                for message in self._reader.wait(None):
                    self._take(message)
                if not self._reader.peer_connected("reconciler"):
                    self._in_loop(self._hub.distrust)
        finally:
            self._in_loop(self._hub.distrust)  # without this thread no state is news
            self._reader.close()

    def _take(self, message: Message) -> None:
        try:
            self._understand(message.topic, message.payload or b"")
        except MachineError as error:
            log.error("%s", error)

    def _understand(self, topic: str, payload: bytes) -> None:
        if topic == "inventory":
            inventory = decode(topic, payload, InventoryMessage).inventory
            if inventory is not None:
                self._offers.update(inventory)
                self._slots.hear(inventory)
                self._metrics.inventory.came()
        else:
            presence = decode(topic, payload, Presence)
            self._in_loop(lambda: self._hub.update(presence))

    def _in_loop(self, work: Callable[[], None]) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(work)
