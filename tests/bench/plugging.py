"""From a kernel event to what follows: the safe spec, the slice."""

import json
import statistics
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from common.files import write_atomically
from services.console.uevents import Sent
from tests.bench.node import MeasuredNode, node
from tests.bench.plain import writer
from tests.bench.table import Figure, Promise, Row, spread
from tests.bench.tap import Tap
from tests.bench.walked import walks
from tests.services.machine import SERVICES, address, device
from tests.services.played_node import NODE
from tests.waiting import eventually

ADAPTERS = 30
REMOVALS = 100
PLUGS = 100  # and as many unplugs
PLUG_SETTLE_S = 0.1  # what a burst waits is taken off; with the default of 1 s a hundred would take long
LOAD_CALLERS = 4
ROUND_TRIPS = 100
MANY, MANY_AT_ONCE = 1000, 100
MANY_SETTLE_S = 0.5  # shorter than the default, for there is a wait for each of the WALKS
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
    with node(ADAPTERS, settle_s=PLUG_SETTLE_S) as played:
        played.prepare(range(1, ADAPTERS + 1))
        yield from _plugs(played)
    with node(MANY, settle_s=MANY_SETTLE_S) as played:
        for first in range(1, MANY, MANY_AT_ONCE):
            played.prepare(range(first, first + MANY_AT_ONCE))
        eventually(lambda: len(played.offered()) == MANY, 60, "the slices are complete")
        yield from _removals(played, f"{MANY} claims, quiet")
        how = f"{MANY} claims, while the watcher walks"
        yield from _removals(played, how, count=WALKS, before=partial(_begin_walk, played))


def _begin_walk(played: MeasuredNode) -> None:
    """Give the watcher reason for a walk, and come back when that has begun."""
    time.sleep(2 * MANY_SETTLE_S)  # what went before is settled and walked
    played.send("bind", f"/devices/pci0000:00/0000:00:14.0/usb1/{address(MANY)}")
    time.sleep(MANY_SETTLE_S + INTO_WALK_S)


def _removals(
    played: MeasuredNode, how: str, count: int = REMOVALS, before: Callable[[], None] = lambda: None
) -> Iterator[Row]:
    taken = []
    for turn in range(count):
        number = turn % (ADAPTERS // 2) + 1
        path = played.spec_path(played.claims[number])
        full = path.read_bytes()
        before()
        sent = played.unplug(number)
        taken.append(_safe_at(path) - sent.at)
        safe = path.read_bytes()
        played.plug(number)
        eventually(partial(played.is_right, number), 10, "the spec is back", step_s=0.002)
    ours, plain = spread(taken), spread(_plain_removals(played, sent, full, safe))
    beside = f"a plain process that takes the event and writes those {len(safe)} bytes by a rename"
    what = "Hot-plug", f"remove event to safe spec, p50 ({how})"
    yield Row(*what, ours.p50, "ms", (Figure(plain.p50, "ms", beside),))
    word, value, other = "p99", ours.p99, plain.p99
    if count < REMOVALS:
        word, value, other = f"worst of {count}", ours.worst, plain.worst
    yield Row(
        "Hot-plug",
        f"remove event to safe spec, {word} ({how})",
        value,
        "ms",
        (Figure(other, "ms", f"that, {word.split()[0]} of {REMOVALS}"),),
        also=(Figure(ours.worst, "ms", f"worst of {count}"),) if count >= REMOVALS else (),
        promise=Promise("50 ms", 50),
    )


def _plain_removals(played: MeasuredNode, sent: Sent, full: bytes, safe: bytes) -> list[float]:
    """Seconds from the same event to the same bytes, at the hands of a process that does nothing else."""
    path, taken = played.cdi.parent / "plain.json", []  # the same memory as the specs
    with writer(path, safe) as sender:
        for _ in range(REMOVALS):
            write_atomically(path, full)
            begin = time.monotonic()  # not when it was sent: the other has often written by then
            sender.send(sent.action, sent.devpath, {})
            taken.append(_safe_at(path) - begin)
    path.unlink()
    return taken


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
    watcher = played.processes[SERVICES.index("watcher")]
    before = walks(watcher)
    tap = Tap(played.run / "r" / "bus")
    for turn in range(PLUGS):
        number = turn % ADAPTERS + 1
        for wanted, taken in ((False, gone), (True, back)):
            play = played.player.plug if wanted else played.player.unplug
            last = play(address(number))[-1]
            eventually(partial(_shows, played, number, wanted), 20, "the slice follows", step_s=0.001)
            taken.append(time.monotonic() - last.at - PLUG_SETTLE_S)
    sizes = {topic: size / (2 * PLUGS) for topic, size in sorted(tap.bytes().items())}
    tap.close()
    after = walks(watcher)
    walk_ms = (after.seconds - before.seconds) / (after.count - before.count) * 1000
    yield from _applied(played, {"unplug": gone, "plug": back}, walk_ms)
    yield from _bytes(played, sizes)


def _applied(played: MeasuredNode, taken: dict[str, list[float]], walk_ms: float) -> Iterator[Row]:
    trip = spread([_round_trip_s(played) for _ in range(ROUND_TRIPS)])
    for word, seconds in taken.items():
        ours = spread(seconds)
        how = f"{word}; LIKEN_SETTLE={PLUG_SETTLE_S}, which is taken off"
        yield Row(
            "Hot-plug",
            f"settled burst to slice applied, p50 ({how})",
            ours.p50,
            "ms",
            (Figure(trip.p50, "ms", "a GET of the Node at the API stand-in"),),
        )
        yield Row(
            "Hot-plug",
            f"settled burst to slice applied, p99 ({how})",
            ours.p99,
            "ms",
            (Figure(trip.p99, "ms", f"that, p99 of {ROUND_TRIPS}"),),
            also=(
                Figure(ours.worst, "ms", f"worst of {len(seconds)}"),
                Figure(walk_ms, "ms", "of which the walk, mean"),
            ),
            promise=Promise("100 ms plus the walk", 100 + walk_ms),
        )


def _bytes(played: MeasuredNode, sizes: dict[str, float]) -> Iterator[Row]:
    with played.api.store.changed:
        bodies = sum(
            len(json.dumps(each["spec"], separators=(",", ":"))) for each in played.api.store.slices.values()
        )
    beside = (Figure(bodies, "bytes", "the spec of the slice of these devices as JSON"),)
    yield Row(
        "Hot-plug",
        f"bytes on the bus per plug or unplug, {ADAPTERS} devices and claims",
        sum(sizes.values()),
        "bytes",
        beside,
        also=tuple(Figure(size, "", topic) for topic, size in sizes.items()),
    )
    writes = [seen for seen in played.api.log if seen.verb == "apply" and seen.status < 300]
    yield Row(
        "Hot-plug",
        f"bytes sent to the API server per plug or unplug, {ADAPTERS} devices",
        statistics.median(seen.bytes_in for seen in writes[-2 * PLUGS :]),
        "bytes",
        beside,
    )
