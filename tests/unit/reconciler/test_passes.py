"""Passes of the reconciler, and when they are due."""

import errno
import os
import resource
import time
import uuid
from pathlib import Path
from typing import Any

import pytest

from common.claims import Result
from common.errors import LikenError, MachineError
from common.hardware.storage import StorageFacts
from services.reconciler.passes import AT_ONCE, Reconciler
from services.reconciler.schedule import ALONE_S, SILENCE_S, Schedule
from tests.builders import BOOT_ID
from tests.claim_bench import Bench, record
from tests.unit.claims.shapes import ADAPTER, GPU, adapter, graphics_card, undriven


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def rewrites(bench: Bench) -> dict[str, float]:
    """Specs written so far, by reason."""
    samples = next(iter(bench.metrics.rewrites.collect())).samples
    return {one.labels["reason"]: one.value for one in samples if one.name.endswith("_total") and one.value}


def backstop_repairs(bench: Bench) -> float:
    return next(iter(bench.metrics.backstop_repairs.collect())).samples[0].value


def left_undone(bench: Bench) -> bool:
    return bench.reconciler.failed


def test_a_pass_that_finds_everything_right_writes_nothing(bench: Bench) -> None:
    adapter(bench.machine)
    graphics_card(bench.machine)
    bench.take(ADAPTER, GPU, f"{GPU}-display")
    before = bench.files()
    for _ in range(3):
        assert set(bench.reconcile(backstop=True).values()) == {"present"}
    assert bench.files() == before
    assert rewrites(bench) == {}


def test_a_second_pass_after_a_change_writes_nothing(bench: Bench) -> None:
    device = adapter(bench.machine)
    bench.take(ADAPTER)
    bench.machine.remove(device)
    bench.reconcile()
    before = bench.files()
    bench.reconcile()
    assert bench.files() == before
    assert rewrites(bench) == {"absent": 1}


def test_specs_that_vanished_are_back_after_one_pass(bench: Bench) -> None:
    """D1, D2: a folder emptied under a driver that runs or restarts."""
    adapter(bench.machine)
    claim = bench.take(ADAPTER)
    paths = bench.paths(claim)
    for path in bench.cdi.iterdir():
        path.unlink()
    bench.cdi.rmdir()
    bench.restart()
    assert bench.reconcile() == {ADAPTER: "present"}
    assert bench.paths(claim) == paths
    assert rewrites(bench) == {"vanished": 1}


def test_a_spec_that_somebody_altered_is_right_again_after_one_pass(bench: Bench) -> None:
    adapter(bench.machine)
    claim = bench.take(ADAPTER)
    paths = bench.paths(claim)
    bench.specs.path(claim.uid).write_text("{}")
    bench.reconcile(backstop=True)
    assert bench.paths(claim) == paths
    assert backstop_repairs(bench) == 1


def held_by_a_program(bench: Bench) -> str:
    """A claimed adapter whose interface a program has taken from its driver; returns the interface."""
    interface = f"{adapter(bench.machine)}/1-1:1.0"
    bench.take(ADAPTER)
    bench.machine.remove(f"{interface}/tty/ttyUSB0")
    bench.machine.bind(interface, "usbfs")
    assert bench.reconcile() == {ADAPTER: "present"}
    return interface


def test_a_program_that_takes_or_lets_go_of_an_interface_is_no_lost_event(bench: Bench) -> None:
    """The kernel suppresses the events of usbfs: drivers/usb/core/devio.c."""
    interface = held_by_a_program(bench)
    bench.machine.unbind(interface)
    assert bench.reconcile(backstop=True) == {ADAPTER: "changed"}
    assert rewrites(bench) == {"renumbered": 1, "changed": 1}
    bench.machine.bind(interface, "usbfs")
    assert bench.reconcile(backstop=True) == {ADAPTER: "present"}
    assert backstop_repairs(bench) == 0


def test_an_interface_that_was_unplugged_unnoticed_is_a_lost_event(bench: Bench) -> None:
    interface = held_by_a_program(bench)
    bench.machine.remove(interface.rpartition("/")[0])
    assert bench.reconcile(backstop=True) == {ADAPTER: "absent"}
    assert backstop_repairs(bench) == 1


