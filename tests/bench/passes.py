"""Claims without API server, gRPC and processes: a pass over all of them, a prepare beside them."""

import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from common.hardware.tree import Tree
from tests.bench.replay import Recorder, Replay
from tests.bench.table import Figure, Row
from tests.bench.walking import median
from tests.claim_bench import Bench

COUNTS = (1, 30, 100, 1000)
TIMES = 7


def measure() -> Iterator[Row]:
    for count in COUNTS:
        with tempfile.TemporaryDirectory(prefix="bench-") as folder:
            yield from _one(Bench(Path(folder)), count)


def _one(bench: Bench, count: int) -> Iterator[Row]:
    places = [f"{number // 100 + 1}-{number % 100 + 1}" for number in range(count)]
    for number, place in enumerate(places):
        device = bench.machine.usb(place, devnum=number % 100 + 2)
        bench.machine.tty(bench.machine.interface(device, 0, driver="ftdi_sio"), f"ttyUSB{number}")
    bench.restart()
    for place in places:
        claim = bench.take(f"usb-{place}-1-0")
    taken, prepares = [], []
    for _ in range(TIMES):
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
        tuple(_reading(bench)),
    )
    yield Row(
        "Passes",
        f"prepare of one claim beside {count - 1} others, without API server and gRPC",
        statistics.median(prepares) * 1000,
        "ms",
        (_rewriting([bench.folder / path for path in bench.files() if claim.uid in path]),),
    )


def _rewriting(files: list[Path]) -> Figure:
    """What a prepare cannot do without: its record and its spec written."""
    contents = {path: path.read_bytes() for path in files}

    def rewrite() -> None:
        for path, content in contents.items():
            new = path.with_suffix(".new")
            new.write_bytes(content)
            new.rename(path)

    words = f"the same {len(files)} files, record and spec, put in their place by a rename"
    return Figure(median(rewrite, TIMES) * 1000, "ms", words)


def _reading(bench: Bench) -> Iterator[Figure]:
    """What a pass cannot do without: every record and spec read and compared, and the hardware read."""
    files = [bench.folder / path for path in bench.files()]
    known = {path: path.read_bytes() for path in files}

    def compare() -> bool:
        return all(path.read_bytes() == content for path, content in known.items())

    recorder = Recorder(Tree(bench.machine.root))
    bench.restart(tree=Tree(bench.machine.root, source=recorder))
    bench.reconcile()
    hardware = Replay(bench.machine.root, list(recorder.asked))

    def both() -> None:
        assert compare(), "somebody wrote a record or a spec"
        hardware()

    words = (
        f"{len(files)} records and specs read and compared, and the same {len(hardware)} files, links and"
        " folders of /sys by plain calls"
    )
    yield Figure(median(both, TIMES) * 1000, "ms", words)
    yield Figure(median(compare, TIMES) * 1000, "ms", "records and specs alone")
