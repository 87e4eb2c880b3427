"""`make chaos MINUTES=N`: random trouble on a played machine, with a checker that watches every file.

Rounds of trouble, each followed by quiet. Every second round, and all of the middle third, are calm: nothing
is killed, filled or deleted and the API server answers. There the short bounds hold, and the processes live
long enough to tell whether their memory grows. The seed is printed; the same seed draws the same actions,
though what one meets depends on how fast the machine is. Exit 0 when nothing was found, else 1.
"""

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.chaos.actions import Actions, release_file_systems, small_file_systems
from tests.chaos.checker import Checker, Tally, spec_paths
from tests.chaos.machine import build
from tests.chaos.model import Held, Model
from tests.chaos.system import System
from tests.waiting import eventually

BOUND_S = 0.5  # promised are 50 ms; the checker and whatever else runs share the processors
BOUND_DISTURBED_S = 8.0  # while a process is killed or a disk is full: the supervisor's restart is in it
ROUND_S = 20.0  # of trouble, then quiet
CONVERGE_S = 3.0
BACKSTOP_S = 30.0  # the reconciler's: until then a spec may be missing that somebody deleted
RESTART_S = 12.0  # what a killed process needs to start, or a refused publisher's pause, comes on top
GROWTH_KIB = 3072  # resident memory of one process between the first and the last quarter of the calm third
SERVICES = ("watcher", "publisher", "plugin", "reconciler")
SENDERS = {"watcher", "plugin", "reconciler"}


