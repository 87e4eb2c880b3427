"""Scenario 6: each service is killed in the middle of an unplug and of a replug; nothing is lost."""

import signal
import time

import pytest

from tests.kernel.conftest import Tell
from tests.kernel.machine import Guest
from tests.kernel.plugs import KINDS, Plugs
from tests.kernel.product import SAFE_S, SERVICES, Product, absent
from tests.kernel.test_3_replug import nodes

FTDI = KINDS["ftdi serial"]
NAME = "usb-1-8-1-0"
MAKES_SAFE = ("watcher", "reconciler")  # without one of them a spec is safe when it runs again
RECOVERY_S = 120.0  # a Python process with its imports on an emulated, busy processor


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_killed_in_the_middle_of_a_replug_loses_nothing(
    service: str, guest: Guest, product: Product, plugs: Plugs, tell: Tell
) -> None:
    product.no_event_was_lost()  # the count ends with a reconciler that is killed
    plugs.plug(FTDI)
    product.waiting_for_slice(has=[NAME]).result(120)
    claim = product.claim(f"kill-{service}", NAME)
    before = nodes(guest, "8")
    pids = product.running()

    killed = product.killing_at_the_next_event(service)
    began = plugs.unplug(FTDI)
    killed.result(120)
    guest.call("wait_spec", claim.uid, {NAME: absent(NAME)}, timeout_s=RECOVERY_S)
    safe = time.monotonic() - began
    assert safe < (RECOVERY_S if service in MAKES_SAFE else SAFE_S)
    guest.call("wait_slice", lacks=[NAME], timeout_s=RECOVERY_S)
    gone = time.monotonic() - began
    plugs.free(FTDI)
    product.started_again(service, pids)
    product.agree(absent=[claim], lacks=[NAME], timeout_s=RECOVERY_S)

    pids = product.pids()
    killed = product.killing_at_the_next_event(service)
    began = plugs.plug(FTDI)
    killed.result(120)
    guest.call("wait_path", "/sys/bus/usb/devices/1-8:1.0/driver")
    after = nodes(guest, "8")
    assert after != before
    guest.call("wait_spec", claim.uid, {NAME: after}, timeout_s=RECOVERY_S)
    back = time.monotonic() - began
    guest.call("wait_slice", has=[NAME], timeout_s=RECOVERY_S)
    listed = time.monotonic() - began
    tell(
        f"{service} killed twice: device_del to absent spec {safe:.2f} s, to slice {gone:.2f} s;"
        f" device_add to spec {back:.2f} s, to slice {listed:.2f} s"
    )
    product.started_again(service, pids)
    product.agree(has=[NAME], timeout_s=RECOVERY_S)
    product.release(claim)
    product.agree(has=[NAME])
    assert guest.call("listing", f"{product.state}/cdi") == [], "nothing is left of what was killed"


def test_a_claim_prepared_while_the_reconciler_is_away_is_right(
    guest: Guest, product: Product, plugs: Plugs, tell: Tell
) -> None:
    plugs.plug(FTDI)
    product.waiting_for_slice(has=[NAME]).result(120)
    reconciler = product.pids()["reconciler"]
    guest.call("kill", reconciler, int(signal.SIGSTOP))
    began = time.monotonic()
    claim = product.claim("alone", NAME)
    assert product.spec(claim) == {NAME: nodes(guest, "8")}
    tell(f"prepared in {time.monotonic() - began:.2f} s without a reconciler")
    guest.call("kill", reconciler, int(signal.SIGCONT))
    product.agree(has=[NAME], timeout_s=RECOVERY_S)
    product.release(claim)
