"""Why each piece of hardware and each device node is published, split, withheld or ignored.

Decides nothing: what is published and withheld is taken from an Inventory and from the Survey it was made of.
`common.hardware.explain_nodes` answers for device nodes.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from common.hardware import explain_words as words
from common.hardware.delivery import natural
from common.hardware.discovery import UsbDevice
from common.hardware.examine import Finding
from common.hardware.explain_disks import disk_words
from common.hardware.held import RELEASABLE
from common.hardware.model import PLUMBING, Hardware, Offer
from common.hardware.modules import kernel_modules
from common.hardware.policy import DISK_KINDS
from common.hardware.survey import Survey
from common.hardware.tree import Tree, TreeError
from common.inventory import Device, Inventory, Unclaimed, Withheld

State = Literal["published", "withheld", "unclaimed", "ignored", "present", "absent", "changed", "unknown"]
Slot = tuple[str, str]  # bus, address


@dataclass(frozen=True)
class Answer:
    """What is to say of one subject: a device's name, a node's path, or a bus address.

    `state`: what became of hardware and nodes, or the state of a prepared claim's device. `rule` is a word
    for programs, `why` a sentence for people, `advice` lines on what to do. `devices` are the published
    devices that deliver the subject or come of it, `nodes` what a claim on them receives.
    """

    subject: str
    state: State
    rule: str
    why: str
    hardware: str = ""  # "pci 0000:00:17.0"
    driver: str = ""
    name: str = ""  # of the maker and product, when known
    devices: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()


class Facts:
    """What was found, by slot and by name. `survey` and `inventory` come of the same tree."""

    def __init__(self, tree: Tree, survey: Survey, inventory: Inventory) -> None:
        self.tree = tree
        self.survey = survey
        self.inventory = inventory
        self.published: dict[Slot, list[Device]] = defaultdict(list)
        self.withheld: dict[Slot, list[Withheld]] = defaultdict(list)
        for device in inventory.devices:
            self.published[device.bus, device.address].append(device)
        for entry in inventory.withheld:
            self.withheld[entry.bus, entry.address].append(entry)
        self.unclaimed: dict[Slot, Unclaimed] = {(one.bus, one.address): one for one in inventory.unclaimed}
        self.findings: dict[Slot, Finding] = {
            (one.hardware.bus, one.hardware.address): one for one in survey.findings
        }
        self.usb: dict[str, UsbDevice] = {device.address: device for device in survey.usb}
        self.knows_modules = _knows_modules(tree)
        self.idle_roles = inventory.facts.reason if inventory.facts.storage == "roles" else ""

    def answers(self) -> list[Answer]:
        """One answer for each PCI function, USB device and interface, and board device, sorted."""
        found = [explain_finding(self, finding) for finding in self.findings.values()]
        found += [
            explain_usb_device(self, device)
            for device in self.usb.values()
            if ("usb", device.address) not in self.findings
        ]
        found += [_broken(hardware, error) for hardware, error in self.survey.broken]
        return sorted(found, key=lambda answer: _order(answer.hardware))

    def role_advice(self, devices: Iterable[Device]) -> tuple[str, ...]:
        """What somebody has to know who sees a disk offered: a role that was to keep one keeps none."""
        disks = any(DISK_KINDS.intersection(device.kinds) for device in devices)
        return (self.idle_roles,) if disks and self.idle_roles else ()


def _knows_modules(tree: Tree) -> bool:
    try:
        return kernel_modules(tree) is not None
    except TreeError:
        return False


def _order(hardware: str) -> tuple[str, tuple[tuple[int, str], ...], str]:
    """USB addresses count (1-10 after 1-9); those of other buses are hexadecimal or words."""
    bus, _, address = hardware.partition(" ")
    return (bus, natural(address), "") if bus == "usb" else (bus, (), address)


def _broken(hardware: Hardware, error: str) -> Answer:
    place = f"{hardware.bus} {hardware.address}"
    return Answer(hardware.address, "ignored", "unreadable", f"{hardware.address}: {error}", place)


def explain_finding(facts: Facts, finding: Finding) -> Answer:
    """What becomes of one PCI function, USB interface, USB device that publishes whole, or board device."""
    hardware = finding.hardware
    slot = (hardware.bus, hardware.address)
    if facts.published.get(slot):
        return _published(facts, finding)
    if facts.withheld.get(slot):
        return _withheld(facts, hardware, facts.withheld[slot])
    if finding.verdict.shape == "undriven":
        return _undriven(facts, hardware)
    rule, why = _nothing(facts, finding)
    return Answer(
        subject=hardware.address,
        state="ignored",
        rule=rule,
        why=f"{hardware.address} {why}",
        hardware=f"{hardware.bus} {hardware.address}",
        driver=hardware.driver,
    )


def _nothing(facts: Facts, finding: Finding) -> tuple[str, str]:
    """Why hardware with a driver offers nothing: rule, and the end of a sentence."""
    hardware, shape = finding.hardware, finding.verdict.shape
    dropped = finding.delivery.dropped
    if shape == "empty" and dropped:
        more = f"; {len(dropped) - 1} more like it" if len(dropped) > 1 else ""
        first = f"{dropped[0].node.path} {words.DROPPED[dropped[0].rule]}"
        return dropped[
            0
        ].rule, f"has the driver {hardware.driver} and no node that a claim could deliver: {first}{more}"
    if shape == "empty" and _has_network(facts.tree, hardware.directory):
        return "network", words.NETWORK.format(driver=hardware.driver)
    return shape, words.NOTHING.get(shape, words.NOTHING["empty"]).format(driver=hardware.driver)


def _has_network(tree: Tree, directory: str) -> bool:
    """Network interfaces hang on the hardware itself, or one step below (virtio, hv)."""
    try:
        entries = tree.entries(directory)
        names = entries.dirs if entries is not None else []
        return "net" in names or any(tree.entries(f"{directory}/{name}/net") is not None for name in names)
    except TreeError:
        return False


def explain_device(facts: Facts, device: Device) -> Answer:
    """One published device, by its name."""
    finding = facts.findings.get((device.bus, device.address))
    return Answer(
        subject=device.name,
        state="published",
        rule=finding.verdict.shape if finding is not None else "",
        why=f"{device.name} is published: {described(facts, device)}",
        hardware=f"{device.bus} {device.address}",
        driver=_driver(finding.hardware) if finding is not None else "",
        name=_spoken(device),
        devices=(device.name,),
        nodes=paths_of([device]),
        advice=facts.role_advice([device]),
    )


def described(facts: Facts, device: Device) -> str:
    """What a published device is, as the end of a sentence."""
    finding = facts.findings.get((device.bus, device.address))
    if finding is None:
        return words.UNREAD
    offers = [offer for offer in finding.verdict.offers if offer.variant == device.variant]
    form = _form(finding.verdict.shape, offers[0]) if offers else "mix"
    kinds = ", ".join(device.kinds)
    return words.FORMS[form].format(kind=kinds, kinds=kinds)


def _form(shape: str, offer: Offer) -> str:
    """The key of explain_words.FORMS for one published device."""
    if shape != "graphics":
        return shape
    if offer.render:
        return "render"
    if offer.subsystem == "drm":
        return "display" if offer.display else "card"
    return "companion"


def _published(facts: Facts, finding: Finding) -> Answer:
    hardware = finding.hardware
    slot = (hardware.bus, hardware.address)
    devices = facts.published[slot]
    names = "; ".join(f"{device.name}: {described(facts, device)}" for device in devices)
    how = "it publishes whole as " if finding.verdict.shape == "whole" else "it publishes as "
    if len(devices) > 1:
        how = f"its nodes publish as {len(devices)} devices. "
    kept = "".join(
        f"; the machine keeps {entry.node}, {entry.detail}" for entry in facts.withheld.get(slot, ())
    )
    return Answer(
        subject=hardware.address,
        state="published",
        rule="split" if len(devices) > 1 else finding.verdict.shape,
        why=f"{hardware.address} {_driver_phrase(hardware)}; {how}{names}{kept}",
        hardware=f"{hardware.bus} {hardware.address}",
        driver=_driver(hardware),
        name=_spoken(devices[0]),
        devices=tuple(device.name for device in devices),
        nodes=paths_of(devices),
        advice=facts.role_advice(devices),
    )


def _driver(hardware: Hardware) -> str:
    """The driver to tell: that of a whole USB device is the USB core's and drives nothing."""
    return "" if hardware.form == "whole" and hardware.driver in PLUMBING else hardware.driver


