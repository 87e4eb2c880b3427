"""What a change of the hardware costs the API server: writes and bytes; and what a node costs it at rest."""

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec import to_builtins
from prometheus_client import CollectorRegistry

from common.cluster.http import Api
from common.cluster.kube import WATCH_S, KubernetesCluster
from common.inventory import Device
from services.publisher.metrics import Metrics
from services.publisher.plan import plan
from services.publisher.publisher import Publisher
from services.publisher.seen import Seen
from services.publisher.slices import slices
from services.publisher.watching import Watching
from services.publisher.writer import Clocks
from tests.bench.table import Figure, Row
from tests.bench.walking import median
from tests.publishing import DRIVER, NODE, device, inventory, message
from tests.services.api_stand_in import ApiStandIn

CHANGE = "Slices: cost of one change"
SIZES = (1, 10, 100, 128, 129, 256, 500, 1000)
HOUR_S = 3600.0
compact = json.JSONEncoder(separators=(",", ":")).encode  # as a request is encoded


class Bench:
    """A publisher's parts on the stand-in over HTTP, without the bus and without threads."""

    def __init__(self, api: ApiStandIn, folder: Path) -> None:
        self.api = api
        self._folder = folder
        self.restart()

    def restart(self) -> None:
        kubeconfig = str(self.api.kubeconfig(self._folder / "kubeconfig"))
        cluster = KubernetesCluster(NODE, DRIVER, "", Api({"KUBECONFIG": kubeconfig}))
        metrics, seen = Metrics(CollectorRegistry()), Seen()
        self._publisher = Publisher(cluster, NODE, DRIVER, seen, metrics, Clocks())
        self._publisher.activate()
        self._watching = Watching(cluster, seen, lambda: None, metrics)

    def look(self) -> None:
        self._watching.step()

    def offer(self, found: list[Device]) -> tuple[int, int]:
        """Writes and bytes sent until the slices are as `found`."""
        self.api.log.clear()
        self._publisher.inventory(message(*found))
        while self._publisher.turn() is not None:
            continue
        writes = [seen for seen in self.api.log if seen.verb in ("apply", "delete")]
        return len(writes), sum(seen.bytes_in for seen in writes)


def typical(number: int) -> Device:
    """A device with as many attributes as a USB interface has: 14."""
    words = (
        "vendor",
        "product",
        "serial",
        "name",
        "modalias",
        "driver",
        "classCode",
        "subsystem",
        "physicalPath",
    )
    return device(f"usb-1-{number:04d}-1-0", {word: {"string": f"{word} {number:020d}"} for word in words})


def measure() -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder, ApiStandIn() as api:
        api.store.add_node(NODE)
        for count in SIZES:
            yield from _changes(api, Path(folder), count)
        yield from _load(api, Path(folder))


def _changes(api: ApiStandIn, folder: Path, count: int) -> Iterator[Row]:
    bench = Bench(api, folder)
    api.store.delete_all()
    bench.look()
    many = [typical(number) for number in range(count)]
    cases = (
        ("all are new", many),
        ("one arrives", [*many, typical(9999)]),
        ("one leaves", many),
        ("nothing changes", many),
    )
    bodies: list[dict[str, Any]] = []
    for what, found in cases:
        before, bodies = bodies, [to_builtins(each) for each in found]
        writes, size = bench.offer(found)
        changed = [each for each in bodies if each not in before] + [
            each for each in before if each not in bodies
        ]
        yield Row(
            CHANGE,
            f"{count} devices, {what}",
            writes,
            "writes",
            (
                Figure(len(api.store.slices), "writes", "if every slice were written"),
                Figure(len(compact(changed)) if changed else 0, "bytes", "the changed devices alone as JSON"),
            ),
            also=(Figure(size, "bytes", "sent"),),
        )
    yield _decision(many)


def _decision(many: list[Device]) -> Row:
    """From a decoded inventory to the bodies of the requests."""
    found = inventory(*many)
    wanted = slices(found, NODE, node_uid="u")

    def decide() -> None:
        again = slices(found, NODE, wanted.slices, node_uid="u", homes=wanted.homes)
        plan(again.slices, {item["metadata"]["name"]: item for item in wanted.slices}, {})

    return Row(
        CHANGE,
        f"{len(many)} devices, to decide what to write",
        median(decide) * 1000,
        "ms",
        (Figure(median(lambda: compact(wanted.slices)) * 1000, "ms", "json.dumps of the same slices"),),
    )


def _load(api: ApiStandIn, folder: Path) -> Iterator[Row]:
    bench = Bench(api, folder)
    many = [typical(number) for number in range(16)]
    bench.look()
    bench.offer(many)
    bench.restart()
    api.log.clear()
    bench.look()
    listed = len(api.log)
    bench.offer(many)
    yield Row(
        "Slices: requests",
        "a restart, slices as they should be",
        listed + len(api.log) + 1,
        "requests",
        against="the fewest that tell the state: list, node, watch",
    )
    yield Row(
        "Slices: requests",
        "at rest, per hour",
        HOUR_S * 2 / sum(WATCH_S),
        "watches",
        against="none is the fewest; computed from the length of a watch, the section Idle counts the rest",
    )
