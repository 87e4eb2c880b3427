"""`liken up`: what can be wrong is found before the first process starts; then supervisord runs."""

import os
import socket
import sys
from collections.abc import Mapping
from pathlib import Path

from common.errors import MachineError, RequestError
from common.settings import DEFAULT_METRICS_ADDR, SERVICES, Service, Settings, read_settings
from services.console.machine import lay_out
from services.console.output import say
from services.console.state import SCHEMA, State, Up

_INHERITED = ("NODE_NAME", "LIKEN_")  # what up.json keeps of the environment, for the other commands


def run(folder: Path | None, root: Path | None, environ: Mapping[str, str] = os.environ) -> int:
    """Run the four until they are told to end; returns the exit code.

    Raises RequestError or MachineError before anything runs.
    """
    state = State(folder, environ)
    settings = _settings(state, root, environ)
    state.make()
    lock = state.hold()
    try:
        for service, each in settings.items():
            check_port(service, each.metrics_addr)
        if root is not None and root != Path("/"):
            say(f"lays out {root} in {state.machine}")
            lay_out(root, state.machine)
        _check_machine_file(settings["watcher"], state, root)
        told = environment(state, root, environ)
        kept = {name: value for name, value in told.items() if name.startswith(_INHERITED)}
        state.write(Up(SCHEMA, kept, str(root.resolve()) if root else ""))
        os.environ.update(told)
        say(f"liken runs; state {state.folder}; machine {root or 'this one'}; Ctrl-C ends it")
        return _supervise()
    finally:
        os.close(lock)


def _settings(state: State, root: Path | None, environ: Mapping[str, str]) -> dict[Service, Settings]:
    told = environment(state, root, environ)
    return {
        service: read_settings(service, {**told, "METRICS_ADDR": address})
        for service, address in metrics_addresses(environ).items()
    }


def environment(state: State, root: Path | None, environ: Mapping[str, str]) -> dict[str, str]:
    """What supervisord and the four get to see."""
    local = environ.get("LIKEN_CLUSTER", "local") == "local"
    folders = state.folders() if local else {"LIKEN_RUN": state.folders()["LIKEN_RUN"]}
    told = {"LIKEN_CLUSTER": "local", **environ, **folders}
    if root is not None and root != Path("/"):
        told |= {
            "LIKEN_ROOT": str(state.machine),
            "LIKEN_HOST_PROC": str(state.machine / "proc"),
            "LIKEN_HOST_MODULES": str(state.machine / "lib/modules"),
            "LIKEN_HOST_BUS": str(state.machine / "sys/bus"),
        }
    told |= {"LIKEN_STATE": str(state.folder), "LIKEN_PYTHON": sys.executable}
    told["LIKEN_SUPERVISOR"] = str(os.getpid())  # supervisord runs in this process
    # supervisord does not start without a folder for temporary files, and a read-only root has no other
    told.setdefault("TMPDIR", str(state.folder))
    for service, address in metrics_addresses(environ).items():
        told[f"LIKEN_METRICS_{service.upper()}"] = address
    return told


def metrics_addresses(environ: Mapping[str, str]) -> dict[Service, str]:
    """Where each of the four serves its metrics. One METRICS_ADDR gives the first its port, the others the
    three that follow; port 0 lets each have any."""
    given = environ.get("METRICS_ADDR")
    if given is None:
        return dict(DEFAULT_METRICS_ADDR)
    host, separator, port = given.rpartition(":")
    if not separator or not port.isascii() or not port.isdigit() or int(port) == 0:
        return dict.fromkeys(SERVICES, given)  # read_settings judges it
    return {service: f"{host}:{int(port) + number}" for number, service in enumerate(SERVICES)}


def check_port(service: Service, address: str) -> None:
    """Raise RequestError unless `service` can listen on `address`."""
    if not address:
        return
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    both = not host and socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both or ":" in host else socket.AF_INET
    try:
        socket.create_server((host, int(port)), family=family, dualstack_ipv6=both).close()
    except OSError as error:
        raise RequestError(
            f"the {service} cannot serve its metrics on {address} ({os.strerror(error.errno or 0)}):"
            " set METRICS_ADDR to a HOST:PORT with four free ports from there on, or to nothing to do without"
        ) from error


def _check_machine_file(settings: Settings, state: State, root: Path | None) -> None:
    from common.hardware.machine import FILE, file_of, load_machine

    copied = root is not None and settings.machine == state.machine / FILE
    load_machine(settings.machine, file_of(root) if root is not None and copied else "")


def configuration() -> Path:
    """The one supervisord.conf: beside this module where liken is installed, in images/ of a checkout."""
    here = Path(__file__).resolve()
    for path in (here.with_name("supervisord.conf"), here.parents[2] / "images/supervisord.conf"):
        if path.is_file():
            return path
    raise MachineError("supervisord.conf is missing from this installation: install liken again")


def _supervise() -> int:
    from supervisor.options import ServerOptions
    from supervisor.supervisord import go

    options = ServerOptions()
    options.realize(["-n", "-c", str(configuration())])
    options.first, options.test = True, False
    go(options)
    options.close_httpservers()
    options.close_logger()
    return int(options.exit_code)
