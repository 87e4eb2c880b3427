"""The list+watch loop: what it asks for, when, and what it makes of the answers."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry

from common.cluster import ClusterUnavailable, OutOfDate, Raw
from common.process import Stop
from services.publisher.metrics import Metrics
from services.publisher.seen import Seen
from services.publisher.slices import slices
from services.publisher.watching import AGAIN_S, EARLY_S, LONGEST_S, START_S, Watching
from tests.publishing import NODE, MemoryCluster, devices, inventory
from tests.services.api_store import ApiStore

DAY_S = 86400.0


class Days(Stop):
    """An order to stop that comes when so many seconds have been waited for, in no time."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.now = 0.0
        self.waits: list[float] = []
        self._end = seconds

    def wait(self, timeout: float | None = None) -> bool:
        self.waits.append(timeout or 0.0)
        self.now += timeout or 0.0
        return self.now >= self._end


class Loop:
    """A watching loop over a cluster in memory."""

    def __init__(self, seconds: float = DAY_S) -> None:
        self.store = ApiStore()
        self.cluster = MemoryCluster(self.store)
        self.stop = Days(seconds)
        self.seen = Seen()
        self.registry = CollectorRegistry()
        self.changes = 0
        self.watching = Watching(
            self.cluster, self.seen, self._changed, Metrics(self.registry), lambda: self.stop.now
        )

    def run(self) -> None:
        self.watching.run(self.stop)

    def fail(self, verb: str, error: Callable[[], Exception]) -> None:
        def before(asked: str, body: Raw) -> None:
            if asked == verb:
                raise error()

        self.cluster.before = before

    def watches_last(self, seconds: float) -> None:
        def before(asked: str, body: Raw) -> None:
            if asked == "watch":
                self.stop.now += seconds

        self.cluster.before = before

    def restarts(self, reason: str) -> float:
        return self.registry.get_sample_value("liken_slice_watch_restarts_total", {"reason": reason}) or 0.0

    def _changed(self) -> None:
        self.changes += 1


def put(store: ApiStore, count: int = 1) -> None:
    body = slices(inventory(*devices(count)), NODE).slices[0]
    store.apply(body["metadata"]["name"], body)


def test_the_first_list_of_many_nodes_is_spread() -> None:
    loops = [Loop(0.0) for _ in range(200)]
    for loop in loops:
        loop.run()

    waits = sorted(loop.stop.waits[0] for loop in loops)
    assert all(0.0 <= wait <= START_S for wait in waits)
    assert waits[-1] - waits[0] > START_S * 0.8


def test_a_server_that_is_away_for_a_day_is_asked_at_random_moments_and_not_too_often() -> None:
    loop = Loop()
    loop.fail("list", lambda: ClusterUnavailable("connection refused"))

    loop.run()

    late = loop.stop.waits[10:]
    assert len(loop.cluster.requests) < DAY_S / (LONGEST_S / 2) + 10
    assert all(LONGEST_S / 2 <= wait <= LONGEST_S for wait in late)
    assert max(late) - min(late) > LONGEST_S * 0.4


def test_a_server_that_cuts_every_watch_at_once_is_not_asked_in_a_hot_loop() -> None:
    loop = Loop()

    loop.run()

    assert len(loop.cluster.requests) < 2 * DAY_S / (LONGEST_S / 2) + 20
    assert loop.restarts("closed") > 1000


def test_a_proxy_that_ends_every_watch_after_half_a_minute_costs_watches_and_no_lists() -> None:
    loop = Loop()
    loop.watches_last(3 * EARLY_S)

    loop.run()

    assert loop.cluster.requests.count("list") == 1
    assert DAY_S / (3 * EARLY_S + AGAIN_S) <= loop.cluster.requests.count("watch") <= DAY_S / (3 * EARLY_S)


def test_the_server_is_left_alone_for_as_long_as_it_asked() -> None:
    loop = Loop(1000.0)
    loop.fail("list", lambda: ClusterUnavailable("too many requests", 100.0))

    loop.run()

    assert all(100.0 <= wait <= 125.0 for wait in loop.stop.waits[1:])


def test_a_version_that_is_too_old_means_listing_again_and_nothing_is_missed() -> None:
    loop = Loop()
    put(loop.store)
    loop.watching.step()
    loop.store.delete_all()
    loop.store.forget()

    loop.watching.step()
    loop.watching.step()

    assert loop.seen.view().slices == {}
    assert loop.restarts("expired") == 1
    assert loop.cluster.requests == ["list", "watch", "list"]


def test_a_version_that_is_always_too_old_is_no_hot_loop() -> None:
    loop = Loop(600.0)
    loop.fail("watch", lambda: OutOfDate("too old"))

    loop.run()

    assert len(loop.cluster.requests) < 600 / (LONGEST_S / 2) * 2 + 20


def test_each_change_is_passed_on() -> None:
    loop = Loop()
    loop.watching.step()
    put(loop.store, 1)
    put(loop.store, 2)

    loop.watching.step()

    (item,) = loop.seen.view().slices.values()
    assert len(item["spec"]["devices"]) == 2
    assert loop.changes == 3  # the list and two events
