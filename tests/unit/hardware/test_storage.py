"""Which disks the machine depends on, and which it gives away."""

import pytest

from common.hardware.machine import Machine
from common.hardware.storage import storage_facts
from tests.builders import MachineBuilder
from tests.unit.hardware.ask import NOTHING, SPARE, details, inventory, kept, offered


def internal(machine: MachineBuilder, *partitions: str) -> str:
    return machine.scsi_disk(
        machine.pci("0000:00:17.0", driver="ahci", pci_class="010601"), "sda", partitions
    )


def stick(machine: MachineBuilder, *partitions: str) -> str:
    part = machine.interface(machine.usb("1-4", devnum=2), 0, driver="usb-storage", usb_class="08")
    return machine.scsi_disk(part, "sdb", partitions, host=6)


def is_offered(machine: MachineBuilder, declared: Machine = SPARE) -> bool:
    return "pci-0000-00-17-0" in offered(machine, declared)


def test_an_internal_disk_is_withheld_until_it_is_declared_spare(machine: MachineBuilder) -> None:
    internal(machine, "sda1")
    assert offered(machine) == {}
    assert details(machine) == {
        "bsg/0:0:0:0": "goes with the disk: not declared spare",
        "sda": "not declared spare",
        "sda1": "not declared spare",
        "sg0": "goes with the disk: not declared spare",
    }
    assert inventory(machine).facts.storage == "observed"


def test_declared_roles_offer_every_other_disk(machine: MachineBuilder) -> None:
    internal(machine, "sda1")
    assert offered(machine, SPARE) == {"pci-0000-00-17-0": ["bsg/0:0:0:0", "sda", "sda1", "sg0"]}
    assert inventory(machine, SPARE).facts.storage == "roles"


@pytest.mark.parametrize("role", ["nvme0", "nvme0n1", "nvme0n1p3", "ng0n1"])
def test_a_role_may_name_any_node_of_an_nvme_controller(machine: MachineBuilder, role: str) -> None:
    machine.nvme(machine.pci("0000:04:00.0", driver="nvme"), 0)
    machine.nvme(machine.pci("0000:05:00.0", driver="nvme"), 1)
    assert list(offered(machine, Machine(roles=frozenset({role})))) == ["pci-0000-05-00-0"]


@pytest.mark.parametrize("role", ["1-4", "1-4:1.0"])
def test_a_role_may_name_a_usb_device(machine: MachineBuilder, role: str) -> None:
    stick(machine)
    assert offered(machine, Machine(roles=frozenset({role}))) == {}


@pytest.mark.parametrize("role", ["sda", "sda1", "sda7", "sg0", "0000:00:17.0", "pci-0000-00-17-0"])
def test_a_role_names_a_disk_a_partition_or_an_owner(machine: MachineBuilder, role: str) -> None:
    internal(machine, "sda1")
    assert offered(machine, Machine(roles=frozenset({role}))) == {}
    assert set(kept(machine, Machine(roles=frozenset({role}))).values()) == {"storage"}


@pytest.mark.parametrize("role", ["0000:0a:1f.2", "0000:0A:1F.2"])
def test_an_address_in_a_role_may_have_capitals(machine: MachineBuilder, role: str) -> None:
    machine.scsi_disk(machine.pci("0000:0a:1f.2", driver="ahci"), "sda")
    assert offered(machine, Machine(roles=frozenset({role}))) == {}


def test_a_disk_on_usb_is_offered_when_not_in_use(machine: MachineBuilder) -> None:
    disk = stick(machine, "sdb1")
    assert offered(machine) == {"usb-1-4-1-0": ["bsg/6:0:0:0", "sdb", "sdb1", "sg6", "bus/usb/001/002"]}
    machine.mount(f"{disk}/sdb1", "/media")
    assert offered(machine) == {}
    assert details(machine)["sdb1"] == "sdb1 is mounted at /media"


@pytest.mark.parametrize(("kind", "expected"), [("SD", True), ("MMC", False)])
def test_an_sd_card_is_offered_and_built_in_flash_is_not(
    machine: MachineBuilder, kind: str, expected: bool
) -> None:
    host = machine.pci("0000:00:1b.0", driver="sdhci-pci")
    card = machine.device(f"{host}/mmc_host/mmc0", "mmc0:0001", "mmc", "mmcblk", uevent={"MMC_TYPE": kind})
    machine.disk(card, "mmcblk1", ["mmcblk1p1"])
    assert ("pci-0000-00-1b-0" in offered(machine)) is expected


