"""When to walk and when to tick: decisions on a clock that is handed in."""

from collections.abc import Callable


class Settle:
    """One walk per burst of events: `quiet_s` after the last, at the latest `ceiling_s` after the first."""

    def __init__(self, quiet_s: float, ceiling_s: float, now: Callable[[], float]) -> None:
        self._quiet_s = quiet_s
        self._ceiling_s = ceiling_s
        self._now = now
        self._first: float | None = None
        self._last = 0.0

    def stir(self) -> bool:
        """An event came. True when it began a burst: whoever sleeps has to look at `due_in` anew."""
        self._last = self._now()
        began = self._first is None
        if began:
            self._first = self._last
        return began

    def due_in(self) -> float | None:
        """Seconds until the walk is due, 0 when it is; None while nothing happened."""
        if self._first is None:
            return None
        due = min(self._last + self._quiet_s, self._first + self._ceiling_s)
        return max(0.0, due - self._now())

    def take(self) -> float:
        """The walk begins: the moment the burst began, 0.0 without one. Later events are a new burst."""
        first, self._first = self._first, None
        return first or 0.0


class Throttle:
    """At most one tick per `period_s`: the first at once, one more when events came in between."""

    def __init__(self, period_s: float, now: Callable[[], float]) -> None:
        self._period_s = period_s
        self._now = now
        self._next: float | None = None  # the earliest moment of the next tick
        self._waiting = False

    def stir(self) -> bool:
        """An event came. True when its tick goes out now; otherwise it goes out by `take` when it is due."""
        self._waiting = True
        return self.take()

    def due_in(self) -> float | None:
        """Seconds until a tick that waits may go out; None when none waits."""
        if not self._waiting:
            return None
        return max(0.0, self._next - self._now()) if self._next is not None else 0.0

    def take(self) -> bool:
        """True when a tick waits and its time has come; it then counts as sent."""
        if self.due_in() != 0.0:
            return False
        self._waiting = False
        self._next = self._now() + self._period_s
        return True
