"""What every service does alike: signals, exit codes, health, the listener."""

import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.services.process import Process, clean_environment, free_port
from tests.waiting import eventually

SERVICE = """
import sys
from common.errors import MachineError, RequestError
from common.process import run_service
def start(context):
    context.beat_within_s = 0.5
    context.ready()
    while not context.stop.wait(0.05):
        {turn}
sys.exit(run_service("watcher", start))
"""
Start = Callable[..., Process]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[Process] = []

    def start(turn: str = "context.beat()", **variables: str) -> Process:
        environment = clean_environment(NODE_NAME="n1", METRICS_ADDR=f"127.0.0.1:{free_port()}") | variables
        process = Process(["-c", SERVICE.format(turn=turn)], environment, tmp_path / f"{len(started)}.log")
        started.append(process)
        return process

    yield start
    for process in started:
        process.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_service_ends_by_itself_when_it_is_told_to(start: Start, number: signal.Signals) -> None:
    process = start().wait_ready()
    process.signal(number)
    assert process.wait() == 0
    assert f"stops: {number.name}" in process.log


def test_metrics_name_the_build_and_the_process(start: Start) -> None:
    process = start().wait_ready()
    status, text = process.get("/metrics")
    assert status == 200
    assert "liken_build_info{" in text
    assert 'service="watcher"' in text
    assert "process_resident_memory_bytes" in text


def test_a_loop_that_hangs_is_not_healthy(start: Start) -> None:
    process = start("context.stop.wait(1000)").wait_ready()
    assert eventually(lambda: process.get("/healthz")[0] == 503, 5)
    assert "the loop turned" in process.get("/healthz")[1]


def test_a_loop_that_turns_is_healthy(start: Start) -> None:
    assert start().wait_ready().get("/healthz")[0] == 200


def test_a_path_that_is_not_there_says_what_is(start: Start) -> None:
    assert start().wait_ready().get("/") == (404, "there is /metrics, /healthz and /readyz\n")


def test_a_client_that_says_nothing_does_not_keep_others_waiting(start: Start) -> None:
    process = start().wait_ready()
    with socket.create_connection(("127.0.0.1", process.port)):
        assert process.get("/readyz")[0] == 200


def test_without_an_address_nothing_listens(start: Start) -> None:
    process = start("print('turns', flush=True)", METRICS_ADDR="")
    assert eventually(lambda: "turns" in process.log, 20)
    assert process.stop() == 0


def test_a_port_in_use_is_one_line_that_says_what_to_do(start: Start) -> None:
    first = start().wait_ready()
    second = start(METRICS_ADDR=f"127.0.0.1:{first.port}")
    assert second.wait() == 2
    assert len(second.log.splitlines()) == 1
    assert "Address already in use; set METRICS_ADDR to an address that is free" in second.log


def test_all_wrong_variables_are_one_line(start: Start) -> None:
    process = start(NODE_NAME="_", LIKEN_SETTLE="soon")
    assert process.wait() == 2
    assert len(process.log.splitlines()) == 1
    assert "NODE_NAME='_'" in process.log
    assert "LIKEN_SETTLE='soon'" in process.log


@pytest.mark.parametrize(("error", "code"), [("RequestError", 2), ("MachineError", 1)])
def test_an_error_ends_the_service_with_one_line_and_its_code(start: Start, error: str, code: int) -> None:
    process = start(f"raise {error}('words for people')")
    assert process.wait() == code
    assert process.log.count("words for people") == 1
    assert "Traceback" not in process.log


def test_a_defect_ends_the_service_with_what_is_needed_to_mend_it(start: Start) -> None:
    process = start("{}['missing']")
    assert process.wait() == 1
    assert "Traceback" in process.log


def test_json_lines_are_json(start: Start) -> None:
    process = start(LOG_FORMAT="json").wait_ready()
    assert process.stop() == 0
    assert '"service": "watcher"' in process.log.splitlines()[-1]
