"""What every process is: signals, health, one listener for metrics and probes, one clean end."""

import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from prometheus_client import CollectorRegistry

from common.errors import LikenError, MachineError, RequestError
from common.logs import set_up_logs
from common.metrics import exposition, new_registry
from common.settings import Service, Settings, read_settings

log = logging.getLogger(__name__)

BEAT_WITHIN_S = (
    150.0  # the slowest loop turns every 60 s (the inventory's heartbeat); more than two missed is ill
)
REQUEST_LIMIT_S = 5.0  # a client that sends nothing loses its connection
EXIT_OK, EXIT_FAILED, EXIT_WRONG_SETTINGS = 0, 1, 2
_PR_SET_PDEATHSIG = 1  # prctl(2)
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Stop(threading.Event):
    """The order to end. Like an Event, and also a file for loops that poll: readable once set."""

    def __init__(self) -> None:
        super().__init__()
        self._file = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._callbacks: list[Callable[[], None]] = []

    def fileno(self) -> int:
        return self._file

    def set(self) -> None:
        super().set()
        os.eventfd_write(self._file, 1)
        for callback in self._callbacks:
            callback()

    def call(self, callback: Callable[[], None]) -> None:
        """Have `callback` called, from another thread, when the order comes; at once if it has come."""
        self._callbacks.append(callback)
        if self.is_set():
            callback()


class Context:
    """What a service is given: its settings, the order to stop, its registry, and a way to tell it lives."""

    def __init__(self, service: Service, settings: Settings) -> None:
        self.service = service
        self.settings = settings
        self.stop = Stop()
        self.registry: CollectorRegistry = new_registry(service)
        self.beat_within_s = BEAT_WITHIN_S
        self._ready = threading.Event()
        self._beat = time.monotonic()

    def beat(self) -> None:
        """The service's loop turned once more."""
        self._beat = time.monotonic()

    def ready(self, yes: bool = True) -> None:
        """Whether this process can do its work."""
        if yes:
            self._ready.set()
        else:
            self._ready.clear()

    def health(self) -> tuple[bool, str]:
        age = time.monotonic() - self._beat
        return age < self.beat_within_s, f"the loop turned {age:.0f} s ago"

    def readiness(self) -> tuple[bool, str]:
        yes = self._ready.is_set() and not self.stop.is_set()
        return yes, "ready" if yes else "not ready"


def run_service(
    service: Service, start: Callable[[Context], None], environ: Mapping[str, str] = os.environ
) -> int:
    """Run `start` until it returns; it ends soon after `context.stop` is set by SIGTERM or SIGINT.

    Returns the exit code: 0, 1 when the machine or we ourselves failed, 2 when the settings are wrong. A
    thread waits for the signals: a handler could interrupt the main thread anywhere, even inside the very
    lock that the order to stop needs.
    """
    if "LIKEN_SUPERVISOR" in environ and not _end_with(environ["LIKEN_SUPERVISOR"]):
        print(f"liken {service}: ends because `liken up` ended", file=sys.stderr)
        return EXIT_FAILED
    try:
        settings = read_settings(service, environ)
        set_up_logs(service, settings)
        context = Context(service, settings)
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        threading.Thread(target=_await_signal, args=(context.stop,), name="signals", daemon=True).start()
        listen(context)
    except LikenError as error:
        print(f"liken {service}: {error}", file=sys.stderr)
        return EXIT_WRONG_SETTINGS if isinstance(error, RequestError) else EXIT_FAILED
    return _run(context, start)


def _run(context: Context, start: Callable[[Context], None]) -> int:
    try:
        start(context)
    except RequestError as error:
        log.critical("%s", error)
        return EXIT_WRONG_SETTINGS
    except MachineError as error:
        log.critical("%s", error)
        return EXIT_FAILED
    except Exception:
        log.critical("ends because of a defect of liken; please report the lines below", exc_info=True)
        return EXIT_FAILED
    return EXIT_OK


def _end_with(supervisor: str) -> bool:
    """Have the kernel send SIGTERM when the supervisor, our parent, dies; False when it is dead already.

    A supervisor that is killed cannot end its services, and they would hold the sockets of the next ones.
    """
    import ctypes  # late: under a container runtime nobody needs it

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    return str(os.getppid()) == supervisor


def _await_signal(stop: Stop) -> None:
    number = signal.sigwait(_SIGNALS)
    log.info("stops: %s", signal.Signals(number).name)
    stop.set()


def listen(context: Context) -> int:
    """Serve /metrics, /healthz and /readyz on METRICS_ADDR; return the port, 0 when it is turned off.

    Raises RequestError when the address is not to be had.
    """
    address = context.settings.metrics_addr
    if not address:
        return 0
    try:
        server = _Server(context, _bind(address))
    except OSError as error:
        number = error.errno or 0
        why = os.strerror(number) if number > 0 else str(error.args[-1])
        raise RequestError(
            f"cannot listen on METRICS_ADDR={address!r}: {why}; set METRICS_ADDR to an"
            " address that is free, or to nothing to do without metrics"
        ) from error
    threading.Thread(target=server.serve, name="http", daemon=True).start()
    return int(server.server_address[1])


def _bind(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    if not host:
        try:
            return socket.create_server(("", int(port)), family=socket.AF_INET6, dualstack_ipv6=True)
        except OSError as error:
            if isinstance(error, PermissionError) or "in use" in (error.strerror or ""):
                raise
            return socket.create_server(("", int(port)))  # a machine without IPv6
    return socket.create_server((host, int(port)), family=socket.AF_INET6 if ":" in host else socket.AF_INET)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, context: Context, listener: socket.socket) -> None:
        super().__init__(listener.getsockname()[:2], _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listener
        self.server_address = listener.getsockname()[:2]
        self.context = context

    def serve(self) -> None:
        # not serve_forever: it wakes twice a second to ask whether to end; this thread ends with the process
        while True:
            self.handle_request()

    def handle_error(self, *_client: object) -> None:
        log.debug("a client of the metrics listener went away", exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = REQUEST_LIMIT_S

    def do_GET(self) -> None:
        context = self.server.context
        path = self.path.partition("?")[0]
        if path == "/metrics":
            self._answer(200, *exposition(context.registry))
        elif path in ("/healthz", "/readyz"):
            good, words = context.health() if path == "/healthz" else context.readiness()
            self._answer(200 if good else 503, "text/plain; charset=utf-8", f"{words}\n".encode())
        else:
            self._answer(404, "text/plain; charset=utf-8", b"there is /metrics, /healthz and /readyz\n")

    def _answer(self, status: int, content_type: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name the base class has
        log.debug(format, *args)
