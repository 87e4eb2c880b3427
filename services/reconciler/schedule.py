"""When the next pass is due. Decides by times that are given to it; knows no clock and no socket."""

from typing import Literal

Cause = Literal["event", "records", "backstop", "alone", "retry", "start"]

SILENCE_S = 130.0  # the watcher repeats its inventory every 60 s: two missed, and it is away
ALONE_S = 1.0  # a pass as often, while nobody tells of events


class Schedule:
    """Remembers when the last pass and the last inventory were. Times are seconds of one steady clock."""

    def __init__(self, backstop_s: float, now: float) -> None:
        self._backstop_s = backstop_s
        self._pass_at: float | None = None
        self._inventory_at = now
        self._retry = False
        self._connected = False

    def inventory(self, now: float) -> None:
        """An inventory came."""
        self._inventory_at = now

    def watcher(self, connected: bool) -> None:
        """Whether the watcher's socket is connected."""
        self._connected = connected

    def passed(self, now: float, undone: bool) -> None:
        """A pass ended; `undone`: it could not finish its work."""
        self._pass_at = now
        self._retry = undone

    def due(self, now: float) -> Cause | None:
        """Why a pass is due now without any event, None when it is not."""
        if self._pass_at is None:
            return "start"
        if self.due_in(now) > 0:
            return None
        if now - self._pass_at >= self._backstop_s:
            return "backstop"
        return "retry" if self._retry else "alone"

    def due_in(self, now: float) -> float:
        """Seconds until the next pass without an event."""
        if self._pass_at is None:
            return 0.0
        pause = self._backstop_s
        if self._retry or not self._connected:
            pause = min(pause, ALONE_S)
        due = self._pass_at + pause
        # the silence of a connected watcher may begin before the backstop
        silent = max(self._inventory_at + SILENCE_S, self._pass_at + ALONE_S)
        return max(min(due, silent) - now, 0.0)
