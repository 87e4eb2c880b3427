"""A recording in one archive, read into memory: quicker than unpacking it, and nothing is left behind."""

import bz2
import io
import lzma
import posixpath
import tarfile
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from common.errors import RequestError

MAX_LINKS = 40  # symbolic links followed for one path; the kernel's own limit
MAX_BYTES = 256 * 1024 * 1024  # unpacked; a server of 559 PCI functions has 30 MiB
MAX_STREAMS = 1000  # archives one after the other; programs that pack in parallel make one per block
MAX_FOLDERS = 200_000  # that server: 15,000
MAX_PATH = 4096  # PATH_MAX of the kernel
MAX_DEPTH = 60  # a device behind six hubs lies 25 folders deep


class Folder:
    """The entries of one directory, by type."""

    __slots__ = ("dirs", "files", "links")

    def __init__(self) -> None:
        self.dirs: set[str] = set()
        self.files: dict[str, bytes] = {}
        self.links: dict[str, str] = {}


@dataclass(frozen=True)
class Archive:
    """Folders by their path relative to the archive's root, without a leading slash."""

    folders: dict[str, Folder] = field(default_factory=lambda: {"": Folder()})

    def folder(self, path: str) -> Folder | None:
        """The directory at `path`, symbolic links on the way followed; None when there is none."""
        found = self.folders.get(path)
        return found if found is not None else self.folders.get(self._resolve(path) or "?")

    def file(self, path: str) -> bytes | None:
        folder, name = self._parent(path)
        if folder is None:
            return None
        if name in folder.links:
            target = self._resolve(path)
            return self._plain_file(target) if target is not None else None
        return folder.files.get(name)

    def link(self, path: str) -> str | None:
        folder, name = self._parent(path)
        return folder.links.get(name) if folder is not None else None

    def _parent(self, path: str) -> tuple[Folder | None, str]:
        parent, _, name = path.rpartition("/")
        return self.folder(parent), name

    def _plain_file(self, path: str) -> bytes | None:
        parent, _, name = path.rpartition("/")
        folder = self.folders.get(parent)
        return folder.files.get(name) if folder is not None else None

    def _resolve(self, path: str) -> str | None:
        """The path without symbolic links; None when it leaves the archive or turns in circles."""
        waiting = path.split("/")[::-1]
        done: list[str] = []
        followed = 0
        while waiting:
            part = waiting.pop()
            folder = self.folders.get("/".join(done))
            target = folder.links.get(part) if folder is not None else None
            if target is None:
                done.append(part)
                continue
            followed += 1
            joined = posixpath.normpath("/".join([*done, target]))
            if followed > MAX_LINKS or target.startswith("/") or joined.startswith(".."):
                return None
            done = []
            waiting.extend(joined.split("/")[::-1])
        return "/".join(done)

    def make_folder(self, path: str) -> Folder:
        """The folder at `path`, made with all its parents when the archive did not list them."""
        found = self.folders.get(path)
        if found is None:
            if len(self.folders) >= MAX_FOLDERS or path.count("/") >= MAX_DEPTH or len(path) > MAX_PATH:
                raise ValueError("no machine has so many or so deep folders")
            found = self.folders[path] = Folder()
            parent, _, name = path.rpartition("/")
            self.make_folder(parent).dirs.add(name)
        return found


def read_archive(path: Path) -> Archive:
    """Read a whole .tar, .tar.gz, .tar.bz2 or .tar.xz.

    Raises RequestError when it cannot be opened, is corrupt or cut short.
    """
    try:
        packed = path.read_bytes()
    except OSError as error:
        raise RequestError(f"cannot read {path}: {error.strerror}; give a folder or a recording") from error
    try:
        content = _decompressed(path.name, packed)
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as members:
            return _folders(members, content)
    except (tarfile.TarError, lzma.LZMAError, zlib.error, OSError, EOFError, ValueError) as error:
        raise RequestError(f"{path} is not a whole archive ({error}); record the machine again") from error


def _decompressed(name: str, packed: bytes) -> bytes:
    """The tar itself. Several streams, as parallel compressors write them, are one archive."""
    if not name.endswith((".xz", ".gz", ".tgz", ".bz2")):
        return packed
    pieces: list[bytes] = []
    room = MAX_BYTES
    while packed or not pieces:
        unpack = _unpacker(name)
        pieces.append(unpack.decompress(packed, room))  # a small archive can unpack to any size
        room -= len(pieces[-1])
        if len(pieces) > MAX_STREAMS:
            raise ValueError(f"it consists of more than {MAX_STREAMS} archives")
        if not unpack.eof or room <= 0:
            raise EOFError(f"cut short, or more than {MAX_BYTES // 1024 // 1024} MiB unpacked")
        packed = unpack.unused_data.lstrip(b"\0")
    return b"".join(pieces)


def _unpacker(name: str) -> Any:
    if name.endswith(".xz"):
        return lzma.LZMADecompressor(memlimit=MAX_BYTES)
    if name.endswith(".bz2"):
        return bz2.BZ2Decompressor()
    return zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)


def _folders(members: tarfile.TarFile, content: bytes) -> Archive:
    archive = Archive()
    for member in members:
        if member.issparse():
            raise ValueError(f"{member.name} is stored with its zeros left out")
        name = posixpath.normpath(member.name).lstrip("/")
        if name == "." or name.startswith(".."):
            continue
        parent, _, last = name.rpartition("/")
        if member.isdir():
            archive.make_folder(name)
        elif member.issym():
            archive.make_folder(parent).links[last] = member.linkname
        elif member.isreg():
            start = member.offset_data
            archive.make_folder(parent).files[last] = content[start : start + member.size]
        elif member.islnk():
            archive.make_folder(parent).files[last] = archive.file(posixpath.normpath(member.linkname)) or b""
    # tarfile takes a header that it cannot read, or that is missing, for the end: half a machine
    if content[members.offset : members.offset + tarfile.BLOCKSIZE] != bytes(tarfile.BLOCKSIZE):
        raise ValueError("no end of the archive where the last file ends")
    return archive
