"""Give a USB device's interfaces back to their kernel drivers when its last claim has ended.

A program that uses libusb detaches the kernel driver and nobody binds it again. Writing the interface's name
to bus/usb/drivers_probe makes the kernel look for a driver (its Documentation/ABI/testing/sysfs-bus-usb). The
only write below /sys that liken makes.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from common.hardware.tree import TreeError

log = logging.getLogger(__name__)

LIMIT_S = 2.0  # for all writes of one call: a probe can hang as long as the device does


class Rebinder:
    """Probes interfaces in a thread of its own, so that a probe that hangs holds nobody."""

    def __init__(
        self,
        probe: Path,
        drivers: Callable[[str], Mapping[str, str]],
        count: Callable[[str], None],
        limit_s: float = LIMIT_S,
    ) -> None:
        """`probe` is the drivers_probe file; `drivers` gives a USB device's interfaces with their drivers.

        `count` is told each outcome: "bound", "no driver", "failed", "hung".
        """
        self._probe = probe
        self._drivers = drivers
        self._count = count
        self._limit_s = limit_s
        self._hanging: set[str] = set()
        self._guard = threading.Lock()

    def rebind(self, devices: list[str]) -> None:
        """Probe every interface without a driver of these USB devices. Never raises; ends within the limit.

        An interface that a program holds (driver usbfs) is left alone, as is a device whose last probe hangs
        still.
        """
        deadline = time.monotonic() + self._limit_s
        for device in devices:
            with self._guard:
                if device in self._hanging:
                    continue
                self._hanging.add(device)
            worker = threading.Thread(target=self._work, args=(device,), name=f"rebind-{device}", daemon=True)
            worker.start()
            worker.join(max(deadline - time.monotonic(), 0.0))
            if worker.is_alive():
                self._count("hung")
                log.warning(
                    "binding drivers to the USB device %s takes longer than %.1f s", device, self._limit_s
                )

    def _work(self, device: str) -> None:
        try:
            for interface in self._unbound(device):
                self._bind(device, interface)
        finally:
            with self._guard:
                self._hanging.discard(device)

    def _unbound(self, device: str) -> list[str]:
        try:
            return [name for name, driver in self._drivers(device).items() if not driver]
        except TreeError as error:
            self._count("failed")
            log.warning("cannot see the interfaces of the USB device %s: %s", device, error)
            return []

    def _bind(self, device: str, interface: str) -> None:
        try:
            with self._probe.open("wb", buffering=0) as file:
                file.write(interface.encode())
            bound = bool(self._drivers(device).get(interface))
        except (OSError, TreeError) as error:
            self._count("failed")
            log.warning("cannot bind a driver to the USB interface %s: %s", interface, error)
            return
        self._count("bound" if bound else "no driver")
