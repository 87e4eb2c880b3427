"""Words for the classes of PCI functions, USB interfaces and board devices."""

from collections.abc import Iterable

PCI_CLASSES = {  # base class; PCI Code and ID Assignment Specification
    "01": "storage",
    "02": "network",
    "03": "display",
    "04": "multimedia",
    "05": "memory",
    "06": "bridge",
    "07": "communication",
    "08": "system",
    "09": "input",
    "0b": "processor",
    "0c": "serial-bus",
    "0d": "wireless",
    "0f": "satellite",
    "10": "encryption",
    "11": "signal-processing",
    "12": "accelerator",
}
USB_CLASSES = {  # interface class; usb.org, Defined Class Codes
    "01": "audio",
    "02": "communications",
    "03": "hid",
    "05": "physical",
    "06": "imaging",
    "07": "printer",
    "08": "mass-storage",
    "0a": "cdc-data",
    "0b": "smart-card",
    "0e": "video",
    "10": "audio-video",
    "dc": "diagnostic",
    "e0": "wireless",
    "ef": "miscellaneous",
    "fe": "application-specific",
    "ff": "vendor-specific",
}
BOARD_CLASSES = {  # by kind of node: a board device has no class code
    "i2c-dev": "serial-bus",
    "spidev": "serial-bus",
    "input": "input",
    "tty": "communication",
    "sound": "multimedia",
    "video4linux": "multimedia",
    "media": "multimedia",
    "drm": "display",
    "block": "storage",
}
OTHER = "other"


def board_class(shape: str, kinds: Iterable[str]) -> str:
    """The word for a board device of this shape (model.Verdict) with these kinds of nodes."""
    if shape == "graphics":
        return BOARD_CLASSES["drm"]
    if shape == "sound":
        return BOARD_CLASSES["sound"]
    words = {BOARD_CLASSES.get(kind, OTHER) for kind in kinds}
    return words.pop() if len(words) == 1 else OTHER
