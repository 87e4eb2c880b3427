"""Bluetooth adapters: a radio has no node of its own."""

from common.inventory import DeviceNode
from tests.builders import MachineBuilder
from tests.unit.hardware.ask import devices, offered, paths


def adapter(machine: MachineBuilder, radio_on: int | None = 0) -> str:
    """A USB adapter with two btusb interfaces; the radio hangs below interface `radio_on`."""
    device = machine.usb("1-7", vendor="8087", product="0a2a", devnum=4)
    for number in (0, 1):
        place = machine.interface(device, number, driver="btusb", usb_class="e0")
        if number == radio_on:
            machine.device(f"{place}/bluetooth", "hci0", "bluetooth")
    return device


def test_one_radio_is_one_exclusive_device_with_its_usbfs_node(machine: MachineBuilder) -> None:
    adapter(machine)
    (device,) = devices(machine).values()
    assert (device.name, device.shareable, device.kinds) == ("usb-1-7-1-0", False, ())
    assert (paths(device), "subsystem" in device.attributes) == (["bus/usb/001/004"], False)


def test_the_interface_with_the_radio_publishes(machine: MachineBuilder) -> None:
    adapter(machine, radio_on=1)
    assert list(offered(machine)) == ["usb-1-7-1-1"]


def test_without_a_radio_the_lowest_interface_publishes(machine: MachineBuilder) -> None:
    adapter(machine, radio_on=None)
    assert list(offered(machine)) == ["usb-1-7-1-0"]


def test_with_uinput_come_32_event_nodes_by_their_numbers(machine: MachineBuilder) -> None:
    adapter(machine)
    machine.virtual("misc", "uinput")
    (device,) = devices(machine).values()
    assert device.nodes[:2] == (
        DeviceNode("/dev/bus/usb/001/004", "usb"),
        DeviceNode("/dev/uinput", "misc"),
    )
    assert device.nodes[2:] == tuple(
        DeviceNode(f"/dev/input/event{number}", "input", "c", 13, 64 + number, 0o600) for number in range(32)
    )


def test_uhid_comes_when_the_machine_has_it(machine: MachineBuilder) -> None:
    adapter(machine)
    machine.virtual("misc", "uhid")
    assert offered(machine) == {"usb-1-7-1-0": ["bus/usb/001/004", "uhid"]}


def test_what_connects_over_the_air_is_not_delivered(machine: MachineBuilder) -> None:
    device = adapter(machine)
    radio = f"{device}/1-7:1.0/bluetooth/hci0"
    machine.hidraw(machine.device(radio, "hci0:256", "bluetooth"), "hidraw3")
    assert offered(machine) == {"usb-1-7-1-0": ["bus/usb/001/004"]}


def test_nothing_below_a_bluetooth_folder_is_delivered_even_without_its_subsystem(
    machine: MachineBuilder,
) -> None:
    device = adapter(machine)
    machine.hidraw(f"{device}/1-7:1.0/bluetooth/hci0", "hidraw3")
    machine.path(f"{device}/1-7:1.0/bluetooth/hci0/subsystem").unlink()
    assert offered(machine) == {"usb-1-7-1-0": ["bus/usb/001/004"]}


def test_an_adapter_without_driver_publishes_whole(machine: MachineBuilder) -> None:
    device = machine.usb("4-1", devnum=2)
    for number in range(4):
        machine.interface(device, number, usb_class="e0")
    assert offered(machine) == {"usb-4-1": ["bus/usb/004/002"]}


def test_two_adapters_of_one_kind_are_two_devices(machine: MachineBuilder) -> None:
    for address in ("1-7", "1-8"):
        machine.interface(machine.usb(address), 0, driver="btusb")
    assert list(offered(machine)) == ["usb-1-7-1-0", "usb-1-8-1-0"]
