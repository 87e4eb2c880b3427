"""The kernel's uevents: their text, and which of them can change what a machine publishes.

Format (lib/kobject_uevent.c): `ACTION@DEVPATH`, then `KEY=VALUE` parts, each ended by a zero byte.
"""

import re
from typing import NamedTuple

MAX_BYTES = 16384  # the kernel's own buffer has 2048 (UEVENT_BUFFER_SIZE)
ACTIONS = ("add", "remove", "change", "move", "online", "offline", "bind", "unbind")  # kobject_uevent(9)
COUNTED = frozenset({"add", "remove", "bind", "unbind"})

_VIRTUAL = "/devices/virtual/"
# Virtual devices that deliveries depend on: uinput and uhid, NVMe multipath namespaces, holders of disks. A
# mapped disk gets its table after its `add`, which shows as `change`. Pods' network devices are not in here.
_VIRTUAL_COUNTED = re.compile(r"/devices/virtual/(misc/|nvme-subsystem/|block/(dm-|md|bcache))")


class Uevent(NamedTuple):
    """What happened to which kernel object. Nothing else is needed, for a departure neither."""

    action: str
    devpath: str


def parse(datagram: bytes) -> Uevent:
    """The event in one datagram of the kernel's. Raises ValueError when it is none."""
    head, zero, _properties = datagram.partition(b"\0")
    action, at, devpath = head.decode(errors="replace").partition("@")
    if not (zero and at and action.isalpha() and devpath.startswith("/")):
        raise ValueError(f"no uevent: {datagram[:80]!r}")
    return Uevent(action, devpath)


def counts(event: Uevent) -> bool:
    """Whether the machine has to be looked at again because of this event.

    A graphics driver announces a device as `/card0` before it is in its place: not below /devices/, no count.
    """
    if event.devpath.startswith(_VIRTUAL):
        named = _VIRTUAL_COUNTED.match(event.devpath) is not None
        return named and (event.action in COUNTED or event.action == "change")
    return event.action in COUNTED and event.devpath.startswith("/devices/")
