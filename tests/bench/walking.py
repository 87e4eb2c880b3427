"""How long a walk of /sys takes: recordings, made-up machines, and a scan of the same files beside it."""

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
from tests.bench.table import Row
from tests.builders import MachineBuilder

OURS = Path(__file__).parents[1] / "machines/recordings"
MACHINES = Path(os.environ.get("LIKEN_MACHINES", Path(__file__).parents[3] / "shared/machines"))
LARGE = "server-dgx-b200"
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # where /sys lies too, and quicker to fill
NODE_COUNTS = (100, 1000, 10_000)
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


def measure() -> Iterator[Row]:
    with tempfile.TemporaryDirectory(prefix="bench-", dir=MEMORY) as folder:
        for name, root in [*_recordings(Path(folder)), *_synthetic(Path(folder))]:
            tree = Tree(root)
            times = 1 if name.startswith(f"a machine of {NODE_COUNTS[-1]} ") else 5
            warm = median(partial(walk, tree, Machine(), "n", "2026-01-01T00:00:00Z"), times)
            scan = median(partial(baseline, root), times)
            cold = _cold(root)
            promise = "75 ms" if name == LARGE else ""
            yield Row(
                "Walk of /sys",
                f"{name}, warm (first in a fresh process: {cold * 1000:.0f} ms)",
                warm * 1000,
                "ms",
                f"{scan * 1000:.1f} ms to read uevent, subsystem and path of all that the index folders list"
                f" (x{warm / scan:.1f})",
                promise,
            )
            if name == LARGE:
                yield from _one_slot(tree)


def _one_slot(tree: Tree) -> Iterator[Row]:
    """What prepare and a pass pay per device."""
    found = walk(tree, Machine(), "n", "2026-01-01T00:00:00Z").devices
    facts = storage_facts(tree, Machine())
    devices = [found[number * len(found) // 8] for number in range(8)]
    per_slot = median(
        lambda: [inspect(tree, Machine(), each.bus, each.address, facts) for each in devices]
    ) / len(devices)
    yield Row(
        "Walk of /sys", f"one slot of {LARGE}, as prepare and each pass look at it", per_slot * 1000, "ms"
    )
    yield Row(
        "Walk of /sys",
        f"storage facts of {LARGE}",
        median(lambda: storage_facts(tree, Machine())) * 1000,
        "ms",
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


def baseline(root: Path) -> int:
    """A plain scan: for each entry of bus/*/devices and dev/*, its real path, uevent and subsystem."""
    count = 0
    sys_folder = root / "sys"
    folders = [
        *sys_folder.glob("bus/pci/devices"),
        *sys_folder.glob("bus/usb/devices"),
        *sys_folder.glob("dev/*"),
    ]
    for folder in folders:
        with os.scandir(folder) as entries:
            for entry in entries:
                os.path.realpath(entry.path)
                for read in (_content, os.readlink):
                    name = "uevent" if read is _content else "subsystem"
                    try:
                        read(f"{entry.path}/{name}")
                    except OSError:
                        continue  # not every directory has both
                count += 1
    return count


def _content(path: str) -> bytes:
    handle = os.open(path, os.O_RDONLY)
    try:
        return os.read(handle, 4096)
    finally:
        os.close(handle)


def _cold(root: Path) -> float:
    done = subprocess.run(
        [sys.executable, "-c", _COLD, str(root)], capture_output=True, text=True, check=True
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
