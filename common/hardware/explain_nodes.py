"""Why each device node is delivered, withheld or ignored: every node that /sys shows gets an answer."""

from collections import defaultdict
from dataclasses import dataclass

from common.hardware import explain_words as words
from common.hardware.delivery import natural, node_path, usbfs_node
from common.hardware.discovery import indexed
from common.hardware.examine import Finding
from common.hardware.explain import (
    Answer,
    Facts,
    described,
    explain_finding,
    explain_usb_device,
    held_advice,
    paths_of,
)
from common.hardware.explain_disks import disk_words
from common.hardware.held import held
from common.hardware.model import PLUMBING, Node
from common.hardware.tree import Tree, TreeError
from common.inventory import Device, Withheld


@dataclass(frozen=True)
class Shown:
    """A node as /sys shows it. `path` is "" where the kernel states no name; `number` is "char 4:64"."""

    node: Node
    number: str

    @property
    def subject(self) -> str:
        return self.node.path or self.number


class Nodes:
    """All nodes of a tree, answered for one by one."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._consoles = frozenset(facts.tree.text("sys/class/tty/console/active").split())
        self._devices: dict[str, list[Device]] = defaultdict(list)
        self._withheld: dict[str, Withheld] = {entry.node: entry for entry in facts.inventory.withheld}
        self._owners: dict[str, Finding] = {}
        self._dropped: dict[str, str] = {}
        for device in facts.inventory.devices:
            for one in device.nodes:
                self._devices[one.path].append(device)
        for finding in facts.findings.values():
            for node in finding.delivery.nodes:
                self._owners.setdefault(node.path, finding)
            for dropped in finding.delivery.dropped:
                self._owners.setdefault(dropped.node.path, finding)
                self._dropped[dropped.node.path] = dropped.rule
        self.shown = self._all()

    def _all(self) -> dict[str, Shown]:
        found: dict[str, Shown] = {}
        tree = self._facts.tree
        for entry, directory in indexed(tree):
            kind = tree.link_name(f"{directory}/subsystem")
            path = _path(tree, directory, kind)
            shown = Shown(Node(path, kind, directory), entry.removeprefix("sys/dev/").replace("/", " "))
            found[shown.subject] = shown
        for finding in self._facts.findings.values():
            for node in (*finding.delivery.nodes, *(each.node for each in finding.delivery.dropped)):
                found.setdefault(node.path, Shown(node, ""))
        return dict(sorted(found.items(), key=lambda item: natural(item[0])))

    def answers(self) -> list[Answer]:
        """One answer for each node, in the order of their names."""
        return [self.answer(shown) for shown in self.shown.values()]

    def stated(self, path: str) -> list[Answer]:
        """The answer for a node that a claim states by its number, although no device has it now."""
        devices = self._devices.get(path)
        return [self._delivered(Shown(Node(path, "input", ""), ""))] if devices else []

    def answer(self, shown: Shown) -> Answer:
        """Why this node is delivered, withheld or ignored."""
        path = shown.node.path
        if path in self._devices:
            return self._delivered(shown)
        if path in self._withheld:
            return self._kept(self._withheld[path])
        if path in self._dropped:
            return self._ignored(shown, self._dropped[path], words.DROPPED[self._dropped[path]])
        if shown.node.kind == "usb":
            return self._usbfs(shown)
        if path in self._owners:
            return self._of_finding(shown, self._owners[path])
        return self._foreign(shown)

    def _delivered(self, shown: Shown) -> Answer:
        path = shown.node.path
        devices = self._devices[path]
        own = [device for device in devices if path in {node.path for node in device.nodes if not node.type}]
        by_number = [device.name for device in devices if device not in own]
        finding = self._owners.get(path)
        names = ", ".join(device.name for device in own)
        if own and shown.node.kind == "usb":
            usb = shown.node.directory.rpartition("/")[2]
            why = f"is the usbfs node of {usb}; claims on these deliver it: {names}"
        elif own:
            why = f"is delivered by a claim on {names}: {described(self._facts, own[0])}"
        else:
            why = "is no node of hardware that is offered"
        if by_number:
            why += (
                f"; a claim on {by_number[0]} states it by its number, because a Bluetooth stack opens input"
                " nodes that appear later"
            )
        return Answer(
            subject=path,
            state="published",
            rule="usbfs" if shown.node.kind == "usb" else "delivered",
            why=f"{path} {why}",
            hardware=_place(finding) or f"{devices[0].bus} {devices[0].address}",
            driver=finding.hardware.driver if finding is not None else "",
            devices=tuple(device.name for device in devices),
            nodes=paths_of(own or devices),
            advice=self._facts.role_advice(own),
        )

    def _kept(self, entry: Withheld) -> Answer:
        facts, slot = self._facts, (entry.bus, entry.address)
        if entry.reason == "storage":
            disks = [one for one in facts.withheld[slot] if one.reason == "storage"]
            why, advice = disk_words(facts.inventory, disks)
            why = f"stays with the machine: {entry.address} {why}"
        else:
            why, advice = f"is {entry.detail}", held_advice(entry.reason)
        finding = facts.findings.get(slot)
        return Answer(
            subject=entry.node,
            state="withheld",
            rule=entry.reason,
            why=f"{entry.node} {why}",
            hardware=f"{entry.bus} {entry.address}",
            driver=finding.hardware.driver if finding is not None else "",
            advice=advice,
        )

    def _usbfs(self, shown: Shown) -> Answer:
        address = shown.node.directory.rpartition("/")[2]
        device = self._facts.usb.get(address)
        finding = self._facts.findings.get(("usb", address))
        if finding is not None:
            rule, why = "usbfs", explain_finding(self._facts, finding).why
        elif device is not None:
            said = explain_usb_device(self._facts, device)
            rule, why = said.rule, said.why
        elif address.startswith("usb"):
            rule, why = "plumbing-hub", f"{address} {words.ROOT_HUB}"
        else:
            rule, why = "unconfigured", f"{address} {words.UNCONFIGURED}"
        return self._ignored(shown, rule, f"is the usbfs node of a USB device: {why}", f"usb {address}")

    def _of_finding(self, shown: Shown, finding: Finding) -> Answer:
        said = explain_finding(self._facts, finding)
        why = f"belongs to {said.hardware}, which delivers it to nobody: {said.why}"
        return self._ignored(shown, finding.verdict.shape, why, said.hardware)

    def _foreign(self, shown: Shown) -> Answer:
        node = shown.node
        owner = self._facts.survey.ownership.owner(node.directory)
        if owner.why == "virtual":
            return self._virtual(shown)
        if node.kind == "vfio-dev":
            rule = "vfio"
        elif self._is_below(node.directory, "bluetooth"):
            rule = "bluetooth"
        elif owner.owner is None:
            rule = "scsi" if self._is_below(node.directory, "scsi") else "undriven"
        elif owner.owner.driver in PLUMBING:
            rule = "plumbing"
        elif not node.path:
            rule = "nameless"
        else:
            rule = self._border(node)
        place = (
            ""
            if owner.owner is None
            else f"{owner.owner.subsystem} {owner.owner.directory.rpartition('/')[2]}"
        )
        return self._ignored(shown, rule, words.FOREIGN[rule], place)

    def _border(self, node: Node) -> str:
        """Why the hardware above a node does not deliver it."""
        ownership, place = self._facts.survey.ownership, node.directory
        while place.startswith("sys/devices/"):
            here = ownership.place(place)
            if here.subsystem in {"pci", "usb"}:
                slot = (here.subsystem, place.rpartition("/")[2])
                if not here.driver:
                    return "interface"
                return "border" if slot in self._facts.findings else "unlisted"
            place = place.rpartition("/")[0]
        return "border"

    def _is_below(self, directory: str, subsystem: str) -> bool:
        place = directory
        while place.startswith("sys/devices/"):
            if self._facts.survey.ownership.place(place).subsystem == subsystem:
                return True
            place = place.rpartition("/")[0]
        return False

    def _virtual(self, shown: Shown) -> Answer:
        node = shown.node
        kept = held(node, self._consoles, frozenset(), with_disk=True) if node.path else None
        if kept is not None:
            return self._ignored(shown, kept[0], f"is {kept[1]}; it is virtual: no hardware owns it")
        what, advice = words.virtual(node.devname if node.path else "", node.kind)
        return self._ignored(shown, "virtual", f"is virtual, no hardware owns it: {what}", advice=advice)

    def _ignored(
        self, shown: Shown, rule: str, why: str, place: str = "", advice: tuple[str, ...] = ()
    ) -> Answer:
        finding = self._owners.get(shown.node.path)
        where = place or _place(finding)
        driver = finding.hardware.driver if finding is not None else ""
        return Answer(shown.subject, "ignored", rule, f"{shown.subject} {why}", where, driver, advice=advice)


def _path(tree: Tree, directory: str, kind: str) -> str:
    """The path of a node; "" where /sys names none or cannot be read: it still gets an answer."""
    try:
        path = node_path(tree.read(f"{directory}/uevent"))
        usbfs = usbfs_node(tree, directory) if kind == "usb" and not path else None
    except TreeError:
        return ""
    return usbfs.path if usbfs is not None else path


def _place(finding: Finding | None) -> str:
    return f"{finding.hardware.bus} {finding.hardware.address}" if finding is not None else ""
