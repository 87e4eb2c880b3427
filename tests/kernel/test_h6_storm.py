"""Hard scenario 6: a storm of virtual devices, and a socket buffer that overflows."""

import signal
import time
from collections.abc import Iterator

import pytest

from tests.kernel.conftest import Tell
from tests.kernel.machine import Guest
from tests.kernel.plugs import KINDS, Plugs
from tests.kernel.product import Product
from tests.kernel.test_2_hotplug import BURSTS, inventories, settle

STICK = KINDS["stick"]
PAIRS = 500
FLOOD = 3000  # events; what an unprivileged socket buffer of 208 KiB holds is a tenth of that
GROWTH_KIB = 8 * 1024
WATCHER_METRICS = "http://127.0.0.1:9200/metrics"


@pytest.fixture(scope="module")
def small_buffer(product: Product) -> Iterator[Product]:
    """The product without the capability to enlarge its socket buffer beyond the system's limit."""
    product.restart(("setpriv", "--bounding-set=-all", "--inh-caps=-all"))
    yield product
    product.restart()


def test_virtual_devices_wake_no_walk_and_do_not_delay_a_stick(
    guest: Guest, product: Product, plugs: Plugs, tell: Tell
) -> None:
    guest.run("sh", "-c", "modprobe veth; modprobe loop; truncate -s 1M /run/storm.img")
    memory = guest.call("memory_kib", "services.")
    mark = guest.call("mark")
    storm = guest.begin("storm", PAIRS)
    guest.call("wait_note", mark, "uevent")
    appeared = product.waiting_for_slice(has=[STICK.device])
    began = time.monotonic()
    plugs.plug(STICK)
    appeared.result(120)
    took = time.monotonic() - began
    first, last = storm.result(250)
    settle(guest, mark)
    events = len(guest.call("since", mark, "uevent"))
    walks = inventories(guest, mark)
    grown = sum(guest.call("memory_kib", "services.").values()) - sum(memory.values())
    tell(
        f"{PAIRS} veth pairs in {last - first:.0f} s, {events} events: {walks} walks;"
        f" the stick in the slice after {took:.2f} s; memory {grown:+d} KiB"
    )
    assert walks <= BURSTS["stick"]
    assert events > 4 * PAIRS
    assert grown < GROWTH_KIB


def test_after_a_lost_event_the_walk_happens_and_nothing_is_missed(
    guest: Guest, small_buffer: Product, plugs: Plugs, tell: Tell
) -> None:
    watcher = small_buffer.pids()["watcher"]
    guest.call("kill", watcher, int(signal.SIGSTOP))
    try:
        guest.call("flood", "/sys/class/mem/null", FLOOD)
        plugs.plug(STICK)
        guest.call("wait_path", "/sys/bus/usb/devices/2-8:1.0/driver")
        mark = guest.call("mark")
    finally:
        guest.call("kill", watcher, int(signal.SIGCONT))
    began = time.monotonic()
    small_buffer.waiting_for_slice(has=[STICK.device]).result(120)
    tell(f"{FLOOD} events while it slept; the stick in the slice {time.monotonic() - began:.2f} s later")
    guest.call("wait_note", mark, "inventory")
    assert small_buffer.pids()["watcher"] == watcher
    lost = guest.call("metric", WATCHER_METRICS, "liken_uevents_lost_total")
    tell(f"liken_uevents_lost_total {lost:.0f}")
    assert lost >= 1