class Run:
    """One run; `failures` is what was found."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.failures: list[str] = []
        self._memory: list[dict[str, tuple[int, int]]] = []  # of the calm third: pid and KiB by service
        self.quiet_s = self.played_s = self.checked_s = 0.0
        ports = build(folder / "machine")
        self._folders = (folder / "cdi", folder / "k/plugins/liken.sh")
        for each in self._folders:
            each.mkdir(parents=True)
        full = small_file_systems(*self._folders)
        if not full:
            print("full disks: not played, mounting a small file system needs root")
        self.system = System(folder, folder / "machine")
        self.model = Model(self.system.root, ports)
        self.actions = Actions(self.system, self.model, seed, full, folder / "actions.log")
        self.checker = Checker(
            self.system.cdi, self.model, self.actions.disturbed, BOUND_S, BOUND_DISTURBED_S
        )
        self._begin = time.monotonic()

    def play(self, minutes: float) -> None:
        end = self._begin + minutes * 60
        rounds = 0
        while time.monotonic() < end and not self.failures:
            rounds += 1
            third = int(3 * (time.monotonic() - self._begin) / (minutes * 60))
            self.actions.calm = third == 1 or rounds % 2 == 0
            self._try(self.actions.fill_up)
            quiet_at = min(time.monotonic() + ROUND_S, end)
            while time.monotonic() < quiet_at:
                self._act()
                if third == 1:
                    self._memory.append(self.system.memory_kib())
            self._try(partial(self._check_quiet, rounds))
            self.failures += self.checker.tally.failures

    def _act(self) -> None:
        begin = time.monotonic()
        self._try(self.actions.one)
        time.sleep(self.actions.rng.choice([0.0, 0.02, 0.1, 0.3]))
        took = time.monotonic() - begin
        self.played_s += took
        self.quiet_s += 0.0 if self.actions.disturbed() else took

    def _try(self, work: Callable[[], object]) -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is a finding of this run
            self.failures.append(f"{type(error).__name__}: {error}")

    def _check_quiet(self, number: int) -> None:
        self.actions.settle()
        eventually(lambda: len(self.system.pids()) == 4, 40, "all four run again")
        begin = time.monotonic()
        converge_s = CONVERGE_S + (0.0 if self.actions.calm else RESTART_S)
        self._expect("the sockets of the bus", self.system.bus_answers, lambda: SENDERS, converge_s)
        self._expect("the slices", self.system.offered, self.model.offered, converge_s)
        self._expect("the slices' own fields", self.system.pool_faults, set, CONVERGE_S)
        took = time.monotonic() - begin
        held = self.model.held("prepared")
        self._check_claims(held)
        if self.actions.calm:
            self._check_calm()
        self.actions.recovered()
        print(
            f"round {number} ({'calm' if self.actions.calm else 'rough'}):"
            f" {self.actions.count.total()} actions, {len(held)} claims prepared,"
            f" {len(self.model.away)} unplugged, slices right {took:.1f} s after the last trouble",
            flush=True,
        )

    def _check_claims(self, prepared: list[Held]) -> None:
        """Records and specs of all prepared claims, and no others."""
        records = {(held.uid, held.port.device) for held in prepared}
        self._expect("the records", self.system.records, lambda: records, CONVERGE_S)
        specs_s = CONVERGE_S + (BACKSTOP_S if self.actions.specs_deleted else 0.0)
        self._expect("the specs", self.system.specs, lambda: {held.uid for held in prepared}, specs_s)
        for held in prepared:
            device, path = held.port.device, self.system.spec(held.uid)
            wanted = [(f"{held.uid}-{device}", self.model.named(held.port))]
            self._expect(
                f"the spec of {device}", partial(spec_paths, path), partial(list, wanted), CONVERGE_S
            )

    def _check_calm(self) -> None:
        """What has to go well while nobody is in trouble, and what is swept up after the last."""
        if wrong := self.actions.demand():
            self.failures.append(wrong)
        sweep_s = BACKSTOP_S + CONVERGE_S
        self._expect("temporary files under specs and records", self.system.leftovers, set, sweep_s)

    def _expect(
        self, what: str, found: Callable[[], object], wanted: Callable[[], object], timeout_s: float
    ) -> None:
        try:
            eventually(lambda: found() == wanted(), timeout_s, what)
        except AssertionError:
            self.failures.append(f"{what}: {_difference(found(), wanted())}")

    def finish(self) -> Tally:
        restarts = {each["name"]: each["restarts"] for each in self.system.status()}
        if set(restarts) != set(SERVICES):
            self.failures.append(f"`liken status` names {sorted(restarts)} at the end")
        for service, count in restarts.items():
            if count != self.actions.kills[service]:
                self.failures.append(
                    f"the {service} was killed {self.actions.kills[service]} times"
                    f" and started again {count} times"
                )
        tally = self.checker.close()
        self.checked_s = time.monotonic() - self._begin
        self.failures += [each for each in tally.failures if each not in self.failures]
        if not tally.specs:
            self.failures.append("the checker never read a spec")
        if not self.actions.prepared:
            self.failures.append("no claim was ever prepared")
        code = self.system.close()
        if code != 0:
            self.failures.append(f"liken up ended with {code}")
        release_file_systems(*self._folders)
        self._check_memory()
        return tally

    def _check_memory(self) -> None:
        """Of the calm third: one process of each service, from its beginning to its end."""
        quarter = max(len(self._memory) // 4, 1)
        for service in SERVICES:
            first = [seen[service] for seen in self._memory[:quarter] if service in seen]
            last = [seen[service] for seen in self._memory[-quarter:] if service in seen]
            if not first or not last:
                print(f"memory of the {service} in the calm third: not measured")
                continue
            begin, end = (max(kib for _, kib in seen) for seen in (first, last))
            print(
                f"memory of the {service} in the calm third: {begin} KiB at the beginning, {end} at the end"
            )
            if len({pid for pid, _ in first + last}) != 1:
                self.failures.append(f"the {service} was started again although nobody killed it")
            if end > begin + GROWTH_KIB:
                self.failures.append(f"the memory of the {service} grows")


def _difference(found: object, wanted: object) -> str:
    if not isinstance(found, set) or not isinstance(wanted, set):
        return f"found {found}, wanted {wanted}"
    return f"too many {sorted(found - wanted, key=str)}, missing {sorted(wanted - found, key=str)}"


def _print(tally: Tally, run: Run) -> None:
    actions = run.actions
    share = 100 * run.quiet_s / max(run.played_s, 0.001)
    print(
        f"{share:.0f} % of the time nothing was killed, full or deleted lately: then the bound is {BOUND_S} s"
    )
    print(", ".join(f"{name} {count}" for name, count in sorted(actions.count.items())))
    print("killed: " + ", ".join(f"{name} {count}" for name, count in sorted(actions.kills.items())))
    print("refused: " + ", ".join(f"{words} ({count})" for words, count in sorted(actions.refused.items())))
    print(
        f"{actions.prepared} claims were prepared; the checker read {tally.specs} specs in"
        f" {tally.looks} looks, {tally.looks / max(run.checked_s, 0.001):.0f} a second"
    )
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
    _print(tally, run)
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
