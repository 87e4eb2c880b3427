"""Waiting in tests: on a condition, with a deadline, never for a fixed time."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
STEP_S = 0.005  # short enough to measure times of 10 ms, long enough to leave the processes their processor


def eventually(
    predicate: Callable[[], T | None], timeout_s: float = 5.0, what: str = "", step_s: float = STEP_S
) -> T:
    """Call `predicate` until it returns something true, and return that.

    An AssertionError or OSError that it raises counts as "not yet". After `timeout_s` seconds an
    AssertionError tells `what` did not come true and what was seen last.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        seen: object
        try:
            result = predicate()
        except (AssertionError, OSError) as error:
            seen = error
        else:
            if result:
                return result
            seen = result
        if time.monotonic() >= deadline:
            raise AssertionError(
                f"not within {timeout_s:g} s: {what or 'the condition'}; last seen: {seen!r}"
            )
        time.sleep(step_s)
