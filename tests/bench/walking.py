"""How long a walk of /sys takes, on recordings and made-up machines, beside plain reads of the same files."""

import json
import os
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from common.hardware.machine import Machine
from common.hardware.slot import inspect
from common.hardware.storage import storage_facts
from common.hardware.tree import Tree
from common.hardware.walk import walk
from common.inventory import Inventory
from tests.bench.replay import Replay, record
from tests.bench.table import Figure, Promise, Row
from tests.builders import MachineBuilder

OURS = Path(__file__).parents[1] / "machines/recordings"
MACHINES = Path(os.environ.get("LIKEN_MACHINES", Path(__file__).parents[3] / "shared/machines"))
LARGE = "server-dgx-b200"
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # where /sys lies too, and quicker to fill
NODE_COUNTS = (100, 1000, 10_000)
SMALL_TIMES = 50  # runs of what takes well below a millisecond
_COLD = """
import sys, time
from pathlib import Path
from common.hardware.machine import Machine
from common.hardware.tree import Tree
from common.hardware.walk import walk
begin = time.perf_counter()
walk(Tree(Path(sys.argv[1])), Machine(), "n", "2026-01-01T00:00:00Z")
print(time.perf_counter() - begin)
"""
_COLD_PLAIN = """
import json, sys, time
from pathlib import Path
from tests.bench.replay import Replay
replay = Replay(Path(sys.argv[1]), json.load(sys.stdin))
begin = time.perf_counter()
replay()
print(time.perf_counter() - begin)
"""


def measure() -> Iterator[Row]:
    with tempfile.TemporaryDirectory(prefix="bench-", dir=MEMORY) as folder:
        for name, root in [*_recordings(Path(folder)), *_synthetic(Path(folder))]:
            tree = Tree(root)
            times = 1 if name.startswith(f"a machine of {NODE_COUNTS[-1]} ") else 5
            same = record(root, _walk)
            yield Row(
                "Walk of /sys",
                f"{name}, warm",
                median(partial(_walk, tree), times) * 1000,
                "ms",
                (
                    Figure(
                        median(same, times) * 1000,
                        "ms",
                        f"the same {len(same)} files, links and folders by plain calls, warm",
                    ),
                    Figure(_cold(_COLD_PLAIN, root, same) * 1000, "ms", "that in a fresh process"),
                ),
                also=(Figure(_cold(_COLD, root, same) * 1000, "ms", "first in a fresh process"),),
                promise=Promise("75 ms", 75) if name == LARGE else None,
            )
            if name == LARGE:
                yield from _one_slot(root)


def _walk(tree: Tree) -> Inventory:
    return walk(tree, Machine(), "n", "2026-01-01T00:00:00Z")


def _one_slot(root: Path) -> Iterator[Row]:
    """What prepare and a pass pay per device."""
    tree = Tree(root)
    found = _walk(tree).devices
    facts = storage_facts(tree, Machine())
    devices = [found[number * len(found) // 8] for number in range(8)]

    def slots(tree: Tree) -> None:
        for each in devices:
            inspect(tree, Machine(), each.bus, each.address, facts)

    def storage(tree: Tree) -> None:
        storage_facts(tree, Machine())

    works: tuple[tuple[str, Callable[[Tree], None], int], ...] = (
        (f"one slot of {LARGE}, as prepare and each pass look at it (mean of 8)", slots, len(devices)),
        (f"storage facts of {LARGE}", storage, 1),
    )
    for what, work, count in works:
        same = record(root, work)
        yield Row(
            "Walk of /sys",
            what,
            median(partial(work, tree), SMALL_TIMES) * 1000 / count,
            "ms",
            (
                Figure(
                    median(same, SMALL_TIMES) * 1000 / count,
                    "ms",
                    f"the same {len(same)} files, links and folders by plain calls"
                    + (f", mean of {count}" if count > 1 else ""),
                ),
            ),
        )


def median(work: Callable[[], object], times: int = 5) -> float:
    """Median seconds of `times` runs after one to warm up."""
    work()
    taken = []
    for _ in range(times):
        begin = time.perf_counter()
        work()
        taken.append(time.perf_counter() - begin)
    return statistics.median(taken)


def _cold(script: str, root: Path, same: Replay) -> float:
    done = subprocess.run(
        [sys.executable, "-c", script, str(root)],
        input=json.dumps(same.asked),
        capture_output=True,
        text=True,
        check=True,
    )
    return float(done.stdout)


def _recordings(folder: Path) -> Iterator[tuple[str, Path]]:
    if not MACHINES.is_dir():
        print(f"only our own recordings: there is no {MACHINES} (LIKEN_MACHINES names another folder)")
    for archive in [*sorted(OURS.glob("*.tar.xz")), *sorted(MACHINES.glob("*.tar.xz"))]:
        root = folder / archive.name.removesuffix(".tar.xz")
        with tarfile.open(archive) as tar:
            tar.extractall(root, filter="tar")
        yield root.name, root


def _synthetic(folder: Path) -> Iterator[tuple[str, Path]]:
    for count in NODE_COUNTS:
        root = folder / f"made-{count}"
        machine = MachineBuilder(root)
        for number in range(count // 2):
            bus, port = divmod(number, 100)
            device = machine.usb(f"{bus + 1}-{port + 1}", devnum=port + 2)
            machine.tty(machine.interface(device, 0, driver="ftdi_sio"), f"ttyUSB{number}")
        yield f"a machine of {count} nodes (USB adapters)", root
