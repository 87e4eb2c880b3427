"""How long is waited after a failure."""

from services.publisher.backoff import FIRST_S, LONGEST_S, Backoff, Pace


def test_waits_double_up_to_a_limit_and_start_again_after_success() -> None:
    backoff = Backoff()

    waits = [backoff.failed() for _ in range(500)]
    backoff.worked()

    assert all(FIRST_S * 2**n / 2 <= wait <= FIRST_S * 2**n for n, wait in enumerate(waits[:8]))
    assert all(LONGEST_S / 2 <= wait <= LONGEST_S for wait in waits[8:])
    assert backoff.failed() <= FIRST_S


def test_waits_of_many_nodes_are_spread_over_half_of_their_length() -> None:
    waits = sorted(Backoff().failed() for _ in range(1000))

    assert waits[-1] - waits[0] > FIRST_S * 0.45


def test_the_server_is_never_asked_before_the_time_it_named() -> None:
    waits = [Backoff().failed(7.0) for _ in range(1000)]

    assert all(7.0 <= wait <= 7.0 * 1.25 for wait in waits)
    assert max(waits) - min(waits) > 1.0


def test_ten_repairs_come_at_once_and_the_next_after_the_window() -> None:
    pace = Pace(count=10, window_s=60.0)
    for second in range(10):
        assert pace.wait(float(second)) == 0.0
        pace.did(float(second))

    assert pace.wait(10.0) == 50.0
    assert pace.wait(60.0) == 0.0
