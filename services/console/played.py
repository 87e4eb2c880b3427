"""`liken unplug` and `liken plug`, for the machine that `liken up --root` plays."""

from pathlib import Path

from common.errors import RequestError
from services.console.output import say
from services.console.play import Player
from services.console.state import State
from services.console.uevents import Sent


def unplug(path: str, slow_s: float, folder: Path | None) -> None:
    _say("unplugged", path, _player(folder).unplug(path, slow_s))


def plug(path: str, folder: Path | None) -> None:
    _say("plugged", path, _player(folder).plug(path))


def _player(folder: Path | None) -> Player:
    state = State(folder)
    settings = state.settings()
    if settings.root != state.machine:
        raise RequestError(
            "this machine is not played: unplug its hardware by hand,"
            " or play a recording with liken up --root"
        )
    return Player(settings.root, settings.run)


def _say(done: str, path: str, sent: tuple[Sent, ...]) -> None:
    lost = sum(not event.heard for event in sent)
    note = f"; {lost} were heard by nobody, as no watcher listens" if lost else ""
    say(f"{done} {path}: {len(sent)} events{note}")
