"""What a published device says about itself: the attributes a selector reads."""

import re

import msgspec

from common.hardware.classes import PCI_CLASSES, USB_CLASSES
from common.hardware.discovery import UsbDevice
from common.hardware.ids import database
from common.hardware.model import PLUMBING, Hardware, Offer
from common.hardware.strings import UsbStrings
from common.hardware.text import clean, cut, fits
from common.hardware.tree import Tree
from common.inventory import AttributeValue

_HEX = re.compile(r"(?:0x)?([0-9a-f]{4})")
_CLASS = re.compile(r"(?:0x)?([0-9a-f]{6})")
_BYTE = re.compile(r"[0-9a-f]{2}")
_HOST_BRIDGE = re.compile(r"pci[0-9a-f]{4,}:[0-9a-f]{2}")
_ROOT_HUB = re.compile(r"usb\d+")
_PCI_ADDRESS = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")  # four-digit domains only
_LISTED_CLASSES = 21  # three bytes each: what fits into one attribute without half a class at the end
_SUPERSPEED_HUB = "0003"  # product id of the kernel's USB 3 root hub (vendor 1d6b); usb.ids


class Identity(msgspec.Struct, frozen=True):
    """Facts about one piece of hardware, already clean; "" and None for what it does not have."""

    driver: str = ""
    class_word: str = ""
    class_code: str = ""
    interface_classes: str = ""
    name: str = ""
    modalias: str = ""
    serial: str = ""
    vendor: str = ""
    product: str = ""
    physical_path: str = ""
    pci_bus_id: str = ""
    pcie_root: str = ""
    numa_node: int | None = None


def pci_identity(tree: Tree, hardware: Hardware) -> Identity:
    """A PCI function, with its files."""
    place = hardware.directory
    code = _match(_CLASS, tree.text(f"{place}/class"))
    vendor = _match(_HEX, tree.text(f"{place}/vendor"))
    product = _match(_HEX, tree.text(f"{place}/device"))
    numa = tree.text(f"{place}/numa_node")
    return Identity(
        driver=hardware.driver,
        class_word=PCI_CLASSES.get(code[:2], ""),
        class_code=code,
        name=pci_name(tree, hardware),
        modalias=tree.text(f"{place}/modalias"),
        vendor=vendor,
        product=product,
        pci_bus_id=_pci_bus_id(hardware),
        pcie_root=_pcie_root(hardware),
        numa_node=int(numa) if numa.isascii() and numa.isdigit() else None,
    )


def usb_identity(tree: Tree, hardware: Hardware, device: UsbDevice, strings: UsbStrings) -> Identity:
    """A USB interface, or a whole device with all its interfaces; `strings` of the device."""
    vendor = _match(_HEX, tree.text(f"{device.directory}/idVendor"))
    product = _match(_HEX, tree.text(f"{device.directory}/idProduct"))
    whole = hardware.form == "whole"
    described = device.interfaces if whole else (hardware,)
    codes = [_match(_BYTE, tree.text(f"{each.directory}/bInterfaceClass")) for each in described]
    return Identity(
        driver="" if hardware.driver in PLUMBING else hardware.driver,
        class_word=USB_CLASSES.get(codes[0], "") if codes else "",
        class_code=codes[0] if codes else "",
        interface_classes=" ".join(list(filter(None, codes))[:_LISTED_CLASSES]) if whole else "",
        name=usb_name(tree, device, strings),
        modalias="" if whole else tree.text(f"{hardware.directory}/modalias"),
        serial=strings.serial,
        vendor=vendor,
        product=product,
        physical_path=physical_path(tree, hardware),
    )


def pci_name(tree: Tree, hardware: Hardware) -> str:
    """Vendor and device in words, from pci.ids."""
    vendor, product = (
        _match(_HEX, tree.text(f"{hardware.directory}/{file}")) for file in ("vendor", "device")
    )
    return database("pci.ids").find(vendor, product)


