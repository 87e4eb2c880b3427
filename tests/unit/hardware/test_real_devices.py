"""Devices that users reported, built from what they told: ids, interfaces, drivers."""

import pytest

from tests.builders import MachineBuilder
from tests.unit.hardware.ask import devices, offered, slot, texts

USB1 = "sys/devices/pci0000:00/0000:00:14.0/usb1"


@pytest.mark.parametrize(
    ("before", "after"), [(("1a6e", "089a"), ("18d1", "9302")), (("03e7", "2485"), ("03e7", "f63b"))]
)
def test_a_stick_that_changes_its_ids_at_first_use_stays_the_same_device(
    machine: MachineBuilder, before: tuple[str, str], after: tuple[str, str]
) -> None:
    machine.interface(machine.usb("1-2", *before, devnum=4), 0)
    first = offered(machine)
    machine.remove(f"{USB1}/1-2")
    machine.interface(machine.usb("1-2", *after, devnum=5), 0)
    assert (first, offered(machine)) == (
        {"usb-1-2": ["bus/usb/001/004"]},
        {"usb-1-2": ["bus/usb/001/005"]},
    )
    found = texts(devices(machine)["usb-1-2"])
    assert (found["vendor"], found["product"]) == after


def test_a_radio_publishes_with_its_driver_or_whole(machine: MachineBuilder) -> None:
    radio = machine.usb("1-2", "0bda", "2838", serial="00000001", devnum=4)
    part = machine.interface(radio, 0)
    machine.interface(radio, 1)
    whole = offered(machine)
    machine.bind(part, "dvb_usb_rtl28xxu")
    machine.node(part, "dvb", "dvb0.frontend0", devname="dvb/adapter0/frontend0")
    driven = offered(machine)
    assert (whole, driven) == (
        {"usb-1-2": ["bus/usb/001/004"]},
        {"usb-1-2-1-0": ["dvb/adapter0/frontend0", "bus/usb/001/004"]},
    )
    assert slot(machine, "usb", "1-2").devices == ()


def test_a_zigbee_stick_with_a_date_for_a_serial(machine: MachineBuilder) -> None:
    stick = machine.usb(
        "1-2", "1a86", "55d4", serial="20231101160453", name="SONOFF Zigbee 3.0 USB Dongle Plus V2"
    )
    machine.tty(machine.interface(stick, 0, driver="cdc_acm", usb_class="02"), "ttyACM0")
    assert texts(devices(machine)["usb-1-2-1-0"])["serial"] == "20231101160453"


def test_adapters_without_a_serial_are_two_devices(machine: MachineBuilder) -> None:
    for number, address in enumerate(("1-2", "1-3")):
        device = machine.usb(address, "1a86", "7523", devnum=number + 2)
        machine.tty(machine.interface(device, 0, driver="ch341"), f"ttyUSB{number}")
    found = devices(machine)
    assert sorted(found) == ["usb-1-2-1-0", "usb-1-3-1-0"]
    assert not any("serial" in device.attributes for device in found.values())


def test_an_ups_is_reached_through_hidraw_hiddev_and_usbfs(machine: MachineBuilder) -> None:
    ups = machine.interface(machine.usb("1-2", "051d", "0002", devnum=3), 0, driver="usbhid", usb_class="03")
    machine.hidraw(ups, "hidraw0")
    machine.node(ups, "usbmisc", "hiddev0", devname="usb/hiddev0")
    assert offered(machine) == {"usb-1-2-1-0": ["hidraw0", "usb/hiddev0", "bus/usb/001/003"]}
    assert texts(devices(machine)["usb-1-2-1-0"])["classCode"] == "03"


def test_a_modem_is_a_disc_first_and_serial_ports_later(machine: MachineBuilder) -> None:
    modem = machine.usb("1-2", "12d1", "1f01", devnum=3)
    machine.scsi_disk(machine.interface(modem, 0, driver="usb-storage", usb_class="08"), "sr0")
    disc = devices(machine)["usb-1-2-1-0"]
    machine.remove(f"{USB1}/1-2")
    modem = machine.usb("1-2", "12d1", "14db", devnum=4)
    machine.tty(machine.interface(modem, 0, driver="option"), "ttyUSB0")
    ports = devices(machine)["usb-1-2-1-0"]
    assert ("block" in disc.kinds, ports.kinds) == (True, ("tty",))


def test_a_key_with_an_undriven_reader_publishes_its_driven_interfaces(machine: MachineBuilder) -> None:
    key = machine.usb("1-2", "1050", "0407", devnum=3)
    for number in (0, 1):
        machine.hidraw(machine.interface(key, number, driver="usbhid", usb_class="03"), f"hidraw{number}")
    machine.interface(key, 2, usb_class="0b")
    assert offered(machine) == {
        "usb-1-2-1-0": ["hidraw0", "bus/usb/001/003"],
        "usb-1-2-1-1": ["hidraw1", "bus/usb/001/003"],
    }


def test_a_device_in_firmware_mode_publishes_whole(machine: MachineBuilder) -> None:
    machine.interface(
        machine.usb("1-8.3", "0483", "df11", name="STM32  BOOTLOADER", devnum=5), 0, usb_class="fe"
    )
    assert offered(machine) == {"usb-1-8-3": ["bus/usb/001/005"]}
    assert texts(devices(machine)["usb-1-8-3"])["name"] == "STM32  BOOTLOADER"


def test_the_tty_number_may_change_and_the_name_does_not(machine: MachineBuilder) -> None:
    part = machine.interface(machine.usb("1-2", devnum=3), 0, driver="cdc_acm")
    tty = machine.tty(part, "ttyACM0")
    machine.remove(tty)
    machine.tty(part, "ttyACM2")
    assert offered(machine) == {"usb-1-2-1-0": ["ttyACM2", "bus/usb/001/003"]}


def test_one_controller_with_fifteen_generic_nodes_is_withheld_whole(machine: MachineBuilder) -> None:
    controller = machine.pci("0000:00:17.0", driver="megaraid_sas")
    for number in range(15):
        machine.node(controller, "scsi_generic", f"sg{number}")
    machine.scsi_disk(controller, "sda", host=20)
    assert offered(machine) == {}
