"""Hardware goes away, or cannot be read, during a walk: nothing breaks, nothing unsafe is offered."""

import re
from functools import cache

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from common.hardware.archive import Archive
from common.hardware.explain import Answer, Facts
from common.hardware.explain_lookup import Lookup
from common.hardware.machine import Machine
from common.hardware.survey import survey
from common.hardware.tree import Tree, TreeError
from common.hardware.walk import walk
from common.inventory import Inventory
from services.publisher.slices import slices
from tests.machines.marks import needs_machines
from tests.machines.product import TAKEN
from tests.machines.recording import MACHINES
from tests.machines.slice_rules import problems
from tests.machines.vanishing import Vanishing, device_folders

pytestmark = needs_machines

USB_DISK = "desktop-usb-disk-boot1"
MOUNT = b"50 30 8:33 / /backup rw,relatime - ext4 /dev/sdc1 rw\n"  # its USB disk in port 1-4
NAMES = ("laptop-two-gpus", "laptop-docked-wwan", "raspberry-pi-4", "server-vmd-fragment", USB_DISK)
# What the machine's own disks are known by; the kernel removes a mounted partition only with its disk.
KEPT_FOLDERS = re.compile(r"sys/devices/virtual/block|.*/block/[^/]+/[^/]*1$")

# The optical drive of the docked laptop is free once the system's disk on the same controller is gone, and
# the rest of a USB disk once its block device is gone: nothing can be mounted from there any more.
FREED = {"/dev/sr0", "/dev/sg1", "/dev/bsg/1:0:0:0", "/dev/sg2", "/dev/bsg/7:0:0:0"}
# A controller with that drive alone; a network card that lost its interfaces first and keeps its clock.
LEFT_OVER = {"pci-0000-00-1f-2", "pci-0000-00-1f-6", "pci-0000-01-00-0"}

machines = st.sampled_from(NAMES)
# No shrinking: an example is a handful of folders, and a minute of it would hide what failed. Every run has
# the same examples: raise max_examples and drop derandomize to search further.
quick = settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=[HealthCheck.too_slow],
)


@cache
def recorded(name: str) -> tuple[Archive, list[str]]:
    archive, folders = device_folders(MACHINES / f"{name}.tar.xz")
    if name == USB_DISK:
        archive.folders["proc/1"].files["mountinfo"] += MOUNT
    return archive, folders


@cache
def undisturbed(name: str) -> Inventory:
    return look(Vanishing(recorded(name)[0]).tree())


@cache
def reads(name: str) -> int:
    """How many reads one undisturbed walk over a recording takes."""
    source = Vanishing(recorded(name)[0])
    look(source.tree())
    return source.reads


def look(tree: Tree) -> Inventory:
    return walk(tree, Machine(), "node", TAKEN)


def delivered(found: Inventory) -> set[str]:
    return {node.path for device in found.devices for node in device.nodes}


def folders_of(data: st.DataObject, name: str, at_most: int) -> list[str]:
    folders = recorded(name)[1]
    chosen = data.draw(st.lists(st.integers(0, len(folders) - 1), max_size=at_most, unique=True))
    return [folders[number] for number in chosen if not KEPT_FOLDERS.match(folders[number])]


def vanishing(data: st.DataObject, name: str) -> Vanishing:
    going = folders_of(data, name, 8)
    moment = st.integers(1, reads(name))
    moments = data.draw(st.lists(moment, min_size=len(going), max_size=len(going), unique=True))
    timetable = dict(zip(moments, going, strict=True))
    return Vanishing(recorded(name)[0], timetable, dangling=data.draw(st.booleans()))


def test_the_mounted_usb_disk_of_these_tests_is_withheld() -> None:
    assert {"/dev/sdc", "/dev/sdc1"} <= {entry.node for entry in undisturbed(USB_DISK).withheld}


@quick
@given(machines, st.data())
def test_hardware_that_vanishes_during_a_walk_leaves_a_valid_inventory(
    name: str, data: st.DataObject
) -> None:
    found = look(vanishing(data, name).tree())
    assert problems(slices(found, "node").slices, "liken.sh", "node") == []
    assert all(device.nodes for device in found.devices)


@quick
@given(machines, st.data())
def test_hardware_that_vanishes_during_a_walk_offers_nothing_new(name: str, data: st.DataObject) -> None:
    found = look(vanishing(data, name).tree())
    whole = undisturbed(name)
    extra = {device.name for device in found.devices} - {device.name for device in whole.devices}
    assert (delivered(found) - FREED) & {entry.node for entry in whole.withheld} == set()
    assert {name for name in extra - LEFT_OVER if not name.startswith("usb-")} == set()


@quick
@given(machines, st.data())
def test_after_a_change_every_walk_finds_the_same(name: str, data: st.DataObject) -> None:
    changed = vanishing(data, name)
    look(changed.tree())
    changed.settle()
    assert look(changed.tree()) == look(changed.tree())


@quick
@given(machines, st.data())
def test_what_cannot_be_read_is_never_offered_for_that(name: str, data: st.DataObject) -> None:
    broken = frozenset(folders_of(data, name, 6))
    whole = undisturbed(name)
    try:
        found = look(Vanishing(recorded(name)[0], broken=broken).tree())
    except TreeError:
        return  # a folder of the whole machine: told as an error, never as a machine without hardware
    assert delivered(found) & {entry.node for entry in whole.withheld} == set()
    assert problems(slices(found, "node").slices, "liken.sh", "node") == []


@quick
@given(machines, st.data())
def test_a_changing_machine_can_be_explained(name: str, data: st.DataObject) -> None:
    answers = explained(vanishing(data, name).tree())
    assert all(answer.rule and answer.why for answer in answers)


@quick
@given(machines, st.data())
def test_a_machine_that_cannot_be_read_in_places_can_be_explained(name: str, data: st.DataObject) -> None:
    broken = frozenset(folders_of(data, name, 6))
    tree = Vanishing(recorded(name)[0], broken=broken).tree()
    try:
        look(tree)
    except TreeError:
        return  # nothing is known of such a machine, so nothing can be explained
    assert all(answer.rule and answer.why for answer in explained(tree))


def explained(tree: Tree) -> list[Answer]:
    return Lookup(Facts(tree, survey(tree, Machine()), look(tree))).everything()
