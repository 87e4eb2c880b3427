"""Several claims wait for the lock: each is done once, with its own result, whoever has the turn."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from common.claims import Store
from common.errors import MachineError
from common.locks import FileLock, LockTimeoutError
from services.plugin.calls import CallTime
from services.plugin.holders import Holding
from services.plugin.turns import AT_ONCE, Turn, Turns
from tests.claim_bench import Bench
from tests.unit.claims.shapes import adapter
from tests.waiting import eventually


class Callers:
    """Threads that ask for turns while somebody else holds the lock."""

    def __init__(self, path: Path) -> None:
        self.listed: list[list[Holding]] = []
        self.theirs = FileLock(path)
        self.turns = Turns(FileLock(path).held, self._look, lambda seconds: None)
        self.pool = ThreadPoolExecutor(16)

    def _look(self) -> list[Holding]:
        self.listed.append([])
        return []

    def ask(self, work: Callable[[Turn], Any], call: CallTime | None = None) -> "Future[Any]":
        before = self.turns.waiting
        asked = self.pool.submit(self.turns.do, work, call or CallTime(20.0))
        eventually(lambda: self.turns.waiting > before, 5, "it waits")
        return asked


@pytest.fixture
def callers(tmp_path: Path) -> Iterator[Callers]:
    made = Callers(tmp_path / "lock")
    yield made
    made.pool.shutdown()


def test_all_who_wait_for_the_lock_are_done_in_one_turn_in_the_order_they_asked(callers: Callers) -> None:
    done: list[tuple[int, Turn]] = []

    def work(number: int) -> Callable[[Turn], int]:
        def append(turn: Turn) -> int:
            done.append((number, turn))
            return number

        return append

    with callers.theirs.held(5.0):
        asked = [callers.ask(work(number)) for number in range(8)]
        assert not done
    assert [one.result(5) for one in asked] == list(range(8))
    assert [number for number, _ in done] == list(range(8))
    assert len({id(turn) for _, turn in done}) == 1


def test_an_error_is_told_to_the_claim_that_made_it_and_to_no_other(callers: Callers) -> None:
    def fail(turn: Turn) -> None:
        turn.held_by_others("")
        raise MachineError("the disk is full")

    def look(turn: Turn) -> int:
        turn.held_by_others("")
        return len(callers.listed)

    with callers.theirs.held(5.0):
        before, bad, after = callers.ask(look), callers.ask(fail), callers.ask(look)
    with pytest.raises(MachineError, match="disk is full"):
        bad.result(5)
    # what the failed one may have written is seen by the next
    assert (before.result(5), after.result(5)) == (1, 2)


def test_one_whose_call_is_cancelled_while_it_waits_does_nothing_and_holds_up_nobody(
    callers: Callers,
) -> None:
    done: list[str] = []
    call = CallTime(20.0)
    with callers.theirs.held(5.0):
        first = callers.ask(lambda turn: done.append("first"))
        given_up = callers.ask(lambda turn: done.append("given up"), call)
        last = callers.ask(lambda turn: done.append("last"))
        call.cancelled.set()
        with pytest.raises(MachineError, match="cancelled"):
            given_up.result(5)
        assert not first.done()
    last.result(5)
    first.result(5)
    assert done == ["first", "last"]


def test_one_that_goes_first_and_gives_up_leaves_its_turn_to_the_next(callers: Callers) -> None:
    call = CallTime(20.0)
    with callers.theirs.held(5.0):
        hasty = callers.ask(lambda turn: "hasty", call)
        patient = callers.ask(lambda turn: "patient")
        call.cancelled.set()
        with pytest.raises(LockTimeoutError, match="gave up"):
            hasty.result(5)
        assert callers.turns.waiting == 1
    assert patient.result(5) == "patient"


class Slow:
    """Work that ends when it is told to."""

    def __init__(self) -> None:
        self.began, self.go_on = threading.Event(), threading.Event()

    def __call__(self, turn: Turn) -> str:
        self.began.set()
        assert self.go_on.wait(10)
        return "slow"


def test_work_that_somebody_began_counts_although_its_call_is_cancelled(callers: Callers) -> None:
    """The claim is prepared: an error would say otherwise, and the end of the work be told to nobody."""
    slow, call = Slow(), CallTime(20.0)
    with callers.theirs.held(5.0):
        leader = callers.ask(lambda turn: None)
        asked = callers.ask(slow, call)
    assert slow.began.wait(5)
    call.cancelled.set()
    with pytest.raises(TimeoutError):
        asked.result(0.2)  # four times as long as it takes to notice
    slow.go_on.set()
    assert asked.result(5) == "slow"
    leader.result(5)


def test_one_that_withdraws_in_the_middle_of_a_turn_spoils_nobodys_result(callers: Callers) -> None:
    slow, call = Slow(), CallTime(20.0)
    with callers.theirs.held(5.0):
        leader = callers.ask(slow)
        given_up = callers.ask(lambda turn: None, call)
    assert slow.began.wait(5)
    call.cancelled.set()
    with pytest.raises(MachineError, match="cancelled"):
        given_up.result(5)
    slow.go_on.set()
    assert leader.result(5) == "slow"
    assert callers.pool.submit(callers.turns.do, lambda turn: "next", CallTime(5.0)).result(5) == "next"


def test_who_is_done_goes_on_while_others_of_the_turn_are_at_work(callers: Callers) -> None:
    slow = Slow()
    with callers.theirs.held(5.0):
        leader = callers.ask(lambda turn: "leader")
        quick = callers.ask(lambda turn: "quick")
        last = callers.ask(slow)
    assert slow.began.wait(5)
    assert quick.result(5) == "quick"
    assert not last.done()
    slow.go_on.set()
    assert (leader.result(5), last.result(5)) == ("leader", "slow")


def test_the_lock_is_given_back_after_a_few_claims(callers: Callers) -> None:
    with callers.theirs.held(5.0):
        asked = [callers.ask(lambda turn: turn) for _ in range(2 * AT_ONCE)]
    turns = [one.result(5) for one in asked]
    assert [turn is turns[0] for turn in turns] == AT_ONCE * [True] + AT_ONCE * [False]


def test_of_two_claims_on_one_device_in_one_turn_one_gets_it(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    adapter(bench.machine, "1-2")
    adapter(bench.machine, "1-4", "ttyUSB1")
    claims = [bench.claim("usb-1-2-1-0"), bench.claim("usb-1-2-1-0"), bench.claim("usb-1-4-1-0")]
    with ThreadPoolExecutor(3) as pool:
        with Store(bench.plugin_dir, bench.store.boot).lock(5.0):
            asked = [pool.submit(bench.prepare, claim) for claim in claims]
            eventually(lambda: bench.desk.waiting == 3, 5, "all wait")
        found = [str(one.exception(5) or "") for one in asked]
    assert found[2] == ""
    assert sorted("still held" in one for one in found[:2]) == [False, True]
    given = [bench.paths(claim) for claim in claims]
    assert sorted(map(bool, given[:2])) == [False, True]
    assert given[2]["usb-1-4-1-0"][0] == "/dev/ttyUSB1"


def test_a_device_given_back_in_a_turn_is_free_for_the_next_claim_of_the_turn(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    adapter(bench.machine, "1-2")
    first = bench.take("usb-1-2-1-0")
    second = bench.claim("usb-1-2-1-0")
    with ThreadPoolExecutor(2) as pool:
        with Store(bench.plugin_dir, bench.store.boot).lock(5.0):
            ended = pool.submit(bench.unprepare, first)
            eventually(lambda: bench.desk.waiting == 1, 5, "the first waits")
            begun = pool.submit(bench.prepare, second)
            eventually(lambda: bench.desk.waiting == 2, 5, "the second waits")
        ended.result(5)
        begun.result(5)
    assert bench.paths(first) == {}
    assert bench.paths(second)["usb-1-2-1-0"][0] == "/dev/ttyUSB0"


def test_a_device_that_two_claims_give_back_in_one_turn_has_its_driver_bound_though_both_calls_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each saw the other at its start; who gives up is not told that nothing was done."""
    bench = Bench(tmp_path)
    device = bench.machine.usb("1-2")
    for number in (0, 1):
        bench.machine.tty(bench.machine.interface(device, number, driver="ftdi_sio"), f"ttyUSB{number}")
    adapter(bench.machine, "1-4", "ttyUSB2")
    claims, last = [bench.take(f"usb-1-2-1-{number}") for number in (0, 1)], bench.claim("usb-1-4-1-0")
    bench.machine.unbind(f"{device}/1-2:1.0")
    began, go_on, inspect = threading.Event(), threading.Event(), bench.slots.inspect

    def slow(*words: Any) -> Any:
        began.set()
        assert go_on.wait(10)
        return inspect(*words)

    monkeypatch.setattr(bench.slots, "inspect", slow)
    calls = [CallTime(20.0), CallTime(20.0)]
    with ThreadPoolExecutor(3) as pool:
        with Store(bench.plugin_dir, bench.store.boot).lock(5.0):
            ended = []
            for number, (claim, call) in enumerate(zip(claims, calls, strict=True), start=1):
                ended.append(pool.submit(bench.desk.unprepare, claim, call))
                eventually(lambda wanted=number: bench.desk.waiting == wanted, 5, "it waits")  # type: ignore[misc]
            begun = pool.submit(bench.prepare, last)
            eventually(lambda: bench.desk.waiting == 3, 5, "the last waits")
        assert began.wait(5)
        for call in calls:
            call.cancelled.set()
        go_on.set()
        for one in ended:
            one.result(5)
        begun.result(5)
    assert bench.probe.read_bytes() == b"1-2:1.0"
