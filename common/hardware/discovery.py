"""Which hardware exists: PCI functions, USB devices and interfaces, board devices."""

from collections.abc import Callable

import msgspec

from common.hardware.delivery import DESCRIBED, natural
from common.hardware.model import Hardware
from common.hardware.tree import Tree, TreeError

_DEVICES = "sys/devices/"
_UNOWNED = ("sys/devices/virtual/", "sys/devices/faux/")


def spoken(name: str) -> bool:
    """True when a directory name can be told in JSON; the kernel makes no others."""
    return name.isascii() or not any("\ud800" <= sign <= "\udfff" for sign in name)


def functions(tree: Tree) -> list[Hardware]:
    """Every PCI function, driven or not, sorted by address. TreeError when the bus cannot be listed."""
    found = []
    for address in tree.names("sys/bus/pci/devices"):
        directory = tree.target(f"sys/bus/pci/devices/{address}")
        if directory is not None and spoken(address):
            driver = tree.link_name(f"{directory}/driver")
            found.append(Hardware("pci", address, directory, driver, "function"))
    return found


class UsbDevice(msgspec.Struct, frozen=True):
    """A USB device with at least one interface; `interfaces` in order of their number."""

    address: str
    directory: str
    interfaces: tuple[Hardware, ...]

    @property
    def undriven(self) -> bool:
        """True when it publishes whole. Only interface drivers count; usbfs is one: a program is there."""
        return not any(interface.driver for interface in self.interfaces)


def usb_devices(tree: Tree) -> list[UsbDevice]:
    """Every USB device that has interfaces, sorted by address. TreeError when the bus cannot be listed."""
    names = tree.names("sys/bus/usb/devices")
    interfaces: dict[str, list[str]] = {}
    for name in names:
        if ":" in name:
            interfaces.setdefault(name.partition(":")[0], []).append(name)
    found = []
    for address in names:
        if address in interfaces:
            directory = tree.target(f"sys/bus/usb/devices/{address}")
            if directory is not None and spoken(address):
                found.append(_usb_device(tree, address, directory, interfaces[address]))
    return found


def _usb_device(tree: Tree, address: str, directory: str, names: list[str]) -> UsbDevice:
    parts = []
    for name in sorted(names, key=natural):
        place = tree.target(f"sys/bus/usb/devices/{name}")
        if place is not None and spoken(name):
            driver = tree.link_name(f"{place}/driver")
            parts.append(Hardware("usb", name, place, driver, "interface", directory))
    return UsbDevice(address, directory, tuple(parts))


def usb_device_at(tree: Tree, address: str, directory: str) -> UsbDevice:
    """One USB device, its interfaces taken from its own directory: no listing of the whole bus."""
    entries = tree.entries(directory)
    names = [name for name in entries.dirs if name.startswith(f"{address}:")] if entries is not None else []
    parts = [
        Hardware(
            "usb",
            name,
            f"{directory}/{name}",
            tree.link_name(f"{directory}/{name}/driver"),
            "interface",
            directory,
        )
        for name in sorted(names, key=natural)
        if spoken(name)
    ]
    return UsbDevice(address, directory, tuple(parts))


class Place(msgspec.Struct, frozen=True):
    """What matters of one directory on the way from a node up to sys/devices."""

    directory: str
    subsystem: str
    driver: str
    of_node: bool


class NodeOwner(msgspec.Struct, frozen=True):
    """Whose a node is: `owner`, or None and `why`: "virtual" or "undriven"."""

    directory: str
    owner: Place | None
    why: str = ""


class Ownership:
    """Finds the owner of a node's directory; remembers directories, so make a new one for each walk."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._places: dict[str, Place] = {}

    def place(self, directory: str) -> Place:
        found = self._places.get(directory)
        if found is None:
            driver = self._tree.link_name(f"{directory}/driver")
            of_node = bool(driver) and self._tree.link(f"{directory}/of_node") is not None
            subsystem = self._tree.link_name(f"{directory}/subsystem")
            found = self._places[directory] = Place(directory, subsystem, driver, of_node)
        return found

    def owner(self, directory: str) -> NodeOwner:
        """The owner of the node at `directory`, by the rules of the discovery of board devices."""
        if directory.startswith(_UNOWNED) or not directory.startswith(_DEVICES):
            return NodeOwner(directory, None, "virtual")
        below: list[Place] = []
        for place in map(self.place, _upwards(directory)):
            if place.subsystem in {"pci", "usb"}:
                described = any(lower.driver and lower.of_node for lower in below)
                if place.driver and not described:
                    return NodeOwner(directory, place)
                break  # an undriven function, or a board behind one: the owner is below it
            below.append(place)
        owner = _on_board(below)
        return NodeOwner(directory, owner, "" if owner is not None else "undriven")


def _on_board(chain: list[Place]) -> Place | None:
    """The nearest driven place on a described bus, else the outermost driven one that is not on scsi."""
    driven = [place for place in chain if place.driver]
    for place in driven:
        if place.subsystem in DESCRIBED:
            return place
    outer = [place for place in driven if place.subsystem != "scsi"]
    return outer[-1] if outer else None


def _upwards(directory: str) -> list[str]:
    """The directory and all above it, nearest first, without sys/devices itself."""
    parts = directory.split("/")
    return ["/".join(parts[:length]) for length in range(len(parts), 2, -1)]


def indexed(tree: Tree) -> list[tuple[str, str]]:
    """Every node of dev/char and dev/block: (index entry, directory), sorted by directory.

    A tree without these folders has none. Raises TreeError when one cannot be listed.
    """
    found = []
    for index in ("sys/dev/char", "sys/dev/block"):
        for number in tree.names(index):
            directory = tree.target(f"{index}/{number}")
            if directory is not None:
                found.append((f"{index}/{number}", directory))
    return sorted(found, key=lambda entry: entry[1])


def board_devices(tree: Tree, ownership: Ownership, covered: Callable[[str], bool]) -> list[Hardware]:
    """Every board device that owns a node. `covered`: node directories that belong to other hardware."""
    found: dict[tuple[str, str], Hardware] = {}
    for _, directory in indexed(tree):
        if covered(directory):
            continue
        owner = ownership.owner(directory).owner
        if owner is None or owner.subsystem in {"pci", "usb", ""}:
            continue
        address = owner.directory.rpartition("/")[2]
        if spoken(address) and spoken(owner.subsystem):
            key = owner.subsystem, address
            found.setdefault(key, Hardware(*key, owner.directory, owner.driver, "board"))
    return [found[key] for key in sorted(found)]


def hardware_at(tree: Tree, bus: str, address: str) -> Hardware | None:
    """The hardware in one slot, whatever its state; None when the bus folder lists it not.

    Raises TreeError when the bus folder cannot be listed or is not there: that says nothing about the slot.
    """
    folder = f"sys/bus/{bus}/devices"
    if "/" in bus or "/" in address or not bus or not address:
        return None
    directory = tree.target(f"{folder}/{address}")
    if directory is None:
        if tree.entries(folder) is None:
            raise TreeError(f"/{folder} is not there; is sysfs mounted?")
        return None
    driver = tree.link_name(f"{directory}/driver")
    if bus == "pci":
        return Hardware(bus, address, directory, driver, "function")
    if bus == "usb" and ":" in address:
        return Hardware(bus, address, directory, driver, "interface", directory.rpartition("/")[0])
    if bus == "usb":
        return Hardware(bus, address, directory, driver, "whole", directory)
    return Hardware(bus, address, directory, driver, "board")
