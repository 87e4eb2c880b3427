"""The copy of a machine that is played."""

import io
import tarfile
from pathlib import Path

import pytest

from common.errors import RequestError
from common.hardware.machine import Machine
from common.hardware.tree import Tree
from common.hardware.walk import walk
from common.inventory import Inventory
from services.console.machine import lay_out
from tests.builders import MachineBuilder


@pytest.fixture
def machine(tmp_path: Path) -> MachineBuilder:
    built = MachineBuilder(tmp_path / "built")
    built.tty(built.interface(built.usb("1-2"), 0, driver="ftdi_sio"), "ttyUSB0")
    built.write("lib/modules/6.12.0/modules.alias", "alias usb:v1234* mod\n")
    built.write("etc/liken/machine.yaml", "spec: {}\n")
    built.write("home/secret", "no part of the machine")
    return built


def seen(root: Path) -> Inventory:
    return walk(Tree(root), Machine(), "n1", "")


def pack(root: Path, file: Path) -> Path:
    with tarfile.open(file, "w:gz") as archive:
        archive.add(root, ".")
    return file


def test_a_folder_and_its_archive_play_the_same_machine(machine: MachineBuilder, tmp_path: Path) -> None:
    lay_out(machine.root, tmp_path / "one")
    lay_out(pack(machine.root, tmp_path / "machine.tar.gz"), tmp_path / "two")
    assert seen(tmp_path / "one") == seen(tmp_path / "two") == seen(machine.root)


def test_only_what_the_rules_read_is_copied(machine: MachineBuilder, tmp_path: Path) -> None:
    lay_out(machine.root, tmp_path / "copy")
    assert sorted(path.name for path in (tmp_path / "copy").iterdir()) == ["etc", "lib", "proc", "sys"]
    assert (tmp_path / "copy/lib/modules/6.12.0/modules.alias").is_file()


def test_a_second_lay_out_begins_anew(machine: MachineBuilder, tmp_path: Path) -> None:
    lay_out(machine.root, tmp_path / "copy")
    (tmp_path / "copy/sys/more").write_text("")
    lay_out(machine.root, tmp_path / "copy")
    assert not (tmp_path / "copy/sys/more").exists()


def test_a_machine_that_is_its_own_source_goes_on_where_it_was(
    machine: MachineBuilder, tmp_path: Path
) -> None:
    lay_out(machine.root, tmp_path / "copy")
    (tmp_path / "copy/sys/more").write_text("")
    lay_out(tmp_path / "copy", tmp_path / "copy")
    assert (tmp_path / "copy/sys/more").exists()


def test_read_only_folders_can_be_played(machine: MachineBuilder, tmp_path: Path) -> None:
    uevent = machine.path("sys/bus/usb/devices/1-2/uevent")
    uevent.chmod(0o444)
    uevent.parent.chmod(0o555)
    lay_out(machine.root, tmp_path / "copy")
    (tmp_path / "copy/sys/bus/usb/devices/1-2/uevent").unlink()
    assert uevent.exists()
    uevent.parent.chmod(0o755)


def test_no_link_of_a_hostile_archive_leads_a_write_elsewhere(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "bad.tar", "w") as archive:
        for name in ("sys", "sys/bus"):
            folder = tarfile.TarInfo(name)
            folder.type = tarfile.DIRTYPE
            archive.addfile(folder)
        link = tarfile.TarInfo("sys/out")
        link.type, link.linkname = tarfile.SYMTYPE, str(tmp_path / "victim")
        archive.addfile(link)
        for name in ("sys/out/stolen", "../stolen", "/stolen"):
            file = tarfile.TarInfo(name)
            file.size = 1
            archive.addfile(file, io.BytesIO(b"x"))
    (tmp_path / "victim").mkdir()
    lay_out(tmp_path / "bad.tar", tmp_path / "copy")
    assert list((tmp_path / "victim").iterdir()) == []
    assert not (tmp_path / "stolen").exists()
    assert not Path("/stolen").exists()


ESCAPES = {
    "sys/absolute": "/etc",
    "sys/above": "../../outside",
    "sys/bus/winding": "../devices/../../../outside",
    "sys/here": ".",
    "sys/nothing": "./",
}
INSIDE = {"sys/bus/up": "../devices", "sys/dangling": "no/such/place", "sys/devices/top": "../.."}


@pytest.mark.parametrize("packed", [True, False])
def test_no_link_of_a_played_machine_leads_out_of_it(packed: bool, tmp_path: Path) -> None:
    # what is unplugged is deleted: through such a link it would be somebody else's
    source, copy = tmp_path / "source", tmp_path / "copy"
    for folder in ("sys/bus", "sys/devices"):
        (source / folder).mkdir(parents=True)
    for place, text in {**ESCAPES, **INSIDE}.items():
        (source / place).symlink_to(text)
    lay_out(pack(source, tmp_path / "machine.tar.gz") if packed else source, copy)
    laid = {
        str(path.relative_to(copy)): str(path.readlink()) for path in copy.rglob("*") if path.is_symlink()
    }
    assert laid == INSIDE


def test_what_is_file_and_folder_at_once_is_laid_out_as_the_folder(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "odd.tar", "w") as archive:
        for name in ("sys/devices", "sys/devices/x/uevent"):
            archive.addfile(tarfile.TarInfo(name))
    lay_out(tmp_path / "odd.tar", tmp_path / "copy")
    assert (tmp_path / "copy/sys/devices/x/uevent").is_file()


@pytest.mark.parametrize(
    "name", ["missing", "missing.tar.xz", "empty", "text.txt", "text.tar", "nosys.tar.gz"]
)
def test_what_is_no_machine_is_refused_by_name_and_changes_nothing(name: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.txt").write_text("x")
    (tmp_path / "text.tar").write_text("x")
    pack(tmp_path / "empty", tmp_path / "nosys.tar.gz")
    with pytest.raises(RequestError, match=name):
        lay_out(tmp_path / name, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_a_live_sys_is_never_copied(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="liken record"):
        lay_out(Path("/"), tmp_path / "copy")
    assert not (tmp_path / "copy").exists()
