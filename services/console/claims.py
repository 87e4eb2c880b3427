"""`liken claim`, `claims`, `release`: scheduler and kubelet of the local cluster."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from common.cdi import Specs
from common.claims import is_uid
from common.errors import LikenError, RequestError
from common.inventory import ClaimPresence
from common.settings import Settings
from services.console.allocate import allocate, new_claim, results_of
from services.console.cluster import LOCK_S, Claims, parse_name
from services.console.output import Format, print_as, print_table, say
from services.console.state import State

_NOT_PREPARED = "not prepared"
_SHOWN = 4  # nodes of one device in a table


class Row(NamedTuple):
    """One device of one claim."""

    namespace: str
    name: str
    uid: str
    device: str
    state: str
    since: str = ""  # RFC 3339
    reason: str = ""


def claim(name: str, devices: Sequence[str], folder: Path | None, output: Format) -> None:
    """Allocate, prepare, print. A claim that cannot be prepared is taken back."""
    state = State(folder)
    namespace, name = parse_name(name)
    state.require_up()
    settings = state.settings()
    _require_local(settings)
    claims = Claims(settings.local)
    with claims.lock().held(LOCK_S):
        held = claims.find(namespace, name)
        if held is not None:
            _require_same(held, devices)
        made = held or _allocated(claims, settings, namespace, name, devices)
        if held is None:
            claims.write(made)
        try:
            ids = _prepare(settings, made)
        except LikenError:
            if held is None:
                _take_back(settings, claims, made)
            raise
    _print_prepared(made, ids, settings, output)


def claims(folder: Path | None, output: Format) -> None:
    """List the claims of the local cluster and whatever else is prepared on this machine."""
    state = State(folder)
    settings = state.settings()
    running = settings.cluster == "kubernetes" or state.holder() is not None
    prepared = _prepared(settings) if running else ()
    allocated = Claims(settings.local).all() if settings.cluster == "local" else []
    rows = _rows(prepared, allocated)
    specs = Specs(settings.cdi, settings.driver)

    def said(row: Row) -> list[str]:
        """What the spec says now: the paths that a container would get."""
        return [node.path for node in specs.nodes(row.uid).get(row.device, ())]

    def table(wide: bool) -> None:
        columns = ["CLAIM", "DEVICE", "STATE", "SINCE", "WHY"] + (["UID", "CDI ID", "SPEC"] if wide else [])
        cells = [
            [called(row.namespace, row.name, row.uid), row.device, row.state, row.since, row.reason]
            + ([row.uid, specs.device_id(row.uid, row.device), _brief(said(row))] if wide else [])
            for row in rows
        ]
        print_table(columns, cells, "No claims: make one with liken claim NAME DEVICE...")

    listed = [
        {**row._asdict(), "cdi": specs.device_id(row.uid, row.device), "nodes": said(row)} for row in rows
    ]
    names = sorted({called(row.namespace, row.name, row.uid) for row in rows})
    print_as(output, listed, names=lambda: names, table=table)


def called(namespace: str, name: str, uid: str) -> str:
    """What people know a claim by; its UID where its record cannot be read and nothing else is known."""
    return f"{namespace}/{name}" if name else uid


def _brief(paths: Sequence[str]) -> str:
    """The first nodes, and how many more there are: a Bluetooth claim has 35."""
    more = f" and {len(paths) - _SHOWN} more" if len(paths) > _SHOWN else ""
    return " ".join(paths[:_SHOWN]) + more


def release(name: str | None, force: str | None, folder: Path | None) -> None:
    """Unprepare and remove; what is not there is released already."""
    if force is not None:
        _release_uid(force, folder)
        return
    namespace, name = parse_name(name or "")
    state = State(folder)
    settings = state.settings()
    claims = Claims(settings.local)
    with claims.lock().held(LOCK_S):
        held = claims.find(namespace, name)
        if held is None:
            say(f"there is no claim {namespace}/{name}: nothing to release")
            return
        state.require_up()
        _unprepare(settings, held)
        claims.remove(namespace, name)
    say(f"released {namespace}/{name}")


def _release_uid(uid: str, folder: Path | None) -> None:
    if not is_uid(uid):
        raise RequestError(f"{uid!r} is no UID: give the claim's metadata.uid")
    settings = State(folder).settings()
    _unprepare(settings, {"metadata": {"namespace": "", "name": "", "uid": uid}})
    if settings.cluster == "local":
        claims = Claims(settings.local)
        for claim in claims.all():
            if _uid(claim) == uid:
                claims.remove(claim["metadata"]["namespace"], claim["metadata"]["name"])
    say(f"released {uid}")


def _require_local(settings: Settings) -> None:
    if settings.cluster != "local":
        raise RequestError("liken claim is for the local cluster: here the claims come from Kubernetes")


def _require_same(held: Mapping[str, Any], devices: Sequence[str]) -> None:
    names = [result["device"] for result in results_of(held)]
    if sorted(names) != sorted(devices):
        raise RequestError(
            f"the claim {_full_name(held)} exists and holds {', '.join(names)}:"
            " release it, or take another name"
        )


def _allocated(
    claims: Claims, settings: Settings, namespace: str, name: str, devices: Sequence[str]
) -> dict[str, Any]:
    results = allocate(devices, claims.slices(), claims.all(), settings.driver)
    return new_claim(namespace, name, results, settings.node_name, settings.driver)


def _prepare(settings: Settings, claim: Mapping[str, Any]) -> list[str]:
    from services.console import kubelet  # late: gRPC takes a quarter of a second to import

    return kubelet.prepare(settings, kubelet.Claim(**_named(claim)))


def _unprepare(settings: Settings, claim: Mapping[str, Any]) -> None:
    from services.console import kubelet

    kubelet.unprepare(settings, kubelet.Claim(**_named(claim)))


def _take_back(settings: Settings, claims: Claims, claim: Mapping[str, Any]) -> None:
    try:
        _unprepare(settings, claim)
    except LikenError:
        return  # it stays allocated: what may be prepared in part must not be given to anybody else
    claims.remove(claim["metadata"]["namespace"], claim["metadata"]["name"])


def _print_prepared(claim: Mapping[str, Any], ids: list[str], settings: Settings, output: Format) -> None:
    devices = " ".join(f"--device {shlex.quote(each)}" for each in ids)
    command = f"podman --cdi-spec-dir {shlex.quote(str(settings.cdi))} run --rm -it {devices} IMAGE"
    value = {"claim": _full_name(claim), "uid": _uid(claim), "cdi": ids, "podman": command}

    def table(_wide: bool) -> None:
        say(f"claim {_full_name(claim)} is prepared; its CDI ids:")
        for each in ids:
            say(f"  {each}")
        say("A container gets the devices with:")
        say(f"  {command}")

    print_as(output, value, names=lambda: ids, table=table)


def _prepared(settings: Settings) -> Sequence[ClaimPresence]:
    """What the reconciler told last, without what has ended since: it tells of an end a moment later."""
    from services.console.hearing import hear  # late: ZeroMQ is for this one

    told = hear(settings).claims
    if not settings.claims_dir.is_dir():
        return told  # this process does not see the records
    held = [path.name for path in settings.claims_dir.glob("*/*")]
    return [claim for claim in told if any(name.startswith(claim.uid) for name in held)]


def _rows(prepared: Sequence[ClaimPresence], allocated: Sequence[Mapping[str, Any]]) -> list[Row]:
    """One row per claim and device: all that is prepared, and what is allocated and not prepared."""
    rows = {
        Row(claim.namespace, claim.name, claim.uid, device.device, device.state, device.since, device.reason)
        for claim in prepared
        for device in claim.devices
    }
    known = {(row.uid, row.device) for row in rows}
    for claim in allocated:
        for result in results_of(claim):
            if (_uid(claim), result["device"]) not in known:
                metadata = claim["metadata"]
                name = (metadata["namespace"], metadata["name"], _uid(claim))
                rows.add(Row(*name, result["device"], _NOT_PREPARED))
    return sorted(rows)


def _named(claim: Mapping[str, Any]) -> dict[str, str]:
    metadata = claim["metadata"]
    return {"namespace": metadata["namespace"], "name": metadata["name"], "uid": metadata["uid"]}


def _full_name(claim: Mapping[str, Any]) -> str:
    return f"{claim['metadata']['namespace']}/{claim['metadata']['name']}"


def _uid(claim: Mapping[str, Any]) -> str:
    return str(claim["metadata"]["uid"])
