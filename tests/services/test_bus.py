"""The bus over real ZeroMQ sockets: last values, ticks, slow and dead readers, killed senders."""

import os
import select
import signal
import statistics
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from common.bus import HIGH_WATER_MARK, BusReader, BusSender, Message
from common.errors import MachineError, RequestError
from tests.services.bus_ends import Bus, end, told, words
from tests.waiting import eventually


@pytest.fixture
def bus(tmp_path: Path) -> Iterator[Bus]:
    bus = Bus(tmp_path / "bus")
    yield bus
    bus.close()


def test_a_reader_that_comes_later_gets_the_last_value_of_a_state(bus: Bus) -> None:
    sender = bus.sender()
    sender.state("inventory", words("old"))
    sender.state("inventory", words("new"))
    reader = bus.reader()
    assert eventually(lambda: told(reader.wait(1)), 5) == "new"


def test_a_reader_that_comes_first_gets_the_value_when_the_sender_comes(bus: Bus) -> None:
    reader = bus.reader()
    assert reader.wait(0.05) == []
    bus.sender().state("inventory", words("first"))
    assert eventually(lambda: told(reader.wait(1)), 5) == "first"


def test_every_new_reader_of_a_topic_is_served_and_not_the_first_alone(bus: Bus) -> None:
    bus.sender().state("inventory", words("x"))
    readers = [bus.reader() for _ in range(4)]
    assert [eventually(lambda: told(reader.wait(1)), 5) for reader in readers] == ["x"] * 4  # noqa: B023


def test_of_many_values_the_reader_keeps_the_newest_and_of_many_ticks_one(bus: Bus) -> None:
    sender, reader = bus.sender(), bus.reader()
    sender.state("inventory", words("0"))
    eventually(lambda: told(reader.wait(1)), 5)
    for number in range(1, 50):
        sender.state("inventory", words(str(number)))
        sender.tick("stirred")
    seen: list[Message] = []

    def complete() -> bool:
        seen.extend(reader.wait(0.2))
        return told(seen[-2:]) == "49"

    eventually(complete, 5)
    assert len([message for message in seen if message.topic == "inventory"]) < 49


def test_a_new_reader_gets_one_tick_for_all_that_it_may_have_missed(bus: Bus) -> None:
    sender = bus.sender()
    reader = bus.reader("stirred")
    assert eventually(lambda: reader.wait(1), 5) == [Message("stirred", None)]
    sender.tick("stirred")
    assert reader.wait(5) == [Message("stirred", None)]
    assert reader.wait(0.05) == []


def test_a_reader_that_finds_a_restarted_sender_gets_a_tick(bus: Bus) -> None:
    first = bus.process("first")
    reader = bus.reader("stirred")
    assert eventually(lambda: reader.wait(1), 5) == [Message("stirred", None)]
    end(first)
    bus.process("second")
    assert eventually(lambda: reader.wait(1), 5) == [Message("stirred", None)]


def test_a_reader_that_slept_through_more_than_the_queue_holds_still_gets_the_newest(bus: Bus) -> None:
    sender, reader = bus.sender(), bus.reader()
    sender.state("inventory", words("old"))
    eventually(lambda: told(reader.wait(1)), 5)
    for _ in range(4 * HIGH_WATER_MARK):
        sender.tick("stirred")
    sender.state("inventory", words("new"))
    assert eventually(lambda: told(reader.wait(0.5)) == "new", 5)


def test_a_reader_that_never_reads_does_not_hold_the_sender(bus: Bus) -> None:
    sender, reader = bus.sender(), bus.reader()
    sender.state("inventory", words("x"))
    eventually(lambda: told(reader.wait(1)), 5)
    begin = time.monotonic()
    for _ in range(3 * HIGH_WATER_MARK):
        sender.state("inventory", words("y" * 1000))
    assert time.monotonic() - begin < 5


def test_a_killed_sender_is_noticed_and_the_next_one_takes_its_place(bus: Bus) -> None:
    first = bus.process("first")
    reader = bus.reader()
    assert eventually(lambda: told(reader.wait(1)), 5) == "first"
    assert reader.peer_connected("watcher")
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    eventually(
        lambda: reader.wait(1) == [] and not reader.peer_connected("watcher"), 5, "the loss is noticed"
    )
    assert (bus.folder / "watcher.sock").exists()
    bus.process("second")
    assert eventually(lambda: told(reader.wait(1)), 5) == "second"
    assert reader.peer_connected("watcher")


