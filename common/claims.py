"""The records of prepared claims: the only state liken keeps.

One JSON file per claim at <plugin folder>/claims/<boot id>/<uid>.json. A record means something only within
its boot: USB bus numbers move at a reboot, and the kubelet prepares again.
"""

import contextlib
import os
import re
import stat
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from common.errors import MachineError
from common.files import TEMPORARY_PREFIX, names_in, read_up_to, write_atomically
from common.inventory import SCHEMA
from common.locks import FileLock

LOCK_FILE = "claims.lock"
MAX_BYTES = 1024 * 1024  # of a record or spec that is read; 32 results, the API's limit, make some 10 KiB
WHEN_BACK = "it is prepared when the device is back"  # by the kubelet, which asks again until it is
NO_BOOT = "none"  # the folder's name where the tree tells no boot id (a played machine)
_RECORD, _ASIDE = ".json", ".broken"
UID_LENGTH = 36
_UID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_DEVICE = re.compile(
    r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
)  # DNS label; Kubernetes API limit for device names


class Result(msgspec.Struct, frozen=True, omit_defaults=True):
    """One allocated device of one claim, as it was promised at prepare.

    Holds no path and no number that the kernel may give away.
    """

    request: str
    pool: str
    device: str
    bus: str
    address: str
    physicalPath: str = ""  # noqa: N815 - the word of the attribute; "" where the hardware has none
    variant: str = ""
    kinds: tuple[str, ...] = ()
    shareID: str = ""  # noqa: N815 - the word of the ResourceClaim API
    adminAccess: bool = False  # noqa: N815 - the word of the ResourceClaim API


class Record(msgspec.Struct, frozen=True):
    """One prepared claim, at <plugin folder>/claims/<boot id>/<uid>.json."""

    schema: int
    namespace: str
    name: str
    uid: str
    results: tuple[Result, ...]


class Entry(NamedTuple):
    """What the store holds for one claim. Only a readable entry has its record.

    A "newer" one was written by a later version of liken and is left alone; a "broken" one does not parse;
    one set "aside" did not parse earlier; an "unreadable" one the disk does not give now: it is left alone
    too. All of them hold the devices that their spec names.
    """

    uid: str
    form: Literal["readable", "newer", "broken", "aside", "unreadable"]
    record: Record | None = None


class _Head(msgspec.Struct):
    schema: int


_HEADS = msgspec.json.Decoder(_Head)
_RECORDS = msgspec.json.Decoder(Record)


def is_uid(text: str) -> bool:
    """Whether `text` is a UUID as Kubernetes writes it, the only thing that may become a file's name."""
    return _UID.fullmatch(text) is not None


def is_device_name(text: str) -> bool:
    """Whether `text` can be the name of a published device: it becomes a part of paths."""
    return _DEVICE.fullmatch(text) is not None


