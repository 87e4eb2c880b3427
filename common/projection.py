"""From the record of a claim and the hardware of now to its spec. `Projector.project` alone writes specs."""

from collections.abc import Mapping
from typing import NamedTuple

from common.cdi import Specs
from common.claims import Entry, Record, Result, Store, is_device_name
from common.hardware.storage import StorageFacts
from common.hardware.tree import TreeError
from common.inventory import Device, DeviceNode, PresenceState
from common.slots import Slots, Standing, usb_device

Place = tuple[str, str]  # bus, address
Seen = dict[Place, Standing | TreeError]

UNPLUGGED = "unplugged"  # the reason of a state
_BROKEN = "its record cannot be read, so nobody gets it; delete its pod to be rid of it"
_UNREADABLE = {
    "newer": "a newer version of liken prepared it",
    "unreadable": "the disk does not give its record now; its spec stays as it is",
    "broken": _BROKEN,
    "aside": _BROKEN,
}
_WORST_FIRST: tuple[PresenceState, ...] = ("withheld", "changed", "absent", "unknown", "present")


class DeviceState(NamedTuple):
    """One device of a prepared claim now: its state, why (for people), and the nodes its hardware gives.

    `nodes` is empty in every state but "present".
    """

    pool: str
    device: str
    state: PresenceState
    reason: str = ""
    nodes: tuple[DeviceNode, ...] = ()


class Projection(NamedTuple):
    """What a claim came to: its entry (None: not prepared), the state of each device, what was to be written.

    `wrote` is "" when all on disk was right already, else what was wrong: "vanished" (no spec), "orphan" (no
    record), "renumbered", the worst state of a device, or "broken" (a record that has to be set aside).
    """

    entry: Entry | None
    devices: tuple[DeviceState, ...]
    wrote: str


def state_of(result: Result, standing: Standing | TreeError) -> DeviceState:
    """The state of one promised device, given what stands in its slot. Reads nothing."""
    word, reason, nodes = _state_of(result, standing)
    return DeviceState(result.pool, result.device, word, reason, nodes)


_State = tuple[PresenceState, str, tuple[DeviceNode, ...]]


def _state_of(result: Result, standing: Standing | TreeError) -> _State:
    if isinstance(standing, TreeError):
        return "unknown", str(standing), ()
    slot = standing.slot
    if not slot.exists:
        return "absent", UNPLUGGED, ()
    if slot.physical_path != result.physicalPath:
        return "changed", f"its address belongs to the port {slot.physical_path or 'of nothing'} now", ()
    device = next((device for device in slot.devices if device.variant == result.variant), None)
    if device is None:
        return _without_device(result, standing)
    if words := _changed_kinds(result.kinds, device):
        return "changed", words, ()
    return "present", "", device.nodes


def _without_device(result: Result, standing: Standing) -> _State:
    # a companion that is not there now is no more withheld than the tty of its line is its own
    kept = (one for one in standing.slot.withheld if not result.variant or one.reason == "storage")
    if held := sorted(kept, key=lambda one: one.node):
        detail = f": {held[0].detail}" if held[0].detail else ""
        return "withheld", f"the machine keeps {held[0].node} ({held[0].reason}{detail})", ()
    if words := _other_form(result, standing.drivers):
        return "changed", words, ()
    return "absent", "the hardware is there but has no device node now", ()


def _other_form(result: Result, drivers: Mapping[str, str]) -> str:
    """Why a USB device publishes in its other form now, "" when it does not.

    Without any driver it publishes whole, else its driven interfaces do; a claim on one form never gets the
    other. An interface that a program holds counts as neither: its slot still has a device.
    """
    if usb_device(result.bus, result.address) == result.address:
        driven = [(name, driver) for name, driver in sorted(drivers.items()) if driver not in ("", "usbfs")]
        return f"the driver {driven[0][1]} took its interface {driven[0][0]}" if driven else ""
    if result.address in drivers and not any(drivers.values()) and not result.variant:
        return "no kernel driver is bound to its USB device any more"
    return ""


