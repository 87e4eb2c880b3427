"""Hard scenario 3: a disk is offered until the machine uses it, and is back when it no longer does."""

import signal
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.kernel.conftest import Tell
from tests.kernel.machine import Guest
from tests.kernel.plugs import KINDS, Plugs
from tests.kernel.product import (
    LISTED_S,
    SAFE_S,
    SETTLED_S,
    SLICE_S,
    TRIES,
    WITHHELD_S,
    Claim,
    Product,
    RefusedError,
    withheld,
)

STICK = KINDS["stick"]
NAME = STICK.device
SPARE = "0000:00:06.0"  # an internal disk that nobody uses
LATE_S = 90.0
# Why a claim is refused: the device is not offered any more, or its use is newer than the last inventory.
# That another claim holds it would be a reason as well, and prove nothing of the disk's use.
UNKNOWN = f"this machine has no device {NAME} now"
IN_USE = rf"{NAME} cannot be given now: the machine keeps /dev/.*\(storage.* mounted at /run/m"


@dataclass(frozen=True)
class Use:
    """How the machine takes a disk and gives it back; `words_of` says what the capital words stand for."""

    prepare: str
    take: str
    give: str
    why: str  # part of what is said to people


USES = {
    "mounted": Use(
        "mkfs.ext4 -q -F DISK", "mkdir -p /run/m && mount DISK /run/m", "umount /run/m", "mounted at /run/m"
    ),
    "swap": Use("mkswap DISK", "swapon DISK", "swapoff DISK", "used as swap"),
    "device-mapper": Use(
        "true",
        "echo '0 SECTORS linear DISK 0' | dmsetup create --noudevsync used",
        "dmsetup remove --noudevsync used",
        "part of dm-",
    ),
    "md": Use(
        "modprobe raid1",
        "cd /sys && echo md127 > module/md_mod/parameters/new_array && cd block/md127/md"
        " && echo none > metadata_version && echo raid1 > level && echo 1 > raid_disks"
        " && echo $((SECTORS / 2)) > component_size && echo NUMBERS > new_dev && echo 0 > dev-NAME/slot"
        " && echo active > array_state",
        "echo clear > /sys/block/md127/md/array_state",
        "part of md127",
    ),
    # mounted by its other member: nothing but /sys/fs/btrfs tells of this one
    "btrfs member": Use(
        "modprobe btrfs && mkfs.btrfs -q -f --mixed -m single -d single OTHER DISK"
        " && mkdir -p /run/b && btrfs device scan OTHER DISK",
        "mount -t btrfs OTHER /run/b",
        "umount /run/b && btrfs device scan --forget && wipefs -q -a OTHER",
        "mounted btrfs",
    ),
    "btrfs": Use(
        "modprobe btrfs && mkfs.btrfs -q -f --mixed DISK && mkdir -p /run/b && btrfs device scan DISK",
        "mount -t btrfs DISK /run/b",
        "umount /run/b",
        "mounted btrfs",
    ),
}


@pytest.fixture
def disk(guest: Guest, product: Product, plugs: Plugs) -> str:
    """A stick in port 8 that nothing uses; its name below /dev."""
    plugs.plug(STICK)
    product.waiting_for_slice(has=[NAME]).result(120)
    guest.call("wait_kinds", NAME, ["block", "bsg", "scsi_generic"])
    return guest.run("sh", "-c", "basename /sys/bus/usb/devices/2-8:1.0/host*/target*/*/block/*").strip()


@pytest.fixture
def claim(disk: str, product: Product) -> Iterator[Claim]:
    made = product.claim("disk", NAME)
    yield made
    product.release(made)


@pytest.mark.parametrize("name", sorted(USES))
def test_a_stick_is_withheld_while_the_machine_uses_it(
    name: str, disk: str, claim: Claim, guest: Guest, product: Product, tell: Tell
) -> None:
    use, words = USES[name], words_of(guest, disk)
    prompt = False
    for _ in range(TRIES):
        guest.run("sh", "-c", fill(use.prepare, words))
        before = (product.spec(claim) or {})[NAME]
        spec = guest.begin("wait_spec", claim.uid, {NAME: withheld(NAME)}, timeout_s=LATE_S)
        gone = product.waiting_for_slice(lacks=[NAME])
        began, ended = guest.call("timed", ["sh", "-c", fill(use.take, words)])
        safe, unlisted = spec.result(LATE_S + 5), gone.result(LATE_S + 5)
        product.agree(withheld=[claim], lacks=[NAME])
        reasons = {entry["node"]: entry["detail"] for entry in product.inventory()["withheld"]}
        tell(
            f"{name}: withheld in the spec {(safe - began) * 1000:.0f} ms after the command began"
            f" ({(safe - ended) * 1000:+.0f} ms after its end), in the slice {unlisted - ended:.2f} s"
            f" after it; {reasons[f'/dev/{disk}']}"
        )
        assert use.why in reasons[f"/dev/{disk}"]
        assert safe - ended < SAFE_S
        assert unlisted - ended < SLICE_S
        prompt = safe - ended <= WITHHELD_S and unlisted - ended <= LISTED_S
        with pytest.raises(RefusedError, match=UNKNOWN):
            product.claim("second", NAME)

        back = guest.begin("wait_spec", claim.uid, {NAME: before}, timeout_s=LATE_S)
        listed = product.waiting_for_slice(has=[NAME])
        began, ended = guest.call("timed", ["sh", "-c", fill(use.give, words)])
        returned, listed_again = back.result(LATE_S + 5), listed.result(LATE_S + 5)
        tell(
            f"{name}: back in the spec {(returned - began) * 1000:.0f} ms,"
            f" in the slice {listed_again - ended:.2f} s (settle time {SETTLED_S} s)"
        )
        assert listed_again - ended < SLICE_S
        product.agree(has=[NAME])
        if prompt:
            break
    assert prompt, f"in {TRIES} tries never withheld within {WITHHELD_S} s and {LISTED_S} s"


def test_a_stick_that_was_mounted_a_moment_ago_is_refused_before_an_inventory_says_so(
    disk: str, guest: Guest, product: Product, tell: Tell
) -> None:
    use, words = USES["mounted"], words_of(guest, disk)
    guest.run("sh", "-c", fill(use.prepare, words))
    watcher = product.pids()["watcher"]
    guest.call("kill", watcher, int(signal.SIGSTOP))
    try:
        guest.run("sh", "-c", fill(use.take, words))
        assert NAME in guest.call("seen")["inventory"]
        with pytest.raises(RefusedError, match=IN_USE) as refused:
            product.claim("early", NAME)
    finally:
        guest.run("sh", "-c", fill(use.give, words), check=False)
        guest.call("kill", watcher, int(signal.SIGCONT))
    tell(str(refused.value))


def words_of(guest: Guest, disk: str) -> dict[str, str]:
    """What the capital words of USES stand for."""
    other = guest.run("sh", "-c", f"basename /sys/bus/pci/devices/{SPARE}/nvme/nvme*/nvme*n1").strip()
    return {
        "DISK": f"/dev/{disk}",
        "OTHER": f"/dev/{other}",
        "SECTORS": guest.call("read", f"/sys/class/block/{disk}/size").strip(),
        "NUMBERS": guest.call("read", f"/sys/class/block/{disk}/dev").strip(),
        "NAME": disk,
    }


def fill(text: str, words: dict[str, str]) -> str:
    for word, value in words.items():
        text = text.replace(word, value)
    return text
