"""From a kernel event to what follows: the safe spec here, the slice in to_slice.py."""

import json
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import TracebackType

from common.files import write_atomically
from services.console.uevents import Sent
from tests.bench import to_slice
from tests.bench.node import MeasuredNode, node
from tests.bench.plain import writer
from tests.bench.table import Figure, Promise, Row, spread
from tests.bench.walked import next_walk, settle, unix, walks
from tests.services.machine import address
from tests.waiting import eventually

ADAPTERS = 30
REMOVALS = 100
LOAD_CALLERS = 4
MANY, MANY_AT_ONCE = 1000, 100
MANY_SETTLE_S = 0.5  # shorter than the default, for there is a wait for each of the WALKS
WALKS = 20  # removals in the middle of one
MOST_TURNS = 3  # times as many as are wanted, for some miss the walk
INTO_WALK_S = 0.02  # one takes some 100 ms on the machine of MANY adapters


def measure() -> Iterator[Row]:
    with node(ADAPTERS) as played:
        played.prepare(range(1, ADAPTERS + 1))
        yield from _removals(played, "30 claims, quiet")
        with _load(played):
            yield from _removals(
                played, f"30 claims, {LOAD_CALLERS} callers prepare and unprepare all the time"
            )
    with node(ADAPTERS, settle_s=to_slice.SETTLE_S) as played:
        played.prepare(range(1, ADAPTERS + 1))
        yield from to_slice.measure(played, ADAPTERS)
    with node(MANY, settle_s=MANY_SETTLE_S) as played:
        for first in range(1, MANY, MANY_AT_ONCE):
            played.prepare(range(first, first + MANY_AT_ONCE))
        eventually(lambda: len(played.offered()) == MANY, 60, "the slices are complete")
        yield from _removals(played, f"{MANY} claims, quiet")
        how = f"{MANY} claims, while the watcher walks"
        yield from _removals(played, how, count=WALKS, aim=_IntoWalk(played))


class _Anytime:
    """Removals at any moment."""

    def begin(self) -> None:
        """Called before each removal."""

    def met(self, sent: Sent) -> bool:
        """Whether the removal came at the moment that is measured; called when the spec is safe."""
        return True


class _IntoWalk(_Anytime):
    """Removals in the middle of a walk, which the watcher's own metrics confirm."""

    def __init__(self, played: MeasuredNode) -> None:
        self._watcher = played.process("watcher")
        self._stir = partial(played.send, "bind", f"/devices/pci0000:00/0000:00:14.0/usb1/{address(MANY)}")

    def begin(self) -> None:
        settle(self._watcher, self._stir)
        self._before = walks(self._watcher)
        self._stir()
        time.sleep(MANY_SETTLE_S + INTO_WALK_S)  # nothing tells that a walk begins; `met` finds out

    def met(self, sent: Sent) -> bool:
        walk = next_walk(self._watcher, self._before)
        return walk is not None and walk.begin <= unix(sent.at) < walk.end


def _removals(
    played: MeasuredNode, how: str, count: int = REMOVALS, aim: _Anytime | None = None
) -> Iterator[Row]:
    aim, turn = aim or _Anytime(), 0
    taken: list[float] = []
    while len(taken) < count:
        assert turn < MOST_TURNS * count, f"of {turn} removals only {len(taken)} came as wanted: {how}"
        number = turn % (ADAPTERS // 2) + 1
        path = played.spec_path(played.claims[number])
        full = path.read_bytes()
        aim.begin()
        sent = played.unplug(number)
        safe_s = _safe_at(path) - sent.at
        if aim.met(sent):
            taken.append(safe_s)
        turn += 1
        safe = path.read_bytes()
        played.plug(number)
        eventually(partial(played.is_right, number), 10, "the spec is back", step_s=0.002)
    ours, plain = spread(taken), spread(_plain_removals(played, sent, full, safe))
    if turn > count:
        print(f"{turn - count} of {turn} removals came at another moment and were repeated ({how})")
    beside = f"a plain process that takes the event and writes those {len(safe)} bytes by a rename"
    what = "Hot-plug", f"remove event to safe spec, p50 ({how})"
    yield Row(*what, ours.p50, "ms", (Figure(plain.p50, "ms", beside),))
    word, value, other = "p99", ours.p99, plain.p99
    if count < REMOVALS:
        word, value, other = f"worst of {count}", ours.worst, plain.worst
    yield Row(
        "Hot-plug",
        f"remove event to safe spec, {word} ({how})",
        value,
        "ms",
        (Figure(other, "ms", f"that, {word.split()[0]} of {REMOVALS}"),),
        also=(Figure(ours.worst, "ms", f"worst of {count}"),) if count >= REMOVALS else (),
        promise=Promise("50 ms", 50),
    )


def _plain_removals(played: MeasuredNode, sent: Sent, full: bytes, safe: bytes) -> list[float]:
    """Seconds from the same event to the same bytes, at the hands of a process that does nothing else."""
    path, taken = played.cdi.parent / "plain.json", []  # the same memory as the specs
    with writer(path, safe) as sender:
        for _ in range(REMOVALS):
            write_atomically(path, full)
            begin = time.monotonic()  # not when it was sent: the other has often written by then
            sender.send(sent.action, sent.devpath, {})
            taken.append(_safe_at(path) - begin)
    path.unlink()
    return taken


def _safe_at(path: Path) -> float:
    """When the spec names nodes that do not exist; a read costs 0.1 ms, which is in the figure."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        nodes = [
            each["path"]
            for one in json.loads(path.read_text())["devices"]
            for each in one["containerEdits"]["deviceNodes"]
        ]
        if all(each.startswith("/dev/liken.sh/") for each in nodes):
            return time.monotonic()
        time.sleep(0.0005)
    raise TimeoutError(f"{path} never became safe")


class _load:  # noqa: N801 - a context manager, read as a word
    """Callers that prepare and unprepare claims on the second half of the adapters, without a pause."""

    def __init__(self, played: MeasuredNode) -> None:
        self._played = played
        self._end = threading.Event()
        self._calls = dict.fromkeys(range(LOAD_CALLERS), 0)  # that were answered without an error
        self._errors: list[str] = []
        self._threads = [threading.Thread(target=self._work, args=(each,)) for each in range(LOAD_CALLERS)]

    def __enter__(self) -> "_load":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.set()
        for thread in self._threads:
            thread.join()
        if error is None:
            assert not self._errors, f"the load was none, calls failed: {self._errors[:3]}"
            assert all(self._calls.values()), f"the load was none, calls by caller: {self._calls}"
            print(f"{sum(self._calls.values())} calls of {LOAD_CALLERS} callers were the load, none failed")

    def _work(self, caller: int) -> None:
        claim = self._played.claims[ADAPTERS - caller]
        try:
            while not self._end.is_set():
                self._answered(caller, self._played.kubelet.unprepare(claim)[claim.uid])
                self._answered(caller, self._played.kubelet.prepare(claim)[claim.uid].error)
        except Exception as error:  # noqa: BLE001 - told at the end
            self._errors.append(repr(error))

    def _answered(self, caller: int, error: str) -> None:
        if error:
            self._errors.append(error)
        else:
            self._calls[caller] += 1
