"""The publisher's metrics."""

import time

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from common.inventory import Device
from common.metrics import SLOW_S
from services.publisher.slices import Wanted

OUTCOMES = ("applied", "deleted", "conflict", "refused", "unavailable")
REASONS = ("ended", "closed", "expired", "failed")  # by its time, early, version too old, any error


class Metrics:
    """What an operator watches of the way from the inventory to the cluster."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.hot_plug = Histogram(
            "liken_hot_plug_to_slice_seconds",
            "From the first kernel event of a burst to the slices that show its result.",
            buckets=SLOW_S,
            registry=registry,
        )
        self.writes = Counter(
            "liken_slice_writes_total",
            "Writes of ResourceSlices, by what came of them.",
            ["outcome"],
            registry=registry,
        )
        self.watch_restarts = Counter(
            "liken_slice_watch_restarts_total",
            "Watches of our slices that ended, by why.",
            ["reason"],
            registry=registry,
        )
        self.last_apply = Gauge(
            "liken_slice_last_apply_timestamp_seconds",
            "When a slice was last written successfully; 0 before the first.",
            registry=registry,
        )
        self.pending_since = 0.0  # monotonic; 0 when the cluster holds what we want
        waiting = Gauge(
            "liken_slice_pending_seconds",
            "For how long the cluster has not held what this node wants to offer; 0 when it does.",
            registry=registry,
        )
        waiting.set_function(lambda: time.monotonic() - self.pending_since if self.pending_since else 0.0)
        self.connected = Gauge(
            "liken_api_connected", "1 when the cluster answered the last list or watch.", registry=registry
        )
        self.active = Gauge(
            "liken_publisher_active", "1 when this instance writes, 0 when it stands by.", registry=registry
        )
        self.devices = Gauge(
            "liken_devices", "Devices in the wanted slices, by their class.", ["class"], registry=registry
        )
        self.slices = Gauge("liken_slices", "Wanted slices of this node.", registry=registry)
        self.dropped_fields = Gauge(
            "liken_dropped_fields",
            "Kinds of fields that the API server did not keep (gates that are off).",
            registry=registry,
        )
        self.overflow = Gauge(
            "liken_overflow_devices", "Devices that are not published: too many.", registry=registry
        )
        self.left_out = Gauge(
            "liken_left_out", "Devices and attributes that the API would refuse.", registry=registry
        )
        self.conditions = Gauge(
            "liken_publisher_condition", "1 while something is wrong.", ["condition"], registry=registry
        )

        for outcome in OUTCOMES:
            self.writes.labels(outcome)
        for reason in REASONS:
            self.watch_restarts.labels(reason)

    def pending(self, yes: bool) -> None:
        """Whether there is something to write, or nobody knows whether there is."""
        self.pending_since = (self.pending_since or time.monotonic()) if yes else 0.0

    def wanted(self, wanted: Wanted, devices: tuple[Device, ...], dropped_fields: int) -> None:
        """What is offered now, and what is not."""
        self.slices.set(len(wanted.slices))
        self.dropped_fields.set(dropped_fields)
        self.overflow.set(len(wanted.overflow))
        self.left_out.set(len(wanted.left_out))
        counts: dict[str, int] = {}
        for device in devices:
            if device.name in wanted.homes:
                word = str(device.attributes.get("class", {}).get("string", "none"))
                counts[word] = counts.get(word, 0) + 1
        self.devices.clear()
        for word in sorted(counts):
            self.devices.labels(word).set(counts[word])
