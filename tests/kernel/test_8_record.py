"""`liken record` in the guest: the recording offers elsewhere what the guest offers, without serials."""

import base64
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from common.hardware.machine import Machine
from common.hardware.tree import open_tree
from common.hardware.walk import walk
from tests.kernel.conftest import Tell
from tests.kernel.machine import Guest
from tests.kernel.product import LIKEN, Product

FILE = "/run/machine.tar.xz"
SERIALS = ("FT0001", "STICK0001", "NVME0001", "PAIR0001")  # the last one twice: two controllers of one disk


@pytest.fixture(scope="module")
def recording(guest: Guest, product: Product, tmp_path_factory: pytest.TempPathFactory, tell: Tell) -> Path:
    guest.run(LIKEN, "record", FILE)
    copy = tmp_path_factory.mktemp("recording") / "machine.tar.xz"
    copy.write_bytes(base64.b64decode(guest.run("base64", FILE)))
    tell(f"the recording has {copy.stat().st_size} bytes")
    return copy


def comparable(inventory: dict[str, Any]) -> dict[str, Any]:
    """Without what may differ: serial numbers, boot and time."""
    devices = [
        {
            **device,
            "attributes": {key: value for key, value in device["attributes"].items() if key != "serial"},
        }
        for device in inventory["devices"]
    ]
    return {**inventory, "devices": devices, "boot": "", "taken": ""}


def test_the_recording_offers_what_the_machine_offers(recording: Path, product: Product) -> None:
    with open_tree(recording) as tree:
        recorded = json.loads(msgspec.json.encode(walk(tree, Machine(), "guest", "")))
    assert comparable(recorded) == comparable(product.inventory())


def test_no_serial_number_is_in_the_recording(recording: Path) -> None:
    with open_tree(recording) as tree:
        found = [
            path
            for path in [*_files(tree), *_files(tree, "proc"), *_files(tree, "lib")]
            if any(form in (tree.read(path) or b"") for serial in SERIALS for form in forms(serial))
        ]
    assert found == []


def test_equal_serial_numbers_stay_equal_and_different_ones_different(
    recording: Path, guest: Guest, tell: Tell
) -> None:
    masks: dict[str, set[bytes | None]] = {}
    with open_tree(recording) as tree:
        paths = [path for path in _files(tree) if path.endswith("/serial")]
        for path in paths:
            masks.setdefault(guest.call("read", f"/{path}").strip(), set()).add(tree.read(path))
    tell(f"{len(paths)} serial numbers, {len(masks)} different ones: {', '.join(sorted(masks))}")
    assert len(paths) > len(masks) >= len(SERIALS)
    assert set(SERIALS) <= masks.keys()
    assert all(len(masked) == 1 for masked in masks.values())
    assert len({text for masked in masks.values() for text in masked}) == len(masks)


def forms(serial: str) -> tuple[bytes, ...]:
    """A serial number as text and as the hexadecimal digits that a wwid has of it."""
    return serial.encode(), serial.encode().hex().encode()


def _files(tree: Any, folder: str = "sys") -> list[str]:
    entries = tree.entries(folder)
    here = [f"{folder}/{name}" for name in sorted(entries.files)]
    return here + [path for name in entries.dirs for path in _files(tree, f"{folder}/{name}")]
