"""USB gadgets of one scenario, on the guest's make-believe controllers."""

import time
from typing import Any

from tests.kernel.machine import Guest


class Bench:
    """Gadgets of one scenario; all are removed at its end. Controllers are numbered 0 to 5."""

    def __init__(self, guest: Guest) -> None:
        self._guest = guest
        self._made: list[str] = []
        self._plugged: set[str] = set()

    def make(self, name: str, vendor: str, product: str, *functions: str, **more: Any) -> None:
        self._guest.call("gadget", "make", name, vendor, product, list(functions), **more)
        self._made.append(name)

    def make_radio(self, name: str, vendor: str, product: str) -> None:
        self._guest.call("gadget", "make_radio", name, vendor, product)
        self._made.append(name)

    def plug(self, name: str, port: int) -> float:
        began = time.monotonic()
        self._guest.call("gadget", "plug", name, port)
        self._plugged.add(name)
        return began

    def unplug(self, name: str) -> float:
        began = time.monotonic()
        self._guest.call("gadget", "unplug", name)
        self._plugged.discard(name)
        return began

    def address(self, port: int) -> str:
        """The USB address of the device in a controller: its bus number depends on the order of loading."""
        listed = self._guest.run("sh", "-c", f"ls -d /sys/devices/platform/dummy_hcd.{port}/usb*")
        return f"{listed.strip().rpartition('usb')[2]}-1"

    def usbfs(self, port: int) -> str:
        home = f"/sys/bus/usb/devices/{self.address(port)}"
        bus, device = (int(self._guest.call("read", f"{home}/{name}")) for name in ("busnum", "devnum"))
        return f"/dev/bus/usb/{bus:03d}/{device:03d}"

    def close(self) -> None:
        for name in list(self._plugged):
            self.unplug(name)
        for name in self._made:
            self._guest.call("gadget", "remove", name)
