"""What the reconciler counts and measures."""

from collections import Counter as Tally

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from common.inventory import Presence, PresenceState
from common.metrics import QUICK_S, InventoryAge, lock_wait

STATES: tuple[PresenceState, ...] = ("present", "absent", "withheld", "changed", "unknown")
REASONS = ("renumbered", "vanished", "orphan", "broken", *STATES[1:])
CAUSES = ("event", "records", "backstop", "alone", "retry", "start")  # alone: the watcher is away


class ReconcilerMetrics:
    """The reconciler's metrics in one registry. Every label value exists from the start, at 0."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.passes = Histogram(
            "liken_pass_seconds",
            "Time of one pass over all prepared claims, by what caused it.",
            ["cause"],
            buckets=QUICK_S,
            registry=registry,
        )
        self.rewrites = Counter(
            "liken_spec_rewrites",
            "CDI specs written or removed by a pass, by why the one on disk was wrong.",
            ["reason"],
            registry=registry,
        )
        self.backstop_repairs = Counter(
            "liken_backstop_repairs",
            "Specs that were wrong although no event said so; each is a defect.",
            registry=registry,
        )
        self.failures = Counter(
            "liken_projection_failures",
            "Claims that a pass could not bring to an end; the next pass tries again.",
            registry=registry,
        )
        self.lock_wait = lock_wait(registry)
        self.claims = Gauge("liken_prepared_claims", "Claims that are prepared now.", registry=registry)
        self.unreadable = Gauge(
            "liken_unreadable_records",
            "Prepared claims whose record this version cannot read.",
            registry=registry,
        )
        self.devices = Gauge(
            "liken_claimed_devices",
            "Devices of prepared claims by their state.",
            ["state"],
            registry=registry,
        )
        self.active = Gauge(
            "liken_reconciler_active", "1 when this process writes, 0 while it stands by.", registry=registry
        )
        self.inventory = InventoryAge(registry)
        for cause in CAUSES:
            self.passes.labels(cause)
        for reason in REASONS:
            self.rewrites.labels(reason)

    def presence(self, presence: Presence) -> None:
        """What the last pass found."""
        tally = Tally(device.state for claim in presence.claims for device in claim.devices)
        for state in STATES:
            self.devices.labels(state).set(tally[state])
        self.claims.set(len(presence.claims))
        self.unreadable.set(sum(not claim.name for claim in presence.claims))
