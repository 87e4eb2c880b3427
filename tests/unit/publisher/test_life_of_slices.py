"""Any sequence of inventories, restarts and lost answers ends well and never offers too much on the way."""

import itertools
import random
from collections.abc import Callable

from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from common.cluster import ClusterUnavailable, Raw
from services.publisher.metrics import Metrics
from services.publisher.publisher import Publisher
from services.publisher.seen import Seen
from services.publisher.slices import Limits
from services.publisher.watching import Watching
from services.publisher.writer import Clocks
from tests.publishing import DRIVER, NODE, MemoryCluster, device, message
from tests.services.api_store import ApiStore, offered

LIMITS = Limits(per_slice=2, per_node=100)
POOL = [device(f"d{number}", shareable=number % 2 == 0) for number in range(8)]


class Life:
    """One node's publisher over a cluster that loses things; `now` is the time that its waits use up."""

    def __init__(self) -> None:
        self.now = 1.0
        self.store = ApiStore()
        self.store.add_node(NODE)
        self.cluster = MemoryCluster(self.store)
        self.cluster.before = self._before
        self.cluster.after = self._after
        self.outcomes: list[str] = []
        self.late: list[Callable[[], None]] = []
        self.current: frozenset[str] = frozenset()
        self.allowed: frozenset[str] | None = None  # what the running write may offer; None: somebody else's
        self.wrong: list[str] = []
        self.store.observers.append(self._look)
        self.lose = self.overtaken = False
        self.restart()

    def restart(self) -> None:
        metrics = Metrics(CollectorRegistry())
        self.seen = Seen()
        clocks = Clocks(lambda: self.now, lambda: self.now, lambda: self.now)
        self.publisher = Publisher(self.cluster, NODE, DRIVER, self.seen, metrics, clocks, LIMITS)
        self.publisher.activate()
        hours = itertools.count(step=3600.0)  # each watch looks long: its end is no reason to list again
        self.watching = Watching(self.cluster, self.seen, lambda: None, metrics, lambda: next(hours))
        self.offer(self.current)

    def offer(self, names: frozenset[str]) -> None:
        self.current = names
        self.publisher.inventory(message(*(item for item in POOL if item.name in names)))

    def turn(self) -> None:
        pause_s = self.publisher.turn()
        self.now += pause_s or 0.0

    def hear(self) -> None:
        """The watch tells what happened, or lists."""
        self.now += self.watching.step()

    def settle(self) -> None:
        """No more faults; until nothing is left to do."""
        self.outcomes = []
        while self.late:
            self.late.pop(0)()
        for _ in range(100):
            self.hear()
            self.turn()
        assert self.publisher.turn() is None

    def _before(self, verb: str, body: Raw) -> None:
        if verb not in ("apply", "delete"):
            return
        self.allowed = self.current
        outcome = self.outcomes.pop(0) if self.outcomes else "done"
        if outcome == "not done":
            raise ClusterUnavailable("no answer, and it was not done")
        if outcome == "late" and verb == "apply" and "resourceVersion" in body["metadata"]:
            self._postpone(body)
            raise ClusterUnavailable("no answer, and it will be done later")
        self.lose = outcome == "lost"
        self.overtaken = outcome == "overtaken"

    def _after(self, verb: str, body: Raw) -> None:
        self.allowed = None
        if (
            verb == "apply" and self.overtaken
        ):  # somebody removes it, and the watch is quicker than the answer
            self.store.delete(body["metadata"]["name"])
            self.hear()
        if verb in ("apply", "delete") and self.lose:
            raise ClusterUnavailable("no answer, but it was done")

    def _postpone(self, body: Raw) -> None:
        issued = self.current

        def deliver() -> None:
            quiet = MemoryCluster(self.store)
            self.allowed = issued | self.current
            try:
                quiet.apply_slice(body)
            except Exception as error:  # noqa: BLE001 - a late write that does not fit any more has no reader
                note(f"late write: {error}")
            self.allowed = None

        self.late.append(deliver)

    def _look(self, slices: dict[str, Raw]) -> None:
        found = offered(slices, NODE)
        if self.allowed is not None and found is not None and not found <= self.allowed:
            self.wrong.append(f"offers {sorted(found - self.allowed)}, which no inventory has")


def tamper(life: Life, name: str, how: str) -> None:
    """What somebody else does to our slices."""
    if how == "delete":
        life.store.delete(name)
    elif how == "empty":
        life.store.edit(name, lambda item: item["spec"].pop("devices", None))
    elif how == "generation":
        life.store.edit(name, lambda item: item["spec"]["pool"].update(generation=9))
    elif how == "count":
        life.store.edit(name, lambda item: item["spec"]["pool"].update(resourceSliceCount=1))


STEPS = st.one_of(
    st.tuples(st.just("offer"), st.frozensets(st.sampled_from([item.name for item in POOL]))),
    st.tuples(st.just("outcome"), st.sampled_from(["not done", "lost", "late", "overtaken", "done"])),
    st.tuples(
        st.just("tamper"),
        st.tuples(st.integers(0, 3), st.sampled_from(["delete", "empty", "generation", "count"])),
    ),
    st.tuples(st.just("drop"), st.booleans()),
    st.sampled_from(
        [
            ("turn", 0),
            ("turn", 0),
            ("hear", 0),
            ("late", 0),
            ("restart", 0),
            ("compact", 0),
            ("delete all", 0),
        ]
    ),
)


def act(life: Life, what: str, value: object) -> None:
    """One step of the story."""
    if what == "offer" and isinstance(value, frozenset):
        life.offer(value)
    elif what == "outcome":
        life.outcomes.append(str(value))
    elif what == "tamper" and isinstance(value, tuple):
        names = sorted(life.store.slices)
        if names:
            tamper(life, names[value[0] % len(names)], value[1])
    elif what == "drop":
        life.store.dropped_fields = {"allowMultipleAllocations"} if value else set()
    elif what == "late" and life.late:
        life.late.pop(0)()
    else:
        simple = {"turn": life.turn, "hear": life.hear, "restart": life.restart}
        simple |= {"compact": life.store.forget, "delete all": life.store.delete_all}
        simple.get(what, lambda: None)()


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(STEPS, max_size=40), st.integers(0, 2**16))
def test_every_story_ends_with_the_wanted_slices_and_never_offers_what_is_not_there(
    story: list[tuple[str, object]], seed: int
) -> None:
    random.seed(seed)
    life = Life()
    life.offer(frozenset())
    life.hear()
    for what, value in story:
        act(life, what, value)

    life.settle()

    found = list(life.store.slices.values())
    pools = {(i["spec"]["pool"]["generation"], i["spec"]["pool"]["resourceSliceCount"]) for i in found}
    assert life.wrong == []
    assert offered(life.store.slices, NODE) == set(life.current)
    assert [count for _, count in pools] == [len(found)]
    assert all(len(item["spec"].get("devices") or ()) <= LIMITS.per_slice for item in found)


@settings(max_examples=80, deadline=None)
@given(st.lists(st.frozensets(st.sampled_from([item.name for item in POOL])), min_size=2, max_size=12))
def test_a_device_stays_in_its_slice_while_it_lives(inventories: list[frozenset[str]]) -> None:
    life = Life()
    life.hear()
    homes: dict[str, str] = {}
    for names in inventories:
        life.offer(names)
        life.turn()
        found = {d["name"]: n for n, i in life.store.slices.items() for d in i["spec"].get("devices") or ()}

        assert found.keys() == names
        assert {name: found[name] for name in names & homes.keys()} == {
            name: homes[name] for name in names & homes.keys()
        }
        homes = found
