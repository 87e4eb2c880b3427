"""When the watcher walks and when it ticks."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from services.watcher.settle import Settle, Throttle

QUIET_S, CEILING_S, PERIOD_S = 1.0, 5.0, 0.01
STEP_S = 2**-10  # sums of it are exact


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


pauses = st.lists(st.integers(min_value=0, max_value=3000).map(lambda steps: steps * STEP_S), max_size=60)


def test_nothing_is_due_before_an_event() -> None:
    settle = Settle(QUIET_S, CEILING_S, Clock())
    assert settle.due_in() is None
    assert settle.take() == 0.0


def test_a_walk_is_due_one_quiet_time_after_the_last_event() -> None:
    clock = Clock()
    settle = Settle(QUIET_S, CEILING_S, clock)
    settle.stir()
    clock.now += 0.5
    settle.stir()
    assert settle.due_in() == QUIET_S
    clock.now += QUIET_S
    assert settle.due_in() == 0.0


def test_a_burst_without_end_is_walked_at_the_ceiling() -> None:
    clock = Clock()
    settle = Settle(QUIET_S, CEILING_S, clock)
    for _ in range(40):
        settle.stir()
        clock.now += 0.125
    assert settle.due_in() == 0.0


def test_only_the_first_event_of_a_burst_wakes_the_walker() -> None:
    settle = Settle(QUIET_S, CEILING_S, Clock())
    assert [settle.stir() for _ in range(4)] == [True, False, False, False]
    settle.take()
    assert settle.stir()


def test_an_event_during_the_walk_is_a_burst_of_its_own() -> None:
    clock = Clock()
    settle = Settle(QUIET_S, CEILING_S, clock)
    settle.stir()
    began = settle.take()
    clock.now += 0.2
    settle.stir()
    assert (began, settle.due_in(), settle.take()) == (100.0, QUIET_S, 100.2)


@given(pauses)
def test_every_event_is_walked_after_it_and_within_the_ceiling(pauses: list[float]) -> None:
    clock = Clock()
    settle = Settle(QUIET_S, CEILING_S, clock)
    events: list[float] = []
    walks: list[float] = []

    def pass_time(seconds: float) -> None:
        end = clock.now + seconds
        while (due := settle.due_in()) is not None and clock.now + due <= end:
            clock.now += due
            settle.take()
            walks.append(clock.now)
        clock.now = end

    for pause in pauses:
        pass_time(pause)
        events.append(clock.now)
        settle.stir()
    pass_time(2 * CEILING_S)
    assert all(any(event <= walk <= event + CEILING_S for walk in walks) for event in events)
    assert len(walks) <= len(events)


def test_the_first_tick_goes_out_at_once_and_the_next_one_waits_its_turn() -> None:
    clock = Clock()
    throttle = Throttle(PERIOD_S, clock)
    assert throttle.stir()
    assert throttle.due_in() is None
    clock.now += PERIOD_S / 4
    assert not throttle.stir()
    assert throttle.due_in() is not None


@given(pauses)
def test_every_event_is_followed_by_a_tick_within_the_period(pauses: list[float]) -> None:
    clock = Clock()
    throttle = Throttle(PERIOD_S, clock)
    events: list[float] = []
    ticks: list[float] = []

    def pass_time(seconds: float) -> None:
        end = clock.now + seconds
        while (due := throttle.due_in()) is not None and clock.now + due <= end:
            clock.now += due
            if throttle.take():
                ticks.append(clock.now)
        clock.now = end

    for pause in pauses:
        pass_time(pause / 100)
        events.append(clock.now)
        if throttle.stir():
            ticks.append(clock.now)
    pass_time(1.0)
    assert all(any(event <= tick <= event + PERIOD_S * 1.001 for tick in ticks) for event in events)
    assert all(later - earlier >= PERIOD_S * 0.999 for earlier, later in itertools.pairwise(ticks))
