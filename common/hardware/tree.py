"""The one door to /sys and /proc: a read-only tree with a root.

Paths are strings relative to the root, without a leading slash: "sys/bus/pci/devices", "proc/1/mountinfo",
"lib/modules/6.1/modules.alias", "etc/liken/machine.yaml". Only this package's tree and archive modules open
files; nothing is cached, because the hardware changes while it is read.

A file that is missing is normal and reads as None. What cannot be read for another reason is a TreeError,
so that an unreadable tree never looks like a machine without hardware.
"""

import contextlib
import errno
import os
import posixpath
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from common.errors import MachineError, RequestError
from common.hardware.text import clean

if TYPE_CHECKING:
    from common.hardware.archive import Archive

SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")  # of the archives that can be read

# What reading or listing gives when the thing is not, or no longer, there. ENODEV and ENXIO: sysfs answers
# so for an attribute whose device is just going away.
_MISSING = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ENODEV, errno.ENXIO})
# The reader is in trouble, not the device: such a failure says nothing about one device.
_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
MAX_FILE = 64 * 1024 * 1024  # bytes; the longest file read is modules.alias with 2 MiB
_READ_SIZE = 65536  # bytes at once; sysfs attributes have at most one page


class TreeError(MachineError):
    """Something of the tree is there and cannot be read."""


class ExhaustedError(TreeError):
    """The process is out of file descriptors or memory: nothing it reads now means anything."""


class Entries(NamedTuple):
    """One directory: its directories sorted, its symbolic links and its plain files."""

    dirs: list[str]
    links: frozenset[str] | set[str]
    files: frozenset[str] | set[str]


class _Source(Protocol):
    def read(self, path: str) -> bytes | None: ...
    def link(self, path: str) -> str | None: ...
    def entries(self, path: str) -> Entries | None: ...


class Tree:
    """The hardware as files: `sys` below `root`; `proc` and `modules` may lie elsewhere.

    `proc` stands for "proc" below the root and `modules` for "lib/modules". Raises nothing; the first read
    does.
    """

    def __init__(
        self, root: Path, proc: Path | None = None, modules: Path | None = None, source: _Source | None = None
    ) -> None:
        self.root = root
        self._source: _Source = source if source is not None else _Disk(root, proc, modules)
        self.read = self._source.read  # (path) -> bytes | None; TreeError when there and not readable
        self.link = self._source.link  # (path) -> the link's text | None; the target need not exist
        self.entries = self._source.entries  # (path) -> Entries | None; TreeError when it cannot be listed

    def text(self, path: str) -> str:
        """One attribute as clean text; "" when it is missing or this one file cannot be read."""
        try:
            content = self.read(path)
        except ExhaustedError:
            raise
        except TreeError:
            return ""
        return clean(content) if content is not None else ""

    def word(self, path: str) -> str:
        """Like `text`, for what decides over an offer: what is there and cannot be read is a TreeError."""
        content = self.read(path)
        return clean(content) if content is not None else ""

    def link_name(self, path: str) -> str:
        """The last element of a symbolic link's target: a driver's or a subsystem's name; "" without link."""
        target = self.link(path)
        return target.rpartition("/")[2] if target is not None else ""

    def names(self, path: str) -> list[str]:
        """Everything in a directory, sorted; empty when it is missing. TreeError when it cannot be listed."""
        found = self.entries(path)
        return sorted([*found.dirs, *found.links, *found.files]) if found is not None else []

    def target(self, path: str) -> str | None:
        """Where the symbolic link `path` leads, as a path of this tree; None without link or when it leaves.

        The link's own folder must be a real one, as in bus/*/devices, class/* and dev/*.
        """
        text = self.link(path)
        if text is None or text.startswith("/"):
            return None
        joined = posixpath.normpath(posixpath.join(posixpath.dirname(path), text))
        return None if joined.startswith("..") else joined


