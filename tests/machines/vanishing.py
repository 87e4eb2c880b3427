"""A recorded machine that changes, or cannot be read, while somebody reads it."""

from collections.abc import Mapping
from pathlib import Path

from common.hardware.archive import Archive, read_archive
from common.hardware.tree import Entries, Tree, TreeError


class Vanishing:
    """The source of a tree: after a given number of reads a folder is gone, links to it and all.

    `moments`: number of the read -> the folder that goes then. `broken`: folders whose files and listing
    cannot be read from the start. `dangling`: links to what is gone stay, as for a moment in the kernel.
    """

    def __init__(
        self,
        archive: Archive,
        moments: Mapping[int, str] | None = None,
        broken: frozenset[str] = frozenset(),
        dangling: bool = False,
    ) -> None:
        self._archive = archive
        self._moments = dict(moments or {})
        self._broken = broken
        self._dangling = dangling
        self._gone: set[str] = set()
        self.reads = 0

    def tree(self) -> Tree:
        return Tree(Path("/"), source=self)

    def settle(self) -> None:
        """Let everything go that is still to go."""
        self._gone.update(self._moments.values())
        self._moments.clear()

    def read(self, path: str) -> bytes | None:
        if self._is_gone(path):
            return None
        self._refuse(path.rpartition("/")[0])
        return self._archive.file(path)

    def link(self, path: str) -> str | None:
        if self._is_gone(path):
            return None
        target = self._archive.link(path)
        if target is not None and not self._dangling and self._leads_away(path, target):
            return None
        return target

    def entries(self, path: str) -> Entries | None:
        folder = None if self._is_gone(path) else self._archive.folder(path)
        if folder is None:
            return None
        self._refuse(path)
        links = {name for name, target in folder.links.items() if self._stays(path, name, target)}
        dirs = sorted(name for name in folder.dirs if f"{path}/{name}" not in self._gone)
        return Entries(dirs, links, set(folder.files))

    def _stays(self, path: str, name: str, target: str) -> bool:
        return self._dangling or not self._leads_away(f"{path}/{name}", target)

    def _leads_away(self, path: str, target: str) -> bool:
        place = f"/{path}".rsplit("/", 1)[0] + "/" + target
        parts: list[str] = []
        for part in place.split("/"):
            if part == "..":
                del parts[-1:]
            elif part not in {"", "."}:
                parts.append(part)
        return self._is_below("/".join(parts))

    def _is_gone(self, path: str) -> bool:
        self.reads += 1
        going = self._moments.pop(self.reads, None)
        if going is not None:
            self._gone.add(going)
        return self._is_below(path)

    def _is_below(self, path: str) -> bool:
        return any(path == gone or path.startswith(f"{gone}/") for gone in self._gone)

    def _refuse(self, folder: str) -> None:
        if folder in self._broken:
            raise TreeError(f"cannot read /{folder}: Input/output error")


def device_folders(path: Path) -> tuple[Archive, list[str]]:
    """A recording in memory, and every folder below sys/devices, sorted."""
    archive = read_archive(path)
    return archive, sorted(name for name in archive.folders if name.startswith("sys/devices/"))