def usb_name(tree: Tree, device: UsbDevice, strings: UsbStrings) -> str:
    """What the device calls itself, else vendor and device from usb.ids."""
    spoken = " ".join(filter(None, (strings.manufacturer, strings.product)))
    if spoken:
        return spoken
    vendor, product = (
        _match(_HEX, tree.text(f"{device.directory}/{file}")) for file in ("idVendor", "idProduct")
    )
    return database("usb.ids").find(vendor, product)


def board_identity(tree: Tree, hardware: Hardware, class_word: str) -> Identity:
    """A board device: the firmware says little about it."""
    return Identity(
        driver=hardware.driver, class_word=class_word, modalias=tree.text(f"{hardware.directory}/modalias")
    )


def _match(pattern: re.Pattern[str], text: str) -> str:
    found = pattern.fullmatch(text.lower())
    return found.group(found.lastindex or 0) if found else ""


def physical_path(tree: Tree, hardware: Hardware) -> str:
    """Where a USB device is plugged in, in words that survive a reboot: "0000:00:14.0/usb2/1.4:1.0".

    The parent of the root hub, the speed class of the root hub (usb3 for a SuperSpeed one, else usb2), and
    the chain of ports. "" off the USB, or when the directory shows no root hub.
    """
    if hardware.bus != "usb":
        return ""
    parts = hardware.device.split("/")
    hubs = [index for index, part in enumerate(parts) if _ROOT_HUB.fullmatch(part)]
    ports = hardware.address.partition("-")[2]
    if not hubs or not ports:
        return ""
    hub = "/".join(parts[: hubs[-1] + 1])
    speed = "usb3" if tree.text(f"{hub}/idProduct") == _SUPERSPEED_HUB else "usb2"
    return f"{parts[hubs[-1] - 1]}/{speed}/{ports}"


def _pci_bus_id(hardware: Hardware) -> str:
    """Kubernetes knows addresses of four-digit domains only (KEP-4381, standard device attributes)."""
    return hardware.address if hardware.bus == "pci" and _PCI_ADDRESS.fullmatch(hardware.address) else ""


def _pcie_root(hardware: Hardware) -> str:
    """The host bridge's directory name, "pci0000:00": the outermost one on the way."""
    if hardware.bus != "pci":
        return ""
    return next((part for part in hardware.directory.split("/") if _HOST_BRIDGE.fullmatch(part)), "")


def attributes(hardware: Hardware, identity: Identity, offer: Offer) -> dict[str, AttributeValue]:
    """The attributes of one device, by name: absent, never empty; texts cut, identifiers never cut."""
    identifiers = {
        "address": hardware.address,
        "driver": identity.driver,
        "modalias": identity.modalias,
        "physicalPath": identity.physical_path,
        "resource.kubernetes.io/pciBusID": identity.pci_bus_id,
        "resource.kubernetes.io/pcieRoot": identity.pcie_root,
    }
    texts = {
        "bus": hardware.bus,
        "class": identity.class_word,
        "classCode": identity.class_code,
        "interfaceClasses": identity.interface_classes,
        "subsystem": offer.subsystem,
        "name": identity.name,
        "serial": identity.serial,
        "vendor": identity.vendor,
        "product": identity.product,
    }
    flags = {
        "renderNode": offer.render,
        "displayNode": offer.display,
        "sound.liken.sh/supportsSound": offer.sound,
    }
    found: dict[str, AttributeValue] = {}
    for name, value in identifiers.items():
        if value and fits(value) and clean(value.encode("utf-8", "replace")) == value:
            found[name] = {"string": value}
    for name, value in texts.items():
        text = cut(clean(value.encode("utf-8", "replace")))
        if text:
            found[name] = {"string": text}
    for name, flag in flags.items():
        if flag:
            found[name] = {"bool": True}
    if identity.numa_node is not None and hardware.bus == "pci":
        found["resource.kubernetes.io/numaNode"] = {"int": identity.numa_node}
    return dict(sorted(found.items()))
