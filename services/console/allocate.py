"""What a scheduler decides, for the local cluster: which published device a claim gets. Pure."""

import difflib
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from common.errors import RequestError

Raw = Mapping[str, Any]


class Offer(NamedTuple):
    """One device of the slices."""

    pool: str
    device: str
    shareable: bool


def offers(slices: Iterable[Raw], driver: str) -> dict[str, Offer]:
    """What can be allocated, by device name: the devices of complete pools in their newest generation."""
    pools: dict[str, list[Raw]] = {}
    for item in slices:
        if item["spec"]["driver"] == driver:
            pools.setdefault(item["spec"]["pool"]["name"], []).append(item)
    found: dict[str, Offer] = {}
    for pool, items in sorted(pools.items()):
        newest = max(item["spec"]["pool"]["generation"] for item in items)
        current = [item for item in items if item["spec"]["pool"]["generation"] == newest]
        if any(item["spec"]["pool"]["resourceSliceCount"] != len(current) for item in current):
            continue
        for item in current:
            for device in item["spec"].get("devices") or []:
                shareable = bool(device.get("allowMultipleAllocations"))
                found[device["name"]] = Offer(pool, device["name"], shareable)
    return found


def allocate(
    devices: Sequence[str], slices: Iterable[Raw], claims: Iterable[Raw], driver: str
) -> list[dict[str, Any]]:
    """The allocation results for a claim on `devices`, one request each, given the other `claims`.

    Raises RequestError when a device is not published, or is exclusive and taken.
    """
    offered = offers(slices, driver)
    taken = holders(claims, driver)
    results: list[dict[str, Any]] = []
    for number, name in enumerate(devices, start=1):
        offer = offered.get(name)
        if offer is None:
            raise RequestError(_unknown(name, offered))
        if not offer.shareable and name in taken:
            raise RequestError(
                f"{name} is held by the claim {taken[name]} and cannot be shared: release that claim first"
            )
        if not offer.shareable and name in devices[: number - 1]:
            raise RequestError(f"{name} cannot be shared, not even within one claim: name it once")
        result = {"request": f"device-{number}", "driver": driver, "pool": offer.pool, "device": name}
        results.append(result | ({"shareID": str(uuid.uuid4())} if offer.shareable else {}))
    return results


def holders(claims: Iterable[Raw], driver: str) -> dict[str, str]:
    """Which claim holds each device, as NAMESPACE/NAME. Admin access holds nothing."""
    found: dict[str, str] = {}
    for claim in claims:
        for result in results_of(claim):
            if result["driver"] == driver and not result.get("adminAccess"):
                found[result["device"]] = f"{claim['metadata']['namespace']}/{claim['metadata']['name']}"
    return found


def results_of(claim: Raw) -> list[dict[str, Any]]:
    """The allocation results of a ResourceClaim; none when it is not allocated."""
    allocation = (claim.get("status") or {}).get("allocation") or {}
    return (allocation.get("devices") or {}).get("results") or []


def new_claim(
    namespace: str, name: str, results: Sequence[Mapping[str, Any]], node: str, driver: str
) -> dict[str, Any]:
    """A ResourceClaim as it stands in a cluster after scheduling, with a UID of its own."""
    requests = [
        {
            "name": result["request"],
            "exactly": {"deviceClassName": driver, "allocationMode": "ExactCount", "count": 1},
        }
        for result in results
    ]
    fields = [{"key": "metadata.name", "operator": "In", "values": [node]}]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": namespace, "uid": str(uuid.uuid4())},
        "spec": {"devices": {"requests": requests}},
        "status": {
            "allocation": {
                "devices": {"results": list(results)},
                "nodeSelector": {"nodeSelectorTerms": [{"matchFields": fields}]},
            }
        },
    }


def _unknown(name: str, offered: Mapping[str, Offer]) -> str:
    if not offered:
        return f"no device is published yet, so {name} cannot be claimed: look at liken status"
    near = difflib.get_close_matches(name, sorted(offered), n=3, cutoff=0.5)
    hint = f"did you mean {', '.join(near)}?" if near else "liken slices lists what is"
    return f"{name} is not published: {hint}"
