"""Somebody deletes or replaces the files of the bus while its ends run."""

import contextlib
import fcntl
import logging
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from common.bus import BusReader, BusSender
from common.bus.sender import LISTENERS
from common.errors import MachineError
from tests.services.bus_ends import Bus, told, words
from tests.waiting import eventually


@pytest.fixture
def bus(tmp_path: Path) -> Iterator[Bus]:
    bus = Bus(tmp_path / "bus")
    yield bus
    bus.close()


def hears(reader: BusReader, text: str) -> bool:
    return eventually(lambda: told(reader.wait(0.2)) == text, 10, f"the reader hears {text!r}")


def heard(reader: BusReader, last: str) -> list[str]:
    """All that the reader hears until `last`."""
    found: list[str] = []

    def complete() -> bool:
        found.extend(text for text in [told(reader.wait(0.2))] if text)
        return found[-1:] == [last]

    eventually(complete, 10, f"the reader hears {last!r}")
    return found


@contextlib.contextmanager
def locked_by_another(bus: Bus) -> Iterator[None]:
    """The lock of the folder is another file, which somebody else holds."""
    path = bus.folder / "new.lock"
    with path.open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        path.replace(bus.folder / "watcher.lock")
        yield


def socket_of(bus: Bus) -> Path:
    return bus.folder / "watcher.sock"


def made_again(bus: Bus) -> None:
    eventually(lambda: socket_of(bus).is_socket(), 10, "the socket is there again")


def remove_socket(folder: Path) -> None:
    (folder / "watcher.sock").unlink()


def replace_socket_by_a_file(folder: Path) -> None:
    (folder / "other").write_text("not a socket")
    (folder / "other").replace(folder / "watcher.sock")


def remove_folder(folder: Path) -> None:
    # the sender may put its things back between the steps
    eventually(lambda: removed(folder), 5, "the folder is removed")


def removed(folder: Path) -> bool:
    shutil.rmtree(folder)
    return True


def make_folder_again(folder: Path) -> None:
    folder.rename(folder.with_name("old"))
    folder.mkdir(mode=0o755, exist_ok=True)


def move_folder(folder: Path) -> None:
    folder.rename(folder.with_name("moved"))


def remove_run_folder(folder: Path) -> None:
    eventually(lambda: removed(folder.parent), 5, "the folder above is removed")


