"""Machines that several tests look at."""

from tests.builders import MachineBuilder


def every_shape(machine: MachineBuilder) -> None:
    """One piece of hardware of every shape: 10 that offer or hold something."""
    gpu = machine.pci("0000:00:02.0", driver="i915", pci_class="030000")
    machine.drm(gpu, card=0, render=128, connectors=["eDP-1"])
    machine.i2c(gpu, 0)
    machine.sound(machine.pci("0000:00:1f.3", driver="snd_hda_intel"), card=0, jacks=[3])
    machine.nvme(machine.pci("0000:04:00.0", driver="nvme"), 0, partitions=2)
    machine.scsi_disk(machine.pci("0000:00:17.0", driver="ahci"), "sda", ["sda1"])
    stick = machine.usb("1-4", serial="x", name="Stick", manufacturer="Maker")
    machine.tty(machine.interface(stick, 0, driver="ch341"), "ttyUSB0")
    machine.hidraw(machine.interface(stick, 1, driver="usbhid"), "hidraw0")
    machine.interface(machine.usb("1-5"), 0)
    radio = machine.usb("1-7")
    machine.device(machine.interface(radio, 0, driver="btusb") + "/bluetooth", "hci0", "bluetooth")
    machine.interface(radio, 1, driver="btusb")
    machine.virtual("misc", "uinput")
    keyboard = machine.board("platform", "i8042", driver="i8042")
    machine.event(machine.board("serio", "serio0", driver="atkbd", parent=keyboard), 4)
    machine.node(machine.board("acpi", "MSFT0101:00", driver="tpm_crb"), "tpm", "tpm0")
