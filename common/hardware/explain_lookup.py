"""From what a person types to answers: a device's name, a /dev node, a bus address, a path below /sys."""

import difflib
import posixpath
import re
from dataclasses import replace

from common.errors import RequestError
from common.hardware import explain_words as words
from common.hardware.explain import Answer, Facts, explain_device, explain_finding, explain_usb_device
from common.hardware.explain_nodes import Nodes
from common.hardware.names import device_name
from common.hardware.text import clean

_VARIANTS = ("", "display", "cec", "input")  # the suffixes that a rule gives by word
_PLACEHOLDER = re.compile(r"/dev/[^/]+/(absent|withheld)/([^/]+)")


class Lookup:
    """Finds answers in what one pass found."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.nodes = Nodes(facts)

    def everything(self) -> list[Answer]:
        """All hardware, then all nodes, each once; first, roles that no disk goes by."""
        return [*self.roles(), *self.facts.answers(), *self.nodes.answers()]

    def roles(self, what: str = "") -> list[Answer]:
        """The answer for roles that no disk goes by: for `what`, when it is a role, or for them all."""
        why = self.facts.idle_roles
        if not why or (what and what not in (self.facts.survey.facts.roles or ())):
            return []
        return [Answer(what or "spec.storage.roles", "ignored", "role", why)]

    def find(self, what: str) -> list[Answer]:
        """The answers for `what`. Raises RequestError when nothing is called so."""
        found = self._placeholder(what) or self._named(what) or self._node(what) or self._slot(what)
        found = found or self._below_sys(what)
        if not found:
            raise RequestError(self._unknown(what))
        return found

    def unpublished(self, what: str) -> list[Answer]:
        """The answers for the name of a device that hardware here would publish and does not; [] for none.

        Who knew the device yesterday asks by its name: why it is gone is said by what it was made of.
        """
        found = [
            explain_finding(self.facts, finding)
            for (bus, address), finding in sorted(self.facts.findings.items())
            if what in _would_be(bus, address)
        ]
        found += [
            explain_usb_device(self.facts, device)
            for address, device in sorted(self.facts.usb.items())
            if ("usb", address) not in self.facts.findings and what in _would_be("usb", address)
        ]
        if not found:
            names = self.facts.tree.names("sys/bus/usb/devices")
            found = [one for name in names if what in _would_be("usb", name) for one in self._bare_usb(name)]
        return [replace(one, why=f"{what} is not published: {one.why}") for one in found]

    def _named(self, what: str) -> list[Answer]:
        found = [device for device in self.facts.inventory.devices if device.name == what]
        return [explain_device(self.facts, device) for device in found]

    def _node(self, what: str) -> list[Answer]:
        path = what if what.startswith("/dev/") else f"/dev/{what}"
        shown = self.nodes.shown.get(path) or self.nodes.shown.get(what)
        if shown is not None:
            return [self.nodes.answer(shown)]
        return self.nodes.stated(path)

    def _slot(self, what: str) -> list[Answer]:
        """A bus address, with or without its bus in front: "1-9", "usb 1-9", "usb/1-9"."""
        bus, _, address = what.replace("/", " ", 1).partition(" ")
        found = [
            explain_finding(self.facts, finding)
            for slot, finding in sorted(self.facts.findings.items())
            if slot in {(bus, address)} or slot[1] == what
        ]
        device = self.facts.usb.get(what) or (self.facts.usb.get(address) if bus == "usb" else None)
        if device is not None:
            if ("usb", device.address) not in self.facts.findings:
                found.append(explain_usb_device(self.facts, device))
            parts = [self.facts.findings.get(("usb", part.address)) for part in device.interfaces]
            found += [explain_finding(self.facts, part) for part in parts if part is not None]
        return found or self._elsewhere_on_a_bus(address if bus == "usb" else what)

    def _elsewhere_on_a_bus(self, what: str) -> list[Answer]:
        """A device of a bus that publishes nothing itself (hid, i2c, scsi, ...): part of other hardware."""
        if "/" in what:
            return []
        tree = self.facts.tree
        found = self._bare_usb(what)
        if found:
            return found
        for bus in tree.names("sys/bus"):
            place = tree.target(f"sys/bus/{bus}/devices/{what}")
            if place is not None:
                found.append(self._part(f"{bus} {what}", place))
        return found

    def _bare_usb(self, address: str) -> list[Answer]:
        """A USB device without interfaces, or a root hub: all that it has is its usbfs node."""
        place = self.facts.tree.target(f"sys/bus/usb/devices/{address}")
        shown = self.nodes.shown.values()
        return [
            self.nodes.answer(one) for one in shown if one.node.kind == "usb" and one.node.directory == place
        ]

    def _below_sys(self, what: str) -> list[Answer]:
        place = posixpath.normpath(what).lstrip("/")
        if not what.startswith("/sys/") or not place.startswith("sys/"):
            return []
        place = self.facts.tree.target(place) or place
        if self.facts.tree.entries(place) is None:
            return []
        return [self._part(what, place)]

    def _part(self, subject: str, place: str) -> Answer:
        """Hardware that is not a slot of its own: what it is part of."""
        by_place = {finding.hardware.directory: finding for finding in self.facts.findings.values()}
        driver = self.facts.tree.link_name(f"{place}/driver")
        above = place
        while above.startswith("sys/devices/"):
            if above in by_place:
                whole = explain_finding(self.facts, by_place[above])
                if above == place:
                    return whole
                why = f"{subject} is part of {whole.hardware}: {whole.why}"
                return Answer(
                    subject, whole.state, whole.rule, why, whole.hardware, driver, whole.name, whole.devices,
                    whole.nodes, whole.advice,
                )  # fmt: skip
            above = above.rpartition("/")[0]
        phrase = f"has the driver {driver}" if driver else "has no driver"
        return Answer(subject, "ignored", "empty", f"{subject} {phrase} {words.NO_NODES}", driver=driver)

    def _placeholder(self, what: str) -> list[Answer]:
        found = _PLACEHOLDER.fullmatch(what)
        if not found:
            return []
        state, name = found[1], found[2]
        known = [device for device in self.facts.inventory.devices if device.name == name]
        now = f"; now {explain_device(self.facts, known[0]).why}" if known else "; it is not published now"
        return [
            Answer(
                subject=what,
                state="absent" if state == "absent" else "withheld",
                rule="placeholder",
                why=f"{what} {words.PLACEHOLDER[state].format(device=name)}{now}",
                devices=(name,),
                advice=(words.PLACEHOLDER_ADVICE[state],),
            )
        ]

    def _unknown(self, what: str) -> str:
        names = [device.name for device in self.facts.inventory.devices]
        names += [address for _, address in self.facts.findings]
        names += [*self.facts.usb, *self.nodes.shown]
        near = difflib.get_close_matches(what, names, 3, 0.7)
        hint = f"did you mean {' or '.join(near)}?" if near else words.KNOWN_WORDS
        return f"nothing here is called {clean(what.encode('utf-8', 'replace'))!r}: {hint}"


def _would_be(bus: str, address: str) -> set[str]:
    """The names that hardware in this slot could publish."""
    return {device_name(bus, address, variant, hashed) for variant in _VARIANTS for hashed in (False, True)}