@pytest.mark.parametrize(
    "harm",
    [
        remove_socket,
        replace_socket_by_a_file,
        remove_folder,
        make_folder_again,
        move_folder,
        remove_run_folder,
    ],
)
def test_a_reader_that_comes_after_the_harm_gets_the_last_value(
    tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    bus = Bus(tmp_path / "run/bus")
    bus.sender().state("inventory", words("last"))
    harm(bus.folder)
    assert hears(bus.reader(), "last")
    assert bus.folder.stat().st_mode & 0o777 == 0o700
    bus.close()


def test_a_reader_that_waits_for_a_deleted_socket_finds_the_new_one(bus: Bus) -> None:
    sender, reader = bus.sender(), bus.reader()
    sender.close()
    assert not socket_of(bus).exists()
    bus.sender().state("inventory", words("next"))
    remove_socket(bus.folder)
    assert hears(reader, "next")


def test_a_reader_of_before_hears_each_later_value_once_and_stays_connected(bus: Bus) -> None:
    sender, reader = bus.sender(), bus.reader("inventory")
    sender.state("inventory", words("before"))
    assert hears(reader, "before")
    remove_socket(bus.folder)
    made_again(bus)
    assert reader.wait(0.2) == []
    assert reader.peer_connected("watcher")
    for text in ("first", "second"):
        sender.state("inventory", words(text))
        assert heard(reader, text) == [text]


def test_readers_of_before_and_after_hear_the_same_ticks(bus: Bus) -> None:
    sender, before = bus.sender(), bus.reader("stirred")
    eventually(lambda: before.wait(0.2), 5, "the first tick, which each new reader gets")
    remove_socket(bus.folder)
    after = bus.reader("stirred")
    eventually(lambda: after.wait(0.2), 10, "the first tick")
    sender.tick("stirred")
    assert before.wait(5) == after.wait(5) != []


def test_a_reader_hears_on_however_often_the_socket_was_deleted(bus: Bus) -> None:
    sender, reader = bus.sender(), bus.reader()
    sender.state("inventory", words("before"))
    assert hears(reader, "before")
    for _ in range(LISTENERS + 1):
        remove_socket(bus.folder)
        made_again(bus)
    sender.state("inventory", words("after"))
    assert hears(reader, "after")
    assert hears(bus.reader(), "after")


def test_the_sender_keeps_no_more_files_open_however_often_the_socket_was_deleted(bus: Bus) -> None:
    sender = bus.sender()
    sender.state("inventory", words("x"))
    for _ in range(LISTENERS - 1):
        remove_socket(bus.folder)
        made_again(bus)
    assert hears(bus.reader(), "x")
    before = open_listeners(bus)
    for _ in range(2):
        remove_socket(bus.folder)
        made_again(bus)
    eventually(lambda: open_listeners(bus) <= before == LISTENERS, 5, "the oldest listener is closed")


def open_listeners(bus: Bus) -> int:
    """How many listening sockets lie or lay below the folder of the bus: flag __SO_ACCEPTCON, proc_net(5)."""
    rows = [row.split() for row in Path("/proc/net/unix").read_text().splitlines()[1:]]
    return sum(len(row) == 8 and row[3] == "00010000" and row[7].startswith(str(bus.folder)) for row in rows)


def test_what_happened_is_said_once_as_a_warning(bus: Bus, caplog: pytest.LogCaptureFixture) -> None:
    bus.sender().state("inventory", words("x"))
    remove_socket(bus.folder)
    assert hears(bus.reader(), "x")
    eventually(lambda: caplog.records, 5, "a line")
    assert [(record.levelno, record.getMessage()) for record in caplog.records] == [
        (
            logging.WARNING,
            f"the socket {socket_of(bus)} was removed or replaced: made again; connected readers were not cut"
            " off, new ones find it",
        )
    ]


def test_a_folder_in_the_way_is_left_alone_and_told_of_until_it_is_gone(
    bus: Bus, caplog: pytest.LogCaptureFixture
) -> None:
    bus.sender().state("inventory", words("x"))
    (bus.folder / "watcher.lock").unlink()  # the next attempt is not the first
    eventually(lambda: caplog.records, 5, "the lock is made again")
    caplog.clear()
    socket_of(bus).unlink()
    socket_of(bus).mkdir()
    eventually(lambda: "Is a directory" in caplog.text, 10, "the folder is told of")
    assert socket_of(bus).is_dir()
    socket_of(bus).rmdir()
    assert hears(bus.reader(), "x")


def test_a_folder_that_cannot_be_reached_for_a_while_ends_nothing(
    bus: Bus, caplog: pytest.LogCaptureFixture
) -> None:
    bus.sender().state("inventory", words("x"))
    with reachable_by_nobody(bus.folder):
        eventually(lambda: "Permission denied" in caplog.text, 10, "it is told of")
    assert hears(bus.reader(), "x")


@contextlib.contextmanager
def reachable_by_nobody(folder: Path) -> Iterator[None]:
    """The folder above lets nobody through, after that the socket was deleted."""
    inside = os.open(folder, os.O_RDONLY)
    folder.parent.chmod(0)
    try:
        if os.access(folder, os.F_OK):
            pytest.skip("root reaches everything")
        os.unlink("watcher.sock", dir_fd=inside)
        yield
    finally:
        folder.parent.chmod(0o700)
        os.close(inside)


def test_a_deleted_lock_is_taken_again_and_keeps_a_second_sender_away(
    bus: Bus, caplog: pytest.LogCaptureFixture
) -> None:
    bus.sender().state("inventory", words("x"))
    (bus.folder / "watcher.lock").unlink()
    eventually(lambda: "watcher.lock was removed or replaced: made again" in caplog.text, 5)
    with pytest.raises(MachineError, match="another watcher already serves"):
        BusSender(bus.folder, "watcher")
    assert hears(bus.reader(), "x")


def test_a_lock_that_is_a_link_to_a_file_is_held_as_any_other(
    bus: Bus, caplog: pytest.LogCaptureFixture
) -> None:
    bus.folder.mkdir(mode=0o700)
    (bus.folder / "watcher.lock").symlink_to("elsewhere.lock")
    bus.sender().state("inventory", words("x"))
    remove_socket(bus.folder)
    assert hears(bus.reader(), "x")
    assert "another watcher" not in caplog.text


def test_who_lost_the_lock_to_another_sender_takes_nothing_from_it_and_follows_when_that_one_ends(
    bus: Bus, caplog: pytest.LogCaptureFixture
) -> None:
    sender, reader = bus.sender(), bus.reader()
    sender.state("inventory", words("mine"))
    assert hears(reader, "mine")
    with locked_by_another(bus):
        replace_socket_by_a_file(bus.folder)  # stands for the other's
        eventually(lambda: "another watcher already serves" in caplog.text, 5, "the other is noticed")
        sender.state("inventory", words("still"))
        assert hears(reader, "still")
        assert socket_of(bus).read_text() == "not a socket"
    assert hears(bus.reader(), "still")


def test_a_sender_that_ends_removes_its_own_socket_and_nobody_elses(
    bus: Bus, caplog: pytest.LogCaptureFixture
) -> None:
    sender = bus.sender()
    with locked_by_another(bus):
        replace_socket_by_a_file(bus.folder)
        eventually(lambda: "another watcher already serves" in caplog.text, 5, "the other is noticed")
        sender.close()
        assert socket_of(bus).read_text() == "not a socket"
    next_one = bus.sender()
    assert socket_of(bus).is_socket()
    next_one.close()
    assert not socket_of(bus).exists()
