"""Hardware that comes and goes in a played tree: the order of the changes, the events, the new numbers."""

import socket
from pathlib import Path

import pytest

from common.errors import RequestError
from services.console.play import Player
from services.console.uevents import SOCKET, encode
from tests.builders import MachineBuilder


class Heard:
    """A watcher's ear: the socket, and what /sys looked like when each event came."""

    def __init__(self, run_dir: Path) -> None:
        run_dir.mkdir()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(run_dir / SOCKET))
        self._socket.setblocking(False)

    def events(self) -> list[dict[str, str]]:
        found: list[dict[str, str]] = []
        while True:
            try:
                head, *lines = self._socket.recv(4096).decode().rstrip("\0").split("\0")
            except BlockingIOError:
                return found
            fields = dict(line.split("=", 1) for line in lines)
            assert head == f"{fields['ACTION']}@{fields['DEVPATH']}"
            found.append(fields)


class Bench:
    """A machine with a serial adapter behind a hub and one right at the root hub, a player, an ear."""

    def __init__(self, folder: Path) -> None:
        self.machine = MachineBuilder(folder / "machine")
        self.usb = "sys/devices/pci0000:00/0000:00:14.0/usb1"
        self.adapter(self.machine.usb("1-2"), "ttyUSB0")
        hub = self.machine.usb("1-3")
        self.machine.interface(hub, 0, driver="hub", usb_class="09")
        self.adapter(self.machine.usb("1-3.1"), "ttyUSB1")
        self.run = folder / "run"
        self.waits: list[float] = []
        self.player = Player(self.machine.root, self.run, self.waits.append)

    def listen(self) -> Heard:
        self.ear = Heard(self.run)
        return self.ear

    def adapter(self, device: str, tty: str) -> None:
        interface = self.machine.interface(device, 0, driver="ftdi_sio")
        port = self.machine.device(interface, tty, "usb-serial", "ftdi_sio")
        self.machine.tty(port, tty)

    def has(self, path: str) -> bool:
        return (self.machine.root / path).exists() or (self.machine.root / path).is_symlink()

    def text(self, path: str) -> str:
        return (self.machine.root / path).read_text()

    def heard(self) -> list[tuple[str, str]]:
        return [(event["ACTION"], event["DEVPATH"].rpartition("usb1/")[2]) for event in self.ear.events()]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_an_unplug_is_told_children_first_with_unbind_before_remove(bench: Bench) -> None:
    bench.listen()
    bench.player.unplug("1-2")
    assert bench.heard() == [
        ("remove", "1-2/1-2:1.0/ttyUSB0/tty/ttyUSB0"),
        ("unbind", "1-2/1-2:1.0/ttyUSB0"),
        ("remove", "1-2/1-2:1.0/ttyUSB0"),
        ("unbind", "1-2/1-2:1.0"),
        ("remove", "1-2/1-2:1.0"),
        ("unbind", "1-2"),
        ("remove", "1-2"),
    ]


def test_a_plug_is_told_parents_first_with_bind_after_what_the_driver_made(bench: Bench) -> None:
    bench.player.unplug("1-2")
    bench.listen()
    bench.player.plug("1-2")
    assert bench.heard() == [
        ("add", "1-2"),
        ("add", "1-2/1-2:1.0"),
        ("add", "1-2/1-2:1.0/ttyUSB2"),
        ("add", "1-2/1-2:1.0/ttyUSB2/tty/ttyUSB2"),
        ("bind", "1-2/1-2:1.0/ttyUSB2"),
        ("bind", "1-2/1-2:1.0"),
        ("bind", "1-2"),
    ]


def test_events_carry_what_the_kernel_says(bench: Bench) -> None:
    ear = bench.listen()
    bench.player.unplug("1-2")
    gone = ear.events()
    assert gone[0] == {
        "ACTION": "remove",
        "DEVPATH": "/devices/pci0000:00/0000:00:14.0/usb1/1-2/1-2:1.0/ttyUSB0/tty/ttyUSB0",
        "SUBSYSTEM": "tty",
        "MAJOR": "4",
        "MINOR": "0",
        "DEVNAME": "ttyUSB0",
        "SEQNUM": "1",
    }
    assert [event.get("DRIVER") for event in gone] == [None] * len(gone)
    bench.player.plug("1-2")
    back = {(event["ACTION"], event["SUBSYSTEM"]): event for event in ear.events()}
    assert "DRIVER" not in back["add", "usb-serial"]
    assert back["bind", "usb-serial"]["DRIVER"] == "ftdi_sio"
    assert back["add", "tty"]["DEVNAME"] == "ttyUSB2"


