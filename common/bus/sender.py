"""The sending end of the bus."""

import os
import select
import threading
from pathlib import Path

import msgspec
import zmq

from common.bus.messages import encode
from common.bus.place import address, make_folder, own
from common.bus.topology import HIGH_WATER_MARK, TOPICS
from common.errors import MachineError
from common.settings import Service


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
        self._owner = own(bus_dir / f"{service}.lock", service)
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
        poll = select.poll()
        poll.register(int(self._socket.getsockopt(zmq.FD)), select.POLLIN)
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
            if notice[:1] != b"\x01" or topic not in TOPICS:
                continue
            if topic in self._states:
                self._send(topic, self._states[topic])
            elif TOPICS[topic].kind == "tick" and TOPICS[topic].sender == self._service:
                self._send_tick(topic)
