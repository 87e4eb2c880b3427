"""What is read while the lock is held: nothing that a device could delay."""

from pathlib import Path

from common.hardware.machine import Machine, SerialLine
from common.hardware.tree import Tree
from tests.claim_bench import Bench
from tests.unit.claims.shapes import GPU, adapter, graphics_card, radio, undriven

# The kernel answers these from its own memory. `serial`, `product` and `manufacturer` of a USB device wait
# for the device's lock, which a reset keeps for seconds.
ALLOWED = {
    "dev",
    "uevent",
    "busnum",
    "devnum",
    "idVendor",
    "idProduct",
    "type",
    "active",
    "mountinfo",
    "swaps",
}


class WatchedTree(Tree):
    """A tree that remembers which files were read."""

    def __init__(self, tree: Tree) -> None:
        super().__init__(tree.root)
        self.seen: set[str] = set()
        read = self.read

        def watched(path: str) -> bytes | None:
            self.seen.add(path.rpartition("/")[2])
            return read(path)

        self.read = watched


def test_a_slot_is_read_without_anything_that_a_device_could_delay(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Machine(serio=(SerialLine("pulse8-cec", "2548", "1002", "s1"),)))
    machine = bench.machine
    machine.usb("1-9", vendor="2548", product="1002", serial="s1", manufacturer="m", name="p")
    machine.tty(machine.interface(f"{machine.root_hub(1)}/1-9", 0, driver="cdc_acm"), "ttyACM0")
    adapter(machine)
    undriven(machine, "1-2")
    radio(machine, "1-7")
    graphics_card(machine)
    stick = machine.interface(machine.usb("1-3", serial="x"), 0, driver="usb-storage", usb_class="08")
    machine.scsi_disk(stick, "sda", host=6)
    machine.sound(machine.pci("0000:00:1f.3", driver="snd_hda_intel", pci_class="040300"), 0, jacks=[7])
    machine.board("platform", "i8042", driver="i8042")
    machine.event("sys/devices/platform/i8042", 1)
    inventory = bench.walk()
    bench.offers.update(inventory)
    tree = WatchedTree(machine.tree())
    bench.restart(tree=tree)
    bench.offers.update(inventory)
    bench.slots.hear(inventory)
    names = [device.name for device in inventory.devices]
    assert {"usb-1-1-1-0", "usb-1-2", "usb-1-3-1-0", "usb-1-7-1-0", GPU, "pci-0000-00-1f-3"} <= set(names)
    tree.seen.clear()
    claim = bench.take(*names)
    machine.remove(f"{machine.root_hub(1)}/1-1")
    states = bench.reconcile()
    assert states["usb-1-1-1-0"] == "absent"
    assert len(bench.paths(claim)) == len(names)
    assert tree.seen <= ALLOWED