def _changed_kinds(promised: tuple[str, ...], device: Device) -> str:
    now = set(device.kinds)
    if "block" in now and "block" not in promised:
        return "a disk is in its place now"
    if promised and now and now.isdisjoint(promised):
        return f"it was {', '.join(promised)} and is {', '.join(device.kinds)} now"
    return ""


class Projector:
    """Makes the specs of prepared claims true. Whoever calls `project` or `remove` holds the lock."""

    def __init__(self, store: Store, specs: Specs, slots: Slots) -> None:
        self._store = store
        self._specs = specs
        self._slots = slots

    def project(self, uid: str, seen: Seen | None = None) -> Projection:
        """Read the record, look at the hardware now, write the spec if it differs. Needs the lock.

        `seen` are slots that the caller has looked at since it has the lock.
        A record that does not parse is set aside, and its spec gives nothing any more. Raises MachineError
        when record or spec cannot be read or written; hardware that cannot be read is the state "unknown",
        and its part of the spec stays.
        """
        entry = self._store.read(uid)
        projection, content = self._compare(uid, entry, {} if seen is None else seen, None)
        if projection.wrote == "broken":
            self._store.set_aside(uid)
        if projection.wrote == "orphan":
            self._specs.remove(uid)
        elif content and projection.wrote:
            self._specs.write(uid, content)
        return projection

    def compare(self, entry: Entry, seen: Seen, facts: StorageFacts | None = None) -> Projection:
        """What `project` would find, without writing or locking. `seen` keeps slots for further claims."""
        return self._compare(entry.uid, entry, seen, facts)[0]

    def states(
        self, record: Record, seen: Seen, facts: StorageFacts | None = None
    ) -> tuple[DeviceState, ...]:
        """The state of each device of a claim now."""
        return tuple(state_of(result, self._look(result, seen, facts)) for result in record.results)

    def _compare(
        self, uid: str, entry: Entry | None, seen: Seen, facts: StorageFacts | None
    ) -> tuple[Projection, bytes]:
        before = self._specs.read(uid)
        if entry is None:
            return Projection(None, (), "" if before is None else "orphan"), b""
        if entry.record is None:
            return self._compare_unreadable(entry, before)
        states = self.states(entry.record, seen, facts)
        content = self._specs.render(uid, self._nodes(uid, states))
        if content == before:
            return Projection(entry, states, ""), content
        return Projection(entry, states, "vanished" if before is None else _worst(states)), content

    def _look(self, result: Result, seen: Seen, facts: StorageFacts | None) -> Standing | TreeError:
        place = (result.bus, result.address)
        if place not in seen:
            try:
                seen[place] = self._slots.inspect(*place, facts)
            except TreeError as error:
                seen[place] = error
        return seen[place]

    def _nodes(self, uid: str, states: tuple[DeviceState, ...]) -> Mapping[str, tuple[DeviceNode, ...]]:
        # by device: a claim that holds a shareable device twice has one CDI device for both
        return {one.device: self._device_nodes(uid, one) for one in states}

    def _device_nodes(self, uid: str, one: DeviceState) -> tuple[DeviceNode, ...]:
        if one.state == "present":
            return one.nodes
        if one.state == "absent":
            return self._specs.absent(one.device)
        if one.state == "unknown" and (kept := self._specs.nodes(uid).get(one.device)):
            return kept
        return self._specs.withheld(one.device)

    def _compare_unreadable(self, entry: Entry, before: bytes | None) -> tuple[Projection, bytes]:
        """A record that does not parse tells nobody whose nodes the spec names, and the kernel gives their
        numbers to others: its devices keep their names, which hold the hardware, and lose their nodes.
        """
        names = sorted(name for name in self._specs.nodes(entry.uid) if is_device_name(name))
        states = tuple(DeviceState("", name, "unknown", _UNREADABLE[entry.form]) for name in names)
        content = before or b""
        if entry.form in ("broken", "aside") and names:
            content = self._specs.render(entry.uid, {name: self._specs.withheld(name) for name in names})
        wrong = entry.form == "broken" or content != (before or b"")
        return Projection(entry, states, "broken" if wrong else ""), content


def _worst(states: tuple[DeviceState, ...]) -> str:
    found = {one.state for one in states}
    word = next(word for word in _WORST_FIRST if word in found)
    return "renumbered" if word == "present" else word
