"""Recorded machines that are played: all their USB devices go and come, and nothing else changes."""

from pathlib import Path

import pytest

from common.hardware.machine import Machine
from common.hardware.tree import Tree
from common.hardware.walk import walk
from common.inventory import Device
from services.console.machine import lay_out
from services.console.play import Player
from tests.machines.product import TAKEN
from tests.machines.recording import MACHINES, shared

pytestmark = pytest.mark.skipif(
    not shared(), reason="no recorded machines: set LIKEN_MACHINES to their folder"
)

DOCKED = MACHINES / "laptop-docked-wwan.tar.xz"  # hubs in hubs, a modem with 11 interfaces, disks, a radio


def seen(root: Path) -> dict[str, Device]:
    return {device.name: device for device in walk(Tree(root), Machine(), "n1", TAKEN).devices}


def dangling(root: Path) -> set[Path]:
    return {path for path in root.glob("sys/**/*") if path.is_symlink() and not path.exists()}


def usb_devices(root: Path) -> list[str]:
    names = (path.name for path in (root / "sys/bus/usb/devices").iterdir())
    return sorted(name for name in names if ":" not in name and not name.startswith("usb"))


def test_every_usb_device_can_be_unplugged_and_comes_back_under_its_name(tmp_path: Path) -> None:
    lay_out(DOCKED, tmp_path / "m")
    player = Player(tmp_path / "m", tmp_path / "run")
    before, broken = seen(tmp_path / "m"), dangling(tmp_path / "m")
    for address in usb_devices(tmp_path / "m"):
        player.unplug(address)
        gone = before.keys() - seen(tmp_path / "m").keys()
        assert all(name.startswith("usb-") for name in gone)
        player.plug(address)
    after = seen(tmp_path / "m")
    assert after.keys() == before.keys()
    assert dangling(tmp_path / "m") == broken
    for name, device in before.items():
        assert after[name].kinds == device.kinds
        assert after[name].attributes == device.attributes
        assert (after[name].nodes == device.nodes) is (device.bus != "usb")
