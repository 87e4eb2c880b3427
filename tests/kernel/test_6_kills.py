"""Scenario 6: each service is killed in the middle of an unplug and of a replug; nothing is lost."""

import time

import pytest

from tests.kernel.conftest import Tell
from tests.kernel.machine import Guest
from tests.kernel.plugs import KINDS, Plugs
from tests.kernel.product import SERVICES, Product, absent
from tests.kernel.test_3_replug import nodes

FTDI = KINDS["ftdi serial"]
NAME = "usb-1-8-1-0"
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
    victim = product.pids()[service]

    mark = guest.call("mark")
    began = plugs.unplug(FTDI)
    guest.call("wait_note", mark, "uevent")
    product.kill(service)
    guest.call("wait_spec", claim.uid, {NAME: absent(NAME)}, timeout_s=RECOVERY_S)
    safe = time.monotonic() - began
    guest.call("wait_slice", lacks=[NAME], timeout_s=RECOVERY_S)
    gone = time.monotonic() - began
    plugs.free(FTDI)
    product.running()
    product.agree(absent=[claim], lacks=[NAME], timeout_s=RECOVERY_S)

    mark = guest.call("mark")
    began = plugs.plug(FTDI)
    guest.call("wait_note", mark, "uevent")
    product.kill(service)
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
    assert product.running()[service] != victim
    product.agree(has=[NAME], timeout_s=RECOVERY_S)
    product.release(claim)
    product.agree(has=[NAME])


def test_a_claim_prepared_while_the_reconciler_is_away_is_right(
    guest: Guest, product: Product, plugs: Plugs, tell: Tell
) -> None:
    plugs.plug(FTDI)
    product.waiting_for_slice(has=[NAME]).result(120)
    product.no_event_was_lost()
    product.kill("reconciler")
    began = time.monotonic()
    claim = product.claim("alone", NAME)
    assert product.spec(claim) == {NAME: nodes(guest, "8")}
    tell(f"prepared in {time.monotonic() - began:.2f} s without a reconciler")
    product.running()
    product.agree(has=[NAME], timeout_s=RECOVERY_S)
    product.release(claim)
