"""Scenario 4: devices of chosen identity, from dummy_hcd and configfs gadgets."""

import time

import pytest

from tests.kernel.bench import Bench
from tests.kernel.conftest import Tell
from tests.kernel.machine import Guest
from tests.kernel.product import LIKEN, Claim, Product, absent, withheld
from tests.kernel.test_2_hotplug import inventories, settle

SLOW_RESETS = 10
RESETS = 50
DISK = "/run/gadget.img"


def come_back(product: Product, claim: Claim) -> None:
    product.waiting_for_return(claim).result(120)


def test_a_coral_that_changes_its_ids_at_one_port_stays_one_device(
    guest: Guest, product: Product, bench: Bench, tell: Tell
) -> None:
    bench.make("coral", "1a6e", "089a", "Loopback")
    name = f"usb-{bench.address(0)}"
    bench.plug("coral", 0)
    product.waiting_for_slice(has=[name]).result(120)
    claim = product.claim("coral", name)
    before = bench.usbfs(0)
    assert product.spec(claim) == {name: [before]}
    product.agree(has=[name])

    gone = product.waiting_for_spec(claim, {name: absent(name)})
    bench.unplug("coral")
    gone.result(120)
    product.agree(absent=[claim], lacks=[name])
    guest.call("gadget", "identity", "coral", "18d1", "9302")
    began = bench.plug("coral", 0)
    come_back(product, claim)
    tell(f"coral: plugged with its other ids to the spec {time.monotonic() - began:.2f} s")
    after = bench.usbfs(0)
    assert after != before
    guest.call("wait_spec", claim.uid, {name: [after]})
    product.agree(has=[name])
    attributes = guest.call("seen")["offered"][name]["attributes"]
    assert (attributes["vendor"], attributes["product"]) == ({"string": "18d1"}, {"string": "9302"})
    product.release(claim)


def test_a_modem_that_turns_from_disk_to_serial_ports_is_not_what_was_claimed(
    guest: Guest, product: Product, bench: Bench, tell: Tell
) -> None:
    guest.run("dd", "if=/dev/zero", f"of={DISK}", "bs=1M", "count=8")
    bench.make("disk", "12d1", "1f01", "mass_storage", disk=DISK)
    bench.make("modem", "12d1", "14db", "acm", "acm")
    name = f"usb-{bench.address(1)}-1-0"
    bench.plug("disk", 1)
    product.waiting_for_slice(has=[name]).result(120)
    assert "block" in product.device(name)["kinds"]
    claim = product.claim("modem", name)
    product.agree(has=[name])

    bench.unplug("disk")
    changed = product.waiting_for_spec(claim, {name: withheld(name)})
    began = bench.plug("modem", 1)
    changed.result(120)
    tell(f"modem: serial form plugged to the withheld spec {time.monotonic() - began:.2f} s")
    guest.call("wait_kinds", name, ["tty"])
    product.agree(changed=[claim], has=[name])
    product.release(claim)


def test_twins_without_and_with_equal_serials_are_two_devices(
    guest: Guest, product: Product, bench: Bench, tell: Tell
) -> None:
    twins = {"plain-a": "", "plain-b": "", "equal-a": "00000001", "equal-b": "00000001"}
    names = [f"usb-{bench.address(port)}-1-0" for port in range(4)]
    for port, (twin, serial) in enumerate(twins.items()):
        bench.make(twin, "1a86", "7523", "acm", serial=serial)
        bench.plug(twin, port)
    product.waiting_for_slice(has=names).result(120)
    found = {entry["name"]: entry for entry in product.inventory()["devices"]}
    serials = [found[name]["attributes"].get("serial") for name in names]
    assert serials == [None, None, {"string": "00000001"}, {"string": "00000001"}]
    assert len({found[name]["attributes"]["physicalPath"]["string"] for name in names}) == 4
    claims = [product.claim(f"twin-{index}", name) for index, name in enumerate(names)]
    delivered = [(product.spec(claim) or {})[name] for claim, name in zip(claims, names, strict=True)]
    assert len({node for nodes in delivered for node in nodes}) == 8
    product.agree(has=names)
    tell("four twins, four devices, eight different nodes")
    for claim in claims:
        product.release(claim)


def test_hostile_strings_neither_block_the_slice_nor_reach_it_raw(
    guest: Guest, product: Product, bench: Bench, tell: Tell
) -> None:
    name = f"usb-{bench.address(2)}-1-0"
    bench.make(
        "hostile",
        "1d6b",
        "0104",
        "acm",
        serial="\x1b[31m\t../..\x07",
        manufacturer="[/foo] $(reboot)",
        product_name="日本語" * 10 + "\u202eoof",
    )
    bench.plug("hostile", 2)
    product.waiting_for_slice(has=[name]).result(120)
    claim = product.claim("hostile", name)
    product.agree(has=[name])
    attributes = guest.call("seen")["offered"][name]["attributes"]  # as the API server would get them
    texts = [value["string"] for value in attributes.values() if "string" in value]
    assert all(len(text.encode()) <= 64 and text.isprintable() for text in texts)
    assert attributes["serial"] == {"string": "[31m\t../..".replace("\t", "")}
    table = guest.run(LIKEN, "devices")
    assert "\x1b[31m" not in table
    spec = guest.call("read", f"{product.state}/cdi/liken.sh-device_{claim.uid}.json")
    assert not any(word in spec for word in ("reboot", "31m", "日本", "../"))
    product.release(claim)
    tell(f"published as {attributes['name']['string']!r}")


