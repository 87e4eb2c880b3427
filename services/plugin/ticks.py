"""Tells the others that records changed: at once, and under load not for every claim."""

import asyncio
import contextlib
import threading
from collections.abc import Callable

# The reconciler looks at changed records at most once per 40 ms; a tick for every claim would only wake it.
APART_S = 0.01


class ClaimTicks:
    """Sends the tick "claims" soon after every change. To be made in the thread of the event loop."""

    def __init__(self, send: Callable[[], None]) -> None:
        """`send` sends one tick; it must not block."""
        self._send = send
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._sent_at = float("-inf")
        self._due: asyncio.TimerHandle | None = None

    def changed(self) -> None:
        """Records changed. From any thread; does not block."""
        if threading.get_ident() == self._thread:
            self._plan()
        else:
            with contextlib.suppress(RuntimeError):  # the loop has ended, and everybody sees the plugin go
                self._loop.call_soon_threadsafe(self._plan)

    def _plan(self) -> None:
        if self._due is not None:
            return
        wait_s = self._sent_at + APART_S - self._loop.time()
        if wait_s > 0:
            self._due = self._loop.call_later(wait_s, self._tick)
        else:
            self._tick()

    def _tick(self) -> None:
        self._due = None
        self._sent_at = self._loop.time()
        self._send()
