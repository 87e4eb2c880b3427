"""A second opinion on ownership: which hardware each device node of a recording belongs to.

Written from the rules alone and from the other end than the product: it starts at the nodes and looks up
their paths for the owner, where `common.hardware` starts at the owners and looks down. They share no code.
"""

import re
from collections import defaultdict
from dataclasses import dataclass, field

from tests.machines.recording import Recording, ancestors

DESCRIBED = {"platform", "acpi", "pnp", "amba", "vmbus", "ccw", "vio", "xen"}
PLUMBING = {"usb", "hub", "pcieport"}


@dataclass(frozen=True, order=True)
class Owner:
    """One piece of hardware by its bus and address."""

    bus: str
    address: str
    place: str = field(compare=False)

    def __str__(self) -> str:
        return f"{self.bus} {self.address}"


@dataclass(frozen=True, order=True)
class Node:
    """One device node by its path below /dev, the subsystem of it, and its folder in sys."""

    path: str
    kind: str
    place: str = field(compare=False)

    @property
    def leaf(self) -> str:
        return self.path.rpartition("/")[2]


class Reader:
    """The questions the rules ask of a recording."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.listed = {bus: self._entries(f"sys/bus/{bus}/devices") for bus in ("pci", "usb")}
        numbered = {**self._entries("sys/dev/char"), **self._entries("sys/dev/block")}
        self.numbered = set(numbered.values())
        self.net_parents = {place.rpartition("/net/")[0] for place in recording.links if "/net/" in place}
        console = recording.resolve("sys/class/tty/console")
        self.consoles = (recording.text(f"{console}/active") or "").split()

    def _entries(self, folder: str) -> dict[str, str]:
        names = self.recording.names(folder)
        return {name: self.recording.resolve(f"{folder}/{name}") for name in names}

    def driver(self, place: str) -> str:
        return self.recording.leaf(f"{place}/driver")

    def subsystem(self, place: str) -> str:
        return self.recording.leaf(f"{place}/subsystem")

    def is_net_card(self, place: str) -> bool:
        return any(parent == place or parent.startswith(f"{place}/") for parent in self.net_parents)

    def nodes(self) -> list[Node]:
        found = []
        for path in self.recording.files:
            place, _, leaf = path.rpartition("/")
            name = self.recording.uevent(place).get("DEVNAME") if leaf == "dev" else None
            if name and place.startswith("sys/devices/"):
                found.append(Node(f"/dev/{name}", self.subsystem(place), place))
        return sorted(found)


def owner_of(reader: Reader, node: Node) -> Owner | None:
    """The hardware a node belongs to, found by looking up its path; None when it belongs to nobody."""
    if node.place.startswith(("sys/devices/virtual/", "sys/devices/faux/")):
        return None
    below: list[str] = []
    for place in ancestors(node.place):
        subsystem, driver = reader.subsystem(place), reader.driver(place)
        if subsystem == "bluetooth" or (subsystem == "usb" and not driver):
            return None
        if subsystem in {"pci", "usb"}:  # nobody beyond a PCI function delivers what lies below it
            return _bus_owner(reader, node, place, below) if driver else _board_owner(reader, node, below)
        below.append(place)
    return _board_owner(reader, node, below)


def _bus_owner(reader: Reader, node: Node, place: str, below: list[str]) -> Owner | None:
    driven = [inner for inner in below if reader.driver(inner)]
    described = any(reader.recording.has(f"{inner}/of_node") for inner in driven)
    return _board_owner(reader, node, below) if described else _owner(reader, place)


def _board_owner(reader: Reader, node: Node, below: list[str]) -> Owner | None:
    driven = [place for place in below if reader.driver(place)]
    if node.place not in reader.numbered:
        return None
    described = [place for place in driven if reader.subsystem(place) in DESCRIBED]
    others = [place for place in driven if reader.subsystem(place) != "scsi"]
    chosen = described[:1] or others[-1:]
    return _owner(reader, chosen[0]) if chosen else None


def _owner(reader: Reader, place: str) -> Owner | None:
    bus, address = reader.subsystem(place), place.rpartition("/")[2]
    if reader.driver(place) in {*PLUMBING, "usbfs"} or address not in reader.listed.get(
        bus, {address: place}
    ):
        return None
    return Owner(bus, address, place)


def multipath_owner(reader: Reader, node: Node, controllers: dict[str, Owner]) -> Owner | None:
    """The NVMe function of a namespace in virtual/nvme-subsystem; None when there is not exactly one."""
    found = re.search("/virtual/nvme-subsystem/(nvme-subsys[0-9]+)/", node.place)
    instance = re.match(r"/dev/n(?:vme|g)(\d+)n", node.path)
    if not found or not instance:
        return None
    recording = reader.recording
    folder = node.place[: found.end() - 1]
    members = [name for name in recording.names(folder) if re.fullmatch(r"nvme\d+", name)]
    members = members or _by_path(recording, int(instance[1])) or [f"nvme{instance[1]}"]
    owners = {controllers[name] for name in members if name in controllers}
    return owners.pop() if len(owners) == 1 else None


def _by_path(recording: Recording, instance: int) -> list[str]:
    wanted = re.compile(rf"/nvme{instance}c(\d+)n\d+/uevent$")
    hits = [wanted.search(path) for path in recording.files]
    return [f"nvme{hit[1]}" for hit in hits if hit]


def _numbers(name: str) -> list[int]:
    """Orders 1-2:1.10 after 1-2:1.9."""
    return [int(part) for part in re.findall(r"\d+", name)]


class UsbTree:
    """USB devices, their interfaces in number order, and their usbfs nodes."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self.places = reader.listed["usb"]
        self.interfaces: dict[str, list[str]] = defaultdict(list)
        for name in sorted((name for name in self.places if ":" in name), key=_numbers):
            self.interfaces[name.partition(":")[0]].append(name)

    def driven(self) -> list[Owner]:
        """The interfaces that a driver holds, hubs and usbfs left out."""
        return [
            Owner("usb", name, place)
            for name, place in self.places.items()
            if ":" in name and self.reader.driver(place) not in {"", "usbfs", *PLUMBING}
        ]

    def node(self, address: str) -> str:
        """The usbfs node of an interface or a device."""
        place = self.places[address.partition(":")[0]]
        texts = [self.reader.recording.text(f"{place}/{name}") for name in ("busnum", "devnum")]
        bus, device = (int(text or 0) for text in texts)
        return f"/dev/bus/usb/{bus:03}/{device:03}"

    def whole(self) -> list[Owner]:
        """The USB devices with interfaces, none of which has a driver."""
        return [
            Owner("usb", device, self.places[device])
            for device, interfaces in self.interfaces.items()
            if device in self.places and not any(self.reader.driver(self.places[name]) for name in interfaces)
        ]

    def radio(self, owner: Owner) -> bool:
        """Whether this is the one interface of its USB device that stands for the Bluetooth radio."""
        siblings = self.interfaces[owner.address.partition(":")[0]]
        driven = [name for name in siblings if self.reader.driver(self.places[name]) == "btusb"]
        attached = [name for name in driven if self.reader.recording.has(f"{self.places[name]}/bluetooth")]
        return owner.address in (attached or driven[:1])
