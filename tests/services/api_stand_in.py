"""A stand-in for the Kubernetes API server over real HTTP, with faults on demand.

In a test: `with ApiStandIn() as api:` (a thread). By hand: `python -m tests.services.api_stand_in --help`.
"""

import argparse
import signal
import socket
import ssl
import threading
from pathlib import Path
from types import TracebackType
from typing import Any

import yaml

from tests.services.api_faults import Fault, Seen, Verb
from tests.services.api_handler import Server
from tests.services.api_store import ApiStore, Raw


class ApiStandIn:
    """The server. `store` is what it holds, `log` what was asked of it."""

    def __init__(
        self,
        store: ApiStore | None = None,
        *,
        port: int = 0,
        token: str = "",
        certificate: tuple[Path, Path] | None = None,
        bookmark_s: float = 60.0,
    ) -> None:
        self.store = store or ApiStore()
        self.token = token  # "" accepts every request
        self.bookmark_s = bookmark_s
        self.log: list[Seen] = []
        self.faults: list[Fault] = []
        self.muted = threading.Event()  # open watches fall silent
        self.watch_epoch = 0  # open watches of older epochs end
        self.open_watches = 0
        self.bookmarks = 0  # sent so far, on all watches
        self.connections: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._certificate = certificate
        self._port = port
        self._server: Server | None = None

    @property
    def port(self) -> int:
        return self._port

    @property
    def url(self) -> str:
        return f"{'https' if self._certificate else 'http'}://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Listen; after `stop` again on the same port."""
        if self._server is not None:
            return
        self._server = Server(("127.0.0.1", self._port), self)
        self._port = self._server.server_address[1]
        if self._certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*self._certificate)
            self._server.tls = context
        threading.Thread(target=self._server.serve_forever, args=(0.02,), name="api", daemon=True).start()

    def stop(self) -> None:
        """Refuse connections and cut the open ones: the server is away."""
        if self._server is None:
            return
        self._server.shutdown()
        self._server.server_close()
        self._server = None
        for fault in self.faults:
            fault.end.set()
        self.close_watches()
        self.cut()

    def __enter__(self) -> "ApiStandIn":
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def cut(self) -> None:
        """Cut every connection, watches included, without a word."""
        for connection in list(self.connections):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue  # it was closed already

    def close_watches(self) -> None:
        """End every open watch properly, as a server does after 30 to 60 minutes."""
        with self.store.changed:
            self.watch_epoch += 1
            self.store.changed.notify_all()

    def fail(self, verb: Verb, what: Any, **more: Any) -> Fault:
        """Plan a fault; see Fault."""
        fault = Fault(verb, what, **more)
        self.faults.append(fault)
        return fault

    def count(self, verb: str = "", resource: str = "") -> int:
        """Requests of the log; "" for all."""
        with self._lock:
            return sum(
                (not verb or seen.verb == verb) and (not resource or seen.resource == resource)
                for seen in self.log
            )

    def note(self, seen: Seen) -> None:
        with self._lock:
            self.log.append(seen)

    def take_fault(self, verb: str, resource: str) -> Fault | None:
        with self._lock:
            for fault in self.faults:
                if fault.left > 0 and fault.verb == verb and fault.resource in ("", resource):
                    fault.left -= 1
                    fault.met += 1
                    return fault
        return None

    def kubeconfig(self, path: Path, *, token_file: Path | None = None, ca_file: Path | None = None) -> Path:
        """Write a kubeconfig for this server and return its path."""
        cluster: Raw = {"server": self.url}
        if ca_file:
            cluster["certificate-authority"] = str(ca_file)
        user: Raw = {"tokenFile": str(token_file)} if token_file else {"token": self.token or "any"}
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "u", "user": user}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        path.write_text(yaml.safe_dump(content))
        return path


def main() -> None:
    """Serve by hand until Ctrl-C."""
    parser = argparse.ArgumentParser(description="A stand-in for the Kubernetes API server.")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--kubeconfig", type=Path, required=True, help="where to write the kubeconfig")
    parser.add_argument("--node", action="append", default=[], help="a Node to have; may be repeated")
    arguments = parser.parse_args()
    with ApiStandIn(port=arguments.port) as api:
        for node in arguments.node:
            api.store.add_node(node)
        api.kubeconfig(arguments.kubeconfig)
        print(f"serves {api.url}; kubeconfig in {arguments.kubeconfig}", flush=True)
        signal.pause()


if __name__ == "__main__":
    main()
