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


IN_OPEN, IN_Q_OVERFLOW, IN_IGNORED = 0x20, 0x4000, 0x8000  # linux/inotify.h
_watches: dict[str, int] = {}  # watched folder -> inotify file


def watch_opens(folder: str) -> None:
    """Begin to note who of the nodes in a folder, also of those that come later, is opened by whomever."""
    libc = ctypes.CDLL(None, use_errno=True)
    handle = _done(libc.inotify_init1(os.O_NONBLOCK), folder)
    _done(libc.inotify_add_watch(handle, folder.encode(), IN_OPEN), folder)
    _watches[folder] = handle


def _done(returned: int, path: str) -> int:
    """What a function of libc returned. Raises OSError with its errno when that is -1."""
    if returned < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), path)
    return returned


def open_once(path: str) -> None:
    """Open a node and close it again."""
    os.close(os.open(path, os.O_RDWR))


def opens(folder: str) -> list[str]:
    """The names that were opened in a watched folder since this was asked last, one for each time."""
    names = []
    while data := _pending(_watches[folder]):
        while data:
            _, mask, _, length = struct.unpack_from("iIII", data)
            if mask & (IN_Q_OVERFLOW | IN_IGNORED):
                raise RuntimeError(f"{folder} went away, or more was opened there than the kernel keeps")
            if name := data[16 : 16 + length].rstrip(b"\0").decode():  # without: the folder itself
                names.append(name)
            data = data[16 + length :]
    return names


def _pending(handle: int) -> bytes:
    try:
        return os.read(handle, 65536)
    except BlockingIOError:
        return b""
