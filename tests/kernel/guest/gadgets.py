"""USB devices of any identity: configfs gadgets on dummy_hcd, a make-believe USB controller."""

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
