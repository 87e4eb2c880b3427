"""What the slices must say of each device of the played machine, by hand: shares no product code.

The words are those of docs/reference/devices.md, the values those that `machine.py` gives the hardware.
"""

from typing import NamedTuple

from tests.chaos.machine import Port

Told = set[tuple[str, str, str, object]]  # device, attribute, kind of the value, value
SHARED = "allowMultipleAllocations"  # of a device, beside its attributes: its kind is ""
_KINDS = {str: "string", bool: "bool"}


class _Usb(NamedTuple):
    """What hangs on all ports of one USB bus."""

    vendor: str
    product: str
    name: str
    code: str  # of its interface
    word: str
    driver: str
    subsystem: str  # "": it delivers several kinds of node, or none


_USB = {
    "1": _Usb("0403", "6001", "Device 0403:6001", "ff", "vendor-specific", "ftdi_sio", "tty"),
    "2": _Usb("051d", "0002", "UPS [/foo]", "03", "hid", "usbhid", "hidraw"),
    "3": _Usb("1a6e", "089a", "Device 1a6e:089a", "fe", "application-specific", "", ""),
    "4": _Usb("0781", "5581", "Device 0781:5581", "08", "mass-storage", "usb-storage", ""),
}


def first_serial(plug: str) -> str:
    """The serial of what hangs on this port when the run begins; "" when it has none."""
    return f"A{int(plug[2:]):07}" if plug.startswith("1-") else ""


def told(port: Port, serial: str, bound: bool) -> Told:
    """All that the slices say of what is in `port`; a USB interface that is not `bound` has no driver."""
    if port.bus == "pci":
        return _with_name(port.device, _pci(port))
    if bound and ":" in port.owner:
        return _with_name(port.device, _usb_interface(port, serial))
    return _with_name(f"usb-{port.plug}", _usb_device(port, serial))


def _with_name(device: str, values: dict[str, object]) -> Told:
    return {
        (device, name, "" if name == SHARED else _KINDS[type(value)], value)
        for name, value in values.items()
        if value
    }


def _usb(port: Port, serial: str) -> dict[str, object]:
    kind = _USB[port.plug[0]]
    return {
        "bus": "usb",
        "vendor": kind.vendor,
        "product": kind.product,
        "name": kind.name,
        "serial": serial,
        "class": kind.word,
        "classCode": kind.code,
    }


def _usb_interface(port: Port, serial: str) -> dict[str, object]:
    kind, number = _USB[port.plug[0]], port.plug[2:]
    return _usb(port, serial) | {
        "address": f"{port.plug}:1.0",
        "physicalPath": f"0000:00:14.0/usb2/{number}:1.0",
        "driver": kind.driver,
        "subsystem": kind.subsystem,
        "modalias": f"usb:v0000p0000d0000dc00dsc00dp00ic{kind.code.upper()}isc00ip00in00",
    }


def _usb_device(port: Port, serial: str) -> dict[str, object]:
    number = port.plug[2:]
    return _usb(port, serial) | {
        "address": port.plug,
        "physicalPath": f"0000:00:14.0/usb2/{number}",
        "interfaceClasses": _USB[port.plug[0]].code,
    }


def _pci(port: Port) -> dict[str, object]:
    common: dict[str, object] = {
        "bus": "pci",
        "address": port.owner,
        "resource.kubernetes.io/pciBusID": port.owner,
        "resource.kubernetes.io/pcieRoot": f"pci{port.owner[:7]}",
    }
    if not port.kind:
        return common | {
            "class": "multimedia",
            "classCode": "040300",
            "driver": "snd_hda_intel",
            "modalias": "pci:v00008086d0000A348sv00000000sd00000000bc04sc03i00",
            "name": "Device 8086:a348",
            "product": "a348",
            "sound.liken.sh/supportsSound": True,
            "subsystem": "sound",
            "vendor": "8086",
        }
    return common | {
        "class": "display",
        "classCode": "030000",
        "driver": "amdgpu",
        "modalias": "pci:v00001002d000073BFsv00000000sd00000000bc03sc00i00",
        "name": "Device 1002:73bf",
        "product": "73bf",
        "subsystem": "drm",
        "vendor": "1002",
        "renderNode": port.kind == "render",
        "displayNode": port.kind == "card",
        SHARED: port.kind == "render",
    }
