"""What supervisord does not do by itself: loaded into it by images/supervisord.conf as an RPC interface.

- a signal or a death wakes it at once; its own loop sleeps for up to a second
- the back-off of a crash loop grows to MAX_BACKOFF_S and no further
- a service whose first start ends with 2 was set up wrongly: all four end, and `liken up` with that code
- what the services print goes to the console as well as to their log files
- restarts are counted, for `liken status`
"""

import os
import signal
import sys
import time
from typing import Any

from supervisor import events
from supervisor.states import SupervisorStates

MAX_BACKOFF_S = 30  # the longest wait before a service that dies at its start is tried again
_LONGEST_LINE = 1 << 16  # bytes; who writes more without an end of line loses the beginning
WRONG_SETTINGS = 2  # the exit code of a service that cannot run with what it was told


class Watch:
    """The RPC interface `liken`; its public methods can be called over the control socket."""

    def __init__(self, supervisord: Any) -> None:
        self._options = supervisord.options
        self._starts: dict[str, int] = {}
        self._waker = _Waker(self._options.get_socket_map())
        self._options.exit_code = 0
        self._codes: dict[int, int] = {}
        self._unfinished: dict[str, bytes] = {}  # the beginning of a line that a service is still writing
        self._listen_to_exits()
        events.subscribe(events.ProcessStateEvent, self._process_changed)
        events.subscribe(events.ProcessLogEvent, self._process_spoke)
        events.subscribe(events.SupervisorRunningEvent, self._running)

    def restarts(self) -> dict[str, int]:
        """How often each service was started again since `liken up`."""
        return {name: starts - 1 for name, starts in sorted(self._starts.items())}

    def _listen_to_exits(self) -> None:
        # supervisord forgets the code of a process that dies within startsecs: it is noted where it is reaped
        waitpid = self._options.waitpid

        def noting() -> tuple[int | None, int | None]:
            pid, status = waitpid()
            if pid and os.WIFEXITED(status):
                self._codes[pid] = os.WEXITSTATUS(status)
            return pid, status

        self._options.waitpid = noting

    def _running(self, _event: Any) -> None:
        # a closed terminal ends `liken up`; supervisord's own answer to SIGHUP is to start everything again
        signal.signal(signal.SIGHUP, lambda *_: os.kill(os.getpid(), signal.SIGTERM))
        self._waker.wake_on_signals()
        os.register_at_fork(after_in_child=_forget_signals)

    def _process_changed(self, event: Any) -> None:
        process, name = event.process, event.process.config.name
        if isinstance(event, events.ProcessStateStartingEvent):
            self._starts[name] = self._starts.get(name, 0) + 1
            return
        if not isinstance(event, events.ProcessStateBackoffEvent | events.ProcessStateExitedEvent):
            return
        if self._codes.pop(process.pid, None) == WRONG_SETTINGS and self._starts.get(name) == 1:
            self._give_up(name)  # later the others do work, and what was wrong (a port in use) may pass
        elif isinstance(event, events.ProcessStateBackoffEvent):
            process.backoff = min(process.backoff, MAX_BACKOFF_S)
            process.delay = time.time() + process.backoff
            _print(f"{name} ended soon after its start: trying again in {process.backoff} s")
        else:
            _print(f"{name} ended: starting it again")
        self._waker.wake()

    def _give_up(self, name: str) -> None:
        if self._options.mood == SupervisorStates.RUNNING:
            _print(f"{name} cannot run with these settings: stopping")
            self._options.mood = SupervisorStates.SHUTDOWN
        self._options.exit_code = WRONG_SETTINGS

    def _process_spoke(self, event: Any) -> None:
        name = event.process.config.name
        *lines, rest = (self._unfinished.pop(name, b"") + event.data).split(b"\n")
        if rest:
            self._unfinished[name] = rest[-_LONGEST_LINE:]
        for line in lines:
            _print(f"{name:10} {line.decode(errors='replace')}")


class _Waker:
    """A pipe in supervisord's loop. The methods are those its loop calls on a dispatcher."""

    def __init__(self, sockets: dict[int, Any]) -> None:
        self._read, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        sockets[self._read] = self

    def wake(self) -> None:
        try:
            os.write(self._write, b"\0")
        except BlockingIOError:
            return  # full: a wake is under way already

    def wake_on_signals(self) -> None:
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def handle_read_event(self) -> None:
        os.read(self._read, 4096)

    def handle_error(self) -> None:
        error = sys.exc_info()[1]
        _print(f"the supervisor's wake-up failed ({error}): restarts may take a second longer")


def _forget_signals() -> None:
    # a new child has supervisord's handlers until it runs its program: they would swallow an early SIGTERM
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)


def _print(line: str) -> None:
    try:
        print(line, flush=True)
    except (OSError, ValueError):
        return  # the console is gone (closed terminal or pipe); the log files have it all


def make_rpcinterface(supervisord: Any, **_config: Any) -> Watch:
    """Called by supervisord as images/supervisord.conf says."""
    return Watch(supervisord)
