"""The tree: folders, recordings, and the difference between missing and unreadable."""

import bz2
import gzip
import lzma
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


def test_an_archive_cut_anywhere_is_never_taken_for_a_smaller_machine(
    small: MachineBuilder, tmp_path: Path
) -> None:
    archive = tmp_path / "machine.tar"
    with tarfile.open(archive, "w") as file:
        file.add(small.root, ".")
        borders = [member.offset for member in file.getmembers()]
    whole = archive.read_bytes()
    for size in [*borders, *(border + 700 for border in borders)]:
        archive.write_bytes(whole[:size])
        with pytest.raises(RequestError, match="not a whole archive"), open_tree(archive):
            pass


def test_an_archive_with_a_damaged_header_is_never_taken_for_a_smaller_machine(
    small: MachineBuilder, tmp_path: Path
) -> None:
    archive = tmp_path / "machine.tar"
    with tarfile.open(archive, "w") as file:
        file.add(small.root, ".")
        middle = file.getmembers()[7].offset
    content = bytearray(archive.read_bytes())
    content[middle + 148 : middle + 156] = b"99999999"  # the checksum
    archive.write_bytes(content)
    with pytest.raises(RequestError, match="not a whole archive"), open_tree(archive):
        pass


def test_an_archive_of_several_packed_streams_is_one_archive(small: MachineBuilder, tmp_path: Path) -> None:
    plain = tmp_path / "machine.tar"
    with tarfile.open(plain, "w") as file:
        file.add(small.root, ".")
    content = plain.read_bytes()
    for suffix, pack in ((".tar.gz", gzip.compress), (".tar.bz2", bz2.compress), (".tar.xz", lzma.compress)):
        archive = tmp_path / f"machine{suffix}"
        archive.write_bytes(pack(content[:5000]) + pack(content[5000:]))
        assert look(archive) == inventory(small)


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "", size: int = 0) -> bytes:
    made = tarfile.TarInfo(name)
    made.type, made.linkname, made.size = kind, link, size
    return made.tobuf()


END = bytes(2 * tarfile.BLOCKSIZE)
SYS = member("sys/devices", tarfile.DIRTYPE) + member("sys/bus", tarfile.DIRTYPE)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (SYS + member("sys/" + "a/" * 2000 + "x"), "so deep folders"),
        (SYS + member("sys/x", tarfile.GNUTYPE_SPARSE), "stored with its zeros left out"),
    ],
    ids=["deep", "sparse"],
)
def test_an_archive_that_no_machine_gives_is_refused_in_words(
    content: bytes, words: str, tmp_path: Path
) -> None:
    archive = tmp_path / "machine.tar"
    archive.write_bytes(content + END)
    with pytest.raises(RequestError, match=words), open_tree(archive):
        pass


@pytest.mark.parametrize(
    "content",
    [
        member("../../etc/passwd", size=0),
        member("/etc/passwd"),
        member("sys/null", tarfile.CHRTYPE),
        member("sys/disk", tarfile.BLKTYPE),
        member("sys/pipe", tarfile.FIFOTYPE),
        member("sys/hard", tarfile.LNKTYPE, "../../etc/passwd"),
        member("sys/hard", tarfile.LNKTYPE, "sys/hard"),
        member("sys/soft", tarfile.SYMTYPE, "/etc"),
        member("sys/soft", tarfile.SYMTYPE, "soft"),
        member("sys/bus/pci"),
        member("sys/dev"),
        member("sys/devices/virtual") + member("sys/devices/virtual/block/x"),
        member("sys/devices/\udcff\udcfe"),
    ],
)
def test_what_no_recorder_writes_into_an_archive_changes_nothing(content: bytes, tmp_path: Path) -> None:
    archive = tmp_path / "machine.tar"
    archive.write_bytes(SYS + content + END)
    with open_tree(archive) as tree:
        assert tree.text("etc/passwd") == tree.text("sys/soft/passwd") == tree.text("sys/hard") == ""
    assert look(archive).devices == ()


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
