"""Hard scenario 8: the services as containers, with a runtime's profiles and the mounts of deploy/."""

import time
from collections.abc import Iterator

import pytest

from tests.kernel.conftest import ALWAYS_THERE, Tell
from tests.kernel.machine import Guest
from tests.kernel.plugs import KINDS, Plugs
from tests.kernel.pod import PROFILE, Pod
from tests.kernel.product import SAFE_S, SERVICES, START_S, Product, absent
from tests.kernel.runtime import Runtime
from tests.kernel.test_3_replug import nodes
from tests.kernel.test_7_unprivileged import status

FTDI = KINDS["ftdi serial"]
NAME = "usb-1-8-1-0"


@pytest.fixture(scope="module")
def deployed(guest: Guest, product: Product, runtime: Runtime) -> Iterator[Product]:
    """The same state as ever, its four services in containers."""
    product.no_event_was_lost()
    product.down()
    pod = Pod(guest, runtime)
    mark = guest.call("mark")
    pod.start()
    product.running()
    guest.call("wait_note", mark, "inventory", timeout_s=START_S)
    yield product
    product.no_event_was_lost()
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
        assert [place for place in ("/", "/sys") if not read_only(mounts, place)] == [], service
    assert set(deployed.pids()) == set(SERVICES)
    tell("no capability, seccomp and AppArmor enforced, /sys and the root read-only")


def read_only(mounts: list[str], place: str) -> bool:
    """Whether the topmost of /proc/PID/mounts at a place is."""
    options = [line.split()[3] for line in mounts if line.split()[1] == place]
    return options[-1].split(",")[0] == "ro"


def test_plug_claim_unplug_replug_and_rebind_work_under_the_profiles(
    guest: Guest, deployed: Product, plugs: Plugs, tell: Tell
) -> None:
    deployed.agree(has=[ALWAYS_THERE])
    assert deployed.inventory()["facts"]["storage"] == "observed"  # the mounts of deploy/ show the disks' use
    appeared = deployed.waiting_for_slice(has=[NAME])
    began = plugs.plug(FTDI)
    appeared.result(120)
    tell(f"device_add to slice {time.monotonic() - began:.2f} s")
    claim = deployed.claim("deployed", NAME)
    assert deployed.spec(claim) == {NAME: nodes(guest, "8")}
    deployed.agree(has=[NAME])
    safe = deployed.waiting_for_spec(claim, {NAME: absent(NAME)})
    began = plugs.unplug(FTDI)
    safe.result(120)
    told = time.monotonic() - began
    tell(f"device_del to absent spec {told * 1000:.0f} ms")
    assert told < SAFE_S
    plugs.free(FTDI)
    deployed.agree(absent=[claim], lacks=[NAME])
    present = deployed.waiting_for_return(claim)
    plugs.plug(FTDI)
    present.result(120)
    guest.call("wait_spec", claim.uid, {NAME: nodes(guest, "8")})
    deployed.agree(has=[NAME])

    guest.call("write", "/sys/bus/usb/drivers/ftdi_sio/unbind", "1-8:1.0")
    deployed.agree(changed=[claim], lacks=[NAME])
    deployed.release(claim)
    guest.call("wait_path", "/sys/bus/usb/devices/1-8:1.0/driver")
    deployed.agree(has=[NAME])
