"""What the kernel tells nobody: a program takes or lets go of a USB interface."""

from collections.abc import Mapping

from common.inventory import DeviceNode
from common.projection import UNPLUGGED, Projection

Nodes = Mapping[str, tuple[DeviceNode, ...]]


def by_usbfs(before: Nodes, after: Nodes, projection: Projection) -> bool:
    """Whether a spec came to differ by nothing but programs that took or let go of its USB interfaces.

    The kernel suppresses the events when usbfs becomes the driver of an interface or ceases to be
    (drivers/usb/core/devio.c), so nobody lost one. The interface's spec names its usbfs node alone on one
    side of such a change and a placeholder on the other. A whole USB device stays as it is.
    """
    record = projection.entry.record if projection.entry else None
    if record is None:
        return False
    interfaces = {result.device for result in record.results if result.kinds}
    reasons = {one.device: one.reason for one in projection.devices}
    differing = [name for name in reasons if _paths(before, name) != _paths(after, name)]
    return bool(differing) and all(
        name in interfaces
        and reasons[name] != UNPLUGGED
        and (_only_usbfs(before, name), _only_usbfs(after, name)) in ((True, False), (False, True))
        and (_placeholder(before, name) or _placeholder(after, name))
        for name in differing
    )


def _paths(nodes: Nodes, name: str) -> list[str]:
    return sorted(node.path for node in nodes.get(name, ()))


def _only_usbfs(nodes: Nodes, name: str) -> bool:
    paths = _paths(nodes, name)
    return len(paths) == 1 and paths[0].startswith("/dev/bus/usb/")


def _placeholder(nodes: Nodes, name: str) -> bool:
    return any(path.endswith((f"/absent/{name}", f"/withheld/{name}")) for path in _paths(nodes, name))