def test_an_optical_drive_is_offered(machine: MachineBuilder) -> None:
    machine.scsi_disk(machine.pci("0000:00:17.0", driver="ahci"), "sr0")
    assert list(offered(machine)) == ["pci-0000-00-17-0"]


def test_without_a_mount_table_no_disk_is_offered_and_others_are(machine: MachineBuilder) -> None:
    internal(machine)
    stick(machine)
    machine.node(machine.pci("0000:01:00.0", driver="gasket"), "apex", "apex_0")
    machine.path("proc/1/mountinfo").unlink()
    for declared in (NOTHING, SPARE):
        assert list(offered(machine, declared)) == ["pci-0000-01-00-0"]
        found = inventory(machine, declared).facts
        assert (found.storage, bool(found.reason)) == ("unknown", True)


@pytest.mark.parametrize("content", ["", "\n", "not a mount table\n"])
def test_a_mount_table_that_says_nothing_is_not_known(machine: MachineBuilder, content: str) -> None:
    machine.write("proc/1/mountinfo", content)
    assert storage_facts(machine.tree(), NOTHING).state == "unknown"


def test_mount_points_with_blanks_are_told_as_they_are(machine: MachineBuilder) -> None:
    machine.mount(internal(machine), r"/my\040disk")
    assert details(machine)["sda"] == "sda is mounted at /my disk"


def test_a_mounted_partition_keeps_the_whole_controller(machine: MachineBuilder) -> None:
    machine.mount(f"{internal(machine, 'sda1')}/sda1", "/")
    other = machine.scsi_disk("sys/devices/pci0000:00/0000:00:17.0", "sdc", host=2)
    assert other.endswith("sdc")
    assert not is_offered(machine)
    assert set(kept(machine, SPARE)) == {
        *("bsg/0:0:0:0", "bsg/2:0:0:0"),
        *("sda", "sda1", "sdc", "sg0", "sg2"),
    }


@pytest.mark.parametrize("declared", [Machine(), SPARE])
def test_the_disk_of_a_mounted_partition_is_told_to_be_in_use(
    machine: MachineBuilder, declared: Machine
) -> None:
    machine.mount(f"{internal(machine, 'sda1')}/sda1", "/")
    assert details(machine, declared)["sda"] == "sda1 is mounted at /"


def test_swap_is_in_use(machine: MachineBuilder) -> None:
    internal(machine, "sda2")
    machine.swap("/dev/sda2")
    assert not is_offered(machine)
    assert details(machine, SPARE)["sda2"] == "sda2 is used as swap"


def test_swap_whose_node_somebody_deleted_is_in_use(machine: MachineBuilder) -> None:
    internal(machine, "sda2")
    machine.swap("/dev/sda2\\040(deleted)")  # as the kernel prints it
    assert details(machine, SPARE)["sda2"] == "sda2 is used as swap"


def test_a_swap_file_holds_no_disk_of_its_own(machine: MachineBuilder) -> None:
    internal(machine)
    machine.swap("/swapfile", kind="file")
    assert is_offered(machine)


def test_swap_on_a_mapped_disk_holds_what_lies_below(machine: MachineBuilder) -> None:
    machine.hold(internal(machine), "dm-0", name="vg-swap")
    machine.swap("/dev/mapper/vg-swap")
    assert not is_offered(machine)
    assert details(machine, SPARE)["sda"] == "sda is part of dm-0, which is used as swap"


def test_swap_that_leads_to_no_disk_makes_all_unknown(machine: MachineBuilder) -> None:
    internal(machine)
    machine.swap("/dev/mapper/gone")
    assert not is_offered(machine)
    assert storage_facts(machine.tree(), SPARE).state == "unknown"


@pytest.mark.parametrize("holder", ["dm-0", "md127", "bcache0", "drbd0"])
def test_a_disk_with_any_holder_is_in_use(machine: MachineBuilder, holder: str) -> None:
    disk = internal(machine, "sda1")
    machine.hold(f"{disk}/sda1", holder)
    assert not is_offered(machine)


def test_a_holder_of_a_holder_still_holds(machine: MachineBuilder) -> None:
    raid = machine.hold(internal(machine), "md0")
    volume = machine.hold(raid, "dm-0")
    machine.mount(volume, "/srv")
    assert not is_offered(machine)


