"""A played machine on which all four services run: adapters, claims, hardware that comes and goes."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

import yaml

from common.inventory import ClaimPresence
from services.console.play import Player
from services.console.uevents import Sender, Sent
from tests.services.kubelet_stand_in import Claim
from tests.services.played_node import DRIVER, NODE, PlayedNode
from tests.services.process import Process
from tests.waiting import eventually

SERVICES = ("watcher", "publisher", "plugin", "reconciler")
SETTLE_S, CEILING_S = 0.2, 1.0
END_S = 30.0  # how long a test waits for an end state; what is promised is asserted beside it


def address(number: int) -> str:
    """The USB address of adapter `number`."""
    return f"1-{number}"


def device(number: int) -> str:
    """The published name of adapter `number`."""
    return f"usb-1-{number}-1-0"


class PlayedMachine(PlayedNode):
    """`adapters` USB serial adapters, numbered from 1, and whatever claims a test makes on them."""

    def __init__(self, run: Path, adapters: int) -> None:
        super().__init__(run)
        for number in range(1, adapters + 1):
            place = self.machine.usb(address(number))
            self.machine.tty(self.machine.interface(place, 0, driver="ch341"), f"ttyUSB{number}")
        self.player = Player(self.machine.root, self.run / "r")
        self.claims: dict[int, Claim] = {}  # the prepared claims, by the number of their adapter

    def environment(self) -> dict[str, str]:
        return super().environment() | {"LIKEN_SETTLE": str(SETTLE_S), "LIKEN_SETTLE_CEILING": str(CEILING_S)}

    def start_all(self, order: Iterable[str] = SERVICES) -> dict[str, Process]:
        """Start the services one after the other, not waiting for any; then wait until all are ready."""
        started = {service: self.launch(service) for service in order}
        for process in started.values():
            process.wait_ready()
        return started

    # -- claims

    def prepare(self, numbers: Iterable[int]) -> None:
        """Make a claim on each of these adapters, and have them prepared in one call."""
        made = {number: self.claim(device(number), name=f"claim-{number}") for number in numbers}
        answers = self.registered().prepare(*made.values())
        assert {answer.error for answer in answers.values()} == {""}
        self.claims |= made

    # -- hardware

    def unplug(self, number: int) -> Sent:
        """Unplug an adapter; the first of its `remove` events, from which on its nodes may be another's."""
        return next(one for one in self.player.unplug(address(number)) if one.action == "remove")

    def send(self, action: str, devpath: str) -> None:
        """Send an event by itself, whatever the tree says."""
        sender = Sender(self.run / "r")
        sender.send(action, devpath, {})
        sender.close()

    def plug(self, number: int) -> None:
        self.player.plug(address(number))

    def nodes(self, number: int) -> set[str]:
        """The nodes of an adapter by the tree itself: its tty and its usbfs node; none while unplugged."""
        place = self.machine.root / "sys/bus/usb/devices" / address(number)
        if not place.exists():
            return set()
        ttys = (place / f"{address(number)}:1.0" / "tty").iterdir()
        return {f"/dev/{tty.name}" for tty in ttys} | {
            f"/dev/bus/usb/001/{int((place / 'devnum').read_text()):03}"
        }

    # -- what the services made of it

    def given(self, claim: Claim) -> dict[str, set[str]]:
        """The nodes that the claim's spec gives, by device."""
        return {name: set(paths) for name, paths in self.paths(claim).items()}

    def wanted(self, number: int) -> dict[str, set[str]]:
        """What the spec of the claim on an adapter has to say now."""
        return {device(number): self.nodes(number) or {f"/dev/{DRIVER}/absent/{device(number)}"}}

    def is_right(self, number: int) -> bool:
        """Whether the spec of the claim on an adapter says what it has to say now."""
        return self.given(self.claims[number]) == self.wanted(number)

    def published(self) -> set[str]:
        """The names of the devices in the slices of this node."""
        names: set[str] = set()
        for path in (self.cluster / "slices").glob("*.yaml"):
            body = yaml.load(path.read_text(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
            assert body["spec"]["pool"]["name"] == NODE
            names |= {one["name"] for one in body["spec"].get("devices") or ()}
        return names

    def wrong(self, adapters: Iterable[int]) -> Mapping[str, object]:
        """What is not yet as it has to be: specs, records, presence, slices. Empty when all is well."""
        found: dict[str, object] = {}
        for number, claim in self.claims.items():
            if not self.is_right(number):
                found[f"spec of {device(number)}"] = self.given(claim)
        uids = sorted(claim.uid for claim in self.claims.values())
        if self.records() != uids:
            found["records"] = self.records()
        if len(list(self.cdi.glob("*.json"))) != len(uids):
            found["specs"] = sorted(path.name for path in self.cdi.glob("*.json"))
        states = {one.device: one.state for claim in self.told() for one in claim.devices}
        right = {device(number): "present" if self.nodes(number) else "absent" for number in self.claims}
        if states != right:
            found["presence"] = sorted(set(states.items()) ^ set(right.items()))
        devices = {device(number) for number in adapters if self.nodes(number)}
        if self.published() != devices:
            found["slices"] = sorted(self.published() ^ devices)
        return found

    def forget(self) -> None:
        """Forget what was told, so that only what running services tell counts."""
        if self._ear is not None:
            self._ear.close()
        self._ear, self._presence = None, None

    def told(self) -> tuple[ClaimPresence, ...]:
        """The prepared claims as the reconciler told them last."""
        presence = self.presence()
        return presence.claims if presence else ()

    def all_is_well(self, adapters: Iterable[int], timeout_s: float = END_S) -> None:
        """Wait until specs, records, presence and slices say what the tree says."""

        def well() -> bool:
            wrong = self.wrong(adapters)
            assert not wrong, json.dumps(wrong, default=str)[:2000]
            return True

        eventually(well, timeout_s, "specs, records, presence and slices are true", step_s=0.02)
