"""Input devices made in the guest, and a count of who opens a node."""

import ctypes
import fcntl
import os
import struct
from pathlib import Path

_inlets: list[int] = []  # open /dev/uinput files; a device lives as long as its file


def uinput(name: str) -> str:
    """Make an input device with one key through /dev/uinput; the path of its event node."""
    before = _names()
    inlet = os.open("/dev/uinput", os.O_WRONLY)
    _inlets.append(inlet)
    fcntl.ioctl(inlet, 0x40045564, 1)  # UI_SET_EVBIT, EV_KEY: linux/uinput.h
    fcntl.ioctl(inlet, 0x40045565, 30)  # UI_SET_KEYBIT, KEY_A
    os.write(inlet, struct.pack("<80sHHHHi256i", name.encode(), 3, 1, 1, 1, 0, *([0] * 256)))
    fcntl.ioctl(inlet, 0x5501)  # UI_DEV_CREATE
    made = _names() - before
    return "/dev/input/" + next(entry for entry in sorted(made) if entry.startswith("event"))


def _names() -> set[str]:
    return {entry.name for entry in Path("/sys/class/input").iterdir()}


def uinput_end() -> None:
    """Remove the devices that uinput made."""
    while _inlets:
        os.close(_inlets.pop())


_opens: dict[str, int] = {}  # watched node -> inotify file


def watch_opens(paths: list[str]) -> None:
    """Begin to count how often each node is opened, by whomever."""
    libc = ctypes.CDLL(None, use_errno=True)
    for path in paths:
        handle = _done(libc.inotify_init1(os.O_NONBLOCK), path)
        _done(libc.inotify_add_watch(handle, path.encode(), 0x20), path)  # IN_OPEN: linux/inotify.h
        _opens[path] = handle


def _done(returned: int, path: str) -> int:
    """What a function of libc returned. Raises OSError with its errno when that is -1."""
    if returned < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), path)
    return returned


def open_once(path: str) -> None:
    """Open a node and close it again."""
    os.close(os.open(path, os.O_RDWR))


def opens() -> dict[str, int]:
    """How often each watched node was opened since this was asked last."""
    counts = {}
    for path, handle in _opens.items():
        try:
            counts[path] = len(os.read(handle, 65536)) // 16  # an event without a name
        except BlockingIOError:
            counts[path] = 0
    return counts


def watch_opens_end() -> None:
    """Count no longer."""
    while _opens:
        os.close(_opens.popitem()[1])
