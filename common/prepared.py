"""The prepared claims of this machine: their records, specs and hardware, from the settings of a process.

`look` is what the reconciler, the plugin's health report and `liken claims` have in common.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import NamedTuple

from common.cdi import Specs
from common.claims import Entry, Record, Store
from common.errors import MachineError
from common.hardware.machine import Machine
from common.hardware.policy import DISK_KINDS
from common.hardware.storage import StorageFacts
from common.hardware.tree import Tree, TreeError
from common.inventory import SCHEMA, ClaimPresence, DeviceNode, DevicePresence, Presence
from common.projection import DeviceState, Projector, Seen
from common.settings import Settings
from common.slots import Slots, SysfsSlots

BOOT_ID = "proc/sys/kernel/random/boot_id"


class Prepared(NamedTuple):
    """Everything about the prepared claims of one boot."""

    store: Store
    specs: Specs
    slots: Slots
    projector: Projector


class Claimed(NamedTuple):
    """One prepared claim as people are told of it: the state of each device, and what the spec says now."""

    entry: Entry
    devices: tuple[DevicePresence, ...]
    spec: dict[str, tuple[DeviceNode, ...]]


def open_prepared(settings: Settings, tree: Tree, machine: Machine) -> Prepared:
    """The prepared claims where the settings say they are. Changes nothing.

    Raises MachineError when this boot cannot be told from another: then no record means anything.
    """
    store = Store(settings.plugin_dir, _boot(settings, tree))
    specs = Specs(settings.cdi, settings.driver)
    slots = SysfsSlots(tree, machine)
    return Prepared(store, specs, slots, Projector(store, specs, slots))


def _boot(settings: Settings, tree: Tree) -> str:
    content = tree.read(BOOT_ID)
    if content is None and not settings.played:
        raise MachineError(f"cannot read /{BOOT_ID}: set LIKEN_HOST_PROC to the host's /proc")
    return content.decode(errors="replace").strip() if content is not None else ""


def look(prepared: Prepared) -> list[Claimed]:
    """Every prepared claim with the state of its hardware now. Needs no lock and writes nothing.

    Raises MachineError when the records cannot be read.
    """
    seen: Seen = {}
    entries = prepared.store.entries()
    facts = facts_for(prepared.slots, entries)
    return [_look(prepared, entry, seen, facts) for entry in entries]


def _look(prepared: Prepared, entry: Entry, seen: Seen, facts: StorageFacts | None) -> Claimed:
    since = moment(prepared.specs.changed_at(entry.uid))
    try:
        states = prepared.projector.compare(entry, seen, facts).devices
        spec = prepared.specs.nodes(entry.uid)
    except MachineError as error:  # of this claim alone: its spec cannot be read
        states, spec = unknown_states(entry.record, str(error)), {}
    return Claimed(entry, tuple(device_presence(one, since) for one in states), spec)


def unknown_states(record: Record | None, reason: str) -> tuple[DeviceState, ...]:
    """The devices of a claim at which nobody could look."""
    results = record.results if record else ()
    return tuple(DeviceState(one.pool, one.device, "unknown", reason) for one in results)


def facts_for(slots: Slots, entries: Iterable[Entry]) -> StorageFacts | None:
    """The storage facts for a pass over these claims, read once; None when no claim has a disk.

    The mount table of a node with many pods is long. A slot that has a disk only by now reads for itself, and
    so does each slot when the facts cannot be read at once.
    """
    promised = (one for entry in entries if entry.record for one in entry.record.results)
    if not any(DISK_KINDS & set(one.kinds) for one in promised):
        return None
    try:
        return slots.facts()
    except TreeError:
        return None


def presence(boot: str, claimed: list[Claimed]) -> Presence:
    """The states of `look` as the message that the reconciler sends."""
    return Presence(SCHEMA, boot, tuple(claim_presence(one.entry, one.devices) for one in claimed))


def claim_presence(entry: Entry, devices: tuple[DevicePresence, ...]) -> ClaimPresence:
    """One claim for the presence message. Namespace and name are "" where the record cannot be read."""
    record = entry.record
    return ClaimPresence(
        record.namespace if record else "", record.name if record else "", entry.uid, devices
    )


def device_presence(one: DeviceState, since: str) -> DevicePresence:
    """One device for the presence message."""
    return DevicePresence(one.pool, one.device, one.state, since, one.reason)


def moment(seconds: float | None) -> str:
    """RFC 3339 of seconds since 1970, "" for None."""
    if seconds is None:
        return ""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
