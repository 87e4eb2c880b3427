"""The records of prepared claims as files."""

import json
import threading
import uuid
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.claims import NO_BOOT, Entry, Result, Store, is_uid
from common.errors import MachineError
from common.locks import FileLock, LifeLock, LockTimeoutError
from tests.builders import BOOT_ID
from tests.claim_bench import record

UID = "0a1b2c3d-0000-4000-8000-000000000001"
OTHER = "0a1b2c3d-0000-4000-8000-000000000002"
OLD_BOOT = "11111111-2222-4333-8444-555555555555"
TTY = Result("r", "n1", "usb-1-1-1-0", "usb", "1-1:1.0", "0000:00:14.0/usb2/1:1.0", kinds=("tty",))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path, BOOT_ID)
    store.make_folders()
    return store


def file_of(tmp_path: Path, uid: str = UID) -> Path:
    return tmp_path / "claims" / BOOT_ID / f"{uid}.json"


def test_a_record_reads_as_it_was_written(store: Store) -> None:
    written = record(UID, TTY)
    store.write(written)
    assert store.read(UID) == Entry(UID, "readable", written)


def test_a_record_holds_no_path_and_no_number_of_the_kernel(store: Store, tmp_path: Path) -> None:
    """R12: what the kernel may give away is not promised."""
    store.write(record(UID, TTY))
    told = json.loads(file_of(tmp_path).read_text())["results"][0]
    assert set(told) == {"request", "pool", "device", "bus", "address", "physicalPath", "kinds"}
    assert "/dev/" not in file_of(tmp_path).read_text()


def test_a_replaced_record_is_read_anew(store: Store) -> None:
    store.write(record(UID, TTY))
    store.read(UID)
    store.write(record(UID, TTY, name="other"))
    entry = store.read(UID)
    assert entry is not None
    assert entry.record == record(UID, TTY, name="other")


def test_a_removed_record_is_gone(store: Store) -> None:
    store.write(record(UID, TTY))
    store.read(UID)
    store.remove(UID)
    store.remove(UID)
    assert store.read(UID) is None
    assert store.uids() == []


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b'{"schema": 1}',
        b"\xff\xfe",
        b'{"schema": "one"}',
        json.dumps({"schema": 1, "namespace": "d", "name": "c", "uid": UID, "results": []}).encode(),
        json.dumps({"schema": 1, "namespace": "d", "name": "c", "uid": OTHER, "results": [{}]}).encode(),
        json.dumps(
            {
                "schema": 1,
                "namespace": "d",
                "name": "c",
                "uid": UID,
                "results": [
                    {"request": "r", "pool": "p", "device": "../x", "bus": "usb", "address": "1-1"},
                ],
            }
        ).encode(),
        json.dumps(
            {
                "schema": 1,
                "namespace": "d",
                "name": "c",
                "uid": UID,
                "results": [
                    {"request": "r", "pool": "p", "device": "x", "bus": "usb", "address": "../../etc"},
                ],
            }
        ).encode(),
    ],
)
def test_what_is_no_record_is_broken_and_disturbs_no_other(
    store: Store, tmp_path: Path, content: bytes
) -> None:
    store.write(record(OTHER, TTY))
    file_of(tmp_path).write_bytes(content)
    forms = {entry.uid: entry.form for entry in store.entries()}
    assert forms == {UID: "broken", OTHER: "readable"}


def test_a_record_of_a_newer_schema_is_newer_whatever_else_it_says(store: Store, tmp_path: Path) -> None:
    file_of(tmp_path).write_text('{"schema": 2, "everything": "different"}')
    assert store.read(UID) == Entry(UID, "newer")


def test_a_record_set_aside_of_which_nobody_can_tell_is_told_in_words(store: Store, tmp_path: Path) -> None:
    aside = file_of(tmp_path).with_suffix(".broken")
    aside.symlink_to(aside.name)
    with pytest.raises(MachineError, match=r"cannot read .*\.broken"):
        store.read(UID)


def test_a_record_set_aside_still_counts_until_it_is_written_anew(store: Store, tmp_path: Path) -> None:
    file_of(tmp_path).write_bytes(b"{")
    assert store.set_aside(UID)
    assert not store.set_aside(UID)
    assert [entry.form for entry in store.entries()] == ["aside"]
    store.write(record(UID, TTY))
    assert [entry.form for entry in store.entries()] == ["readable"]
    assert sorted(path.name for path in file_of(tmp_path).parent.iterdir()) == [f"{UID}.json"]


