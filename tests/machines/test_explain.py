"""Every piece of hardware and every node of every recorded machine gets an answer that says why."""

from functools import cache
from pathlib import Path

import pytest

from common.errors import RequestError
from common.hardware.explain import Answer, Facts
from common.hardware.explain_lookup import Lookup
from common.hardware.machine import Machine
from common.hardware.names import device_name
from common.hardware.survey import survey
from common.hardware.tree import Tree
from common.hardware.walk import walk
from tests.machines.marks import needs_machines
from tests.machines.product import TAKEN, inventory, opened
from tests.machines.recording import MACHINES, Recording, archives, dumps, load, machine_name

RECORDINGS = [pytest.param(path, id=machine_name(path)) for path in archives() + dumps()]
pytestmark = pytest.mark.skipif(
    not RECORDINGS, reason="no recorded machines: set LIKEN_MACHINES to their folder"
)


@cache
def lookup(archive: Path) -> Lookup:
    """Answers for a recorded machine; the tree of an archive stays readable."""
    with opened(archive) as tree:
        return made(tree)


@cache
def everything(path: Path) -> dict[str, Answer]:
    with opened(path) as tree:
        return {answer.subject: answer for answer in made(tree).everything()}


def made(tree: Tree) -> Lookup:
    return Lookup(Facts(tree, survey(tree, Machine()), walk(tree, Machine(), "node", TAKEN)))


def on(machine: str, what: str) -> Answer:
    return lookup(MACHINES / f"{machine}.tar.xz").find(what)[0]


def node_subjects(recording: Recording) -> set[str]:
    """Every node that dev/char and dev/block show: its path, or its number where the kernel names none.

    A usbfs node without a name is left out: its path follows from the numbers of its USB device.
    """
    found = set()
    for index in ("char", "block"):
        for number in recording.names(f"sys/dev/{index}"):
            place = recording.resolve(f"sys/dev/{index}/{number}")
            name = recording.uevent(place).get("DEVNAME")
            if name or recording.leaf(f"{place}/subsystem") != "usb":
                found.add(f"/dev/{name}" if name else f"{index} {number}")
    return found


@pytest.mark.parametrize("path", RECORDINGS)
def test_every_node_that_sys_shows_gets_an_answer(path: Path) -> None:
    answers = everything(path)
    usbfs = {node.path for device in inventory(path).devices for node in device.nodes if node.kind == "usb"}
    assert (node_subjects(load(path)) | usbfs) - answers.keys() == set()


@pytest.mark.parametrize("path", RECORDINGS)
def test_every_function_and_every_usb_device_and_interface_gets_an_answer(path: Path) -> None:
    recording = load(path)
    explained = {answer.hardware for answer in everything(path).values()}
    listed = {f"pci {name}" for name in recording.names("sys/bus/pci/devices")}
    for name in recording.names("sys/bus/usb/devices"):
        device, colon, _ = name.partition(":")
        if colon and not device.endswith("-0"):  # 1-0:1.0 is the root hub's own interface
            listed |= {f"usb {device}", f"usb {name}"}
    assert listed - explained == set()


@pytest.mark.parametrize("path", RECORDINGS)
def test_the_name_of_a_device_that_is_not_published_tells_why(path: Path) -> None:
    with opened(path) as tree:
        found = made(tree)
        published = {device.name for device in found.facts.inventory.devices}
        for bus, address in found.facts.findings:
            name = device_name(bus, address)
            answers = found.unpublished(name)
            assert f"{bus} {address}" in [answer.hardware for answer in answers]
            assert name in published or answers[0].why.startswith(f"{name} is not published: {address} ")
        assert found.unpublished("usb-9-9-1-0") == []


@pytest.mark.parametrize("path", RECORDINGS)
def test_every_answer_is_a_sentence_about_its_subject_with_a_rule(path: Path) -> None:
    for answer in everything(path).values():
        assert answer.why.startswith((f"{answer.subject} ", f"{answer.subject}:")), answer
        assert answer.rule
        assert answer.why.isprintable()
        assert "{" not in answer.why, answer


@pytest.mark.parametrize("path", RECORDINGS)
def test_no_node_is_left_with_the_answer_of_last_resort(path: Path) -> None:
    assert [answer.why for answer in everything(path).values() if answer.rule == "border"] == []


@pytest.mark.parametrize("path", RECORDINGS)
def test_the_answers_say_what_the_inventory_says(path: Path) -> None:
    answers = everything(path)
    for device in inventory(path).devices:
        for node in device.nodes:
            if not node.type and node.path in answers:
                assert (answers[node.path].state, device.name in answers[node.path].devices) == (
                    "published",
                    True,
                )
    for entry in inventory(path).withheld:
        assert (answers[entry.node].state, answers[entry.node].rule) == ("withheld", entry.reason)
    unclaimed = {f"{entry.bus} {entry.address}" for entry in inventory(path).unclaimed}
    said = {answer.hardware for answer in answers.values() if answer.state == "unclaimed"}
    # the inventory lists what a module would drive; only where no module is known are they the same
    known = any(name.endswith("/modules.alias") for name in load(path).files)
    assert said >= unclaimed if known else said == unclaimed


