"""A second opinion on publication: what each hardware of a recording offers, and what is kept back and why.

Shares no code with `common.hardware`; see `ownership` for how the owners are found.
"""

import hashlib
import re
from collections import defaultdict
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from tests.machines.expectation import Offer
from tests.machines.ownership import Node, Owner, Reader, UsbTree, multipath_owner, owner_of
from tests.machines.recording import Recording, ancestors

HELD: tuple[tuple[str, str, set[str]], ...] = (  # reason, names below /dev, kinds
    ("rtc", "rtc0", set()),
    ("tpm", r"tpm(rm)?\d+", set()),
    ("watchdog", r"watchdog\d*", {"watchdog"}),
    ("flash", r"mtd.*", {"mtd"}),
    ("nvram", "nvram", {"nvram"}),
    ("ipmi", r"ipmi.*", {"ipmi"}),
    ("mei", r"mei\d*", {"mei"}),
    ("usbmon", r"usbmon\d*", {"usbmon"}),
    ("rpmb", r"mmcblk\d+(rpmb|boot\d)", {"mmc_rpmb"}),
    ("nvdimm", r"ndctl\d*|cxl/.*", {"nd", "cxl"}),
    ("firmware", r"fwctl.*", {"fwctl"}),
    ("guest", r"vport.*", {"virtio-ports"}),
)


@dataclass
class Opinion:
    """Everything the second opinion says of one machine."""

    storage: str
    devices: dict[str, Offer] = field(default_factory=dict)
    withheld: dict[str, tuple[str, str]] = field(default_factory=dict)  # node -> hardware, reason
    unclaimed: set[str] = field(default_factory=set)
    owners: dict[str, Owner] = field(default_factory=dict)  # node path -> owner


def label(owner: Owner, variant: str = "") -> str:
    """The name of a device, at most 63 characters."""
    whole = re.sub("[^a-z0-9]", "-", f"{owner.bus}-{owner.address}".lower()).strip("-")
    suffix = f"-{variant}" if variant else ""
    if len(whole + suffix) <= 63:
        return whole + suffix
    digest = hashlib.sha256(f"{owner.bus}/{owner.address}".encode()).hexdigest()[:8]
    return f"{whole[: 63 - 9 - len(suffix)].rstrip('-')}-{digest}{suffix}"


def held(reader: Reader, node: Node) -> str:
    """Why the machine keeps a node for itself, "" when it does not."""
    if node.kind == "tty" and node.leaf in reader.consoles:
        return "console"
    for reason, names, kinds in HELD:
        if re.fullmatch(names, node.path.removeprefix("/dev/")) or node.kind in kinds:
            return reason
    return ""


def dropped(reader: Reader, node: Node) -> bool:
    """Nodes in no delivery, which nobody misses: framebuffers, ports without UART, old DRM nodes."""
    if node.kind == "tty":
        return reader.recording.text(f"{node.place}/type") == "0"
    return node.kind in {"graphics", "vfio-dev"} or node.leaf.startswith("controlD")


