"""What the four cost while nothing happens, and while a stick is plugged or unplugged each second."""

import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from common.hardware.machine import Machine
from common.hardware.walk import walk
from tests.bench.node import MeasuredNode, node
from tests.bench.plain import WAKER, idle_server, running, sleeper
from tests.bench.replay import Replay, record
from tests.bench.table import NONE, Figure, Promise, Row
from tests.bench.walked import walks
from tests.services.machine import SERVICES, address, device
from tests.services.process import cpu_ns, pss_kib
from tests.waiting import eventually

ADAPTERS = 30
CLAIMS = 10
IDLE_S = 60.0
BUSY_S = 30
REST_S = 2.0  # nothing done for so long: what the start and the claims brought is done
PASSES = "liken_pass_seconds_count{"
LARGEST = {"watcher": "zmq", "publisher": "urllib3", "plugin": "grpc.aio", "reconciler": "zmq"}


def measure() -> Iterator[Row]:
    with node(ADAPTERS) as played:
        played.prepare(range(1, CLAIMS + 1))
        pids = {name: process.pid for name, process in zip(SERVICES, played.processes, strict=True)}
        _at_rest(played)
        yield from _idle(played, pids)
        memory = {"idle": _memory(pids)}
        reads = record(played.machine.root, lambda tree: walk(tree, Machine(), "n", "2026-01-01T00:00:00Z"))
        before = _cpu(pids)
        for turn in range(BUSY_S):
            begin = time.monotonic()
            number = turn // 2 % ADAPTERS + 1
            played.player.plug(address(number)) if turn % 2 else played.player.unplug(address(number))
            time.sleep(max(0.0, 1.0 - (time.monotonic() - begin)))
        used = _used(before, _cpu(pids))
        yield _of_all(
            f"CPU of all four, a plug or unplug per second, {BUSY_S} s", used, "ms", (_plain_walks(reads),)
        )
        memory["after that"] = _memory(pids)
    with _bare() as bare:  # only now: what processes share would make ours look smaller
        sizes = _memory(bare)
    beside = Figure(sum(sizes.values()), "MiB", "four Pythons that have imported the largest library of each")
    for when, found in memory.items():
        promise = Promise("160 MB", 160e6 / 2**20) if when == "idle" else None
        yield _of_all(
            f"memory of all four (PSS), {when}", found, "MiB", (beside, *_each(sizes, "MiB")), promise
        )


def _at_rest(played: MeasuredNode) -> None:
    """Wait until all is offered and told, and nobody has anything to do any more."""
    present = [(device(number), "present") for number in range(1, CLAIMS + 1)]
    eventually(lambda: len(played.offered()) == ADAPTERS, 30, "the slices are complete")
    eventually(
        lambda: (
            sorted((one.device, one.state) for claim in played.told() for one in claim.devices)
            == sorted(present)
        ),
        30,
        "the reconciler tells of every claim",
    )
    played.forget()  # one more reader would cost the reconciler something
    last, since = _done(played), time.monotonic()

    def rests() -> bool:
        nonlocal last, since
        now = _done(played)
        if now != last:
            last, since = now, time.monotonic()
        return time.monotonic() - since >= REST_S

    eventually(rests, 60, "nothing more is done", step_s=0.1)


def _done(played: MeasuredNode) -> tuple[int, int, float, set[tuple[str, int]]]:
    """What the services have done so far: requests, walks, passes, files."""
    page = played.process("reconciler").get("/metrics")[1].splitlines()
    passes = sum(float(line.split()[-1]) for line in page if line.startswith(PASSES))
    return len(played.api.log), walks(played.process("watcher")).done, passes, _changes(played)


def _idle(played: MeasuredNode, pids: dict[str, int]) -> Iterator[Row]:
    watcher = played.process("watcher")
    requests, files, walked = len(played.api.log), _changes(played), walks(watcher).done
    with (
        tempfile.TemporaryDirectory() as folder,
        idle_server(Path(folder)) as server,
        running("-c", WAKER) as waker,
    ):
        others = {"server": server.pid, "waker": waker.pid}
        before, others_before = _cpu(pids), _cpu(others)
        time.sleep(IDLE_S)
        used, others_used = _used(before, _cpu(pids)), _used(others_before, _cpu(others))
    beside = (
        Figure(others_used["server"], "ms", "a bare grpc.aio server on two sockets"),
        Figure(others_used["waker"], "ms", "a Python that only wakes ten times a second"),
    )
    yield _of_all(
        f"CPU of all four, idle for {IDLE_S:.0f} s", used, "ms", beside, Promise("60 ms per 60 s", IDLE_S)
    )
    changed = {path for path, _ in _changes(played) ^ files}
    counted = {
        "requests to the API server": len(played.api.log) - requests,
        "files and folders of CDI specs and records that changed": len(changed),
        "walks": walks(watcher).done - walked,
    }
    for what, count in counted.items():
        against = f"counted over the same {IDLE_S:.0f} s, in which there is nothing to do"
        yield Row("Idle", what, count, "", against=against, promise=NONE)


@contextmanager
def _bare() -> Iterator[dict[str, int]]:
    """Per service the number of a Python that has imported its largest library and waits."""
    with ExitStack() as stack:
        yield {name: stack.enter_context(sleeper(module)).pid for name, module in LARGEST.items()}


def _plain_walks(reads: Replay) -> Figure:
    """What so many walks cost a program that only reads."""
    begin = time.process_time()
    for _ in range(BUSY_S):
        reads()
    words = f"{BUSY_S} times the {len(reads)} files, links and folders of a walk by plain calls"
    return Figure((time.process_time() - begin) * 1000, "ms", words)


def _cpu(pids: dict[str, int]) -> dict[str, int]:
    """Nanoseconds of a processor of all threads so far, by process."""
    return {name: cpu_ns(pid) for name, pid in pids.items()}


def _used(before: dict[str, int], after: dict[str, int]) -> dict[str, float]:
    """Milliseconds of a processor, by process."""
    return {name: (after[name] - before[name]) / 1e6 for name in before}


def _of_all(
    what: str,
    each: dict[str, float],
    unit: str,
    baselines: tuple[Figure, ...],
    promise: Promise | None = None,
) -> Row:
    return Row("Idle", what, sum(each.values()), unit, baselines, also=_each(each, unit), promise=promise)


def _each(figures: dict[str, float], unit: str) -> tuple[Figure, ...]:
    return tuple(Figure(value, unit, name) for name, value in figures.items())


def _memory(pids: dict[str, int]) -> dict[str, float]:
    return {name: pss_kib(pid) / 1024 for name, pid in pids.items()}


def _changes(played: MeasuredNode) -> set[tuple[str, int]]:
    """Files and folders with their times: a folder's tells of what came and went in it meanwhile."""
    tops = played.cdi, played.plugin_dir / "claims"
    found = [path for top in tops for path in (top, *top.rglob("*"))]
    return {(str(path), path.stat().st_mtime_ns) for path in found}
