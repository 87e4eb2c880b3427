"""The real watcher process on a machine that the test builds and changes."""

import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from common.bus import BusReader, decode
from common.inventory import Inventory, InventoryMessage
from services.console.uevents import encode
from tests.builders import MachineBuilder
from tests.services.process import Process, clean_environment, free_port
from tests.waiting import eventually

T = TypeVar("T")
SETTLE_S, CEILING_S = 0.3, 0.9
WALKS = "liken_walk_seconds_count"
ADAPTER, STICK = "usb-1-1-1-0", "usb-1-2-1-0"


class Watcher:
    """The process, the machine it looks at, and the reconciler's ear on its bus."""

    def __init__(self, root: Path, run: Path, log: Path) -> None:
        self.machine = MachineBuilder(root)
        device = self.machine.usb("1-1")
        self.machine.tty(self.machine.interface(device, 0, driver="ch341"), "ttyUSB0")
        self.run = run
        self._log = log
        self._sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._reader: BusReader | None = None
        self.process: Process | None = None
        self.newest: InventoryMessage | None = None

    def start(self, **variables: str) -> Process:
        environment = clean_environment(
            NODE_NAME="n1",
            METRICS_ADDR=f"127.0.0.1:{free_port()}",
            LIKEN_ROOT=str(self.machine.root),
            LIKEN_RUN=str(self.run),
            LIKEN_SETTLE=str(SETTLE_S),
            LIKEN_SETTLE_CEILING=str(CEILING_S),
        )
        self.process = Process(["-m", "services.watcher"], environment | variables, self._log)
        return self.process

    @property
    def reader(self) -> BusReader:
        if self._reader is None:
            self._reader = BusReader(self.run / "bus", "reconciler", ["inventory", "stirred"])
        return self._reader

    def send(self, action: str, directory: str) -> float:
        """Send an event about a directory of the machine; the moment it was sent."""
        at = time.monotonic()
        self._sender.sendto(encode(action, directory.removeprefix("sys"), {}), str(self.run / "uevents.sock"))
        return at

    def inventory(self, holds: Callable[[Inventory], bool], timeout_s: float = 10.0) -> Inventory:
        """The first inventory for which `holds`."""
        return eventually(
            lambda: self.next(lambda m: m.inventory if m.inventory and holds(m.inventory) else None),
            timeout_s,
        )

    def error(self) -> str:
        """The text of the next inventory that is an error."""
        return eventually(lambda: self.next(lambda m: m.error), 10)

    def next(self, look: Callable[[InventoryMessage], T | None]) -> T | None:
        """What `look` says of the next inventory message, None when none comes soon."""
        for message in self.reader.wait(0.2):
            if message.topic == "inventory" and message.payload:
                self.newest = decode("inventory", message.payload, InventoryMessage)
                return look(self.newest)
        return None

    def plug_stick(self) -> str:
        """Put a second adapter into the tree, without telling anybody."""
        device = self.machine.usb("1-2")
        self.machine.tty(self.machine.interface(device, 0, driver="ftdi_sio"), "ttyUSB1")
        return device

    def close(self) -> None:
        self._sender.close()
        if self._reader:
            self._reader.close()
        if self.process:
            self.process.close()


@pytest.fixture
def watcher(tmp_path: Path, run_dir: Path) -> Iterator[Watcher]:
    watcher = Watcher(tmp_path / "machine", run_dir, tmp_path / "watcher.log")
    yield watcher
    watcher.close()


def names(inventory: Inventory) -> list[str]:
    return [device.name for device in inventory.devices]


def test_at_start_the_machine_is_on_the_bus(watcher: Watcher) -> None:
    process = watcher.start()
    inventory = watcher.inventory(lambda _: True)
    assert (names(inventory), inventory.node) == ([ADAPTER], "n1")
    process.wait_ready()
    assert process.metric('liken_inventory_devices{class="vendor-specific"}') == 1
    assert process.metric("liken_storage_known") == 1
    assert time.time() - process.metric("liken_inventory_timestamp_seconds") < 30
    assert process.stop() == 0
    assert not (watcher.run / "uevents.sock").exists()


def test_a_burst_of_events_is_one_walk_and_one_inventory(watcher: Watcher) -> None:
    process = watcher.start().wait_ready()
    watcher.inventory(lambda _: True)
    device = watcher.plug_stick()
    sent = [watcher.send("add", f"{device}/x{number}") for number in range(40)]
    inventory = watcher.inventory(lambda found: STICK in names(found))
    assert names(inventory) == [ADAPTER, STICK]
    assert time.monotonic() - sent[-1] >= SETTLE_S
    assert process.metric(WALKS) == 2
    assert process.metric('liken_uevents_total{action="add",woke="true"}') == 40
    assert watcher.newest is not None
    assert 0 < time.clock_gettime(time.CLOCK_BOOTTIME) - watcher.newest.stirred < 10


def test_events_without_end_are_walked_at_the_ceiling(watcher: Watcher) -> None:
    watcher.start().wait_ready()
    watcher.inventory(lambda _: True)
    device = watcher.plug_stick()
    begin = time.monotonic()

    def arrived() -> bool:
        watcher.send("bind", device)
        found = watcher.next(lambda message: message.inventory)
        return found is not None and STICK in names(found)

    # an event every 0.2 s: the machine is never quiet for the settle time
    eventually(arrived, 10)
    assert SETTLE_S < time.monotonic() - begin < CEILING_S + 1.0


