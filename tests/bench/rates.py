"""At which rate of uevents some are lost: the kernel's own events, at rising rates, to a watcher process."""

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from services.watcher.sources import RECEIVE_BUFFER
from tests.bench.netlink import MISC, QUIET, SMALL, Listener, reader, size_text, waking, why_not
from tests.bench.table import Figure, Row
from tests.services.process import Process, clean_environment, free_port
from tests.waiting import eventually

RATES = (1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000, 200_000)  # per second
SECONDS = 2.0  # of each
# A sender that sends no more than this many times what it sent at the rate before has reached its own limit,
MORE = 1.2
LIKELY = 50_000  # if it was asked for as much as this: below, others had the processor
LOST = "liken_uevents_lost_total"
# A few events each millisecond. What it could not send in time because others had the processor it sends
# later, but not more than the events of 2 ms at once: a pile would be another rate.
_SENDER = """
import os, sys, time
file, rate, seconds = os.open(sys.argv[1], os.O_WRONLY), float(sys.argv[2]), float(sys.argv[3])
begin = last = time.monotonic()
owed, sent = 0.0, 0
while last - begin < seconds:
    time.sleep(0.001)
    now = time.monotonic()
    owed, last = min(owed + (now - last) * rate, rate * 0.002), now
    for _ in range(int(owed)):
        os.write(file, b"change")
    sent += int(owed)
    owed -= int(owed)
print(sent, time.monotonic() - begin)
"""


class Step(NamedTuple):
    """One rate: events really sent per second and in all, how often a loss was told, events dropped."""

    sent_per_s: float
    sent: int
    losses: float
    dropped: int


def measure() -> Iterator[Row]:
    reason = why_not()
    if reason:
        print(f"rates of uevents: not measured, {reason}")
        return
    files = [("that do not count", QUIET)]
    if (counting := waking()) is not None:
        files.append(("that count", counting))
    else:
        print(f"rates of uevents that count: not measured, {MISC} has no device whose uevent can be written")
    plain = {size: _plain(size) for size in (RECEIVE_BUFFER, SMALL)}
    with _watcher() as watcher:
        listener = Listener(watcher.pid)
        for size in (RECEIVE_BUFFER, SMALL):
            if size == SMALL:
                listener.shrink(size)
            for what, file in files:
                steps = list(_steps(file, listener, lambda: watcher.metric(LOST)))
                yield _row(f"events {what}, buffer of {size_text(size)}", steps, plain[size])


def _plain(size: int) -> list[Step]:
    with reader(size) as pid:
        listener = Listener(pid)
        return list(_steps(QUIET, listener, lambda: listener.waits().dropped))


@contextmanager
def _watcher() -> Iterator[Process]:
    """A watcher of this very machine: only such a one hears the kernel."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        environment = clean_environment(
            NODE_NAME="n1", METRICS_ADDR=f"127.0.0.1:{free_port()}", LIKEN_RUN=folder, LIKEN_CLUSTER="local"
        )
        watcher = Process(["-m", "services.watcher"], environment, Path(folder) / "log")
        try:
            yield watcher.wait_ready()
        finally:
            watcher.close()


def _steps(file: Path, listener: Listener, losses: Callable[[], float]) -> Iterator[Step]:
    """Rate after rate up to the first with a loss, or to the highest that one process can send."""
    last_per_s = 0.0
    for rate in RATES:
        before, dropped = losses(), listener.waits().dropped
        done = subprocess.run(
            [sys.executable, "-c", _SENDER, str(file), str(rate), str(SECONDS)],
            capture_output=True,
            text=True,
            check=True,
        )
        sent, seconds = done.stdout.split()
        # a reader that has taken all has also been told of what was lost
        eventually(lambda: listener.waits().bytes == 0, 60, "all events are taken", step_s=0.05)
        per_s = int(sent) / float(seconds)
        yield Step(per_s, int(sent), losses() - before, listener.waits().dropped - dropped)
        if listener.waits().dropped > dropped or (rate > LIKELY and per_s < MORE * last_per_s):
            return
        last_per_s = per_s


def _row(what: str, steps: list[Step], plain: list[Step]) -> Row:
    lost = steps[-1].dropped
    return Row(
        "Uevents: rates",
        f"highest rate without a loss, {SECONDS:.0f} s of {what}",
        _best(steps),
        "per s",
        (Figure(_best(plain), "per s", "a plain process that only takes them"), *_worse(plain)),
        also=(*_worse(steps), Figure(steps[-1].losses, "", "losses told")) if lost else (),
        against="" if lost else "the sender reached no higher rate",
    )


def _best(steps: list[Step]) -> float:
    return max((step.sent_per_s for step in steps if not step.dropped), default=0.0)


def _worse(steps: list[Step]) -> tuple[Figure, ...]:
    """The first rate with a loss, if any."""
    last = steps[-1]
    if not last.dropped:
        return ()
    return (
        Figure(last.sent_per_s, "per s", "first with a loss"),
        Figure(100 * last.dropped / last.sent, "%", "lost there"),
    )
