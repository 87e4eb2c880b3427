"""Hardware without a driver, and the modules that would drive it."""

from pathlib import Path

import pytest

from common.hardware.modules import Candidate, kernel_modules, unclaimed
from common.inventory import Unclaimed
from tests.builders import MachineBuilder

RELEASE = "6.12.0"  # what MachineBuilder says in proc/sys/kernel/osrelease
CH340 = "usb:v1A86p7523d0264dcFFdsc00dp00icFFisc01ip02in00"
FUNCTION = "pci:v00008086d00009D31sv00001028sd0000081Dbc11sc80i00"


def modules_of(machine: MachineBuilder, aliases: str, dep: str = "", builtin: str = "") -> MachineBuilder:
    machine.write(
        f"lib/modules/{RELEASE}/modules.alias", "# Aliases extracted from modules themselves.\n" + aliases
    )
    machine.write(f"lib/modules/{RELEASE}/modules.dep", dep)
    machine.write(f"lib/modules/{RELEASE}/modules.builtin", builtin)
    return machine


def stick(modalias: str = CH340) -> Candidate:
    return Candidate("usb", "1-4:1.0", "QinHeng CH340", modalias)


def test_hardware_that_a_module_would_drive_is_unclaimed_and_names_the_module(tmp_path: Path) -> None:
    machine = modules_of(
        MachineBuilder(tmp_path),
        "alias usb:v1A86p7523d*dc*dsc*dp*ic*isc*ip*in* ch341\nalias usb:v1A86p5523d*dc*dsc*dp*ic* ch341\n",
        dep="kernel/drivers/usb/serial/ch341.ko.xz: kernel/drivers/usb/serial/usbserial.ko.xz\n",
    )
    assert unclaimed(machine.tree(), [stick()]) == (
        Unclaimed("usb", "1-4:1.0", "QinHeng CH340", CH340, modules=("ch341",), missing=()),
    )


def test_hardware_that_no_module_would_drive_is_not_listed(tmp_path: Path) -> None:
    machine = modules_of(MachineBuilder(tmp_path), "alias usb:v9999p7523d* other\nalias pci:v* one\n")
    assert unclaimed(machine.tree(), [stick()]) == ()


def test_a_module_that_is_not_on_this_machine_is_named_as_missing(tmp_path: Path) -> None:
    machine = modules_of(MachineBuilder(tmp_path), "alias usb:v1A86p* ch341\n", dep="kernel/other.ko:\n")
    (found,) = unclaimed(machine.tree(), [stick()])
    assert (found.modules, found.missing) == (("ch341",), ("ch341",))


def test_a_built_in_module_is_left_out(tmp_path: Path) -> None:
    machine = modules_of(
        MachineBuilder(tmp_path),
        f"alias {FUNCTION} intel-pch_thermal\nalias pci:v00008086d*sv*sd*bc11sc80i* second\n",
        builtin="kernel/drivers/thermal/intel/intel_pch_thermal.ko\n",
    )
    (found,) = unclaimed(machine.tree(), [Candidate("pci", "0000:00:14.2", "", FUNCTION)])
    assert found.modules == ("second",)


@pytest.mark.parametrize(
    ("alias", "modalias"),
    [
        ("usb:v1A86p7523d*in-one*", "usb:v1A86p7523d0001in_one"),
        ("usb:v1A86p7523d*in_one*", "usb:v1A86p7523d0001in-one"),
        ("usb:v0421p0508d[0-1]*", "usb:v0421p0508d1999"),
        ("usb:v0421p050?d*", "usb:v0421p0508d1999"),
        ("usb:v0421p0508d1999", "usb:v0421p0508d1999"),
        ("usb:*", "usb:v0421p0508d1999"),
    ],
)
def test_a_pattern_matches_as_kmod_matches_it(tmp_path: Path, alias: str, modalias: str) -> None:
    machine = modules_of(MachineBuilder(tmp_path), f"alias {alias} some-module\n")
    (found,) = unclaimed(machine.tree(), [stick(modalias)])
    assert found.modules == ("some_module",)


def test_a_range_keeps_its_dash(tmp_path: Path) -> None:
    machine = modules_of(MachineBuilder(tmp_path), "alias usb:v0421p0508d[0-1]* phone\n")
    assert unclaimed(machine.tree(), [stick("usb:v0421p0508d2000")]) == ()


def test_several_modules_are_sorted_and_named_once(tmp_path: Path) -> None:
    machine = modules_of(
        MachineBuilder(tmp_path), "alias usb:v1A86* zeta\nalias usb:* alpha\nalias usb:v1* zeta\n"
    )
    (found,) = unclaimed(machine.tree(), [stick()])
    assert found.modules == ("alpha", "zeta")


def test_a_tree_without_aliases_lists_everything_with_a_modalias(tmp_path: Path) -> None:
    tree = MachineBuilder(tmp_path).tree()
    candidates = [
        stick(),
        Candidate("pci", "0000:00:14.2", "", FUNCTION),
        Candidate("pci", "0000:00:15.0", "", ""),
    ]
    assert [(one.bus, one.address, one.modules) for one in unclaimed(tree, candidates)] == [
        ("pci", "0000:00:14.2", ()),
        ("usb", "1-4:1.0", ()),
    ]


def test_without_a_known_release_the_only_folder_counts(tmp_path: Path) -> None:
    machine = modules_of(MachineBuilder(tmp_path), "alias usb:v1A86* ch341\n")
    machine.path("proc/sys/kernel/osrelease").unlink()
    (found,) = unclaimed(machine.tree(), [stick()])
    machine.write("lib/modules/6.1.0/modules.alias", "")
    (unknown,) = unclaimed(machine.tree(), [stick()])
    assert (found.modules, unknown.modules) == (("ch341",), ())


def test_another_releases_modules_do_not_count(tmp_path: Path) -> None:
    machine = modules_of(MachineBuilder(tmp_path), "alias usb:v1A86* ch341\n")
    machine.write("proc/sys/kernel/osrelease", "7.0.0\n")
    assert kernel_modules(machine.tree()) is None


def test_lines_that_are_no_alias_are_skipped(tmp_path: Path) -> None:
    text = "alias usb:v1A86p7523d*\nnonsense\nalias of:N*T*Cfoo foo\nalias usb:v1A86* ch341 extra\n\xff\n"
    machine = modules_of(MachineBuilder(tmp_path), text)
    assert unclaimed(machine.tree(), [stick()]) == ()
