"""`liken devices` and `liken slices`: the hardware of this machine or of a recording. Needs no service."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from common.hardware.machine import Machine, file_of, load_machine, machine_of
from common.hardware.tree import Tree, open_tree
from common.hardware.walk import walk
from common.inventory import Device, Inventory
from common.settings import Settings, read_settings
from services.console.output import Format, complain, print_as, print_table
from services.console.state import State

_NODES_SHOWN = 3  # of a device in the narrow table; a camera controller can have dozens


class Opened(NamedTuple):
    """A machine to look at."""

    tree: Tree
    machine: Machine
    settings: Settings


@contextmanager
def opened(root: Path | None, folder: Path | None = None) -> Iterator[Opened]:
    """The machine below `root` (a folder or a recording), else the one that is up, else this one.

    `folder`: the state folder of `liken up`, None for the usual one. Raises RequestError when there is no
    machine at `root`, or its machine file is wrong.
    """
    environ = _environment(root, folder)
    settings = read_settings(None, environ)
    if root is None or root == Path("/"):
        with open_tree(settings.root, settings.host_proc, settings.host_modules) as tree:
            yield Opened(tree, load_machine(settings.machine), settings)
        return
    with open_tree(root) as tree:
        own = "LIKEN_MACHINE" not in environ
        declared = machine_of(tree, file_of(root)) if own else load_machine(settings.machine)
        yield Opened(tree, declared, settings)


def _environment(root: Path | None, folder: Path | None) -> Mapping[str, str]:
    state = State(folder)
    if root is not None or (folder is None and state.holder() is None):
        return os.environ
    return {**os.environ, **state.read().environment}


def look(root: Path | None, folder: Path | None = None) -> Inventory:
    """One walk over the machine that `opened` gives."""
    with opened(root, folder) as machine:
        return _walk(machine, machine.settings.node_name)


def _walk(machine: Opened, node: str) -> Inventory:
    taken = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return walk(machine.tree, machine.machine, node, taken)


def devices(root: Path | None, folder: Path | None, output: Format) -> None:
    """Print the inventory; its JSON is the one that goes over the bus."""
    inventory = look(root, folder)

    def table(wide: bool) -> None:
        columns = ["NAME", "KINDS", "SHARED", "NODES", "HARDWARE"] + (["DRIVER", "SERIAL"] if wide else [])
        rows = [_row(device, wide) for device in inventory.devices]
        print_table(columns, rows, "No hardware to claim: liken explain says why for each piece.")

    names = [device.name for device in inventory.devices]
    print_as(output, inventory, names=lambda: names, table=table)


def slices(root: Path | None, folder: Path | None, node: str | None, output: Format) -> None:
    """Print the ResourceSlices that the publisher would make of this hardware in an empty cluster."""
    from services.publisher.slices import devices_of
    from services.publisher.slices import slices as wanted

    named = read_settings(None, {**os.environ, "NODE_NAME": node}).node_name if node is not None else None
    with opened(root, folder) as machine:
        inventory = _walk(machine, named or machine.settings.node_name)
    made = wanted(inventory, inventory.node, driver=machine.settings.driver)

    def table(_wide: bool) -> None:
        rows = [
            [
                item["metadata"]["name"],
                item["spec"]["pool"]["name"],
                str(item["spec"]["pool"]["generation"]),
                str(len(devices_of(item))),
            ]
            for item in made.slices
        ]
        print_table(["NAME", "POOL", "GENERATION", "DEVICES"], rows, "No slices.")

    listed = {"apiVersion": "v1", "kind": "List", "items": list(made.slices)}
    names = [item["metadata"]["name"] for item in made.slices]
    print_as(output, listed, names=lambda: names, table=table, documents=made.slices)
    for line in [*map(str, made.left_out), *(f"device {name} is one too many" for name in made.overflow)]:
        complain(line)


def _row(device: Device, wide: bool) -> list[str]:
    paths = [node.path for node in device.nodes]
    shown = paths if wide else paths[:_NODES_SHOWN]
    more = len(paths) - len(shown)
    return [
        device.name,
        ",".join(device.kinds) or "usbfs",
        "yes" if device.shareable else "",
        " ".join(shown) + (f" +{more}" if more else ""),
        _text(device, "name"),
    ] + ([_text(device, "driver"), _text(device, "serial")] if wide else [])


def _text(device: Device, attribute: str) -> str:
    return str(device.attributes.get(attribute, {}).get("string", ""))
