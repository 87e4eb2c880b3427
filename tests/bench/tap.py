"""Reads along on the bus of a measured node and counts bytes."""

import contextlib
from collections import Counter
from pathlib import Path

import zmq

from common.bus import TOPOLOGY, address
from tests.waiting import eventually


class Tap:
    """Counts from its start on. What senders repeat for its own subscription does not count."""

    def __init__(self, bus_dir: Path) -> None:
        self._socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.SUB)
        self._socket.setsockopt(zmq.RCVHWM, 0)  # loses nothing
        self._socket.setsockopt(zmq.SUBSCRIBE, b"")
        for sender in sorted({topic.sender for topic in TOPOLOGY}):
            self._socket.connect(address(bus_dir, sender))
        for topic in TOPOLOGY:
            self._socket.setsockopt(zmq.SUBSCRIBE, topic.name.encode())
        first: Counter[str] = Counter()

        def all_states_came() -> bool:
            first.update(self.bytes())
            return {topic.name for topic in TOPOLOGY if topic.kind == "state"} <= first.keys()

        eventually(all_states_came, 10, "the states are repeated", step_s=0.05)

    def bytes(self) -> Counter[str]:
        """The bytes per topic since the last call, names of topics included."""
        found: Counter[str] = Counter()
        with contextlib.suppress(zmq.Again):
            while True:
                frames = self._socket.recv_multipart(zmq.DONTWAIT)
                found[frames[0].decode()] += sum(map(len, frames))
        return found

    def close(self) -> None:
        self._socket.close(linger=0)
