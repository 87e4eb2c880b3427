"""Text of the kernel and of devices: uevents, mount tables, swaps, aliases of modules, attributes."""

import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.hardware.machine import Machine
from common.hardware.modules import Candidate, kernel_modules, unclaimed
from common.hardware.storage import StorageFacts, storage_facts
from common.hardware.text import PAGE, clean
from common.hardware.text import uevent as uevent_file
from common.hardware.tree import MAX_FILE, TreeError
from services.watcher.mounts import MountWatch, users_of_disks
from services.watcher.sources import PlayedSource
from services.watcher.uevent import MAX_BYTES, Uevent, counts, parse
from tests.builders import MachineBuilder
from tests.unit.hostile.bounds import any_folder, bounded, few, outcome
from tests.unit.hostile.texts import damaged

MOUNTINFO = (
    b"36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue\n"
    b"37 35 0:44 / /pool rw - zfs tank/data rw\n38 35 8:17 / /a\\040b\\777 rw - vfat /dev/sdb1 rw\n"
)
SWAPS = (
    b"Filename\t\tType\t\tSize\tUsed\tPriority\n/dev/sda2   partition 1 0 -2\n/dev/dm-0 partition 1 0 -3\n"
)
ALIASES = (
    b"alias usb:v1A86p7523d*dc*dsc*dp*ic*isc*ip*in* ch341\nalias pci:v0000[0-9A-F]086d*sv*bc0[!2]* e1000-e\n"
)
DATAGRAM = (
    b"add@/devices/pci0000:00/usb1/1-4\0ACTION=add\0DEVPATH=/devices/pci0000:00/usb1/1-4\0SUBSYSTEM=usb\0"
)


@given(datagram=damaged(DATAGRAM))
def test_any_datagram_is_an_event_or_is_refused(datagram: bytes) -> None:
    found = outcome(lambda: parse(datagram), ValueError)
    if isinstance(found, Uevent):
        assert found.devpath.startswith("/")
        assert counts(found) in (True, False)
    else:
        assert str(found).startswith("no uevent: ")
        assert len(str(found)) < 400


@any_folder
@given(datagrams=st.lists(damaged(DATAGRAM).filter(lambda one: len(one) < MAX_BYTES), max_size=5))
def test_a_socket_of_any_datagrams_goes_on_and_says_when_it_lost_one(
    tmp_path: Path, datagrams: list[bytes]
) -> None:
    source = PlayedSource(tmp_path / "s")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        for datagram in [*datagrams, DATAGRAM]:
            sender.sendto(datagram, str(tmp_path / "s"))
    batch = source.receive()
    source.close()
    wrong = [one for one in datagrams if isinstance(outcome(partial(parse, one), ValueError), ValueError)]
    assert (batch.lost, len(batch.events)) == (bool(wrong), len(datagrams) - len(wrong) + 1)
    assert batch.events[-1] == parse(DATAGRAM)


@given(content=damaged(b"MAJOR=4\nMINOR=64\nDEVNAME=ttyS0\n"))
def test_any_uevent_file_is_pairs_of_text(content: bytes) -> None:
    found = uevent_file(content)
    assert all(isinstance(text, str) and "\n" not in text for pair in found.items() for text in pair)


@few
@given(mountinfo=damaged(MOUNTINFO), swaps=damaged(SWAPS))
def test_any_mount_table_and_swaps_give_facts(tmp_path: Path, mountinfo: bytes, swaps: bytes) -> None:
    machine = MachineBuilder(tmp_path)
    machine.write("proc/1/mountinfo", mountinfo)
    machine.write("proc/swaps", swaps)
    facts = storage_facts(machine.tree(), Machine())
    assert isinstance(facts, StorageFacts)
    assert facts.reason or facts.state != "unknown"
    assert facts.used or facts.state == "unknown"
    watch = MountWatch(tmp_path / "proc")
    assert not watch.changed()
    watch.close()


@given(content=damaged(MOUNTINFO))
def test_any_mount_table_has_users_of_disks(content: bytes) -> None:
    assert all(len(user) == 3 for user in users_of_disks(content.decode(errors="replace")))


@few
@given(
    aliases=damaged(ALIASES),
    builtin=damaged(b"kernel/drivers/usb/serial/ch341.ko\n"),
    modalias=damaged(b"usb:v1A86p7523d0264dcFFdsc00dp00icFFisc01ip02in00").map(clean),
)
def test_any_aliases_name_modules_or_none(
    tmp_path: Path, aliases: bytes, builtin: bytes, modalias: str
) -> None:
    machine = MachineBuilder(tmp_path)
    machine.write("proc/sys/kernel/osrelease", "6.1\n")
    machine.write("lib/modules/6.1/modules.alias", aliases)
    machine.write("lib/modules/6.1/modules.builtin", builtin)
    found = unclaimed(machine.tree(), [Candidate("usb", "1-1:1.0", "", modalias)])
    assert all(one.modules == tuple(sorted(one.modules)) for one in found)


LONG = 300_000
LINES: dict[str, tuple[str, bytes, Callable[[MachineBuilder], object]]] = {
    "an attribute": ("sys/x", b"\xff" * LONG, lambda machine: machine.tree().text("sys/x")),
    "a mount table": (
        "proc/1/mountinfo",
        b"\\040 8:1 " * (LONG // 8),
        lambda m: storage_facts(m.tree(), Machine()),
    ),
    "swaps": (
        "proc/swaps",
        b"\n/dev/" + b"x" * LONG + b" partition",
        lambda m: storage_facts(m.tree(), Machine()),
    ),
    "aliases": (
        "lib/modules/6.1/modules.alias",
        b"alias usb:" + b"[-" * (LONG // 2) + b" x",
        lambda machine: kernel_modules(machine.tree()),
    ),
    "stars": (
        "lib/modules/6.1/modules.alias",
        b"alias usb:v" + b"*a" * 2000 + b" x\nalias pci:v" + b"?*" * 2000 + b" x",
        lambda m: unclaimed(m.tree(), [Candidate("usb", "1-1:1.0", "", "usb:v" + "a" * 3000 + "b")]),
    ),
    "a uevent": (
        "sys/uevent",
        b"=" * LONG + b"A=\n" * (LONG // 3),
        lambda m: uevent_file(m.tree().read("sys/uevent")),
    ),
}


@pytest.mark.parametrize("name", LINES)
def test_a_very_long_line_costs_little(tmp_path: Path, name: str) -> None:
    path, content, read = LINES[name]
    machine = MachineBuilder(tmp_path)
    machine.write("proc/sys/kernel/osrelease", "6.1\n")
    machine.write(path, content)
    with bounded(128):
        found = read(machine)
    assert found is not None


def test_an_attribute_is_at_most_a_page(tmp_path: Path) -> None:
    machine = MachineBuilder(tmp_path)
    machine.write("sys/x", b"x" * LONG)
    assert len(machine.tree().text("sys/x")) == PAGE


def test_a_file_of_a_gigabyte_cannot_be_read(tmp_path: Path) -> None:
    machine = MachineBuilder(tmp_path)
    machine.write("sys/x", b"")
    with machine.path("sys/x").open("wb") as file:
        file.truncate(16 * MAX_FILE)
    with bounded(200), pytest.raises(TreeError, match="larger than"):
        machine.tree().read("sys/x")
