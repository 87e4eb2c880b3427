"""`liken up` with what cannot work: one line that says what to do, and nothing left running."""

import os
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from common.errors import MachineError
from services.console import control
from services.console.state import State
from tests.builders import MachineBuilder
from tests.services.machine import SERVICES
from tests.services.process import Process, clean_environment
from tests.waiting import eventually

Up = Callable[..., Process]


@pytest.fixture
def up(run_dir: Path, tmp_path: Path) -> Iterator[Up]:
    """Starts `liken up` on a built machine with the state in `run_dir`/s."""
    started: list[Process] = []
    machine = MachineBuilder(tmp_path / "machine")
    device = machine.usb("1-1", name="[/foo]")
    machine.tty(machine.interface(device, 0, driver="ch341"), "ttyUSB0")

    def up(*arguments: str, **variables: str) -> Process:
        environment = clean_environment(NODE_NAME="n1", METRICS_ADDR="") | variables
        given = arguments or ("--root", str(machine.root))
        command = ["-m", "services.console", "up", "--state", str(run_dir / "s"), *given]
        started.append(Process(command, environment, tmp_path / f"up-{len(started)}.log"))
        return started[-1]

    yield up
    for process in started:
        if process.popen.poll() is None:
            process.stop()
        process.close()


def all_run(state: Path) -> bool:
    """Whether the four run below the supervisor of this state."""
    try:
        return [one.state for one in control.processes(State(state))] == ["running"] * len(SERVICES)
    except MachineError:
        return False  # the supervisor does not answer yet


def services_of(state: Path) -> list[int]:
    """Processes of this machine that were told to keep their files below `state`."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            variables = (entry / "environ").read_bytes().split(b"\0")
            zombie = (entry / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
        except OSError:
            continue  # it ended just now, or it is not ours to look at
        if f"LIKEN_STATE={state}".encode() in variables and not zombie:
            found.append(int(entry.name))
    return found


def only_error(process: Process) -> str:
    """The one line that says what was wrong; it is the last, and nothing like a traceback is before it."""
    lines = process.log.strip().splitlines()
    assert [line for line in lines if line.startswith("liken: ")] == lines[-1:], process.log
    assert len(lines) <= 2, process.log  # what it was about to do, and why it did not
    return lines[-1]


def assert_refused(process: Process, run_dir: Path, *words: str, codes: tuple[int, ...] = (1, 2)) -> None:
    code = process.wait()
    assert code in codes, process.log
    error = only_error(process)
    for word in words:
        assert word in error
    assert services_of(run_dir / "s") == []


def test_wrong_variables_are_told_together(up: Up, run_dir: Path) -> None:
    process = up(LIKEN_SETTLE="soon", LIKEN_PASS="-1", NODE_NAME="_")
    assert_refused(process, run_dir, "LIKEN_SETTLE='soon'", "LIKEN_PASS='-1'", "NODE_NAME='_'")


def test_a_state_folder_that_cannot_be_made_is_refused(up: Up, run_dir: Path) -> None:
    (run_dir / "s").write_text("a file")
    assert_refused(up(), run_dir, "--state")


def test_a_state_folder_with_too_long_a_path_is_refused(up: Up, run_dir: Path, tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 90)
    assert_refused(up("--state", str(deep), "--root", str(tmp_path / "machine")), run_dir, "--state")


def test_a_port_in_use_is_refused(up: Up, run_dir: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert_refused(up(METRICS_ADDR=f"127.0.0.1:{port}"), run_dir, str(port), "METRICS_ADDR")


def test_a_corrupt_recording_is_refused(up: Up, run_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "machine.tar.xz").write_bytes(b"\xfd7zXZ\x00 this is none")
    assert_refused(up("--root", str(tmp_path / "machine.tar.xz")), run_dir, "machine.tar.xz")


def test_a_folder_without_sys_is_refused(up: Up, run_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert_refused(up("--root", str(tmp_path / "empty")), run_dir, "sys")


def test_a_folder_that_is_not_there_is_refused(up: Up, run_dir: Path, tmp_path: Path) -> None:
    assert_refused(up("--root", str(tmp_path / "missing")), run_dir, "missing")


def test_a_wrong_machine_file_is_refused_before_anything_runs(up: Up, run_dir: Path, tmp_path: Path) -> None:
    file = tmp_path / "machine.yaml"
    file.write_text("spec: [1")
    root = str(tmp_path / "machine")
    assert_refused(up("--root", root, LIKEN_MACHINE=str(file)), run_dir, "machine.yaml")


def test_a_second_up_on_the_same_state_is_refused_and_the_first_goes_on(up: Up, run_dir: Path) -> None:
    first = up()
    eventually(lambda: all_run(run_dir / "s"), 30, "the four run")
    second = up()
    assert second.wait() == 1
    assert "liken down" in only_error(second)
    assert all_run(run_dir / "s")
    assert first.stop() == 0
    assert services_of(run_dir / "s") == []


def test_the_end_of_up_is_the_end_of_the_four(up: Up, run_dir: Path) -> None:
    process = up()
    eventually(lambda: all_run(run_dir / "s"), 30, "the four run")
    assert len(services_of(run_dir / "s")) >= len(SERVICES)
    process.signal(signal.SIGINT)
    assert process.wait() == 0
    assert services_of(run_dir / "s") == []


def test_even_a_killed_up_leaves_nothing_running(up: Up, run_dir: Path) -> None:
    process = up()
    eventually(lambda: all_run(run_dir / "s"), 30, "the four run")
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert eventually(lambda: services_of(run_dir / "s") == [], 15, "the four end too")
