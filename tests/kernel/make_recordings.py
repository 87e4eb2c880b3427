"""Make the project's own recordings anew: `python -m tests.kernel.make_recordings` (root; two minutes).

Two states of a QEMU guest with Debian's kernel, told by `liken record`. Their expectations are written by
hand in tests/machines/expected: numbers of nodes may differ in a new recording.
"""

import base64
import tempfile
from pathlib import Path

from tests.kernel.bench import Bench
from tests.kernel.hardware import FRAMEBUFFERS, LATE_MODULES, MODULES, full_machine
from tests.kernel.machine import Guest, boot
from tests.kernel.product import LIKEN
from tests.kernel.provision import REPOSITORY, provide

FOLDER = REPOSITORY / "tests/machines/recordings"
FILE = "/run/machine.tar.xz"


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        guest = boot(provide(), work, full_machine(work), tpm=True)
        try:
            guest.call("load", list(MODULES))
            guest.call("write", FRAMEBUFFERS, "0")
            guest.call("load", list(LATE_MODULES))
            guest.call("wait_path", "/sys/bus/usb/devices/1-7.1.1:1.0/driver")
            guest.call("wait_path", "/dev/sda")
            keep(guest, "guest-full")
            plug_gadgets(guest)
            keep(guest, "guest-gadgets")
        finally:
            guest.close()


def plug_gadgets(guest: Guest) -> None:
    """Twins with and without serial numbers, an undriven device, a composite one, a radio; vivid."""
    bench = Bench(guest)
    guest.call("load", ["btusb", "usb_f_fs", "vivid"])
    bench.make("twin-a", "1a86", "7523", "acm", serial="00000001")
    bench.make("twin-b", "1a86", "7523", "acm", serial="00000001")
    bench.make("plain", "1a86", "7523", "acm")
    bench.make("coral", "18d1", "9302", "Loopback", product_name="[/foo]")
    bench.make("composite", "1d6b", "0105", *["acm"] * 4, *["hid"] * 4)
    bench.make_radio("radio", "0a12", "0001")
    for port, gadget in enumerate(("twin-a", "twin-b", "plain", "coral", "composite", "radio")):
        bench.plug(gadget, port)
    for port in range(6):
        guest.call("wait_path", f"/sys/bus/usb/devices/{bench.address(port)}:1.0/uevent")
    guest.call("wait_path", f"/sys/bus/usb/devices/{bench.address(5)}:1.0/bluetooth/hci0")
    guest.call("nap", 3.0)  # the last drivers bind


def keep(guest: Guest, name: str) -> None:
    print(guest.run(LIKEN, "record", FILE), end="")
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / f"{name}.tar.xz").write_bytes(base64.b64decode(guest.run("base64", FILE)))


if __name__ == "__main__":
    main()
