"""What is noted of each request to the stand-in API server, and what can go wrong with one on demand."""

import threading
from typing import Literal, NamedTuple

Verb = Literal["list", "watch", "get", "apply", "delete", "create"]


class Seen(NamedTuple):
    """One request in the log: bytes are those of the bodies.

    By time.monotonic(), `came` is when it was there with its whole body, `at` when it was answered.
    """

    verb: str
    resource: str
    name: str
    status: int
    bytes_in: int
    bytes_out: int
    came: float
    at: float
    query: dict[str, str]


class Fault:
    """What goes wrong with the next `times` requests of that verb and resource.

    status: answered with that code and not done. "lost": done, but the connection closes without an answer.
    "cut": not done, the connection closes. "hang": not done, no answer until `end` is set, then cut.
    "late": done after `seconds`. "garbage": done, the answer is no JSON. "trickle": an answer without end.
    """

    def __init__(
        self,
        verb: Verb,
        what: int | Literal["lost", "cut", "hang", "late", "garbage", "trickle"],
        times: int = 1,
        resource: str = "",
        headers: dict[str, str] | None = None,
        seconds: float = 0.0,
        causes: list[tuple[str, str]] | None = None,
    ) -> None:
        self.verb = verb
        self.what = what
        self.left = times
        self.resource = resource
        self.headers = headers or {}
        self.seconds = seconds
        self.causes = causes or []
        self.end = threading.Event()
        self.met = 0  # how many requests it has hit
