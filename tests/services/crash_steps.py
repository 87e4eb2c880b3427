"""Runs one piece of work again and again and dies at its first, second, ... step that changes a file.

`python -m tests.services.crash_steps FOLDER WORK` prints one JSON object per step. A child process does the
work; an audit hook in it sends SIGKILL to itself just before its n-th change of a file below FOLDER. Nothing
of the code under test is replaced. A process of its own, because a fork of one with threads may hang.
"""

import json
import os
import signal
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.claim_bench import Bench
from tests.unit.claims.shapes import ADAPTER, GPU, adapter, graphics_card

CHANGES = frozenset({"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.chmod", "open"})
UID = str(uuid.UUID(int=7))
DEVICES = (ADAPTER, GPU)
Work = Callable[[Bench], object]


def prepare(bench: Bench) -> None:
    bench.prepare(bench.claim(*DEVICES, uid=UID))


def unprepare(bench: Bench) -> None:
    bench.unprepare(bench.claim(*DEVICES, uid=UID))


def reconcile(bench: Bench) -> None:
    bench.reconcile()


def _unplug(bench: Bench) -> None:
    bench.machine.remove("sys/devices/pci0000:00/0000:00:14.0/usb1/1-1")


def _prepared_and_unplugged(bench: Bench) -> None:
    prepare(bench)
    _unplug(bench)


def _prepared_and_emptied(bench: Bench) -> None:
    prepare(bench)
    for path in bench.cdi.iterdir():
        path.unlink()
    bench.cdi.rmdir()


def _prepared_and_broken(bench: Bench) -> None:
    prepare(bench)
    next((bench.plugin_dir / "claims").rglob("*.json")).write_bytes(b"{")


def _orphaned(bench: Bench) -> None:
    prepare(bench)
    bench.store.remove(UID)


# the work, and what comes before it without dying
WORKS: dict[str, tuple[Work, Work]] = {
    "prepare": (lambda _: None, prepare),
    "prepare again after an unplug": (_prepared_and_unplugged, prepare),
    "prepare anew over a broken record": (_prepared_and_broken, prepare),
    "unprepare": (prepare, unprepare),
    "unprepare of a broken record": (_prepared_and_broken, unprepare),
    "make a spec safe": (_prepared_and_unplugged, reconcile),
    "make a spec that vanished": (_prepared_and_emptied, reconcile),
    "set a record aside": (_prepared_and_broken, reconcile),
    "remove an orphan": (_orphaned, reconcile),
}


def run(folder: Path, before: Work, work: Work, step: int) -> dict[str, Any]:
    """Do the work on a fresh machine, dying at `step`; what was left, and what each way out makes of it."""
    results: dict[str, Any] = {"step": step}
    ways: dict[str, Work] = {"again": work, "pass": reconcile, "unprepare": unprepare}
    for way, finish in ways.items():
        bench = _machine(folder / f"{step}-{way}")
        before(bench)
        results["died"] = _die_at(step, bench, work)
        bench.restart()
        results["left"] = _state(bench)
        finish(bench)
        results[way] = _state(bench)
        with bench.store.lock(1.0):
            bench.store.sweep()
            bench.specs.sweep()
        results[way]["after sweep"] = _temporary(bench)
    return results


def _machine(folder: Path) -> Bench:
    bench = Bench(folder)
    adapter(bench.machine)
    graphics_card(bench.machine)
    return bench


def _die_at(step: int, bench: Bench, work: Work) -> bool:
    child = os.fork()
    if child == 0:
        _watch(step, str(bench.folder))
        try:
            work(bench)
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


def _watch(step: int, folder: str) -> None:
    seen = 0

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal seen
        if event not in CHANGES or not _changes(event, arguments, folder):
            return
        seen += 1
        if seen == step:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def _changes(event: str, arguments: tuple[Any, ...], folder: str) -> bool:
    if event == "os.chmod":
        return True  # by file descriptor: there is one caller
    if event == "open" and not arguments[2] & (os.O_WRONLY | os.O_RDWR):
        return False
    return str(arguments[0]).startswith(folder) and not str(arguments[0]).endswith(".lock")


def _state(bench: Bench) -> dict[str, Any]:
    records = {entry.uid: entry.form for entry in bench.store.entries()}
    specs = {
        device: paths
        for path in sorted(bench.cdi.glob("*.json"))
        for device, paths in bench.paths(bench.claim(uid=path.stem.partition("_")[2])).items()
    }
    return {"records": records, "specs": specs, "temporary": _temporary(bench)}


def _temporary(bench: Bench) -> int:
    return sum("/.liken-" in path for path in bench.files())


def main(folder: Path, word: str) -> None:
    before, work = WORKS[word]
    step, died = 0, True
    while died:
        step += 1
        result = run(folder, before, work, step)
        died = result["died"]
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