def test_a_tick_comes_long_before_the_burst_settles(
    watcher: Watcher, capsys: pytest.CaptureFixture[str]
) -> None:
    watcher.start(LIKEN_SETTLE="3", LIKEN_SETTLE_CEILING="3").wait_ready()
    watcher.inventory(lambda _: True)
    times = []
    for _ in range(20):
        eventually(lambda: watcher.reader.wait(0.03) == [], 5, "no tick is left over")
        sent = watcher.send("remove", "sys/devices/pci0000:00/0000:00:14.0/usb1/1-1")
        eventually(lambda: [m for m in watcher.reader.wait(1) if m.topic == "stirred"], 5)
        times.append(time.monotonic() - sent)
    with capsys.disabled():
        middle, most = sorted(times)[10] * 1000, max(times) * 1000
        print(f"\n  event to tick: {middle:.1f} ms median, {most:.1f} ms at the most")
    assert sorted(times)[10] < 0.5


def test_events_that_change_nothing_wake_no_walk(watcher: Watcher) -> None:
    process = watcher.start().wait_ready()
    watcher.inventory(lambda _: True)
    eventually(lambda: watcher.reader.wait(0.2) == [], 5, "nothing is left over")
    watcher.send("add", "sys/devices/virtual/net/veth0")
    watcher.send("change", "sys/devices/pci0000:00/0000:00:14.0/usb1/1-1")
    watcher.send("add", "sys/card0")
    eventually(lambda: process.metric('liken_uevents_total{action="add",woke="false"}') == 2, 5)
    assert watcher.reader.wait(SETTLE_S + 0.3) == []
    assert process.metric(WALKS) == 1


def test_a_datagram_that_is_no_event_wakes_a_walk_and_harms_nothing(watcher: Watcher) -> None:
    process = watcher.start().wait_ready()
    watcher.inventory(lambda _: True)
    watcher._sender.sendto(b"\xff\xfe", str(watcher.run / "uevents.sock"))
    watcher.inventory(lambda _: True)
    assert process.metric("liken_uevents_lost_total") == 1


def test_an_unreadable_sys_is_an_error_on_the_bus_until_it_can_be_read(watcher: Watcher) -> None:
    process = watcher.start().wait_ready()
    watcher.inventory(lambda _: True)
    sys = watcher.machine.root / "sys"
    sys.rename(watcher.machine.root / "gone")
    watcher.send("remove", "sys/devices/x")
    assert "\n" not in watcher.error()
    assert watcher.newest is not None
    assert watcher.newest.inventory is None
    assert process.metric("liken_walk_failed") == 1
    (watcher.machine.root / "gone").rename(sys)
    assert names(watcher.inventory(lambda _: True)) == [ADAPTER]
    assert process.metric("liken_walk_failed") == 0


def test_a_machine_that_cannot_be_read_at_the_start_is_an_error_too(watcher: Watcher) -> None:
    sys = watcher.machine.root / "sys"
    sys.rename(watcher.machine.root / "gone")
    process = watcher.start()
    assert watcher.error()
    assert process.get("/readyz")[0] == 503
    assert process.get("/healthz")[0] == 200
    (watcher.machine.root / "gone").rename(sys)
    assert names(watcher.inventory(lambda _: True)) == [ADAPTER]
    assert process.get("/readyz")[0] == 200


def test_a_disk_that_is_mounted_wakes_a_walk_and_is_withheld(watcher: Watcher) -> None:
    stick = watcher.machine.usb("1-3")
    disk = watcher.machine.scsi_disk(
        watcher.machine.interface(stick, 0, driver="usb-storage", usb_class="08"), "sda"
    )
    process = watcher.start().wait_ready()
    assert "usb-1-3-1-0" in names(watcher.inventory(lambda _: True))
    watcher.machine.mount(disk)
    inventory = watcher.inventory(lambda found: "usb-1-3-1-0" not in names(found))
    assert {(entry.node, entry.reason) for entry in inventory.withheld} >= {("/dev/sda", "storage")}
    assert process.metric("liken_mount_changes_total") == 1


def test_a_wrong_machine_file_ends_the_start_with_one_line(watcher: Watcher) -> None:
    watcher.machine.write("etc/liken/machine.yaml", "spec:\n  serio: 7\n")
    process = watcher.start()
    assert process.wait() == 2
    assert len(process.log.splitlines()) == 1
    assert "machine.yaml" in process.log


def test_a_second_watcher_on_the_same_folder_is_refused_in_one_line(watcher: Watcher, tmp_path: Path) -> None:
    watcher.start().wait_ready()
    environment = clean_environment(
        NODE_NAME="n1", METRICS_ADDR="", LIKEN_ROOT=str(watcher.machine.root), LIKEN_RUN=str(watcher.run)
    )
    second = Process(["-m", "services.watcher"], environment, tmp_path / "second.log")
    try:
        assert second.wait() == 1
        assert "another watcher already serves" in second.log
        assert len(second.log.splitlines()) == 1
    finally:
        second.close()


def test_a_killed_watcher_starts_again_on_its_old_sockets(watcher: Watcher) -> None:
    process = watcher.start().wait_ready()
    watcher.inventory(lambda _: True)
    process.kill()
    watcher.plug_stick()
    watcher.start().wait_ready()
    assert names(watcher.inventory(lambda found: STICK in names(found))) == [ADAPTER, STICK]


def test_an_idle_watcher_uses_next_to_no_processor_time(
    watcher: Watcher, capsys: pytest.CaptureFixture[str]
) -> None:
    process = watcher.start().wait_ready()
    watcher.inventory(lambda _: True)
    eventually(lambda: watcher.reader.wait(0.3) == [], 5, "nothing is left over")
    begin = process.cpu_ns()
    assert watcher.reader.wait(3) == []
    used_ms = (process.cpu_ns() - begin) / 1e6
    with capsys.disabled():
        print(f"\n  idle watcher: {used_ms * 20:.1f} ms of processor time per minute")
    assert used_ms < 30
