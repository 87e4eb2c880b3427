"""Recordings that somebody sent: damaged, bottomless, or made to lead out of the archive."""

import bz2
import gzip
import io
import lzma
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.errors import LikenError, RequestError
from common.hardware import archive
from common.hardware.archive import Archive, read_archive
from common.hardware.machine import Machine
from common.hardware.tree import TreeError, open_tree
from common.hardware.walk import walk
from common.inventory import Inventory
from tests.builders import MachineBuilder
from tests.unit.hostile.bounds import any_folder, bounded, is_one_line, outcome

PACK: dict[str, Callable[[bytes], bytes]] = {
    ".tar": bytes,
    ".tar.gz": gzip.compress,
    ".tar.bz2": bz2.compress,
    ".tar.xz": lzma.compress,
}
PATHS = st.lists(st.sampled_from(["sys", "proc", "a", "..", ".", "", "x" * 300]), min_size=1, max_size=6).map(
    "/".join
)
KINDS = st.sampled_from(
    [tarfile.DIRTYPE, tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE]
)


def tar(*members: tuple[str, bytes, str]) -> bytes:
    """An archive of members: name, type, target of a link."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:", format=tarfile.PAX_FORMAT) as file:
        for name, kind, target in members:
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, target
            file.addfile(member)
    return out.getvalue()


class Recording(bytes):
    """A tar that does not print itself when a test fails."""

    def __repr__(self) -> str:
        return f"a tar of {len(self)} bytes"


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    """A small machine."""
    folder = tmp_path_factory.mktemp("machine")
    machine = MachineBuilder(folder)
    machine.tty(machine.interface(machine.usb("1-1"), 0, driver="ch341"), "ttyUSB0")
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:") as file:
        file.add(folder, arcname=".")
    return Recording(out.getvalue())


def look(path: Path) -> Inventory:
    with open_tree(path) as tree:
        return walk(tree, Machine(), "n1", "t")


@any_folder
@given(
    suffix=st.sampled_from(sorted(PACK)),
    packed=st.booleans(),
    at=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.binary(min_size=1, max_size=6)), max_size=4),
    left=st.floats(0, 1) | st.just(1.0),
)
def test_any_damage_is_an_inventory_or_a_refusal_in_one_line(
    tmp_path: Path,
    recording: Recording,
    suffix: str,
    packed: bool,
    at: list[tuple[float, bytes]],
    left: float,
) -> None:
    content = bytearray(PACK[suffix](recording) if packed else recording)
    for place, splinter in at:
        begin = int(place * len(content))
        content[begin : begin + len(splinter)] = splinter
    whole = bytes(content[: int(left * len(content))])
    path = tmp_path / f"machine{suffix}"
    path.write_bytes(whole if packed else PACK[suffix](whole))
    found = outcome(lambda: look(path), LikenError)
    assert isinstance(found, Inventory | RequestError | TreeError)
    assert is_one_line(found)


@any_folder
@given(members=st.lists(st.tuples(PATHS, KINDS, PATHS | st.just("/etc")), max_size=8), asked=PATHS)
def test_no_path_of_any_archive_leads_out_of_it(
    tmp_path: Path, members: list[tuple[str, bytes, str]], asked: str
) -> None:
    path = tmp_path / "machine.tar"
    path.write_bytes(tar(*members))
    found = outcome(lambda: read_archive(path), RequestError)
    assert isinstance(found, Archive | RequestError)
    if isinstance(found, Archive):
        assert not any(part in ("..", ".") for name in found.folders for part in name.split("/"))
        assert found.link(asked) is None or isinstance(found.link(asked), str)
        assert found.folder(asked) in (None, *found.folders.values())
        assert found.file(asked) in (None, b"")


@pytest.mark.parametrize("suffix", [".tar.gz", ".tar.bz2", ".tar.xz"])
def test_an_archive_that_unpacks_without_end_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    monkeypatch.setattr(archive, "MAX_BYTES", 2 * 1024 * 1024)
    path = tmp_path / f"machine{suffix}"
    path.write_bytes(PACK[suffix](bytes(16 * 1024 * 1024)))
    with bounded(12), pytest.raises(RequestError, match="not a whole archive"):
        read_archive(path)


def test_an_archive_of_endless_empty_archives_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "machine.tar.gz"
    path.write_bytes(gzip.compress(b"") * 100_000)
    with bounded(32), pytest.raises(RequestError, match="more than 1000 archives"):
        read_archive(path)


@pytest.mark.parametrize(
    "members",
    [
        [("a/" * 1000 + "a", tarfile.DIRTYPE, "")],
        [("/".join(["x" * 200] * 30), tarfile.REGTYPE, "")],
    ],
    ids=["too deep", "too long"],
)
def test_folders_that_no_machine_has_are_refused(
    tmp_path: Path, members: list[tuple[str, bytes, str]]
) -> None:
    path = tmp_path / "machine.tar"
    path.write_bytes(tar(*members))
    with bounded(16), pytest.raises(RequestError, match="no machine has"):
        read_archive(path)


def test_links_that_double_with_every_step_are_followed_forty_times_at_the_most(tmp_path: Path) -> None:
    rows = [(f"sys/l{n}", tarfile.SYMTYPE, f"l{n - 1}/l{n - 1}") for n in range(1, 60)]
    path = tmp_path / "machine.tar"
    path.write_bytes(tar(("sys/l0", tarfile.DIRTYPE, ""), *rows))
    with bounded(16):
        found = read_archive(path)
        assert found.folder("sys/l59") is None


@pytest.mark.parametrize("at", range(0, 40, 3))
def test_half_a_machine_is_not_a_machine(tmp_path: Path, recording: Recording, at: int) -> None:
    block = 512 * (at * (len(recording) // 512 - 4) // 40)
    cut, spoilt = recording[:block], recording[:block] + b"x" * 512 + recording[block + 512 :]
    path = tmp_path / "machine.tar"
    path.write_bytes(cut)
    with pytest.raises(RequestError, match="not a whole archive"):
        read_archive(path)
    path.write_bytes(spoilt)
    found = outcome(lambda: read_archive(path), RequestError)
    names = outcome(lambda: len(found.folders) if isinstance(found, Archive) else 0, LikenError)
    assert names in (0, len(read_whole(tmp_path, recording).folders))


def read_whole(folder: Path, recording: Recording) -> Archive:
    (folder / "whole.tar").write_bytes(recording)
    return read_archive(folder / "whole.tar")


def test_a_sound_archive_reads_back(tmp_path: Path, recording: Recording) -> None:
    for suffix, pack in PACK.items():
        path = tmp_path / f"machine{suffix}"
        path.write_bytes(pack(recording))
        assert [device.name for device in look(path).devices] == ["usb-1-1-1-0"]
