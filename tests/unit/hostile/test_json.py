"""JSON that others wrote: messages on the bus, records and specs found on disk."""

import json
import os
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.bus import decode, encode
from common.cdi import Specs
from common.claims import MAX_BYTES, Record, Result, Store
from common.errors import MachineError
from common.hardware.machine import Machine
from common.inventory import (
    SCHEMA,
    ClaimPresence,
    Device,
    DeviceNode,
    DevicePresence,
    Facts,
    Inventory,
    InventoryMessage,
    Presence,
)
from common.prepared import Prepared, look
from common.projection import Projector
from common.slots import SysfsSlots
from tests.builders import BOOT_ID, MachineBuilder
from tests.unit.hostile.bounds import any_folder, bounded, is_one_line, outcome
from tests.unit.hostile.texts import damaged

UID = "0a1b2c3d-0000-4000-8000-000000000001"
DRIVER = "liken.sh"
NEST = 200_000
DEVICE = Device(
    "usb-1-1-1-0",
    "usb",
    "1-1:1.0",
    "",
    ("tty",),
    False,
    (DeviceNode("/dev/ttyUSB0", "tty"),),
    {"bus": {"string": "usb"}},
)
INVENTORY = encode(
    InventoryMessage(SCHEMA, Inventory(SCHEMA, "n1", "b", "t", Facts("observed"), (DEVICE,)), stirred=1.5)
)
PRESENCE = encode(
    Presence(SCHEMA, "b", (ClaimPresence("ns", "c", UID, (DevicePresence("n1", "d", "present", "t", ""),)),))
)
RECORD = msgspec.json.encode(
    Record(SCHEMA, "ns", "c", UID, (Result("r", "n1", "usb-1-1-1-0", "usb", "1-1:1.0", kinds=("tty",)),))
)
SPEC = Specs(Path("/x"), DRIVER).render(UID, {"usb-1-1-1-0": (DeviceNode("/dev/ttyUSB0", "tty"),)})
NESTED = [
    b'{"schema":1,"later":' + b"[" * NEST + b"]" * NEST + b"}",
    b'{"schema":1,"inventory":' + b'{"a":' * NEST,
    b"[" * NEST,
]


@given(payload=damaged(INVENTORY, PRESENCE), kind=st.sampled_from([InventoryMessage, Presence]))
def test_any_message_is_one_of_ours_or_an_error_in_one_line(
    payload: bytes, kind: type[InventoryMessage] | type[Presence]
) -> None:
    found = outcome(lambda: decode("inventory", payload, kind), MachineError)
    assert isinstance(found, kind | MachineError)
    assert is_one_line(found)


@pytest.mark.parametrize("payload", NESTED, ids=["unknown field", "known field", "no object"])
def test_a_message_nested_without_end_is_refused(payload: bytes) -> None:
    with bounded(8), pytest.raises(MachineError, match="cannot be read"):
        decode("inventory", payload, InventoryMessage)


class Disk:
    """The two folders with one record and one spec of any content, and a machine without that hardware."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = Store(folder / "plugin", BOOT_ID)
        self.store.make_folders()
        self.specs = Specs(folder / "cdi", DRIVER)
        self.specs.make_folder()
        machine = MachineBuilder(folder / "root")
        (folder / "root/sys/bus/usb/devices").mkdir(parents=True, exist_ok=True)
        slots = SysfsSlots(machine.tree(), Machine())
        self.prepared = Prepared(self.store, self.specs, slots, Projector(self.store, self.specs, slots))

    def put(self, record: bytes | None, spec: bytes | None) -> None:
        for path, content in ((self.record_path, record), (self.specs.path(UID), spec)):
            path.unlink(missing_ok=True)
            if content is not None:
                path.write_bytes(content)
        for path in self.record_path.parent.glob("*.broken"):
            path.unlink()

    @property
    def record_path(self) -> Path:
        return self.folder / "plugin/claims" / BOOT_ID / f"{UID}.json"

    def files(self) -> set[str]:
        found = [Path(folder, name) for folder, _, names in os.walk(self.folder) for name in names]
        return {str(path.relative_to(self.folder)) for path in found}

    def project(self) -> None:
        with self.store.lock(5):
            self.prepared.projector.project(UID)


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path)


@any_folder
@given(record=st.none() | damaged(RECORD), spec=st.none() | damaged(SPEC))
def test_any_record_and_spec_are_read_told_and_projected_inside_the_two_folders(
    disk: Disk, record: bytes | None, spec: bytes | None
) -> None:
    disk.put(record, spec)
    before = disk.files()
    entries = disk.store.entries()
    assert len(entries) == (record is not None)
    assert [entry.form == "readable" for entry in entries] == [_sound(record)] * len(entries)
    assert disk.store.read(UID) == (entries[0] if entries else None)
    assert len(look(disk.prepared)) == (record is not None)
    disk.project()
    disk.project()
    own = f"cdi/{DRIVER}-device_{UID}.json"
    aside = f"plugin/claims/{BOOT_ID}/{UID}.broken"
    assert disk.files() - before <= {own, aside, "plugin/claims.lock", "plugin/claims.lock.turn"}
    if _sound(record):
        names = [one["name"] for one in json.loads(disk.specs.path(UID).read_bytes())["devices"]]
        assert all(name.startswith(f"{UID}-") for name in names)


def _sound(record: bytes | None) -> bool:
    try:
        return record is not None and msgspec.json.decode(record, type=Record).uid == UID and _read(record)
    except msgspec.DecodeError:
        return False


def _read(record: bytes) -> bool:
    read = json.loads(record.decode(errors="replace"))  # names that nobody asks for may be no text at all
    results = read["results"]
    return bool(results) and read["schema"] <= SCHEMA and all(_names(one) for one in results)


def _names(result: dict[str, str]) -> bool:
    words = (result["bus"], result["address"])
    label = result["device"]
    signs = set(label) <= set("abcdefghijklmnopqrstuvwxyz0123456789-") and 0 < len(label) <= 63
    return (
        signs
        and not label.startswith("-")
        and not label.endswith("-")
        and not any(word in ("", ".", "..") or "/" in word or "\0" in word for word in words)
    )


@pytest.mark.parametrize("content", NESTED, ids=["unknown field", "known field", "no object"])
def test_a_record_and_a_spec_nested_without_end_are_no_record_and_no_spec(disk: Disk, content: bytes) -> None:
    disk.put(content, content)
    with bounded(16):
        assert [entry.form for entry in disk.store.entries()] == ["broken"]
        assert disk.specs.nodes(UID) == {}


def test_of_a_file_of_100_mb_no_more_is_read_than_a_record_can_have(disk: Disk) -> None:
    disk.put(b"", b"")
    for path in (disk.record_path, disk.specs.path(UID)):
        with path.open("wb") as file:
            file.truncate(100 * MAX_BYTES)
    with bounded(16):
        assert [entry.form for entry in disk.store.entries()] == ["broken"]
        assert disk.specs.nodes(UID) == {}
