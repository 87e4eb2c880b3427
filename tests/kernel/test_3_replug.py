"""Scenario 3: claimed adapters are replugged, and swapped between ports; each claim follows its port."""

import time

from tests.kernel.conftest import Tell
from tests.kernel.machine import Guest
from tests.kernel.plugs import KINDS, Plugs
from tests.kernel.product import Claim, Product, absent
from tests.waiting import eventually

FTDI = KINDS["ftdi serial"]
ADAPTER = "usb-1-8-1-0"
HUB_PORTS = ("7.2", "7.3")
TWINS = ("usb-1-7-2-1-0", "usb-1-7-3-1-0")


def tty(guest: Guest, port: str) -> str:
    """The tty that the kernel gave to the adapter in a port of bus 1."""
    listing = ("sh", "-c", f"cd /sys/bus/usb/devices/1-{port}:1.0/ && ls -d ttyUSB*")
    listed = eventually(
        lambda: guest.run(*listing, check=False).strip(), 60.0, f"a tty in port {port}", step_s=0.1
    )
    return f"/dev/{listed}"


def usbfs(guest: Guest, port: str) -> str:
    number = int(guest.call("read", f"/sys/bus/usb/devices/1-{port}/devnum"))
    return f"/dev/bus/usb/001/{number:03d}"


def nodes(guest: Guest, port: str) -> list[str]:
    return sorted([tty(guest, port), usbfs(guest, port)])


def spec_of(product: Product, claim: Claim) -> list[str]:
    spec = product.spec(claim)
    assert spec is not None
    return spec[claim.devices[0]]


def test_a_replugged_adapter_keeps_its_name_and_the_spec_follows_its_numbers(
    guest: Guest, product: Product, plugs: Plugs, tell: Tell
) -> None:
    plugs.plug(FTDI, serial="FT0002")
    product.waiting_for_slice(has=[ADAPTER]).result(120)
    claim = product.claim("replug", ADAPTER)
    before = nodes(guest, "8")
    assert spec_of(product, claim) == before
    product.agree(has=[ADAPTER])

    safe = product.waiting_for_spec(claim, {ADAPTER: absent(ADAPTER)})
    plugs.unplug(FTDI)
    safe.result(120)
    plugs.free(FTDI)
    # somebody else takes the tty number that is free now, so that the adapter comes back with another
    product.agree(absent=[claim], lacks=[ADAPTER])
    plugs.plug(FTDI, "7.2", serial="FT0003")
    product.agree(absent=[claim], has=[TWINS[0]])

    present = product.waiting_for_return(claim)
    began = plugs.plug(FTDI, serial="FT0002")
    present.result(120)
    tell(f"device_add to a spec with the new numbers {time.monotonic() - began:.2f} s")
    after = nodes(guest, "8")
    assert set(after).isdisjoint(before)
    guest.call("wait_spec", claim.uid, {ADAPTER: after})
    product.agree(has=[ADAPTER])
    product.release(claim)


def test_two_adapters_swapped_between_ports_do_not_take_their_claims_along(
    guest: Guest, product: Product, plugs: Plugs, tell: Tell
) -> None:
    for port, serial in zip(HUB_PORTS, ("FT0004", "FT0005"), strict=True):
        plugs.plug(FTDI, port, serial=serial)
    product.waiting_for_slice(has=list(TWINS)).result(120)
    claims = [
        product.claim(f"swap-{port.replace('.', '-')}", name)
        for port, name in zip(HUB_PORTS, TWINS, strict=True)
    ]
    before = {port: nodes(guest, port) for port in HUB_PORTS}
    assert [spec_of(product, claim) for claim in claims] == [before[port] for port in HUB_PORTS]
    product.agree(has=TWINS)

    began = time.monotonic()
    away = [
        product.waiting_for_spec(claim, {name: absent(name)})
        for claim, name in zip(claims, TWINS, strict=True)
    ]
    for port in HUB_PORTS:
        plugs.unplug(FTDI, port)
    for wait in away:
        wait.result(120)
    for port in HUB_PORTS:
        plugs.free(FTDI, port)
    # the other way round: the one that sat in 7.2 comes first, in 7.3, and takes the first free tty
    for port, serial in zip(reversed(HUB_PORTS), ("FT0004", "FT0005"), strict=True):
        plugs.plug(FTDI, port, serial=serial)
        guest.call("wait_path", f"/sys/bus/usb/devices/1-{port}:1.0/driver")
    for claim, name, port in zip(claims, TWINS, HUB_PORTS, strict=True):
        product.waiting_for_return(claim).result(120)
        product.waiting_for_spec(claim, {name: nodes(guest, port)}).result(120)
    tell(f"two adapters out, swapped, in again, both specs right: {time.monotonic() - began:.2f} s")
    assert tty(guest, HUB_PORTS[0]) in before[HUB_PORTS[1]]
    serials = [guest.call("read", f"/sys/bus/usb/devices/1-{port}/serial").strip() for port in HUB_PORTS]
    assert serials == ["FT0005", "FT0004"]
    product.agree(has=TWINS)
    published = [guest.call("seen")["offered"][name]["attributes"]["serial"] for name in TWINS]
    assert published == [{"string": "FT0005"}, {"string": "FT0004"}]
    for claim in claims:
        product.release(claim)
