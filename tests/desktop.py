"""A small desktop for tests of the command: what the pages of docs/ name is in it."""

from pathlib import Path

from tests.builders import MachineBuilder


def build(root: Path) -> None:
    """A small desktop: graphics card, sound card, USB serial adapter, USB stick."""
    machine = MachineBuilder(root)
    card = machine.pci("0000:00:02.0", driver="i915", pci_class="030000", device="9a49")
    machine.drm(card, card=0, render=128, connectors=["HDMI-A-1"])
    machine.i2c(card, 0)
    audio = machine.pci("0000:00:1f.3", driver="snd_hda_intel", pci_class="040300", device="a0c8")
    machine.sound(audio, 0, jacks=[5])
    adapter = machine.usb("1-2", vendor="0403", product="6001", serial="A10K5XYZ", name="FT232R USB UART")
    interface = machine.interface(adapter, 0, driver="ftdi_sio")
    machine.tty(machine.device(interface, "ttyUSB0", "usb-serial", "ftdi_sio"), "ttyUSB0")
    stick = machine.usb("1-4", vendor="0781", product="5581", serial="4C530001", name="Ultra")
    machine.scsi_disk(machine.interface(stick, 0, driver="usb-storage", usb_class="08"), "sda", ["sda1"])
