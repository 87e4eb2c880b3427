"""What the plugin counts and measures."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from common.metrics import QUICK_S, InventoryAge, lock_wait

CALL_OUTCOMES = ("ok", "refused", "failed", "defect")  # refused: the claim's fault; failed: the machine's
REBIND_OUTCOMES = ("bound", "no driver", "failed", "hung")
SOCKETS = ("service", "registration")


class PluginMetrics:
    """The plugin's metrics in one registry. Every label value exists from the start, at 0."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.prepare = Histogram(
            "liken_prepare_seconds",
            "Time to prepare one claim, by outcome.",
            ["outcome"],
            buckets=QUICK_S,
            registry=registry,
        )
        self.unprepare = Histogram(
            "liken_unprepare_seconds",
            "Time to unprepare one claim, by outcome.",
            ["outcome"],
            buckets=QUICK_S,
            registry=registry,
        )
        self.lock_wait = lock_wait(registry)
        self.rebinds = Counter(
            "liken_rebinds",
            "USB interfaces offered to their kernel drivers again after the last claim ended, by outcome.",
            ["outcome"],
            registry=registry,
        )
        self.socket_losses = Counter(
            "liken_socket_losses",
            "Sockets that somebody removed and that were bound again, by socket.",
            ["socket"],
            registry=registry,
        )
        self.registrations = Counter(
            "liken_registrations",
            "Answers of the kubelet to our registration; missing: none came in time.",
            ["outcome"],
            registry=registry,
        )
        self.registered = Gauge(
            "liken_registered", "1 while the kubelet's last word on us is yes.", registry=registry
        )
        self.health_streams = Gauge(
            "liken_health_streams", "Health streams that the kubelet holds open.", registry=registry
        )
        self.inventory = InventoryAge(registry)
        for outcome in CALL_OUTCOMES:
            self.prepare.labels(outcome)
            self.unprepare.labels(outcome)
        for outcome in REBIND_OUTCOMES:
            self.rebinds.labels(outcome)
        for socket in SOCKETS:
            self.socket_losses.labels(socket)
        for outcome in ("accepted", "rejected", "missing"):
            self.registrations.labels(outcome)
