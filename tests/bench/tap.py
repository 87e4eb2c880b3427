"""Reads along on the bus of a measured node: what came, and when."""

import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import zmq

from common.bus import TOPOLOGY, Topic, address
from tests.waiting import eventually

POLL_MS = 100  # how soon it notices that it shall end


class Heard(NamedTuple):
    """One message: when it came by time.monotonic(), its bytes with the name of its topic, its document."""

    at: float
    topic: str
    size: int
    payload: bytes


class Tap:
    """Listens from its start on. What senders repeat for its own subscription does not count."""

    def __init__(self, bus_dir: Path, topics: Sequence[Topic] = TOPOLOGY) -> None:
        self._heard: list[Heard] = []
        self._end = threading.Event()
        self._socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.SUB)
        self._socket.setsockopt(zmq.RCVHWM, 0)  # loses nothing
        for sender in sorted({topic.sender for topic in topics}):
            self._socket.connect(address(bus_dir, sender))
        for topic in topics:
            self._socket.setsockopt(zmq.SUBSCRIBE, topic.name.encode())
        self._thread = threading.Thread(target=self._listen, name="tap", daemon=True)
        self._thread.start()
        states = {topic.name for topic in topics if topic.kind == "state"}
        eventually(
            lambda: states <= {each.topic for each in self._heard}, 10, "the states are repeated", step_s=0.05
        )
        self._first = len(self._heard)

    def heard(self) -> list[Heard]:
        """All that came so far, in order."""
        return self._heard[self._first :]

    def close(self) -> None:
        self._end.set()
        self._thread.join()
        self._socket.close(linger=0)

    def _listen(self) -> None:
        while not self._end.is_set():
            if self._socket.poll(POLL_MS):
                frames = self._socket.recv_multipart()
                at = time.monotonic()
                topic, payload = frames[0].decode(), frames[1] if len(frames) > 1 else b""
                self._heard.append(Heard(at, topic, sum(map(len, frames)), payload))