def test_files_of_others_in_the_folder_are_no_records(store: Store, tmp_path: Path) -> None:
    for name in ("README", "x.json", f"{UID}.txt", f".{UID}.json", f"{UID.upper()}.json"):
        (file_of(tmp_path).parent / name).write_text("hello")
    assert store.uids() == []


def test_a_folder_that_cannot_be_read_is_no_empty_folder(store: Store, tmp_path: Path) -> None:
    folder = file_of(tmp_path).parent
    folder.rmdir()
    folder.write_text("not a folder")
    with pytest.raises(MachineError):
        store.uids()


def test_a_sweep_goes_on_past_what_it_cannot_remove_and_leaves_folders(store: Store, tmp_path: Path) -> None:
    folder = file_of(tmp_path).parent
    (folder / ".liken-a").mkdir()
    (folder / ".liken-b").write_text("")
    assert store.sweep() == 1
    assert [path.name for path in folder.iterdir()] == [".liken-a"]


def test_only_other_boots_are_removed(store: Store, tmp_path: Path) -> None:
    """D3: leftovers of an earlier boot block nobody."""
    store.write(record(UID, TTY))
    earlier = Store(tmp_path, OLD_BOOT)
    earlier.write(record(OTHER, TTY))
    (tmp_path / "claims" / "notes").mkdir()
    assert store.other_boots() == {OLD_BOOT: [OTHER]}
    store.remove_boot(OLD_BOOT)
    assert store.other_boots() == {}
    assert store.uids() == [UID]
    assert (tmp_path / "claims" / "notes").is_dir()


def test_a_machine_that_tells_no_boot_has_records_too(tmp_path: Path) -> None:
    store = Store(tmp_path, "")
    store.write(record(UID, TTY))
    assert (tmp_path / "claims" / NO_BOOT / f"{UID}.json").is_file()


@settings(deadline=None)
@given(st.text(max_size=60) | st.from_regex(r"[0-9a-fA-F/.-]{36}", fullmatch=True))
def test_what_could_leave_the_folder_never_becomes_a_path(text: str) -> None:
    store = Store(Path("/nonexistent"), BOOT_ID)
    if is_uid(text):
        assert set(text) <= set("0123456789abcdef-")
    else:
        with pytest.raises(ValueError, match="not a UUID"):
            store.read(text)


@settings(deadline=None)
@given(st.uuids())
def test_every_uuid_is_one(uid: uuid.UUID) -> None:
    assert is_uid(str(uid))
    assert not is_uid(str(uid).replace("-", ""))


def test_the_lock_lets_one_in_and_tells_the_others_when_time_is_up(tmp_path: Path) -> None:
    here, there = FileLock(tmp_path / "lock"), FileLock(tmp_path / "lock")
    with here.held(1.0) as waited_s:
        assert waited_s < 1.0
        with pytest.raises(LockTimeoutError, match="held by another"), there.held(0.05):
            pass
        with pytest.raises(LockTimeoutError), here.held(0.05):
            pass
    with there.held(1.0):
        pass


def test_who_is_cancelled_stops_waiting_for_the_lock(tmp_path: Path) -> None:
    lock = FileLock(tmp_path / "lock")
    cancelled = threading.Event()
    ended = threading.Event()

    def wait() -> None:
        with (
            pytest.raises(LockTimeoutError, match="cancelled"),
            FileLock(tmp_path / "lock").held(60, cancelled),
        ):
            pass
        ended.set()

    with lock.held(1.0):
        threading.Thread(target=wait, daemon=True).start()
        cancelled.set()
        assert ended.wait(5)


def test_a_lock_file_that_somebody_removes_does_not_let_two_in(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    first, second = LifeLock(path), LifeLock(path)
    assert first.try_take()
    path.unlink()
    # the file is another one now: whoever comes later agrees on that
    assert second.try_take()
    assert not LifeLock(path).try_take()


def test_the_active_lock_belongs_to_one_until_it_lets_go(tmp_path: Path) -> None:
    first, second = LifeLock(tmp_path / "lock"), LifeLock(tmp_path / "lock")
    assert first.try_take()
    assert first.try_take()
    assert not second.try_take()
    first.release()
    assert second.try_take()
