"""The sending end of the bus."""

import os
import select
import threading
from pathlib import Path

import msgspec
import zmq

from common.bus.keeper import Keeper
from common.bus.messages import encode
from common.bus.place import Place
from common.bus.topology import HIGH_WATER_MARK, TOPICS
from common.errors import LikenError, MachineError
from common.settings import Service

LISTENERS = 4  # each time the socket's file is deleted there is one more; the oldest is given up then


class BusSender:
    """The sending end of one service. Every method may be called from any thread.

    Two threads use the socket, under one lock: whoever sends, and one that waits for new subscribers. ZeroMQ
    tells of them by a file that becomes readable once per change, and a send may take the change away unseen;
    therefore every send looks for them too. The thread that waits also has the socket's file made again when
    somebody deletes it.
    """

    def __init__(self, bus_dir: Path, service: Service) -> None:
        """Raises RequestError when the folder is no use, MachineError when another process is this sender."""
        self._place = Place(bus_dir, service)
        self._service = service
        self._lock = threading.Lock()
        self._states: dict[str, bytes] = {}
        self._ticks: dict[str, int] = {}
        self._listeners: list[str] = []  # ZeroMQ's names of them, the newest last
        self._socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.XPUB)
        self._socket.setsockopt(zmq.XPUB_VERBOSE, 1)  # else a second subscriber of a topic is not told of
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.SNDHWM, HIGH_WATER_MARK)
        try:
            self._place.take()
            self._bind()  # takes the place of a socket that a killed process left behind
        except LikenError:
            self._socket.close()
            self._place.leave()
            raise
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
            self._place.leave()
            self._socket.close()
        os.close(self._end)

    def _bind(self) -> None:
        """Listen at our place. Who came through an earlier socket of ours stays connected to it.

        Raises MachineError.
        """
        file = self._place.listen()
        with self._lock:
            self._socket.setsockopt(zmq.USE_FD, file)
            try:
                self._socket.bind(self._place.address)
            except zmq.ZMQError as error:
                self._place.withdraw()
                os.close(file)
                raise MachineError(
                    f"cannot open the bus at {self._place.address}: {error.strerror}"
                ) from error
            self._listeners.append(self._socket.getsockopt_string(zmq.LAST_ENDPOINT))
            if len(self._listeners) > LISTENERS:
                # its readers connect again and get the last value
                self._socket.unbind(self._listeners.pop(0))
            self._answer_subscribers()  # what is done to the socket may take a notice away, as a send does

    def _check(self, topic: str, kind: str) -> None:
        row = TOPICS[topic]
        if (row.sender, row.kind) != (self._service, kind):
            raise ValueError(f"{self._service} does not send {topic} as a {kind}")

    def _send(self, topic: str, payload: bytes) -> None:
        if not self._socket.closed:
            self._socket.send_multipart((topic.encode(), payload), zmq.DONTWAIT)

    def _send_tick(self, topic: str) -> None:
        self._ticks[topic] = self._ticks.get(topic, 0) + 1
        self._send(topic, str(self._ticks[topic]).encode())

    def _attend(self) -> None:
        keeper = Keeper(self._place, self._bind)
        poll = select.poll()
        for file in (int(self._socket.getsockopt(zmq.FD)), self._end):
            poll.register(file, select.POLLIN)
        for events in keeper.files():
            poll.register(events, select.POLLIN)
        ended = False
        while not ended:
            with self._lock:
                self._answer_subscribers()
            ended = any(file == self._end for file, _ in poll.poll(keeper.look() * 1000))
        keeper.close()

    def _answer_subscribers(self) -> None:
        while not self._socket.closed and int(self._socket.getsockopt(zmq.EVENTS)) & zmq.POLLIN:
            notice = self._socket.recv()
            topic = notice[1:].decode(errors="replace")
            if notice[:1] != b"\x01" or topic not in TOPICS:
                continue
            if topic in self._states:
                self._send(topic, self._states[topic])
            elif TOPICS[topic].kind == "tick" and TOPICS[topic].sender == self._service:
                self._send_tick(topic)
