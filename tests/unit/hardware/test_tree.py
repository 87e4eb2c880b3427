"""The tree: folders, recordings, and the difference between missing and unreadable."""

import os
import tarfile
from pathlib import Path

import pytest

from common.errors import RequestError
from common.hardware.machine import Machine
from common.hardware.tree import Tree, TreeError, open_tree
from common.hardware.walk import walk
from common.inventory import Inventory
from tests.builders import MachineBuilder
from tests.unit.hardware.ask import inventory

MODES = {".tar": "w", ".tar.gz": "w:gz", ".tgz": "w:gz", ".tar.bz2": "w:bz2", ".tar.xz": "w:xz"}


@pytest.fixture
def small(tmp_path: Path) -> MachineBuilder:
    """A machine with one of everything that a tree has to get right."""
    machine = MachineBuilder(tmp_path / "machine")
    machine.drm(machine.pci("0000:00:02.0", driver="i915"), card=0, render=128, connectors=["eDP-1"])
    device = machine.usb("1-4", serial="12²", name="Stick")
    machine.tty(machine.interface(device, 0, driver="ch341"), "ttyUSB0")
    machine.scsi_disk(machine.pci("0000:00:17.0", driver="ahci"), "sda", ["sda1"])
    return machine


def look(path: Path) -> Inventory:
    with open_tree(path) as tree:
        return walk(tree, Machine(), "n1", "2026-01-01T00:00:00Z")


@pytest.mark.parametrize("suffix", [".tar", ".tar.gz", ".tar.bz2", ".tar.xz"])
def test_a_recording_gives_what_its_folder_gives(small: MachineBuilder, tmp_path: Path, suffix: str) -> None:
    archive = tmp_path / f"machine{suffix}"
    with tarfile.open(archive, MODES[suffix]) as file:  # type: ignore[call-overload]
        file.add(small.root, ".")
    assert look(archive) == inventory(small) == look(small.root)


def test_an_archive_may_name_its_members_without_a_dot(small: MachineBuilder, tmp_path: Path) -> None:
    archive = tmp_path / "machine.tar"
    with tarfile.open(archive, "w") as file:
        for name in ("sys", "proc"):
            file.add(small.root / name, name)
    assert look(archive).devices == inventory(small).devices


def test_a_corrupt_archive_is_the_requests_fault(tmp_path: Path) -> None:
    for suffix in MODES:
        archive = tmp_path / f"machine{suffix}"
        archive.write_bytes(b"this is no archive, however long it is" * 50)
        with pytest.raises(RequestError, match="record the machine again"), open_tree(archive):
            pass


def test_a_cut_archive_is_the_requests_fault(small: MachineBuilder, tmp_path: Path) -> None:
    archive = tmp_path / "machine.tar.xz"
    with tarfile.open(archive, "w:xz") as file:
        file.add(small.root, ".")
    archive.write_bytes(archive.read_bytes()[:-200])
    with pytest.raises(RequestError), open_tree(archive):
        pass


def test_what_has_no_sys_is_refused(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    empty = tmp_path / "empty.tar"
    with tarfile.open(empty, "w"):
        pass
    for path in (tmp_path, empty, tmp_path / "missing", tmp_path / "proc"):
        with pytest.raises(RequestError), open_tree(path):
            pass


def test_a_file_that_is_no_archive_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "machine.zip"
    path.write_bytes(b"")
    with pytest.raises(RequestError, match="neither a folder nor an archive"), open_tree(path):
        pass


def test_links_in_an_archive_lead_where_they_lead_on_disk(small: MachineBuilder, tmp_path: Path) -> None:
    small.link("sys/loop", "sys/loop")
    archive = tmp_path / "machine.tar"
    with tarfile.open(archive, "w") as file:
        file.add(small.root, ".")
    with open_tree(archive) as memory, open_tree(small.root) as disk:
        for path in (
            "sys/class/tty/console/active",
            "sys/bus/usb/devices/1-4/serial",
            "sys/class/drm/card0/uevent",
            "sys/loop/x",
            "sys/../../x",
            "sys",
        ):
            assert (memory.text(path), memory.names(path)) == (
                (disk.text(path), disk.names(path)) if path != "sys/loop/x" else ("", [])
            )


def test_proc_and_modules_may_lie_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "host" / "1").mkdir(parents=True)
    (tmp_path / "host" / "1" / "mountinfo").write_text("here\n")
    (tmp_path / "modules" / "6.1").mkdir(parents=True)
    tree = Tree(tmp_path / "root", proc=tmp_path / "host", modules=tmp_path / "modules")
    assert (tree.text("proc/1/mountinfo"), tree.names("lib/modules")) == ("here", ["6.1"])


def test_a_missing_file_is_normal(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    assert (tree.read("sys/x"), tree.link("sys/x"), tree.entries("sys/x"), tree.text("sys/x")) == (
        None,
        None,
        None,
        "",
    )


def test_a_plain_file_is_no_link(tmp_path: Path) -> None:
    (tmp_path / "sys").mkdir()
    (tmp_path / "sys" / "x").write_text("1")
    assert Tree(tmp_path).link("sys/x") is None


def test_a_link_that_leaves_the_tree_leads_nowhere(tmp_path: Path) -> None:
    (tmp_path / "sys").mkdir()
    (tmp_path / "sys" / "out").symlink_to("../../../etc")
    (tmp_path / "sys" / "absolute").symlink_to("/etc")
    tree = Tree(tmp_path)
    assert (tree.target("sys/out"), tree.target("sys/absolute")) == (None, None)


def test_what_is_there_and_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "sys" / "folder").mkdir(parents=True)
    tree = Tree(tmp_path)
    with pytest.raises(TreeError, match="/sys/folder"):
        tree.read("sys/folder")  # reading a directory fails like an attribute that cannot be read
    assert tree.text("sys/folder") == ""
    with pytest.raises(TreeError):
        tree.word("sys/folder")


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_folder_without_permission_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "sys").mkdir()
    (tmp_path / "sys").chmod(0)
    try:
        with pytest.raises(TreeError, match="Permission denied"):
            Tree(tmp_path).entries("sys")
    finally:
        (tmp_path / "sys").chmod(0o755)


def test_a_name_with_a_nul_is_missing(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    assert (tree.read("sys/\x00"), tree.link("sys/\x00"), tree.entries("sys/\x00")) == (None, None, None)


def test_a_long_table_of_proc_is_read_whole(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    content = b"line\n" * 60000
    (tmp_path / "proc" / "long").write_bytes(content)
    assert Tree(tmp_path).read("proc/long") == content
