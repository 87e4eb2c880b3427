"""Notices that the place of a sender was taken away, and has it made again."""

import logging
import time
from collections.abc import Callable

from common.attempts import LONGEST_PAUSE_S, Attempts
from common.bus.place import Place
from common.errors import LikenError
from common.inotify import COMES_OR_GOES, Inotify

log = logging.getLogger(__name__)

BACKSTOP_S = 60.0  # a folder above ours that is renamed says nothing to us
WITHOUT_EVENTS_S = 5.0  # the system gives no inotify: looking costs some 50 microseconds


class Keeper:
    """Keeps one place, for one thread."""

    def __init__(self, place: Place, bind: Callable[[], None]) -> None:
        """`bind` listens at the place; it may raise LikenError."""
        self._place = place
        self._bind = bind
        self._attempts = Attempts()
        self._complaint = ""  # why the place cannot be made again, as told last
        self._events: Inotify | None = None
        self._watch: int | None = None
        try:
            self._events = Inotify()
        except OSError as error:
            log.warning(
                "cannot watch %s: %s; it is looked at every %.0f s",
                place.folder,
                error.strerror,
                WITHOUT_EVENTS_S,
            )
        self._follow()

    def files(self) -> list[Inotify]:
        """What to poll: readable when it is time for `look`."""
        return [] if self._events is None else [self._events]

    def look(self) -> float:
        """Make the place again if it is lost and an attempt is due; the seconds until the next look."""
        if self._events is not None:
            self._events.drain()
        lost = self._place.lost()
        if not lost:
            self._complaint = ""
            return WITHOUT_EVENTS_S if self._watch is None else BACKSTOP_S
        now = time.monotonic()
        if wait_s := self._attempts.wait(now):
            return wait_s
        self._attempts.did(now)
        self._make(lost)
        return self._attempts.wait(now)  # to see what went away meanwhile

    def close(self) -> None:
        if self._events is not None:
            self._events.close()

    def _make(self, lost: str) -> None:
        try:
            self._place.take()
            self._follow()
            self._bind()
        except LikenError as error:
            if str(error) != self._complaint:
                log.warning(
                    "%s: %s; readers that are connected still hear this process, new ones do not; it is tried"
                    " again every %.0f s",
                    lost,
                    error,
                    LONGEST_PAUSE_S,
                )
            self._complaint = str(error)
        else:
            log.warning("%s: made again; connected readers were not cut off, new ones find it", lost)

    def _follow(self) -> None:
        # by its name: a folder that was made again is another one
        if self._events is None:
            return
        if self._watch is not None:
            self._events.remove(self._watch)
        try:
            self._watch = self._events.add(self._place.folder, COMES_OR_GOES)
        except OSError as error:
            self._watch = None
            log.warning("cannot watch %s: %s; it is looked at again soon", self._place.folder, error.strerror)
