"""`make chaos MINUTES=N`: random trouble on a played machine, with a checker that watches every file.

The seed is printed; the same seed draws the same actions. Exit 0 when nothing was found, else 1.
"""

import argparse
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.chaos.actions import Actions, release_file_systems, small_file_systems
from tests.chaos.checker import Checker, Tally, spec_nodes
from tests.chaos.machine import build
from tests.chaos.model import Model
from tests.chaos.system import System
from tests.waiting import eventually

BOUND_S = 1.0  # on two busy processors; the distribution is printed
BOUND_DISTURBED_S = 8.0  # while a process is killed or a disk is full: the supervisor's restart is in it
ROUND_S = 20.0  # of trouble, then quiet
CONVERGE_S = 3.0
GROWTH = 1.25  # resident memory of the last third over the middle third
GROWTH_KIB = 6144


class Run:
    """One run; `failures` is what was found."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.failures: list[str] = []
        self._memory: list[tuple[float, dict[str, int]]] = []
        ports = build(folder / "machine")
        self._folders = (folder / "cdi", folder / "k/plugins/liken.sh")
        for each in self._folders:
            each.mkdir(parents=True)
        full = small_file_systems(*self._folders)
        if not full:
            print("full disks: not played, mounting a small file system needs root")
        self.system = System(folder, folder / "machine")
        self.model = Model(self.system.root, ports)
        self.actions = Actions(self.system, self.model, random.Random(seed), full)
        self.checker = Checker(
            self.system.cdi, self.model, self.actions.disturbed, BOUND_S, BOUND_DISTURBED_S
        )
        self._begin = time.monotonic()

    def play(self, minutes: float) -> None:
        end = self._begin + minutes * 60
        rounds = 0
        while time.monotonic() < end and not self.failures:
            rounds += 1
            quiet_at = min(time.monotonic() + ROUND_S, end)
            while time.monotonic() < quiet_at:
                self._act()
            self._try(partial(self._check_quiet, rounds))
            self.failures += self.checker.tally.failures

    def _act(self) -> None:
        self._try(self.actions.one)
        self._memory.append((time.monotonic() - self._begin, self.system.memory_kib()))
        time.sleep(self.actions.rng.choice([0.0, 0.02, 0.1, 0.3]))

    def _try(self, work: Callable[[], object]) -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is a finding of this run
            self.failures.append(f"{type(error).__name__}: {error}")

    def _check_quiet(self, number: int) -> None:
        self.actions.settle()
        eventually(lambda: len(self.system.pids()) == 4, 40, "all four run again")
        begin = time.monotonic()
        # what a killed publisher needs to start comes on top of the 3 s of quiet
        self._expect("the slices", self.system.offered, self.model.offered, CONVERGE_S + 12.0)
        took = time.monotonic() - begin
        prepared = {held.uid for held in self.model.held("prepared")}
        self._expect("the records", self.system.records, lambda: prepared, CONVERGE_S)
        self._expect("the specs", self.system.specs, lambda: prepared, CONVERGE_S)
        for held in self.model.held("prepared"):
            path = self.system.cdi / f"liken.sh-device_{held.uid}.json"
            device = held.port.device
            self._expect(
                f"the spec of {device}", partial(spec_nodes, path), partial(self._right, device), CONVERGE_S
            )
        print(
            f"round {number}: {self.actions.count.total()} actions, {len(prepared)} claims prepared,"
            f" {len(self.model.away)} unplugged, slices right {took:.1f} s after the last trouble",
            flush=True,
        )

    def _right(self, device: str) -> set[str]:
        port = next(port for port in self.model.ports if port.device == device)
        # a USB device without any driver has another form and another name: a claim on this one gets nothing
        return set() if port.owner in self.model.unbound else set(self.model.truth[device])

    def _expect(
        self, what: str, found: Callable[[], object], wanted: Callable[[], object], timeout_s: float
    ) -> None:
        try:
            eventually(lambda: found() == wanted(), timeout_s, what)
        except AssertionError:
            self.failures.append(f"{what}: {_difference(found(), wanted())}")

    def finish(self) -> Tally:
        restarts = {each["name"]: each["restarts"] for each in self.system.status()}
        for service, count in restarts.items():
            if count != self.actions.kills[service]:
                self.failures.append(
                    f"the {service} was killed {self.actions.kills[service]} times"
                    f" and started again {count} times"
                )
        tally = self.checker.close()
        self.failures += [each for each in tally.failures if each not in self.failures]
        code = self.system.close()
        if code != 0:
            self.failures.append(f"liken up ended with {code}")
        release_file_systems(*self._folders)
        self._check_memory()
        return tally

    def _check_memory(self) -> None:
        end = self._memory[-1][0] if self._memory else 0.0
        for service in ("watcher", "publisher", "plugin", "reconciler"):
            middle = [m[service] for at, m in self._memory if end / 3 < at <= 2 * end / 3 and service in m]
            last = [m[service] for at, m in self._memory if at > 2 * end / 3 and service in m]
            if not middle or not last:
                continue
            print(f"memory of the {service}: {max(middle)} KiB in the middle, {max(last)} KiB at the end")
            if max(last) > max(middle) * GROWTH + GROWTH_KIB:
                self.failures.append(f"the memory of the {service} grows")


def _difference(found: object, wanted: object) -> str:
    if not isinstance(found, set) or not isinstance(wanted, set):
        return f"found {found}, wanted {wanted}"
    return f"too many {sorted(found - wanted)}, missing {sorted(wanted - found)}"


def _print(tally: Tally, actions: Actions) -> None:
    print(", ".join(f"{name} {count}" for name, count in sorted(actions.count.items())))
    print("killed: " + ", ".join(f"{name} {count}" for name, count in sorted(actions.kills.items())))
    print("refused: " + ", ".join(f"{words} ({count})" for words, count in sorted(actions.refused.items())))
    print(f"the checker read {tally.specs} specs in {tally.looks} looks")
    for name, values in (("quiet", tally.durations_quiet), ("disturbed", tally.durations_disturbed)):
        if values:
            print(
                f"a spec named a node that was gone or foreign, {name}: {len(values)} times,"
                f" median {statistics.median(values) * 1000:.0f} ms, longest {max(values) * 1000:.0f} ms"
            )


def main() -> int:
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4), "big"))
    asked = parser.parse_args()
    print(f"seed {asked.seed}, {asked.minutes:g} minutes", flush=True)
    folder = Path(tempfile.mkdtemp(prefix="chaos-", dir="/tmp"))
    run = Run(folder, asked.seed)
    try:
        run.play(asked.minutes)
    finally:
        tally = run.finish()
    _print(tally, run.actions)
    for failure in run.failures:
        print(f"FOUND: {failure}")
    if run.failures:
        print(f"logs are in {folder}; play it again: make chaos SEED={asked.seed} MINUTES={asked.minutes:g}")
        return 1
    shutil.rmtree(folder, ignore_errors=True)
    print(f"nothing found: {run.actions.count.total()} actions, seed {asked.seed}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
