"""Hardware goes away, or cannot be read, during a walk: nothing breaks, nothing unsafe is offered."""

from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from common.hardware.archive import Archive
from common.hardware.explain import Facts
from common.hardware.explain_lookup import Lookup
from common.hardware.machine import Machine
from common.hardware.survey import survey
from common.hardware.tree import Tree, TreeError
from common.hardware.walk import walk
from common.inventory import Inventory
from services.publisher.slices import slices
from tests.machines.product import TAKEN, inventory
from tests.machines.recording import MACHINES, archives
from tests.machines.slice_rules import problems
from tests.machines.vanishing import Vanishing, device_folders

pytestmark = pytest.mark.skipif(
    not archives(), reason="no recorded machines: set LIKEN_MACHINES to their folder"
)

NAMES = ("laptop-two-gpus", "laptop-docked-wwan", "raspberry-pi-4", "server-vmd-fragment", "mainframe-s390x")
KEPT_FOLDERS = ("sys/devices/virtual/block",)  # without it the machine's own disks would be other disks

machines = st.sampled_from(NAMES)
quick = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@cache
def recorded(name: str) -> tuple[Archive, list[str]]:
    return device_folders(path_of(name))


@cache
def reads(name: str) -> int:
    """How many reads one undisturbed walk over a recording takes."""
    undisturbed = Vanishing(recorded(name)[0])
    look(undisturbed.tree())
    return undisturbed.reads


def path_of(name: str) -> Path:
    return MACHINES / f"{name}.tar.xz"


def look(tree: Tree) -> Inventory:
    return walk(tree, Machine(), "node", TAKEN)


def delivered(found: Inventory) -> set[str]:
    return {node.path for device in found.devices for node in device.nodes}


def folders_of(data: st.DataObject, name: str, at_most: int) -> list[str]:
    folders = recorded(name)[1]
    chosen = data.draw(st.lists(st.integers(0, len(folders) - 1), max_size=at_most, unique=True))
    return [folders[number] for number in chosen if not folders[number].startswith(KEPT_FOLDERS)]


def vanishing(data: st.DataObject, name: str) -> Vanishing:
    going = folders_of(data, name, 8)
    moment = st.integers(1, reads(name))
    moments = data.draw(st.lists(moment, min_size=len(going), max_size=len(going), unique=True))
    timetable = dict(zip(moments, going, strict=True))
    return Vanishing(recorded(name)[0], timetable, dangling=data.draw(st.booleans()))


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
    whole = inventory(path_of(name))
    extra = {device.name for device in found.devices} - {device.name for device in whole.devices}
    assert delivered(found) & {entry.node for entry in whole.withheld} == set()
    assert {name for name in extra if not name.startswith("usb-")} == set()


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
    whole = inventory(path_of(name))
    try:
        found = look(Vanishing(recorded(name)[0], broken=broken).tree())
    except TreeError:
        return  # a folder of the whole machine: told as an error, never as a machine without hardware
    assert delivered(found) & {entry.node for entry in whole.withheld} == set()
    assert problems(slices(found, "node").slices, "liken.sh", "node") == []


@quick
@given(machines, st.data())
def test_a_changing_machine_can_be_explained(name: str, data: st.DataObject) -> None:
    tree = vanishing(data, name).tree()
    answers = Lookup(Facts(tree, survey(tree, Machine()), look(tree))).everything()
    assert all(answer.rule and answer.why for answer in answers)
