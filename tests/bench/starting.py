"""From the start of a process to its first use."""

import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial

from tests.bench.node import MeasuredNode, node
from tests.bench.table import Row
from tests.services.machine import SERVICES, device
from tests.waiting import eventually

TIMES = 5
READY = {  # what a service says of itself when it is ready
    "watcher": "it has walked",
    "publisher": "it publishes, or stands by",
    "plugin": "the kubelet has registered it",
    "reconciler": "it has looked at every claim",
}


def measure() -> Iterator[Row]:
    info, whole = [], []
    for _ in range(TIMES):
        with node(16, services=("reconciler",)) as played:
            begin = time.monotonic()
            plugin = played.launch("plugin")
            kubelet = played.kubelet  # watches the registry from here on
            eventually(partial(getattr, kubelet, "instances"), 20, "registered", step_s=0.001)
            info.append(time.monotonic() - begin)
            plugin.close()
            whole.append(_to_slice(played))
    bare = statistics.median(_python("grpc.aio") for _ in range(TIMES)) * 1000
    yield Row(
        "Start",
        "start of the plugin to GetInfo answered",
        statistics.median(info) * 1000,
        "ms",
        f"{bare:.0f} ms a Python that imports grpc.aio and ends",
        "250 ms",
    )
    bare = statistics.median(_python("urllib3") for _ in range(TIMES)) * 1000
    yield Row(
        "Start",
        "start of watcher and publisher to slice",
        statistics.median(whole) * 1000,
        "ms",
        f"{bare:.0f} ms a Python that imports urllib3 and ends",
        "700 ms",
    )
    for service in SERVICES:
        taken = statistics.median(_to_ready(service) for _ in range(TIMES)) * 1000
        yield Row("Start", f"start of the {service} to ready", taken, "ms", READY[service])


def _python(module: str) -> float:
    begin = time.monotonic()
    subprocess.run([sys.executable, "-c", f"import {module}"], check=True)
    return time.monotonic() - begin


def _to_ready(service: str) -> float:
    with node(16, services=("reconciler",) if service == "watcher" else ("watcher",)) as played:
        begin = time.monotonic()
        played.launch(service).wait_ready()
        return time.monotonic() - begin


def _to_slice(played: MeasuredNode) -> float:
    begin = time.monotonic()
    played.launch("watcher")
    played.launch("publisher")
    eventually(lambda: device(1) in played.offered(), 20, "the slice is there", step_s=0.001)
    return time.monotonic() - begin
