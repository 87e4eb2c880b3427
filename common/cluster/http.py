"""Requests to the Kubernetes API: credentials, time limits, and what an answer means.

The official client finds and refreshes the credentials and owns the connections; requests go through its
connection pool directly, because its generated methods validate and copy every argument and every body.
"""

import contextlib
import http.client
import os
import re
import threading
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import msgspec

from common.cluster.credentials import SERVICE_ACCOUNT, Session, open_session
from common.cluster.port import MAX_TEXT, Cause, ClusterUnavailable, OutOfDate, Raw, Refused, one_line
from common.errors import LikenError

if TYPE_CHECKING:
    from urllib3.response import BaseHTTPResponse

CONNECT_S = 3.0
ANSWER_S = 15.0  # the API server gives up on most requests after 60 s; we ask again instead
LONGEST_RETRY_AFTER_S = 600.0  # nobody is left alone for longer, whatever a server asks for
MAX_ANSWER_BYTES = 64 * 1024 * 1024  # eight full slices are below 10 MB
_CHUNK = 64 * 1024
_NOT_IN_YAML = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
_NOT_NOW = (401, 403, 408, 429)  # besides 5xx: the same content may be accepted later


class Missing(LikenError):  # noqa: N818 - said as it is
    """The server answered 404."""


class Api:
    """Thread-safe requests; opens itself at the first one, and again when a credential file changed."""

    def __init__(self, environ: Mapping[str, str] = os.environ, account: Path = SERVICE_ACCOUNT) -> None:
        self._environ = environ
        self._account = account
        self._lock = threading.Lock()
        self._session: Session | None = None
        self._streams: set[BaseHTTPResponse] = set()
        self._closed = False

    def open(self) -> Session:
        """The session to use now. Raises ClusterUnavailable when there are no usable credentials."""
        session = self._session
        if session is not None and session.current():
            return session
        with self._lock:
            now = self._session
            if now is None or now is session:  # nobody else renewed it meanwhile
                now = self._session = open_session(self._environ, self._account)
            return now

    def request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Raw | None = None,
        content_type: str = "application/json",
        timeout_s: float = ANSWER_S,
    ) -> Raw:
        """Send one request and return the object of the answer.

        Raises Missing (404), OutOfDate (409, 410), Refused (the content is not acceptable),
        ClusterUnavailable (anything that may be otherwise later). A write that raises ClusterUnavailable may
        have happened.
        """
        deadline = time.monotonic() + timeout_s
        data = None if body is None else encode(body)
        try:
            response = self._send(method, path, query, data, content_type, timeout_s, timeout_s)
            content = _read(response, deadline)
        except _transport_errors() as error:
            raise ClusterUnavailable(f"the API server cannot be reached: {one_line(error)}") from error
        if response.status >= 400:
            self._refuse(response.status, response.headers, content)
        return _object(content)

    def stream(self, path: str, query: Mapping[str, str], silence_s: float) -> Iterator[Raw]:
        """The JSON lines of a watch until the server ends it. Raises as `request`.

        `silence_s` without a byte counts as a dead connection.
        """
        try:
            response = self._send("GET", path, query, None, "", silence_s, None)
            if response.status >= 400:
                self._refuse(response.status, response.headers, _read(response, time.monotonic() + ANSWER_S))
            self._streams.add(response)
            try:
                if self._closed:
                    return  # `close` came while the head of the answer did, and did not see this stream
                for line in _lines(response):
                    yield _object(line)
            finally:
                self._streams.discard(response)
                response.close()
        except _transport_errors() as error:
            if self._closed:
                return
            raise ClusterUnavailable(f"the watch broke off: {one_line(error)}") from error

    def close(self) -> None:
        """End streams that other threads read, as if the server had ended them."""
        self._closed = True
        for response in list(self._streams):
            with contextlib.suppress(ValueError, RuntimeError, OSError):  # it ended by itself just now
                response.shutdown()

    def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        data: bytes | None,
        content_type: str,
        read_s: float,
        total_s: float | None,
    ) -> "BaseHTTPResponse":
        """The head of the answer: within `total_s` in all when it is given, of which the server may be silent
        for `read_s`.
        """
        import urllib3

        session = self.open()
        headers = {"accept": "application/json", "user-agent": "liken", **session.auth_headers()}
        if data is not None:
            headers["content-type"] = content_type
        if query:
            path = f"{path}?{urlencode(query)}"
        begin = time.monotonic()

        def send(spent_s: float) -> "BaseHTTPResponse":
            left_s = max(total_s - spent_s, 0.001) if total_s is not None else None
            timeout = urllib3.Timeout(total=left_s, connect=CONNECT_S, read=read_s)
            return session.send(method, path, body=data, headers=headers, timeout=timeout)

        try:
            return send(0.0)
        except urllib3.exceptions.ProtocolError:
            if method != "GET":
                raise  # it may have been done
            return send(time.monotonic() - begin)  # a kept connection that the server had closed

    def _refuse(self, status: int, headers: Mapping[str, str], content: bytes) -> None:
        answer = _status(content)
        text = one_line(answer.get("message") or f"status {status}")
        if status == 401:
            self._session = None  # read the credentials again, whatever their files' times say
        raise failure(status, text, answer.get("details"), headers.get("retry-after", ""))