def test_a_driver_that_went_unnoticed_is_a_lost_event(bench: Bench) -> None:
    interface = f"{adapter(bench.machine)}/1-1:1.0"
    bench.take(ADAPTER)
    bench.machine.remove(f"{interface}/tty")
    bench.machine.unbind(interface)
    assert bench.reconcile(backstop=True) == {ADAPTER: "changed"}
    assert backstop_repairs(bench) == 1


def test_a_driver_that_took_a_whole_device_unnoticed_is_a_lost_event(bench: Bench) -> None:
    interface = f"{undriven(bench.machine, '1-2')}/1-2:1.0"
    bench.take("usb-1-2")
    bench.machine.bind(interface, "ch341")
    assert bench.reconcile(backstop=True) == {"usb-1-2": "changed"}
    assert backstop_repairs(bench) == 1


def test_specs_without_a_record_go_and_files_of_others_stay(bench: Bench) -> None:
    adapter(bench.machine)
    bench.take(ADAPTER)
    others = ["display.liken.sh-device_x.json", f"display.liken.sh-device_{uuid.uuid4()}.json", "gpu.yaml"]
    for name in [*others, f"liken.sh-device_{uuid.uuid4()}.json", "liken.sh-device_odd.json"]:
        (bench.cdi / name).write_text("{}")
    (bench.plugin_dir / "claims" / BOOT_ID / "notes.txt").write_text("keep me")
    bench.reconcile()
    names = {path.name for path in bench.cdi.iterdir()}
    assert names == {*others, *(f"liken.sh-device_{uid}.json" for uid in bench.store.uids())}
    assert (bench.plugin_dir / "claims" / BOOT_ID / "notes.txt").read_text() == "keep me"
    assert rewrites(bench) == {"orphan": 2}


def test_a_broken_record_is_set_aside_once_and_disturbs_no_other(bench: Bench) -> None:
    first = adapter(bench.machine)
    adapter(bench.machine, "1-4", "ttyUSB1")
    broken, whole = bench.take(ADAPTER), bench.take("usb-1-4-1-0")
    (bench.plugin_dir / "claims" / BOOT_ID / f"{broken.uid}.json").write_bytes(b'{"schema": 1, "na')
    bench.machine.remove(f"{first.rpartition('/')[0]}/1-4")
    assert bench.reconcile() == {ADAPTER: "unknown", "usb-1-4-1-0": "absent"}
    assert bench.paths(broken) == {ADAPTER: [f"/dev/liken.sh/withheld/{ADAPTER}"]}
    assert bench.reconcile() == {ADAPTER: "unknown", "usb-1-4-1-0": "absent"}
    assert rewrites(bench) == {"broken": 1, "absent": 1}
    assert bench.paths(whole) == {"usb-1-4-1-0": ["/dev/liken.sh/absent/usb-1-4-1-0"]}


def test_a_record_set_aside_never_gives_the_node_of_another_device(bench: Bench) -> None:
    """The kernel gives ttyUSB0 to the next adapter; nobody could tell whose the old spec means."""
    first = adapter(bench.machine)
    broken = bench.take(ADAPTER)
    (bench.plugin_dir / "claims" / BOOT_ID / f"{broken.uid}.json").write_bytes(b"{")
    bench.reconcile()
    bench.machine.remove(first)
    adapter(bench.machine, "1-4", "ttyUSB0")
    bench.reconcile()
    assert bench.paths(broken) == {ADAPTER: [f"/dev/liken.sh/withheld/{ADAPTER}"]}
    files = bench.files()
    bench.reconcile()
    assert bench.files() == files
    bench.unprepare(broken)
    assert bench.files() == {}


