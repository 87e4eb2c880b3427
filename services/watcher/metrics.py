"""What the watcher measures."""

from collections import Counter as Count

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from common.inventory import Inventory
from common.metrics import QUICK_S
from services.watcher.uevent import ACTIONS, Uevent


class Metrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self._uevents = Counter(
            "liken_uevents",
            "Kernel uevents received, by action and whether they woke a walk.",
            ["action", "woke"],
            registry=registry,
        )
        self.lost = Counter(
            "liken_uevents_lost",
            "Times that uevents were dropped by the kernel or could not be read; each woke a walk.",
            registry=registry,
        )
        self.reopened = Counter(
            "liken_uevent_socket_reopened",
            "Times that the uevent socket died and was opened again.",
            registry=registry,
        )
        self.mounts = Counter(
            "liken_mount_changes",
            "Times that the set of disks in use changed; each woke a walk.",
            registry=registry,
        )
        self.walk = Histogram(
            "liken_walk_seconds", "Time of one walk of /sys.", buckets=QUICK_S, registry=registry
        )
        self.failed = Gauge(
            "liken_walk_failed",
            "1 while /sys cannot be read and the inventory is an error.",
            registry=registry,
        )
        self._taken = Gauge(
            "liken_inventory_timestamp_seconds", "When the last whole inventory was taken.", registry=registry
        )
        self._storage = Gauge(
            "liken_storage_known", "1 when it is known which disks the machine needs.", registry=registry
        )
        self._devices = Gauge(
            "liken_inventory_devices",
            "Devices of the last inventory, by class.",
            ["class"],
            registry=registry,
        )
        self._unclaimed = Gauge(
            "liken_unclaimed", "Hardware without a driver, by bus.", ["bus"], registry=registry
        )

    def uevent(self, event: Uevent, woke: bool) -> None:
        action = event.action if event.action in ACTIONS else "other"
        self._uevents.labels(action, "true" if woke else "false").inc()

    def inventory(self, inventory: Inventory, taken_s: float) -> None:
        self._taken.set(taken_s)
        self._storage.set(inventory.facts.storage != "unknown")
        classes = Count(
            str(device.attributes.get("class", {}).get("string", "none")) for device in inventory.devices
        )
        _replace(self._devices, classes)
        _replace(self._unclaimed, Count(hardware.bus for hardware in inventory.unclaimed))


def _replace(gauge: Gauge, counts: Count[str]) -> None:
    gauge.clear()
    for label, count in sorted(counts.items()):
        gauge.labels(label).set(count)
