"""The receiving end of the bus."""

import contextlib
import functools
import os
import select
import struct
import threading
import time
from collections.abc import Iterable
from pathlib import Path

import zmq

from common.bus.messages import Message
from common.bus.place import address
from common.bus.topology import HIGH_WATER_MARK, TOPICS
from common.settings import Service

RECONNECT_MS = 50  # doubled at each failure up to
RECONNECT_MAX_MS = 500  # ... this: at a steady 0.1 s a sender that is not there costs 34 ms CPU per minute
_LOST = {
    zmq.EVENT_DISCONNECTED,
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL,
    zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL,
    zmq.EVENT_HANDSHAKE_FAILED_AUTH,
}
# event and value, zmq_socket_monitor(3); pyzmq's own parser would load asyncio
_MONITOR_HEAD = struct.Struct("=HI")
_FOUND = zmq.EVENT_HANDSHAKE_SUCCEEDED


class BusReader:
    """The receiving end of one service, for one thread; only `wake` may be called from another."""

    def __init__(self, bus_dir: Path, service: Service | None, topics: Iterable[str]) -> None:
        """Listen to `topics`, as `service` or (None) as a command for people, which may hear all.

        A sender that is not there yet is found when it comes.
        """
        self._topics = tuple(topics)
        for topic in self._topics:
            if service is not None and service not in TOPICS[topic].readers:
                raise ValueError(f"{service} does not read {topic}")
        senders = sorted({TOPICS[topic].sender for topic in self._topics})
        self._places = {address(bus_dir, sender): sender for sender in senders}
        self._connected = dict.fromkeys(senders, False)
        self._socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.SUB)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.RCVHWM, HIGH_WATER_MARK)
        self._socket.setsockopt(zmq.RECONNECT_IVL, RECONNECT_MS)
        self._socket.setsockopt(zmq.RECONNECT_IVL_MAX, RECONNECT_MAX_MS)
        self._monitor: zmq.Socket[bytes] = self._socket.get_monitor_socket(
            _FOUND | functools.reduce(lambda a, b: a | b, _LOST)
        )
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._closing = threading.Lock()
        self._closed = False
        self._flooded = False
        self._files = select.epoll()
        for file in (_file(self._socket), _file(self._monitor), self._wake):
            self._files.register(file, select.EPOLLIN)
        for topic in self._topics:
            self._socket.setsockopt(zmq.SUBSCRIBE, topic.encode())
        for place in self._places:
            self._socket.connect(place)

    def wait(self, timeout_s: float | None) -> list[Message]:
        """What came since the last call: per topic one message at most, the newest, in order of the topics.

        Waits up to `timeout_s` seconds (None: without limit). Returns an empty list when time is up, after
        `wake`, and when a sender came or went: look at `peer_connected`.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            woken = self._take_wakes()
            messages, changed = self._drain(), self._follow()
            if messages or changed or woken:
                return messages
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return []
            self._files.poll(left)

    def fileno(self) -> int:
        """Readable when `wait(0)` has something to say. Call `wait(0)` once before relying on it."""
        return self._files.fileno()

    def wake(self) -> None:
        """End the wait of the other thread; nothing when the reader is closed."""
        with self._closing:
            if not self._closed:
                os.eventfd_write(self._wake, 1)

    def peer_connected(self, service: Service) -> bool:
        """Whether the bus of `service` is connected, as of the last `wait`."""
        return self._connected[service]

    def close(self) -> None:
        """Leave the bus. A second call does nothing."""
        with self._closing:
            if self._closed:
                return
            self._closed = True
            os.close(self._wake)
        self._files.close()
        self._socket.disable_monitor()
        self._socket.close()

    def _drain(self) -> list[Message]:
        newest: dict[str, bytes] = {}
        count = 0
        with contextlib.suppress(zmq.Again):
            while True:
                topic, *rest = self._socket.recv_multipart(zmq.DONTWAIT)
                newest[topic.decode(errors="replace")] = rest[0] if rest else b""
                count += 1
        if count >= HIGH_WATER_MARK:
            self._flooded = True
        elif self._flooded:
            self._ask_again()
        return [
            Message(topic, newest[topic] if TOPICS[topic].kind == "state" else None)
            for topic in self._topics
            if topic in newest
        ]

    def _ask_again(self) -> None:
        # a full queue drops what comes last, and the last is what counts: a new subscription brings it, now
        # that there is room again
        self._flooded = False
        for topic in self._topics:
            self._socket.setsockopt(zmq.UNSUBSCRIBE, topic.encode())
            self._socket.setsockopt(zmq.SUBSCRIBE, topic.encode())

    def _follow(self) -> bool:
        changed = False
        with contextlib.suppress(zmq.Again):
            while True:
                head, endpoint = self._monitor.recv_multipart(zmq.DONTWAIT)
                event, _value = _MONITOR_HEAD.unpack(head)
                sender = self._places.get(endpoint.decode())
                if sender and (event == _FOUND or event in _LOST):
                    changed = True
                    self._connected[sender] = event == _FOUND
        return changed

    def _take_wakes(self) -> bool:
        try:
            return os.eventfd_read(self._wake) > 0
        except BlockingIOError:
            return False


def _file(socket: zmq.Socket[bytes]) -> int:
    return int(socket.getsockopt(zmq.FD))
