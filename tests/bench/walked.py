"""The walks of a watcher, by its own metrics."""

import time
from collections.abc import Callable
from typing import NamedTuple, Protocol

from tests.waiting import eventually

COUNT, SECONDS = "liken_walk_seconds_count", "liken_walk_seconds_sum"
ENDED = "liken_inventory_timestamp_seconds"


class Watcher(Protocol):
    """What answers HTTP requests with a status and a body."""

    def get(self, path: str) -> tuple[int, str]: ...


class Walks(NamedTuple):
    """How many walks have ended, the seconds of all together, the Unix time of the end of the last."""

    done: int
    seconds: float
    ended: float


class Walk(NamedTuple):
    """Unix times."""

    begin: float
    end: float


def walks(watcher: Watcher) -> Walks:
    status, page = watcher.get("/metrics")
    assert status == 200, page
    values = dict(line.rsplit(" ", 1) for line in page.splitlines() if not line.startswith("#"))
    return Walks(int(float(values[COUNT])), float(values[SECONDS]), float(values[ENDED]))


def next_walk(watcher: Watcher, before: Walks, timeout_s: float = 30.0) -> Walk | None:
    """The first walk that ended after `before`; None when more than one did, and nobody knows when."""

    def ended() -> Walks | None:
        now = walks(watcher)
        return now if now.done > before.done else None

    now = eventually(ended, timeout_s, "the watcher walks")
    if now.done > before.done + 1:
        return None
    return Walk(now.ended - (now.seconds - before.seconds), now.ended)


def settle(watcher: Watcher, stir: Callable[[], object]) -> None:
    """Give the watcher reason for a walk by `stir`, and come back when one that began after that has ended.

    All that happened before is then settled and walked, too.
    """
    before, stirred = walks(watcher), time.time()
    stir()
    while (walk := next_walk(watcher, before)) is None or walk.begin < stirred:
        before = walks(watcher)


def unix(monotonic: float) -> float:
    """The Unix time of a moment of time.monotonic()."""
    return time.time() - (time.monotonic() - monotonic)