def _driver_phrase(hardware: Hardware) -> str:
    if hardware.form == "whole" or not hardware.driver:
        return "has no driver"
    return f"has the driver {hardware.driver}"


def _withheld(facts: Facts, hardware: Hardware, entries: list[Withheld]) -> Answer:
    disks = [entry for entry in entries if entry.reason == "storage"]
    if disks:
        why, advice = disk_words(facts.inventory, disks)
        why = f"{hardware.address} {why}"
    else:
        kept = "; ".join(f"{entry.node} is {entry.detail}" for entry in entries)
        why = f"{hardware.address} has only nodes that the machine keeps for itself: {kept}"
        advice = held_advice(entries[0].reason)
    return Answer(
        subject=hardware.address,
        state="withheld",
        rule="storage" if disks else entries[0].reason,
        why=why,
        hardware=f"{hardware.bus} {hardware.address}",
        driver=hardware.driver,
        nodes=tuple(entry.node for entry in entries),
        advice=advice,
    )


def held_advice(reason: str) -> tuple[str, ...]:
    """What to do about a node that the machine keeps for a reason other than storage."""
    if reason in RELEASABLE:
        return words.release_advice(reason)
    if reason == "console":
        return ("take the port off the kernel's command line (console=...) and reboot, or use another port",)
    if reason == "serio":
        return ("claim its -cec or -input device; they appear once the line is attached",)
    return ()


