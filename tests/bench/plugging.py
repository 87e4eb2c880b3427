"""From a kernel event to what follows: the safe spec, the slice."""

import json
import statistics
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from tests.bench.node import DEFAULT_SETTLE_S, MeasuredNode, node
from tests.bench.table import Row, spread
from tests.bench.tap import Tap
from tests.services.machine import address, device
from tests.services.played_node import NODE
from tests.waiting import eventually

ADAPTERS = 30
REMOVALS = 100
PLUGS = 8
LOAD_CALLERS = 4
ROUND_TRIPS = 30
MANY, MANY_AT_ONCE = 1000, 100
WALKS = 20  # removals in the middle of one
INTO_WALK_S = 0.02  # one takes some 100 ms on the machine of MANY adapters


def measure() -> Iterator[Row]:
    with node(ADAPTERS) as played:
        played.prepare(range(1, ADAPTERS + 1))
        yield from _removals(played, "30 claims, quiet")
        with _load(played):
            yield from _removals(
                played, f"30 claims, {LOAD_CALLERS} callers prepare and unprepare all the time"
            )
        yield from _plugs(played)
    with node(MANY) as played:
        for first in range(1, MANY, MANY_AT_ONCE):
            played.prepare(range(first, first + MANY_AT_ONCE))
        eventually(lambda: len(played.offered()) == MANY, 60, "the slices are complete")
        yield from _removals(played, f"{MANY} claims, quiet")
        how = f"{MANY} claims, while the watcher walks"
        yield from _removals(played, how, count=WALKS, before=partial(_begin_walk, played))


def _begin_walk(played: MeasuredNode) -> None:
    """Give the watcher reason for a walk, and come back when that has begun."""
    time.sleep(2 * DEFAULT_SETTLE_S)  # what went before is settled and walked
    played.send("change", f"/devices/pci0000:00/0000:00:14.0/usb1/{address(MANY)}")
    time.sleep(DEFAULT_SETTLE_S + INTO_WALK_S)


def _removals(
    played: MeasuredNode, how: str, count: int = REMOVALS, before: Callable[[], None] = lambda: None
) -> Iterator[Row]:
    taken = []
    for turn in range(count):
        number = turn % (ADAPTERS // 2) + 1
        path = played.spec_path(played.claims[number])
        before()
        sent = played.unplug(number)
        taken.append(_safe_at(path) - sent.at)
        played.plug(number)
        eventually(partial(played.is_right, number), 10, "the spec is back", step_s=0.002)
    middle, high, worst = spread(taken)
    yield Row("Hot-plug", f"remove event to safe spec, p50 ({how})", middle, "ms")
    word, value = ("p99", high) if count >= REMOVALS else (f"worst of {count}", worst)
    beside = f"worst {worst:.0f} ms of {count}"
    yield Row("Hot-plug", f"remove event to safe spec, {word} ({how})", value, "ms", beside, "50 ms")


def _safe_at(path: Path) -> float:
    """When the spec names nodes that do not exist; a read costs 0.1 ms, which is in the figure."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        nodes = [
            each["path"]
            for one in json.loads(path.read_text())["devices"]
            for each in one["containerEdits"]["deviceNodes"]
        ]
        if all(each.startswith("/dev/liken.sh/") for each in nodes):
            return time.monotonic()
        time.sleep(0.0005)
    raise TimeoutError(f"{path} never became safe")


class _load:  # noqa: N801 - a context manager, read as a word
    """Callers that prepare and unprepare claims on the second half of the adapters, without a pause."""

    def __init__(self, played: MeasuredNode) -> None:
        self._played = played
        self._end = threading.Event()
        self._threads = [threading.Thread(target=self._call, args=(each,)) for each in range(LOAD_CALLERS)]

    def __enter__(self) -> "_load":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        for thread in self._threads:
            thread.join()

    def _call(self, caller: int) -> None:
        claim = self._played.claims[ADAPTERS - caller]
        while not self._end.is_set():
            self._played.kubelet.unprepare(claim)
            self._played.kubelet.prepare(claim)


def _shows(played: MeasuredNode, number: int, wanted: bool) -> bool:
    return (device(number) in played.offered()) is wanted


def _round_trip_s(played: MeasuredNode) -> float:
    begin = time.monotonic()
    with urllib.request.urlopen(f"{played.api.url}/api/v1/nodes/{NODE}") as answer:
        answer.read()
    return time.monotonic() - begin


def _plugs(played: MeasuredNode) -> Iterator[Row]:
    gone: list[float] = []
    back: list[float] = []
    tap = Tap(played.run / "r" / "bus")
    for number in range(1, PLUGS + 1):
        for wanted, taken in ((False, gone), (True, back)):
            played.player.plug(address(number)) if wanted else played.player.unplug(address(number))
            last = time.monotonic()
            eventually(
                partial(_shows, played, number, wanted),
                20,
                "the slice follows",
                step_s=0.001,
            )
            taken.append(time.monotonic() - last - DEFAULT_SETTLE_S)
    sizes = {topic: size / (2 * PLUGS) for topic, size in sorted(tap.bytes().items())}
    tap.close()
    yield Row(
        "Hot-plug",
        f"bytes on the bus per plug or unplug, {ADAPTERS} devices and claims",
        sum(sizes.values()),
        "bytes",
        ", ".join(f"{topic} {size:.0f}" for topic, size in sizes.items()),
    )
    promise = "100 ms plus the walk"
    trip = statistics.median(_round_trip_s(played) for _ in range(ROUND_TRIPS)) * 1000
    beside = f"{trip:.1f} ms a GET of the Node at the API stand-in"
    yield Row(
        "Hot-plug",
        "settled burst to slice applied, unplug",
        statistics.median(gone) * 1000,
        "ms",
        f"worst {max(gone) * 1000:.0f} ms; {beside}",
        promise,
    )
    yield Row(
        "Hot-plug",
        "settled burst to slice applied, plug",
        statistics.median(back) * 1000,
        "ms",
        f"worst {max(back) * 1000:.0f} ms; {beside}",
        promise,
    )
    writes = [seen for seen in played.api.log if seen.verb == "apply" and seen.status < 300]
    sent = [seen.bytes_in for seen in writes[-PLUGS:]]
    yield Row(
        "Hot-plug",
        f"bytes sent to the API server per change, {ADAPTERS} devices",
        statistics.median(sent),
        "bytes",
    )
