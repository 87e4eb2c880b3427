"""The HTTP of the stand-in API server: paths, answers, watches, misbehaviour."""

import json
import re
import ssl
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote, urlsplit

from tests.services.api_faults import Fault, Seen
from tests.services.api_store import ApiStore, Raw, Refusal

if TYPE_CHECKING:
    from tests.services.api_stand_in import ApiStandIn

SLICES = re.compile(r"/apis/resource\.k8s\.io/v1/resourceslices(?:/([^/]+))?")
CLAIM = re.compile(r"/apis/resource\.k8s\.io/v1/namespaces/([^/]+)/resourceclaims/([^/]+)")
NODE = re.compile(r"/api/v1/nodes/([^/]+)")
EVENTS = re.compile(r"/apis/events\.k8s\.io/v1/namespaces/([^/]+)/events")
NOT_IN_YAML = re.compile("[\x7f-\x9f\u2028\u2029\ufffe\uffff]")  # refused, or read as the end of a line
LOOK_S = 0.02  # how fast an open watch notices that it shall end


class Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True
    request_queue_size = 64

    def __init__(self, address: tuple[str, int], api: "ApiStandIn") -> None:
        self.api = api
        self.tls: ssl.SSLContext | None = None
        super().__init__(address, Handler)

    def finish_request(self, request: Any, client_address: Any) -> None:
        if self.tls is not None:
            request = self.tls.wrap_socket(request, server_side=True)
        self.api.connections.add(request)
        try:
            super().finish_request(request, client_address)
        finally:
            self.api.connections.discard(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Connections that break are the point of many tests."""


class _Cut(Exception):  # noqa: N818 - a way out, not a defect
    """End this connection without an answer."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Server

    def do_GET(self) -> None:
        self.came = time.monotonic()
        self._handle({})

    def do_PATCH(self) -> None:
        self._handle(self._body())

    do_POST = do_PATCH  # noqa: N815 - the name the base class calls
    do_DELETE = do_PATCH  # noqa: N815 - the name the base class calls

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """The log of requests is in ApiStandIn.log."""

    def _body(self) -> Raw:
        self.size_in = int(self.headers.get("Content-Length") or 0)
        content = self.rfile.read(self.size_in)
        self.came = time.monotonic()
        self.yaml_refuses = self.command == "PATCH" and NOT_IN_YAML.search(content.decode()) is not None
        return dict(json.loads(content)) if content else {}

    def _handle(self, body: Raw) -> None:
        parts = urlsplit(self.path)
        self.query = dict(parse_qsl(parts.query))
        self.size_in = getattr(self, "size_in", 0)
        try:
            self._route(parts.path, body)
        except _Cut:
            self.close_connection = True
        except Refusal as refusal:
            self._refuse(refusal, {})

    def _route(self, path: str, body: Raw) -> None:
        api, store = self.server.api, self.server.api.store
        self.verb, self.resource, self.name = "get", "", ""
        if match := SLICES.fullmatch(path):
            self.resource, self.name = "resourceslices", unquote(match[1] or "")
            self._check_token(api)
            self._slices(store, body)
        elif match := CLAIM.fullmatch(path):
            self.resource, self.name = "resourceclaims", f"{match[1]}/{match[2]}"
            key = (unquote(match[1]), unquote(match[2]))
            self._done(lambda: _found(store.claims.get(key), "resourceclaims", self.name))
        elif match := NODE.fullmatch(path):
            self.resource, self.name = "nodes", unquote(match[1])
            self._done(lambda: _found(store.nodes.get(self.name), "nodes", self.name))
        elif EVENTS.fullmatch(path) and self.command == "POST":
            self.verb, self.resource = "create", "events"
            self._done(lambda: _record_event(store, body))
        else:
            raise Refusal(404, "the server could not find the requested resource")

    def _check_token(self, api: "ApiStandIn") -> None:
        if api.token and self.headers.get("Authorization", "").lower() != f"bearer {api.token}".lower():
            raise Refusal(401, "Unauthorized")

    def _slices(self, store: ApiStore, body: Raw) -> None:
        selector = dict(part.split("=", 1) for part in self.query.get("fieldSelector", "").split(",") if part)
        if self.command == "GET" and not self.name and self.query.get("watch") == "true":
            self.verb = "watch"
            self._watch(store, selector)
        elif self.command == "GET" and not self.name:
            self.verb = "list"
            self._done(lambda: _list(store, selector))
        elif self.command == "GET":
            self._done(lambda: _found(store.slices.get(self.name), "resourceslices", self.name))
        elif self.command == "PATCH":
            self.verb = "apply"
            if self.headers["Content-Type"] != "application/apply-patch+yaml" or not self.query.get(
                "fieldManager"
            ):
                raise Refusal(415, "this stand-in knows server-side apply only")
            if self.yaml_refuses:
                raise Refusal(400, "error decoding patch: yaml: control characters are not allowed")
            self._done(lambda: store.apply(self.name, body)[0])
        elif self.command == "DELETE":
            self.verb = "delete"
            self._done(lambda: store.delete(self.name, body.get("preconditions")))

    def _done(self, work: Callable[[], Raw]) -> None:
        fault = self.server.api.take_fault(self.verb, self.resource)
        if fault is None:
            self._send(200, work())
        elif isinstance(fault.what, int):
            self._refuse(Refusal(fault.what, f"planned {fault.what}", fault.causes), fault.headers)
        else:
            self._misbehave(fault, work)

    def _misbehave(self, fault: Fault, work: Callable[[], Raw]) -> None:
        if fault.what == "hang":
            self._note(0, 0)
            fault.end.wait(60)
            raise _Cut
        if fault.what == "late":
            fault.end.wait(fault.seconds)
        answer = work() if fault.what != "cut" else {}
        if fault.what in ("lost", "cut"):
            self._note(0, 0)
            raise _Cut
        if fault.what == "garbage":
            self._write(200, b"<html>not what you asked for</html>")
        elif fault.what == "trickle":
            self._trickle(fault)
        else:
            self._send(200, answer)

    def _trickle(self, fault: Fault) -> None:
        self._note(200, 0)
        self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 9999\r\n\r\n")
        while not fault.end.wait(0.05):
            self.wfile.write(b" ")
        raise _Cut

    def _refuse(self, refusal: Refusal, headers: dict[str, str]) -> None:
        status = {
            "kind": "Status",
            "apiVersion": "v1",
            "status": "Failure",
            "message": str(refusal),
            "code": refusal.code,
            "details": {
                "causes": [{"field": field, "message": text} for field, text in refusal.causes],
            },
        }
        self._send(refusal.code, status, headers)

    def _send(self, status: int, answer: Raw, headers: dict[str, str] | None = None) -> None:
        self._write(status, json.dumps(answer).encode(), headers)

    def _write(self, status: int, content: bytes, headers: dict[str, str] | None = None) -> None:
        self._note(status, len(content))
        head = [f"HTTP/1.1 {status} X", "Content-Type: application/json", f"Content-Length: {len(content)}"]
        head += [f"{key}: {value}" for key, value in (headers or {}).items()]
        self.wfile.write("\r\n".join([*head, "", ""]).encode() + content)

    def _note(self, status: int, size: int) -> None:
        api = self.server.api
        api.note(
            Seen(
                self.verb,
                self.resource,
                self.name,
                status,
                self.size_in,
                size,
                self.came,
                time.monotonic(),
                self.query,
            )
        )
        self.size_in = 0

    def _watch(self, store: ApiStore, selector: dict[str, str]) -> None:
        api = self.server.api
        fault = api.take_fault("watch", "resourceslices")
        if fault is not None:
            self._done_badly(fault)
            return
        version = int(self.query["resourceVersion"])
        store.since(version, selector)  # 410 comes as the answer's status
        self._note(200, 0)
        self.wfile.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        with store.changed:
            api.open_watches += 1
        try:
            self._follow(version, selector, time.monotonic() + float(self.query.get("timeoutSeconds", 3600)))
            self.wfile.write(b"0\r\n\r\n")
        finally:
            with store.changed:
                api.open_watches -= 1

    def _done_badly(self, fault: Fault) -> None:
        if isinstance(fault.what, int):
            self._refuse(Refusal(fault.what, f"planned {fault.what}"), fault.headers)
        else:
            self._misbehave(fault, dict)

    def _follow(self, version: int, selector: dict[str, str], deadline: float) -> None:
        api, store = self.server.api, self.server.api.store
        epoch, bookmark = api.watch_epoch, time.monotonic() + api.bookmark_s
        while time.monotonic() < deadline:
            with store.changed:
                if epoch == api.watch_epoch and not self._news(version, selector):
                    store.changed.wait(min(1.0, max(LOOK_S, bookmark - time.monotonic())))
                if epoch != api.watch_epoch:
                    return
                try:
                    changes = store.since(version, selector)
                except Refusal as refusal:
                    self._chunk({"type": "ERROR", "object": {"code": refusal.code, "message": str(refusal)}})
                    return
                now = store.version
            if api.muted.is_set():
                continue
            for change in changes:
                self._chunk({"type": change.kind, "object": change.object})
                version = change.version
            if time.monotonic() >= bookmark:
                version, bookmark = max(version, now), time.monotonic() + api.bookmark_s
                mark = {"kind": "ResourceSlice", "metadata": {"resourceVersion": str(version)}}
                self._chunk({"type": "BOOKMARK", "object": mark})
                api.bookmarks += 1

    def _news(self, version: int, selector: dict[str, str]) -> bool:
        try:
            return bool(self.server.api.store.since(version, selector)) and not self.server.api.muted.is_set()
        except Refusal:
            return True

    def _chunk(self, event: Raw) -> None:
        line = json.dumps(event).encode() + b"\n"
        self.wfile.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")


def _found(item: Raw | None, resource: str, name: str) -> Raw:
    if item is None:
        raise Refusal(404, f'{resource} "{name}" not found')
    return item


def _list(store: ApiStore, selector: dict[str, str]) -> Raw:
    items, version = store.listed(selector)
    return {"kind": "ResourceSliceList", "metadata": {"resourceVersion": version}, "items": items}


def _record_event(store: ApiStore, body: Raw) -> Raw:
    wrong = [
        key
        for key in ("eventTime", "reportingController", "reportingInstance", "action", "reason")
        if not body.get(key)
    ]
    if wrong or body["type"] not in ("Normal", "Warning") or len(body.get("note", "").encode()) > 1024:
        raise Refusal(422, f"the event is invalid: {wrong}")
    store.events.append(body)
    return body
