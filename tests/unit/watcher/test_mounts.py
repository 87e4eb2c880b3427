"""Which mounts say something about disks, and how a change is noticed on plain files."""

import select
from collections.abc import Iterator
from pathlib import Path

import pytest

from services.watcher.mounts import MountWatch, users_of_disks
from tests.waiting import eventually

ROOT = "22 1 8:2 / / rw,relatime shared:1 - ext4 /dev/sda2 rw\n"
POD = "300 22 0:51 / /run/containerd/x/rootfs rw,relatime - overlay overlay rw,lowerdir=/a:/b\n"
STICK = "301 22 8:17 / /mnt/a\\040b rw - vfat /dev/sdb1 rw\n"
BTRFS = "302 22 0:44 /@ /data rw shared:2 master:1 - btrfs /dev/sdc rw\n"
SWAPS = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"


def test_mounts_of_pods_say_nothing_about_disks() -> None:
    assert users_of_disks(ROOT + POD + BTRFS) == {("8:2", "ext4", "/dev/sda2"), ("0:44", "btrfs", "/dev/sdc")}


def test_lines_that_are_no_mounts_are_left_out() -> None:
    assert users_of_disks("\nx\n - \n22 1 8:2 / / rw\n") == {("8:2", "", "")}


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    (tmp_path / "1").mkdir()
    (tmp_path / "1/mountinfo").write_text(ROOT)
    (tmp_path / "swaps").write_text(SWAPS)
    return tmp_path


@pytest.fixture
def watch(proc: Path) -> Iterator[MountWatch]:
    watch = MountWatch(proc)
    yield watch
    watch.close()


def noticed(watch: MountWatch) -> bool:
    return bool(select.select([watch], [], [], 0)[0]) and watch.changed()


def test_a_disk_that_is_mounted_is_noticed(proc: Path, watch: MountWatch) -> None:
    (proc / "1/mountinfo").write_text(ROOT + STICK)
    assert eventually(lambda: noticed(watch), 2, "the mount is noticed")


def test_a_table_that_is_replaced_by_a_rename_is_noticed(proc: Path, watch: MountWatch) -> None:
    (proc / "1/new").write_text(ROOT + STICK)
    (proc / "1/new").rename(proc / "1/mountinfo")
    assert eventually(lambda: noticed(watch), 2, "the mount is noticed")


def test_a_new_swap_is_noticed_and_its_use_is_not(proc: Path, watch: MountWatch) -> None:
    (proc / "swaps").write_text(SWAPS + "/dev/sda3 partition 100 0 -2\n")
    assert eventually(lambda: noticed(watch), 2, "the swap is noticed")
    (proc / "swaps").write_text(SWAPS + "/dev/sda3 partition 100 77 -2\n")
    assert not noticed(watch)


def test_a_pods_mount_is_not_a_change(proc: Path, watch: MountWatch) -> None:
    (proc / "1/mountinfo").write_text(ROOT + POD)
    assert eventually(lambda: bool(select.select([watch], [], [], 0)[0]), 2, "the file is readable")
    assert not watch.changed()


def test_a_table_that_vanishes_is_a_change(proc: Path, watch: MountWatch) -> None:
    (proc / "1/mountinfo").unlink()
    assert eventually(lambda: noticed(watch), 2, "the loss is noticed")


def test_without_any_table_nothing_ever_changes(tmp_path: Path) -> None:
    watch = MountWatch(tmp_path / "missing")
    assert not select.select([watch], [], [], 0)[0]
    watch.close()
