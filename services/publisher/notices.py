"""What people are told: each thing once when it turns bad, once when it is good again."""

import logging
from collections.abc import Sequence
from typing import NamedTuple

from common.cluster import Cluster, ClusterUnavailable, Refused
from services.publisher.metrics import Metrics

log = logging.getLogger(__name__)

MAX_LINES = 50  # of log for one turn
MAX_TRIES = 5  # of one Event; the log and the metric say the same


class Condition(NamedTuple):
    """Something that can be wrong. `event`: also tell it through an Event on the Node."""

    name: str
    good: str
    event: bool = True


NODE_MISSING = Condition("NodeMissing", "the Node object is there", event=False)
UNREADABLE = Condition("HardwareUnreadable", "the hardware can be read again")
STORAGE_UNKNOWN = Condition("StorageUnknown", "it is known which disks the machine needs")
OVERFLOW = Condition("DevicesOverflow", "all devices are published")
LEFT_OUT = Condition("DevicesLeftOut", "no device or attribute is left out")
DROPPED = Condition("FieldsDropped", "the API server keeps all fields")
REFUSED = Condition("SliceRefused", "the API server accepts the slices")
UNAVAILABLE = Condition("ClusterUnavailable", "the slices are written", event=False)
CONDITIONS = (
    NODE_MISSING,
    UNREADABLE,
    STORAGE_UNKNOWN,
    OVERFLOW,
    LEFT_OUT,
    DROPPED,
    REFUSED,
    UNAVAILABLE,
)


class Notices:
    """Log, metric and Event at each turn of a condition; nothing in between."""

    def __init__(self, cluster: Cluster, metrics: Metrics) -> None:
        self._cluster = cluster
        self._metrics = metrics
        self._bad: set[str] = set()
        self._told: dict[str, set[str]] = {}
        self._events: dict[str, tuple[str, int]] = {}  # condition -> text and tries; one for each at most
        for condition in CONDITIONS:
            metrics.conditions.labels(condition.name).set(0)

    def tell(self, condition: Condition, problem: str) -> None:
        """The condition is as `problem` says, "" for good."""
        name = condition.name
        if bool(problem) == (name in self._bad):
            return
        self._metrics.conditions.labels(name).set(1 if problem else 0)
        if not problem:
            self._bad.discard(name)
            self._events.pop(name, None)
            log.info("%s", condition.good)
            return
        self._bad.add(name)
        log.warning("%s", problem)
        if condition.event:
            self._events[name] = (problem, 0)

    def tell_each(self, condition: Condition, problems: Sequence[str]) -> None:
        """Bad while there are `problems`; each is logged once, however long it stays."""
        told = self._told.setdefault(condition.name, set())
        news = [problem for problem in problems if problem not in told]
        self._told[condition.name] = set(problems)
        if condition.name in self._bad or len(problems) > 1:
            for problem in news[:MAX_LINES]:
                log.warning("%s", problem)
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        self.tell(condition, f"{problems[0]}{more}" if problems else "")

    def send(self) -> bool:
        """Send the Events that are due. Returns whether some are left for a later try."""
        for name in sorted(self._events):
            text, tries = self._events.pop(name)
            try:
                self._cluster.event(name, text, warning=True)
            except (ClusterUnavailable, Refused) as error:
                if isinstance(error, Refused) or tries + 1 >= MAX_TRIES:
                    log.warning("the event %s could not be written: %s", name, error)
                else:
                    self._events[name] = (text, tries + 1)
        return bool(self._events)
