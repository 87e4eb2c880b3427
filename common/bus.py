"""The bus between the four processes: one XPUB socket per service, on a unix socket in one folder.

A state topic carries the whole truth of its sender; every new subscriber gets the last value by itself, so
the order of starts never matters. A tick topic carries a number and means: look again, now. A new subscriber
gets one tick by itself, for all that it may have missed while it was not connected.
"""

import contextlib
import fcntl
import functools
import os
import select
import struct
import threading
import time
from collections.abc import Hashable, Iterable
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple, TypeVar, cast

import msgspec
import zmq

from common.errors import MachineError, RequestError
from common.inventory import SCHEMA
from common.settings import Service


class Topic(NamedTuple):
    """One row of the topology: who sends a topic, who listens, how often it comes at the least."""

    name: str
    kind: Literal["state", "tick"]
    sender: Service
    readers: tuple[Service, ...]
    at_least_every_s: float | None  # None: only when something happened


TOPOLOGY: tuple[Topic, ...] = (
    Topic("inventory", "state", "watcher", ("publisher", "plugin", "reconciler"), 60.0),
    Topic("stirred", "tick", "watcher", ("reconciler",), None),
    Topic("presence", "state", "reconciler", ("publisher", "plugin"), None),
    Topic("claims", "tick", "plugin", ("reconciler",), None),
)
_TOPICS = {topic.name: topic for topic in TOPOLOGY}

HIGH_WATER_MARK = 256  # messages, on each side: seconds of ticks at 100 per second, some MB of inventories
RECONNECT_MS = 50  # doubled at each failure up to
RECONNECT_MAX_MS = 500  # ... this: at a steady 0.1 s a sender that is not there costs 34 ms CPU per minute
MAX_SOCKET_PATH = 107  # bytes; struct sockaddr_un, unix(7)
_LOST = {
    zmq.EVENT_DISCONNECTED,
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL,
    zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL,
    zmq.EVENT_HANDSHAKE_FAILED_AUTH,
}
# event and value, zmq_socket_monitor(3); pyzmq's own parser would load asyncio
_MONITOR_HEAD = struct.Struct("=HI")
_FOUND = zmq.EVENT_HANDSHAKE_SUCCEEDED

T = TypeVar("T")


class Message(NamedTuple):
    """What came in: the topic, and its last JSON document; None for a tick."""

    topic: str
    payload: bytes | None


class _Head(msgspec.Struct):
    schema: int


_HEAD = msgspec.json.Decoder(_Head)


def encode(message: msgspec.Struct) -> bytes:
    """The JSON document of a message; the same value gives the same bytes."""
    return msgspec.json.encode(message)


def decode(topic: str, payload: bytes, kind: type[T]) -> T:
    """The message in `payload`. Fields that this version does not know are ignored.

    Raises MachineError when the sender speaks another major schema or when it is no such message.
    """
    try:
        schema = _HEAD.decode(payload).schema
        if schema != SCHEMA:
            raise MachineError(
                f"the message {topic!r} has schema {schema}, this process reads schema {SCHEMA}: run all four"
                " services of this node in one version"
            )
        message: T = _decoder(cast(Hashable, kind)).decode(payload)
    except msgspec.DecodeError as error:
        raise MachineError(
            f"the message {topic!r} cannot be read: {error}; run all four services of this node in one"
            " version"
        ) from error
    return message


@functools.lru_cache(maxsize=16)
def _decoder(kind: Hashable) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(cast(type[Any], kind))


def address(bus_dir: Path, service: Service) -> str:
    """The ZeroMQ address of a service. Raises RequestError when the folder's name is too long."""
    path = bus_dir / f"{service}.sock"
    if len(os.fsencode(path)) > MAX_SOCKET_PATH:
        raise RequestError(
            f"{path} is too long for a unix socket ({MAX_SOCKET_PATH} bytes at the most):"
            " set LIKEN_RUN to a shorter path"
        )
    return f"ipc://{path}"


def make_folder(bus_dir: Path) -> None:
    """The folder of the bus, for this user alone. Raises RequestError when it cannot be made."""
    try:
        bus_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        if bus_dir.stat().st_mode & 0o077:
            bus_dir.chmod(0o700)
    except OSError as error:
        raise _unusable(bus_dir, error) from error


def _unusable(folder: Path, error: OSError) -> RequestError:
    return RequestError(
        f"cannot use {folder}: {error.strerror}; set LIKEN_RUN to a folder that this user can write"
    )


