"""What the run believes: hardware of each port, claims, what may be offered. Shares no product code."""

import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from tests.chaos.attributes import Told, first_serial, told
from tests.chaos.machine import Port, delivered


@dataclass
class Held:
    """A claim that the run asked for. "unsure": the last call broke off, so it may or may not be prepared."""

    uid: str
    name: str
    port: Port
    state: Literal["prepared", "unsure"] = "unsure"
    pod: str = field(default_factory=lambda: uuid.uuid4().hex[:8])


class Model:
    """Thread-safe. `truth` is what a spec of a claim on a port may name; it is renewed after each change."""

    def __init__(self, root: Path, ports: list[Port]) -> None:
        self.root = root
        self.ports = ports
        self.lock = threading.RLock()
        self.away: set[str] = set()  # plugs that are unplugged
        self.unbound: set[str] = set()  # interfaces without their driver
        self.mounted: set[str] = set()  # devices whose disk the machine uses
        self.serials = {port.plug: first_serial(port.plug) for port in ports}
        self.claims: dict[str, Held] = {}
        self.truth: dict[str, frozenset[str]] = {}
        self.renew()

    def renew(self) -> None:
        """Read the nodes of every port again."""
        fresh = {
            port.device: frozenset() if port.device in self.mounted else delivered(self.root, port)
            for port in self.ports
        }
        with self.lock:
            self.truth = fresh

    @contextmanager
    def changing(self) -> Iterator[None]:
        """A change of the hardware; afterwards the truth is the new one."""
        try:
            yield
        finally:
            self.renew()

    def offered(self) -> Told:
        """What the slices must say when all is quiet."""
        found: Told = set()
        for port in self.ports:
            if port.plug in self.away or port.device in self.mounted:
                continue
            found |= told(port, self.serials[port.plug], port.owner not in self.unbound)
        return found

    def named(self, port: Port) -> list[str]:
        """The paths that the spec of a claim on `port` must name when all is quiet, sorted."""
        if port.plug in self.away:
            return [f"/dev/liken.sh/absent/{port.device}"]
        # a USB device without any driver has another form and another name: a claim on this one gets nothing
        if port.device in self.mounted or port.owner in self.unbound:
            return [f"/dev/liken.sh/withheld/{port.device}"]
        return sorted(self.truth[port.device])

    def ready(self) -> list[Port]:
        """Free ports whose device is there and may be had."""
        return [port for port in self.free() if self.named(port) == sorted(self.truth[port.device])]

    def free(self) -> list[Port]:
        """Ports that no claim of the run is on."""
        with self.lock:
            taken = {held.port.device for held in self.claims.values()}
        return [port for port in self.ports if port.device not in taken]

    def put(self, held: Held) -> None:
        with self.lock:
            self.claims[held.uid] = held

    def drop(self, uid: str) -> None:
        with self.lock:
            self.claims.pop(uid, None)

    def held(self, *states: str) -> list[Held]:
        with self.lock:
            return [held for held in self.claims.values() if not states or held.state in states]
