"""The metrics every process serves, in Prometheus' conventions, prefix liken_.

Each service declares its own in services/<name>/metrics.py, as a class that takes the registry.
"""

import functools
import platform
import time
from collections.abc import Iterable

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

QUICK_S = (0.001, 0.002, 0.004, 0.008, 0.016, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)  # calls and passes
SLOW_S = (
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    1.5,
    2.0,
    3.0,
    5.0,
    7.5,
    10.0,
    30.0,
)  # hot-plug to slice: settling included


def new_registry(service: str) -> CollectorRegistry:
    """A registry that already holds the build and the process itself (memory, CPU, open files)."""
    registry = CollectorRegistry(auto_describe=True)
    ProcessCollector(registry=registry)
    registry.register(_Build(service))
    return registry


class _Build(Collector):
    """liken_build_info. The version is looked up for who asks: what tells it takes 5 ms to load."""

    def __init__(self, service: str) -> None:
        self._service = service

    def describe(self) -> Iterable[GaugeMetricFamily]:
        yield GaugeMetricFamily(
            "liken_build_info",
            "Always 1; the labels say which build of which service this is.",
            labels=["service", "version", "python"],
        )

    def collect(self) -> Iterable[GaugeMetricFamily]:
        for build in self.describe():
            build.add_metric([self._service, version(), platform.python_version()], 1)
            yield build


class InventoryAge:
    """How old the watcher's last inventory is, for the processes that hear it on the bus."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._came_at = time.monotonic()
        age = Gauge(
            "liken_inventory_age_seconds",
            "Time since the last inventory came from the watcher.",
            registry=registry,
        )
        age.set_function(lambda: time.monotonic() - self._came_at)

    def came(self) -> None:
        """An inventory came just now."""
        self._came_at = time.monotonic()


def lock_wait(registry: CollectorRegistry) -> Histogram:
    """Seconds that a claim waited for the lock of the records, and for those done before it."""
    return Histogram(
        "liken_lock_wait_seconds",
        "Time that a claim waits for its turn to change records and specs.",
        buckets=QUICK_S,
        registry=registry,
    )


@functools.cache
def version() -> str:
    """The installed version of liken, "unknown" in a tree that nobody installed."""
    import importlib.metadata  # late: it loads four kinds of compression

    try:
        return importlib.metadata.version("liken")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def exposition(registry: CollectorRegistry) -> tuple[str, bytes]:
    """Content type and body of /metrics."""
    return CONTENT_TYPE_LATEST, generate_latest(registry)
