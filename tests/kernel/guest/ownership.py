"""Whose a device node is: asked of the kernel, with no rule of the product."""

import os
import stat


def foreign(path: str, address: str) -> str:
    """Where below /sys/devices the node at `path` belongs; "" when that is the hardware at `address`.

    Hardware at a USB interface (1-8:1.0) owns the usbfs node of its device (1-8) as well. A path where
    nothing is, or a node of no device, is nobody's. What has no hardware is foreign to all but for uinput
    and uhid.
    """
    try:
        status = os.stat(path)  # noqa: PTH116 - pathlib takes seconds to import in an emulator
        folder = "block" if stat.S_ISBLK(status.st_mode) else "char"
        numbers = f"{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}"
        place = os.readlink(f"/sys/dev/{folder}/{numbers}")  # noqa: PTH115
    except FileNotFoundError:
        return ""
    if f"/{address}/" in f"{place}/" or place.endswith(f"/{address.partition(':')[0]}"):
        return ""
    return "" if place.endswith(("/virtual/misc/uinput", "/virtual/misc/uhid")) else place
