"""Hot-plug by QMP: each plug knows what it adds to the slice."""

import time
from dataclasses import dataclass, field
from typing import Any

from tests.kernel.machine import Guest
from tests.kernel.qmp import QmpError
from tests.waiting import eventually

GONE_S = 20.0  # until QEMU lets an id be used again


@dataclass(frozen=True)
class Kind:
    """One hot-pluggable kind: QEMU's words, and what of it the slice lists when it sits in port 8."""

    driver: str
    device: str  # "" when nothing of it is claimable
    nodes: tuple[str, ...] = ()  # of the delivery, digits as N
    options: dict[str, Any] = field(default_factory=dict)
    bus: str = "xhci.0"
    chardev: bool = False
    drive: bool = False


_HID = ("/dev/bus/usb/N/N", "/dev/hidrawN", "/dev/input/eventN")
KINDS = {
    "ftdi serial": Kind(
        "usb-serial",
        "usb-1-8-1-0",
        ("/dev/bus/usb/N/N", "/dev/ttyUSBN"),
        {"always-plugged": True},
        chardev=True,
    ),
    "keyboard": Kind("usb-kbd", "usb-1-8-1-0", _HID),
    "tablet": Kind("usb-tablet", "usb-1-8-1-0", (*_HID, "/dev/input/mouseN")),
    "mouse": Kind("usb-mouse", "usb-1-8-1-0", (*_HID, "/dev/input/mouseN")),
    "wacom": Kind("usb-wacom-tablet", "usb-1-8-1-0", ()),
    "card reader": Kind("usb-ccid", "usb-1-8", ("/dev/bus/usb/N/N",)),
    "sound": Kind(
        "usb-audio",
        "usb-1-8-1-0",
        ("/dev/bus/usb/N/N", "/dev/snd/controlCN", "/dev/snd/pcmCNDNp"),
        {"audiodev": "sound"},
    ),
    "stick": Kind(
        "usb-storage",
        "usb-2-8-1-0",
        ("/dev/bsg/N:N:N:N", "/dev/bus/usb/N/N", "/dev/sdX", "/dev/sgN"),
        {"serial": "HOTSTICK"},
        drive=True,
    ),
    # a phone or player without a kernel driver; what it shows of the host is never read
    "mtp": Kind("usb-mtp", "usb-1-8", ("/dev/bus/usb/N/N",), {"rootdir": "/usr/share/common-licenses"}),
    "hub": Kind("usb-hub", ""),
    "usb network adapter": Kind("usb-net", ""),
    "network adapter": Kind("virtio-net-pci", "", (), {"romfile": ""}, bus="rp2"),
    "nvme": Kind("nvme", "", (), {"serial": "HOTNVME"}, bus="rp1", drive=True),
}


class Plugs:
    """Devices of one guest that came by device_add. An id names what sits in a port."""

    def __init__(self, guest: Guest) -> None:
        self._guest = guest
        self._in: list[str] = []
        self._made = guest.backends

    def plug(self, kind: Kind, port: str = "8", **options: Any) -> float:
        """device_add; the host's monotonic clock just before it."""
        name = self._id(kind, port)
        words: dict[str, Any] = {
            "driver": kind.driver,
            "id": name,
            "bus": kind.bus,
            **kind.options,
            **options,
        }
        if kind.bus == "xhci.0":
            words["port"] = port
        if kind.chardev:
            words["chardev"] = self._chardev(f"null-{port}")
        if kind.drive:
            words["drive"] = self._drive(f"disk-{port}")
        started = self._add(words)
        self._in.append(name)
        return started

    def _add(self, words: dict[str, Any]) -> float:
        """QEMU frees the back end of a device that went a moment later than the device: ask until then."""
        deadline = time.monotonic() + GONE_S
        while True:
            started = time.monotonic()
            try:
                self._guest.qmp.command("device_add", **words)
            except QmpError as error:
                if "is in use" not in str(error) or started > deadline:
                    raise
            else:
                return started

    def unplug(self, kind: Kind, port: str = "8") -> float:
        """device_del; the host's monotonic clock just before it."""
        name = self._id(kind, port)
        started = time.monotonic()
        self._guest.qmp.command("device_del", id=name)
        self._in.remove(name)
        return started

    def free(self, kind: Kind, port: str = "8") -> None:
        """Wait until QEMU has let an unplugged device go."""
        self._wait_gone(self._id(kind, port))

    def close(self) -> None:
        for name in reversed(self._in.copy()):  # what sits in a hub goes before the hub
            self._guest.qmp.command("device_del", id=name)
            self._in.remove(name)
            self._wait_gone(name)

    def _id(self, kind: Kind, port: str) -> str:
        return f"hot-{kind.bus.replace('.', '-')}-{port.replace('.', '-')}"

    def _wait_gone(self, name: str) -> None:
        def gone() -> bool:
            try:
                self._guest.qmp.command("qom-get", path=f"/machine/peripheral/{name}", property="type")
            except QmpError:
                return True
            return False

        eventually(gone, GONE_S, f"QEMU has let {name} go")

    def _chardev(self, name: str) -> str:
        if name not in self._made:
            self._guest.qmp.command("chardev-add", id=name, backend={"type": "null", "data": {}})
            self._made.add(name)
        return name

    def _drive(self, name: str) -> str:
        if name not in self._made:
            path = self._guest.work / f"{name}.img"
            with path.open("wb") as image:
                image.truncate(32 << 20)
            file = {"driver": "file", "filename": str(path)}
            self._guest.qmp.command("blockdev-add", **{"driver": "raw", "node-name": name, "file": file})
            self._made.add(name)
        return name