def test_members_are_known_by_the_stack_when_the_disk_shows_no_holder(machine: MachineBuilder) -> None:
    disk = internal(machine)
    machine.hold(disk, "md0")
    machine.path(f"{disk}/holders/md0").unlink()
    assert not is_offered(machine)


def test_a_stack_in_use_whose_members_cannot_be_seen_may_stand_on_any_disk(machine: MachineBuilder) -> None:
    internal(machine)
    stick(machine)
    raid = machine.disk("sys/devices/virtual", "md0", number="9:0")
    machine.mount(raid, "/")
    assert offered(machine, SPARE) == {}
    assert "cannot be seen" in details(machine, SPARE)["sda"]


@pytest.mark.parametrize(
    ("entry", "target"),
    [("btrfs/6d1f/devices/sda", "sys/block/sda"), ("bcachefs/6d1f/dev-0/block", "sys/block/sda")],
)
def test_a_member_of_a_file_system_on_many_disks_is_in_use(
    machine: MachineBuilder, entry: str, target: str
) -> None:
    internal(machine)
    machine.link(f"sys/fs/{entry}", target)
    assert not is_offered(machine)


def test_a_disk_that_backs_a_loop_device_is_in_use(machine: MachineBuilder) -> None:
    internal(machine, "sda1")
    loop = machine.disk("sys/devices/virtual", "loop0", number="7:0")
    machine.write(f"{loop}/loop/backing_file", "/dev/sda1\n")
    assert details(machine, SPARE)["sda1"] == "sda1 backs loop0"


def test_a_loop_device_on_a_file_holds_nothing(machine: MachineBuilder) -> None:
    internal(machine)
    loop = machine.disk("sys/devices/virtual", "loop0", number="7:0")
    machine.write(f"{loop}/loop/backing_file", "/var/lib/snapd/core.snap\n")
    assert is_offered(machine)


@pytest.mark.parametrize("seen", ["kstat", "mount"])
def test_an_imported_zfs_pool_may_use_every_disk(machine: MachineBuilder, seen: str) -> None:
    internal(machine)
    stick(machine)
    if seen == "kstat":
        machine.write("proc/spl/kstat/zfs/tank/state", "ONLINE\n")
    else:
        machine.mount("0:44", "/tank", source="tank/home", kind="zfs")
    assert offered(machine, SPARE) == {}
    assert "ZFS pool tank" in details(machine, SPARE)["sdb"]


def test_zfs_without_a_pool_uses_no_disk(machine: MachineBuilder) -> None:
    internal(machine)
    machine.write("proc/spl/kstat/zfs/arcstats", "x\n")
    assert is_offered(machine)


def test_mounts_of_the_same_name_elsewhere_do_not_count(machine: MachineBuilder) -> None:
    internal(machine)
    machine.mount("0:60", "/mnt", source="/dev/sda")
    assert is_offered(machine)


def test_an_nvme_controller_goes_with_its_namespace(machine: MachineBuilder) -> None:
    controller = machine.nvme(machine.pci("0000:04:00.0", driver="nvme"), 0, partitions=1)
    machine.mount(f"{controller}/nvme0n1/nvme0n1p1", "/")
    assert offered(machine, SPARE) == {}
    assert sorted(kept(machine, SPARE)) == ["ng0n1", "nvme0", "nvme0n1", "nvme0n1p1"]


def test_an_nvme_controller_is_never_offered_without_a_namespace(machine: MachineBuilder) -> None:
    machine.nvme(machine.pci("0000:04:00.0", driver="nvme"), 0, namespace=False)
    assert offered(machine) == {}
    assert offered(machine, SPARE) == {}


@pytest.mark.parametrize("declared", [NOTHING, SPARE])
def test_a_disk_whose_driver_was_unbound_is_not_offered_through_its_sg_node(
    machine: MachineBuilder, declared: Machine
) -> None:
    machine.remove(internal(machine))
    assert offered(machine, declared) == {}
    assert kept(machine, declared) == {"bsg/0:0:0:0": "hba", "sg0": "storage"}


def test_a_disk_whose_driver_was_unbound_is_not_offered_beside_an_optical_drive(
    machine: MachineBuilder,
) -> None:
    disk = internal(machine)
    controller = "sys/devices/pci0000:00/0000:00:17.0"
    machine.scsi_disk(controller, "sr0", host=1)
    machine.remove(f"{disk.rpartition('/block/')[0]}/scsi_generic/sg0")
    machine.remove(disk)
    assert offered(machine) == {}
    assert kept(machine)["bsg/0:0:0:0"] == "storage"


