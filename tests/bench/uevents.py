"""How many uevents per second the watcher takes, and when the kernel drops some."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from prometheus_client import CollectorRegistry

from services.console.uevents import Sender
from services.watcher.metrics import Metrics
from services.watcher.sources import RECEIVE_BUFFER, KernelSource
from services.watcher.uevent import counts
from tests.bench.node import node
from tests.bench.table import Row
from tests.waiting import eventually

FILE = Path("/sys/devices/virtual/mem/null/uevent")  # whose events harm nobody and wake no watcher
BURST = 2000  # fits into every buffer
FLOOD = 60_000  # more than the watcher's buffer holds
STORM_S = 2.0
PLAYED = 5000
_STORM = """
import os, sys, time
file, end, sent = os.open(sys.argv[1], os.O_WRONLY), time.monotonic() + float(sys.argv[2]), 0
while time.monotonic() < end:
    os.write(file, b"change")
    sent += 1
print(sent)
"""


def measure() -> Iterator[Row]:
    reason = _why_not()
    if reason:
        print(f"uevents of the kernel: not measured, {reason}")
    else:
        yield from _kernel()
    yield from _watcher()


def _why_not() -> str:
    if os.geteuid() != 0:
        return "this is not root: the kernel sends no events at our word"
    return "" if os.access(FILE, os.W_OK) else f"{FILE} cannot be written"


def _kernel() -> Iterator[Row]:
    source, metrics = KernelSource(), Metrics(CollectorRegistry())
    try:
        sent_s = _send(BURST)
        begin = time.perf_counter()
        taken, lost = _drain(source, metrics)
        read_s = time.perf_counter() - begin
        yield Row(
            "Uevents",
            "events of the kernel that the watcher's reader takes",
            taken / read_s,
            "per s",
            f"{BURST / sent_s:.0f} per s one writer sends; of {BURST} lost: {'some' if lost else 'none'}",
        )
        yield from _storm(source, metrics)
        _send(FLOOD)
        taken, lost = _drain(source, metrics)
        yield Row(
            "Uevents",
            f"events that wait unread in a buffer of {RECEIVE_BUFFER // 1024 // 1024} MiB before one is lost",
            taken,
            "",
            f"of {FLOOD} sent at once; a loss was {'told' if lost else 'not needed'}",
        )
    finally:
        source.close()


def _storm(source: KernelSource, metrics: Metrics) -> Iterator[Row]:
    """One process that does nothing but make events, beside a reader."""
    taken, lost = 0, False
    with subprocess.Popen(
        [sys.executable, "-c", _STORM, str(FILE), str(STORM_S)], stdout=subprocess.PIPE, text=True
    ) as storm:
        while storm.poll() is None:
            more, dropped = _drain(source, metrics)
            taken, lost = taken + more, lost or dropped
            time.sleep(0.001)
        sent = int(storm.stdout.read()) if storm.stdout else 0
    more, dropped = _drain(source, metrics)
    yield Row(
        "Uevents",
        f"events taken while another process sends as fast as it can for {STORM_S:.0f} s",
        (taken + more) / STORM_S,
        "per s",
        f"{sent / STORM_S:.0f} per s sent; lost: {'some' if lost or dropped else 'none'}",
    )


def _send(count: int) -> float:
    """Seconds to have the kernel send so many events."""
    file = os.open(FILE, os.O_WRONLY)
    begin = time.perf_counter()
    for _ in range(count):
        os.write(file, b"change")
    os.close(file)
    return time.perf_counter() - begin


def _drain(source: KernelSource, metrics: Metrics) -> tuple[int, bool]:
    """Take all that waits, with the watcher's work per event; how many, and whether some were lost."""
    taken, lost = 0, False
    while True:
        batch = source.receive()
        lost |= batch.lost
        if not batch.events:
            return taken, lost
        for event in batch.events:
            metrics.uevent(event, counts(event))
        taken += len(batch.events)


def _watcher() -> Iterator[Row]:
    """The whole process on a played machine: every event counts, ticks and wakes."""
    with tempfile.TemporaryDirectory(prefix="bench-"), node(1, services=("watcher",)) as played:
        (watcher,) = played.processes
        seen = 'liken_uevents_total{action="bind",woke="true"}'
        before = watcher.cpu_ns()
        sender = Sender(played.run / "r")
        for _ in range(PLAYED):
            sender.send("bind", "/devices/pci0000:00/0000:00:14.0/usb1/1-1", {"SUBSYSTEM": "usb"})
        sender.close()
        eventually(lambda: watcher.metric(seen) >= PLAYED, 30, "all events are counted")
        spent_us = (watcher.cpu_ns() - before) / 1000 / PLAYED
    yield Row(
        "Uevents",
        "CPU of the watcher per event that counts",
        spent_us,
        "us",
        f"of {PLAYED} in a row, none lost; {1e6 / spent_us:.0f} per s would fill one processor",
    )
