"""From an inventory to the ResourceSlices that offer it: names, owner, pool, generation, assignment.

A pool is one node's devices. Consumers use only the slices of a pool's highest generation, and only when
exactly `resourceSliceCount` of them are there (Kubernetes' structured allocator, pools). So a generation in
the making offers nothing until it is whole.
"""

import hashlib
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from common.cluster import Raw
from common.inventory import Inventory
from services.publisher.allowed import LeftOut, allowed

MAX_OBJECT_NAME = 253  # Kubernetes object names
MAX_SLICE_DEVICES = 128  # one ResourceSlice; Kubernetes API limit
MAX_DEVICES = 1024  # what liken offers of one machine
SHARING = "allowMultipleAllocations"
MAX_GENERATION = 2**63 - 1  # int64
_SUFFIX_ROOM = len("-1024")
_HASH_DIGITS = 16


class Limits(NamedTuple):
    """How many devices a slice and a node hold."""

    per_slice: int = MAX_SLICE_DEVICES
    per_node: int = MAX_DEVICES


DEFAULT_LIMITS = Limits()
Homes = Mapping[str, int]  # device name -> number of its slice, from 1


class Wanted(NamedTuple):
    """The slices as they should be, in name order of their numbers, and what is not in them."""

    slices: tuple[Raw, ...]
    left_out: tuple[LeftOut, ...]
    overflow: tuple[str, ...]  # names of the devices that were too many, in name order
    homes: Homes


