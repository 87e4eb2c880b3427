"""Machines that nobody built: hypothesis strategies for trees with any hardware at any place."""

import posixpath
from dataclasses import dataclass, field

from hypothesis import strategies as st

from common.hardware.archive import Archive
from tests.machines.recording import Recording

BUSES = {"pci", "usb", "platform", "acpi", "pnp", "scsi", "hid", "i2c", "serio", "virtio", "wmi"}
LAYERS = ["platform", "platform", "acpi", "pnp", "scsi", "hid", "i2c", "serio", "virtio", "wmi", ""]
KINDS = [
    "tty",
    "tty",
    "input",
    "hidraw",
    "i2c-dev",
    "drm",
    "sound",
    "misc",
    "block",
    "scsi_generic",
    "video4linux",
]
DRIVERS = {
    "pci": ["", "pcieport", "xhci_hcd", "igb", "ahci", "i915"],
    "usb": ["", "", "usbhid", "cdc_acm", "usb-storage", "usbfs", "btusb", "hub"],
}
NAMES = {
    "drm": ["dri/card{n}", "dri/renderD{n}", "dri/controlD{n}"],
    "sound": ["snd/controlC{n}", "snd/pcmC{n}D0p"],
    "misc": ["tpm{n}", "watchdog{n}", "vendor{n}"],
    "tty": ["ttyS{n}", "ttyUSB{n}"],
    "input": ["input/event{n}"],
    "block": ["sd{n}", "sr{n}", "mmcblk{n}"],
    "scsi_generic": ["sg{n}"],
}


@dataclass
class Imagined:
    """A tree in the making; names are numbered so that no two are equal."""

    files: dict[str, bytes] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    count: int = 0

    def number(self) -> int:
        self.count += 1
        return self.count

    def link(self, path: str, target: str) -> None:
        self.links[path] = posixpath.relpath(target, posixpath.dirname(path))

    def device(self, place: str, subsystem: str, driver: str = "") -> str:
        """A device folder with its links and its entry in the bus or class."""
        self.files[f"{place}/uevent"] = b""
        leaf = place.rpartition("/")[2]
        if subsystem:
            home = f"sys/bus/{subsystem}" if subsystem in BUSES else f"sys/class/{subsystem}"
            self.link(f"{place}/subsystem", home)
            self.link(f"{home}/devices/{leaf}" if subsystem in BUSES else f"{home}/{leaf}", place)
        if driver:
            self.link(f"{place}/driver", f"sys/bus/{subsystem}/drivers/{driver}")
        return place

    def node(self, parent: str, kind: str, name: str) -> str:
        """A device node called `name` below /dev."""
        number = f"{200 + len(kind)}:{self.number()}"
        place = self.device(f"{parent}/{kind}/{name.replace('/', '!')}", kind)
        self.files[f"{place}/dev"] = f"{number}\n".encode()
        self.files[f"{place}/uevent"] = f"DEVNAME={name}\n".encode()
        self.link(f"sys/dev/{'block' if kind == 'block' else 'char'}/{number}", place)
        return place

    def recording(self) -> Recording:
        """For the second opinion."""
        return Recording("imagined", dict(self.files), dict(self.links), set())

    def archive(self) -> Archive:
        """For the product."""
        made = Archive()
        for path, content in self.files.items():
            folder, _, name = path.rpartition("/")
            made.make_folder(folder).files[name] = content
        for path, target in self.links.items():
            folder, _, name = path.rpartition("/")
            made.make_folder(folder).links[name] = target
        return made


@st.composite
def imagined(draw: st.DrawFn) -> Imagined:
    """Any machine: PCI and USB trees, boards, and nodes below all of them."""
    made = Imagined()
    made.files["sys/devices/virtual/tty/console/active"] = b"ttyS1 ttyS3\n"
    made.link("sys/class/tty/console", "sys/devices/virtual/tty/console")
    made.files["sys/bus/platform/uevent"] = b""
    made.files["proc/1/mountinfo"] = b"30 1 259:1 / / rw - ext4 /dev/x rw\n"
    for root in (
        "sys/devices/pci0000:00",
        "sys/devices/platform",
        "sys/devices/LNXSYSTM:00",
        "sys/devices/virtual",
    ):
        for _ in range(draw(st.integers(0, 3))):
            _grow(draw, made, root, 4)
    return made


def _grow(draw: st.DrawFn, made: Imagined, parent: str, depth: int) -> None:
    """Something below `parent`: a function, a USB device, another device, or a node."""
    forms = ["layer", "node", "node"]
    if "/pci0000:00" in parent and "/usb" not in parent:
        forms += ["function", "function", "usb"]
    form = draw(st.sampled_from(forms))
    if form == "node":
        kind = draw(st.sampled_from(KINDS))
        name = draw(st.sampled_from(NAMES.get(kind, [f"{kind}{{n}}"]))).format(n=made.number())
        place = made.node(parent, kind, name)
        _dress(draw, made, place, kind)
        return
    number = made.number()
    if form == "function":
        place = f"{parent}/0000:{number // 256:02x}:{number % 32:02x}.{number % 8}"
        made.device(place, "pci", draw(st.sampled_from(DRIVERS["pci"])))
        made.files[f"{place}/modalias"] = b"pci:v00008086\n"
    elif form == "usb":
        _usb(draw, made, f"{parent}/usb1", depth)
        return
    else:
        subsystem = draw(st.sampled_from(LAYERS))
        driver = draw(st.sampled_from(["", "some", "other"])) if subsystem else ""
        place = made.device(f"{parent}/dev{number}", subsystem, driver)
        if draw(st.booleans()) and draw(st.booleans()):
            made.link(f"{place}/of_node", f"sys/firmware/devicetree/base/dev{number}")
    if depth:
        for _ in range(draw(st.integers(0, 3))):
            _grow(draw, made, place, depth - 1)


def _dress(draw: st.DrawFn, made: Imagined, place: str, kind: str) -> None:
    if kind == "tty":
        made.files[f"{place}/type"] = draw(st.sampled_from([b"0\n", b"4\n"]))
    elif kind == "drm" and draw(st.booleans()):
        made.device(f"{place}/{place.rpartition('!')[2]}-HDMI-A-1", "drm")


def _usb(draw: st.DrawFn, made: Imagined, hub: str, depth: int) -> None:
    number = made.number()
    place = f"{hub}/1-{number}"
    made.device(place, "usb", "usb")
    made.files |= {f"{place}/busnum": b"1\n", f"{place}/devnum": f"{number % 128}\n".encode()}
    for interface in range(draw(st.integers(0, 3))):
        below = f"{place}/1-{number}:1.{interface}"
        driver = draw(st.sampled_from(DRIVERS["usb"]))
        made.device(below, "usb", driver)
        made.files[f"{below}/modalias"] = b"usb:v1A86\n"
        if driver in {"", "usbfs"}:
            continue  # what lies below an interface was made by its driver
        for _ in range(draw(st.integers(0, 2))):
            _grow(draw, made, below, min(depth, 1))
        if draw(st.booleans()) and draw(st.booleans()):
            radio = made.device(f"{below}/bluetooth/hci{number}", "bluetooth")
            _grow(draw, made, radio, 0)
