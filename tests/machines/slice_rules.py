"""What the API server accepts as ResourceSlices of one pool, checked by code of its own.

Rules: k8s.io/api resource/v1 types.go and the server's validation of ResourceSlices; for pools of several
slices the structured allocator's completeness rule.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

Raw = dict[str, Any]

LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,31}")
DEVICE_FIELDS = {"name", "attributes", "allowMultipleAllocations"}


def problems(slices: Sequence[Raw], driver: str, node: str) -> list[str]:
    """Everything that is wrong with the slices of one node, one line each; empty when all is well."""
    found = [problem for item in slices for problem in _slice(item, driver, node)]
    found += _pool(slices)
    return found


def _slice(item: Raw, driver: str, node: str) -> Iterator[str]:
    name = item["metadata"]["name"]
    if (item.get("apiVersion"), item.get("kind")) != ("resource.k8s.io/v1", "ResourceSlice"):
        yield f"{name}: is a {item.get('apiVersion')} {item.get('kind')}"
    if len(name) > 253 or not SUBDOMAIN.fullmatch(name):
        yield f"{name}: no object name"
    spec = item["spec"]
    yield from _placement(name, spec, driver, node)
    if len(spec["devices"]) > 128:
        yield f"{name}: {len(spec['devices'])} devices"
    for device in spec["devices"]:
        for problem in _device(device, driver):
            yield f"{name}: {device.get('name')}: {problem}"


def _placement(name: str, spec: Raw, driver: str, node: str) -> Iterator[str]:
    pool = spec["pool"]
    if spec.get("driver") != driver or len(driver) > 63 or not SUBDOMAIN.fullmatch(driver):
        yield f"{name}: driver {spec.get('driver')!r}"
    if spec.get("nodeName") != node or spec.keys() & {"nodeSelector", "allNodes", "perDeviceNodeSelection"}:
        yield f"{name}: not placed on exactly the node"
    if pool.get("name") != node or len(node) > 253:
        yield f"{name}: pool {pool.get('name')!r}"
    if type(pool.get("generation")) is not int or pool["generation"] < 0:
        yield f"{name}: generation {pool.get('generation')!r}"
    if type(pool.get("resourceSliceCount")) is not int or pool["resourceSliceCount"] < 1:
        yield f"{name}: resourceSliceCount {pool.get('resourceSliceCount')!r}"


def _device(device: Raw, driver: str) -> Iterator[str]:
    if not LABEL.fullmatch(device.get("name", "")):
        yield "name is no DNS label"
    if device.keys() - DEVICE_FIELDS:
        yield f"fields {sorted(device.keys() - DEVICE_FIELDS)}"
    if device.get("allowMultipleAllocations", True) is not True:
        yield "allowMultipleAllocations is stated although it is not true"
    attributes = device.get("attributes", {})
    if len(attributes) > 32:
        yield f"{len(attributes)} attributes"
    bare = Counter(key.removeprefix(f"{driver}/") for key in attributes)
    for key, value in attributes.items():
        if bare[key.removeprefix(f"{driver}/")] > 1:
            yield f"{key} is there twice"
        yield from (f"{key}: {problem}" for problem in _attribute(key, value))


def _attribute(key: str, value: Raw) -> Iterator[str]:
    domain, slash, name = key.rpartition("/")
    if not IDENTIFIER.fullmatch(name):
        yield "no C identifier of at most 32 characters"
    if slash and (len(domain) > 63 or not SUBDOMAIN.fullmatch(domain)):
        yield "no domain"
    if len(value) != 1:
        yield f"has {len(value)} values"
    for kind, content in value.items():
        if kind == "string":
            yield from _string(content)
        elif kind == "int":
            if type(content) is not int or not -(2**63) <= content < 2**63:
                yield f"{content!r} is no int64"
        elif kind != "bool" or type(content) is not bool:
            yield f"{content!r} is no {kind}"


def _string(content: object) -> Iterator[str]:
    if not isinstance(content, str):
        yield f"{content!r} is no string"
        return
    try:
        encoded = content.encode("utf-8")
    except UnicodeEncodeError:
        yield "no valid UTF-8"
        return
    if len(encoded) > 64:
        yield f"{len(encoded)} bytes"
    if not content:
        yield "empty: an attribute that the hardware lacks must be absent"


def _pool(slices: Sequence[Raw]) -> Iterator[str]:
    if not slices:
        yield "no slice at all: a node without devices has one empty slice"
    names = Counter(device["name"] for item in slices for device in item["spec"]["devices"])
    yield from (f"{name} is in the pool {count} times" for name, count in names.items() if count > 1)
    objects = Counter(item["metadata"]["name"] for item in slices)
    yield from (f"two slices are named {name}" for name, count in objects.items() if count > 1)
    for item in slices:
        if item["spec"]["pool"].get("resourceSliceCount") != len(slices):
            yield f"{item['metadata']['name']}: {len(slices)} slices, not its resourceSliceCount"
    if len({item["spec"]["pool"].get("generation") for item in slices}) > 1:
        yield "several generations at once"
