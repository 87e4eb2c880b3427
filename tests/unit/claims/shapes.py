"""Hardware that claims are made on."""

from tests.builders import MachineBuilder

ADAPTER = "usb-1-1-1-0"
GPU = "pci-0000-00-02-0"


def adapter(machine: MachineBuilder, address: str = "1-1", tty: str = "ttyUSB0") -> str:
    """A USB serial adapter; returns the USB device."""
    device = machine.usb(address)
    machine.tty(machine.interface(device, 0, driver="ch341"), tty)
    return device


def undriven(
    machine: MachineBuilder, address: str, vendor: str = "0bda", product: str = "2838", interfaces: int = 1
) -> str:
    """A USB device that no kernel driver wants; returns the USB device."""
    device = machine.usb(address, vendor=vendor, product=product)
    for number in range(interfaces):
        machine.interface(device, number)
    return device


def modem(machine: MachineBuilder, address: str, *, storage: bool) -> str:
    """A modem that is a CD-ROM at first and serial ports later; returns the USB device."""
    device = machine.usb(address, vendor="12d1", product="1505" if storage else "1506")
    if storage:
        interface = machine.interface(device, 0, driver="usb-storage", usb_class="08")
        machine.scsi_disk(interface, "sr0", host=7)
    else:
        machine.tty(machine.interface(device, 0, driver="option"), "ttyUSB0")
    return device


def radio(machine: MachineBuilder, address: str) -> str:
    """A Bluetooth adapter; returns the USB device."""
    device = machine.usb(address, vendor="8087", product="0033")
    interface = machine.interface(device, 0, driver="btusb", usb_class="e0")
    machine.interface(device, 1, driver="btusb", usb_class="e0")
    machine.device(f"{interface}/bluetooth", "hci0", "bluetooth")
    return device


def graphics_card(machine: MachineBuilder, render: int = 128) -> str:
    """A graphics card with render node, card node and one i2c bus; returns the PCI function."""
    function = machine.pci("0000:00:02.0", driver="i915", pci_class="030000")
    machine.drm(function, card=1, render=render, connectors=["HDMI-A-1"])
    machine.i2c(function, 4)
    return function
