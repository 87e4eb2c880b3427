"""The nouns of the publisher's tests: devices, inventories, and a cluster in memory."""

from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from common.cluster import ClusterUnavailable, OutOfDate, Raw, Refused, SliceEvent, SliceList
from common.cluster.http import failure
from common.inventory import AttributeValue, Device, DeviceNode, Facts, Inventory, InventoryMessage
from tests.services.api_store import ApiStore, Refusal

T = TypeVar("T")
NODE = "n1"
DRIVER = "liken.sh"
KNOWN = Facts("roles")
UNKNOWN = Facts("unknown", "the mount table cannot be read")


def device(
    name: str, attributes: Mapping[str, AttributeValue] | None = None, *, shareable: bool = False
) -> Device:
    """A device as a walk delivers it, with the attributes that every one has."""
    given: dict[str, AttributeValue] = {
        "bus": {"string": "usb"},
        "address": {"string": name},
        "class": {"string": "hid"},
        **(attributes or {}),
    }
    nodes = (DeviceNode(f"/dev/{name}", "hidraw"),)
    return Device(name, "usb", name, "", ("hidraw",), shareable, nodes, given)


def devices(count: int, prefix: str = "usb-1") -> list[Device]:
    """That many, named in order."""
    return [device(f"{prefix}-{number:04d}") for number in range(count)]


def inventory(*found: Device, facts: Facts = KNOWN) -> Inventory:
    return Inventory(1, NODE, "boot", "2026-01-01T00:00:00Z", facts, tuple(found))


def message(*found: Device, facts: Facts = KNOWN, stirred: float = 0.0) -> InventoryMessage:
    return InventoryMessage(1, inventory(*found, facts=facts), "", stirred)


class MemoryCluster:
    """The cluster port on an ApiStore. `before` may raise in place of a request, `after` of its answer."""

    def __init__(self, store: ApiStore, node: str = NODE, driver: str = DRIVER) -> None:
        self.store = store
        self.requests: list[str] = []
        self.before: Callable[[str, Raw], None] = lambda verb, body: None
        self.after: Callable[[str, Raw], None] = lambda verb, body: None
        self._node = node
        self._selector = {"spec.driver": driver, "spec.nodeName": node}

    def claim(self, namespace: str, name: str, timeout_s: float) -> Raw:
        return self.store.claims[namespace, name]

    def warm(self) -> None:
        self.requests.append("warm")

    def node_uid(self) -> str | None:
        self._ask("node", {})
        node = self.store.nodes.get(self._node)
        return None if node is None else str(node["metadata"]["uid"])

    def list_slices(self) -> SliceList:
        self._ask("list", {})
        return SliceList(*self.store.listed(self._selector))

    def watch_slices(self, version: str) -> Iterator[SliceEvent]:
        """What happened since; it ends at once, so the test decides when time passes."""
        self._ask("watch", {})
        for change in _translated(lambda: self.store.since(int(version), self._selector)):
            yield SliceEvent(change.kind, change.object)  # type: ignore[arg-type]

    def apply_slice(self, body: Raw) -> Raw:
        self._ask("apply", body)
        returned = _translated(lambda: self.store.apply(body["metadata"]["name"], body)[0])
        self.after("apply", body)
        return returned

    def delete_slice(self, held: Raw) -> None:
        self._ask("delete", held)
        conditions = {key: held["metadata"][key] for key in ("uid", "resourceVersion")}
        try:
            self.store.delete(held["metadata"]["name"], conditions)
        except Refusal as refusal:
            if refusal.code != 404:
                raise OutOfDate(str(refusal)) from refusal
        self.after("delete", held)

    def event(self, reason: str, note: str, *, warning: bool) -> None:
        self._ask("event", {})
        self.store.events.append({"reason": reason, "note": note})

    def close(self) -> None:
        self.requests.append("close")

    def _ask(self, verb: str, body: Raw) -> None:
        self.requests.append(verb)
        self.before(verb, body)


def _translated(work: Callable[[], T]) -> T:
    try:
        return work()
    except Refusal as refusal:
        causes = [{"field": field, "message": text} for field, text in refusal.causes]
        error = failure(refusal.code, str(refusal), {"causes": causes})
        raise (
            error if isinstance(error, (OutOfDate, Refused)) else ClusterUnavailable(str(error))
        ) from refusal