class _Disk:
    """A tree of real folders."""

    def __init__(self, root: Path, proc: Path | None, modules: Path | None) -> None:
        self._prefix = str(root).rstrip("/") + "/"
        self._elsewhere = tuple(
            (word, str(path)) for word, path in (("proc", proc), ("lib/modules", modules)) if path is not None
        )

    def _path(self, path: str) -> str:
        if not path.startswith("sys/"):
            for word, place in self._elsewhere:
                if path.startswith(word):
                    return place + path[len(word) :]
        return self._prefix + path

    def read(self, path: str) -> bytes | None:
        try:
            handle = os.open(self._path(path), os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            _refuse_unless_missing(path, error)
            return None
        except ValueError:  # a name with a NUL byte: no such file
            return None
        try:
            content = os.read(handle, _READ_SIZE)
            if len(content) < _READ_SIZE and not path.startswith("proc"):
                return content  # sysfs gives an attribute in one piece; /proc in pieces of about a page
            pieces = [content]
            size = 0
            while content:
                content = os.read(handle, _READ_SIZE)
                pieces.append(content)
                size += len(content)
                if size > MAX_FILE:
                    raise TreeError(f"cannot read /{path}: it is larger than {MAX_FILE // 1024 // 1024} MiB")
            return b"".join(pieces)
        except OSError as error:
            _refuse_unless_missing(path, error)
            return None
        finally:
            os.close(handle)

    def link(self, path: str) -> str | None:
        try:
            return os.readlink(self._path(path))  # noqa: PTH115 - a Path costs more than the call
        except OSError as error:
            if error.errno == errno.EINVAL:  # there, and no link
                return None
            _refuse_unless_missing(path, error)
            return None
        except ValueError:
            return None

    def entries(self, path: str) -> Entries | None:
        dirs: list[str] = []
        links: set[str] = set()
        files: set[str] = set()
        try:
            with os.scandir(self._path(path)) as found:
                for entry in found:
                    if entry.is_symlink():
                        links.add(entry.name)
                    elif entry.is_dir(follow_symlinks=False):
                        dirs.append(entry.name)
                    else:
                        files.add(entry.name)
        except OSError as error:
            _refuse_unless_missing(path, error)
            return None
        except ValueError:
            return None
        dirs.sort()
        return Entries(dirs, links, files)


class _Memory:
    """A tree inside an archive."""

    def __init__(self, archive: "Archive") -> None:
        self.read = archive.file
        self.link = archive.link
        self._archive = archive

    def entries(self, path: str) -> Entries | None:
        folder = self._archive.folder(path)
        if folder is None:
            return None
        return Entries(sorted(folder.dirs), set(folder.links), set(folder.files))


def _refuse_unless_missing(path: str, error: OSError) -> None:
    """Nothing for what is not there; raises for everything else."""
    if error.errno in _MISSING:
        return
    kind = ExhaustedError if error.errno in _EXHAUSTED else TreeError
    raise kind(f"cannot read /{path}: {error.strerror}; check permissions and mounts") from error


@contextlib.contextmanager
def open_tree(path: Path, proc: Path | None = None, modules: Path | None = None) -> Iterator[Tree]:
    """A tree for `path`: a folder, or an archive (.tar, .tar.gz, .tar.bz2, .tar.xz) read into memory.

    `proc` and `modules` matter for folders only. Raises RequestError when there is nothing at `path`, the
    archive is corrupt, or it has no sys/.
    """
    from common.hardware.archive import read_archive  # late: the services read no archive

    if path.is_dir():
        tree = Tree(path, proc, modules)
    elif path.is_file() and path.name.endswith(SUFFIXES):
        tree = Tree(path, source=_Memory(read_archive(path)))
    elif path.exists():
        raise RequestError(f"{path} is neither a folder nor an archive ({', '.join(SUFFIXES)})")
    else:
        raise RequestError(f"{path} does not exist; give a folder or a recording with sys/ in it")
    if tree.entries("sys") is None:
        raise RequestError(f"{path} has no sys/ in it; give the folder that contains sys/, or a recording")
    yield tree
