"""What the four cost while nothing happens, and while a stick is plugged or unplugged each second."""

import time
from collections.abc import Iterator
from pathlib import Path

from tests.bench.node import MeasuredNode, node
from tests.bench.table import Row
from tests.services.machine import address
from tests.services.process import Process

ADAPTERS = 30
IDLE_S = 60.0
BUSY_S = 30
SERVICES = ("watcher", "publisher", "plugin", "reconciler")
WALKS = "liken_walk_seconds_count"


def measure() -> Iterator[Row]:
    with node(ADAPTERS) as played:
        played.prepare(range(1, 11))
        processes = dict(zip(SERVICES, played.processes, strict=True))
        time.sleep(3)
        before, requests, files = _cpu(processes), len(played.api.log), _changes(played)
        walks = _walks(processes["watcher"])
        time.sleep(IDLE_S)
        after = _cpu(processes)
        yield from _rows("idle for 60 s", processes, before, after, "60 ms per 60 s")
        yield Row("Idle", "requests to the API server", len(played.api.log) - requests, "", promise="none")
        yield Row(
            "Idle",
            "files written in the CDI and record folders",
            len(_changes(played) - files),
            "",
            promise="none",
        )
        yield Row("Idle", "walks", _walks(processes["watcher"]) - walks, "", promise="none")
        yield from _memory(processes, "idle", "160 MB")
        before = _cpu(processes)
        for turn in range(BUSY_S):
            begin = time.monotonic()
            number = turn // 2 % ADAPTERS + 1
            played.player.plug(address(number)) if turn % 2 else played.player.unplug(address(number))
            time.sleep(max(0.0, 1.0 - (time.monotonic() - begin)))
        yield from _rows(f"a plug or unplug per second, {BUSY_S} s", processes, before, _cpu(processes))
        yield from _memory(processes, "after that")


def _cpu(processes: dict[str, Process]) -> dict[str, int]:
    return {name: process.cpu_ns() for name, process in processes.items()}


def _rows(
    what: str, processes: dict[str, Process], before: dict[str, int], after: dict[str, int], promise: str = ""
) -> Iterator[Row]:
    used = {name: (after[name] - before[name]) / 1e6 for name in processes}
    each = ", ".join(f"{name} {used[name]:.0f}" for name in processes)
    yield Row("Idle", f"CPU of all four, {what}", sum(used.values()), "ms", each, promise)


def _walks(watcher: Process) -> float:
    """How often the watcher has walked, by its metrics."""
    status, page = watcher.get("/metrics")
    assert status == 200
    return sum(float(line.split()[-1]) for line in page.splitlines() if line.startswith(WALKS))


def _memory(processes: dict[str, Process], when: str, promise: str = "") -> Iterator[Row]:
    sizes = {name: _pss_kib(process.pid) / 1024 for name, process in processes.items()}
    each = ", ".join(f"{name} {size:.0f}" for name, size in sizes.items())
    yield Row("Idle", f"memory of all four (PSS), {when}", sum(sizes.values()), "MiB", each, promise)


def _pss_kib(pid: int) -> int:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1])
    return 0


def _changes(played: MeasuredNode) -> set[tuple[str, int]]:
    found = [*played.cdi.rglob("*"), *(played.plugin_dir / "claims").rglob("*")]
    return {(str(path), path.stat().st_mtime_ns) for path in found if path.is_file()}
