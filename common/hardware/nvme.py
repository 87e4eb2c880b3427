"""NVMe multipath: namespaces that live below virtual/nvme-subsystem and belong to a controller elsewhere.

The kernel names such a namespace after its subsystem (nvme<subsystem>n<namespace>) and the hidden disk of
each path nvme<subsystem>c<controller>n<namespace>, below that controller; kernel source, drivers/nvme/host.
"""

import re

import msgspec

from common.hardware.delivery import by_path, node_path
from common.hardware.model import Node
from common.hardware.tree import Tree

_SUBSYSTEMS = "sys/devices/virtual/nvme-subsystem"
_CONTROLLER = re.compile(r"nvme\d+")
_HEAD = re.compile(r"(?:nvme|ng)(\d+)n\d+")
_HIDDEN = re.compile(r"nvme(\d+)c\d+n\d+")


class Multipath(msgspec.Struct, frozen=True):
    """Namespace nodes by controller ("nvme3"); the controllers whose namespaces are reached from two
    functions, with the namespace; the nodes that belong to no known controller; and all nodes there are.
    """

    nodes: dict[str, tuple[Node, ...]] = msgspec.field(default_factory=dict)
    shared: dict[str, str] = msgspec.field(default_factory=dict)
    unmapped: tuple[Node, ...] = ()
    every: tuple[Node, ...] = ()


def multipath(tree: Tree) -> Multipath:
    """All multipath namespaces of this machine; nothing on a machine without any."""
    subsystems = tree.entries(_SUBSYSTEMS)
    found = Multipath()
    unmapped: list[Node] = []
    every: list[Node] = []
    paths: dict[str, set[str]] | None = None
    for name in subsystems.dirs if subsystems is not None else ():
        nodes = _namespaces(tree, f"{_SUBSYSTEMS}/{name}")
        if not nodes:
            continue
        every.extend(nodes)
        controllers = _linked(tree, f"{_SUBSYSTEMS}/{name}")
        if not controllers:
            paths = paths if paths is not None else _hidden_paths(tree)
            controllers = _by_number(tree, paths, nodes)
        _assign(found, unmapped, nodes, controllers)
    return Multipath(found.nodes, found.shared, tuple(unmapped), tuple(every))


def _assign(
    found: Multipath, unmapped: list[Node], nodes: tuple[Node, ...], controllers: dict[str, str]
) -> None:
    if not controllers:
        unmapped.extend(nodes)
    elif len(set(controllers.values())) > 1:
        head = nodes[0].devname
        found.shared.update(dict.fromkeys(controllers, f"{head} has paths on two PCI functions"))
    else:
        for controller in controllers:
            found.nodes[controller] = (*found.nodes.get(controller, ()), *nodes)


def _namespaces(tree: Tree, subsystem: str) -> tuple[Node, ...]:
    """Block nodes with their partitions, and generic nodes, of one subsystem."""
    found = []
    waiting = [subsystem]
    while waiting:
        here = waiting.pop()
        entries = tree.entries(here)
        if entries is None:
            continue
        if "dev" in entries.files and here != subsystem:
            path = node_path(tree.read(f"{here}/uevent"))
            if path:
                found.append(Node(path, tree.link_name(f"{here}/subsystem"), here))
        heads = (
            entries.dirs if here != subsystem else [name for name in entries.dirs if _HEAD.fullmatch(name)]
        )
        waiting.extend(f"{here}/{name}" for name in heads)
    return tuple(sorted(found, key=by_path))


def _linked(tree: Tree, subsystem: str) -> dict[str, str]:
    """The controllers a subsystem links to, with the place each hangs on: its directory's parent."""
    entries = tree.entries(subsystem)
    found = {}
    for name in sorted(entries.links) if entries is not None else ():
        if _CONTROLLER.fullmatch(name):
            target = tree.target(f"{subsystem}/{name}")
            if target is not None:
                found[name] = _function(target)
    return found


def _function(controller: str) -> str:
    """The place above .../nvme/nvme3 or .../nvme3: two controllers of one function give the same."""
    return controller.rpartition("/")[0].removesuffix("/nvme")


def _hidden_paths(tree: Tree) -> dict[str, set[str]]:
    """Subsystem number -> controllers that have a hidden path disk of it, from class/nvme."""
    found: dict[str, set[str]] = {}
    for controller in tree.names("sys/class/nvme"):
        place = tree.target(f"sys/class/nvme/{controller}")
        entries = tree.entries(place) if place is not None else None
        for name in entries.dirs if entries is not None else ():
            match = _HIDDEN.fullmatch(name)
            if match:
                found.setdefault(match.group(1), set()).add(controller)
    return found


def _by_number(tree: Tree, paths: dict[str, set[str]], nodes: tuple[Node, ...]) -> dict[str, str]:
    """Controllers by hidden path disks, else the controller whose number equals the subsystem's."""
    match = _HEAD.match(nodes[0].directory.removeprefix(_SUBSYSTEMS).split("/")[2])
    number = match.group(1) if match else ""
    found = {}
    for controller in sorted(paths.get(number) or {f"nvme{number}"}):
        target = tree.target(f"sys/class/nvme/{controller}")
        if target is not None:
            found[controller] = _function(target)
    return found