def test_an_enclosure_has_no_disk_behind_its_sg_node(machine: MachineBuilder) -> None:
    controller = machine.pci("0000:05:00.0", driver="mpt3sas")
    target = machine.device(
        f"{controller}/host9/target9:0:0", "9:0:0:0", "scsi", "ses", uevent={"MODALIAS": "scsi:t-0x0d"}
    )
    machine.node(target, "scsi_generic", "sg7")
    assert offered(machine) == {"pci-0000-05-00-0": ["sg7"]}


def test_a_usb_disk_whose_driver_was_unbound_keeps_its_other_nodes(machine: MachineBuilder) -> None:
    machine.remove(stick(machine))
    (nodes,) = offered(machine).values()
    assert [node for node in nodes if node.startswith("sg")]


def test_a_graphics_card_stays_when_disks_are_unknown(machine: MachineBuilder) -> None:
    machine.drm(machine.pci("0000:00:02.0", driver="i915"), card=0, render=128)
    machine.path("proc/1/mountinfo").unlink()
    assert sorted(offered(machine)) == ["pci-0000-00-02-0", "pci-0000-00-02-0-display"]


def test_a_disk_without_a_readable_number_is_not_offered(machine: MachineBuilder) -> None:
    disk = stick(machine)
    machine.write(f"{disk}/dev", "")
    assert offered(machine) == {}


def reason(machine: MachineBuilder, *roles: str) -> str:
    return inventory(machine, Machine(roles=frozenset(roles))).facts.reason


def test_a_role_that_no_disk_goes_by_is_told_and_is_no_error(machine: MachineBuilder) -> None:
    internal(machine, "sda1")
    machine.tty(machine.interface(machine.usb("1-2"), 0, driver="ftdi_sio"), "ttyUSB0")
    told = reason(machine, "sda", "sdq", "1-2", "ttyUSB0")
    assert told.startswith("spec.storage.roles names 1-2, sdq, ttyUSB0, and no disk")
    assert offered(machine, Machine(roles=frozenset({"sdq"})))["pci-0000-00-17-0"]
    assert "sdf, sdg and 2 more, and" in reason(machine, *(f"sd{letter}" for letter in "cdefghi"))


@pytest.mark.parametrize("role", ["sda", "/dev/sda1", "SDA7", "sg0", "0000:00:17.0", "pci-0000-00-17-0"])
def test_a_role_that_a_disk_goes_by_is_not_told(machine: MachineBuilder, role: str) -> None:
    internal(machine, "sda1")
    assert reason(machine, role.removeprefix("/dev/")) == ""


def test_a_role_of_a_disk_that_comes_later_is_told_until_it_is_there(machine: MachineBuilder) -> None:
    internal(machine)
    assert "names sdb" in reason(machine, "sdb")
    stick(machine)
    assert reason(machine, "sdb") == ""


def test_nothing_is_told_of_roles_while_no_disk_is_known(machine: MachineBuilder) -> None:
    machine.path("proc/1/mountinfo").unlink()
    assert "mountinfo" in reason(machine, "sdq")


@pytest.mark.parametrize("role", ["nvme7n1", "nvme7n1p2", "NVME7N1"])
def test_a_role_of_a_namespace_of_no_known_controller_keeps_every_controller_back(
    machine: MachineBuilder, role: str
) -> None:
    machine.nvme(machine.pci("0000:01:00.0", driver="nvme"), 0)
    home = machine.device("sys/devices/virtual/nvme-subsystem", "nvme-subsys7", "nvme-subsystem")
    machine.disk(home, "nvme7n1", number="259:7", folder="")
    assert (offered(machine, Machine(roles=frozenset({role}))), reason(machine, role)) == ({}, "")


def test_a_role_of_a_namespace_with_two_paths_is_not_told(machine: MachineBuilder) -> None:
    home = machine.device("sys/devices/virtual/nvme-subsystem", "nvme-subsys3", "nvme-subsystem")
    machine.disk(home, "nvme3n1", number="259:3", folder="")
    for controller in (5, 6):
        place = machine.nvme(
            machine.pci(f"0000:0{controller}:00.0", driver="nvme"), controller, namespace=False
        )
        machine.device(place, f"nvme3c{controller}n1", "block")
    assert (reason(machine, "nvme3n1"), reason(machine, "nvme4n1") != "") == ("", True)
