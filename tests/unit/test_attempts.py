"""How often something that others take away may be put back."""

from common.attempts import CALM_S, FIRST_PAUSE_S, LONGEST_PAUSE_S, Attempts


def pauses(attempts: Attempts, count: int) -> list[float]:
    """The waits after each of `count` attempts that are made as soon as they may be."""
    now, found = 1000.0, []
    for _ in range(count):
        attempts.did(now)
        found.append(attempts.wait(now))
        now += found[-1]
    return found


def test_the_first_attempt_is_made_at_once() -> None:
    assert Attempts().wait(0.0) == 0.0


def test_the_pauses_double_up_to_the_longest() -> None:
    found = [round(pause, 6) for pause in pauses(Attempts(), 8)]
    assert found == [FIRST_PAUSE_S, 0.2, 0.4, 0.8, 1.6, 3.2, LONGEST_PAUSE_S, LONGEST_PAUSE_S]


def test_after_a_calm_time_the_pauses_begin_anew() -> None:
    attempts = Attempts()
    pauses(attempts, 8)
    later = 2000.0 + CALM_S
    assert attempts.wait(later) == 0.0
    attempts.did(later)
    assert round(attempts.wait(later), 6) == FIRST_PAUSE_S


def test_a_wait_ends_when_its_time_is_over() -> None:
    attempts = Attempts()
    attempts.did(10.0)
    assert attempts.wait(10.0 + FIRST_PAUSE_S) == 0.0
