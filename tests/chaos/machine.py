"""The machine of the chaos run: forty pieces of hardware, most of them on USB ports."""

from pathlib import Path
from typing import NamedTuple

from tests.builders import MachineBuilder


class Port(NamedTuple):
    """One thing that can be claimed: what to unplug, and the directory whose nodes are its delivery."""

    device: str  # the published name
    plug: str  # what `unplug` and `plug` take; "" for what cannot be unplugged
    owner: str  # the entry in bus/<bus>/devices whose subtree delivers
    bus: str
    kind: str  # which of the nodes below count ("render" and "card" split a graphics device)
    usbfs: bool


def build(root: Path) -> list[Port]:
    """Make the machine below `root`; the ports in a fixed order."""
    machine = MachineBuilder(root)
    ports: list[Port] = []
    for number in range(1, 15):
        ports.append(_serial(machine, number))
    for number in range(1, 9):
        ports.append(_hid(machine, number))
    for number in range(1, 9):
        ports.append(_driverless(machine, number))
    for number in range(1, 5):
        ports.append(_stick(machine, number))
    for number in range(1, 4):
        ports.extend(_graphics(machine, number))
    ports.append(_sound(machine))
    return ports


def _interface_port(address: str) -> Port:
    name = f"usb-{address.replace('.', '-')}-1-0"
    return Port(name, address, f"{address}:1.0", "usb", "", usbfs=True)


def _serial(machine: MachineBuilder, number: int) -> Port:
    device = machine.usb(f"1-{number}", vendor="0403", product="6001", serial=f"A{number:07}")
    interface = machine.interface(device, 0, driver="ftdi_sio")
    port = machine.device(interface, f"ttyUSB{number - 1}", "usb-serial", "ftdi_sio")
    machine.tty(port, f"ttyUSB{number - 1}")
    return _interface_port(f"1-{number}")


def _hid(machine: MachineBuilder, number: int) -> Port:
    device = machine.usb(f"2-{number}", vendor="051d", product="0002", name="UPS [/foo]")
    interface = machine.interface(device, 0, driver="usbhid", usb_class="03")
    hid = machine.device(interface, f"0003:051D:0002.{number:04}", "hid", "hid-generic")
    machine.hidraw(hid, f"hidraw{number - 1}")
    return _interface_port(f"2-{number}")


def _driverless(machine: MachineBuilder, number: int) -> Port:
    device = machine.usb(f"3-{number}", vendor="1a6e", product="089a")
    machine.interface(device, 0, usb_class="fe")
    return Port(f"usb-3-{number}", f"3-{number}", f"3-{number}", "usb", "", usbfs=True)


def _stick(machine: MachineBuilder, number: int) -> Port:
    device = machine.usb(f"4-{number}", vendor="0781", product="5581")
    interface = machine.interface(device, 0, driver="usb-storage", usb_class="08")
    machine.scsi_disk(interface, f"sd{'abcdefgh'[number - 1]}", host=number)
    return _interface_port(f"4-{number}")


def _graphics(machine: MachineBuilder, number: int) -> list[Port]:
    address = f"0000:0{number}:00.0"
    card = machine.pci(address, driver="amdgpu", pci_class="030000", vendor="1002", device="73bf")
    machine.drm(card, card=number, render=127 + number, connectors=["DP-1"])
    name = f"pci-0000-0{number}-00-0"
    return [
        Port(name, "", address, "pci", "render", usbfs=False),
        Port(f"{name}-display", "", address, "pci", "card", usbfs=False),
    ]


def _sound(machine: MachineBuilder) -> Port:
    card = machine.pci("0000:00:1f.3", driver="snd_hda_intel", pci_class="040300", device="a348")
    machine.sound(card, 0)
    return Port("pci-0000-00-1f-3", "", "0000:00:1f.3", "pci", "", usbfs=False)


def delivered(root: Path, port: Port) -> frozenset[str]:
    """The node paths that a claim on `port` may name now, read from the tree with code of this folder only.

    Empty when the hardware is away. `.../uevent` holds DEVNAME; a directory without `dev` has no node.
    """
    entry = root / "sys/bus" / port.bus / "devices" / port.owner
    if not entry.exists():
        return frozenset()
    paths = set()
    top = entry.resolve()
    for dev in top.rglob("dev"):
        if port.usbfs and port.owner.count(":") == 0 and dev.parent == top:
            continue  # the usbfs node of a whole device is added below
        name = _devname(dev.parent)
        if name and not name.startswith("bus/usb/") and _wanted(port, name):
            paths.add(f"/dev/{name}")
    if port.usbfs:
        name = _devname(top if ":" not in port.owner else top.parent)
        paths |= {f"/dev/{name}"} if name else set()
    return frozenset(paths)


def _wanted(port: Port, name: str) -> bool:
    return {"render": "renderD" in name, "card": "/card" in name}.get(port.kind, True)


def _devname(directory: Path) -> str:
    try:
        lines = (directory / "uevent").read_text().splitlines()
    except OSError:
        return ""
    return next((line.removeprefix("DEVNAME=") for line in lines if line.startswith("DEVNAME=")), "")
