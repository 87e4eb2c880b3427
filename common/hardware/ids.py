"""Names of PCI and USB hardware from the databases pci.ids and usb.ids, searched in place.

The files of the running system are used, not of the tree: they describe the world, not one machine. Format:
a line `8086  Vendor name`, below it lines `<tab>3e9b  Device name`; pci.ids(5).
"""

import contextlib
import functools
import mmap
import re
from pathlib import Path

_FOLDERS = ("/usr/share/hwdata", "/usr/share/misc", "/var/lib/pciutils", "/var/lib/usbutils")
_NEXT_VENDOR = re.compile(rb"\n[0-9a-fA-F]")
_ID = re.compile(r"[0-9a-f]{4}")


class Names:
    """One database; an empty one where the file is missing. `content` is the file's bytes."""

    def __init__(self, content: bytes | mmap.mmap) -> None:
        self._content = content

    @functools.lru_cache(maxsize=1024)  # noqa: B019 - databases live as long as the process
    def find(self, vendor: str, product: str) -> str:
        """Vendor and device name of four-digit ids, as lspci writes them.

        "Vendor Device 3e9b" when only the vendor is known, "Device 8086:3e9b" when neither is, "" for ids
        that are not four hex digits.
        """
        if not (_ID.fullmatch(vendor) and _ID.fullmatch(product)):
            return ""
        start = self._content.find(f"\n{vendor}  ".encode())
        if start < 0:
            return f"Device {vendor}:{product}"
        following = _NEXT_VENDOR.search(self._content, start + 1)
        end = following.start() if following else len(self._content)
        found = self._content.find(f"\n\t{product}  ".encode(), start, end)
        device = self._line(found + 2) if found >= 0 else f"Device {product}"
        return f"{self._line(start + 1)} {device}"

    def _line(self, start: int) -> str:
        """The text after the id and two blanks of the line that begins at `start`."""
        end = self._content.find(b"\n", start)
        return (
            self._content[start + 6 : end if end >= 0 else len(self._content)]
            .decode("utf-8", "replace")
            .strip()
        )


@functools.cache
def database(name: str) -> Names:
    """The database `pci.ids` or `usb.ids` of this system."""
    for folder in _FOLDERS:
        with contextlib.suppress(OSError, ValueError), (Path(folder) / name).open("rb") as file:
            return Names(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    return Names(b"")
