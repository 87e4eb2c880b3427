"""From a plug or unplug to the slice: the whole way, the publisher's part of it, the bytes."""

import json
import statistics
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import NamedTuple

from common.bus import TOPOLOGY, BusSender, decode
from common.bus import address as bus_address
from common.cluster.kube import SLICES
from common.inventory import InventoryMessage
from tests.bench.node import MeasuredNode
from tests.bench.plain import poster
from tests.bench.table import Figure, Promise, Row, spread
from tests.bench.tap import Heard, Tap
from tests.bench.walked import walks
from tests.services.api_faults import Seen
from tests.services.api_store import Raw
from tests.services.machine import address, device
from tests.services.played_node import NODE
from tests.waiting import eventually

PLUGS = 100  # and as many unplugs
SETTLE_S = 0.1  # what a burst waits is taken off; with the default of 1 s a hundred would take long
ROUND_TRIPS = 100
INVENTORY = next(topic for topic in TOPOLOGY if topic.name == "inventory")


def _shows(played: MeasuredNode, number: int, wanted: bool) -> bool:
    return (device(number) in played.offered()) is wanted


def _round_trip_s(played: MeasuredNode) -> float:
    begin = time.monotonic()
    with urllib.request.urlopen(f"{played.api.url}/api/v1/nodes/{NODE}") as answer:
        answer.read()
    return time.monotonic() - begin


def measure(played: MeasuredNode, adapters: int) -> Iterator[Row]:
    gone: list[float] = []
    back: list[float] = []
    turns: list[_Turn] = []
    before = walks(played.process("watcher"))
    tap = Tap(played.run / "r" / "bus")
    for turn in range(PLUGS):
        number = turn % adapters + 1
        for wanted, taken in ((False, gone), (True, back)):
            play = played.player.plug if wanted else played.player.unplug
            last = play(address(number))[-1]
            eventually(partial(_shows, played, number, wanted), 20, "the slice follows", step_s=0.001)
            taken.append(time.monotonic() - last.at - SETTLE_S)
            turns.append(_Turn(last.at, number, wanted))
    tap.close()
    after = walks(played.process("watcher"))
    walk_ms = (after.seconds - before.seconds) / (after.done - before.done) * 1000
    yield from _applied(played, {"unplug": gone, "plug": back}, walk_ms)
    heard = tap.heard()
    yield from _requested(played, turns, heard)
    sizes: Counter[str] = Counter()
    for each in heard:
        sizes[each.topic] += each.size
    yield from _bytes(played, adapters, {topic: size / (2 * PLUGS) for topic, size in sorted(sizes.items())})


class _Turn(NamedTuple):
    """A plug or unplug: when its last event was sent, which adapter, whether it is there from then on."""

    at: float
    number: int
    wanted: bool


def _requested(played: MeasuredNode, turns: list[_Turn], heard: list[Heard]) -> Iterator[Row]:
    """From the inventory that tells of the turn to the request that the publisher makes of it."""
    inventories = [
        (each, {one.name for one in found.devices})
        for each in heard
        if each.topic == INVENTORY.name
        and (found := decode(each.topic, each.payload, InventoryMessage).inventory) is not None
    ]
    mine = _slice(played)["metadata"]["name"]
    taken = []
    for turn in turns:
        told = next(
            each.at
            for each, names in inventories
            if each.at > turn.at and (device(turn.number) in names) is turn.wanted
        )
        came = _written(played, mine, turn.at)
        assert came is not None, f"no request followed the plug or unplug of adapter {turn.number}"
        taken.append(came - told)
    ours, plain = spread(taken), _plain_requests(played, inventories[-1][0].payload)
    other, own = spread(plain.requests), spread(plain.tap)
    beside = f"from its sending to the request of a plain process that applies those {plain.size} bytes"
    noted = "from its sending to the reader that notes it, which ours leaves out"
    of = f"{len(taken)} plugs and unplugs"
    yield Row(
        "Hot-plug",
        f"inventory on the bus to slice request, p50 ({of})",
        ours.p50,
        "ms",
        (Figure(other.p50, "ms", beside), Figure(own.p50, "ms", noted)),
    )
    yield Row(
        "Hot-plug",
        f"inventory on the bus to slice request, p99 ({of})",
        ours.p99,
        "ms",
        (
            Figure(other.p99, "ms", f"that, p99 of {len(plain.requests)}"),
            Figure(own.p99, "ms", f"{noted}, p99"),
        ),
        also=(Figure(ours.worst, "ms", f"worst of {len(taken)}"),),
        promise=Promise("20 ms", 20),
    )


