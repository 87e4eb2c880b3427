"""What happens to objects, and when: a watch on the API server that notes its own clock."""

import http.client
import json
import socket
import ssl
import threading
import time
import urllib.parse
from typing import NamedTuple

from tests.cluster.api import KINDS, Object
from tests.cluster.control_plane import ControlPlane
from tests.waiting import eventually


class Seen(NamedTuple):
    """One event: CLOCK_MONOTONIC seconds, ADDED, MODIFIED or DELETED, and the object."""

    at: float
    type: str
    object: Object


class Witness:
    """Watches one kind in a thread, from now on, until `close`."""

    def __init__(self, plane: ControlPlane, kind: str, **selectors: str) -> None:
        self.seen: list[Seen] = []
        prefix, plural, _ = KINDS[kind]
        path = f"{prefix}/{plural}"
        query = urllib.parse.urlencode(selectors)
        listed = plane.api.call("GET", f"{path}?{query}")
        version = listed["metadata"]["resourceVersion"]
        watched = urllib.parse.urlencode({**selectors, "watch": "1", "resourceVersion": version})
        context = ssl.create_default_context(cafile=plane.ca)
        context.load_cert_chain(plane.admin.certificate, plane.admin.key)
        address = urllib.parse.urlsplit(plane.server)
        self._connection = http.client.HTTPSConnection(str(address.hostname), address.port, context=context)
        self._connection.request("GET", f"{path}?{watched}")
        self._socket: socket.socket = self._connection.sock
        self._answer = self._connection.getresponse()
        assert self._answer.status == 200, self._answer.read()
        threading.Thread(target=self._read, daemon=True).start()

    def first(self, kind: str, after: float = 0.0, timeout_s: float = 30) -> Seen:
        """The first event of a type since then; waits for it."""

        def found() -> Seen | None:
            return next((one for one in list(self.seen) if one.type == kind and one.at >= after), None)

        seen = eventually(found, timeout_s, f"an event {kind}")
        assert seen
        return seen

    def close(self) -> None:
        # the reading thread holds the lock of the response: end the stream under it instead
        self._socket.shutdown(socket.SHUT_RDWR)

    def _read(self) -> None:
        try:
            for line in self._answer:
                event = json.loads(line)
                self.seen.append(Seen(time.monotonic(), event["type"], event["object"]))
        except (OSError, ValueError, AttributeError, http.client.HTTPException):
            return  # closed by us or by the server that goes: what was seen stays
