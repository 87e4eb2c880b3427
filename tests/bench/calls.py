"""What the kubelet waits for: prepare and unprepare, beside an empty servicer and the API server's answer."""

import statistics
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from concurrent import futures
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import grpc

from services.plugin.api import dra_v1_pb2, dra_v1_pb2_grpc
from tests.bench.node import MeasuredNode, node
from tests.bench.table import Row, spread
from tests.bench.walking import LARGE, MACHINES
from tests.claim_bench import Bench
from tests.services.kubelet_stand_in import Claim
from tests.waiting import eventually

ADAPTERS = 64
ROUNDS = 150
EMPTY_CALLS = 2000
TURNS = 5  # of all adapters by several callers


def measure() -> Iterator[Row]:
    with node(ADAPTERS) as played:
        yield from _latency(
            played, "a machine of 64 adapters", [f"usb-1-{n}-1-0" for n in range(1, ADAPTERS + 1)]
        )
        for callers in (8, 32):
            yield from _rate(played, callers)
    yield from _large()
    yield from _passes()


def _latency(played: MeasuredNode, what: str, devices: list[str]) -> Iterator[Row]:
    kubelet = played.registered()
    empty, answer = _empty_servicer_s(), _api_s(played)
    baseline = f"{empty * 1000:.1f} ms an empty servicer, {answer * 1000:.1f} ms a GET at the API stand-in"
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
    half, high, _ = spread(prepares)
    yield Row("Calls", f"prepare, one caller, p50 ({what})", half, "ms", baseline, "4 ms")
    yield Row("Calls", f"prepare, one caller, p99 ({what})", high, "ms")
    half, high, _ = spread(unprepares)
    yield Row("Calls", f"unprepare, one caller, p50 ({what})", half, "ms", f"p99 {high:.1f} ms")


def _rate(played: MeasuredNode, callers: int) -> Iterator[Row]:
    """Claims per second that `callers` prepare at once, and unprepare at once."""
    kubelet = played.registered()
    calls: dict[str, Callable[[Claim], Mapping[str, object]]] = {
        "prepare": kubelet.prepare,
        "unprepare": kubelet.unprepare,
    }
    rates: dict[str, list[float]] = {word: [] for word in calls}
    taken: dict[str, list[float]] = {word: [] for word in calls}
    for _ in range(TURNS):
        claims = [played.claim(f"usb-1-{number}-1-0") for number in range(1, ADAPTERS + 1)]
        for word, call in calls.items():
            begin = time.perf_counter()
            with futures.ThreadPoolExecutor(callers) as pool:
                taken[word] += list(pool.map(partial(_timed, call), claims))
            rates[word].append(len(claims) / (time.perf_counter() - begin))
    empty = _empty_servicer_rate(callers)
    for word in calls:
        half, high, _ = spread(taken[word])
        yield Row(
            "Calls",
            f"{word}, {callers} callers",
            statistics.median(rates[word]),
            "claims/s",
            f"{empty:.0f} calls/s an empty servicer; p50 {half:.0f} ms, p99 {high:.0f} ms a call",
            "400 claims/s" if (word, callers) == ("prepare", 8) else "",
        )


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


def _passes() -> Iterator[Row]:
    for count in (1, 30, 100, 1000):
        with tempfile.TemporaryDirectory(prefix="bench-") as folder:
            bench = Bench(Path(folder))
            for number in range(count):
                bus, port = divmod(number, 100)
                place = bench.machine.usb(f"{bus + 1}-{port + 1}", devnum=port + 2)
                bench.machine.tty(bench.machine.interface(place, 0, driver="ftdi_sio"), f"ttyUSB{number}")
            bench.restart()
            for number in range(count):
                bus, port = divmod(number, 100)
                claim = bench.take(f"usb-{bus + 1}-{port + 1}-1-0")
            taken, prepares = [], []
            for _ in range(7):
                begin = time.perf_counter()
                bench.reconcile()
                middle = time.perf_counter()
                bench.unprepare(claim)
                again = time.perf_counter()
                bench.prepare(claim)
                prepares.append(time.perf_counter() - again)
                taken.append(middle - begin)
            yield Row(
                "Passes",
                f"a pass over {count} claims that changes nothing",
                statistics.median(taken) * 1000,
                "ms",
            )
            yield Row(
                "Passes",
                f"prepare of one claim beside {count - 1} others, without API server and gRPC",
                statistics.median(prepares) * 1000,
                "ms",
            )


class _Empty(dra_v1_pb2_grpc.DRAPluginServicer):
    def NodePrepareResources(self, request, context):  # type: ignore[no-untyped-def]
        return dra_v1_pb2.NodePrepareResourcesResponse()


@contextmanager
def _empty_servicer() -> Iterator[Callable[[], object]]:
    """A call to a servicer that does nothing, in threads of this process."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        server = grpc.server(futures.ThreadPoolExecutor(8))
        dra_v1_pb2_grpc.add_DRAPluginServicer_to_server(_Empty(), server)  # type: ignore[no-untyped-call]
        server.add_insecure_port(f"unix:{folder}/s")
        server.start()
        with grpc.insecure_channel(f"unix:{folder}/s") as channel:
            stub = dra_v1_pb2_grpc.DRAPluginStub(channel)  # type: ignore[no-untyped-call]
            yield lambda: stub.NodePrepareResources(dra_v1_pb2.NodePrepareResourcesRequest())
        server.stop(0)


def _empty_servicer_s() -> float:
    """Seconds of a call, the median."""
    taken = []
    with _empty_servicer() as call:
        for _ in range(100):
            begin = time.perf_counter()
            call()
            taken.append(time.perf_counter() - begin)
    return statistics.median(taken)


def _empty_servicer_rate(callers: int) -> float:
    """Calls per second of several callers."""
    with _empty_servicer() as call, futures.ThreadPoolExecutor(callers) as pool:
        begin = time.perf_counter()
        for one in [pool.submit(call) for _ in range(EMPTY_CALLS)]:
            one.result()
        return EMPTY_CALLS / (time.perf_counter() - begin)


def _api_s(played: MeasuredNode) -> float:
    claim = played.claim("none")
    url = f"{played.api.url}/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/{claim.name}"
    taken = []
    for _ in range(50):
        begin = time.perf_counter()
        with urllib.request.urlopen(url) as answer:
            answer.read()
        taken.append(time.perf_counter() - begin)
    return statistics.median(taken)
