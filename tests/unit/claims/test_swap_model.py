"""A model of two devices that swap their node names, in every order in which things can happen.

The hardware is a dict; records, specs, projection and passes are the real ones. A container start resolves
the paths of the claim's spec at that moment, as a runtime does.
"""

import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path

from prometheus_client import CollectorRegistry

from common.cdi import Specs
from common.claims import Result, Store
from common.hardware.slot import Slot
from common.hardware.storage import StorageFacts
from common.inventory import Device, DeviceNode, Inventory
from common.prepared import Prepared
from common.projection import Projector
from common.slots import Standing
from services.reconciler.metrics import ReconcilerMetrics
from services.reconciler.passes import Reconciler
from tests.builders import BOOT_ID
from tests.claim_bench import record

A, B = "1-1:1.0", "1-2:1.0"
UIDS = {A: "0a1b2c3d-0000-4000-8000-00000000000a", B: "0a1b2c3d-0000-4000-8000-00000000000b"}
REMOVALS = {"A goes": A, "B goes": B}
ARRIVALS = {"A comes": A, "B comes": B}
# what may happen between two events of the hardware; a prepare comes again after a restart of the kubelet
BETWEEN = ((), ("pass",), ("prepare A",), ("prepare B", "pass"), ("pass", "prepare A", "prepare B"))


class World:
    """Two ports; a device that comes takes the lowest free number, as ttyUSB does."""

    def __init__(self) -> None:
        self.nodes: dict[str, str] = {A: "/dev/ttyUSB0", B: "/dev/ttyUSB1"}

    def happen(self, event: str) -> None:
        if event in REMOVALS:
            del self.nodes[REMOVALS[event]]
        else:
            taken = set(self.nodes.values())
            free = (f"/dev/ttyUSB{number}" for number in range(3))
            self.nodes[ARRIVALS[event]] = next(path for path in free if path not in taken)

    # what the projection asks of the hardware

    def inspect(self, bus: str, address: str, facts: StorageFacts | None = None) -> Standing:
        if address not in self.nodes:
            return Standing(Slot(False))
        node = DeviceNode(self.nodes[address], "tty")
        return Standing(Slot(True, (Device(_name(address), bus, address, "", ("tty",), False, (node,), {}),)))

    def hear(self, inventory: Inventory) -> None:
        """Nothing to learn: there are no serial lines here."""

    def facts(self) -> StorageFacts:
        return StorageFacts("observed")

    def addresses(self, bus: str) -> frozenset[str]:
        return frozenset(self.nodes)

    def drivers(self, device: str) -> Mapping[str, str]:
        return {}


def _name(address: str) -> str:
    return "usb-" + address.replace(":", "-").replace(".", "-")


class Run:
    """One order of events, on fresh files."""

    def __init__(self, folder: Path) -> None:
        self.world = World()
        self.store = Store(folder, BOOT_ID)
        self.specs = Specs(folder / "cdi", "liken.sh")
        self.projector = Projector(self.store, self.specs, self.world)
        prepared = Prepared(self.store, self.specs, self.world, self.projector)
        self.reconciler = Reconciler(prepared, METRICS)
        for address, uid in UIDS.items():
            promised = Result("r", "n", _name(address), "usb", address, kinds=("tty",))
            self.store.write(record(uid, promised))
            self.projector.project(uid)

    def do(self, step: str) -> None:
        if step == "pass":
            self.reconciler.run(write=True)
        elif step.startswith("prepare"):
            self.projector.project(UIDS[A if step.endswith("A") else B])
        else:
            self.world.happen(step)

    def wrong_starts(self) -> list[str]:
        """Containers that would get another port's node if they started now."""
        wrong = []
        for address, uid in UIDS.items():
            owners = {path: port for port, path in self.world.nodes.items()}
            for nodes in self.specs.nodes(uid).values():
                wrong += [node.path for node in nodes if owners.get(node.path, address) != address]
        return wrong


METRICS = ReconcilerMetrics(CollectorRegistry())


def hardware_orders() -> list[tuple[str, ...]]:
    """Both devices go and come again, in every order."""
    events = (*REMOVALS, *ARRIVALS)
    return [
        order
        for order in itertools.permutations(events)
        if order.index("A goes") < order.index("A comes") and order.index("B goes") < order.index("B comes")
    ]


def interleavings(with_pass: bool) -> Iterator[tuple[str, ...]]:
    """All orders of events and what falls between them. `with_pass`: one between a removal and an arrival."""
    for order in hardware_orders():
        for first in itertools.product(BETWEEN, repeat=len(order) - 1):
            between = (*first, ("pass",))
            steps: list[str] = []
            sound = True
            for number, event in enumerate(order):
                steps += (event, *between[number])
                follows = order[number + 1] if number + 1 < len(order) else ""
                if event in REMOVALS and follows in ARRIVALS and "pass" not in between[number]:
                    sound = False
            if sound == with_pass:
                yield tuple(steps)


def wrong(steps: tuple[str, ...], folder: Path) -> list[str]:
    """The steps after which a start would get the other's node."""
    run = Run(folder)
    found = []
    for step in steps:
        run.do(step)
        if run.wrong_starts():
            found.append(step)
    return found


def test_with_a_pass_between_a_removal_and_the_next_arrival_no_start_gets_the_others_node(
    tmp_path: Path,
) -> None:
    """R7, R10, R11."""
    tried = 0
    for steps in interleavings(with_pass=True):
        assert wrong(steps, tmp_path) == [], steps
        tried += 1
    assert tried > 300


def test_the_model_sees_what_a_missing_pass_would_do(tmp_path: Path) -> None:
    found = next((steps for steps in interleavings(with_pass=False) if wrong(steps, tmp_path)), None)
    assert found is not None
