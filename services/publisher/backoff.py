"""How long to wait after a failure, so that many nodes do not come back together."""

import random
from collections import deque

FIRST_S = 0.25
LONGEST_S = 60.0
REPAIRS = 10  # so many at once; then somebody is undoing our work again and again
REPAIR_WINDOW_S = 60.0


class Backoff:
    """Doubling waits with jitter, up to `longest_s`."""

    def __init__(self, first_s: float = FIRST_S, longest_s: float = LONGEST_S) -> None:
        self._first_s = first_s
        self._longest_s = longest_s
        self._failures = 0

    def failed(self, at_least_s: float = 0.0) -> float:
        """Seconds to wait now: never less than the server asked for (`at_least_s`), and never all alike."""
        step = min(self._first_s * 2.0 ** min(self._failures, 32), self._longest_s)
        self._failures += 1
        if at_least_s > step / 2:
            return at_least_s * random.uniform(1.0, 1.25)
        return step * random.uniform(0.5, 1.0)

    def worked(self) -> None:
        self._failures = 0


class Pace:
    """Bounds how often the same thing is put right."""

    def __init__(self, count: int = REPAIRS, window_s: float = REPAIR_WINDOW_S) -> None:
        self._window_s = window_s
        self._times: deque[float] = deque(maxlen=count)

    def wait(self, now: float) -> float:
        """Seconds until the next one is due; 0 for now."""
        if len(self._times) < (self._times.maxlen or 0):
            return 0.0
        return max(0.0, self._times[0] + self._window_s - now)

    def did(self, now: float) -> None:
        self._times.append(now)
