"""A cluster that is a folder of YAML files, for a machine without Kubernetes.

slices/<name>.yaml, claims/<namespace>/<name>.yaml (ResourceClaims with status.allocation), events.yaml.
"""

import hashlib
import os
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from common.cluster.port import ClaimMissing, ClusterUnavailable, Raw, SliceEvent, SliceList
from common.errors import MachineError
from common.files import write_atomically
from common.yamltext import MAX_BYTES, YamlError, read_yaml

POLL_S = 2.0  # a look at a folder's and its files' times; nothing is read while they stay the same
MAX_EVENTS = 20
MAX_STEM = 200  # a file name holds 255 bytes; object names reach 253

_BaseDumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


class _Dumper(_BaseDumper):  # type: ignore[misc]
    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - the signature of the base class
        return True  # what is in an object twice is written twice: readers refuse aliases


class LocalCluster:
    """The folder `root` as a cluster without nodes. One writer of slices at a time."""

    def __init__(self, root: Path, poll_s: float = POLL_S) -> None:
        self._root = root
        self._poll_s = poll_s
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._known: dict[str, Raw] = {}  # the slices as they were listed, seen or written last
        self._seen_at: dict[str, tuple[int, int]] | None = None
        self._wrote = False  # a file that goes right after a write leaves no other trace

    def claim(self, namespace: str, name: str, timeout_s: float) -> Raw:
        del timeout_s  # a file answers at once
        path = claim_path(self._root, namespace, name)
        try:
            return _read(path)
        except FileNotFoundError as error:
            raise ClaimMissing(
                f"there is no claim {namespace}/{name} in {self._root}; make it with: liken claim"
            ) from error

    def warm(self) -> None:
        """Nothing to do: the libraries are loaded."""

    def node_uid(self) -> str | None:
        return ""

    def list_slices(self) -> SliceList:
        with self._lock:
            self._known = self._read_slices()
            return SliceList(list(self._known.values()), "")

    def watch_slices(self, version: str) -> Iterator[SliceEvent]:
        """What differs from the last list and our own writes. `version` means nothing here."""
        del version
        while not self._closed.is_set():
            yield from self._look()
            self._closed.wait(self._poll_s)

    def apply_slice(self, body: Raw) -> Raw:
        name = body["metadata"]["name"]
        path = self._slice_path(name)
        with self._lock:
            _make(path.parent)
            _write(path, body)
            self._known[name] = body
            self._wrote = True
        return body

    def delete_slice(self, held: Raw) -> None:
        name = held["metadata"]["name"]
        with self._lock:
            self._slice_path(name).unlink(missing_ok=True)
            self._known.pop(name, None)

    def event(self, reason: str, note: str, *, warning: bool) -> None:
        path = self._root / "events.yaml"
        try:
            events = list(_load(path) or [])
        except (OSError, YamlError, TypeError):
            events = []  # messages for people: a damaged file is begun anew
        events.append(
            {
                "time": datetime.now(UTC).isoformat(timespec="seconds"),
                "type": "Warning" if warning else "Normal",
                "reason": reason,
                "note": note,
            }
        )
        _make(self._root)
        _write(path, events[-MAX_EVENTS:])

    def close(self) -> None:
        self._closed.set()

    def _look(self) -> list[SliceEvent]:
        with self._lock:  # a write of ours between times and content would hide what happens to it next
            times = self._times()
            if times == self._seen_at and not self._wrote:
                return []
            seen = self._read_slices()
            changes = list(_changes(self._known, seen))
            self._known, self._seen_at, self._wrote = seen, times, False
        return changes

    def _read_slices(self) -> dict[str, Raw]:
        found = (_slice(path) for path in sorted(self._slice_files()))
        return {one["metadata"]["name"]: one for one in found if one is not None}

    def _slice_path(self, name: str) -> Path:
        return self._root / "slices" / _file_name(name)

    def _slice_files(self) -> list[Path]:
        return list((self._root / "slices").glob("*.yaml"))

    def _times(self) -> dict[str, tuple[int, int]]:
        found = {}
        try:
            with os.scandir(self._root / "slices") as entries:
                for entry in entries:
                    if entry.name.endswith(".yaml"):
                        status = entry.stat()
                        found[entry.name] = (status.st_mtime_ns, status.st_ino)
        except FileNotFoundError:
            return found  # no folder yet, or a file that went away just now: the next look tells
        return found


def claim_path(root: Path, namespace: str, name: str) -> Path:
    """Where the local cluster at `root` keeps a claim. Raises ClaimMissing for a name that is no name."""
    for part in (namespace, name):
        if not part or "/" in part or part.startswith("."):
            raise ClaimMissing(f"{part!r} is no name of a claim or namespace")
    return root / "claims" / namespace / _file_name(name)


def _file_name(name: str) -> str:
    if len(name) > MAX_STEM:
        name = f"{name[:MAX_STEM]}-{hashlib.sha256(name.encode()).hexdigest()[:16]}"
    return f"{name}.yaml"


def _changes(known: dict[str, Raw], seen: dict[str, Raw]) -> Iterator[SliceEvent]:
    for name in sorted(known.keys() - seen.keys()):
        yield SliceEvent("DELETED", known[name])
    for name in sorted(seen):
        if known.get(name) != seen[name]:
            yield SliceEvent("MODIFIED" if name in known else "ADDED", seen[name])


def _read(path: Path) -> Raw:
    try:
        content = _load(path)
    except FileNotFoundError:
        raise
    except (OSError, YamlError) as error:
        raise ClusterUnavailable(f"cannot read {path}: {error}; repair or remove that file") from error
    if not isinstance(content, dict) or not isinstance(content.get("metadata"), dict):
        raise ClusterUnavailable(f"{path} holds no object with metadata; repair or remove that file")
    return content


def _load(path: Path) -> Any:
    with path.open("rb") as file:
        return read_yaml(file.read(MAX_BYTES + 1))


def _slice(path: Path) -> Raw | None:
    """One slice, None when its file went away between two looks."""
    try:
        found = _read(path)
    except FileNotFoundError:
        return None
    if not isinstance(found["metadata"].get("name"), str):
        raise ClusterUnavailable(f"{path} holds no object with a name; repair or remove that file")
    return found


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ClusterUnavailable(
            f"cannot make {folder}: {error.strerror}; set LIKEN_LOCAL to another place"
        ) from error


def _write(path: Path, content: object) -> None:
    text = str(yaml.dump(content, Dumper=_Dumper, sort_keys=False, allow_unicode=True))
    try:
        write_atomically(path, text.encode())
    except MachineError as error:
        raise ClusterUnavailable(str(error)) from error