def encode(body: Raw) -> bytes:
    """JSON that is the same text as YAML 1.1: an API server reads the body of an apply as YAML.

    YAML refuses some characters that JSON allows as they are, and takes others for ends of lines, which it
    turns into spaces (YAML 1.1, 5.1 and 5.4). Escaped they pass. Not so pairs of surrogates: everything else
    stays as it is.
    """
    text = msgspec.json.encode(body).decode()
    return _NOT_IN_YAML.sub(lambda found: f"\\u{ord(found[0]):04x}", text).encode()


def failure(status: int, text: str, details: object, retry_after: str = "") -> LikenError:
    """The error that an answer of that status means. `details` may be anything: a proxy has its own form."""
    known = _details(details)
    if status == 404:
        return Missing(text)
    if status in (409, 410):
        return OutOfDate(text)
    if status >= 500 or status in _NOT_NOW:
        wait_s = min(_seconds(retry_after) or known.retryAfterSeconds, LONGEST_RETRY_AFTER_S)
        return ClusterUnavailable(f"the API server answered {status}: {text}", wait_s)
    causes = tuple(Cause(cause.field, one_line(cause.message)) for cause in known.causes or ())
    return Refused(f"the API server refused it ({status}): {text}", causes)


class _Cause(msgspec.Struct):
    field: str = ""
    message: str = ""


class _Details(msgspec.Struct):
    retryAfterSeconds: float = 0.0  # noqa: N815 - the word of the Kubernetes API
    causes: list[_Cause] | None = None


def _details(details: object) -> _Details:
    try:
        return msgspec.convert(details or {}, _Details)
    except msgspec.ValidationError:
        return _Details()


def _transport_errors() -> tuple[type[Exception], ...]:
    import urllib3

    return (urllib3.exceptions.HTTPError, http.client.HTTPException, OSError)


def _read(response: "BaseHTTPResponse", deadline: float) -> bytes:
    """The whole body, bounded in time (a server may trickle) and size."""
    content = bytearray()
    try:
        while chunk := response.read1(_CHUNK):
            content += chunk
            if len(content) > MAX_ANSWER_BYTES:
                raise ClusterUnavailable(f"the answer is larger than {MAX_ANSWER_BYTES} bytes")
            if time.monotonic() > deadline:
                raise ClusterUnavailable("the API server answers too slowly")
    except BaseException:
        response.close()
        raise
    response.release_conn()
    return bytes(content)


def _lines(response: "BaseHTTPResponse") -> Iterator[bytes]:
    rest = b""
    while chunk := response.read1(_CHUNK):
        *lines, rest = (rest + chunk).split(b"\n")
        yield from filter(None, lines)
        if len(rest) > MAX_ANSWER_BYTES:
            raise ClusterUnavailable(f"the watch sent a line larger than {MAX_ANSWER_BYTES} bytes")
    if rest:
        yield rest  # cut off, or from something that is no API server: it does not parse


def _object(content: bytes) -> Raw:
    try:
        return msgspec.json.decode(content, type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise ClusterUnavailable(f"the API server's answer is no JSON object: {one_line(error)}") from error


def _status(content: bytes) -> Raw:
    try:
        return msgspec.json.decode(content, type=dict[str, Any])
    except msgspec.MsgspecError:
        return {"message": content[:MAX_TEXT].decode(errors="replace")}  # a proxy's page


def _seconds(retry_after: str) -> float:
    """RFC 9110: a number of seconds or a date."""
    if retry_after.isascii() and retry_after.isdigit():
        return float(retry_after)
    try:
        return max(0.0, (parsedate_to_datetime(retry_after) - datetime.now(UTC)).total_seconds())
    except (TypeError, ValueError):
        return 0.0
