"""What a Kubernetes API server holds and how it answers, in memory: just enough of it to test against.

Rules: dra-contract 8 (k8s.io/api resource/v1 and its validation), server-side apply, watch semantics.
"""

import copy
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

Raw = dict[str, Any]

LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
SUBDOMAIN = re.compile(r"(?=.{1,253}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,31}")
SEMVER = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)([-+][0-9A-Za-z.+-]+)?")
MAX_DEVICES = 128
MAX_ATTRIBUTES = 32
MAX_STRING = 64
IMMUTABLE = ("driver", "nodeName")


class Refusal(Exception):  # noqa: N818 - an answer, not a defect
    """An answer that is an error: status code, words, and the places that are wrong."""

    def __init__(self, code: int, message: str, causes: list[tuple[str, str]] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.causes = causes or []


class Change(NamedTuple):
    """One event of the history; `version` is the collection's after it."""

    version: int
    kind: str
    object: Raw


class ApiStore:
    """Slices, nodes, claims and events of a cluster. Thread-safe."""

    def __init__(self) -> None:
        self.changed = threading.Condition(threading.RLock())
        self.version = 100
        self.slices: dict[str, Raw] = {}
        self.nodes: dict[str, Raw] = {}
        self.claims: dict[tuple[str, str], Raw] = {}
        self.events: list[Raw] = []
        self.dropped_fields: set[str] = set()  # names of device fields whose gate is off
        self.empty_is_null = (
            False  # Kubernetes 1.34 returns an empty list of devices as null, 1.37 not at all
        )
        self.observers: list[Callable[[dict[str, Raw]], None]] = []  # told all slices after each change
        self._history: list[Change] = []
        self._oldest = 0  # changes up to this version are forgotten

    def add_node(self, name: str) -> str:
        """Make a Node and return its UID."""
        uid = str(uuid.uuid4())
        with self.changed:
            self.nodes[name] = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "uid": uid}}
        return uid

    def add_claim(self, claim: Raw) -> None:
        metadata = claim["metadata"]
        with self.changed:
            self.claims[metadata["namespace"], metadata["name"]] = claim

    def apply(self, name: str, body: Raw) -> tuple[Raw, bool]:
        """Server-side apply with force. Returns the object as it is then, and whether it was created."""
        with self.changed:
            held = self.slices.get(name)
            _check_condition(body, held)
            item = _merged(held, body, name)
            for device in item["spec"].get("devices") or ():
                for field in self.dropped_fields:
                    device.pop(field, None)
            _validate(item, held)
            if not item["spec"].get("devices"):
                item["spec"].pop("devices", None)
                if self.empty_is_null:
                    item["spec"]["devices"] = None
            if held is not None and _same(held, item):
                return copy.deepcopy(held), False
            self._put("MODIFIED" if held else "ADDED", item)
            return copy.deepcopy(item), held is None

    def edit(self, name: str, change: Callable[[Raw], None]) -> None:
        """Somebody else's change."""
        with self.changed:
            item = copy.deepcopy(self.slices[name])
            change(item)
            self._put("MODIFIED", item)

    def delete(self, name: str, conditions: Raw | None = None) -> Raw:
        with self.changed:
            held = self.slices.get(name)
            if held is None:
                raise Refusal(404, f'resourceslices "{name}" not found')
            for key, value in (conditions or {}).items():
                if held["metadata"][key] != value:
                    raise Refusal(409, f"the {key} in the precondition ({value}) does not match")
            del self.slices[name]
            gone = copy.deepcopy(held)
            self._record("DELETED", gone)
            return gone

    def delete_all(self) -> None:
        """What a starting kubelet does."""
        with self.changed:
            for name in sorted(self.slices):
                self.delete(name)

    def listed(self, selector: dict[str, str]) -> tuple[list[Raw], str]:
        with self.changed:
            found = [copy.deepcopy(self.slices[name]) for name in sorted(self.slices)]
            return [item for item in found if selected(item, selector)], str(self.version)

    def since(self, version: int, selector: dict[str, str]) -> list[Change]:
        """The changes after `version`. Raises Refusal 410 when they are forgotten."""
        with self.changed:
            if version < self._oldest:
                raise Refusal(410, f"too old resource version: {version} ({self._oldest})")
            return [
                change
                for change in self._history
                if change.version > version and selected(change.object, selector)
            ]

    def forget(self) -> None:
        """Compaction: no watch can start before now."""
        with self.changed:
            self.version += 1
            self._oldest = self.version
            self._history.clear()
            self.changed.notify_all()

    def touch(self) -> None:
        """Something else in the cluster changed: the version moves on."""
        with self.changed:
            self.version += 1
            self.changed.notify_all()

    def _put(self, kind: str, item: Raw) -> None:
        self.slices[item["metadata"]["name"]] = item
        self._record(kind, item)

    def _record(self, kind: str, item: Raw) -> None:
        self.version += 1
        item["metadata"]["resourceVersion"] = str(self.version)
        self._history.append(Change(self.version, kind, copy.deepcopy(item)))
        for observer in self.observers:
            observer(self.slices)
        self.changed.notify_all()


def selected(item: Raw, selector: dict[str, str]) -> bool:
    """Field selectors of ResourceSlices: spec.driver, spec.nodeName, metadata.name."""
    fields = {
        "spec.driver": item["spec"].get("driver", ""),
        "spec.nodeName": item["spec"].get("nodeName", ""),
        "metadata.name": item["metadata"]["name"],
    }
    return all(fields[key] == value for key, value in selector.items())


