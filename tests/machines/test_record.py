"""`liken record` on every recorded machine: the recording of a recording offers the same."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from common.hardware.machine import machine_of
from common.hardware.record import record
from common.hardware.tree import Tree, open_tree
from common.hardware.walk import walk
from tests.machines.recording import archives, machine_name


def offered(tree: Tree) -> Any:
    """The inventory as JSON values, without serial numbers."""
    inventory = msgspec.to_builtins(walk(tree, machine_of(tree), "node", "now"))
    inventory["boot"] = ""
    for device in inventory["devices"]:
        device["attributes"].pop("serial", None)
    return inventory


@pytest.mark.parametrize("archive", archives(), ids=machine_name)
def test_a_recording_of_a_machine_offers_what_the_machine_offers(archive: Path, tmp_path: Path) -> None:
    with open_tree(archive) as tree:
        live = offered(tree)
        copy = tmp_path / "copy.tar"
        copy.write_bytes(record(tree, machine_of(tree)).pack(".tar"))
    with open_tree(copy) as tree:
        assert offered(tree) == live