class Disks:
    """Which disks the machine needs, from the mount table and the declaration."""

    def __init__(self, reader: Reader, roles: tuple[str, ...] | None) -> None:
        table = reader.recording.text("proc/1/mountinfo")
        self.reader = reader
        self.roles = set(roles or ())
        self.state = "unknown" if table is None else "observed" if roles is None else "roles"
        self.mounted = {line.split()[2] for line in (table or "").splitlines()}

    def keep(self, owner: Owner, nodes: list[Node]) -> bool:
        """Whether one of a device's nodes reaches a disk that keeps the whole device from being offered."""
        disks = [node for node in nodes if node.kind == "block"]
        hidden = self._hidden(nodes, disks)
        if not disks and not hidden:
            return False
        if self.state == "unknown" or any(self._in_use(owner, disk) for disk in disks):
            return True
        if self.state == "roles":
            return any(not self._spare(node) for node in hidden)
        return not all(self._spare(node) for node in (*disks, *hidden))

    def _hidden(self, nodes: list[Node], disks: list[Node]) -> list[Node]:
        """Nodes that reach a disk without a block device: what a declaration says of it cannot be told."""
        found = [node for node in nodes if node.kind.startswith("nvme") and not disks]
        for node in nodes:
            target = re.sub("/(scsi_generic|bsg)/[^/]*$", "", node.place)
            unit = node.kind == "bsg" and re.search(r"/(\d+:){3}\d+$", target)
            sort = self.reader.recording.text(f"{target}/type") or ""
            beside = any(disk.place.startswith(f"{target}/") for disk in disks)
            if (node.kind == "scsi_generic" or unit) and not beside and sort in {"", "0", "14"}:
                found.append(node)
        return found

    def _in_use(self, owner: Owner, disk: Node) -> bool:
        names = {disk.leaf, disk.path, owner.address}
        return self.reader.recording.text(f"{disk.place}/dev") in self.mounted or bool(names & self.roles)

    def _spare(self, disk: Node) -> bool:
        above = list(ancestors(disk.place))
        on_usb = any(self.reader.subsystem(place) == "usb" for place in above)
        card = any(self.reader.recording.uevent(place).get("MMC_TYPE") == "SD" for place in above)
        return on_usb or card or disk.leaf.startswith("sr")