def test_an_unplug_takes_every_entry_away(bench: Bench) -> None:
    bench.player.unplug("1-2")
    left = [
        path for path in bench.machine.root.glob("sys/**/*") if "1-2" in path.name or "ttyUSB0" in path.name
    ]
    assert left == []
    assert not bench.has("sys/dev/char/189:1")
    assert not bench.has("sys/dev/char/4:0")


def test_no_link_of_the_tree_dangles_after_a_replug(bench: Bench) -> None:
    before = _dangling(bench.machine.root)
    bench.player.unplug("1-2")
    bench.player.plug("1-2")
    assert _dangling(bench.machine.root) == before


def test_a_replug_gives_the_next_devnum_and_the_next_free_tty(bench: Bench) -> None:
    bench.player.unplug("1-2")
    bench.player.plug("1-2")
    assert bench.text(f"{bench.usb}/1-2/devnum") == "5\n"
    assert bench.text(f"{bench.usb}/1-2/dev") == "189:4\n"
    assert "DEVNAME=bus/usb/001/005" in bench.text(f"{bench.usb}/1-2/uevent")
    assert bench.text("sys/dev/char/189:4/devnum") == "5\n"
    assert not bench.has("sys/class/tty/ttyUSB0")
    assert "DEVNAME=ttyUSB2" in bench.text("sys/class/tty/ttyUSB2/uevent")
    assert bench.text("sys/class/tty/ttyUSB2/dev") == "4:2\n"
    assert bench.text("sys/dev/char/4:2/dev") == "4:2\n"


def test_devnums_never_come_back_before_the_bus_went_through_all(bench: Bench) -> None:
    bench.machine.usb("1-9", devnum=125)
    seen = []
    for _ in range(5):
        bench.player.unplug("1-2")
        bench.player.plug("1-2")
        seen.append(int(bench.text(f"{bench.usb}/1-2/devnum")))
    assert seen == [126, 127, 2, 5, 6]  # 1 is the root hub, 3 and 4 are plugged


def test_a_hub_takes_and_brings_what_hangs_on_it(bench: Bench) -> None:
    bench.player.unplug("1-3")
    assert not bench.has("sys/class/tty/ttyUSB1")
    with pytest.raises(RequestError, match=r"no device 1-3\.1"):
        bench.player.unplug("1-3.1")
    bench.player.plug("1-3")
    assert bench.text(f"{bench.usb}/1-3/devnum") == "5\n"
    assert bench.text(f"{bench.usb}/1-3/1-3.1/devnum") == "6\n"
    assert bench.has("sys/bus/usb/devices/1-3.1")
    assert bench.has("sys/class/tty/ttyUSB2")


def test_a_slow_disconnect_lets_the_drivers_go_long_before_the_device(bench: Bench) -> None:
    def during(seconds: float) -> None:
        told = bench.heard()
        assert told[-1] == ("unbind", "1-2/1-2:1.0")
        assert ("remove", "1-2/1-2:1.0") not in told
        assert bench.has("sys/bus/usb/devices/1-2:1.0")
        assert not bench.has(f"{bench.usb}/1-2/1-2:1.0/driver")
        assert not bench.has("sys/class/tty/ttyUSB0")
        bench.waits.append(seconds)

    bench.listen()
    Player(bench.machine.root, bench.run, during).unplug("1-2", disconnect_s=7.0)
    assert bench.waits == [7.0]
    assert bench.heard() == [("remove", "1-2/1-2:1.0"), ("unbind", "1-2"), ("remove", "1-2")]


def test_what_went_slowly_comes_back_whole(bench: Bench) -> None:
    bench.player.unplug("1-2", disconnect_s=1.0)
    bench.player.plug("1-2")
    assert bench.has(f"{bench.usb}/1-2/1-2:1.0/driver")
    assert bench.has("sys/class/tty/ttyUSB2")


