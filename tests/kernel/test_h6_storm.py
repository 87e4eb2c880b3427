"""Hard scenario 6: a storm of virtual devices, and a socket buffer that overflows."""

import signal
import time
from collections.abc import Iterator

import pytest

from tests.kernel.conftest import Tell
from tests.kernel.machine import Guest
from tests.kernel.plugs import KINDS, Plugs
from tests.kernel.product import SAFE_S, SLICE_S, Product, absent
from tests.kernel.test_2_hotplug import inventories, settle

STICK = KINDS["stick"]
FTDI = KINDS["ftdi serial"]
STICK_BURSTS = 2  # the kernel scans a stick a second after it came
PAIRS = 500
FLOOD = 3000  # events; what an unprivileged socket buffer of 208 KiB holds is a sixth of that
GROWTH_KIB = 8 * 1024
WATCHER_METRICS = "http://127.0.0.1:9200/metrics"


@pytest.fixture(scope="module")
def virtual(guest: Guest, product: Product) -> Product:
    """The product on a machine that can make virtual devices."""
    guest.run("sh", "-c", "modprobe veth; modprobe loop; truncate -s 1M /run/storm.img")
    return product


@pytest.fixture(scope="module")
def small_buffer(product: Product) -> Iterator[Product]:
    """The product without the capability to enlarge its socket buffer beyond the system's limit.

    Its reconciler has no backstop to speak of: while the watcher sleeps it would be right to repair a spec.
    """
    product.restart(("setpriv", "--bounding-set=-all", "--inh-caps=-all"), LIKEN_PASS="3600")
    yield product
    product.restart()


def test_virtual_devices_wake_no_walk_and_do_not_delay_a_stick(
    guest: Guest, virtual: Product, plugs: Plugs, tell: Tell
) -> None:
    memory = guest.call("memory_kib", "services.")
    mark = guest.call("mark")
    storm = guest.begin("storm", PAIRS)
    guest.call("wait_note", mark, "uevent")
    appeared = virtual.waiting_for_slice(has=[STICK.device])
    began = time.monotonic()
    plugs.plug(STICK)
    appeared.result(120)
    took = time.monotonic() - began
    assert took < SLICE_S
    first, last = storm.result(250)
    settle(guest, mark)
    events = len(guest.call("since", mark, "uevent"))
    walks = inventories(guest, mark)
    grown = sum(guest.call("memory_kib", "services.").values()) - sum(memory.values())
    tell(
        f"{PAIRS} veth pairs in {last - first:.0f} s, {events} events: {walks} walks;"
        f" the stick in the slice after {took:.2f} s; memory {grown:+d} KiB"
    )
    virtual.agree(has=[STICK.device])
    assert walks <= STICK_BURSTS
    assert events > 4 * PAIRS
    assert grown < GROWTH_KIB


def test_virtual_devices_alone_wake_no_walk(guest: Guest, virtual: Product, tell: Tell) -> None:
    virtual.agree()
    mark = guest.call("mark")
    first, last = guest.call("storm", PAIRS // 2)
    settle(guest, mark)
    events, walks = len(guest.call("since", mark, "uevent")), inventories(guest, mark)
    tell(f"{PAIRS // 2} veth pairs in {last - first:.0f} s, {events} events: {walks} walks")
    assert events > 4 * (PAIRS // 2)
    assert walks == 0


def test_after_a_lost_event_the_walk_happens_and_nothing_is_missed(
    guest: Guest, small_buffer: Product, plugs: Plugs, tell: Tell
) -> None:
    plugs.plug(FTDI)
    small_buffer.waiting_for_slice(has=[FTDI.device]).result(120)
    claim = small_buffer.claim("lost", FTDI.device)
    watcher = small_buffer.pids()["watcher"]
    safe = small_buffer.waiting_for_spec(claim, {FTDI.device: absent(FTDI.device)})
    gone = small_buffer.waiting_for_slice(has=[STICK.device], lacks=[FTDI.device])
    guest.call("kill", watcher, int(signal.SIGSTOP))
    try:
        guest.call("flood", "/sys/class/mem/null", FLOOD)
        plugs.unplug(FTDI)
        plugs.free(FTDI)
        plugs.plug(STICK)
        guest.call("wait_path", "/sys/bus/usb/devices/2-8:1.0/driver")
        guest.call("wait_path_gone", "/sys/bus/usb/devices/1-8")
        assert not safe.done()
        mark = guest.call("mark")
    finally:
        guest.call("kill", watcher, int(signal.SIGCONT))
    began = time.monotonic()
    safe.result(120)
    told = time.monotonic() - began
    gone.result(120)
    listed = time.monotonic() - began
    tell(
        f"{FLOOD} events while it slept; the lost remove in the spec {told:.2f} s later,"
        f" the stick in the slice {listed:.2f} s"
    )
    assert told < SAFE_S
    assert listed < SLICE_S
    guest.call("wait_note", mark, "inventory")
    small_buffer.agree(absent=[claim], has=[STICK.device], lacks=[FTDI.device])
    assert small_buffer.pids()["watcher"] == watcher
    lost = guest.call("metric", WATCHER_METRICS, "liken_uevents_lost_total")
    tell(f"liken_uevents_lost_total {lost:.0f}")
    assert lost >= 1
    small_buffer.release(claim)
