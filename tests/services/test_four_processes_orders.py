"""Any start order of the four services gives the same end state."""

import itertools
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from common.process import run_service
from tests.services.machine import SERVICES, PlayedMachine, device
from tests.services.process import clean_environment
from tests.waiting import eventually

CLAIMS = range(1, 31)
ADAPTERS = range(1, 33)
GONE = 13  # claimed, and unplugged before anybody starts
UNMADE = 17  # claimed, and its spec is missing
END_STATE_S = 2.0
MODULES = {
    "watcher": "services.watcher.__main__",
    "publisher": "services.publisher.loop",
    "plugin": "services.plugin.service",
    "reconciler": "services.reconciler.service",
}


def serve(service: str, environment: dict[str, str], log: str) -> None:
    """The whole life of one service, in a process of its own."""
    os.environ.clear()
    os.environ.update(environment)
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(file, 1)
    os.dup2(file, 2)
    start = __import__(MODULES[service], fromlist=["start"]).start
    sys.exit(run_service(service, start, environment))  # type: ignore[arg-type]


class Starter:
    """Starts services as real processes from one that has imported everything: 24 orders need 96 starts."""

    def __init__(self, machine: PlayedMachine) -> None:
        self.machine = machine
        self._forks = multiprocessing.get_context("forkserver")
        self._forks.set_forkserver_preload([*MODULES.values(), "grpc.aio", "zmq"])
        self.stale = b""  # the spec that names the nodes of the adapter before it was pulled
        self._running: list[multiprocessing.process.BaseProcess] = []

    def start(self, order: Sequence[str]) -> None:
        for service in order:
            environment = clean_environment(**self.machine.environment()) | {"METRICS_ADDR": ""}
            log = self.machine.run / f"{service}.log"
            process = self._forks.Process(target=serve, args=(service, environment, str(log)), daemon=True)
            process.start()
            self._running.append(process)

    def stop(self) -> None:
        """End all; each has to end well."""
        for process in self._running:
            os.kill(process.pid or 0, signal.SIGTERM)
        for process in self._running:
            process.join(10)
        codes = [process.exitcode for process in self._running]
        self._running.clear()
        assert set(codes) <= {0}, f"{codes}\n{self.logs()}"

    def logs(self) -> str:
        """The end of each service's log."""
        paths = sorted(self.machine.run.glob("*.log"))
        return "\n".join(f"{path.name}:\n{path.read_text()[-3000:]}" for path in paths)

    def kill(self) -> None:
        for process in self._running:
            process.kill()
            process.join()


@pytest.fixture(scope="module")
def starter(short_dir: Path) -> Iterator[Starter]:
    """Thirty prepared claims; then everything ended and one adapter was pulled."""
    machine = PlayedMachine(short_dir, len(ADAPTERS))
    starter = Starter(machine)
    try:
        starter.start(SERVICES)
        machine.prepare(CLAIMS)
        machine.all_is_well(ADAPTERS)
        starter.stop()
        starter.stale = machine.spec_path(machine.claims[GONE]).read_bytes()
        machine.unplug(GONE)
        yield starter
    finally:
        starter.kill()
        machine.close()


def test_every_start_order_gives_the_same_end_state(
    starter: Starter, capsys: pytest.CaptureFixture[str]
) -> None:
    ends: dict[tuple[str, ...], object] = {}
    times: dict[tuple[str, ...], float] = {}
    orders = list(itertools.permutations(SERVICES))
    for order in orders:
        times[order], ends[order] = play(starter, order)
    slow = [order for order in orders if times[order] >= END_STATE_S]
    again = {order: play(starter, order)[0] for order in slow}
    with capsys.disabled():
        middle, most = sorted(times.values())[len(times) // 2], max(times.values())
        print(f"\n  end state after the last start: {middle:.2f} s median, {most:.2f} s at the most")
    assert len(ends) == 24
    assert all(end == ends[orders[0]] for end in ends.values())
    assert all(seconds < END_STATE_S * busy() for seconds in again.values()), again


def busy() -> float:
    """How many want each processor of this machine: a promise in seconds is for a machine at rest."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def play(starter: Starter, order: Sequence[str]) -> tuple[float, object]:
    """Start in this order on a machine where much is wrong; the seconds to the end state, and that state."""
    machine = starter.machine
    machine.spec_path(machine.claims[GONE]).write_bytes(starter.stale)
    machine.spec_path(machine.claims[UNMADE]).unlink()
    for path in (machine.cluster / "slices").glob("*.yaml"):
        path.unlink()
    machine.forget()
    starter.start(order)
    begin = time.monotonic()
    machine.all_is_well(ADAPTERS)
    machine.registered()
    took = time.monotonic() - begin
    end = end_state(machine)
    starter.stop()
    return took, end


def end_state(machine: PlayedMachine) -> object:
    """All that the services leave behind and tell."""
    specs = {path.name: path.read_bytes() for path in sorted(machine.cdi.glob("*.json"))}
    states = sorted(
        (claim.uid, one.device, one.state, one.reason) for claim in machine.told() for one in claim.devices
    )
    return specs, machine.records(), sorted(machine.published()), states


def test_the_end_state_is_the_right_one(starter: Starter) -> None:
    machine = starter.machine
    starter.start(SERVICES)
    machine.all_is_well(ADAPTERS)
    assert machine.given(machine.claims[GONE]) == {device(GONE): {f"/dev/liken.sh/absent/{device(GONE)}"}}
    assert machine.given(machine.claims[UNMADE]) == {device(UNMADE): machine.nodes(UNMADE)}
    machine.plug(GONE)
    machine.all_is_well(ADAPTERS)
    assert eventually(lambda: device(GONE) in machine.published(), 5)
    starter.stop()
