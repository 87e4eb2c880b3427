"""What the kubelet waits for: prepare and unprepare, beside an empty servicer and the API server's answer."""

import statistics
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from concurrent import futures
from functools import partial
from pathlib import Path

from tests.bench.empty import calls
from tests.bench.node import MeasuredNode, node
from tests.bench.table import Figure, Promise, Row, spread
from tests.bench.walking import LARGE, MACHINES
from tests.services.kubelet_stand_in import Claim
from tests.waiting import eventually

ADAPTERS = 64
ROUNDS = 150
TURNS = 5  # of all adapters by several callers


def measure() -> Iterator[Row]:
    with node(ADAPTERS) as played:
        yield from _latency(
            played, "a machine of 64 adapters", [f"usb-1-{n}-1-0" for n in range(1, ADAPTERS + 1)]
        )
        for callers in (8, 32):
            yield from _rate(played, callers)
    yield from _large()


def _latency(played: MeasuredNode, what: str, devices: list[str]) -> Iterator[Row]:
    kubelet = played.registered()
    empty, answer = spread(calls(1).seconds), spread(_api_s(played))
    prepares, unprepares = [], []
    for turn in range(ROUNDS):
        claim = played.claim(devices[turn % len(devices)])
        begin = time.perf_counter()
        error = kubelet.prepare(claim)[claim.uid].error
        middle = time.perf_counter()
        kubelet.unprepare(claim)
        prepares.append(middle - begin)
        unprepares.append(time.perf_counter() - middle)
        assert not error, error
    for word, taken, promise in (
        ("prepare", spread(prepares), Promise("4 ms", 4)),
        ("unprepare", spread(unprepares), None),
    ):
        half = [Figure(empty.p50, "ms", "an empty servicer")]
        high = [Figure(empty.p99, "ms", "an empty servicer, p99")]
        if word == "prepare":  # the other asks no API server
            half.append(Figure(answer.p50, "ms", "a GET of the claim at the API stand-in"))
            high.append(Figure(answer.p99, "ms", "a GET of the claim at the API stand-in, p99"))
        yield Row("Calls", f"{word}, one caller, p50 ({what})", taken.p50, "ms", tuple(half), promise=promise)
        worst = (Figure(taken.worst, "ms", f"worst of {ROUNDS}"),)
        yield Row("Calls", f"{word}, one caller, p99 ({what})", taken.p99, "ms", tuple(high), also=worst)


def _rate(played: MeasuredNode, callers: int) -> Iterator[Row]:
    """Claims per second that `callers` prepare at once, and unprepare at once."""
    kubelet = played.registered()
    work: dict[str, Callable[[Claim], Mapping[str, object]]] = {
        "prepare": kubelet.prepare,
        "unprepare": kubelet.unprepare,
    }
    rates: dict[str, list[float]] = {word: [] for word in work}
    taken: dict[str, list[float]] = {word: [] for word in work}
    for _ in range(TURNS):
        claims = [played.claim(f"usb-1-{number}-1-0") for number in range(1, ADAPTERS + 1)]
        for word, call in work.items():
            begin = time.perf_counter()
            with futures.ThreadPoolExecutor(callers) as pool:
                taken[word] += list(pool.map(partial(_timed, call), claims))
            rates[word].append(len(claims) / (time.perf_counter() - begin))
    empty = calls(callers)
    for word in work:
        yield Row(
            "Calls",
            f"{word}, {callers} callers",
            statistics.median(rates[word]),
            "calls/s",
            (Figure(empty.per_s, "calls/s", "an empty servicer"), *_of_a_call(empty.seconds)),
            also=_of_a_call(taken[word]),
            promise=Promise("400 calls/s", 400, at_least=True) if (word, callers) == ("prepare", 8) else None,
        )


def _of_a_call(seconds: list[float]) -> tuple[Figure, ...]:
    taken = spread(seconds)
    return Figure(taken.p50, "ms", "p50 of a call"), Figure(taken.p99, "ms", "p99 of a call")


def _timed(call: Callable[[Claim], Mapping[str, object]], claim: Claim) -> float:
    begin = time.perf_counter()
    answers = call(claim)
    taken = time.perf_counter() - begin
    errors = [error for one in answers.values() if (error := getattr(one, "error", one))]
    assert not errors, errors
    return taken


def _large() -> Iterator[Row]:
    import tarfile

    archive = MACHINES / f"{LARGE}.tar.xz"
    if not archive.exists():
        print(f"prepare on {LARGE}: not measured, there is no {archive}")
        return
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        with tarfile.open(archive) as tar:
            tar.extractall(folder, filter="tar")
        with node(1, root=Path(folder)) as played:
            devices = eventually(
                lambda: sorted(name for name in played.offered() if name.startswith("pci-")),
                30,
                "the slices are there",
            )
            yield from _latency(played, f"{LARGE}, 559 functions", devices)


def _api_s(played: MeasuredNode) -> list[float]:
    """Seconds of each read of a claim."""
    claim = played.claim("none")
    url = f"{played.api.url}/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/{claim.name}"
    taken = []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        with urllib.request.urlopen(url) as answer:
            answer.read()
        taken.append(time.perf_counter() - begin)
    return taken
