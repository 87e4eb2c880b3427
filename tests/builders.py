"""Machines to test on: a readable builder of /sys and /proc trees.

    machine = MachineBuilder(tmp_path)
    gpu = machine.pci("0000:00:02.0", driver="i915", pci_class="030000", vendor="8086", device="3e9b")
    machine.drm(gpu, card=0, render=128, connectors=["HDMI-A-1"])
    stick = machine.usb("1-4", vendor="1a86", product="7523")
    serial = machine.interface(stick, 0, driver="ch341", usb_class="ff")
    machine.tty(serial, "ttyUSB0")
    tree = machine.tree()

Every method that makes a directory returns its path as the Tree takes it ("sys/devices/..."); give that as
the parent of what lies below. A directory gets all that the kernel would make: `uevent`, `dev`, the
`subsystem` and `driver` links and its entries in bus/*/devices, bus/*/drivers/*, class/* and dev/*.
`remove` takes the same things away again. Device numbers are given out in order, per kind.

A fresh machine has a root file system on no disk of its own, no swap, the console tty0, and a boot id.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.sysfs import Sysfs

BOOT_ID = "5b9f3e0a-6f0e-4f0c-8d5e-0d6a3c1b2f11"
CONTROLLER = "0000:00:14.0"  # the USB host controller of every machine that has USB devices


class MachineBuilder(Sysfs):
    """A machine below `root`, made piece by piece; `root` has sys/ and proc/."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self._devnums: dict[int, int] = {}
        self._mounts = ["24 1 0:21 / / rw,relatime - overlay overlay rw"]
        for folder in ("sys/bus/pci/devices", "sys/bus/usb/devices", "sys/class", "sys/devices/virtual"):
            self._folder(folder)
        for folder in ("sys/dev/char", "sys/dev/block"):
            self._folder(folder)
        self.write("proc/sys/kernel/random/boot_id", BOOT_ID + "\n")
        self.write("proc/sys/kernel/osrelease", "6.12.0\n")
        self.write("proc/swaps", "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n")
        self.console("tty0")
        self._write_mounts()

    # -- buses

    def pci(
        self,
        address: str,
        driver: str = "",
        pci_class: str = "ff0000",
        vendor: str = "8086",
        device: str = "1234",
        parent: str = "",
        numa: int | None = None,
    ) -> str:
        """A PCI function, below its host bridge or below `parent` (a bridge)."""
        domain_bus = address.rpartition(":")[0]
        modalias = (
            f"pci:v0000{vendor.upper()}d0000{device.upper()}sv00000000sd00000000bc{pci_class[:2].upper()}"
        )
        files = {
            "class": f"0x{pci_class}\n",
            "vendor": f"0x{vendor}\n",
            "device": f"0x{device}\n",
            "modalias": f"{modalias}sc{pci_class[2:4]}i{pci_class[4:]}\n",
        }
        if numa is not None:
            files["numa_node"] = f"{numa}\n"
        pairs = {"PCI_CLASS": pci_class.lstrip("0") or "0", "PCI_SLOT_NAME": address, "MODALIAS": modalias}
        return self.device(parent or f"sys/devices/pci{domain_bus}", address, "pci", driver, files, pairs)

    def root_hub(self, bus: int, superspeed: bool = False, parent: str = "") -> str:
        """The root hub `usbN`, made with its controller when it is not there yet."""
        if not parent:
            parent = f"sys/devices/pci0000:00/{CONTROLLER}"
            if not (self.root / parent).exists():
                self.pci(CONTROLLER, driver="xhci_hcd", pci_class="0c0330")
        directory = f"{parent}/usb{bus}"
        if (self.root / directory).exists():
            return directory
        self._usb_device(parent, f"usb{bus}", bus, "1d6b", "0003" if superspeed else "0002", {})
        self._interface(directory, f"{bus}-0:1.0", 0, "hub", "09")
        return directory

    def usb(
        self,
        address: str,
        vendor: str = "1a86",
        product: str = "7523",
        parent: str = "",
        devnum: int | None = None,
        serial: str | bytes | None = None,
        manufacturer: str | bytes | None = None,
        name: str | bytes | None = None,
        driver: str = "usb",
    ) -> str:
        """A USB device ("1-4", "1-4.2") without interfaces, below its hub; `name` is the product string.

        It has its usbfs node. Without `parent` it hangs on the root hub of its bus, or on the hub that its
        address names when that is there.
        """
        bus = int(address.partition("-")[0])
        strings = {"serial": serial, "manufacturer": manufacturer, "product": name}
        files = {key: value for key, value in strings.items() if value is not None}
        if not parent:
            parent = self.root_hub(bus)
            upper = address.rpartition(".")[0]
            above = self.root / f"sys/bus/usb/devices/{upper}"
            if upper and above.is_symlink():
                parent = str(above.resolve().relative_to(self.root.resolve()))
        return self._usb_device(parent, address, bus, vendor, product, files, devnum, driver)

    def _usb_device(
        self,
        parent: str,
        name: str,
        bus: int,
        vendor: str,
        product: str,
        files: Mapping[str, str | bytes],
        devnum: int | None = None,
        driver: str = "usb",
    ) -> str:
        if devnum is None:
            devnum = self._devnums.get(bus, 0) + 1
        self._devnums[bus] = max(devnum, self._devnums.get(bus, 0))
        number = f"189:{(bus - 1) * 128 + devnum - 1}"
        lines = {
            key: (value if isinstance(value, bytes) else value.encode()) + b"\n"
            for key, value in files.items()
        }
        directory = self.node(
            parent,
            "usb",
            name,
            devname=f"bus/usb/{bus:03d}/{devnum:03d}",
            number=number,
            folder="",
            files={
                "busnum": f"{bus}\n",
                "devnum": f"{devnum}\n",
                "idVendor": f"{vendor}\n",
                "idProduct": f"{product}\n",
                **lines,
            },
            uevent={"DEVTYPE": "usb_device"},
        )
        self.bind(directory, driver)
        return directory

    def interface(
        self, device: str, number: int, driver: str = "", usb_class: str = "ff", configuration: int = 1
    ) -> str:
        """An interface of a USB device: `<device>:<configuration>.<number>`."""
        name = f"{device.rpartition('/')[2]}:{configuration}.{number}"
        return self._interface(device, name, number, driver, usb_class)

    def _interface(self, device: str, name: str, number: int, driver: str, usb_class: str) -> str:
        files = {
            "bInterfaceNumber": f"{number:02x}\n",
            "bInterfaceClass": f"{usb_class}\n",
            "modalias": f"usb:v0000p0000d0000dc00dsc00dp00ic{usb_class.upper()}isc00ip00in{number:02X}\n",
        }
        return self.device(device, name, "usb", driver, files, {"DEVTYPE": "usb_interface"})

    def board(
        self,
        bus: str,
        name: str,
        driver: str = "",
        parent: str = "",
        of_node: bool = False,
        files: Mapping[str, str | bytes] | None = None,
    ) -> str:
        """A device of any bus (platform, acpi, pnp, serio, virtio, ...), by default at its usual place."""
        directory = self.device(parent or f"sys/devices/{bus}", name, bus, driver, files)
        if of_node:
            self.link(f"{directory}/of_node", f"sys/firmware/devicetree/base/{name}")
        return directory

    # -- nodes

    def tty(self, parent: str, name: str, port_type: int | None = None) -> str:
        """A serial port; `port_type` 0 is a port without a UART behind it."""
        files = {} if port_type is None else {"type": f"{port_type}\n"}
        return self.node(parent, "tty", name, files=files)

    def hidraw(self, parent: str, name: str) -> str:
        return self.node(parent, "hidraw", name)

    def event(self, parent: str, number: int) -> str:
        """An input device `inputN` with its node /dev/input/eventN."""
        device = self.device(f"{parent}/input", f"input{number}", "input")
        return self.node(device, "input", f"event{number}", devname=f"input/event{number}", folder="")

    def drm(
        self, parent: str, card: int | None = None, render: int | None = None, connectors: Iterable[str] = ()
    ) -> str:
        """The DRM nodes of a graphics device: cardN with its connectors, renderDN. Returns the card."""
        place = ""
        if render is not None:
            self.node(parent, "drm", f"renderD{render}", devname=f"dri/renderD{render}")
        if card is not None:
            place = self.node(parent, "drm", f"card{card}", devname=f"dri/card{card}")
            for connector in connectors:
                self.device(place, f"card{card}-{connector}", "drm")
        return place

    def i2c(self, parent: str, number: int) -> str:
        """An i2c bus with its node /dev/i2c-N. Returns the bus."""
        adapter = self.device(parent, f"i2c-{number}", "i2c")
        self.node(adapter, "i2c-dev", f"i2c-{number}", number=f"89:{number}")
        return adapter

    def sound(self, parent: str, card: int, pcm: bool = True, jacks: Iterable[int] = ()) -> str:
        """An ALSA card: control node, one playback node, and the input nodes of its jacks."""
        place = self.device(f"{parent}/sound", f"card{card}", "sound")
        self.node(place, "sound", f"controlC{card}", devname=f"snd/controlC{card}", folder="")
        if pcm:
            self.node(place, "sound", f"pcmC{card}D0p", devname=f"snd/pcmC{card}D0p", folder="")
        for jack in jacks:
            device = self.device(place, f"input{jack}", "input")
            self.node(device, "input", f"event{jack}", devname=f"input/event{jack}", folder="")
        return place

    def disk(
        self, parent: str, name: str, partitions: Iterable[str] = (), number: str = "", folder: str = "block"
    ) -> str:
        """A block device with partitions, `holders` folders and an entry in sys/block. Returns the disk."""
        place = self.node(parent, "block", name, number=number, folder=folder, uevent={"DEVTYPE": "disk"})
        self._folder(f"{place}/holders")
        self.link(f"sys/block/{name}", place)
        for partition in partitions:
            part = self.node(place, "block", partition, folder="", uevent={"DEVTYPE": "partition"})
            self._folder(f"{part}/holders")
            self.write(f"{part}/partition", "1\n")
        return place

    def scsi_disk(self, parent: str, name: str, partitions: Iterable[str] = (), host: int = 0) -> str:
        """A SCSI disk below its host: block device, sg and bsg nodes. Returns the block device."""
        target = self.device(f"{parent}/host{host}/target{host}:0:0", f"{host}:0:0:0", "scsi", "sd")
        self.node(target, "scsi_generic", f"sg{host}")
        self.node(target, "bsg", f"{host}:0:0:0", devname=f"bsg/{host}:0:0:0")
        return self.disk(target, name, partitions)

    def nvme(self, parent: str, controller: int, namespace: bool = True, partitions: int = 0) -> str:
        """An NVMe controller with one namespace (block and generic node). Returns the controller."""
        place = self.node(parent, "nvme", f"nvme{controller}")
        if namespace:
            name = f"nvme{controller}n1"
            names = [f"{name}p{number}" for number in range(1, partitions + 1)]
            self.disk(place, name, names, number=f"259:{controller * 32}", folder="")
            self.node(place, "nvme-generic", f"ng{controller}n1", folder="")
        return place

    # -- what the machine itself uses

    def number(self, directory: str) -> str:
        """The "major:minor" of a node."""
        return (self.root / directory / "dev").read_text().strip()

    def mount(self, directory: str, at: str = "/data", source: str = "/dev/x", kind: str = "ext4") -> None:
        """Mount the block device at `directory` (or one given as "major:minor") in the host's mount table."""
        number = self.number(directory) if "/" in directory else directory
        self._mounts.append(f"{30 + len(self._mounts)} 24 {number} / {at} rw - {kind} {source} rw")
        self._write_mounts()

    def _write_mounts(self) -> None:
        self.write("proc/1/mountinfo", "\n".join(self._mounts) + "\n")

    def swap(self, path: str, kind: str = "partition") -> None:
        """Use the block device or file at `path` ("/dev/sda2") as swap."""
        place = self.root / "proc/swaps"
        place.write_text(place.read_text() + f"{path}\t{kind}\t1048572\t0\t-2\n")

    def hold(self, directory: str, holder: str, kind: str = "dm", name: str = "") -> str:
        """A virtual block device (dm-0, md0, ...) on top of the block device at `directory`. Returns it."""
        above = f"sys/devices/virtual/block/{holder}"
        if not (self.root / above).exists():
            self.disk("sys/devices/virtual", holder, number=f"253:{len(self._minors) + len(self._mounts)}")
        if name:
            self.write(f"{above}/{kind}/name", name + "\n")
        self.link(f"{directory}/holders/{holder}", above)
        self.link(f"{above}/slaves/{directory.rpartition('/')[2]}", directory)
        return above

    def console(self, *names: str) -> None:
        """The ttys the kernel's console is on, in the order of class/tty/console/active."""
        self.write("sys/devices/virtual/tty/console/active", " ".join(names) + "\n")
        self.link("sys/class/tty/console", "sys/devices/virtual/tty/console")

    def virtual(self, kind: str, name: str, devname: str = "") -> str:
        """A node that belongs to no hardware (uinput, uhid, kvm, snd/timer, ...)."""
        return self.node("sys/devices/virtual", kind, name, devname)