class BusSender:
    """The sending end of one service. Every method may be called from any thread.

    Two threads use the socket, under one lock: whoever sends, and one that waits for new subscribers. ZeroMQ
    tells of them by a file that becomes readable once per change, and a send may take the change away unseen;
    therefore every send looks for them too.
    """

    def __init__(self, bus_dir: Path, service: Service) -> None:
        """Raises RequestError when the folder is no use, MachineError when another process is this sender."""
        place = address(bus_dir, service)
        make_folder(bus_dir)
        self._service = service
        self._lock = threading.Lock()
        self._states: dict[str, bytes] = {}
        self._ticks: dict[str, int] = {}
        self._owner = _own(bus_dir / f"{service}.lock", service)
        self._socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.XPUB)
        self._socket.setsockopt(zmq.XPUB_VERBOSE, 1)  # else a second subscriber of a topic is not told of
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.SNDHWM, HIGH_WATER_MARK)
        try:
            self._socket.bind(place)  # takes the place of a socket that a killed process left behind
        except zmq.ZMQError as error:
            self._socket.close()
            self._owner.close()
            raise MachineError(f"cannot open the bus at {place}: {error.strerror}") from error
        self._end = os.eventfd(0, os.EFD_CLOEXEC)
        self._thread = threading.Thread(target=self._attend, name=f"bus-{service}", daemon=True)
        self._thread.start()

    def state(self, topic: str, message: msgspec.Struct | bytes) -> None:
        """Send the new value of a state topic, and keep it for every later subscriber."""
        payload = message if isinstance(message, bytes) else encode(message)
        self._check(topic, "state")
        with self._lock:
            self._states[topic] = payload
            self._send(topic, payload)
            self._answer_subscribers()

    def tick(self, topic: str) -> None:
        """Send a tick."""
        self._check(topic, "tick")
        with self._lock:
            self._send_tick(topic)
            self._answer_subscribers()

    def close(self) -> None:
        """Leave the bus. A second call does nothing."""
        if self._socket.closed:
            return
        os.eventfd_write(self._end, 1)
        self._thread.join()
        with self._lock:
            self._socket.close()
        os.close(self._end)
        self._owner.close()

    def _check(self, topic: str, kind: str) -> None:
        row = _TOPICS[topic]
        if (row.sender, row.kind) != (self._service, kind):
            raise ValueError(f"{self._service} does not send {topic} as a {kind}")

    def _send(self, topic: str, payload: bytes) -> None:
        if not self._socket.closed:
            self._socket.send_multipart((topic.encode(), payload), zmq.DONTWAIT)

    def _send_tick(self, topic: str) -> None:
        self._ticks[topic] = self._ticks.get(topic, 0) + 1
        self._send(topic, str(self._ticks[topic]).encode())

    def _attend(self) -> None:
        poll = select.poll()
        poll.register(_file(self._socket), select.POLLIN)
        poll.register(self._end, select.POLLIN)
        while True:
            with self._lock:
                self._answer_subscribers()
            if any(file == self._end for file, _ in poll.poll()):
                return

    def _answer_subscribers(self) -> None:
        while not self._socket.closed and int(self._socket.getsockopt(zmq.EVENTS)) & zmq.POLLIN:
            notice = self._socket.recv()
            topic = notice[1:].decode(errors="replace")
            if notice[:1] != b"\x01" or topic not in _TOPICS:
                continue
            if topic in self._states:
                self._send(topic, self._states[topic])
            elif _TOPICS[topic].kind == "tick" and _TOPICS[topic].sender == self._service:
                self._send_tick(topic)


def _file(socket: zmq.Socket[bytes]) -> int:
    return int(socket.getsockopt(zmq.FD))


def _own(path: Path, service: Service) -> IO[bytes]:
    """Hold `path` for the life of this process.

    Raises RequestError when it cannot be made, MachineError when another process holds it.
    """
    try:
        file = path.open("ab")
    except OSError as error:
        raise _unusable(path.parent, error) from error
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.close()
        raise MachineError(
            f"another {service} already serves {path.parent}: stop it, or give this one another LIKEN_RUN"
        ) from error
    return file


class BusReader:
    """The receiving end of one service, for one thread; only `wake` may be called from another."""

    def __init__(self, bus_dir: Path, service: Service | None, topics: Iterable[str]) -> None:
        """Listen to `topics`, as `service` or (None) as a command for people, which may hear all.

        A sender that is not there yet is found when it comes.
        """
        self._topics = tuple(topics)
        for topic in self._topics:
            if service is not None and service not in _TOPICS[topic].readers:
                raise ValueError(f"{service} does not read {topic}")
        senders = sorted({_TOPICS[topic].sender for topic in self._topics})
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
                topic, payload = self._socket.recv_multipart(zmq.DONTWAIT)[:2]
                newest[topic.decode(errors="replace")] = payload
                count += 1
        if count >= HIGH_WATER_MARK:
            self._flooded = True
        elif self._flooded:
            self._ask_again()
        return [
            Message(topic, newest[topic] if _TOPICS[topic].kind == "state" else None)
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
