"""Scenario 1: a machine with one of everything; the inventory is the expected one, node by node."""

import re
from typing import Any

import pytest

from tests.kernel.conftest import Tell
from tests.kernel.machine import Guest
from tests.kernel.product import DRIVER, NODE, Product

HID = ("/dev/bus/usb/N/N", "/dev/hidrawN", "/dev/input/eventN")
MOUSE = (*HID, "/dev/input/mouseN")
# Everything the slice lists: name -> nodes, digits as N. What is not here is not offered.
OFFERED = {
    "acpi-lnxpwrbn-00": ("/dev/input/eventN",),
    "pci-0000-00-04-0": ("/dev/dri/renderDN",),
    "pci-0000-00-04-0-display": ("/dev/dri/cardN",),
    "pci-0000-00-05-0": (
        "/dev/snd/controlCN",
        "/dev/snd/hwCNDN",
        "/dev/snd/pcmCNDNc",
        "/dev/snd/pcmCNDNp",
    ),
    "pci-0000-00-08-0": ("/dev/ttySN",),
    "pci-0000-00-0c-0": ("/dev/dri/renderDN",),
    "pci-0000-00-0c-0-display": ("/dev/dri/cardN",),
    "pci-0000-00-0c-0-i2c-dev": ("/dev/i2c-N",) * 4,
    "pci-0000-00-1f-3": ("/dev/i2c-N",),
    "platform-i8042": ("/dev/input/eventN", "/dev/input/eventN", "/dev/input/mouseN"),
    "usb-1-1-1-0": HID,
    "usb-1-2-1-0": MOUSE,
    "usb-1-3-1-0": ("/dev/bus/usb/N/N", "/dev/ttyUSBN"),
    "usb-1-5": ("/dev/bus/usb/N/N",),
    "usb-1-6-1-0": ("/dev/bus/usb/N/N", "/dev/snd/controlCN", "/dev/snd/pcmCNDNp"),
    "usb-1-7-1-1-1-0": MOUSE,
    "usb-2-4-1-0": ("/dev/bsg/N:N:N:N", "/dev/bus/usb/N/N", "/dev/sdX", "/dev/sgN"),
}
WITHHELD = [
    ("/dev/ngNnN", "storage"),
    *[("/dev/nvmeN", "storage")] * 3,  # a spare disk, and two controllers of one other disk
    ("/dev/nvmeNnN", "storage"),
    ("/dev/rtcN", "rtc"),
    ("/dev/tpmN", "tpm"),
    ("/dev/tpmrmN", "tpm"),
    ("/dev/ttySN", "console"),
    ("/dev/vda", "storage"),
    ("/dev/vportNpN", "guest"),
]
# What the slice says of some devices of different kinds, by what QEMU was told and is. No more than that but
# for the modalias, and a PCI name, which depends on the lists of names on the host.
USB_HOST = "0000:00:03.0"
ATTRIBUTES: dict[str, dict[str, str | bool]] = {
    "usb-1-3-1-0": {
        "bus": "usb",
        "address": "1-3:1.0",
        "physicalPath": f"{USB_HOST}/usb2/3:1.0",
        "subsystem": "tty",
        "vendor": "0403",
        "product": "6001",
        "serial": "FT0001",
        "driver": "ftdi_sio",
        "class": "vendor-specific",
        "classCode": "ff",
        "name": "QEMU QEMU USB SERIAL",
    },
    "usb-1-5": {
        "bus": "usb",
        "address": "1-5",
        "physicalPath": f"{USB_HOST}/usb2/5",
        "vendor": "08e6",
        "product": "4433",
        "serial": f"1-{USB_HOST}-5",
        "class": "smart-card",
        "classCode": "0b",
        "interfaceClasses": "0b",
        "name": "QEMU QEMU USB CCID",
    },
    "usb-2-4-1-0": {
        "bus": "usb",
        "address": "2-4:1.0",
        "physicalPath": f"{USB_HOST}/usb3/4:1.0",
        "vendor": "46f4",
        "product": "0001",
        "serial": "STICK0001",
        "driver": "usb-storage",
        "class": "mass-storage",
        "classCode": "08",
        "name": "QEMU QEMU USB HARDDRIVE",
    },
    "pci-0000-00-0c-0": {
        "bus": "pci",
        "address": "0000:00:0c.0",
        "subsystem": "drm",
        "renderNode": True,
        "vendor": "1002",
        "product": "5159",
        "driver": "radeon",
        "class": "display",
        "classCode": "030000",
        "resource.kubernetes.io/pciBusID": "0000:00:0c.0",
        "resource.kubernetes.io/pcieRoot": "pci0000:00",
    },
    "platform-i8042": {
        "bus": "platform",
        "address": "i8042",
        "subsystem": "input",
        "driver": "i8042",
        "class": "input",
    },
}
UNCLAIMED = {"0000:00:1f.0": ["lpc_ich"], "0000:00:1f.2": ["ahci"]}  # what this guest loads no module for
SHAREABLE = {"pci-0000-00-04-0", "pci-0000-00-0c-0"}


