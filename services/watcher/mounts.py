"""The host's mount table and its swaps: a change decides which disks the machine needs.

The kernel tells of changes by POLLPRI on proc/1/mountinfo and proc/swaps, across mount namespaces. Plain
files, as a played machine has, cannot be polled (epoll says EPERM); their folders are watched by inotify.
"""

import logging
import os
import re
import select
from pathlib import Path

from common.inotify import CLOSE_WRITE, DELETE, MOVED_TO, Inotify

log = logging.getLogger(__name__)

# File systems that never sit on a disk. A node that runs pods makes and drops such mounts all day.
_WITHOUT_DISK = re.compile(
    "autofs|binfmt_misc|bpf|cgroup|cgroup2|configfs|debugfs|devpts|devtmpfs|efivarfs|fusectl|hugetlbfs|mqueue"
    "|nfs|nfs4|nsfs|overlay|proc|pstore|ramfs|rpc_pipefs|securityfs|selinuxfs|shm|sysfs|tmpfs|tracefs"
)


def users_of_disks(mountinfo: str) -> frozenset[tuple[str, str, str]]:
    """(major:minor, file system type, source) of each mount that may use a disk; proc_pid_mountinfo(5)."""
    found = set()
    for line in mountinfo.splitlines():
        mount, _, file_system = line.partition(" - ")
        fields, (kind, source, *_) = mount.split(), [*file_system.split(), "", ""]
        if len(fields) > 2 and not _WITHOUT_DISK.fullmatch(kind):
            found.add((fields[2], kind, source))
    return frozenset(found)


class MountWatch:
    """Tells when the set of disks in use may have changed; that a table cannot be read is a change too."""

    def __init__(self, proc: Path) -> None:
        self._tables = (proc / "1/mountinfo", proc / "swaps")
        self._files = select.epoll()
        self._open: list[int] = []
        self._folders: Inotify | None = None
        for table in self._tables:
            self._register(table)
        self._last = self._read()

    def fileno(self) -> int:
        return self._files.fileno()

    def changed(self) -> bool:
        """Whether the tables differ from those of the last call. Call it when the file is readable."""
        self._files.poll(0)  # takes the kernel's mark away
        if self._folders is not None:
            self._folders.drain()
        before, self._last = self._last, self._read()
        return before != self._last

    def close(self) -> None:
        self._files.close()
        for handle in self._open:
            os.close(handle)
        self._open.clear()
        if self._folders is not None:
            self._folders.close()
            self._folders = None

    def _register(self, table: Path) -> None:
        try:
            handle = os.open(table, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            log.warning("cannot follow %s: %s; changes show at the next walk", table, error.strerror)
            self._watch_folder(table.parent)
            return
        try:
            self._files.register(handle, select.EPOLLPRI)
            self._open.append(handle)
        except PermissionError:  # a plain file
            os.close(handle)
            self._watch_folder(table.parent)

    def _watch_folder(self, folder: Path) -> None:
        try:
            if self._folders is None:
                self._folders = Inotify()
                self._files.register(self._folders, select.EPOLLIN)
            self._folders.add(folder, CLOSE_WRITE | MOVED_TO | DELETE)
        except OSError as error:
            log.warning("cannot follow %s: %s; changes show at the next walk", folder, error.strerror)

    def _read(self) -> tuple[frozenset[tuple[str, str, str]] | None, str | None]:
        mountinfo, swaps = (_text(table) for table in self._tables)
        return None if mountinfo is None else users_of_disks(mountinfo), _devices(swaps)


def _text(table: Path) -> str | None:
    try:
        return table.read_text(errors="replace")
    except OSError:
        return None


def _devices(swaps: str | None) -> str | None:
    # the other columns count what is used
    return (
        None
        if swaps is None
        else "\n".join(sorted(line.split()[0] for line in swaps.splitlines() if line.strip()))
    )
