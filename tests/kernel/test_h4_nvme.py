"""Hard scenario 4: internal disks of a machine that declares its own; NVMe under a claim."""

import time
from collections.abc import Iterator

import pytest

from tests.kernel.conftest import Tell
from tests.kernel.machine import Guest
from tests.kernel.plugs import KINDS, Plugs
from tests.kernel.product import SAFE_S, Product, absent
from tests.kernel.test_2_hotplug import shapes

NVME = KINDS["nvme"]
HOT = "pci-0000-01-00-0"
SPARE = "pci-0000-00-06-0"
SYSTEM = "pci-0000-00-12-0"
DISK = ("/dev/ngNnN", "/dev/nvmeN", "/dev/nvmeNnN")
MACHINE_FILE = "/etc/liken/machine.yaml"


@pytest.fixture(scope="module")
def declared(guest: Guest, product: Product) -> Iterator[Product]:
    """The product on a machine whose file names the one disk that it needs."""
    guest.call("write", MACHINE_FILE, "spec:\n  storage:\n    roles: [vda]\n")
    product.restart()
    yield product
    guest.run("rm", MACHINE_FILE)
    product.restart()


def test_a_spare_internal_disk_is_offered_and_the_systems_is_not(
    guest: Guest, declared: Product, tell: Tell
) -> None:
    declared.waiting_for_slice(has=[SPARE], lacks=[SYSTEM]).result(120)
    inventory = declared.inventory()
    assert inventory["facts"]["storage"] == "roles"
    claim = declared.claim("spare", SPARE)
    declared.agree(has=[SPARE], lacks=[SYSTEM])
    assert shapes((declared.spec(claim) or {})[SPARE]) == DISK
    declared.release(claim)
    tell(f"{SPARE} is offered: its owner declared that the machine needs vda alone")


def test_two_controllers_of_one_disk_are_not_offered(declared: Product, tell: Tell) -> None:
    names = {f"pci-0000-00-{slot}-0" for slot in ("0a", "0b")}
    assert names.isdisjoint(device["name"] for device in declared.inventory()["devices"])
    entries = [
        entry
        for entry in declared.inventory()["withheld"]
        if entry["address"] in ("0000:00:0a.0", "0000:00:0b.0")
    ]
    tell(f"multipath: {entries[0]['detail']}")
    assert [(shapes([entry["node"]]), entry["reason"]) for entry in entries] == [
        (("/dev/nvmeN",), "storage")
    ] * 2


def test_a_claimed_nvme_disk_comes_and_goes(
    guest: Guest, declared: Product, plugs: Plugs, tell: Tell
) -> None:
    appeared = declared.waiting_for_slice(has=[HOT])
    began = plugs.plug(NVME)
    appeared.result(120)
    tell(f"nvme: device_add to slice {time.monotonic() - began:.2f} s")
    claim = declared.claim("nvme", HOT)
    nodes = (declared.spec(claim) or {})[HOT]
    assert shapes(nodes) == DISK
    declared.agree(has=[HOT])

    safe = declared.waiting_for_spec(claim, {HOT: absent(HOT)})
    gone = declared.waiting_for_slice(lacks=[HOT])
    began = plugs.unplug(NVME)
    safe.result(120)
    told = time.monotonic() - began
    assert told < SAFE_S
    gone.result(120)
    tell(f"nvme: device_del to absent spec {told * 1000:.0f} ms, to slice {time.monotonic() - began:.2f} s")
    plugs.free(NVME)
    declared.agree(absent=[claim], lacks=[HOT])

    present = declared.waiting_for_return(claim)
    began = plugs.plug(NVME)
    present.result(120)
    guest.call("wait_spec", claim.uid, {HOT: nodes})
    tell(f"nvme: device_add to spec {time.monotonic() - began:.2f} s")
    declared.agree(has=[HOT])
    declared.release(claim)
