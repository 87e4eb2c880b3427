"""Scenario 2: each hot-pluggable kind comes and goes: one inventory and one slice write per burst."""

import itertools
import re
import time
from typing import Any

import pytest

from tests.kernel.conftest import Tell
from tests.kernel.machine import Guest
from tests.kernel.plugs import KINDS, Kind, Plugs
from tests.kernel.product import SAFE_S, SETTLED_S, SLICE_S, Claim, Product, absent
from tests.waiting import eventually

QUIET_S = SETTLED_S + 1.5  # after this no walk belongs to the burst any more
PAUSE_S = 0.4 * SETTLED_S  # a watcher on a busy host reads an event half a second late
CLAIMABLE = sorted(name for name, kind in KINDS.items() if kind.device)
OTHERS = sorted(KINDS.keys() - set(CLAIMABLE))


def inventories(guest: Guest, mark: int) -> int:
    """How many walks reached the bus since `mark`."""
    return int(guest.call("walks", mark))


def bursts(guest: Guest, mark: int) -> int:
    """How many bursts of kernel events there were since `mark`: what a settle time parts is two.

    A stick's disk comes a second after it, and on a busy host any driver may take that long.
    """
    times: list[float] = [event["at"] for event in guest.call("since", mark, "uevent") if counts(event)]
    return 1 + sum(later - earlier > PAUSE_S for earlier, later in itertools.pairwise(times))


def counts(event: dict[str, Any]) -> bool:
    """Whether an event is of hardware that came, went, or got or lost a driver."""
    words = ("add", "remove", "bind", "unbind")
    path = event["path"]
    return (
        event["action"] in words and path.startswith("/devices/") and not path.startswith("/devices/virtual/")
    )


def settle(guest: Guest, mark: int) -> None:
    """Wait until the last kernel event is old enough for every walk to be done."""
    while True:
        events = guest.call("since", mark, "uevent")
        quiet = guest.call("boottime") - events[-1]["at"] if events else QUIET_S
        if quiet >= QUIET_S:
            return
        guest.call("nap", QUIET_S - quiet)


def shapes(paths: list[str]) -> tuple[str, ...]:
    return tuple(sorted(re.sub(r"(?<!/i)\d+", "N", re.sub(r"/sd[a-z]$", "/sdX", path)) for path in paths))


@pytest.mark.parametrize("name", CLAIMABLE)
def test_a_claimable_kind_comes_and_goes(
    name: str, guest: Guest, product: Product, plugs: Plugs, tell: Tell
) -> None:
    kind = KINDS[name]
    before = guest.call("seen")["slice"]
    mark = guest.call("mark")
    appeared = product.waiting_for_slice(has=[kind.device])
    began = plugs.plug(kind)
    appeared.result(120)
    listed = time.monotonic() - began
    tell(f"{name}: device_add to slice {listed:.2f} s")
    assert listed < SLICE_S
    settle(guest, mark)
    assert 1 <= inventories(guest, mark) <= bursts(guest, mark)
    assert len(guest.call("since", mark, "slice")) <= bursts(guest, mark)

    claim = product.claim("hotplug", kind.device)
    product.agree(has=[kind.device])
    assert set(guest.call("seen")["slice"]) - set(before) == {kind.device}
    nodes = product.spec(claim)
    assert nodes is not None
    if kind.nodes:
        assert shapes(nodes[kind.device]) == kind.nodes
    _unplug(kind, claim, nodes[kind.device], guest, product, plugs, tell)
    product.agree(absent=[claim], lacks=[kind.device])
    product.release(claim)
    product.agree(lacks=[kind.device])


def _unplug(
    kind: Kind, claim: Claim, nodes: list[str], guest: Guest, product: Product, plugs: Plugs, tell: Tell
) -> None:
    mark = guest.call("mark")
    safe = product.waiting_for_spec(claim, {kind.device: absent(kind.device)})
    left = product.waiting_for_slice(lacks=[kind.device])
    began = plugs.unplug(kind)
    at = safe.result(120)
    told = time.monotonic() - began
    left.result(120)
    gone = time.monotonic() - began
    removed = next(note["at"] for note in guest.call("since", mark, "uevent") if note["action"] == "remove")
    tell(
        f"{kind.driver}: device_del to absent spec {told * 1000:.0f} ms"
        f" ({(at - removed) * 1000:.0f} ms after the first remove event), to slice {gone:.2f} s"
    )
    assert told < SAFE_S
    assert gone < SLICE_S
    settle(guest, mark)
    assert 1 <= inventories(guest, mark) <= bursts(guest, mark)
    assert len(guest.call("since", mark, "slice")) == 1
    assert not any(guest.call("exists", path) for path in nodes if "/bus/usb/" in path)
    plugs.free(kind)


@pytest.mark.parametrize("name", OTHERS)
def test_a_kind_with_nothing_to_claim_writes_no_slice(
    name: str, guest: Guest, product: Product, plugs: Plugs, tell: Tell
) -> None:
    kind = KINDS[name]
    before = guest.call("seen")
    mark = guest.call("mark")
    plugs.plug(kind)
    guest.call("wait_note", mark, "inventory")
    settle(guest, mark)
    after = guest.call("seen")
    tell(f"{name}: {inventories(guest, mark)} walk, no slice write")
    assert 1 <= inventories(guest, mark) <= bursts(guest, mark)
    assert after["inventory"] == before["inventory"]
    assert guest.call("since", mark, "slice") == []
    mark = guest.call("mark")
    plugs.unplug(kind)
    plugs.free(kind)
    guest.call("wait_note", mark, "inventory")
    settle(guest, mark)
    assert 1 <= inventories(guest, mark) <= bursts(guest, mark)
    assert guest.call("since", mark, "slice") == []
    eventually(
        lambda: guest.call("seen")["whole"]["withheld"] == before["whole"]["withheld"],
        120.0,
        f"nothing of the {name} is withheld any more",
        step_s=0.5,
    )
    product.agree()
    assert guest.call("seen")["slice"] == before["slice"]