class _Plain(NamedTuple):
    """Seconds from the sending of the inventory to the request, and to the tap; the size of a request."""

    requests: list[float]
    tap: list[float]
    size: int


def _plain_requests(played: MeasuredNode, inventory: bytes) -> _Plain:
    """The same at the hands of a process that neither reads the inventory nor decides."""
    mine = _slice(played)
    pool = mine["spec"]["pool"] | {"name": "plain"}
    body = json.dumps(
        {key: mine[key] for key in ("apiVersion", "kind")}
        | {"metadata": {"name": "plain"}, "spec": mine["spec"] | {"nodeName": "plain", "pool": pool}},
        separators=(",", ":"),
    )
    url = f"{played.api.url}{SLICES}/plain?fieldManager=plain&force=true"
    requests, taps = [], []
    with ExitStack() as stack:
        bus = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-"))) / "bus"
        sender = stack.enter_context(closing(BusSender(bus, INVENTORY.sender)))
        sender.state(INVENTORY.name, inventory)
        tap = stack.enter_context(closing(Tap(bus, (INVENTORY,))))
        stack.enter_context(poster(bus_address(bus, INVENTORY.sender), INVENTORY.name, url, body))
        for _ in range(2 * PLUGS):
            begin = time.monotonic()
            sender.state(INVENTORY.name, inventory)
            came = eventually(partial(_written, played, "plain", begin), 10, "it writes", step_s=0.001)
            requests.append(came - begin)
            taps.append(eventually(partial(_heard, tap, begin), 10, "the tap hears it") - begin)
    played.api.store.delete("plain")
    return _Plain(requests, taps, len(body))


def _slice(played: MeasuredNode) -> Raw:
    """The node's slice; there is one."""
    with played.api.store.changed:
        (mine,) = played.api.store.slices.values()
    return mine


def _heard(tap: Tap, after: float) -> float | None:
    """When the first message came to the tap after that moment."""
    return next((each.at for each in tap.heard() if each.at > after), None)


def _written(played: MeasuredNode, name: str, after: float) -> float | None:
    """When the first request came after that moment that wrote the slice of that name."""
    return next((seen.came for seen in _writes(played, name) if seen.came > after), None)


def _writes(played: MeasuredNode, name: str) -> list[Seen]:
    """The requests so far that wrote the slice of that name, in order."""
    return [
        seen
        for seen in list(played.api.log)
        if (seen.verb, seen.name) == ("apply", name) and seen.status < 300
    ]


def _applied(played: MeasuredNode, taken: dict[str, list[float]], walk_ms: float) -> Iterator[Row]:
    trip = spread([_round_trip_s(played) for _ in range(ROUND_TRIPS)])
    for word, seconds in taken.items():
        ours = spread(seconds)
        how = f"{word}; LIKEN_SETTLE={SETTLE_S}, which is taken off"
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


def _bytes(played: MeasuredNode, adapters: int, sizes: dict[str, float]) -> Iterator[Row]:
    mine = _slice(played)
    body = len(json.dumps(mine["spec"], separators=(",", ":")))
    writes = _writes(played, mine["metadata"]["name"])
    beside = (Figure(body, "bytes", "the spec of the slice of these devices as JSON"),)
    yield Row(
        "Hot-plug",
        f"bytes on the bus per plug or unplug, {adapters} devices and claims",
        sum(sizes.values()),
        "bytes",
        beside,
        also=tuple(Figure(size, "", topic) for topic, size in sizes.items()),
    )
    yield Row(
        "Hot-plug",
        f"bytes sent to the API server per plug or unplug, {adapters} devices",
        statistics.median(seen.bytes_in for seen in writes[-2 * PLUGS :]),
        "bytes",
        beside,
    )
