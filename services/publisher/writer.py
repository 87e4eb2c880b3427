"""Carries out planned writes and remembers what became of them."""

import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from common.cluster import Cluster, ClusterUnavailable, OutOfDate, Raw, Refused
from services.publisher.metrics import Metrics
from services.publisher.plan import Answer, Apply, Delete, answered
from services.publisher.seen import Seen


class Clocks(NamedTuple):
    """`monotonic` counts waits; `boot` is the clock of uevent times (CLOCK_BOOTTIME); `wall` is Unix time."""

    monotonic: Callable[[], float] = time.monotonic
    boot: Callable[[], float] = lambda: time.clock_gettime(time.CLOCK_BOOTTIME)
    wall: Callable[[], float] = time.time


class SliceRefusedError(Exception):
    """The server refused this one slice."""

    def __init__(self, body: Raw, refused: Refused) -> None:
        super().__init__(str(refused))
        self.body = body
        self.refused = refused


class Writer:
    """`answers` holds what the server made of a slice, by its name, where that is not what was sent."""

    def __init__(self, cluster: Cluster, seen: Seen, metrics: Metrics, clocks: Clocks) -> None:
        self._cluster = cluster
        self._seen = seen
        self._metrics = metrics
        self._clocks = clocks
        self.answers: dict[str, Answer] = {}

    def write(self, steps: Iterable[Apply | Delete]) -> None:
        """All steps in order, up to the first that fails.

        Raises OutOfDate, ClusterUnavailable, SliceRefusedError.
        """
        for step in steps:
            try:
                if isinstance(step, Apply):
                    self._apply(step.body)
                else:
                    self._delete(step.held)
            except OutOfDate:
                self._metrics.writes.labels("conflict").inc()
                raise
            except ClusterUnavailable:
                self._metrics.writes.labels("unavailable").inc()
                raise
            except Refused as error:
                self._metrics.writes.labels("refused").inc()
                raise SliceRefusedError(step[0], error) from error

    def _apply(self, body: Raw) -> None:
        returned = self._cluster.apply_slice(body)
        self._metrics.writes.labels("applied").inc()
        self._metrics.last_apply.set(self._clocks.wall())
        answer = answered(body, returned)
        if answer is not None:
            self.answers[body["metadata"]["name"]] = answer
        else:
            self.answers.pop(body["metadata"]["name"], None)
        self._seen.put(returned)

    def _delete(self, held: Raw) -> None:
        self._cluster.delete_slice(held)
        self._metrics.writes.labels("deleted").inc()
        self.answers.pop(held["metadata"]["name"], None)
        self._seen.remove(held)