class Judge:
    """Goes through the hardware of one recording and collects the opinion."""

    def __init__(self, recording: Recording, roles: tuple[str, ...] | None) -> None:
        self.reader = Reader(recording)
        self.usb = UsbTree(self.reader)
        self.disks = Disks(self.reader, roles)
        self.said = Opinion(self.disks.state)

    def run(self) -> Opinion:
        owned = self._owned()
        for owner in sorted({*owned, *self.usb.driven()}):
            nodes = [node for node in owned[owner] if not dropped(self.reader, node)]
            self._judge(owner, sorted(nodes))
        for owner in self.usb.whole():
            self.said.devices[label(owner)] = self._offer(owner, [])
        self.said.unclaimed = self._unclaimed()
        return self.said

    def _owned(self) -> dict[Owner, list[Node]]:
        nodes = [node for node in self.reader.nodes() if node.kind != "usb"]
        found = {node: owner_of(self.reader, node) for node in nodes}
        controllers = {node.leaf: owner for node, owner in found.items() if owner and node.kind == "nvme"}
        owned: dict[Owner, list[Node]] = defaultdict(list)
        for node, owner in found.items():
            of_whom = owner or multipath_owner(self.reader, node, controllers)
            if of_whom:
                owned[of_whom].append(node)
                self.said.owners[node.path] = of_whom
        return owned

    def _judge(self, owner: Owner, nodes: list[Node]) -> None:
        disks = [node for node in nodes if node.kind == "block" and held(self.reader, node) != "flash"]
        free = []
        for node in nodes:
            reason = held(self.reader, node) or ("hba" if node.kind == "bsg" and not disks else "")
            if reason:
                self.said.withheld[node.path] = (str(owner), reason)
            else:
                free.append(node)
        if self.reader.is_net_card(owner.place):
            free = [node for node in free if node.kind != "ptp"]
        self._publish(owner, free)

    def _publish(self, owner: Owner, nodes: list[Node]) -> None:
        kinds = {node.kind for node in nodes}
        if owner.bus == "usb" and self.reader.driver(owner.place) == "btusb":
            if self.usb.radio(owner):
                self._put(owner, "", nodes, self._radio(owner, nodes))
        elif "drm" in kinds:
            self._graphics(owner, nodes)
        elif "sound" in kinds and kinds <= {"sound", "input"}:
            flag = ["supportsSound"] if any(node.leaf.startswith("pcm") for node in nodes) else []
            self._put(owner, "", nodes, self._offer(owner, nodes, subsystem="sound", flags=flag))
        elif nodes:
            subsystem = kinds.pop() if len(kinds) == 1 else ""
            self._put(owner, "", nodes, self._offer(owner, nodes, subsystem=subsystem))

    def _put(self, owner: Owner, variant: str, nodes: list[Node], offer: Offer) -> None:
        if self.disks.keep(owner, nodes):
            self.said.withheld.update({node.path: (str(owner), "storage") for node in nodes})
        else:
            self.said.devices[label(owner, variant)] = offer

    def _offer(
        self,
        owner: Owner,
        nodes: list[Node],
        *,
        subsystem: str = "",
        flags: list[str] | None = None,
        companion: bool = False,
    ) -> Offer:
        shareable = "renderNode" in (flags or [])
        paths = {node.path for node in nodes}
        if owner.bus == "usb" and not shareable and not companion:
            paths.add(self.usb.node(owner.address))
        kinds = tuple(sorted({node.kind for node in nodes}))
        return Offer(str(owner), kinds, subsystem, shareable, tuple(flags or []), tuple(sorted(paths)))

    def _radio(self, owner: Owner, nodes: list[Node]) -> Offer:
        plain = self._offer(owner, nodes)
        names = [name for name in ("uinput", "uhid") if self.reader.recording.has(f"sys/class/misc/{name}")]
        if "uinput" in names:
            names += [f"input/event{number}" for number in range(32)]
        paths = {*plain.nodes, *(f"/dev/{name}" for name in names)}
        return Offer(plain.hardware, plain.kinds, "", False, (), tuple(sorted(paths)))

    def _graphics(self, owner: Owner, nodes: list[Node]) -> None:
        cards = [node for node in nodes if node.kind == "drm" and node.leaf.startswith("card")]
        render = [node for node in nodes if node.kind == "drm" and node.leaf.startswith("renderD")]
        display = ["displayNode"] if any(self._has_connector(card) for card in cards) else []
        if render:
            offer = self._offer(owner, render, subsystem="drm", flags=["renderNode"])
            self._put(owner, "", render, offer)
        if cards:
            offer = self._offer(owner, cards, subsystem="drm", flags=display, companion=bool(render))
            self._put(owner, "display" if render else "", cards, offer)
        for kind in {node.kind for node in nodes} - {"drm"}:
            members = [node for node in nodes if node.kind == kind]
            offer = self._offer(owner, members, subsystem=kind, companion=True)
            self._put(owner, kind.replace("_", "-"), members, offer)

    def _has_connector(self, card: Node) -> bool:
        return any(name.startswith(f"{card.leaf}-") for name in self.reader.recording.names(card.place))

    def _unclaimed(self) -> set[str]:
        """Functions and interfaces without a driver, and with a module for it if that can be told."""
        found = {
            f"{bus} {name}": _one_dash(self.reader.recording.text(f"{place}/modalias") or "")
            for bus, entries in self.reader.listed.items()
            for name, place in entries.items()
            if (bus == "pci" or ":" in name) and not self.reader.driver(place)
        }
        known = self._patterns()
        return {
            slot
            for slot, modalias in found.items()
            if modalias and (known is None or any(fnmatchcase(modalias, pattern) for pattern in known))
        }

    def _patterns(self) -> list[str] | None:
        """The alias patterns of loadable modules; None where the recording has no modules.alias."""
        recording = self.reader.recording
        folders = [f"lib/modules/{name}" for name in recording.names("lib/modules")]
        texts = [recording.text(f"{folder}/modules.alias") for folder in folders]
        if not any(texts):
            return None
        built_in = {
            re.sub(r".*/|[.]ko.*", "", line).replace("-", "_")
            for folder in folders
            for line in (recording.text(f"{folder}/modules.builtin") or "").splitlines()
        }
        words = [line.split() for text in texts if text for line in text.splitlines()]
        return [
            _one_dash(line[1])
            for line in words
            if len(line) == 3 and line[0] == "alias" and line[2].replace("-", "_") not in built_in
        ]


def _one_dash(text: str) -> str:
    return re.sub(r"(\[[^]]*\])|-", lambda found: found[1] or "_", text)


def opinion(recording: Recording, roles: tuple[str, ...] | None = None) -> Opinion:
    """What should be published of a recorded machine, and what not and why.

    `roles` are the disks that a machine file declares; None when it declares none.
    """
    return Judge(recording, roles).run()
