"""Whether inventory, slices, presence and specs tell the same, by rules of this file."""

import os
from collections.abc import Iterable, Iterator
from typing import Any

from tests.kernel.guest.observe import Seen
from tests.kernel.guest.ownership import foreign

PLACEHOLDERS = {"absent": "absent", "unknown": "absent", "withheld": "withheld", "changed": "withheld"}

States = dict[str, dict[str, str]]  # claim -> device -> present, absent, withheld, changed or unknown


def disagreement(seen: Seen, states: States, has: Iterable[str], lacks: Iterable[str]) -> str:
    """What is not as it has to be yet; "" when all agrees.

    `states`: every prepared claim. `has` and `lacks`: names that the slices must list and must not.
    """
    if not seen.whole:
        return "there is no inventory"
    inventory = {device["name"]: device for device in seen.whole["devices"]}
    found = [*_pool(seen), *_slices(seen, inventory, set(has), set(lacks)), *_claims(seen, states)]
    for claim, devices in states.items():
        spec = seen.specs.get(claim, {})
        found += [
            f"the spec of {claim}: {name} is {state}, and {wrong}"
            for name, state in devices.items()
            if (wrong := _wrong_nodes(spec.get(name, []), name, state, inventory.get(name)))
        ]
    return "; ".join(found)


def _pool(seen: Seen) -> Iterator[str]:
    """What makes consumers pass over a pool: resource.k8s.io/v1 ResourceSliceSpec."""
    heads = [
        (spec["driver"], spec["nodeName"], spec["pool"]["name"], spec["pool"]["resourceSliceCount"])
        for spec in seen.slices
    ]
    if set(heads) != {("liken.sh", "guest", "guest", len(heads))}:
        yield f"the slices are of {heads}"
    if len({spec["pool"]["generation"] for spec in seen.slices}) != 1:
        yield "the slices have several generations"
    names = [device["name"] for spec in seen.slices for device in spec.get("devices") or []]
    if len(names) != len(set(names)):
        yield f"a device is in the slices twice: {sorted(names)}"


def _slices(seen: Seen, inventory: dict[str, Any], has: set[str], lacks: set[str]) -> Iterator[str]:
    wanted = {name: _published(device) for name, device in inventory.items()}
    for name in sorted(wanted.keys() | seen.offered.keys()):
        if wanted.get(name) != seen.offered.get(name):
            yield f"{name}: the inventory has {wanted.get(name)}, the slices {seen.offered.get(name)}"
    for name in sorted(has - seen.offered.keys()):
        yield f"{name} is not in the slices"
    for name in sorted(lacks & seen.offered.keys()):
        yield f"{name} is in the slices"


def _claims(seen: Seen, states: States) -> Iterator[str]:
    if seen.presence != states:
        yield f"the bus says of the claims {seen.presence}, right is {states}"
    found = {claim: set(spec) for claim, spec in seen.specs.items()}
    wanted = {claim: set(devices) for claim, devices in states.items()}
    if found != wanted:
        yield f"there are specs of {found}, prepared are {wanted}"
    if seen.left:
        yield f"no specs, and in their folder: {seen.left}"


def _published(device: dict[str, Any]) -> dict[str, Any]:
    """A device of the inventory as a slice has to have it (resource.k8s.io/v1 Device)."""
    sharing = {"allowMultipleAllocations": True} if device["shareable"] else {}
    return {"name": device["name"], "attributes": device["attributes"], **sharing}


def _wrong_nodes(paths: list[str], name: str, state: str, device: dict[str, Any] | None) -> str:
    if state in PLACEHOLDERS:
        right = [f"/dev/liken.sh/{PLACEHOLDERS[state]}/{name}"]
        listed = device is not None and state in ("absent", "withheld")
        return "it is published" if listed else "" if paths == right else f"the spec names {paths}"
    if device is None:  # a program took it from its driver: it keeps its usbfs node
        kept = len(paths) == 1 and paths[0].startswith("/dev/bus/usb/")
        return "" if kept else f"the spec names {paths}, and it is not published"
    right = sorted(node["path"] for node in device["nodes"])
    if paths != right:
        return f"the spec names {paths}, the inventory {right}"
    stated = {
        node["path"] for node in device["nodes"] if node.get("type")
    }  # whether there is a device or not
    there = [path for path in paths if path not in stated]
    wrong = [f"nothing is at {path}" for path in there if not os.path.lexists(path)]
    wrong += [f"{path} belongs to {place}" for path in there if (place := foreign(path, device["address"]))]
    return ", ".join(wrong)
