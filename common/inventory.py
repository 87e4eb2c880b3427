"""The words liken's processes speak: devices, nodes, inventories, presence.

Every type is frozen; everything that leaves a process is sorted. JSON names equal the field names.
"""

from typing import Literal

import msgspec

SCHEMA = 1  # the major number of every message and record; a reader refuses one it does not know

StorageState = Literal["roles", "observed", "unknown"]
PresenceState = Literal["present", "absent", "withheld", "changed", "unknown"]
AttributeValue = dict[str, str | bool | int]  # exactly one key: "string", "bool" or "int"


class DeviceNode(msgspec.Struct, frozen=True, omit_defaults=True, order=True):
    """One device node of a delivery: a path below /dev and the kernel subsystem it belongs to.

    `type`, `major`, `minor` and `fileMode` are set only where the node is stated by its numbers, so that the
    runtime makes it although no device exists now (the input event nodes of a Bluetooth claim).
    """

    path: str
    kind: str
    type: str = ""
    major: int = 0
    minor: int = 0
    fileMode: int = 0  # noqa: N815 - the word of the CDI specification


class Device(msgspec.Struct, frozen=True, gc=False):
    """One published device: what a claim can be allocated, and exactly what it would receive now."""

    name: str
    bus: str
    address: str
    variant: str  # "" for the device that carries the bare name, else the suffix without its dash
    kinds: tuple[str, ...]  # kernel subsystems of the hardware's own nodes; usbfs is not counted
    shareable: bool
    nodes: tuple[DeviceNode, ...]
    attributes: dict[str, AttributeValue]


class Withheld(msgspec.Struct, frozen=True, gc=False):
    """A node that exists and is not offered. `reason` is a held kind ("console", ...) or "storage"."""

    bus: str
    address: str
    node: str
    reason: str
    detail: str


class Unclaimed(msgspec.Struct, frozen=True, gc=False):
    """Hardware without a driver, with the kernel modules that would drive it."""

    bus: str
    address: str
    name: str
    modalias: str
    modules: tuple[str, ...]
    missing: tuple[str, ...] = ()  # those of `modules` that are not on this machine


class Facts(msgspec.Struct, frozen=True, gc=False):
    """What is known of the disks the machine itself needs. `reason`, for people: why it is not known, or
    which declared roles no disk goes by."""

    storage: StorageState
    reason: str = ""


class Inventory(msgspec.Struct, frozen=True, gc=False):
    """All that one walk of /sys found, or (`error` not empty) why there is nothing to say.

    An inventory with an error carries no devices and must never be read as "this machine has no hardware".
    `taken` is RFC 3339; `stirred` is the CLOCK_BOOTTIME second at which the burst that caused this walk
    began, 0 when no uevent did.
    """

    schema: int
    node: str
    boot: str
    taken: str
    facts: Facts
    devices: tuple[Device, ...] = ()
    withheld: tuple[Withheld, ...] = ()
    unclaimed: tuple[Unclaimed, ...] = ()


class InventoryMessage(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The `inventory` topic: an Inventory, or the error why there is none, and what caused the walk."""

    schema: int
    inventory: Inventory | None = None
    error: str = ""
    stirred: float = 0.0


class DevicePresence(msgspec.Struct, frozen=True, gc=False):
    """The state of one device of one prepared claim. `since` is RFC 3339; `reason` is for people."""

    pool: str
    device: str
    state: PresenceState
    since: str
    reason: str


class ClaimPresence(msgspec.Struct, frozen=True, gc=False):
    """One prepared claim and the state of each of its devices."""

    namespace: str
    name: str
    uid: str
    devices: tuple[DevicePresence, ...]


class Presence(msgspec.Struct, frozen=True, gc=False):
    """The `presence` topic: every prepared claim of this boot."""

    schema: int
    boot: str
    claims: tuple[ClaimPresence, ...] = ()
