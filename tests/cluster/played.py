"""A played machine whose device nodes exist: made-up hardware in a tree, real nodes in this tier's /dev.

Node numbers are those of the machine's loop devices and zram, so a container can be asked what it was given.
"""

import os
import socket
import stat
from pathlib import Path

from tests.builders import MachineBuilder

GPU = "0000:00:02.0"
SERIAL = "1-4"
FIRST_LOOP = 7 << 8  # /dev/loop0 is 7:0


class PlayedMachine:
    """A tree below `root` and the uevents that go with its changes."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.build = MachineBuilder(root)
        self.listeners: list[Path] = []  # the uevents.sock of every running watcher

    def add_gpu(self, address: str = GPU, card: int = 0, wires: int = 0, announce: bool = False) -> str:
        """A graphics card: cardN and renderD(128+N) below /dev/dri, and one i2c bus."""
        place = self.build.pci(address, driver="i915", pci_class="030000")
        self.build.drm(place, card=card, render=128 + card, connectors=["HDMI-A-1"])
        adapter = self.build.device(place, f"i2c-{wires}", "i2c")
        # the i2c nodes of the machine lie in /dev itself, which belongs to the machine: these have a folder
        self.build.node(adapter, "i2c-dev", f"i2c-{wires}", devname=f"dri/i2c-{wires}")
        for number, name in enumerate((f"card{card}", f"renderD{128 + card}", f"i2c-{wires}")):
            make_node(Path("/dev/dri") / name, 226, card * 8 + number)
        if announce:
            self.say("add", place)
        return place

    def add_serial(self, address: str = SERIAL, devnum: int = 2, announce: bool = False) -> str:
        """A USB serial adapter whose tty is the machine's own /dev/loop3 and whose usbfs node is made."""
        device = self.build.usb(address, devnum=devnum, serial="A5069RR4")
        interface = self.build.interface(device, 0, driver="ftdi_sio")
        self.build.node(interface, "tty", "ttyUSB0", devname="loop3")
        make_node(Path(f"/dev/bus/usb/001/{devnum:03d}"), 189, devnum - 1)
        if announce:
            self.say("add", device)
        return device

    def add_hidraw(self, address: str, number: int, devname: str, announce: bool = False) -> str:
        """A PCI function with one exclusive node: the machine's own /dev/<devname>."""
        place = self.build.pci(address, driver="played", pci_class="ff0000")
        self.build.node(place, "hidraw", f"hidraw{number}", devname=devname)
        if announce:
            self.say("add", place)
        return place

    def remove(self, place: str) -> None:
        """Take hardware away, nodes in our own folders too, and say so."""
        for uevent in (self.root / place).rglob("uevent"):
            for line in uevent.read_text().splitlines():
                node = Path("/dev") / line.removeprefix("DEVNAME=")
                if line.startswith(("DEVNAME=dri/", "DEVNAME=bus/")):
                    node.unlink(missing_ok=True)
        self.build.remove(place)
        self.say("remove", place)

    def say(self, action: str, place: str) -> None:
        """Send the kernel's message about a directory of the tree to every running watcher."""
        path = "/" + place.removeprefix("sys/")
        pairs = [
            f"{action}@{path}",
            f"ACTION={action}",
            f"DEVPATH={path}",
            f"SUBSYSTEM={place.split('/')[2][:3]}",
        ]
        message = "\0".join([*pairs, "SEQNUM=1", ""]).encode()
        for listener in self.listeners:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as speaker:
                speaker.sendto(message, str(listener))


def make_node(path: Path, major: int, minor: int) -> None:
    """A character device node, as devtmpfs would have it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    os.mknod(path, stat.S_IFCHR | 0o660, os.makedev(major, minor))