def test_a_composite_device_with_twelve_interfaces_publishes_each_driven_one(
    guest: Guest, product: Product, bench: Bench, tell: Tell
) -> None:
    bench.make("composite", "1d6b", "0105", *["acm"] * 4, *["hid"] * 4)
    began = bench.plug("composite", 3)
    address = bench.address(3)
    guest.call("wait_path", f"/sys/bus/usb/devices/{address}:1.11")
    names = [f"usb-{address}-1-{number}" for number in (0, 2, 4, 9, 10)]
    product.waiting_for_slice(has=names).result(120)
    tell(f"twelve interfaces to slice {time.monotonic() - began:.2f} s")
    found = {entry["name"]: entry for entry in product.inventory()["devices"]}
    ours = {name: entry["kinds"] for name, entry in found.items() if name.startswith(f"usb-{address}")}
    assert ours == {name: ["tty"] if index < 3 else ["hidraw", "usbmisc"] for index, name in enumerate(names)}
    usbfs = bench.usbfs(3)
    assert all(usbfs in [node["path"] for node in found[name]["nodes"]] for name in names)
    claims = [product.claim(f"part-{index}", name) for index, name in enumerate(names)]
    product.agree(has=names)

    mark = guest.call("mark")
    bench.unplug("composite")
    product.agree(absent=claims, lacks=names)
    settle(guest, mark)
    assert len(guest.call("since", mark, "slice")) == 1
    for claim in claims:
        product.release(claim)


def claimed_ups(product: Product, bench: Bench) -> tuple[str, Claim]:
    """A UPS in port 4: its name and a claim on it."""
    bench.make("ups", "051d", "0002", "hid", product_name="UPS")
    name = f"usb-{bench.address(4)}-1-0"
    bench.plug("ups", 4)
    product.waiting_for_slice(has=[name]).result(120)
    claim = product.claim("ups", name)
    return name, claim


def test_a_ups_that_resets_itself_fifty_times_keeps_its_name_and_its_claim(
    guest: Guest, product: Product, bench: Bench, tell: Tell
) -> None:
    name, claim = claimed_ups(product, bench)
    memory = guest.call("memory_kib", "services.")
    mark = guest.call("mark")
    began = time.monotonic()
    for _ in range(RESETS):
        bench.unplug("ups")
        guest.call("wait_spec", claim.uid, {name: absent(name)})
        bench.plug("ups", 4)
        guest.call("wait_path", f"/sys/bus/usb/devices/{bench.address(4)}:1.0/driver")
        come_back(product, claim)
        assert bench.usbfs(4) in (product.spec(claim) or {})[name]
    took = time.monotonic() - began
    settle(guest, mark)
    grown = sum(guest.call("memory_kib", "services.").values()) - sum(memory.values())
    walks, writes = inventories(guest, mark), len(guest.call("since", mark, "slice"))
    tell(f"{RESETS} resets in {took:.1f} s: {walks} walks, {writes} slice writes, memory {grown:+d} KiB")
    assert walks <= took / 1.0 + 2
    assert writes <= walks
    assert grown < 8 * 1024
    product.agree(has=[name])
    product.release(claim)


@pytest.mark.long
def test_a_ups_that_resets_itself_at_leisure_is_gone_and_back_each_time(
    guest: Guest, product: Product, bench: Bench, tell: Tell
) -> None:
    """Slower than the settle time: each loss and each return is told by itself, once."""
    name, claim = claimed_ups(product, bench)
    walks, writes = list[int](), list[int]()
    for _ in range(SLOW_RESETS):
        settle(guest, guest.call("mark"))
        mark = guest.call("mark")
        gone = product.waiting_for_slice(lacks=[name])
        bench.unplug("ups")
        guest.call("wait_spec", claim.uid, {name: absent(name)})
        gone.result(120)
        product.agree(absent=[claim], lacks=[name])
        back = product.waiting_for_slice(has=[name])
        bench.plug("ups", 4)
        come_back(product, claim)
        back.result(120)
        product.agree(has=[name])
        settle(guest, mark)
        walks.append(inventories(guest, mark))
        writes.append(len(guest.call("since", mark, "slice")))
    tell(f"{SLOW_RESETS} slow resets: walks {walks}, slice writes {writes}")
    assert set(writes) == {2}
    assert set(walks) <= {2, 3, 4}  # what the driver does after the interface came may be a burst of its own
    product.release(claim)
