"""Hard scenario 5: a graphics card with card, render node and wires; and one whose driver comes and goes."""

import time

from tests.kernel.conftest import CARDS, Tell
from tests.kernel.machine import Guest
from tests.kernel.product import SAFE_S, Product, absent
from tests.waiting import eventually

CARD = "pci-0000-00-0c-0"
VIRTUAL = "pci-0000-00-04-0"
DRIVER = "/sys/bus/virtio/drivers/virtio_gpu"


def test_a_card_is_three_devices_and_nobody_of_ours_opens_it(
    guest: Guest, product: Product, tell: Tell
) -> None:
    names = {CARD: "drm", f"{CARD}-display": "drm", f"{CARD}-i2c-dev": "i2c-dev"}
    product.waiting_for_slice(has=list(names)).result(120)
    found = {name: product.device(name) for name in names}
    assert {name: device["attributes"]["subsystem"]["string"] for name, device in found.items()} == names
    assert {device["attributes"]["address"]["string"] for device in found.values()} == {"0000:00:0c.0"}
    card = found[f"{CARD}-display"]["nodes"][0]["path"]

    # the shape of the display operator's claim: card, render node and wires of one card
    claim = product.claim("display", *names)
    spec = product.spec(claim) or {}
    assert spec == {name: [node["path"] for node in device["nodes"]] for name, device in found.items()}
    second = product.claim("render", CARD)
    assert product.spec(second) == {CARD: spec[CARD]}
    product.agree(has=list(names))
    mark = guest.call("mark")
    guest.call("write", f"/sys/class/drm/{card.rpartition('/')[2]}/uevent", "add")
    eventually(lambda: guest.call("walks", mark), 60.0, "a walk", step_s=0.2)
    for each in (claim, second):
        product.release(each)
    opened = guest.call("opens", CARDS)
    tell(f"{len(names)} devices; since before the product's start, with claims, walks and passes: {opened}")
    assert opened == []
    guest.call("open_once", card)
    assert guest.call("opens", CARDS) == [card.removeprefix(f"{CARDS}/")]  # an open is seen


def test_a_graphics_driver_that_goes_and_comes_takes_its_devices_along(
    guest: Guest, product: Product, tell: Tell
) -> None:
    render, display = VIRTUAL, f"{VIRTUAL}-display"
    product.waiting_for_slice(has=[render, display]).result(120)
    claim = product.claim("virtual", render)
    nodes = product.spec(claim)
    device = guest.run("sh", "-c", f"basename {DRIVER}/virtio*").strip()

    safe = product.waiting_for_spec(claim, {render: absent(render)})
    gone = product.waiting_for_slice(lacks=[render, display])
    began = time.monotonic()
    guest.call("write", f"{DRIVER}/unbind", device)
    safe.result(120)
    told = time.monotonic() - began
    assert told < SAFE_S
    gone.result(120)
    product.agree(absent=[claim], lacks=[render, display])
    tell(f"unbind to absent spec {told * 1000:.0f} ms, to slice {time.monotonic() - began:.2f} s")

    back = product.waiting_for_spec(claim, nodes)
    began = time.monotonic()
    guest.call("write", f"{DRIVER}/bind", device)
    back.result(120)
    product.waiting_for_slice(has=[render, display]).result(120)
    tell(f"bind to slice {time.monotonic() - began:.2f} s")
    product.agree(has=[render, display])
    product.release(claim)
