"""The whole chain as four real processes: hardware to slice, claim to spec, and true again after a change."""

import statistics
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import yaml

from tests.services.kubelet_stand_in import Claim
from tests.services.machine import SERVICES, SETTLE_S, PlayedMachine, device
from tests.services.process import Process
from tests.waiting import eventually

CLAIMS = range(1, 31)
ADAPTERS = range(1, 33)  # two that nobody claims
SAFE_S = 0.050  # from the remove event to a spec that names no node of the hardware


class Running:
    def __init__(self, machine: PlayedMachine, processes: dict[str, Process]) -> None:
        self.machine = machine
        self.processes = processes


@pytest.fixture(scope="module")
def running(short_dir: Path) -> Iterator[Running]:
    """Thirty prepared claims on a machine with four running services, for all tests of this module."""
    machine = PlayedMachine(short_dir, len(ADAPTERS))
    try:
        processes = machine.start_all()
        machine.prepare(CLAIMS)
        machine.all_is_well(ADAPTERS)
        yield Running(machine, processes)
    finally:
        machine.close()


def test_an_unplugged_device_is_safe_long_before_the_slice_follows(
    running: Running, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = running.machine
    times = []
    for number in (1, 7, 30, 12, 25):
        removed = machine.unplug(number).at
        eventually(partial(machine.is_right, number), 5, "the spec is safe", step_s=0.0005)
        times.append(time.monotonic() - removed)
        assert device(number) in machine.published()
        machine.all_is_well(ADAPTERS)
    with capsys.disabled():
        told = ", ".join(f"{seconds * 1000:.0f}" for seconds in sorted(times))
        print(f"\n  remove event to safe spec, 30 claims: {told} ms (promised: {SAFE_S * 1000:.0f})")
    assert statistics.median(times) < SETTLE_S
    for number in (1, 7, 30, 12, 25):
        machine.plug(number)
    machine.all_is_well(ADAPTERS)


def test_a_replugged_device_has_its_new_nodes_in_the_old_claims_spec(running: Running) -> None:
    machine = running.machine
    before = machine.nodes(3)
    machine.unplug(3)
    machine.plug(3)
    machine.all_is_well(ADAPTERS)
    assert machine.nodes(3) != before
    assert machine.given(machine.claims[3]) == {device(3): machine.nodes(3)}


def test_a_flapping_device_is_walked_for_and_ends_true(running: Running) -> None:
    machine = running.machine
    for _ in range(10):
        machine.unplug(5)
        machine.plug(5)
    machine.all_is_well(ADAPTERS)
    assert machine.given(machine.claims[5]) == {device(5): machine.nodes(5)}


def test_a_device_that_resets_for_ever_costs_no_more_than_one_write_per_burst(
    running: Running, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = running.machine
    watcher, publisher = running.processes["watcher"], running.processes["publisher"]
    applied = 'liken_slice_writes_total{outcome="applied"}'
    walks, writes = watcher.metric("liken_walk_seconds_count"), publisher.metric(applied)
    memory = {service: process.memory_kib() for service, process in running.processes.items()}
    begin = time.monotonic()
    for _ in range(100):
        machine.unplug(9)
        machine.plug(9)
    took = time.monotonic() - begin
    machine.all_is_well(ADAPTERS)
    walks, writes = watcher.metric("liken_walk_seconds_count") - walks, publisher.metric(applied) - writes
    grown = {
        service: process.memory_kib() - memory[service] for service, process in running.processes.items()
    }
    with capsys.disabled():
        print(f"\n  100 resets in {took:.1f} s: {walks:.0f} walks, {writes:.0f} writes; KiB grown: {grown}")
    assert writes <= walks
    assert walks <= 2 + (took + 2 * SETTLE_S) / SETTLE_S
    assert max(grown.values()) < 8 * 1024
    assert machine.given(machine.claims[9]) == {device(9): machine.nodes(9)}


def test_bad_claims_of_a_call_fail_with_a_sentence_and_the_good_one_is_prepared(running: Running) -> None:
    machine = running.machine
    good = machine.claim(device(31))
    unknown = machine.claim("usb-9-9-1-0")
    twice = machine.claim(device(1))
    unallocated = Claim("default", "unallocated", "3f0e1f6e-0000-4000-8000-000000000001")
    machine.put_claim(unallocated, {})
    recreated = machine.claim(device(32), name="recreated")._replace(
        uid="3f0e1f6e-0000-4000-8000-000000000002"
    )
    missing = Claim("default", "missing", "3f0e1f6e-0000-4000-8000-000000000003")
    bad = [unknown, twice, unallocated, recreated, missing]
    answers = machine.kubelet.prepare(*bad[:3], good, *bad[3:])
    assert answers[good.uid].error == ""
    for claim in bad:
        error = answers[claim.uid].error
        assert error
        assert "\n" not in error
        assert "Traceback" not in error
        assert machine.given(claim) == {}
    assert machine.given(good) == {device(31): machine.nodes(31)}
    assert machine.kubelet.unprepare(good, *bad) == dict.fromkeys(
        [good.uid, *(claim.uid for claim in bad)], ""
    )
    machine.all_is_well(ADAPTERS)


def test_a_claim_that_could_not_be_read_is_prepared_when_the_kubelet_tries_again(running: Running) -> None:
    machine = running.machine
    claim = machine.claim(device(31))
    path = machine.cluster / "claims/default" / f"{claim.name}.yaml"
    content = path.read_text()
    path.write_text("{ this is no claim")
    assert machine.kubelet.prepare(claim)[claim.uid].error
    path.write_text(content)
    assert machine.kubelet.prepare(claim)[claim.uid].error == ""
    assert machine.kubelet.unprepare(claim) == {claim.uid: ""}
    machine.all_is_well(ADAPTERS)


def test_an_unreadable_machine_empties_nothing(running: Running) -> None:
    machine = running.machine
    watcher = running.processes["watcher"]
    before = {number: machine.given(claim) for number, claim in machine.claims.items()}
    published = machine.published()
    (machine.machine.root / "sys").rename(machine.machine.root / "away")
    try:
        machine.send("remove", "/devices/pci0000:00/0000:00:14.0/usb1/1-1")
        eventually(lambda: watcher.metric("liken_walk_failed") == 1, 10, "the watcher cannot read")
        eventually(
            lambda: {one.state for claim in machine.told() for one in claim.devices} == {"unknown"}, 10
        )
    finally:
        (machine.machine.root / "away").rename(machine.machine.root / "sys")
    assert {number: machine.given(claim) for number, claim in machine.claims.items()} == before
    assert machine.published() == published
    eventually(lambda: watcher.metric("liken_walk_failed") == 0, 10, "the watcher reads again")
    machine.all_is_well(ADAPTERS)


def test_a_restart_of_all_four_writes_nothing_when_nothing_changed(running: Running) -> None:
    machine = running.machine
    machine.all_is_well(ADAPTERS)
    files = [*machine.cdi.glob("*.json"), *(machine.cluster / "slices").glob("*.yaml")]
    files += (machine.plugin_dir / "claims").rglob("*.json")
    before = {path: (path.stat().st_mtime_ns, path.stat().st_ino) for path in files}
    for service in SERVICES:
        assert running.processes[service].stop() == 0, running.processes[service].log
    running.processes |= machine.start_all()
    eventually(lambda: len(machine.told()) == len(CLAIMS), 10)
    machine.registered()
    machine.all_is_well(ADAPTERS)
    assert {path: (path.stat().st_mtime_ns, path.stat().st_ino) for path in files} == before


def test_every_slice_is_a_resource_slice_of_this_node(running: Running) -> None:
    bodies = [
        yaml.safe_load(path.read_text()) for path in (running.machine.cluster / "slices").glob("*.yaml")
    ]
    assert [(body["apiVersion"], body["kind"], body["metadata"]["name"]) for body in bodies] == [
        ("resource.k8s.io/v1", "ResourceSlice", "n1-liken.sh")
    ]


def test_all_four_are_healthy_and_end_by_themselves(running: Running) -> None:
    for process in running.processes.values():
        assert process.get("/healthz")[0] == 200
        assert "liken_build_info" in process.get("/metrics")[1]
    assert {service: process.stop() for service, process in running.processes.items()} == dict.fromkeys(
        SERVICES, 0
    )
    running.processes |= running.machine.start_all()
    running.machine.registered()
    running.machine.all_is_well(ADAPTERS)


def test_a_disk_that_the_host_mounts_is_taken_from_its_claim_at_once(run_dir: Path) -> None:
    machine = PlayedMachine(run_dir, 1)
    stick = machine.machine.usb("1-2")
    interface = machine.machine.interface(stick, 0, driver="usb-storage", usb_class="08")
    disk = machine.machine.scsi_disk(interface, "sda")
    withheld = {device(2): {f"/dev/liken.sh/withheld/{device(2)}"}}
    try:
        machine.start_all()
        machine.prepare([2])
        claim = machine.claims[2]
        assert "/dev/sda" in machine.given(claim)[device(2)]
        machine.machine.mount(disk)
        eventually(lambda: machine.given(claim) == withheld, 5, "the spec is safe")
        eventually(lambda: machine.published() == {device(1)}, 5, "the slice follows")
    finally:
        machine.close()
