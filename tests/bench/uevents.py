"""What the watcher can take of uevents, and at which cost. At which rates some are lost: rates.py."""

import subprocess
import sys
import time
from collections.abc import Iterator

from prometheus_client import CollectorRegistry

from services.console.uevents import Sender
from services.watcher.metrics import Metrics
from services.watcher.sources import RECEIVE_BUFFER, KernelSource
from services.watcher.uevent import counts
from tests.bench.netlink import QUIET, SMALL, plain_per_s, send, size_text, why_not
from tests.bench.node import node
from tests.bench.plain import line, taker
from tests.bench.table import Figure, Row
from tests.waiting import eventually

BURST = 2000  # fits into every buffer
FLOOD = 60_000  # more than any of the buffers holds
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
    reason = why_not()
    if reason:
        print(f"uevents of the kernel: not measured, {reason}")
    else:
        yield from _kernel()
    yield from _watcher()


def _kernel() -> Iterator[Row]:
    source, metrics = KernelSource(), Metrics(CollectorRegistry())
    try:
        sent_s = send(BURST)
        begin = time.perf_counter()
        taken, lost = _drain(source, metrics)
        read_s = time.perf_counter() - begin
        yield Row(
            "Uevents",
            f"events of the kernel that the watcher's reader takes, {BURST} that wait",
            taken / read_s,
            "per s",
            (
                Figure(plain_per_s(BURST, RECEIVE_BUFFER), "per s", "a plain recv takes"),
                Figure(BURST / sent_s, "per s", "one process has the kernel send"),
            ),
            also=(Figure(int(lost), "", "losses told"),),
        )
        yield _storm(source, metrics)
    finally:
        source.close()
    for size in (RECEIVE_BUFFER, SMALL):
        yield _flood(size)


def _flood(size: int) -> Row:
    """Nobody reads until more is sent than the buffer holds."""
    source = KernelSource(size)
    try:
        send(FLOOD)
        taken, lost = _drain(source, Metrics(CollectorRegistry()))
    finally:
        source.close()
    return Row(
        "Uevents",
        f"events that wait unread in a buffer of {size_text(size)} before one is lost",
        taken,
        "events",
        (Figure(FLOOD, "events", "sent at once"),),
        also=(Figure(int(lost), "", "losses told"),),
    )


def _storm(source: KernelSource, metrics: Metrics) -> Row:
    """One process that does nothing but make events, beside a reader."""
    taken, lost = 0, False
    with subprocess.Popen(
        [sys.executable, "-c", _STORM, str(QUIET), str(STORM_S)], stdout=subprocess.PIPE, text=True
    ) as storm:
        while storm.poll() is None:
            more, dropped = _drain(source, metrics)
            taken, lost = taken + more, lost or dropped
            time.sleep(0.001)
        sent = int(storm.stdout.read()) if storm.stdout else 0
    more, dropped = _drain(source, metrics)
    return Row(
        "Uevents",
        f"events taken while another process sends as fast as it can for {STORM_S:.0f} s",
        (taken + more) / STORM_S,
        "per s",
        (Figure(sent / STORM_S, "per s", "sent"),),
        also=(Figure(int(lost or dropped), "", "losses told"),),
    )


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
    with node(1, services=("watcher",)) as played:
        (watcher,) = played.processes
        seen = 'liken_uevents_total{action="bind",woke="true"}'
        before = watcher.cpu_ns()
        sender = Sender(played.run / "r")
        _play(sender)
        sender.close()
        eventually(lambda: watcher.metric(seen) >= PLAYED, 30, "all events are counted")
        spent_us = (watcher.cpu_ns() - before) / 1000 / PLAYED
    with taker(PLAYED) as (sender, process):
        _play(sender)
        plain_us = int(line(process)) / 1000 / PLAYED
    yield Row(
        "Uevents",
        f"CPU of the watcher per event that counts, {PLAYED} in a row",
        spent_us,
        "us",
        (Figure(plain_us, "us", "a plain process that only takes it"),),
        also=(Figure(1e6 / spent_us, "per s", "one processor is full at"),),
    )


def _play(sender: Sender) -> None:
    for _ in range(PLAYED):
        sent = sender.send("bind", "/devices/pci0000:00/0000:00:14.0/usb1/1-1", {"SUBSYSTEM": "usb"})
        assert sent.heard, "an event was not taken"