@pytest.mark.parametrize("path", RECORDINGS[: len(archives())])
def test_asking_for_one_thing_gives_the_answer_that_everything_gives(path: Path) -> None:
    asked = lookup(path)
    for answer in asked.nodes.answers()[::7]:
        assert asked.find(answer.subject) == [answer]
    for device in inventory(path).devices:
        assert asked.find(device.name)[0].devices == (device.name,)


@needs_machines
def test_a_console_is_explained_as_the_kernels() -> None:
    assert on("vm-openstack", "/dev/ttyS0").why.startswith("/dev/ttyS0 is the kernel's console")
    assert on("raspberry-pi-4", "fe201000.serial").rule == "console"


@needs_machines
def test_a_virtual_console_is_console_and_virtual() -> None:
    answer = on("raspberry-pi-4", "/dev/tty1")
    assert answer.rule == "console"
    assert "kernel's console" in answer.why
    assert "virtual" in answer.why


@needs_machines
def test_an_undeclared_disk_shows_the_lines_for_the_machine_file() -> None:
    answer = on("laptop-two-gpus", "0000:00:17.0")
    assert answer.why.startswith("0000:00:17.0 carries sda, an internal disk that is not declared spare: ")
    assert answer.advice[-3:] == ("spec:", "  storage:", "    roles: [nvme0n1]")


@needs_machines
def test_a_disk_in_use_says_what_uses_it() -> None:
    assert on("laptop-two-gpus", "/dev/nvme0").why.endswith(
        "which this machine uses: nvme0n1p1 is mounted at /"
    )


@needs_machines
def test_unknown_facts_say_why_they_are_unknown() -> None:
    answer = on("workstation-four-gpus-no-facts", "/dev/sdb")
    assert "which disks this machine needs is unknown" in answer.why
    assert "mountinfo" in answer.why


@needs_machines
def test_a_device_without_driver_publishes_whole() -> None:
    assert on("laptop-two-gpus", "1-9").why.startswith("1-9 has no driver; it publishes whole as usb-1-9")


@needs_machines
def test_a_usb_device_names_the_devices_of_its_interfaces() -> None:
    answers = lookup(MACHINES / "laptop-two-gpus.tar.xz").find("1-5")
    assert [answer.subject for answer in answers] == ["1-5", "1-5:1.0", "1-5:1.1", "1-5:1.2", "1-5:1.3"]
    assert answers[0].devices == ("usb-1-5-1-0", "usb-1-5-1-2")


@needs_machines
def test_a_graphics_card_names_its_parts() -> None:
    answer = on("laptop-two-gpus", "0000:00:02.0")
    assert answer.rule == "split"
    assert answer.devices == (
        "pci-0000-00-02-0",
        "pci-0000-00-02-0-display",
        "pci-0000-00-02-0-drm-dp-aux-dev",
        "pci-0000-00-02-0-i2c-dev",
    )


@needs_machines
@pytest.mark.parametrize(
    ("machine", "what", "rule"),
    [
        ("laptop-two-gpus", "/dev/fb0", "graphics"),
        ("laptop-two-gpus", "/dev/ttyS5", "phantom"),
        ("laptop-two-gpus", "/dev/kfd", "virtual"),
        ("laptop-two-gpus", "1-6", "interfaces-empty"),
        ("laptop-two-gpus", "1-7:1.1", "companion-radio"),
        ("laptop-two-gpus", "0000:02:00.0", "network"),
        ("laptop-two-gpus", "0000:00:1c.0", "plumbing"),
        ("laptop-two-gpus", "/dev/bus/usb/001/001", "plumbing-hub"),
        ("desktop-usb-disk-boot1", "/dev/dri/controlD64", "control"),
        ("desktop-coral-pcie", "/dev/ptp0", "network"),
        ("server-power8", "/dev/bus/usb/002/003", "unconfigured"),
        ("server-power8", "/dev/bsg/fc_host4", "hba"),
        ("server-dgx-b200", "/dev/ipmi0", "ipmi"),
        ("server-dgx-b200", "0000:1b:00.0", "undriven"),
        ("gateway-apollo-lake-emmc", "/dev/mmcblk0rpmb", "rpmb"),
        ("laptop-docked-wwan", "/dev/watchdog0", "watchdog"),
        ("laptop-t60p-full-sysfs-2.6.27", "char 4:64", "nameless"),
        ("raspberry-pi-4", "1-1", "plumbing-hub"),
    ],
)
def test_what_is_ignored_or_kept_names_its_rule(machine: str, what: str, rule: str) -> None:
    assert on(machine, what).rule == rule


@needs_machines
def test_a_part_of_hardware_leads_to_the_hardware() -> None:
    assert on("laptop-two-gpus", "0018:044E:120A.0002").devices == ("pci-0000-00-15-0",)
    assert on("laptop-two-gpus", "/sys/class/drm/card1").hardware == "pci 0000:01:00.0"


@needs_machines
def test_what_is_not_there_is_refused_with_a_hint() -> None:
    with pytest.raises(RequestError, match="did you mean pci-0000-01-00-0 "):
        on("laptop-two-gpus", "pci-0000-01-00-1")
    with pytest.raises(RequestError, match="liken devices"):
        on("laptop-two-gpus", "zigbee")
