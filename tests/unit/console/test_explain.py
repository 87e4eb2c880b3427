"""`liken explain` and `liken unclaimed` as they are typed."""

import json
from pathlib import Path

import pytest
import yaml

from common.claims import Record, Result, Store
from services.console.__main__ import run
from tests.builders import BOOT_ID, MachineBuilder

CH340 = "usb:v1A86p7523d0264dcFFdsc00dp00icFFisc01ip02in00"
UID = "0b1f6a4e-54a3-4c1f-9d5e-2f6a3b1c9d00"


@pytest.fixture
def machine(tmp_path: Path) -> MachineBuilder:
    """A machine with a keyboard, a spare internal disk, and a serial adapter without driver."""
    machine = MachineBuilder(tmp_path / "machine")
    keyboard = machine.interface(machine.usb("1-2", name="[/red]\x1b[31mKeys"), 0, "usbhid", "03")
    machine.hidraw(keyboard, "hidraw0")
    machine.scsi_disk(machine.pci("0000:00:17.0", "ahci", "010601"), "sda")
    adapter = machine.interface(machine.usb("1-4"), 0)
    machine.write(f"{adapter}/modalias", CH340)
    machine.write("lib/modules/6.12.0/modules.alias", "alias usb:v1A86* ch341\nalias usb:v1A8* gone\n")
    machine.write("lib/modules/6.12.0/modules.dep", "kernel/ch341.ko.xz:\n")
    return machine


@pytest.fixture
def command(machine: MachineBuilder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """This machine is the built one; claims lie below the returned folder."""
    monkeypatch.setenv("LIKEN_ROOT", str(machine.root))
    monkeypatch.setenv("LIKEN_KUBELET", str(tmp_path / "kubelet"))
    monkeypatch.setenv("LIKEN_CDI", str(tmp_path / "cdi"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "kubelet"


def claimed(kubelet: Path, *devices: tuple[str, str]) -> None:
    results = tuple(Result("r", "n1", name, "usb", address, kinds=("hidraw",)) for name, address in devices)
    Store(kubelet / "plugins/liken.sh", BOOT_ID).write(Record(1, "home", "keys", UID, results))


def test_a_node_is_explained_in_words(command: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", "/dev/sda"]) == 0
    text = capsys.readouterr().out
    assert "carries sda, an internal disk that is not declared spare: " in text
    assert "\n     spec:\n       storage:\n         roles: [NAME]\n" in text


def test_a_device_that_is_not_published_is_explained_by_the_name_it_would_have(
    command: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["explain", "pci-0000-00-17-0"]) == 0
    assert capsys.readouterr().out.startswith("pci-0000-00-17-0 is not published: 0000:00:17.0 carries sda, ")


def test_nothing_is_explained_without_an_escape_sequence_or_markup(
    command: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["explain"]) == 0
    assert run(["explain", "1-2"]) == 0
    text = capsys.readouterr().out
    assert "\x1b" not in text
    assert "[/red]" in text


def test_an_unknown_word_is_refused_in_one_line(command: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", "zigbee\x1b[2J"]) == 1
    written = capsys.readouterr()
    assert (written.out, written.err.count("\n")) == ("", 1)
    assert "\x1b" not in written.err


def test_answers_are_json_and_yaml_for_programs(command: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", "1-4", "-o", "json"]) == 0
    (device, interface) = json.loads(capsys.readouterr().out)
    assert (device["rule"], device["devices"]) == ("whole", ["usb-1-4"])
    assert interface["advice"][0] == "the module ch341 would drive it: modprobe ch341"
    assert run(["explain", "1-4", "-o", "yaml"]) == 0
    assert yaml.safe_load(capsys.readouterr().out)[0]["subject"] == "1-4"


def test_a_claim_is_explained_by_the_state_of_its_devices(
    command: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    claimed(command, ("usb-1-2-1-0", "1-2:1.0"), ("usb-1-9-1-0", "1-9:1.0"))
    for name in ("keys", "home/keys", UID):
        assert run(["explain", name, "-o", "json"]) == 0
        answers = json.loads(capsys.readouterr().out)
        assert [answer["state"] for answer in answers] == ["changed", "absent"]
        assert answers[1]["advice"] == [
            "plug the hardware back into the same port; the container then starts without a new claim"
        ]


@pytest.mark.parametrize("what", ["usb-1-9-1-0", "1-9:1.0"])
def test_hardware_that_is_away_is_known_by_its_claim(
    what: str, command: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    claimed(command, ("usb-1-9-1-0", "1-9:1.0"))
    assert run(["explain", what]) == 0
    assert "the claim home/keys holds usb-1-9-1-0, which is away" in capsys.readouterr().out


def test_unclaimed_lists_hardware_with_its_modules(command: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["unclaimed"]) == 0
    text = capsys.readouterr().out
    assert "usb 1-4:1.0" in text
    assert "ch341, gone (not on this machine)" in text


def test_unclaimed_gives_lines_for_modules_load(command: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["unclaimed", "-o", "modules-load"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("# usb 1-4:1.0")
    assert lines[1:] == ["ch341", "# gone (not on this machine)"]


def test_unclaimed_is_json_and_names_for_programs(command: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["unclaimed", "-o", "json"]) == 0
    (entry,) = json.loads(capsys.readouterr().out)
    assert (entry["modules"], entry["missing"]) == (["ch341", "gone"], ["gone"])
    assert run(["unclaimed", "-o", "name"]) == 0
    assert capsys.readouterr().out == "usb 1-4:1.0\n"


def test_an_unknown_output_form_is_wrong_usage(command: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["unclaimed", "-o", "xml"]) == 2
    assert "modules-load" in capsys.readouterr().err


def test_a_recording_is_explained_in_place_of_this_machine(
    machine: MachineBuilder, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["explain", "usb-1-2-1-0", "--root", str(machine.root)]) == 0
    assert "usb-1-2-1-0 is published" in capsys.readouterr().out
