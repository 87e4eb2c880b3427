"""What a device says about itself."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.hardware.attributes import Identity, attributes
from common.hardware.classes import board_class
from common.hardware.ids import Names, database
from common.hardware.model import Hardware, Offer
from common.hardware.text import MAX_BYTES, clean
from tests.builders import MachineBuilder
from tests.unit.hardware.ask import devices, texts

IDS = Names(
    b"# comment\n8086  Intel Corporation\n\t3e9b  UHD Graphics 630\n\t\t1028 0869  Vostro\n"
    b"\t1502  Ethernet\n10de  NVIDIA Corporation\n\t3e9b  Other card\n"
)


def serial_stick(machine: MachineBuilder, **strings: str | bytes) -> dict[str, object]:
    device = machine.usb("1-4.2", devnum=2, **strings)  # type: ignore[arg-type]
    machine.tty(machine.interface(device, 0, driver="ch341"), "ttyUSB0")
    return texts(devices(machine)["usb-1-4-2-1-0"])


def test_an_interface_has_the_texts_of_its_device(machine: MachineBuilder) -> None:
    found = serial_stick(machine, serial="12345", manufacturer="QinHeng", name="USB Serial")
    assert found == {
        "address": "1-4.2:1.0",
        "bus": "usb",
        "class": "vendor-specific",
        "classCode": "ff",
        "driver": "ch341",
        "modalias": "usb:v0000p0000d0000dc00dsc00dp00icFFisc00ip00in00",
        "name": "QinHeng USB Serial",
        "physicalPath": "0000:00:14.0/usb2/4.2:1.0",
        "product": "7523",
        "serial": "12345",
        "subsystem": "tty",
        "vendor": "1a86",
    }


def test_what_a_device_does_not_state_is_absent(machine: MachineBuilder) -> None:
    found = serial_stick(machine)
    assert ("serial" in found, found["name"]) == (False, database("usb.ids").find("1a86", "7523"))


def test_a_system_without_a_database_names_hardware_by_its_ids() -> None:
    assert database("none.ids").find("8086", "3e9b") == "Device 8086:3e9b"


def test_empty_and_blank_strings_are_absent(machine: MachineBuilder) -> None:
    found = serial_stick(machine, serial=b" \x00 ", manufacturer="", name="Stick")
    assert ("serial" in found, found["name"]) == (False, "Stick")


def test_a_serial_with_other_letters_is_intact(machine: MachineBuilder) -> None:
    assert serial_stick(machine, serial="12²")["serial"] == "12²"


def test_control_signs_and_line_separators_are_dropped(machine: MachineBuilder) -> None:
    name = "[/foo]\x1b[31m\u2028\u200fred\x07"
    assert serial_stick(machine, name=name)["name"] == "[/foo][31mred"


def test_bytes_that_are_no_text_are_replaced(machine: MachineBuilder) -> None:
    assert serial_stick(machine, serial=b"\xff\xfe1")["serial"] == "\ufffd\ufffd1"


def test_texts_are_cut_at_a_character_border(machine: MachineBuilder) -> None:
    name = "x" * (MAX_BYTES - 1) + "®®"
    assert serial_stick(machine, name=name)["name"] == "x" * (MAX_BYTES - 1)


def test_a_long_identifier_is_left_out_and_not_cut() -> None:
    hardware = Hardware("platform", "a" * (MAX_BYTES + 1), "sys/devices/x", "d" * 65, "board")
    identity = Identity(driver=hardware.driver, modalias="m" * 65, physical_path="p" * 65)
    assert attributes(hardware, identity, Offer("", ())) == {"bus": {"string": "platform"}}


def test_an_identifier_of_just_the_length_stays() -> None:
    hardware = Hardware("platform", "a" * MAX_BYTES, "sys/devices/x", "d", "board")
    assert attributes(hardware, Identity(), Offer("", ()))["address"] == {"string": "a" * MAX_BYTES}


def test_twins_keep_one_serial_and_two_names(machine: MachineBuilder) -> None:
    for address in ("1-2", "1-3"):
        device = machine.usb(address, serial="00000001")
        machine.node(machine.interface(device, 0, driver="dvb_usb_rtl28xxu"), "dvb", "dvb" + address)
    found = devices(machine)
    assert [texts(device)["serial"] for device in found.values()] == ["00000001", "00000001"]
    assert list(found) == ["usb-1-2-1-0", "usb-1-3-1-0"]


def test_a_whole_device_states_all_its_interface_classes_in_order(machine: MachineBuilder) -> None:
    reader = machine.usb("1-5", vendor="0a5c", product="5865")
    for number, usb_class in ((10, "ff"), (1, "0b"), (0, "fe")):
        machine.interface(reader, number, usb_class=usb_class)
    found = texts(devices(machine)["usb-1-5"])
    assert (found["class"], found["classCode"]) == ("application-specific", "fe")
    assert found["interfaceClasses"] == "fe 0b ff"
    assert not {"driver", "modalias", "subsystem"} & found.keys()


def test_a_smart_card_reader_is_found_by_its_class(machine: MachineBuilder) -> None:
    machine.interface(machine.usb("1-5", vendor="058f", product="9540"), 0, usb_class="0b")
    found = texts(devices(machine)["usb-1-5"])
    assert (found["classCode"], found["class"]) == ("0b", "smart-card")


def test_many_interface_classes_end_with_a_whole_one(machine: MachineBuilder) -> None:
    phone = machine.usb("1-5")
    for number in range(30):
        machine.interface(phone, number, usb_class="0a")
    assert texts(devices(machine)["usb-1-5"])["interfaceClasses"] == " ".join(["0a"] * 21)


def test_a_pci_device_states_its_standard_attributes(machine: MachineBuilder) -> None:
    bridge = machine.pci("0000:00:01.0", driver="pcieport")
    card = machine.pci("0000:01:00.0", driver="gasket", pci_class="120000", parent=bridge, numa=1)
    machine.node(card, "apex", "apex_0")
    found = texts(devices(machine)["pci-0000-01-00-0"])
    assert {key: value for key, value in found.items() if "/" in key} == {
        "resource.kubernetes.io/numaNode": 1,
        "resource.kubernetes.io/pciBusID": "0000:01:00.0",
        "resource.kubernetes.io/pcieRoot": "pci0000:00",
    }
    assert (found["class"], found["classCode"]) == ("accelerator", "120000")
    assert (found["vendor"], found["product"]) == ("8086", "1234")


def test_no_numa_node_is_absent(machine: MachineBuilder) -> None:
    machine.node(machine.pci("0000:01:00.0", driver="gasket", numa=-1), "apex", "apex_0")
    assert "resource.kubernetes.io/numaNode" not in devices(machine)["pci-0000-01-00-0"].attributes


def test_a_class_without_a_word_has_its_code(machine: MachineBuilder) -> None:
    machine.node(machine.pci("0000:01:00.0", driver="gasket", pci_class="0000ff"), "apex", "apex_0")
    found = texts(devices(machine)["pci-0000-01-00-0"])
    assert (found["classCode"], "class" in found) == ("0000ff", False)


@pytest.mark.parametrize(
    ("shape", "kinds", "word"),
    [
        ("single", ["i2c-dev"], "serial-bus"),
        ("single", ["spidev"], "serial-bus"),
        ("single", ["input"], "input"),
        ("single", ["tty"], "communication"),
        ("sound", ["sound", "input"], "multimedia"),
        ("mix", ["media", "video4linux"], "multimedia"),
        ("graphics", ["drm", "i2c-dev"], "display"),
        ("single", ["block"], "storage"),
        ("single", ["gpio"], "other"),
        ("mix", ["tty", "input"], "other"),
    ],
)
def test_board_devices_have_a_word_for_their_class(shape: str, kinds: list[str], word: str) -> None:
    assert board_class(shape, kinds) == word


def test_a_board_device_has_a_class_and_no_code(machine: MachineBuilder) -> None:
    machine.i2c(machine.board("platform", "fe804000.i2c", driver="i2c-bcm2835"), 1)
    assert texts(devices(machine)["platform-fe804000-i2c"]) == {
        "address": "fe804000.i2c",
        "bus": "platform",
        "class": "serial-bus",
        "driver": "i2c-bcm2835",
        "subsystem": "i2c-dev",
    }


def test_a_port_has_the_same_path_whatever_number_its_bus_got(machine: MachineBuilder) -> None:
    device = machine.usb("7-1.4", parent=machine.root_hub(7))
    machine.interface(device, 0)
    assert texts(devices(machine)["usb-7-1-4"])["physicalPath"] == "0000:00:14.0/usb2/1.4"


def test_a_superspeed_port_is_another_port(machine: MachineBuilder) -> None:
    controller = machine.board("platform", "xhci-hcd.0", driver="xhci-hcd")
    hub = machine.root_hub(3, superspeed=True, parent=controller)
    machine.interface(machine.usb("3-2", parent=hub), 0)
    assert texts(devices(machine)["usb-3-2"])["physicalPath"] == "xhci-hcd.0/usb3/2"


def test_no_attribute_comes_of_the_bus_or_device_number(machine: MachineBuilder) -> None:
    first = serial_stick(machine, serial="1")
    machine.remove("sys/devices/pci0000:00/0000:00:14.0/usb1/1-4.2")
    machine.usb("1-9", devnum=90)
    assert serial_stick(machine, serial="1") == first


@pytest.mark.parametrize(
    ("vendor", "product", "name"),
    [
        ("8086", "3e9b", "Intel Corporation UHD Graphics 630"),
        ("10de", "3e9b", "NVIDIA Corporation Other card"),
        ("10de", "1502", "NVIDIA Corporation Device 1502"),
        ("1234", "0001", "Device 1234:0001"),
        ("", "", ""),
        ("80", "3e9b", ""),
    ],
)
def test_names_come_from_the_database(vendor: str, product: str, name: str) -> None:
    assert IDS.find(vendor, product) == name


@given(text=st.binary(max_size=200))
def test_any_bytes_give_a_valid_attribute_or_none(text: bytes) -> None:
    hardware = Hardware("usb", "1-1:1.0", "sys/devices/x", "d", "interface")
    identity = Identity(name=clean(text), serial=text.decode("utf-8", "replace"))
    found = attributes(hardware, identity, Offer("", ()))
    values = [str(value["string"]) for value in found.values()]
    signs = {unicodedata.category(sign) for value in values for sign in value}
    assert all(0 < len(value.encode()) <= MAX_BYTES for value in values)
    assert signs.isdisjoint({"Cc", "Cf", "Cs", "Zl", "Zp"})
