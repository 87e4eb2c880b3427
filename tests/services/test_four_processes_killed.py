"""SIGKILL for any of the four, under the supervisor, while something happens: nothing is lost."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest

from services.console import control
from services.console.play import Player
from services.console.state import State
from tests.builders import MachineBuilder
from tests.services.machine import SERVICES, SETTLE_S, PlayedMachine, device
from tests.services.process import Process, clean_environment
from tests.waiting import eventually

CLAIMS = range(1, 31)
PREPARED_LATER = {service: number for number, service in enumerate(SERVICES, 31)}
SPARE = 35  # comes and goes after each kill
ADAPTERS = range(1, 36)
INTO_S = {
    "watcher": 0.000,
    "publisher": 0.004,
    "plugin": 0.002,
    "reconciler": 0.008,
}  # the kill, after the start


class Supervised(PlayedMachine):
    """The machine below a state folder, where `liken up` runs the four."""

    def __init__(self, run: Path, adapters: int) -> None:
        super().__init__(run, adapters)
        self.place = State(run / "s")
        self.place.make()
        self.machine.root.rename(self.place.machine)
        self.machine = MachineBuilder.__new__(MachineBuilder)
        self.machine.root = self.place.machine
        self.registry = run / "s/kubelet/plugins_registry"
        self.plugin_dir = run / "s/kubelet/plugins/liken.sh"
        self.cdi, self.cluster = run / "s/cdi", run / "s/cluster"
        (run / "r").symlink_to(run / "s/run")
        self.player = Player(self.place.machine, run / "s/run")

    def up(self) -> Process:
        environment = clean_environment(NODE_NAME="n1", METRICS_ADDR="", LIKEN_SETTLE=str(SETTLE_S))
        arguments = [
            "-m",
            "services.console",
            "up",
            "--state",
            str(self.place.folder),
            "--root",
            str(self.place.machine),
        ]
        process = Process(arguments, environment, self.run / "up.log")
        self.processes.append(process)
        return process

    def pids(self) -> dict[str, int]:
        """The processes that run now, by service."""
        return {
            one.name: one.pid for one in control.processes(self.place) if one.state in ("running", "starting")
        }

    def restarts(self) -> dict[str, int]:
        return {one.name: one.restarts for one in control.processes(self.place)}


@pytest.fixture(scope="module")
def machine(short_dir: Path) -> Iterator[Supervised]:
    """Thirty prepared claims below a supervisor, for all tests of this module."""
    machine = Supervised(short_dir, len(ADAPTERS))
    up = machine.up()
    try:
        machine.prepare(CLAIMS)
        machine.all_is_well(ADAPTERS)
        yield machine
    finally:
        up.stop()
        machine.close()


def kill_during(machine: Supervised, service: str, action: Callable[[], object]) -> None:
    """Start `action`, kill `service` a moment later; then all four run again and the others never stopped."""
    before = machine.pids()
    assert set(before) == set(SERVICES)
    killer = threading.Timer(INTO_S[service], os.kill, (before[service], signal.SIGKILL))
    killer.start()
    action()
    killer.join()

    def restarted() -> dict[str, int]:
        now = machine.pids()
        return now if set(now) == set(SERVICES) and now[service] != before[service] else {}

    after = eventually(restarted, 30, f"the {service} runs again")
    assert {name: pid for name, pid in after.items() if name != service} == {
        name: pid for name, pid in before.items() if name != service
    }


def then_all_works(machine: Supervised) -> None:
    """The machine becomes true; then one more hot-plug and one more prepare work."""
    machine.all_is_well(ADAPTERS)
    machine.unplug(SPARE)
    machine.all_is_well(ADAPTERS)
    machine.plug(SPARE)
    machine.all_is_well(ADAPTERS)
    claim = machine.claim(device(SPARE))
    until_done(lambda: machine.kubelet.prepare(claim)[claim.uid].error)
    assert machine.given(claim) == {device(SPARE): machine.nodes(SPARE)}
    until_done(lambda: machine.kubelet.unprepare(claim)[claim.uid])
    machine.all_is_well(ADAPTERS)


def until_done(call: Callable[[], str]) -> None:
    """Repeat a call as the kubelet does, until it succeeds."""

    def done() -> bool:
        try:
            error = call()
        except (grpc.RpcError, AssertionError) as failure:
            error = str(failure)
        assert error == "", error
        return True

    eventually(done, 30, "the call succeeds when it is repeated", step_s=0.1)


@pytest.mark.parametrize("service", SERVICES)
def test_a_kill_during_an_unplug_loses_nothing(machine: Supervised, service: str) -> None:
    number = PREPARED_LATER[service] - 30
    kill_during(machine, service, lambda: machine.unplug(number))
    then_all_works(machine)
    assert machine.given(machine.claims[number]) == {
        device(number): {f"/dev/liken.sh/absent/{device(number)}"}
    }


@pytest.mark.parametrize("service", SERVICES)
def test_a_kill_during_a_plug_loses_nothing(machine: Supervised, service: str) -> None:
    number = PREPARED_LATER[service] - 30
    if machine.nodes(number):
        machine.unplug(number)
        machine.all_is_well(ADAPTERS)
    kill_during(machine, service, lambda: machine.plug(number))
    then_all_works(machine)
    assert machine.given(machine.claims[number]) == {device(number): machine.nodes(number)}


@pytest.mark.parametrize("service", SERVICES)
def test_a_kill_during_a_prepare_loses_nothing(machine: Supervised, service: str) -> None:
    number = PREPARED_LATER[service]
    claim = machine.claim(device(number), name=f"claim-{number}")
    kill_during(machine, service, lambda: until_done(lambda: machine.kubelet.prepare(claim)[claim.uid].error))
    machine.claims[number] = claim
    then_all_works(machine)
    assert machine.given(claim) == {device(number): machine.nodes(number)}


@pytest.mark.parametrize("service", SERVICES)
def test_a_kill_during_an_unprepare_loses_nothing(machine: Supervised, service: str) -> None:
    number = PREPARED_LATER[service]
    if number not in machine.claims:
        machine.prepare([number])
    claim = machine.claims.pop(number)
    kill_during(machine, service, lambda: until_done(lambda: machine.kubelet.unprepare(claim)[claim.uid]))
    then_all_works(machine)
    assert machine.given(claim) == {}


def test_only_what_was_killed_was_started_again(machine: Supervised) -> None:
    assert set(machine.pids()) == set(SERVICES)
    assert all(count >= 1 for count in machine.restarts().values())
