"""Watches every file that a container runtime would read, with code of this folder only."""

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.model import Model

LOOK_S = 0.01
PLACEHOLDERS = ("/dev/liken.sh/absent/", "/dev/liken.sh/withheld/")
PREFIX = "liken.sh-device_"


def spec_paths(path: Path) -> list[tuple[str, list[str]]] | None:
    """Each device of a spec with the paths it names, sorted; None when there is no such file now."""
    try:
        document = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    return sorted(
        (device["name"], sorted(node["path"] for node in device["containerEdits"]["deviceNodes"]))
        for device in document["devices"]
    )


def spec_nodes(path: Path) -> set[str] | None:
    """The node paths in a spec that are no placeholder; None when there is no such file now."""
    devices = spec_paths(path)
    if devices is None:
        return None
    return {node for _, paths in devices for node in paths if not node.startswith(PLACEHOLDERS)}


@dataclass
class Wrong:
    """A spec that named a node of hardware that is not the claim's."""

    uid: str
    device: str
    nodes: frozenset[str]
    since: float
    disturbed: bool


@dataclass
class Tally:
    """What the checker saw."""

    looks: int = 0
    specs: int = 0
    durations_quiet: list[float] = field(default_factory=list)
    durations_disturbed: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


class Checker:
    """Looks at the CDI folder all the time until `close`.

    `disturbed` tells whether something is killed, full or stopped now: then the longer bound applies.
    """

    def __init__(
        self, cdi: Path, model: Model, disturbed: Callable[[], bool], bound_s: float, bound_disturbed_s: float
    ) -> None:
        self.tally = Tally()
        self._cdi = cdi
        self._model = model
        self._disturbed = disturbed
        self._bounds = {False: bound_s, True: bound_disturbed_s}
        self._wrong: dict[str, Wrong] = {}
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="checker", daemon=True)
        self._thread.start()

    def close(self) -> Tally:
        self._closed.set()
        self._thread.join()
        return self.tally

    def _run(self) -> None:
        while not self._closed.wait(LOOK_S):
            try:
                self._look()
            except Exception as error:  # noqa: BLE001 - a broken checker must fail the run, not end in silence
                self.tally.failures.append(f"the checker failed: {error!r}")
                return

    def _look(self) -> None:
        self.tally.looks += 1
        for held in self._model.held():
            nodes = spec_nodes(self._cdi / f"{PREFIX}{held.uid}.json")
            if nodes is None:
                self._settle(held.uid)
                continue
            self.tally.specs += 1
            with self._model.lock:
                foreign = nodes - self._model.truth[held.port.device]
            if foreign:
                self._note(held.uid, held.port.device, frozenset(foreign))
            else:
                self._settle(held.uid)

    def _note(self, uid: str, device: str, nodes: frozenset[str]) -> None:
        now = time.monotonic()
        wrong = self._wrong.setdefault(uid, Wrong(uid, device, nodes, now, disturbed=False))
        wrong.disturbed = wrong.disturbed or self._disturbed()
        if now - wrong.since > self._bounds[wrong.disturbed]:
            kind = "disturbed" if wrong.disturbed else "quiet"
            self.tally.failures.append(
                f"the spec of {device} ({uid}) named {sorted(nodes)}, which is not its own, for"
                f" {now - wrong.since:.2f} s ({kind})"
            )
            wrong.since = now

    def _settle(self, uid: str) -> None:
        wrong = self._wrong.pop(uid, None)
        if wrong is None:
            return
        target = self.tally.durations_disturbed if wrong.disturbed else self.tally.durations_quiet
        target.append(time.monotonic() - wrong.since)