@pytest.fixture(scope="module")
def inventory(product: Product) -> dict[str, Any]:
    product.agree(has=sorted(OFFERED))
    return product.inventory()


def shape(path: str) -> str:
    return re.sub(r"(?<!/i)\d+", "N", re.sub(r"/sd[a-z]$", "/sdX", path))


def test_the_inventory_is_exactly_the_expected_one(inventory: dict[str, Any], tell: Tell) -> None:
    found = {
        device["name"]: tuple(sorted(shape(node["path"]) for node in device["nodes"]))
        for device in inventory["devices"]
    }
    tell(f"{len(found)} devices with {sum(map(len, found.values()))} nodes")
    assert found == OFFERED


def test_the_machines_own_nodes_are_withheld_with_their_reason(inventory: dict[str, Any]) -> None:
    found = sorted((shape(entry["node"]), entry["reason"]) for entry in inventory["withheld"])
    assert found == WITHHELD


def test_what_has_no_driver_is_told_with_its_module_and_the_disks_use_is_known(
    inventory: dict[str, Any],
) -> None:
    assert {entry["address"]: list(entry["modules"]) for entry in inventory["unclaimed"]} == UNCLAIMED
    assert inventory["facts"] == {"storage": "observed", "reason": ""}


@pytest.mark.parametrize("name", sorted(ATTRIBUTES))
def test_the_slice_says_what_a_device_is(name: str, inventory: dict[str, Any], guest: Guest) -> None:
    assert name in {device["name"] for device in inventory["devices"]}
    offered = guest.call("seen")["offered"][name]["attributes"]
    said = {key: value for key, typed in offered.items() for value in typed.values()}
    unknown = {"modalias", *(["name"] if ATTRIBUTES[name]["bus"] == "pci" else [])}
    assert {key: value for key, value in said.items() if key not in unknown} == ATTRIBUTES[name]


def test_only_render_nodes_are_shareable(inventory: dict[str, Any]) -> None:
    assert {device["name"] for device in inventory["devices"] if device["shareable"]} == SHAREABLE


def test_every_node_is_in_dev_with_the_numbers_of_its_own_hardware(
    inventory: dict[str, Any], guest: Guest, tell: Tell
) -> None:
    nodes = guest.call("nodes")
    index = {
        "c": guest.call("links", "/sys/dev/char"),
        "b": guest.call("links", "/sys/dev/block"),
    }
    checked = 0
    for device in inventory["devices"]:
        for node in device["nodes"]:
            kind, major, minor = nodes[node["path"]]
            place = index[kind][f"{major}:{minor}"]
            usb_device = device["address"].partition(":")[0]
            assert f"/{device['address']}/" in f"{place}/" or place.endswith(f"/{usb_device}"), (
                device,
                place,
            )
            checked += 1
    tell(f"{checked} nodes checked against /dev and /sys/dev")


def test_every_node_of_dev_is_offered_withheld_or_nobodys(inventory: dict[str, Any], guest: Guest) -> None:
    offered = {node["path"] for device in inventory["devices"] for node in device["nodes"]}
    known = offered | {entry["node"] for entry in inventory["withheld"]}
    places = {
        "c": guest.call("links", "/sys/dev/char"),
        "b": guest.call("links", "/sys/dev/block"),
    }
    left = {
        path: places[kind].get(f"{major}:{minor}", "")
        for path, (kind, major, minor) in guest.call("nodes").items()
        if path not in known
    }
    hardware = {path: place for path, place in left.items() if place and "/virtual/" not in place}
    # phantom serial ports, the framebuffer, usbfs nodes of hubs, and of nothing else
    assert {shape(path) for path in hardware} == {"/dev/fbN", "/dev/ttySN", "/dev/bus/usb/N/N"}
    hubs = [place.rpartition("/")[2] for path, place in hardware.items() if path.startswith("/dev/bus/usb")]
    classes = {guest.call("read", f"/sys/bus/usb/devices/{name}/bDeviceClass").strip() for name in hubs}
    assert classes == {"09"}


def test_the_slice_on_the_cluster_lists_the_same_devices(inventory: dict[str, Any], guest: Guest) -> None:
    assert guest.call("seen")["slice"] == sorted(OFFERED)
    assert guest.call("listing", "/run/liken/cluster/slices") == [f"{NODE}-{DRIVER}.yaml"]


def test_every_device_can_be_claimed_at_once_and_gets_its_own_nodes(
    inventory: dict[str, Any], product: Product, tell: Tell
) -> None:
    claim = product.claim("everything", *sorted(OFFERED))
    product.agree(has=sorted(OFFERED))
    spec = product.spec(claim) or {}
    assert {name: tuple(sorted(map(shape, paths))) for name, paths in spec.items()} == OFFERED
    tell(f"one claim of {len(spec)} devices, a spec of {sum(map(len, spec.values()))} nodes, all present")
    product.release(claim)
    product.agree(has=sorted(OFFERED))


def test_the_command_prints_what_the_bus_carries(inventory: dict[str, Any], product: Product) -> None:
    printed = product.printed()
    assert {**printed, "taken": ""} == {**inventory, "taken": ""}
