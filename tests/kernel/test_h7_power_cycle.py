"""Hard scenario 7: a hub with six claimed adapters loses power; numbers come back in another order."""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.kernel.conftest import Tell
from tests.kernel.machine import Guest
from tests.kernel.plugs import KINDS, Plugs
from tests.kernel.product import Claim, Product, absent
from tests.kernel.test_2_hotplug import inventories
from tests.kernel.test_3_replug import nodes, tty

HUB = KINDS["hub"]
FTDI = KINDS["ftdi serial"]
# The first two are plugged last to first, so that the kernel gives their numbers the other way round when
# the whole hub comes back.
PORTS = ("8.2", "8.1", "8.3", "8.4", "8.5", "8.6")
SLOW_SETTLE_S = 8.0  # six adapters come back in three to ten seconds on an emulated processor


@pytest.fixture(scope="module")
def patient(product: Product) -> Iterator[Product]:
    """The product with a settle time in which a whole hub goes and comes: no walk helps it."""
    seconds = str(SLOW_SETTLE_S)
    product.restart(LIKEN_SETTLE=seconds, LIKEN_SETTLE_CEILING=str(3 * SLOW_SETTLE_S))
    yield product
    product.restart()


def name_of(port: str) -> str:
    return f"usb-1-{port.replace('.', '-')}-1-0"


def versions(report: dict[str, Any], claim: Claim) -> list[list[str]]:
    """The nodes that a claim's spec named, version after version."""
    return [version["paths"] for version in report["written"] if version["claim"] == claim.uid]


def test_no_spec_ever_names_anothers_node_while_a_hub_is_power_cycled(
    guest: Guest, patient: Product, plugs: Plugs, tell: Tell
) -> None:
    plugs.plug(HUB)
    guest.call("wait_path", "/sys/bus/usb/devices/1-8:1.0/driver")
    for port in PORTS:
        plugs.plug(FTDI, port)
        guest.call("wait_path", f"/sys/bus/usb/devices/1-{port}:1.0/driver")
    names = [name_of(port) for port in PORTS]
    patient.waiting_for_slice(has=names).result(120)
    claims = {port: patient.claim(f"hub-{port.replace('.', '-')}", name_of(port)) for port in PORTS}
    patient.agree(has=names)
    before = {port: nodes(guest, port) for port in PORTS}
    old_ttys = {port: tty(guest, port) for port in PORTS}

    guest.call("guard", {claim.uid: f"1-{port}:1.0" for port, claim in claims.items()})
    mark = guest.call("mark")
    began = time.monotonic()
    guest.call("power_cycle", "1-8")
    for port in PORTS:
        guest.call("wait_path", f"/sys/bus/usb/devices/1-{port}:1.0/driver")
    after = {port: nodes(guest, port) for port in PORTS}
    for port, claim in claims.items():
        patient.waiting_for_spec(claim, {name_of(port): after[port]}).result(120)
    took = time.monotonic() - began
    assert inventories(guest, mark) == 0, "the numbers came back within the settle time"
    new_ttys = {port: tty(guest, port) for port in PORTS}
    assert (new_ttys["8.1"], new_ttys["8.2"]) == (old_ttys["8.2"], old_ttys["8.1"])
    patient.agree(has=names)
    report = guest.call("guard_end")
    tell(
        f"power off and on to six right specs {took:.2f} s, no walk in between; {len(report['written'])}"
        f" versions of specs and {report['looks']} looks at their nodes, {len(report['wrong'])} of them wrong"
    )
    assert report["wrong"] == []
    for port, claim in claims.items():
        seen = versions(report, claim)
        assert absent(name_of(port)) in seen, "the spec let go of the nodes before others could have them"
        assert seen[-1] == after[port]
        named = {path for paths in seen for path in paths}
        own = {*before[port], *after[port], *absent(name_of(port))}
        assert named <= own

    for claim in claims.values():
        patient.release(claim)
    for port in PORTS:
        plugs.unplug(FTDI, port)
        plugs.free(FTDI, port)