def offered(slices: dict[str, Raw], pool: str) -> set[str] | None:
    """The devices a scheduler would allocate of that pool; None when the pool is not complete."""
    mine = [item for item in slices.values() if item["spec"]["pool"]["name"] == pool]
    newest = max((item["spec"]["pool"]["generation"] for item in mine), default=0)
    current = [item for item in mine if item["spec"]["pool"]["generation"] == newest]
    if not current or any(item["spec"]["pool"]["resourceSliceCount"] != len(current) for item in current):
        return None
    names = [device["name"] for item in current for device in item["spec"].get("devices") or ()]
    return set(names) if len(set(names)) == len(names) else None


def _check_condition(body: Raw, held: Raw | None) -> None:
    version = body["metadata"].get("resourceVersion")
    if version and held is not None and held["metadata"]["resourceVersion"] != version:
        raise Refusal(409, "the object has been modified; please apply your changes to the latest version")


def _merged(held: Raw | None, body: Raw, name: str) -> Raw:
    item: Raw = copy.deepcopy(held) if held else {"metadata": {"uid": str(uuid.uuid4())}}
    wanted = copy.deepcopy(body)
    owners = {owner["uid"]: owner for owner in item["metadata"].get("ownerReferences", ())}
    owners |= {owner["uid"]: owner for owner in wanted["metadata"].get("ownerReferences", ())}
    item["apiVersion"], item["kind"] = wanted["apiVersion"], wanted["kind"]
    item["metadata"]["name"] = wanted["metadata"]["name"]
    item["metadata"].setdefault("creationTimestamp", time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))
    item["metadata"].setdefault("managedFields", [{"manager": "liken", "operation": "Apply"}])
    if owners:
        item["metadata"]["ownerReferences"] = list(owners.values())
    item["spec"] = {**item.get("spec", {}), **wanted["spec"]}
    if wanted["metadata"]["name"] != name:
        raise Refusal(400, "the name of the object does not match the name on the URL")
    return item


def _same(one: Raw, other: Raw) -> bool:
    return (one["spec"], one["metadata"]) == (other["spec"], other["metadata"])


def _validate(item: Raw, held: Raw | None) -> None:
    problems = list(_spec_problems(item))
    if held is not None:
        problems += [
            (f"spec.{field}", "field is immutable")
            for field in IMMUTABLE
            if item["spec"].get(field) != held["spec"].get(field)
        ]
        if item["spec"]["pool"]["name"] != held["spec"]["pool"]["name"]:
            problems.append(("spec.pool.name", "field is immutable"))
    if problems:
        words = ", ".join(f"{field}: {text}" for field, text in problems)
        name = item["metadata"]["name"][:80]
        raise Refusal(422, f'ResourceSlice.resource.k8s.io "{name}" is invalid: {words}', problems)


def _spec_problems(item: Raw) -> Iterator[tuple[str, str]]:
    spec = item["spec"]
    if not SUBDOMAIN.fullmatch(item["metadata"]["name"]):
        yield "metadata.name", "must be a DNS subdomain"
    if not SUBDOMAIN.fullmatch(spec["driver"]) or len(spec["driver"]) > 63:
        yield "spec.driver", "must be a DNS subdomain of at most 63 characters"
    pool = spec["pool"]
    if not all(SUBDOMAIN.fullmatch(part) for part in pool["name"].split("/")):
        yield "spec.pool.name", "must be DNS subdomains"
    if not 0 <= pool["generation"] < 2**63:
        yield "spec.pool.generation", "must be an int64, not negative"
    if pool["resourceSliceCount"] <= 0:
        yield "spec.pool.resourceSliceCount", "must be greater than 0"
    devices = spec.get("devices") or []
    if len(devices) > MAX_DEVICES:
        yield "spec.devices", f"must have at most {MAX_DEVICES} items"
    names = set()
    for number, device in enumerate(devices):
        yield from _device_problems(f"spec.devices[{number}]", device)
        if device["name"] in names:
            yield f"spec.devices[{number}].name", "Duplicate value"
        names.add(device["name"])


def _device_problems(place: str, device: Raw) -> Iterator[tuple[str, str]]:
    if not LABEL.fullmatch(device["name"]):
        yield f"{place}.name", "must be a DNS label"
    if unknown := device.keys() - {"name", "attributes", "capacity", "taints", "allowMultipleAllocations"}:
        yield place, f"unknown fields {sorted(unknown)}"
    attributes = device.get("attributes", {})
    if len(attributes) > MAX_ATTRIBUTES:
        yield f"{place}.attributes", f"must have at most {MAX_ATTRIBUTES} entries"
    for name, value in attributes.items():
        field = f"{place}.attributes[{name}]"
        domain, slash, identifier = name.rpartition("/")
        if not IDENTIFIER.fullmatch(identifier):
            yield field, "must be a C identifier of at most 32 characters"
        if slash and (not SUBDOMAIN.fullmatch(domain) or len(domain) > 63):
            yield field, "the domain must be a DNS subdomain of at most 63 characters"
        yield from _value_problems(field, value)


def _value_problems(field: str, value: Raw) -> Iterator[tuple[str, str]]:
    if len(value) != 1 or not value.keys() <= {"string", "bool", "int", "version"}:
        yield field, "exactly one value must be specified"
        return
    ((kind, content),) = value.items()
    if kind in ("string", "version"):
        if len(content.encode()) > MAX_STRING:
            yield f"{field}.{kind}", f"must be no longer than {MAX_STRING} bytes"
        if kind == "version" and not SEMVER.fullmatch(content):
            yield f"{field}.version", "must be a semantic version"
    elif kind == "bool" and not isinstance(content, bool):
        yield f"{field}.bool", "must be a bool"
    elif kind == "int" and (isinstance(content, bool) or not -(2**63) <= content < 2**63):
        yield f"{field}.int", "must be an int64"
