"""What a libusb program does, in a container: take an interface from its kernel driver, use it, die.

Run with a usbfs node, an interface number, and a file whose appearance is the time to die. The numbers
are those of linux/usbdevice_fs.h on a 64-bit machine.
"""

import ctypes
import fcntl
import os
import sys
import time

USBDEVFS_IOCTL = 0xC0105512
USBDEVFS_DISCONNECT = 0x5516
USBDEVFS_CLAIMINTERFACE = 0x8004550F


class Request(ctypes.Structure):
    _fields_ = (("interface", ctypes.c_int), ("code", ctypes.c_int), ("data", ctypes.c_void_p))


def main(node: str, interface: int, end: str) -> None:
    device = os.open(node, os.O_RDWR)
    fcntl.ioctl(device, USBDEVFS_IOCTL, Request(interface, USBDEVFS_DISCONNECT, None))
    fcntl.ioctl(device, USBDEVFS_CLAIMINTERFACE, ctypes.c_uint(interface))
    while not os.path.exists(end):  # noqa: PTH110 - pathlib takes seconds to import in an emulator
        time.sleep(0.05)
    print("detached", flush=True)
    os._exit(0)  # no release, no attach: as a program that is killed


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