def test_a_second_sender_of_the_same_service_is_refused_and_the_first_goes_on(bus: Bus) -> None:
    sender = bus.sender()
    with pytest.raises(MachineError, match="another watcher already serves"):
        bus.sender()
    sender.state("inventory", words("still here"))
    reader = bus.reader()
    assert eventually(lambda: told(reader.wait(1)), 5) == "still here"


def test_a_closed_sender_makes_room_for_the_next(bus: Bus) -> None:
    bus.sender().close()
    bus.sender().state("inventory", words("next"))
    reader = bus.reader()
    assert eventually(lambda: told(reader.wait(1)), 5) == "next"


def test_the_folder_of_the_bus_belongs_to_this_user_alone(bus: Bus) -> None:
    bus.folder.mkdir(mode=0o755)
    bus.sender()
    assert bus.folder.stat().st_mode & 0o777 == 0o700


def test_a_folder_that_cannot_be_made_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RequestError, match="set LIKEN_RUN to a folder that this user can write"):
        BusSender(tmp_path / "file/bus", "watcher")


def test_only_the_sender_of_the_table_sends_a_topic_and_only_its_readers_read_it(bus: Bus) -> None:
    with pytest.raises(ValueError, match="does not send presence"):
        bus.sender().tick("presence")
    with pytest.raises(ValueError, match="does not read claims"):
        BusReader(bus.folder, "publisher", ["claims"])


def test_a_wait_ends_when_another_thread_wakes_it(bus: Bus) -> None:
    reader = bus.reader()
    timer = threading.Timer(0.1, reader.wake)
    begin = time.monotonic()
    timer.start()
    assert reader.wait(20) == []
    assert time.monotonic() - begin < 10


def test_a_wake_that_comes_too_late_does_nothing(bus: Bus) -> None:
    reader = bus.reader()
    reader.close()
    reader.wake()
    reader.close()
    assert bus.sender() is not None


def test_a_reader_is_a_file_for_other_loops(bus: Bus) -> None:
    sender, reader = bus.sender(), bus.reader()
    sender.state("inventory", words("x"))

    seen = [told(reader.wait(0))]

    def read(text: str) -> bool:
        ready, _, _ = select.select([reader], [], [], 1)
        seen.extend([told(reader.wait(0))] if ready else [])
        return text in seen

    assert eventually(lambda: "x" in seen or read("x"), 5)
    sender.state("inventory", words("y"))
    assert eventually(lambda: read("y"), 5)


def test_many_threads_may_send_at_once(bus: Bus) -> None:
    sender, reader = bus.sender(), bus.reader()

    def send() -> None:
        for _ in range(200):
            sender.tick("stirred")

    threads = [threading.Thread(target=send) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sender.state("inventory", words("after"))
    assert eventually(lambda: told(reader.wait(0.5)) == "after", 5)


def test_a_tick_arrives_long_before_a_burst_settles(bus: Bus, capsys: pytest.CaptureFixture[str]) -> None:
    sender, reader = bus.sender(), bus.reader("stirred")
    eventually(lambda: reader.wait(1), 5, "the subscription has reached the sender")
    times = []
    for _ in range(100):
        begin = time.perf_counter()
        sender.tick("stirred")
        assert reader.wait(2) == [Message("stirred", None)]
        times.append(time.perf_counter() - begin)
    with capsys.disabled():
        worst = sorted(times)[98]
        print(
            f"\n  tick to reader: {statistics.median(times) * 1000:.2f} ms median, {worst * 1000:.2f} ms p99"
        )


def test_idle_ends_of_the_bus_use_no_processor_time(bus: Bus, capsys: pytest.CaptureFixture[str]) -> None:
    sender, reader = bus.sender(), bus.reader()
    sender.state("inventory", words("x"))
    eventually(lambda: told(reader.wait(1)), 5)
    begin = time.process_time()
    reader.wait(1.5)
    idle = time.process_time() - begin
    sender.close()
    reader.wait(0.5)
    begin = time.process_time()
    reader.wait(1.5)
    absent = time.process_time() - begin
    with capsys.disabled():
        print(f"\n  per minute: idle {idle * 40e3:.0f} ms, without the sender {absent * 40e3:.0f} ms")
    assert idle < 0.1
