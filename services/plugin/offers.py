"""Which published device a name stands for: by the newest inventory, else by a walk of our own."""

import threading
from collections.abc import Callable, Iterable

from common.hardware.tree import TreeError
from common.inventory import Device, Inventory
from services.plugin.calls import CallTime
from services.plugin.holders import Place


class Offers:
    """The bus is an optimisation: before its first message, and for a name it lacks, the plugin walks."""

    def __init__(self, walk: Callable[[], Inventory]) -> None:
        """`walk` reads the whole hardware and takes as long as that takes; TreeError when it cannot."""
        self._walk = walk
        self._devices: dict[str, Device] = {}
        self._walking = threading.Lock()
        self._walks = 0

    def update(self, inventory: Inventory) -> None:
        """A newer inventory than the last."""
        self._devices = {device.name: device for device in inventory.devices}

    def has(self, names: Iterable[str]) -> bool:
        """Whether all these names are known now, without a walk."""
        return all(name in self._devices for name in names)

    def find(self, names: Iterable[str], call: CallTime) -> dict[str, Device]:
        """The devices of these names, as far as they exist. Raises MachineError when time is up.

        A tree that cannot be walked gives what the last inventory had.
        """
        asked = sorted(set(names))
        if not self.has(asked):
            self._walk_once(call)
        return {name: self._devices[name] for name in asked if name in self._devices}

    def place(self, name: str) -> tuple[Place, str] | None:
        """Place and variant of a device by its name, from what is known now; reads nothing."""
        device = self._devices.get(name)
        return ((device.bus, device.address), device.variant) if device else None

    def _walk_once(self, call: CallTime) -> None:
        before = self._walks
        if not self._walking.acquire(timeout=call.left_s()):
            call.left_s()
            return
        try:
            # a walk that began after we asked and ended while we waited is as good as our own
            if self._walks == before:
                self._walks += 1
                self.update(self._walk())
        except TreeError:
            return  # the claim is told that its device is not known; /sys is read again at the retry
        finally:
            self._walking.release()
