"""What is added to supervisord, against its own events."""

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from supervisor import events
from supervisor.states import SupervisorStates

from services.console.supervise import MAX_BACKOFF_S, Watch

BACKOFF, EXITED = events.ProcessStateBackoffEvent, events.ProcessStateExitedEvent


@dataclass
class Options:
    """As much of supervisord's options as the extension touches."""

    mood: int = SupervisorStates.RUNNING
    sockets: dict[int, Any] = field(default_factory=dict)
    ended: list[tuple[int, int]] = field(default_factory=list)
    exit_code: int = -1

    def get_socket_map(self) -> dict[int, Any]:
        return self.sockets

    def waitpid(self) -> tuple[int | None, int | None]:
        return self.ended.pop(0) if self.ended else (None, None)


class Supervisor:
    """A supervisord with one service."""

    def __init__(self) -> None:
        self.options = Options()
        self.watch = Watch(self)
        self.process = SimpleNamespace(config=SimpleNamespace(name="watcher"), pid=0, backoff=0, delay=0.0)

    def starts(self, pid: int) -> None:
        self.process.pid = pid
        events.notify(events.ProcessStateStartingEvent(self.process, None, True))

    def ends(self, code: int, event: Any) -> None:
        self.options.ended.append((self.process.pid, code << 8))
        self.options.waitpid()
        events.notify(event(self.process, None, False))

    def prints(self, data: bytes) -> None:
        events.notify(events.ProcessLogStdoutEvent(self.process, self.process.pid, data))


@pytest.fixture
def supervisor() -> Iterator[Supervisor]:
    yield Supervisor()
    events.clear()


def test_restarts_are_the_starts_after_the_first(supervisor: Supervisor) -> None:
    for pid in (10, 11, 12):
        supervisor.starts(pid)
        supervisor.ends(1, EXITED)
    assert supervisor.watch.restarts() == {"watcher": 2}


def test_the_back_off_of_a_crash_loop_has_an_end(supervisor: Supervisor) -> None:
    supervisor.starts(10)
    supervisor.process.backoff = 500
    supervisor.ends(1, BACKOFF)
    assert supervisor.process.backoff == MAX_BACKOFF_S
    assert supervisor.process.delay == pytest.approx(time.time() + MAX_BACKOFF_S, abs=1.0)
    assert supervisor.options.mood == SupervisorStates.RUNNING


@pytest.mark.parametrize("event", [BACKOFF, EXITED])
def test_a_service_with_wrong_settings_ends_everything(supervisor: Supervisor, event: Any) -> None:
    supervisor.starts(10)
    supervisor.ends(2, event)
    assert (supervisor.options.mood, supervisor.options.exit_code) == (SupervisorStates.SHUTDOWN, 2)


def test_a_service_that_once_ran_never_ends_the_others(supervisor: Supervisor) -> None:
    supervisor.starts(10)
    supervisor.ends(1, EXITED)
    supervisor.starts(11)
    supervisor.ends(2, BACKOFF)
    assert (supervisor.options.mood, supervisor.options.exit_code) == (SupervisorStates.RUNNING, 0)


def test_a_kill_by_signal_2_is_no_word_about_settings(supervisor: Supervisor) -> None:
    supervisor.starts(10)
    supervisor.options.ended.append((10, 2))  # the low byte: killed by SIGINT
    supervisor.options.waitpid()
    events.notify(EXITED(supervisor.process, None, False))
    assert (supervisor.options.mood, supervisor.options.exit_code) == (SupervisorStates.RUNNING, 0)


def test_a_death_wakes_the_loop_at_once(supervisor: Supervisor) -> None:
    (file,) = supervisor.options.sockets
    os.set_blocking(file, False)
    with pytest.raises(BlockingIOError):
        os.read(file, 1)
    supervisor.starts(10)
    supervisor.ends(1, EXITED)
    assert os.read(file, 1)


def test_lines_that_come_in_pieces_are_printed_whole(
    supervisor: Supervisor, capsys: pytest.CaptureFixture[str]
) -> None:
    for piece in (b"one\ntw", b"o\n", b"thr\xff", b"ee\nfour"):
        supervisor.prints(piece)
    assert capsys.readouterr().out.splitlines() == [
        "watcher    one",
        "watcher    two",
        "watcher    thr\ufffdee",
    ]
