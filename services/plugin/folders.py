"""Tells when somebody may have removed a socket: a change in one of the folders that hold them."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable
from pathlib import Path

from common.inotify import COMES_OR_GOES, Inotify

log = logging.getLogger(__name__)


class Folders:
    """Watches folders for one event loop, which has to run when this is made."""

    def __init__(self, folders: Iterable[Path], changed: Callable[[], None]) -> None:
        """`changed` is called in the loop. Without inotify nobody ever calls it: `follow` tells."""
        self._folders = sorted(set(folders))
        self._changed = changed
        self._watches: list[int] = []
        self._events: Inotify | None = None
        self._loop = asyncio.get_running_loop()
        try:
            self._events = Inotify()
        except OSError as error:
            log.warning("cannot watch the folders of the sockets: %s; they are looked at", error.strerror)
            return
        self._loop.add_reader(self._events.fileno(), self._came)

    def follow(self) -> bool:
        """Watch what has the folders' names now, as one may have been made again. Whether all are watched."""
        if self._events is None:
            return False
        before, self._watches = self._watches, []
        with contextlib.suppress(OSError):  # gone just now: whoever binds there makes it again
            for folder in self._folders:
                self._watches.append(self._events.add(folder, COMES_OR_GOES))
        for watch in set(before) - set(self._watches):  # not those that stay: each that ends is an event
            self._events.remove(watch)
        return len(self._watches) == len(self._folders)

    def close(self) -> None:
        if self._events is not None:
            self._loop.remove_reader(self._events.fileno())
            self._events.close()
            self._events = None

    def _came(self) -> None:
        if self._events is not None:
            self._events.drain()
            self._changed()
