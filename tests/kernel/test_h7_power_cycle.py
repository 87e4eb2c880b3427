"""Hard scenario 7: a hub with six claimed adapters loses power; numbers come back in another order."""

import time
from typing import Any

from tests.kernel.conftest import Tell
from tests.kernel.machine import Guest
from tests.kernel.plugs import KINDS, Plugs
from tests.kernel.product import Product, absent
from tests.kernel.test_3_replug import nodes, tty

HUB = KINDS["hub"]
FTDI = KINDS["ftdi serial"]
# The first two are plugged last to first, so that the kernel gives their numbers the other way round when
# the whole hub comes back.
PORTS = ("8.2", "8.1", "8.3", "8.4", "8.5", "8.6")


def name_of(port: str) -> str:
    return f"usb-1-{port.replace('.', '-')}-1-0"


def test_no_spec_ever_names_anothers_node_while_a_hub_is_power_cycled(
    guest: Guest, product: Product, plugs: Plugs, tell: Tell
) -> None:
    plugs.plug(HUB)
    guest.call("wait_path", "/sys/bus/usb/devices/1-8:1.0/driver")
    for port in PORTS:
        plugs.plug(FTDI, port)
        guest.call("wait_path", f"/sys/bus/usb/devices/1-{port}:1.0/driver")
    product.waiting_for_slice(has=[name_of(port) for port in PORTS]).result(120)
    claims = {port: product.claim(f"hub-{port.replace('.', '-')}", name_of(port)) for port in PORTS}
    before = {port: tty(guest, port) for port in PORTS}

    guest.call("guard_ttys", {claim.uid: f"1-{port}:1.0" for port, claim in claims.items()})
    away = [
        product.waiting_for_spec(claim, {name_of(port): absent(name_of(port))})
        for port, claim in claims.items()
    ]
    began = time.monotonic()
    guest.call("write", "/sys/bus/usb/devices/1-8/bConfigurationValue", "0")
    for wait in away:
        wait.result(120)
    tell(f"power off to six absent specs {time.monotonic() - began:.2f} s")
    began = time.monotonic()
    guest.call("write", "/sys/bus/usb/devices/1-8/bConfigurationValue", "1")
    for port in PORTS:
        guest.call("wait_path", f"/sys/bus/usb/devices/1-{port}:1.0/driver")
    for port, claim in claims.items():
        product.waiting_for_spec(claim, {name_of(port): nodes(guest, port)}).result(120)
    tell(f"power on to six right specs {time.monotonic() - began:.2f} s")

    after = {port: tty(guest, port) for port in PORTS}
    assert (after["8.1"], after["8.2"]) == (before["8.2"], before["8.1"])
    seen: dict[str, Any] = guest.call("guard_report")
    tell(f"{seen['looks']} looks at the specs, {len(seen['wrong'])} of them wrong")
    assert seen["looks"] >= 2 * len(PORTS)
    assert seen["wrong"] == []
    for claim in claims.values():
        product.release(claim)
    for port in PORTS:
        plugs.unplug(FTDI, port)
        plugs.free(FTDI, port)
