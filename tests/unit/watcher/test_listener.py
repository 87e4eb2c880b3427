"""The uevent socket: what wakes, what is lost, and what happens when it dies."""

import pytest
from prometheus_client import CollectorRegistry

from services.watcher.listener import REOPEN_PERIOD_S, Stirred, Uevents
from services.watcher.metrics import Metrics
from services.watcher.settle import Settle, Throttle
from services.watcher.sources import Batch, SourceDeadError
from services.watcher.uevent import Uevent

USB = "/devices/pci0000:00/0000:00:14.0/usb1/1-4"


class Source:
    """Gives what it was told to, and dies when it was told so."""

    def __init__(self, *results: Batch | SourceDeadError) -> None:
        self._results = list(results)
        self.closed = False

    def fileno(self) -> int:
        return 0

    def receive(self) -> Batch:
        result = self._results.pop(0)
        if isinstance(result, SourceDeadError):
            raise result
        return result

    def close(self) -> None:
        self.closed = True


class Rig:
    def __init__(self, *sources: Source) -> None:
        self.now = 100.0
        self.ticks: list[float] = []
        self.registry = CollectorRegistry()
        clock = lambda: self.now  # noqa: E731 - one value for all
        self.stirred = Stirred(
            Settle(1.0, 5.0, clock), Throttle(0.01, clock), lambda: self.ticks.append(self.now), lambda: None
        )
        left = list(sources)
        self.uevents = Uevents(lambda: left.pop(0), self.stirred, Metrics(self.registry), clock)

    def count(self, action: str, woke: str) -> float | None:
        return self.registry.get_sample_value("liken_uevents_total", {"action": action, "woke": woke})


def test_an_event_that_counts_ticks_at_once_and_begins_a_burst() -> None:
    rig = Rig(Source(Batch([Uevent("remove", USB)], False)))
    rig.uevents.handle()
    assert rig.ticks == [100.0]
    assert rig.stirred.walk_due_in() == 1.0
    assert rig.count("remove", "true") == 1


def test_an_event_that_does_not_count_is_only_counted() -> None:
    rig = Rig(Source(Batch([Uevent("change", USB), Uevent("unheard-of", "/x")], False)))
    rig.uevents.handle()
    assert (rig.ticks, rig.stirred.walk_due_in()) == ([], None)
    assert (rig.count("change", "false"), rig.count("other", "false")) == (1, 1)


def test_lost_events_wake_a_walk() -> None:
    rig = Rig(Source(Batch([], True)))
    rig.uevents.handle()
    assert (rig.ticks, rig.stirred.walk_due_in()) == ([100.0], 1.0)


def test_a_dead_socket_is_opened_again_and_what_was_missed_is_looked_for() -> None:
    dead = Source(SourceDeadError("dead"))
    rig = Rig(dead, Source(Batch([Uevent("add", USB)], False)))
    rig.uevents.handle()
    assert dead.closed
    assert rig.stirred.take() == 100.0
    rig.uevents.handle()
    assert rig.count("add", "true") == 1


def test_a_socket_that_dies_again_soon_ends_the_process() -> None:
    rig = Rig(Source(SourceDeadError("dead")), Source(SourceDeadError("dead again")))
    rig.uevents.handle()
    rig.now += REOPEN_PERIOD_S - 1
    with pytest.raises(SourceDeadError, match="dead again"):
        rig.uevents.handle()


def test_a_socket_that_dies_again_much_later_is_opened_again() -> None:
    rig = Rig(
        Source(SourceDeadError("dead")), Source(SourceDeadError("dead again")), Source(Batch([], False))
    )
    rig.uevents.handle()
    rig.now += REOPEN_PERIOD_S + 1
    rig.uevents.handle()
    rig.uevents.handle()
    assert len(rig.ticks) == 2
