"""Who holds which hardware in this boot: the refusal of a second holder, and whether anybody is left."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from common.cdi import Specs
from common.claims import Entry, Result
from common.slots import same_hardware, usb_device

Place = tuple[str, str]  # bus, address


class Holding(NamedTuple):
    """One device that a claim holds, admin access left out. `place` is None where only the name is known."""

    entry: Entry
    device: str
    place: Place | None
    variant: str

    @property
    def claim(self) -> str:
        record = self.entry.record
        return f"{record.namespace}/{record.name} ({self.entry.uid})" if record else self.entry.uid


def holdings(
    entries: Iterable[Entry], specs: Specs, find: Callable[[str], tuple[Place, str] | None]
) -> list[Holding]:
    """All holdings of the entries. What a record that cannot be read holds is told by its spec's names.

    `find` gives place and variant of a device by its name, None when it is not known now.
    """
    found: list[Holding] = []
    for entry in entries:
        if entry.record is not None:
            found += [
                Holding(entry, one.device, (one.bus, one.address), one.variant)
                for one in entry.record.results
                if not one.adminAccess
            ]
        else:
            for device in sorted(specs.nodes(entry.uid)):
                place, variant = find(device) or (None, "")
                found.append(Holding(entry, device, place, variant))
    return found


def refusal(result: Result, shareable: bool, held: Iterable[Holding]) -> str:
    """Why the device cannot be given to one more claim, "" when it can.

    A record holds until unprepare, whatever the API says: after a forced deletion the old container may
    still run. Shareable devices and admin access are never refused.
    """
    if shareable or result.adminAccess:
        return ""
    place = (result.bus, result.address)
    for one in held:
        if one.place is None:
            taken = _names_overlap(one.device, result.device)
        elif one.place == place:
            taken = one.variant == result.variant
        else:
            taken = same_hardware(one.place, place)
        if taken:
            what = "is" if one.device == result.device else f"is the same hardware as {one.device},"
            return (
                f"{result.device} {what} still held by the claim {one.claim}; it is free when the pods of"
                " that claim have ended"
            )
    return ""


def usb_devices_of(results: Iterable[Result]) -> list[str]:
    """The USB devices (port paths) that the results hold, sorted; admin access does not hold."""
    found = {usb_device(result.bus, result.address) for result in results if not result.adminAccess}
    return sorted(found - {""})


def is_held(device: str, held: Iterable[Holding]) -> bool:
    """Whether any holding is on the USB device. One whose place is unknown counts: it may be."""
    return any(one.place is None or usb_device(*one.place) == device for one in held)


def _names_overlap(one: str, other: str) -> bool:
    # only for records that cannot be read: a name may be the start of another without being its hardware,
    # but then a claim waits where people can see it
    return one == other or one.startswith(f"{other}-") or other.startswith(f"{one}-")
