"""What the product says of a recorded machine, read once in a test run."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from common.hardware.machine import Machine
from common.hardware.survey import Survey, survey
from common.hardware.tree import Tree, open_tree
from common.hardware.walk import walk
from common.inventory import Device, Inventory
from tests.machines.expectation import FLAGS, Offer
from tests.machines.recording import load, write_tree

TAKEN = "2026-01-02T03:04:05Z"


@cache
def _in_memory(archive: Path) -> Tree:
    with open_tree(archive) as tree:
        return tree


@contextmanager
def opened(archive: Path) -> Iterator[Tree]:
    """The product's view of a recording; a dump of single devices is put on disk first."""
    if archive.suffix != ".umockdev":
        yield _in_memory(archive)
        return
    with tempfile.TemporaryDirectory() as folder:
        yield Tree(write_tree(load(archive), Path(folder)))


@cache
def inventory(archive: Path, machine: Machine | None = None) -> Inventory:
    """One walk over a recording; `machine` is what the machine file declares, by default nothing."""
    with opened(archive) as tree:
        return walk(tree, machine or Machine(), "node", TAKEN)


def surveyed(archive: Path) -> Survey:
    """Everything that a pass over a recording found, with nothing declared."""
    with opened(archive) as tree:
        return survey(tree, Machine())


def offer(device: Device) -> Offer:
    """A published device in the terms of the expectation files."""
    subsystem = device.attributes.get("subsystem", {}).get("string", "")
    return Offer(
        hardware=f"{device.bus} {device.address}",
        kinds=device.kinds,
        subsystem=str(subsystem),
        shareable=device.shareable,
        flags=tuple(sorted(flag for name, flag in FLAGS.items() if name in device.attributes)),
        nodes=tuple(sorted(node.path for node in device.nodes)),
    )
