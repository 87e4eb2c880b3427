"""From the start of a process to its first use."""

import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial

from tests.bench.node import MeasuredNode, node
from tests.bench.table import Figure, Promise, Row
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
    bare = _python("pass", "a Python that does nothing and ends")
    yield Row(
        "Start",
        "start of the plugin to GetInfo answered",
        statistics.median(info) * 1000,
        "ms",
        (bare, _python("import grpc.aio", "one that imports grpc.aio and ends")),
        promise=Promise("250 ms", 250),
    )
    yield Row(
        "Start",
        "start of watcher and publisher to slice",
        statistics.median(whole) * 1000,
        "ms",
        (bare, _python("import urllib3", "one that imports urllib3 and ends")),
        promise=Promise("700 ms", 700),
    )
    for service in SERVICES:
        taken = statistics.median(_to_ready(service) for _ in range(TIMES)) * 1000
        yield Row("Start", f"start of the {service} to ready: {READY[service]}", taken, "ms", (bare,))


def _python(program: str, what: str) -> Figure:
    """From the start of a Python to its end."""
    taken = []
    for _ in range(TIMES):
        begin = time.monotonic()
        subprocess.run([sys.executable, "-c", program], check=True)
        taken.append(time.monotonic() - begin)
    return Figure(statistics.median(taken) * 1000, "ms", what)


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
