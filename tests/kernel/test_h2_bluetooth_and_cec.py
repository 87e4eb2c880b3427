"""Hard scenario 2: a Bluetooth adapter's claim in a real container; a CEC adapter of the kernel's make."""

from collections.abc import Iterator

import pytest

from tests.kernel.bench import Bench
from tests.kernel.conftest import Tell, back_to
from tests.kernel.machine import Guest
from tests.kernel.product import Product
from tests.kernel.runtime import Runtime

EVENTS = [f"event{number}" for number in range(32)]
OPEN_LATER = (
    "ls /dev/input; for turn in $(seq 300); do (exec 3<{node}) 2>/dev/null && echo opened && exit 0;"
    " sleep 0.1; done; exit 1"
)


@pytest.fixture
def vivid(guest: Guest, product: Product) -> Iterator[str]:
    """The name of vivid's device: a made-up capture card with two CEC adapters."""
    before = guest.call("seen")["slice"]
    assert guest.call("load", ["vivid"]) == []
    yield "platform-vivid-0"
    guest.run("modprobe", "-r", "vivid")
    back_to(before, product)


def test_an_input_device_made_after_the_start_is_opened_in_a_bluetooth_claims_container(
    guest: Guest, product: Product, bench: Bench, runtime: Runtime, tell: Tell
) -> None:
    assert guest.call("load", ["btusb", "usb_f_fs"]) == []
    bench.make_radio("radio", "0a12", "0001")
    name = f"usb-{bench.address(5)}-1-0"
    bench.plug("radio", 5)
    product.waiting_for_slice(has=[name]).result(120)
    claim = product.claim("radio", name)
    assert (product.spec(claim) or {})[name] == sorted(
        ["/dev/uinput", bench.usbfs(5), *(f"/dev/input/{event}" for event in EVENTS)]
    )
    product.agree(has=[name])
    taken = guest.call("listing", "/sys/class/input")
    free = next(event for event in EVENTS if event not in taken)
    node = f"/dev/input/{free}"

    container = runtime.begin(claim.ids[name], "sh", "-c", OPEN_LATER.format(node=node))
    guest.call("wait_process", "sh -c ls /dev/input")
    assert guest.call("uinput", "late controller") == node
    done = container.result(120)
    guest.call("uinput_end")
    words = done["out"].split()
    tell(f"{len(words) - 1} event nodes from the start; {node}, made later, was opened there")
    assert (done["code"], words[-1]) == (0, "opened"), done
    assert sorted(words[:-1]) == sorted(EVENTS)
    product.release(claim)


def test_a_capture_card_with_cec_adapters_is_one_exclusive_device(
    guest: Guest, product: Product, vivid: str, tell: Tell
) -> None:
    product.waiting_for_slice(has=[vivid]).result(120)
    found = product.device(vivid)
    claim = product.claim("vivid", vivid)
    paths = (product.spec(claim) or {})[vivid]
    assert {"/dev/cec0", "/dev/cec1"} <= set(paths)
    assert (found["shareable"], "subsystem" in found["attributes"]) == (False, False)
    nodes = guest.call("nodes")
    assert all(path in nodes for path in paths)
    product.agree(has=[vivid])
    tell(f"vivid: {len(paths)} nodes of the kinds {', '.join(found['kinds'])}")
    product.release(claim)
