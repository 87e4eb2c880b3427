"""`common.hardware.record`: what is kept, what is masked, and that the rules find the same in it."""

from pathlib import Path

import msgspec
import pytest

from common.hardware.machine import Machine, parse_machine
from common.hardware.record import FORMATS, record
from common.hardware.tree import open_tree
from common.hardware.walk import walk
from common.inventory import Inventory
from tests.builders import MachineBuilder

SERIAL = "A9Z-4711-0815"
SHORT = "42"


@pytest.fixture
def built(tmp_path: Path) -> MachineBuilder:
    """Two serial adapters with one serial number, a stick with a short one, an undriven card."""
    machine = MachineBuilder(tmp_path / "live")
    for number, port in enumerate(("1-1", "1-2")):
        adapter = machine.usb(port, vendor="0403", product="6001", serial=SERIAL)
        machine.tty(machine.interface(adapter, 0, driver="ftdi_sio", usb_class="ff"), f"ttyUSB{number}")
    keyboard = machine.usb("1-3", vendor="046d", product="c31c", serial=SHORT)
    machine.hidraw(machine.interface(keyboard, 0, driver="usbhid", usb_class="03"), "hidraw0")
    machine.pci("0000:00:05.0", driver="", pci_class="020000", vendor="8086", device="100e")
    return machine


def read_back(content: bytes, folder: Path, suffix: str = ".tar.xz") -> Inventory:
    archive = folder / f"machine{suffix}"
    archive.write_bytes(content)
    with open_tree(archive) as tree:
        return walk(tree, Machine(), "node", "now")


def without_serials(inventory: Inventory) -> Inventory:
    devices = tuple(
        msgspec.structs.replace(
            device, attributes={name: value for name, value in device.attributes.items() if name != "serial"}
        )
        for device in inventory.devices
    )
    return msgspec.structs.replace(inventory, devices=devices, boot="")


def serials(inventory: Inventory) -> list[str]:
    return [str(device.attributes["serial"]["string"]) for device in inventory.devices]


@pytest.mark.parametrize("suffix", sorted(FORMATS))
def test_the_rules_find_the_same_machine_in_a_recording(
    suffix: str, built: MachineBuilder, tmp_path: Path
) -> None:
    live = walk(built.tree(), Machine(), "node", "now")
    recorded = read_back(record(built.tree(), Machine()).pack(suffix), tmp_path, suffix)
    assert len(recorded.devices) == 3
    assert without_serials(recorded) == without_serials(live)


def test_serial_numbers_are_masked_and_equal_ones_stay_equal(built: MachineBuilder, tmp_path: Path) -> None:
    recording = record(built.tree(), Machine())
    assert serials(read_back(recording.pack(".tar.xz"), tmp_path)) == ["SERIAL-1", "SERIAL-1", "SERIAL-2"]
    assert not [path for path, content in recording.files.items() if SERIAL.encode() in content]


def test_a_serial_number_is_masked_where_a_name_repeats_it(built: MachineBuilder) -> None:
    built.write("sys/devices/pci0000:00/0000:00:14.0/usb1/1-1/product", f"Adapter {SERIAL}\n")
    products = [
        content
        for path, content in record(built.tree(), Machine()).files.items()
        if path.endswith("1-1/product")
    ]
    assert products == [b"Adapter SERIAL-1\n"]


def test_a_short_serial_number_does_not_tear_identifiers_apart(built: MachineBuilder) -> None:
    built.write("sys/devices/pci0000:00/0000:00:14.0/usb1/1-3/product", "Model 42\n")
    files = record(built.tree(), Machine()).files
    assert [content for path, content in files.items() if path.endswith("1-3/product")] == [b"Model 42\n"]


def test_a_machine_files_serial_number_is_masked_like_the_devices(built: MachineBuilder) -> None:
    text = f'spec: {{serio: [{{protocol: pulse8-cec, vendor: "0403", product: "6001", serial: "{SERIAL}"}}]}}'
    machine = parse_machine(text.encode(), "test")
    kept = record(built.tree(), machine, text.encode()).files["etc/liken/machine.yaml"]
    assert parse_machine(kept, "test").serio[0].serial == "SERIAL-1"


def test_mount_points_are_kept_for_disks_only(built: MachineBuilder) -> None:
    stick = built.usb("1-4", vendor="0781", product="5567")
    disk = built.scsi_disk(built.interface(stick, 0, driver="usb-storage", usb_class="08"), "sda")
    built.mount(disk, at="/data")
    built.mount(disk, at="/home/anna/bind")
    built.write(
        "proc/1/mountinfo",
        (built.root / "proc/1/mountinfo").read_text()
        + "99 1 0:77 / /home/anna/secret rw - nfs4 server.example:/export rw\n",
    )
    table = record(built.tree(), Machine()).files["proc/1/mountinfo"]
    assert b" /data " in table
    assert b"anna" not in table
    assert b"server.example" not in table


def test_only_modules_that_fit_hardware_of_this_machine_are_kept(
    built: MachineBuilder, tmp_path: Path
) -> None:
    folder = "lib/modules/6.12.0"
    aliases = "alias pci:v00008086d0000100Esv*sd*bc*sc*i* e1000\nalias pci:v000010ECd*sv*sd*bc*sc*i* r8169\n"
    built.write(f"{folder}/modules.alias", aliases)
    built.write(f"{folder}/modules.dep", "kernel/e1000.ko.xz: kernel/other.ko.xz\nkernel/r8169.ko.xz:\n")
    recording = record(built.tree(), Machine())
    assert recording.files[f"{folder}/modules.alias"] == aliases.splitlines(keepends=True)[0].encode()
    assert recording.files[f"{folder}/modules.dep"] == b"kernel/e1000.ko.xz:\n"
    unclaimed = read_back(recording.pack(".tar.xz"), tmp_path).unclaimed
    assert [(entry.address, entry.modules) for entry in unclaimed] == [("0000:00:05.0", ("e1000",))]


def test_a_recording_is_the_same_bytes_twice(built: MachineBuilder) -> None:
    first, second = (record(built.tree(), Machine()).pack(".tar.xz") for _ in range(2))
    assert first == second


def test_a_recording_has_what_it_takes_to_unplug_and_plug_its_devices(built: MachineBuilder) -> None:
    recording = record(built.tree(), Machine())
    adapter = "sys/devices/pci0000:00/0000:00:14.0/usb1/1-1"
    assert b"DEVTYPE=usb_device" in recording.files[f"{adapter}/uevent"]
    assert recording.files[f"{adapter}/dev"].startswith(b"189:")