class Store:
    """The records of one boot. Whoever changes something holds `lock`; reading needs no lock."""

    def __init__(self, plugin_dir: Path, boot: str) -> None:
        """`boot` is the boot id of the machine, "" where it has none. Touches no file."""
        self.boot = boot if is_uid(boot) else NO_BOOT
        self._plugin_dir = plugin_dir
        self._claims = plugin_dir / "claims"
        self._folder = self._claims / self.boot
        self._prefix = f"{self._folder}/"
        self._lock = FileLock(plugin_dir / LOCK_FILE)
        self._known: dict[str, tuple[tuple[int, int, int], Entry]] = {}

    def lock(
        self, timeout_s: float, cancelled: threading.Event | None = None
    ) -> AbstractContextManager[float]:
        """The one lock around every change of records and specs; see FileLock.held."""
        return self._lock.held(timeout_s, cancelled)

    def make_folders(self) -> None:
        """Make the folder of this boot's records. Raises MachineError when that cannot be done."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise MachineError(
                f"cannot make {self._folder}: {error.strerror}; set LIKEN_KUBELET to the kubelet's folder"
            ) from error

    def read(self, uid: str) -> Entry | None:
        """The entry of one claim, None when there is none. Raises MachineError when nobody can tell."""
        path = self._path(uid)
        try:
            status = os.stat(path)  # noqa: PTH116 - a Path costs more than the call
            if stat.S_ISREG(status.st_mode):
                return self._read(uid, status)
        except FileNotFoundError:
            self._known.pop(uid, None)
        except OSError as error:
            raise MachineError(f"cannot read {path}: {error.strerror}") from error
        return Entry(uid, "aside") if _is_file(self._path(uid, _ASIDE)) else None

    def entries(self) -> list[Entry]:
        """All entries in the order of their UIDs. An entry whose file stays the same is the same object.

        Raises MachineError when the folder cannot be read.
        """
        found: dict[str, Entry] = {}
        for uid, end, status in self._files():
            try:
                if end == _RECORD:
                    found[uid] = self._read(uid, status)
                else:
                    found.setdefault(uid, Entry(uid, "aside"))
            except FileNotFoundError:
                continue  # removed just now
        for uid in self._known.keys() - found.keys():
            self._known.pop(uid, None)
        return [found[uid] for uid in sorted(found)]

    def uids(self) -> list[str]:
        """The UIDs of all entries, sorted. Raises MachineError when the folder cannot be read."""
        return _uids(names_in(self._folder))

    def _files(self) -> Iterator[tuple[str, str, os.stat_result]]:
        try:
            with os.scandir(self._folder) as files:
                for file in files:
                    uid, end = file.name[:UID_LENGTH], file.name[UID_LENGTH:]
                    if end not in (_RECORD, _ASIDE) or not (uid in self._known or is_uid(uid)):
                        continue
                    try:
                        status = file.stat()
                    except FileNotFoundError:
                        continue
                    if stat.S_ISREG(status.st_mode):  # a folder or a pipe is nobody's record
                        yield uid, end, status
        except FileNotFoundError:
            return  # nothing was prepared in this boot
        except OSError as error:
            raise MachineError(f"cannot read {self._folder}: {error.strerror}") from error

    def _read(self, uid: str, status: os.stat_result) -> Entry:
        known = self._known.get(uid)
        if known is not None and known[0] == _signature(status):
            return known[1]
        try:
            content, status = read_up_to(self._path(uid), MAX_BYTES)
        except FileNotFoundError:
            raise
        except OSError:
            return Entry(uid, "unreadable")  # one bad record disturbs no other; the next look may succeed
        entry = _entry(uid, content)
        self._known[uid] = (_signature(status), entry)
        return entry

    def write(self, record: Record) -> None:
        """Write a record; one set aside for the same claim goes. Needs the lock. Raises MachineError."""
        if not _is_sound(record.uid, record):
            raise ValueError(f"no record of a claim: {record}")
        path, content = self._path(record.uid), msgspec.json.encode(record) + b"\n"
        try:
            status = write_atomically(path, content)
        except MachineError:
            self.make_folders()  # somebody removed it
            status = write_atomically(path, content)
        self._known[record.uid] = (_signature(status), Entry(record.uid, "readable", record))
        try:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._path(record.uid, _ASIDE))  # noqa: PTH108 - as above
        except OSError as error:
            raise MachineError(f"cannot remove {self._path(record.uid, _ASIDE)}: {error.strerror}") from error

    def remove(self, uid: str) -> None:
        """Remove whatever is kept for a claim. Needs the lock. Raises MachineError."""
        self._known.pop(uid, None)
        try:
            for end in (_ASIDE, _RECORD):
                with contextlib.suppress(FileNotFoundError, IsADirectoryError):  # a folder is nobody's record
                    os.unlink(self._path(uid, end))  # noqa: PTH108 - as above
        except OSError as error:
            raise MachineError(f"cannot remove {self._path(uid)}: {error.strerror}") from error

    def set_aside(self, uid: str) -> bool:
        """Give a record that does not parse another name. Needs the lock. True when it had to be done."""
        try:
            os.replace(self._path(uid), self._path(uid, _ASIDE))  # noqa: PTH105 - as above
        except FileNotFoundError:
            return False
        except OSError as error:
            raise MachineError(f"cannot rename {self._path(uid)}: {error.strerror}") from error
        return True

    def leftovers(self) -> bool:
        """Whether there are temporary files: of a writer at work, or of one that was killed."""
        return any(name.startswith(TEMPORARY_PREFIX) for name in names_in(self._folder))

    def sweep(self) -> int:
        """Remove temporary files that a killed process left. Needs the lock: nobody writes now."""
        return sweep(self._folder, TEMPORARY_PREFIX)

    def other_boots(self) -> dict[str, list[str]]:
        """The folders of other boots, each with the UIDs of its records. Raises MachineError."""
        others = (name for name in names_in(self._claims) if name != self.boot and _is_boot(name))
        return {boot: _uids(names_in(self._claims / boot)) for boot in others}

    def remove_boot(self, boot: str) -> None:
        """Remove the folder of another boot. Needs the lock. Raises MachineError."""
        if boot == self.boot or not _is_boot(boot):
            raise ValueError(f"not another boot: {boot}")
        import shutil  # late: it loads all kinds of compression, and this happens once per boot

        try:
            shutil.rmtree(self._claims / boot)
        except FileNotFoundError:
            return
        except OSError as error:
            raise MachineError(f"cannot remove {self._claims / boot}: {error.strerror}") from error

    def _path(self, uid: str, end: str = _RECORD) -> str:
        if not is_uid(uid):
            raise ValueError(f"not a UUID: {uid!r}")
        return f"{self._prefix}{uid}{end}"


def sweep(folder: Path, prefix: str) -> int:
    """Remove the files of `folder` whose name begins with `prefix`; return how many went.

    Raises MachineError when one cannot be removed, after all others. A folder of such a name is not ours.
    """
    removed, kept = 0, ""
    for name in names_in(folder):
        if not name.startswith(prefix):
            continue
        try:
            (folder / name).unlink()
            removed += 1
        except (FileNotFoundError, IsADirectoryError):
            continue
        except OSError as error:
            kept = f"cannot remove {folder / name}: {error.strerror}"
    if kept:
        raise MachineError(kept)
    return removed


def _is_file(path: str) -> bool:
    try:
        return stat.S_ISREG(os.stat(path).st_mode)  # noqa: PTH116 - as above
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise MachineError(f"cannot read {path}: {error.strerror}") from error


def _uids(names: list[str]) -> list[str]:
    found = (name.removesuffix(end) for name in names for end in (_RECORD, _ASIDE) if name.endswith(end))
    return sorted({uid for uid in found if is_uid(uid)})


def _signature(found: os.stat_result) -> tuple[int, int, int]:
    # a record is replaced whole, by another file: what a reader knows of the same file stays true
    return found.st_ino, found.st_mtime_ns, found.st_size


def _entry(uid: str, content: bytes) -> Entry:
    try:
        if _HEADS.decode(content).schema > SCHEMA:
            return Entry(uid, "newer")
        record = _RECORDS.decode(content)
    except (msgspec.DecodeError, RecursionError):
        return Entry(uid, "broken")
    return Entry(uid, "readable", record) if _is_sound(uid, record) else Entry(uid, "broken")


def _is_sound(uid: str, record: Record) -> bool:
    """Whether the words of a record may become names of files and folders."""
    return (
        record.uid == uid
        and is_uid(uid)
        and bool(record.results)
        and all(
            is_device_name(result.device) and _is_name(result.bus) and _is_name(result.address)
            for result in record.results
        )
    )


def _is_name(text: str) -> bool:
    return bool(text) and "/" not in text and "\0" not in text and text not in (".", "..")


def _is_boot(name: str) -> bool:
    return is_uid(name) or name == NO_BOOT
