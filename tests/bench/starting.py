"""From the start of a process to its first use."""

import statistics
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from tests.bench.node import MeasuredNode, node
from tests.bench.table import Row
from tests.services.machine import device
from tests.waiting import eventually

TIMES = 5


def measure() -> Iterator[Row]:
    info, whole, ready = [], [], []
    for _ in range(TIMES):
        with node(16, services=("reconciler",)) as played:
            begin = time.monotonic()
            plugin = played.launch("plugin")
            kubelet = played.kubelet  # watches the registry from here on
            eventually(partial(getattr, kubelet, "instances"), 20, "registered", step_s=0.001)
            info.append(time.monotonic() - begin)
            plugin.close()
            whole.append(_to_slice(played))
            begin = time.monotonic()
            played.launch("reconciler", LIKEN_RUN=str(Path(played.run) / "x")).wait_ready()
            ready.append(time.monotonic() - begin)
    yield Row(
        "Start",
        "start of the plugin to GetInfo answered",
        statistics.median(info) * 1000,
        "ms",
        promise="250 ms",
    )
    yield Row(
        "Start",
        "start of watcher and publisher to slice",
        statistics.median(whole) * 1000,
        "ms",
        promise="700 ms",
    )
    yield Row("Start", "start of a second reconciler to ready", statistics.median(ready) * 1000, "ms")


def _to_slice(played: MeasuredNode) -> float:
    begin = time.monotonic()
    played.launch("watcher")
    played.launch("publisher")
    eventually(lambda: device(1) in played.offered(), 20, "the slice is there", step_s=0.001)
    return time.monotonic() - begin
