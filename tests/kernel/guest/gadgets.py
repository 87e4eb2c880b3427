"""USB devices of any identity: configfs gadgets on dummy_hcd, a make-believe USB controller."""

import os
import struct
import subprocess
from pathlib import Path

CONFIGFS = Path("/sys/kernel/config")
GADGETS = CONFIGFS / "usb_gadget"
ENGLISH = "strings/0x409"
# A HID report descriptor of a one-byte vendor report: hidraw, and no input device.
VENDOR_HID = bytes.fromhex("06a0ff 0901 a101 0901 1500 26ff00 7508 9508 8102 c0")


def make(
    name: str,
    vendor: str,
    product: str,
    functions: list[str],
    serial: str = "",
    manufacturer: str = "",
    product_name: str = "",
    disk: str = "",
) -> None:
    """Describe a gadget; `plug` makes it appear. Functions: "acm", "hid", "mass_storage"."""
    if not GADGETS.is_dir():
        subprocess.run(["mount", "-t", "configfs", "configfs", str(CONFIGFS)], check=True)
    home = GADGETS / name
    home.mkdir()
    (home / "idVendor").write_text(f"0x{vendor}")
    (home / "idProduct").write_text(f"0x{product}")
    strings = {"serialnumber": serial, "manufacturer": manufacturer, "product": product_name}
    if any(strings.values()):
        (home / ENGLISH).mkdir()
        for file, text in strings.items():
            if text:
                (home / ENGLISH / file).write_bytes(text.encode("utf-8", "surrogateescape"))
    configuration = home / "configs/c.1"
    configuration.mkdir()
    for number, function in enumerate(functions):
        place = home / f"functions/{function}.{name}-{number}"
        place.mkdir()
        _set_up(place, function, disk)
        (configuration / place.name).symlink_to(place)


def _set_up(place: Path, function: str, disk: str) -> None:
    if function == "hid":
        (place / "report_length").write_text("8")
        (place / "report_desc").write_bytes(VENDOR_HID)
    elif function == "mass_storage":
        (place / "lun.0/removable").write_text("1")
        (place / "lun.0/file").write_text(disk)


def identity(name: str, vendor: str, product: str) -> None:
    """Change the ids of an unplugged gadget."""
    (GADGETS / name / "idVendor").write_text(f"0x{vendor}")
    (GADGETS / name / "idProduct").write_text(f"0x{product}")


def plug(name: str, port: int) -> None:
    """Plug a gadget into a dummy_hcd controller, 0-5; each has one port."""
    (GADGETS / name / "UDC").write_text(f"dummy_udc.{port}")


def unplug(name: str) -> None:
    (GADGETS / name / "UDC").write_text("\n")


def remove(name: str) -> None:
    """Forget an unplugged gadget."""
    home = GADGETS / name
    if name in _radios:
        os.close(_radios.pop(name))
        subprocess.run(["umount", f"/run/{name}.ffs"], check=True)
        Path(f"/run/{name}.ffs").rmdir()
    for link in (home / "configs/c.1").iterdir():
        if link.is_symlink():
            link.unlink()
    for folder in [
        *(home / "functions").iterdir(),
        home / "configs/c.1",
        *(home / "strings").iterdir(),
        home,
    ]:
        folder.rmdir()


def make_radio(name: str, vendor: str, product: str) -> None:
    """A gadget that btusb takes for a Bluetooth adapter: class e0/01/01, with the three endpoints it wants.

    Nobody answers on them; the adapter registers all the same.
    """
    make(name, vendor, product, ["ffs"])
    place = Path(f"/run/{name}.ffs")
    place.mkdir()
    subprocess.run(["mount", "-t", "functionfs", f"{name}-0", str(place)], check=True)
    control = os.open(place / "ep0", os.O_RDWR)  # open for as long as the gadget lives
    _radios[name] = control
    # usb/functionfs.h: magic 3, length, flags (full and high speed), a count of descriptors per speed
    body = struct.pack("<III", 1 | 2, 4, 4) + _interface(64, 1) + _interface(512, 4)
    os.write(control, struct.pack("<II", 3, 8 + len(body)) + body)
    os.write(control, struct.pack("<IIII", 2, 16, 0, 0))


def _interface(bulk_size: int, interval: int) -> bytes:
    interface = struct.pack("<9B", 9, 4, 0, 0, 3, 0xE0, 1, 1, 0)
    ends = ((0x81, 3, 16, interval), (0x82, 2, bulk_size, 0), (0x02, 2, bulk_size, 0))
    return interface + b"".join(struct.pack("<BBBBHB", 7, 5, *end) for end in ends)


_radios: dict[str, int] = {}  # open control files by gadget
