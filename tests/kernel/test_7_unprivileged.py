"""Scenario 7: no capability, a read-only /sys, a network namespace of its own: what a pod gives them."""

import time
from collections.abc import Iterator

import pytest

from tests.kernel.conftest import Tell
from tests.kernel.machine import Guest
from tests.kernel.plugs import KINDS, Plugs
from tests.kernel.product import SAFE_S, SERVICES, Product, absent
from tests.kernel.test_3_replug import nodes

FTDI = KINDS["ftdi serial"]
NAME = "usb-1-8-1-0"
WHOLE = "usb-1-8"  # what has no driver at all is offered whole
BUS = "/run/host-bus"
# As deploy/ has it: /sys read-only, and /sys/bus once more, writable, for usb/drivers_probe alone.
CONFINE = (
    "unshare",
    "--mount",
    "--net",
    "sh",
    "-c",
    f'mkdir -p {BUS} && mount --bind /sys/bus {BUS} && mount -o bind,remount,ro /sys && exec "$@"',
    "confined",
    "setpriv",
    "--no-new-privs",
    "--inh-caps=-all",
    "--bounding-set=-all",
)


@pytest.fixture(scope="module")
def confined(guest: Guest, product: Product) -> Iterator[Product]:
    """The same product and state, started again with nothing it does not need."""
    product.restart(CONFINE, LIKEN_HOST_BUS=BUS)
    yield product
    product.restart()


def status(guest: Guest, pid: int) -> dict[str, str]:
    lines = (guest.call("read", f"/proc/{pid}/status") or "").splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def test_the_services_have_no_capability_and_their_own_network(guest: Guest, confined: Product) -> None:
    for service, pid in confined.pids().items():
        found = status(guest, pid)
        assert {found[name] for name in ("CapEff", "CapPrm", "CapBnd", "CapInh")} == {"0" * 16}, service
        assert found["NoNewPrivs"] == "1"
        network = guest.run("readlink", f"/proc/{pid}/ns/net")
        assert network != guest.run("readlink", "/proc/1/ns/net")
        mounts = guest.call("read", f"/proc/{pid}/mounts")
        assert any(line.startswith("sys /sys sysfs ro") for line in mounts.splitlines())
    assert set(confined.pids()) == set(SERVICES)


def test_plug_claim_unplug_and_replug_work_without_privilege(
    guest: Guest, confined: Product, plugs: Plugs, tell: Tell
) -> None:
    appeared = confined.waiting_for_slice(has=[NAME])
    began = plugs.plug(FTDI)
    appeared.result(120)
    tell(f"device_add to slice {time.monotonic() - began:.2f} s")
    claim = confined.claim("confined", NAME)
    assert confined.spec(claim) == {NAME: nodes(guest, "8")}
    confined.agree(has=[NAME])

    safe = confined.waiting_for_spec(claim, {NAME: absent(NAME)})
    began = plugs.unplug(FTDI)
    safe.result(120)
    told = time.monotonic() - began
    tell(f"device_del to absent spec {told * 1000:.0f} ms")
    assert told < SAFE_S
    plugs.free(FTDI)
    confined.agree(absent=[claim], lacks=[NAME])
    present = confined.waiting_for_return(claim)
    began = plugs.plug(FTDI)
    present.result(120)
    tell(f"device_add to spec {time.monotonic() - began:.2f} s")
    guest.call("wait_spec", claim.uid, {NAME: nodes(guest, "8")})
    confined.agree(has=[NAME])
    confined.release(claim)


def test_a_detached_driver_is_bound_again_without_privilege(
    guest: Guest, confined: Product, plugs: Plugs, tell: Tell
) -> None:
    plugs.plug(FTDI)
    confined.waiting_for_slice(has=[NAME]).result(120)
    claim = confined.claim("rebind", NAME)
    guest.call("write", "/sys/bus/usb/drivers/ftdi_sio/unbind", "1-8:1.0")
    confined.agree(changed=[claim], has=[WHOLE], lacks=[NAME])
    began = time.monotonic()
    confined.release(claim)
    guest.call("wait_path", "/sys/bus/usb/devices/1-8:1.0/driver")
    tell(f"unprepare bound the driver again within {time.monotonic() - began:.2f} s")
    confined.agree(has=[NAME], lacks=[WHOLE])
    assert guest.run("readlink", "/sys/bus/usb/devices/1-8:1.0/driver").strip().endswith("/ftdi_sio")
