"""The command without services: recordings, wrong words, starts that fail."""

import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import yaml

from tests.builders import MachineBuilder
from tests.services.liken_command import LONG_S, Done, Up, liken
from tests.services.process import Process, clean_environment
from tests.waiting import eventually

HOSTILE = "[/foo] [bold]\x1b[31m"


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """A recording of a machine with one USB serial adapter whose name is hostile."""
    machine = MachineBuilder(tmp_path / "machine")
    adapter = machine.usb("1-2", name=HOSTILE)
    machine.tty(machine.interface(adapter, 0, driver="ftdi_sio"), "ttyUSB0")
    with tarfile.open(tmp_path / "machine.tar.xz", "w:xz") as archive:
        archive.add(machine.root, ".")
    return tmp_path / "machine.tar.xz"


def assert_one_line(done: Done, code: int, *words: str) -> None:
    assert (done.code, done.out) == (code, "")
    assert len(done.err.splitlines()) == 1
    assert done.err.startswith("liken: ")
    assert "Traceback" not in done.err
    for word in words:
        assert word in done.err


def test_a_recording_is_listed_in_every_form(recording: Path) -> None:
    table = liken("devices", "--root", str(recording))
    assert table.code == 0
    assert "[/foo] [bold][31m" in table.out
    assert "\x1b" not in table.out
    told = liken("devices", "--root", str(recording), "-o", "json", NODE_NAME="n1").json
    assert list(told) == ["schema", "node", "boot", "taken", "facts", "devices", "withheld", "unclaimed"]
    assert (told["schema"], told["node"]) == (1, "n1")
    assert [device["name"] for device in told["devices"]] == ["usb-1-2-1-0"]
    as_yaml = yaml.safe_load(liken("devices", "--root", str(recording), "-o", "yaml").out)
    assert as_yaml["devices"] == told["devices"]
    assert liken("devices", "--root", str(recording), "-o", "name").out == "usb-1-2-1-0\n"


def test_slices_of_a_recording_bear_the_nodes_name(recording: Path) -> None:
    (document,) = yaml.safe_load_all(
        liken("slices", "--root", str(recording), "--node", "n7", "-o", "yaml").out
    )
    assert (document["apiVersion"], document["kind"]) == ("resource.k8s.io/v1", "ResourceSlice")
    assert (document["metadata"]["name"], document["spec"]["nodeName"]) == ("n7-liken.sh", "n7")
    assert_one_line(liken("slices", "--root", str(recording), "--node", "N_7"), 2, "NODE_NAME='N_7'")


@pytest.mark.parametrize("command", ["devices", "slices", "explain", "unclaimed"])
def test_what_cannot_be_opened_is_told_in_one_line(command: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "cut.tar.xz").write_bytes(b"\xfd7zXZ\0 cut off")
    (tmp_path / "text").write_text("x")
    for name in ("missing", "empty", "cut.tar.xz", "text"):
        assert_one_line(liken(command, "--root", str(tmp_path / name)), 1, name)


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("bogus",),
        ("devices", "--bogus"),
        ("devices", "-o", "bogus"),
        ("unclaimed", "-o", "bogus"),
        ("devices", "more"),
        ("claim", "name"),
        ("record",),
        ("unplug", "--slow", "soon", "1-2"),
    ],
)
def test_wrong_usage_is_one_line_that_names_the_help(arguments: tuple[str, ...]) -> None:
    assert_one_line(liken(*arguments), 2, "--help")


def test_wrong_variables_are_told_together_by_every_command(recording: Path) -> None:
    done = liken("devices", "--root", str(recording), LIKEN_SETTLE="soon", LOG_LEVEL="LOUD")
    assert_one_line(done, 2, "LIKEN_SETTLE='soon'", "LOG_LEVEL='LOUD'")


@pytest.mark.parametrize("command", ["status", "claims", "plug 1-2", "unplug 1-2", "claim a b", "release a"])
def test_without_a_start_every_command_says_how_to_start(command: str, run_dir: Path) -> None:
    assert_one_line(liken(*command.split(), "--state", str(run_dir / "none")), 1, "liken up")


def test_down_with_nothing_up_is_no_error(run_dir: Path) -> None:
    done = liken("down", "--state", str(run_dir / "none"))
    assert (done.code, done.err) == (0, "")
    assert "nothing is up" in done.out


def test_a_reader_that_has_seen_enough_is_no_error(recording: Path) -> None:
    command = f"{sys.executable} -P -m services.console devices --root {recording} -o json | head -c 1"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], env=clean_environment(), capture_output=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"{", b"")


def test_a_list_of_devices_waits_for_no_library_that_it_does_not_use(recording: Path) -> None:
    program = (
        "import sys; from services.console.__main__ import run; "
        f"run(['devices', '--root', {str(recording)!r}, '-o', 'name']); "
        "print(sorted({'grpc', 'kubernetes', 'zmq', 'supervisor', 'rich.table'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", program],
        env=clean_environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "usb-1-2-1-0\n[]\n"


def test_down_ends_what_is_up_and_a_new_up_keeps_the_claims(run_dir: Path) -> None:
    up = Up(run_dir)
    try:
        assert up.run("claim", "stick", "usb-1-2-1-0").code == 0
        assert up.run("down").code == 0
        assert up.process.wait() == 0
        assert up.run("status").code == 1
        (row,) = up.run("claims", "-o", "json").json
        assert row["state"] == "not prepared"
        up.start()
        eventually(
            lambda: up.run("claims", "-o", "json").json[0]["state"] == "present", LONG_S, "it is present"
        )
        assert up.run("release", "stick").code == 0
    finally:
        up.stop()


def test_a_service_that_is_set_up_wrongly_ends_all_with_its_code(run_dir: Path, recording: Path) -> None:
    # a fault that nothing can see beforehand: the folder of the bus cannot be made
    (run_dir / "s/run").mkdir(parents=True)
    (run_dir / "s/run/bus").write_text("a file")
    arguments = ["-m", "services.console", "up", "--state", str(run_dir / "s"), "--root", str(recording)]
    process = Process(arguments, clean_environment(METRICS_ADDR=""), run_dir / "up.log")
    try:
        assert process.wait() == 2
        assert "cannot run with these settings" in process.log
        assert "LIKEN_RUN" in process.log
    finally:
        process.close()
