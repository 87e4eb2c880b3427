"""What the machine keeps for itself."""

import pytest

from common.hardware.held import RELEASABLE, held
from common.hardware.machine import Machine
from common.hardware.model import Node
from tests.builders import MachineBuilder
from tests.unit.hardware.ask import SPARE, kept, offered


def reason(path: str, kind: str = "misc", release: frozenset[str] = frozenset(), disk: bool = False) -> str:
    found = held(Node(f"/dev/{path}", kind, "sys/devices/x"), {"ttyS0"}, release, disk)
    return found[0] if found else ""


@pytest.mark.parametrize(
    ("path", "kind", "expected"),
    [
        ("ttyS0", "tty", "console"),
        ("ttyS1", "tty", ""),
        ("rtc0", "rtc", "rtc"),
        ("rtc1", "rtc", ""),
        ("tpm0", "tpm", "tpm"),
        ("tpmrm0", "tpmrm", "tpm"),
        ("tpm0", "misc", "tpm"),
        ("watchdog0", "watchdog", "watchdog"),
        ("watchdog", "misc", "watchdog"),
        ("mtd0ro", "mtd", "flash"),
        ("mtdblock0", "block", "flash"),
        ("nvram", "misc", "nvram"),
        ("ipmi0", "ipmi", "ipmi"),
        ("mei0", "mei", "mei"),
        ("usbmon1", "usbmon", "usbmon"),
        ("mmcblk0rpmb", "mmc_rpmb", "rpmb"),
        ("mmcblk0boot1", "block", "rpmb"),
        ("mmcblk0", "block", ""),
        ("ndctl0", "nd", "nvdimm"),
        ("cxl/mem0", "cxl", "nvdimm"),
        ("fwctl/fwctl0", "fwctl", "firmware"),
        ("bsg/fc_host4", "bsg", "hba"),
        ("vport1p1", "virtio-ports", "guest"),
        ("hidraw0", "hidraw", ""),
    ],
)
def test_nodes_are_held_by_name_and_by_kind(path: str, kind: str, expected: str) -> None:
    assert reason(path, kind) == expected


def test_a_bsg_node_beside_a_disk_belongs_to_the_disk() -> None:
    assert (reason("bsg/0:0:0:0", "bsg", disk=True), reason("bsg/0:0:0:0", "bsg")) == ("", "hba")


@pytest.mark.parametrize("path", ["ttyS0", "rtc0", "tpm0"])
def test_the_four_first_kinds_cannot_be_released(path: str) -> None:
    assert reason(path, release=frozenset({"console", "rtc", "tpm", "serio"})) != ""
    assert RELEASABLE.isdisjoint({"console", "rtc", "tpm", "serio"})


def test_a_device_that_only_owns_a_tpm_is_not_offered(machine: MachineBuilder) -> None:
    chips = [
        machine.board("platform", "MSFT0101:00", driver="tpm_crb"),
        machine.board("acpi", "MSFT0101:01", driver="tpm_crb"),
        machine.board("pnp", "00:09", driver="tpm_tis"),
    ]
    for number, (chip, kind) in enumerate(zip(chips, ("tpm", "tpm", "misc"), strict=True)):
        machine.node(chip, kind, f"tpm{number}")
    machine.node(chips[0], "tpmrm", "tpmrm0")
    assert offered(machine) == {}
    assert kept(machine) == {"tpm0": "tpm", "tpmrm0": "tpm", "tpm1": "tpm", "tpm2": "tpm"}


def test_every_console_is_held_and_the_other_ports_are_not(machine: MachineBuilder) -> None:
    machine.console("ttyAMA0", "tty1")
    for number in (0, 1):
        port = machine.board("amba", f"fe20{number}000.serial", driver="uart-pl011")
        machine.tty(port, f"ttyAMA{number}")
    assert offered(machine) == {"amba-fe201000-serial": ["ttyAMA1"]}
    assert kept(machine) == {"ttyAMA0": "console"}


def test_what_is_held_does_not_take_its_neighbours_along(machine: MachineBuilder) -> None:
    board = machine.pci("0000:00:1f.0", driver="lpc")
    machine.node(board, "watchdog", "watchdog0")
    machine.node(board, "gpio", "gpiochip0", folder="")
    assert offered(machine) == {"pci-0000-00-1f-0": ["gpiochip0"]}


def test_a_watchdog_below_the_management_engine_is_held_with_its_twin(machine: MachineBuilder) -> None:
    engine = machine.pci("0000:00:16.0", driver="mei_me")
    machine.node(engine, "mei", "mei0")
    client = machine.device(engine, "0000:00:16.0-05b79a6f", "mei", "iamt_wdt")
    machine.node(client, "watchdog", "watchdog0")
    machine.node(client, "misc", "watchdog")
    assert offered(machine) == {}
    assert kept(machine) == {"mei0": "mei", "watchdog": "watchdog", "watchdog0": "watchdog"}


def test_a_released_kind_is_offered(machine: MachineBuilder) -> None:
    machine.node(machine.board("platform", "wdt", driver="bcm2835-wdt"), "watchdog", "watchdog0")
    assert offered(machine) == {}
    assert offered(machine, Machine(release=frozenset({"watchdog"}))) == {"platform-wdt": ["watchdog0"]}


def test_boot_areas_never_come_with_a_built_in_disk(machine: MachineBuilder) -> None:
    card = machine.board("mmc", "mmc0:0001", driver="mmcblk", parent=f"{emmc_host(machine)}/mmc_host/mmc0")
    disk = machine.disk(card, "mmcblk0")
    machine.disk(disk, "mmcblk0boot0", folder="")
    machine.node(disk, "mmc_rpmb", "mmcblk0rpmb", folder="")
    assert offered(machine, SPARE) == {"platform-fe340000-emmc2": ["mmcblk0"]}
    assert kept(machine, SPARE) == {"mmcblk0boot0": "rpmb", "mmcblk0rpmb": "rpmb"}


def emmc_host(machine: MachineBuilder) -> str:
    return machine.board("platform", "fe340000.emmc2", driver="sdhci-iproc")