def test_a_rebind_keeps_the_device_and_renews_what_its_driver_made(bench: Bench) -> None:
    bench.player.rebind("1-2:1.0")
    assert bench.text(f"{bench.usb}/1-2/devnum") == "2\n"
    assert bench.has("sys/bus/usb/drivers/ftdi_sio/1-2:1.0")
    assert bench.has("sys/class/tty/ttyUSB2")
    assert "DRIVER=ftdi_sio" in bench.text(f"{bench.usb}/1-2/1-2:1.0/uevent")


def test_an_unbound_device_that_is_replugged_can_be_bound_again(bench: Bench) -> None:
    bench.player.unbind("1-2:1.0")
    assert "DRIVER" not in bench.text(f"{bench.usb}/1-2/1-2:1.0/uevent")
    bench.player.unplug("1-2")
    bench.player.plug("1-2")
    assert not bench.has(f"{bench.usb}/1-2/1-2:1.0/driver")
    bench.player.bind("1-2:1.0")
    assert bench.has(f"{bench.usb}/1-2/1-2:1.0/driver")


def test_a_number_that_was_taken_meanwhile_is_not_given_twice(bench: Bench) -> None:
    keyboard = bench.machine.interface(bench.machine.usb("1-4"), 0, driver="usbhid", usb_class="03")
    bench.machine.hidraw(keyboard, "hidraw0")
    bench.player.unplug("1-4")
    other = bench.machine.interface(bench.machine.usb("1-5"), 0, driver="usbhid", usb_class="03")
    bench.machine.node(other, "hidraw", "hidraw0", number="240:0")
    bench.player.plug("1-4")
    assert bench.has(f"{bench.usb}/1-4/1-4:1.0/hidraw/hidraw1")
    assert bench.text("sys/class/hidraw/hidraw1/dev") == "240:1\n"


def test_a_disk_whose_letter_was_taken_is_refused_in_words(bench: Bench) -> None:
    stick = bench.machine.interface(bench.machine.usb("1-4"), 0, driver="usb-storage", usb_class="08")
    bench.machine.scsi_disk(stick, "sda")
    bench.player.unplug("1-4")
    other = bench.machine.interface(bench.machine.usb("1-5"), 0, driver="usb-storage", usb_class="08")
    bench.machine.scsi_disk(other, "sda", host=1)
    with pytest.raises(RequestError, match="/dev/sda belongs to another device"):
        bench.player.plug("1-4")


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda player: player.unplug("9-9"), "no device 9-9"),
        (lambda player: player.unplug("../../../etc"), "no device"),
        (lambda player: player.unplug("/sys/bus"), "no device /sys/bus"),
        (lambda player: player.unplug(""), "no device"),
        (lambda player: player.plug("1-2"), "1-2 is not unplugged: nothing is"),
        (lambda player: player.bind("1-2:1.0"), "is not unplugged"),
    ],
)
def test_what_cannot_be_played_is_refused_in_words(bench: Bench, call: object, words: str) -> None:
    bench.listen()
    with pytest.raises(RequestError, match=words):
        call(bench.player)  # type: ignore[operator]
    assert bench.heard() == []


def test_a_path_below_sys_is_as_good_as_an_address(bench: Bench) -> None:
    bench.player.unplug(f"/{bench.usb}/1-2")
    assert bench.player.unplugged() == ["1-2"]
    bench.player.plug(f"/{bench.usb}/1-2")
    assert bench.player.unplugged() == []


def test_events_without_a_listener_are_lost_and_the_tree_changes_all_the_same(tmp_path: Path) -> None:
    machine = MachineBuilder(tmp_path / "machine")
    machine.interface(machine.usb("1-2"), 0, driver="ftdi_sio")
    sent = Player(machine.root, tmp_path / "nowhere").unplug("1-2")
    assert [event.heard for event in sent] == [False] * len(sent)
    assert not (machine.root / "sys/bus/usb/devices/1-2").is_symlink()


def test_a_datagram_has_the_form_of_the_kernels_broadcast() -> None:
    assert encode("add", "/devices/x", {"SUBSYSTEM": "usb", "SEQNUM": "7"}) == (
        b"add@/devices/x\0ACTION=add\0DEVPATH=/devices/x\0SUBSYSTEM=usb\0SEQNUM=7\0"
    )


def _dangling(root: Path) -> set[str]:
    return {str(path) for path in root.glob("sys/**/*") if path.is_symlink() and not path.exists()}
