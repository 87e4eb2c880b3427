"""The played machine: a writable copy of a tree or recording, so that hardware can come and go in it."""

import itertools
import os
import shutil
from pathlib import Path

from common.errors import LikenError, MachineError, RequestError
from common.hardware.archive import Archive, read_archive
from common.hardware.tree import open_tree

_COPIED = ("sys", "proc", "etc/liken")  # lib/modules is never written: a link stands for it


def lay_out(source: Path, target: Path) -> None:
    """Make `target` a fresh copy of the machine in `source`, a folder or a recording.

    A `source` that is `target` stays as it is: a machine goes on where it was. Raises RequestError when
    `source` is no machine or is a live /sys, MachineError when `target` cannot be written.
    """
    if source.resolve() == target.resolve():
        _check(source)
        return
    if os.path.ismount(source / "sys"):
        raise RequestError(
            f"{source}/sys is a live /sys, which cannot be played: record it with liken record, and play that"
        )
    archive = None if source.is_dir() else _archive(source)
    if archive is None:
        _check(source)
    try:
        _remove(target)
        if archive is not None:
            _unpack(archive, target)
        else:
            _copy(source, target)
    except (OSError, shutil.Error) as error:
        raise MachineError(
            f"cannot lay out the machine in {target}: {error}: name another --state"
        ) from error


def _check(source: Path) -> None:
    with open_tree(source):
        return


def _archive(source: Path) -> Archive:
    _check_is_there(source)
    archive = read_archive(source)
    if archive.folder("sys") is None:
        raise RequestError(f"{source} has no sys/ in it: name a recording made by liken record")
    return archive


def _check_is_there(source: Path) -> None:
    if not source.is_file():
        _check(source)  # it says what is wrong
        raise RequestError(f"{source} is neither a folder nor a recording")


def _remove(target: Path) -> None:
    if target.is_symlink():
        target.unlink()
    if target.exists():
        shutil.rmtree(target)


def _unpack(archive: Archive, target: Path) -> None:
    # all folders and files before the first link: no link of a hostile archive can lead a write elsewhere
    folders = sorted(archive.folders.items())
    for path, _ in folders:
        (target / path).mkdir(parents=True, exist_ok=True)
    for path, folder in folders:
        for name, content in folder.files.items():
            if name not in folder.dirs:
                (target / path / name).write_bytes(content)
    for path, folder in folders:
        for name, text in folder.links.items():
            if name not in folder.dirs and name not in folder.files and _stays(path, text):
                (target / path / name).symlink_to(text)


def _stays(folder: str, link: str) -> bool:
    """Whether a symbolic link in `folder` (below the machine's root) leads to a place of the machine.

    No other is laid out: what is unplugged is deleted, and that must never reach beyond the machine. A link
    climbs only at its beginning, out of folders that are no links; so links that lead to links stay too.
    """
    parts = link.split("/")
    down = [part for part in parts if part not in {"", "."}]
    up = len(list(itertools.takewhile(lambda part: part == "..", down)))
    depth = len([part for part in folder.split("/") if part])
    return bool(down) and parts[0] != "" and up <= depth and ".." not in down[up:]


def _copy(source: Path, target: Path) -> None:
    target.mkdir(parents=True)
    for part in _COPIED:
        if (source / part).is_dir():
            _copy_folder(source / part, target / part, part)
    if (source / "lib/modules").is_dir():
        (target / "lib").mkdir()
        (target / "lib/modules").symlink_to((source / "lib/modules").resolve())


def _copy_folder(source: Path, target: Path, place: str) -> None:
    # not shutil.copytree: the modes of a sysfs tree forbid writing, and the copy is there to be written
    target.mkdir(parents=True, exist_ok=True)
    with os.scandir(source) as entries:
        for entry in entries:
            copy = target / entry.name
            if entry.is_symlink():
                text = os.readlink(entry.path)  # noqa: PTH115 - a Path would tidy the text up
                if _stays(place, text):
                    copy.symlink_to(text)
            elif entry.is_dir(follow_symlinks=False):
                _copy_folder(Path(entry.path), copy, f"{place}/{entry.name}")
            elif entry.is_file(follow_symlinks=False):
                copy.write_bytes(Path(entry.path).read_bytes())


def is_machine(path: Path) -> bool:
    """Whether `path` holds a tree with sys/."""
    try:
        _check(path)
    except LikenError:
        return False
    return True