def slices(
    inventory: Inventory,
    node: str,
    previous: Sequence[Raw] = (),
    *,
    node_uid: str = "",
    driver: str = "liken.sh",
    held: Collection[str] | None = frozenset(),
    homes: Homes | None = None,
    refused: Mapping[str, str] | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> Wanted:
    """The slices that offer `inventory` on `node`, given the slices `previous` that the cluster holds.

    `node_uid` "" leaves the owner out. `held`: devices of prepared claims, which overflow never drops (None
    when nobody knows them); after them come those that are published already. `homes`: where the last result
    put each device.
    `refused`: reasons by device name, from a server that knew better than this module.
    """
    devices, left_out = _devices(inventory, driver, refused or {})
    in_pool = [item for item in previous if item["spec"]["pool"]["name"] == node]
    published = _published(in_pool, node, driver)
    known = {**published, **(homes or {})}
    names, overflow = _fitting(devices, held or (), known, limits.per_node)
    layout = _layout(names, known, limits)
    contents = {
        slice_name(node, driver, number): [devices[name] for name in sorted(layout[number])]
        for number in sorted(layout)
    }
    generation = _generation(contents, in_pool)
    made = tuple(
        _slice(name, node, driver, node_uid, generation, len(contents), content)
        for name, content in contents.items()
    )
    chosen = {name: number for number in sorted(layout) for name in sorted(layout[number])}
    return Wanted(made, tuple(left_out), tuple(overflow), chosen)


def slice_name(node: str, driver: str, number: int) -> str:
    """The object name of a node's slice `number` (from 1): readable, or hashed where that is too long."""
    name = f"{node}-{driver}"
    if len(name) + _SUFFIX_ROOM > MAX_OBJECT_NAME:
        digest = hashlib.sha256(f"{node}\0{driver}".encode()).hexdigest()[:_HASH_DIGITS]
        room = MAX_OBJECT_NAME - _SUFFIX_ROOM - len(f"-{digest}-{driver}")
        name = f"{node[:room].rstrip('.-')}-{digest}-{driver}"
    return name if number == 1 else f"{name}-{number}"


def slice_number(name: str, node: str, driver: str) -> int | None:
    """The number of a slice with that name; None for a name that is none of ours."""
    base = slice_name(node, driver, 1)
    if name == base:
        return 1
    number = name.removeprefix(f"{base}-")
    if name == number or not number.isascii() or not number.isdigit() or number.startswith("0"):
        return None
    return int(number) if 1 < int(number) <= MAX_DEVICES else None


def devices_of(item: Raw) -> list[Raw]:
    """The devices of a slice; the API server leaves an empty list out."""
    return item["spec"].get("devices") or []


def generation_of(item: Raw) -> int:
    return int(item["spec"]["pool"].get("generation") or 0)


def _devices(
    inventory: Inventory, driver: str, refused: Mapping[str, str]
) -> tuple[dict[str, Raw], list[LeftOut]]:
    devices: dict[str, Raw] = {}
    left_out: list[LeftOut] = []
    for device in sorted(inventory.devices, key=lambda device: device.name):
        raw, problems = allowed(device, driver)
        if raw is not None and device.name in refused:
            raw, problems = None, [LeftOut(device.name, "", refused[device.name])]
        if raw is not None and device.name in devices:
            raw, problems = None, [LeftOut(device.name, "", "another device has the same name")]
        left_out += problems
        if raw is not None:
            devices[device.name] = raw
    return devices, left_out


def _published(in_pool: Sequence[Raw], node: str, driver: str) -> dict[str, int]:
    """Where each device is now. In a pool that was left half written the newest generation is right."""
    found: dict[str, int] = {}
    for item in sorted(in_pool, key=lambda item: (-generation_of(item), item["metadata"]["name"])):
        number = slice_number(item["metadata"]["name"], node, driver)
        if number is not None:
            for device in devices_of(item):
                found.setdefault(device["name"], number)
    return found


def _fitting(
    devices: Collection[str], held: Collection[str], published: Collection[str], most: int
) -> tuple[list[str], list[str]]:
    """What is published and what is too many: claimed devices first, then those that are published already.

    Else each claim that begins or ends, and each device with a lower name, would push one out of its slice
    that the scheduler may be giving away just then.
    """
    ranked = sorted(devices, key=lambda name: (name not in held, name not in published, name))
    return sorted(ranked[:most]), sorted(ranked[most:])


def _layout(names: Sequence[str], homes: Homes, limits: Limits) -> dict[int, list[str]]:
    """Each device in the slice it had; new ones where there is room, lowest number first."""
    layout: dict[int, list[str]] = {1: []}  # a node without devices has one empty slice
    homeless = []
    for name in names:
        number = homes.get(name)
        if number is not None and len(layout.setdefault(number, [])) < limits.per_slice:
            layout[number].append(name)
        else:
            homeless.append(name)
    for name in homeless:
        numbers = [*sorted(layout), *range(1, limits.per_node + 1)]
        number = next(n for n in numbers if len(layout.get(n, ())) < limits.per_slice)
        layout.setdefault(number, []).append(name)
    return layout


def _generation(contents: Mapping[str, list[Raw]], in_pool: Sequence[Raw]) -> int:
    """The generation that all slices get.

    It stays where the slices of the newest generation are all as wanted (others may still be missing: what
    is missing cannot have been seen), or where exactly one of a whole pool changes, which is one atomic
    write. Anything else is a new generation, so that no mixture of old and new is ever complete.
    """
    if not in_pool:
        return 1
    newest = max(map(generation_of, in_pool))
    current = [item for item in in_pool if generation_of(item) == newest]
    counts = {item["spec"]["pool"].get("resourceSliceCount") for item in current}
    if counts == {len(contents)} and all(item["metadata"]["name"] in contents for item in current):
        known = _shares(in_pool)
        changed = [
            item
            for item in current
            if devices_of(item) != _without_sharing(contents[item["metadata"]["name"]], known)
        ]
        if not changed or (len(changed) == 1 and len(current) == len(contents)):
            return newest
    return newest + 1 if newest < MAX_GENERATION else 1


def _shares(in_pool: Sequence[Raw]) -> bool:
    """Whether the server is seen to keep who can be shared; before Kubernetes 1.36 it drops that."""
    return any(device.get(SHARING) for item in in_pool for device in devices_of(item))


def _without_sharing(devices: list[Raw], known: bool) -> list[Raw]:
    """The devices as such a server holds them: what it dropped is no change of what the pool offers, else
    each start on it would be a new generation of all slices.
    """
    if known:
        return devices
    return [{key: value for key, value in device.items() if key != SHARING} for device in devices]


def _slice(
    name: str, node: str, driver: str, node_uid: str, generation: int, count: int, devices: list[Raw]
) -> Raw:
    metadata: Raw = {"name": name}
    if node_uid:
        owner = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": node_uid, "controller": True}
        metadata["ownerReferences"] = [owner]
    pool = {"name": node, "generation": generation, "resourceSliceCount": count}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": metadata,
        "spec": {"driver": driver, "nodeName": node, "pool": pool, "devices": devices},
    }