def explain_usb_device(facts: Facts, device: UsbDevice) -> Answer:
    """A USB device that does not publish whole: its interfaces do, or nothing of it."""
    below = [one for part in device.interfaces for one in facts.published.get(("usb", part.address), [])]
    drivers = {part.driver for part in device.interfaces}
    kept = any(facts.withheld.get(("usb", part.address)) for part in device.interfaces)
    state: State = "ignored"
    if below:
        state, rule = "published", "interfaces"
    elif kept:
        state, rule = "withheld", "interfaces-withheld"
    elif drivers & {"hub", "usbfs"}:
        rule = "plumbing-hub" if "hub" in drivers else "usbfs"
    else:
        rule = "interfaces-empty"
    names = ", ".join(one.name for one in below)
    return Answer(
        subject=device.address,
        state=state,
        rule=rule,
        why=f"{device.address} {words.USB[rule]}" + (f": {names}" if names else ""),
        hardware=f"usb {device.address}",
        name=_spoken(below[0]) if below else "",
        devices=tuple(one.name for one in below),
        nodes=paths_of(below),
    )


def _undriven(facts: Facts, hardware: Hardware) -> Answer:
    entry = facts.unclaimed.get((hardware.bus, hardware.address))
    parent = facts.published.get(("usb", hardware.address.partition(":")[0]), [])
    advice = words.modules_advice(entry.modules, entry.missing) if entry is not None else ()
    why = "has no driver"
    if parent and hardware.form == "interface":
        why += f"; its USB device publishes whole as {parent[0].name}"
    elif not advice and facts.knows_modules:
        why += ", and no module of this kernel would drive it"
    elif not advice:
        why += "; which module would drive it cannot be told without the kernel's modules.alias"
    return Answer(
        subject=hardware.address,
        state="unclaimed" if entry is not None else "ignored",
        rule="undriven",
        why=f"{hardware.address} {why}",
        hardware=f"{hardware.bus} {hardware.address}",
        name=entry.name if entry is not None else "",
        advice=advice,
    )


def _spoken(device: Device) -> str:
    return str(device.attributes.get("name", {}).get("string", ""))


def paths_of(devices: list[Device]) -> tuple[str, ...]:
    """The paths that claims on these devices deliver, sorted."""
    return tuple(sorted({node.path for device in devices for node in device.nodes}, key=natural))
