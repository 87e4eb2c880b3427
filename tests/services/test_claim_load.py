"""Many callers, many claims, and processes that are killed: what is left is exactly what was promised."""

import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from tests.services.kubelet_stand_in import Claim
from tests.services.played_node import PlayedNode
from tests.services.process import Process, clean_environment
from tests.unit.claims.shapes import GPU, adapter, graphics_card
from tests.waiting import eventually

ADAPTERS, SHARED, CALLERS, CALLS = 100, 100, 16, 1000
REMOVALS = 20
SPARE = "usb-2-1-1-0"
USB2 = "sys/devices/pci0000:00/0000:00:14.0/usb2"
RETRY_S = 30.0
SEED = 20261129


class Caller(threading.Thread):
    """Prepares and unprepares its own claims in random order; repeats what fails, as a kubelet does."""

    def __init__(self, node: PlayedNode, claims: list[Claim], calls: int, seed: int) -> None:
        super().__init__(daemon=True)
        self.prepared: set[str] = set()
        self.calls = 0
        self.errors: list[str] = []
        self._node = node
        self._claims = claims
        self._wanted = calls
        self._random = random.Random(seed)

    def run(self) -> None:
        while self.calls < self._wanted:
            claim = self._random.choice(self._claims)
            if claim.uid in self.prepared:
                self._repeat(claim, prepare=False)
                self.prepared.discard(claim.uid)
            else:
                self._repeat(claim, prepare=True)
                self.prepared.add(claim.uid)
            self.calls += 1

    def _repeat(self, claim: Claim, *, prepare: bool) -> None:
        error = eventually(lambda: self._call(claim, prepare), RETRY_S, "the call succeeds", step_s=0.02)
        if error != "ok":
            self.errors.append(error)

    def _call(self, claim: Claim, prepare: bool) -> str:
        try:
            kubelet = self._node.kubelet
            if prepare:
                error = kubelet.prepare(claim, timeout_s=10)[claim.uid].error
            else:
                error = kubelet.unprepare(claim, timeout_s=10)[claim.uid]
        except (grpc.RpcError, ValueError):  # a killed plugin; ValueError: its channel was closed just now
            return ""
        return error or "ok"


class Killer(threading.Thread):
    """Kills plugin or reconciler at random moments and starts it again, as a supervisor does."""

    def __init__(self, node: PlayedNode, processes: dict[str, Process], seed: int) -> None:
        super().__init__(daemon=True)
        self.kills = 0
        self.stop = threading.Event()
        self.processes = processes
        self._node = node
        self._random = random.Random(seed)

    def run(self) -> None:
        while not self.stop.wait(self._random.uniform(0.2, 1.0)):
            service = self._random.choice(("plugin", "plugin", "reconciler"))
            self.processes[service].kill()
            self.processes[service] = self._node.start(service)
            self.kills += 1


@pytest.fixture
def node(run_dir: Path) -> Iterator[PlayedNode]:
    node = PlayedNode(run_dir)
    for number in range(1, ADAPTERS + 1):
        adapter(node.machine, f"1-{number}", f"ttyUSB{number}")
    adapter(node.machine, "2-1", "ttyUSB0")
    graphics_card(node.machine)
    yield node
    node.close()


def all_claims(node: PlayedNode) -> list[Claim]:
    own = [node.claim(f"usb-1-{number}-1-0") for number in range(1, ADAPTERS + 1)]
    return own + [node.claim(GPU) for _ in range(SHARED)]


def callers(node: PlayedNode, claims: list[Claim], calls: int) -> list[Caller]:
    """The callers, started; every claim belongs to one of them."""
    found = [
        Caller(node, claims[number::CALLERS], calls // CALLERS + 1, SEED + number)
        for number in range(CALLERS)
    ]
    for caller in found:
        caller.start()
    return found


class SpecClock:
    """Seconds of the steady clock at which a file says a word."""

    def __init__(self, path: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.services.spec_clock", str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=clean_environment(),
        )

    def ask(self, word: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(word + "\n")
        self._process.stdin.flush()

    def answer(self) -> float:
        assert self._process.stdout is not None
        return float(self._process.stdout.readline())

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


def replug_times(node: PlayedNode, spare: Claim, running: list[Caller]) -> list[float]:
    """Seconds from the tick of a removal to the safe spec, while the callers run."""
    times: list[float] = []
    clock = SpecClock(node.spec_path(spare))
    try:
        while len(times) < REMOVALS and any(caller.is_alive() for caller in running):
            node.machine.remove(f"{USB2}/2-1")
            clock.ask("absent")
            begin = time.monotonic()
            node.stir()
            times.append(clock.answer() - begin)
            adapter(node.machine, "2-1", "ttyUSB0")
            clock.ask("ttyUSB0")
            node.stir()
            clock.answer()
    finally:
        clock.close()
    return times


def test_under_load_and_random_kills_nothing_is_lost_and_nothing_is_left(node: PlayedNode) -> None:
    """1000 prepares and unprepares of 200 claims from 16 threads, plugin and reconciler killed at random."""
    assert node.watcher is not None
    processes = {service: node.start(service) for service in ("plugin", "reconciler")}
    node.inventory()
    spare = node.prepared(SPARE)
    claims = all_claims(node)
    killer = Killer(node, processes, SEED)
    killer.start()
    running = callers(node, claims, CALLS)
    for caller in running:
        caller.join(100)
    killer.stop.set()
    killer.join()
    assert [caller.errors for caller in running] == [[]] * CALLERS
    prepared = set().union(*(caller.prepared for caller in running)) | {spare.uid}
    assert node.records() == sorted(prepared)
    node.stir()
    eventually(lambda: specs_of(node) == prepared, 10, "a spec for each claim that is prepared, and no other")
    for number, claim in enumerate(claims):
        if claim.uid in prepared:
            assert node.paths(claim) == right(number)
    assert sum(caller.calls for caller in running) >= CALLS
    print(f"{killer.kills} kills during {sum(caller.calls for caller in running)} calls")
    assert killer.kills >= 1
    processes["reconciler"].stop()
    node.start("reconciler", LIKEN_PASS="0.2")
    eventually(lambda: node.leftovers() == [], 10, "no temporary file is left")


def test_a_removal_under_load_is_safe_as_quickly_as_ever(node: PlayedNode) -> None:
    assert node.watcher is not None
    for service in ("plugin", "reconciler"):
        node.start(service)
    node.inventory()
    spare = node.prepared(SPARE)
    running = callers(node, all_claims(node), 2 * CALLS)
    times = sorted(replug_times(node, spare, running))
    assert len(times) >= 3
    middle, worst = times[len(times) // 2], times[-1]
    print(f"{len(times)} removals under load: median {middle * 1000:.1f} ms, worst {worst * 1000:.1f} ms")
    assert middle < 1.0
    for caller in running:
        caller.join(100)
    assert [caller.errors for caller in running] == [[]] * CALLERS


def specs_of(node: PlayedNode) -> set[str]:
    return {path.stem.partition("_")[2] for path in node.cdi.glob("*.json")}


def right(number: int) -> dict[str, list[str]]:
    """What the spec of the claim with this number has to say."""
    if number >= ADAPTERS:
        return {GPU: ["/dev/dri/renderD128"]}
    device = number + 1
    return {f"usb-1-{device}-1-0": [f"/dev/ttyUSB{device}", f"/dev/bus/usb/001/{device + 1:03d}"]}
