"""What a ResourceClaim gives to this driver on this node. Reads the API's JSON, nothing else."""

from typing import Any, NamedTuple

import msgspec

from common.errors import RequestError
from services.plugin.calls import ClaimName


class Wanted(NamedTuple):
    """One allocation result of ours. `request` may be "main/sub"."""

    request: str
    pool: str
    device: str
    share_id: str
    admin: bool


class _Meta(msgspec.Struct):
    uid: str = ""


class _Result(msgspec.Struct):
    request: str
    driver: str
    pool: str
    device: str
    shareID: str | None = None  # noqa: N815 - the word of the ResourceClaim API
    adminAccess: bool | None = None  # noqa: N815 - the word of the ResourceClaim API


class _Devices(msgspec.Struct):
    results: list[_Result] = []


class _Allocation(msgspec.Struct):
    devices: _Devices = msgspec.field(default_factory=_Devices)


class _Status(msgspec.Struct):
    allocation: _Allocation | None = None


class _Claim(msgspec.Struct):
    metadata: _Meta
    status: _Status | None = None


def wanted(claim: dict[str, Any], asked: ClaimName, driver: str, pool: str) -> tuple[Wanted, ...]:
    """The results of `claim` that name our driver and our pool, in the order of the API.

    Raises RequestError in words when the object is another one, not allocated, or has nothing for us.
    """
    try:
        read = msgspec.convert(claim, _Claim)
    except msgspec.ValidationError as error:
        raise RequestError(f"the claim in the cluster cannot be understood: {error}") from error
    if read.metadata.uid != asked.uid:
        raise RequestError(
            f"the claim was replaced: the cluster has UID {read.metadata.uid or 'none'}, the kubelet asks for"
            f" {asked.uid}; the pod has to be made anew"
        )
    if read.status is None or read.status.allocation is None:
        raise RequestError("the claim is not allocated (any more); the scheduler has to allocate it first")
    results = read.status.allocation.devices.results
    ours = [result for result in results if (result.driver, result.pool) == (driver, pool)]
    if not ours:
        raise RequestError(
            f"the claim's allocation names no device of {driver} in the pool {pool} of this node"
        )
    return tuple(
        Wanted(result.request, result.pool, result.device, result.shareID or "", bool(result.adminAccess))
        for result in ours
    )


def base_request(request: str) -> str:
    """The name by which the kubelet knows a request: "main" of "main/sub"."""
    return request.partition("/")[0]