@pytest.mark.parametrize("name", ["..", "../../sda", "a/b", "A"])
def test_a_name_in_a_spec_that_is_no_device_becomes_no_path(bench: Bench, name: str) -> None:
    adapter(bench.machine)
    claim = bench.take(ADAPTER)
    (bench.plugin_dir / "claims" / BOOT_ID / f"{claim.uid}.json").write_bytes(b"{")
    spec = bench.specs.path(claim.uid)
    spec.write_text(spec.read_text().replace(ADAPTER, name))
    bench.reconcile()
    assert "withheld" not in spec.read_text()


def test_what_is_no_file_in_a_records_place_disturbs_nobody(bench: Bench) -> None:
    place = adapter(bench.machine)
    adapter(bench.machine, "1-4", "ttyUSB1")
    whole, other = bench.take(ADAPTER), bench.claim("usb-1-4-1-0")
    folder = bench.plugin_dir / "claims" / BOOT_ID
    (folder / f"{other.uid}.json").mkdir()
    os.mkfifo(folder / f"{uuid.uuid4()}.json")
    bench.machine.remove(place)
    assert bench.reconcile() == {ADAPTER: "absent"}
    with pytest.raises(MachineError, match="cannot write"):
        bench.prepare(other)
    bench.unprepare(other)
    bench.unprepare(whole)
    assert bench.reconcile() == {}


