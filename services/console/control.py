"""Talking to the supervisor of a state folder over its unix socket."""

import time
import xmlrpc.client
from typing import Any, NamedTuple

from common.errors import MachineError
from services.console.state import State

STOP_S = 15.0  # stopwaitsecs of supervisord.conf, and then what a SIGKILL takes on a busy machine


class Process(NamedTuple):
    """One of the four. `uptime_s` is 0 while it does not run; `state` is supervisord's word."""

    name: str
    state: str
    pid: int
    uptime_s: int
    restarts: int


def processes(state: State) -> list[Process]:
    """The four processes, in the order of their names.

    Raises MachineError when the supervisor does not answer.
    """
    server = _server(state)
    try:
        restarts = server.liken.restarts()
        infos = server.supervisor.getAllProcessInfo()
    except (OSError, xmlrpc.client.Error) as error:
        raise MachineError(
            f"the supervisor does not answer on {state.control} ({error}): try again"
        ) from error
    return sorted(_process(info, restarts) for info in infos)


def stop(state: State) -> bool:
    """End the supervisor and the four; False when nothing was up.

    Raises MachineError when it does not end.
    """
    pid = state.holder()
    if pid is None:
        return False
    try:
        _server(state).supervisor.shutdown()
    except (OSError, xmlrpc.client.Error) as error:
        if state.holder() is not None:
            raise MachineError(
                f"the supervisor (process {pid}) does not answer ({error}): end it with kill {pid}"
            ) from error
    deadline = time.monotonic() + STOP_S
    while state.holder() is not None:
        if time.monotonic() > deadline:
            raise MachineError(f"process {pid} does not end: end it with kill -9 {pid}")
        time.sleep(0.05)
    return True


def _process(info: dict[str, Any], restarts: dict[str, int]) -> Process:
    runs = info["pid"] > 0
    return Process(
        name=info["name"],
        state=info["statename"].lower(),
        pid=info["pid"],
        uptime_s=max(0, info["now"] - info["start"]) if runs else 0,
        restarts=restarts.get(info["name"], 0),
    )


def _server(state: State) -> Any:
    from supervisor.xmlrpc import SupervisorTransport  # late: only two commands need it

    # the host is not looked up: the transport connects to the socket
    return xmlrpc.client.ServerProxy(
        "http://localhost/RPC2", transport=SupervisorTransport(serverurl=f"unix://{state.control}")
    )
