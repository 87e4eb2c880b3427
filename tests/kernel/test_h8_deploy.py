"""Hard scenario 8: the services as containers, with a runtime's profiles and the mounts of deploy/."""

import time
from collections.abc import Iterator

import pytest

from tests.kernel.conftest import ALWAYS_THERE, Tell
from tests.kernel.machine import Guest
from tests.kernel.plugs import KINDS, Plugs
from tests.kernel.pod import PROFILE, Pod
from tests.kernel.product import SERVICES, START_S, Product, absent
from tests.kernel.runtime import Runtime
from tests.kernel.test_3_replug import nodes
from tests.kernel.test_7_unprivileged import status

FTDI = KINDS["ftdi serial"]
NAME = "usb-1-8-1-0"


@pytest.fixture(scope="module")
def deployed(guest: Guest, product: Product, runtime: Runtime) -> Iterator[Product]:
    """The same state as ever, its four services in containers."""
    product.running()
    product.down()
    pod = Pod(guest, runtime)
    mark = guest.call("mark")
    pod.start()
    product.running()
    guest.call("wait_note", mark, "inventory", timeout_s=START_S)
    yield product
    pod.stop()
    mark = guest.call("mark")
    product.up()
    product.running()
    guest.call("wait_note", mark, "inventory", timeout_s=START_S)


def test_the_profiles_of_the_runtime_hold(guest: Guest, deployed: Product, tell: Tell) -> None:
    for service, pid in deployed.pids().items():
        found = status(guest, pid)
        assert {found[name] for name in ("CapEff", "CapPrm", "CapBnd")} == {"0" * 16}, service
        assert (found["NoNewPrivs"], found["Seccomp"]) == ("1", "2")
        assert guest.call("read", f"/proc/{pid}/attr/current").strip() == f"{PROFILE} (enforce)"
        mounts = (guest.call("read", f"/proc/{pid}/mounts") or "").splitlines()
        assert any(line.split()[1:3] == ["/sys", "sysfs"] and line.split()[3][:2] == "ro" for line in mounts)
    assert set(deployed.pids()) == set(SERVICES)
    tell("no capability, seccomp and AppArmor enforced, /sys and the root read-only")


def test_plug_claim_unplug_replug_and_rebind_work_under_the_profiles(
    guest: Guest, deployed: Product, plugs: Plugs, tell: Tell
) -> None:
    assert ALWAYS_THERE in guest.call("seen")["slice"]
    appeared = deployed.waiting_for_slice(has=[NAME])
    began = plugs.plug(FTDI)
    appeared.result(120)
    tell(f"device_add to slice {time.monotonic() - began:.2f} s")
    claim = deployed.claim("deployed", NAME)
    assert deployed.spec(claim) == {NAME: nodes(guest, "8")}
    safe = deployed.waiting_for_spec(claim, {NAME: absent(NAME)})
    began = plugs.unplug(FTDI)
    safe.result(120)
    tell(f"device_del to absent spec {(time.monotonic() - began) * 1000:.0f} ms")
    plugs.free(FTDI)
    present = deployed.waiting_for_return(claim)
    plugs.plug(FTDI)
    present.result(120)
    guest.call("wait_spec", claim.uid, {NAME: nodes(guest, "8")})

    guest.call("write", "/sys/bus/usb/drivers/ftdi_sio/unbind", "1-8:1.0")
    deployed.waiting_for_slice(lacks=[NAME]).result(120)
    deployed.release(claim)
    guest.call("wait_path", "/sys/bus/usb/devices/1-8:1.0/driver")
    deployed.waiting_for_slice(has=[NAME]).result(120)