def test_a_record_that_the_disk_does_not_give_keeps_its_spec_and_its_device(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = adapter(bench.machine)
    adapter(bench.machine, "1-4", "ttyUSB1")
    bad, good = bench.take("usb-1-4-1-0"), bench.take(ADAPTER)
    spec = bench.specs.path(bad.uid).read_bytes()
    bench.restart()
    real = os.open

    def open_(path: Any, *words: Any, **more: Any) -> int:
        if str(path).endswith(f"/{bad.uid}.json"):
            raise OSError(errno.EIO, "Input/output error")
        return real(path, *words, **more)

    monkeypatch.setattr(os, "open", open_)
    bench.machine.remove(place)
    assert bench.reconcile() == {"usb-1-4-1-0": "unknown", ADAPTER: "absent"}
    assert bench.specs.path(bad.uid).read_bytes() == spec
    with pytest.raises(LikenError, match="still held"):
        bench.take("usb-1-4-1-0")
    with pytest.raises(MachineError, match="does not give the record"):
        bench.prepare(bad)
    bench.unprepare(bad)
    bench.unprepare(good)
    assert bench.store.uids() == []


def test_one_that_stands_by_tells_the_states_and_writes_nothing(bench: Bench) -> None:
    device = adapter(bench.machine)
    bench.take(ADAPTER)
    bench.machine.remove(device)
    before = bench.files()
    assert bench.reconcile(write=False) == {ADAPTER: "absent"}
    assert bench.files() == before


def test_a_pass_reads_the_storage_facts_once_whatever_the_number_of_claims(bench: Bench) -> None:
    reads: list[int] = []
    facts = bench.slots.facts

    def counted() -> StorageFacts:
        reads.append(1)
        return facts()

    for number in range(1, 7):
        device = bench.machine.usb(f"1-{number}")
        interface = bench.machine.interface(device, 0, driver="usb-storage", usb_class="08")
        bench.machine.scsi_disk(interface, f"sd{'abcdef'[number - 1]}", host=number)
        bench.take(f"usb-1-{number}-1-0")
    bench.slots.facts = counted  # type: ignore[method-assign]
    assert set(bench.reconcile().values()) == {"present"}
    assert reads == [1]


def test_what_is_gone_is_safe_before_anything_else_is_looked_at(bench: Bench) -> None:
    """R16: a departure is known from the bus folder alone."""
    device = undriven(bench.machine, "1-9")
    for number in range(1, 9):
        adapter(bench.machine, f"1-{number}", f"ttyUSB{number}")
    claims = [bench.take(f"usb-1-{number}-1-0") for number in range(1, 9)]
    gone = bench.take("usb-1-9")
    order: list[str] = []
    inspect = bench.slots.inspect

    def watched(bus: str, address: str, facts: StorageFacts | None = None):  # type: ignore[no-untyped-def]
        order.append(address)
        return inspect(bus, address, facts)

    bench.slots.inspect = watched  # type: ignore[method-assign]
    bench.machine.remove(device)
    bench.reconcile()
    assert order[0] == "1-9"
    assert bench.paths(gone) == {"usb-1-9": ["/dev/liken.sh/absent/usb-1-9"]}
    assert len(claims) == 8


def test_a_claim_that_cannot_be_written_disturbs_no_other_and_is_tried_again(bench: Bench) -> None:
    first = adapter(bench.machine)
    second = adapter(bench.machine, "1-4", "ttyUSB1")
    bad, good = bench.take(ADAPTER), bench.take("usb-1-4-1-0")
    path = bench.specs.path(bad.uid)
    path.unlink()
    path.mkdir()  # nothing can be renamed over a folder
    bench.machine.remove(first)
    bench.machine.remove(second)
    bench.reconcile()
    assert left_undone(bench)
    assert bench.paths(good) == {"usb-1-4-1-0": ["/dev/liken.sh/absent/usb-1-4-1-0"]}
    path.rmdir()
    bench.reconcile()
    assert not left_undone(bench)
    assert bench.paths(bad) == {ADAPTER: [f"/dev/liken.sh/absent/{ADAPTER}"]}


def test_of_many_claims_without_hardware_the_first_are_safe_before_the_last_are_looked_at(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = [adapter(bench.machine, f"1-{number}", f"ttyUSB{number}") for number in range(1, 11)]
    claims = {number: bench.take(f"usb-1-{number}-1-0") for number in range(1, 11)}
    for place in places:
        bench.machine.remove(place)
    compare, safe_at = bench.projector.compare, list[int]()

    def counting(*words: Any) -> Any:
        safe = [
            path for claim in claims.values() for path in bench.paths(claim).values() if "absent" in path[0]
        ]
        safe_at.append(len(safe))
        return compare(*words)

    monkeypatch.setattr(bench.projector, "compare", counting)
    bench.reconcile()
    assert safe_at == AT_ONCE * [0] + 2 * [AT_ONCE]
    assert all("absent" in path[0] for claim in claims.values() for path in bench.paths(claim).values())


def test_a_claim_that_cannot_be_written_is_told_once_while_it_lasts_and_again_when_it_returns(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    adapter(bench.machine)
    path = bench.specs.path(bench.take(ADAPTER).uid)
    for told in (1, 2):
        path.unlink()
        path.mkdir()
        bench.reconcile()
        bench.reconcile()
        assert sum("cannot read" in one.getMessage() for one in caplog.records) == told
        path.rmdir()
        bench.reconcile()


def test_a_claim_whose_spec_cannot_be_read_is_told_as_unknown_and_never_forgotten(bench: Bench) -> None:
    adapter(bench.machine)
    claim = bench.take(ADAPTER)
    path = bench.specs.path(claim.uid)
    path.unlink()
    path.mkdir()
    bench.restart()
    presence = bench.reconciler.run(write=True)
    (told,) = presence.claims
    assert (told.namespace, told.name, told.uid) == claim
    (device,) = told.devices
    assert (device.state, bool(device.since)) == ("unknown", True)
    assert "cannot read" in device.reason


def test_while_the_records_cannot_be_listed_all_that_was_prepared_is_unknown(bench: Bench) -> None:
    adapter(bench.machine)
    bench.take(ADAPTER)
    assert bench.reconciler.blind("why") is None
    assert bench.reconcile() == {ADAPTER: "present"}
    told = bench.reconciler.blind("why")
    assert told is not None
    assert [(one.state, one.reason) for claim in told.claims for one in claim.devices] == [("unknown", "why")]
    assert bench.reconciler.blind("why") == told
    assert bench.reconcile() == {ADAPTER: "present"}


def test_a_lock_that_somebody_keeps_costs_one_wait_and_not_one_per_claim(bench: Bench) -> None:
    for number in range(1, 6):
        adapter(bench.machine, f"1-{number}", f"ttyUSB{number}")
    for number in range(1, 6):
        bench.take(f"usb-1-{number}-1-0")
    bench.machine.remove("sys/devices/pci0000:00/0000:00:14.0/usb1")
    bench.reconciler = Reconciler(bench.prepared, bench.metrics, lock_s=0.3)
    before = bench.files()
    with bench.store.lock(1.0):
        begin = time.monotonic()
        assert list(bench.reconcile().values()) == ["absent"] * 5
        assert time.monotonic() - begin < 1.0
    assert bench.files() == before
    assert left_undone(bench)
    bench.reconcile()
    assert not left_undone(bench)
    assert bench.files() != before


def test_a_state_keeps_the_moment_at_which_it_began(bench: Bench) -> None:
    times = iter([1000.0, 2000.0, 3000.0, 4000.0, 5000.0])
    device = adapter(bench.machine)
    bench.take(ADAPTER)
    bench.reconciler = Reconciler(bench.prepared, bench.metrics, now=lambda: next(times))
    bench.reconciler.run(write=True)
    bench.machine.remove(device)

    def since() -> str:
        return bench.reconciler.run(write=True).claims[0].devices[0].since

    first = since()
    assert first.startswith("1970-01-01T00:")
    assert since() == first
    adapter(bench.machine)
    assert since() != first


def test_a_record_whose_hardware_was_never_there_is_absent(bench: Bench) -> None:
    uid = str(uuid.uuid4())
    bench.store.write(record(uid, Result("r", "n1", "usb-7-7", "usb", "7-7")))
    assert bench.reconcile() == {"usb-7-7": "absent"}


# -- the schedule


def test_the_first_pass_is_due_at_once() -> None:
    schedule = Schedule(30.0, now=0.0)
    assert schedule.due_in(0.0) == 0.0
    assert schedule.due(0.0) == "start"


def test_without_events_a_pass_comes_at_the_backstop() -> None:
    schedule = Schedule(30.0, now=0.0)
    schedule.watcher(connected=True)
    schedule.inventory(0.0)
    schedule.passed(10.0, undone=False)
    assert schedule.due_in(10.0) == 30.0
    assert schedule.due(39.9) is None
    assert schedule.due(40.0) == "backstop"


def test_without_a_watcher_a_pass_comes_every_second() -> None:
    schedule = Schedule(30.0, now=0.0)
    schedule.passed(10.0, undone=False)
    assert schedule.due_in(10.0) == ALONE_S
    assert schedule.due(11.0) == "alone"
    schedule.watcher(connected=True)
    assert schedule.due(11.0) is None


def test_a_connected_watcher_that_says_nothing_counts_as_away() -> None:
    schedule = Schedule(30.0, now=0.0)
    schedule.watcher(connected=True)
    schedule.inventory(0.0)
    schedule.passed(SILENCE_S - 2.0, undone=False)
    assert schedule.due(SILENCE_S - 1.0) is None
    assert schedule.due_in(SILENCE_S - 1.0) == 1.0
    assert schedule.due(SILENCE_S) == "alone"
    schedule.passed(SILENCE_S, undone=False)
    assert schedule.due_in(SILENCE_S) == ALONE_S
    schedule.inventory(SILENCE_S + 0.5)
    assert schedule.due_in(SILENCE_S + 0.5) > ALONE_S


def test_what_was_left_undone_is_tried_again_soon() -> None:
    schedule = Schedule(30.0, now=0.0)
    schedule.watcher(connected=True)
    schedule.inventory(0.0)
    schedule.passed(10.0, undone=True)
    assert schedule.due(11.0) == "retry"


def test_a_spec_that_cannot_be_written_is_told_with_namespace_name_and_uid_of_its_claim(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    place = adapter(bench.machine)
    claim = bench.take(ADAPTER)
    bench.machine.remove(place)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))  # a disk without room
    try:
        bench.reconcile()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    (told,) = [one for one in caplog.records if "cannot write" in one.getMessage()]
    fields = told.__dict__["liken_fields"]
    assert fields == {"namespace": claim.namespace, "claim": claim.name, "uid": claim.uid}
    assert bench.paths(claim) == {}
    bench.reconcile()
    assert bench.paths(claim) == {ADAPTER: [f"/dev/liken.sh/absent/{ADAPTER}"]}
