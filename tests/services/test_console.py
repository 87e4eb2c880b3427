"""The command against the real services, on a played machine."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.services.liken_command import LONG_S, Done, Up
from tests.services.process import clean_environment
from tests.waiting import eventually

ADAPTER, GPU, CARD = "usb-1-2-1-0", "pci-0000-00-02-0", "pci-0000-00-02-0-display"


@pytest.fixture(scope="module")
def up(short_dir: Path) -> Iterator[Up]:
    running = Up(short_dir)
    yield running
    running.stop()


@pytest.fixture(autouse=True)
def nothing_is_claimed(up: Up) -> Iterator[None]:
    yield
    for name in up.run("claims", "-o", "name").out.split():
        up.run("release", name)


def refused(done: Done, code: int, *words: str) -> bool:
    assert (done.code, done.out) == (code, "")
    assert len(done.err.splitlines()) == 1
    for word in words:
        assert word in done.err
    return True


def test_a_claim_is_prepared_and_printed_with_the_command_that_uses_it(up: Up) -> None:
    done = up.run("claim", "stick", ADAPTER, "-o", "json").json
    name = f"{done['uid']}-{ADAPTER}"
    assert done["claim"] == "default/stick"
    assert done["cdi"] == [f"liken.sh/device={name}"]
    assert done["podman"].startswith(f"podman --cdi-spec-dir {up.state}/cdi run ")
    assert up.specs() == {name: {"/dev/ttyUSB0", "/dev/bus/usb/001/002"}}


def test_the_same_claim_twice_is_the_same_claim(up: Up) -> None:
    first = up.run("claim", "stick", ADAPTER, "-o", "json").json
    assert up.run("claim", "stick", ADAPTER, "-o", "json").json == first
    assert refused(up.run("claim", "stick", GPU), 1, "release it, or take another name")


def test_an_exclusive_device_is_given_once_and_a_shareable_one_twice(up: Up) -> None:
    assert up.run("claim", "one", GPU, CARD).code == 0
    assert up.run("claim", "two", GPU).code == 0
    assert refused(up.run("claim", "three", CARD), 1, CARD, "held by the claim default/one")
    assert up.run("claims", "-o", "name").out.split() == ["default/one", "default/two"]


def test_what_cannot_be_claimed_is_told_and_leaves_nothing(up: Up) -> None:
    assert refused(up.run("claim", "x", "usb-1-2-1-1"), 1, f"did you mean {ADAPTER}")
    assert refused(up.run("claim", "UPPER", ADAPTER), 1, "no name for a claim")
    assert refused(up.run("claim", "../../etc/x", ADAPTER), 1, "no name for a claim")
    assert refused(up.run("claim", "x"), 2, "liken claim --help")
    assert (up.run("claims", "-o", "json").json, up.specs()) == ([], {})


def test_hardware_that_has_just_gone_is_refused_and_nothing_stays_allocated(up: Up) -> None:
    up.run("unplug", "1-2")
    try:
        assert refused(up.run("claim", "stick", ADAPTER), 1, ADAPTER)
        assert (up.run("claims", "-o", "json").json, up.specs()) == ([], {})
    finally:
        up.run("plug", "1-2")
    assert eventually(lambda: ADAPTER in up.offered(), LONG_S, "the adapter is back in the slice")


def test_of_two_claims_at_once_on_one_device_one_gets_it(up: Up) -> None:
    started = [
        subprocess.Popen(
            [sys.executable, "-P", "-m", "services.console", "claim", name, CARD, "--state", str(up.state)],
            env=clean_environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for name in ("one", "two")
    ]
    errors = [process.communicate(timeout=60)[1] for process in started]
    assert sorted(process.returncode for process in started) == [0, 1]
    assert [error for error in errors if error] == [error for error in errors if "is held by" in error]
    assert len(up.run("claims", "-o", "name").out.split()) == 1


def test_a_whole_unplug_and_plug_as_a_user_sees_it(up: Up) -> None:
    uid = up.run("claim", "stick", ADAPTER, "-o", "json").json["uid"]
    before = up.specs()[f"{uid}-{ADAPTER}"]
    assert up.run("unplug", "1-2").code == 0
    absent = {f"/dev/liken.sh/absent/{ADAPTER}"}
    eventually(lambda: up.specs()[f"{uid}-{ADAPTER}"] == absent, 5, "the spec names the absent node")
    eventually(lambda: ADAPTER not in up.offered(), 5, "the slice lacks the adapter")
    (row,) = up.run("claims", "-o", "json").json
    assert (row["device"], row["state"]) == (ADAPTER, "absent")
    assert f"! claim default/stick: {ADAPTER} is absent" in up.run("status").out
    assert refused(up.run("unplug", "1-2"), 1, "no device 1-2")
    assert up.run("plug", "1-2").code == 0
    eventually(lambda: up.specs()[f"{uid}-{ADAPTER}"] not in (absent, before), 5, "the spec names new nodes")
    eventually(lambda: ADAPTER in up.offered(), 5, "the slice has the adapter")
    assert refused(up.run("plug", "1-2"), 1, "1-2 is not unplugged")


def test_a_release_takes_record_and_spec_away_and_may_be_repeated(up: Up) -> None:
    up.run("claim", "team/stick", ADAPTER)
    assert up.run("release", "team/stick").out == "released team/stick\n"
    assert up.specs() == {}
    again = up.run("release", "team/stick")
    assert (again.code, again.out) == (0, "there is no claim team/stick: nothing to release\n")


def test_a_claim_can_be_released_by_its_uid(up: Up) -> None:
    uid = up.run("claim", "stick", ADAPTER, "-o", "json").json["uid"]
    assert up.run("release", "--force", uid).code == 0
    assert (up.specs(), up.run("claims", "-o", "json").json) == ({}, [])
    assert refused(up.run("release", "--force", "../x"), 1, "no UID")
    assert refused(up.run("release"), 2, "NAME, or --force UID")


def test_devices_and_slices_are_those_of_the_machine_that_is_up(up: Up) -> None:
    names = up.run("devices", "-o", "name").out.split()
    assert names == up.offered()
    (document,) = yaml.safe_load_all(up.run("slices", "-o", "yaml").out)
    assert [device["name"] for device in document["spec"]["devices"]] == names
    assert document["metadata"]["name"] == "n1-liken.sh"


def test_status_tells_processes_inventory_and_claims(up: Up) -> None:
    up.run("claim", "stick", ADAPTER)
    told = up.run("status", "-o", "json").json
    assert [each["name"] for each in told["processes"]] == ["plugin", "publisher", "reconciler", "watcher"]
    assert told["inventory"]["devices"] == len(up.offered())
    assert 0 <= told["inventory"]["age_s"] < 120
    assert [claim["name"] for claim in told["claims"]] == ["stick"]
    assert told["troubles"] == []


def test_a_killed_service_is_counted_and_another_one_takes_its_place(up: Up) -> None:
    before = up.pids()
    os.kill(before["reconciler"], signal.SIGKILL)
    eventually(lambda: up.pids()["reconciler"] not in (0, before["reconciler"]), LONG_S, "it runs again")
    told = {each["name"]: each["restarts"] for each in up.run("status", "-o", "json").json["processes"]}
    assert (told["reconciler"], told["watcher"]) == (1, 0)
    assert {**up.pids(), "reconciler": 0} == {**before, "reconciler": 0}


def test_an_unplug_without_a_listener_says_so(up: Up) -> None:
    os.kill(up.pids()["watcher"], signal.SIGSTOP)
    try:
        assert up.run("unplug", "1-4").code == 0
    finally:
        os.kill(up.pids()["watcher"], signal.SIGCONT)
    assert up.run("plug", "1-4").code == 0
    assert eventually(lambda: "usb-1-4-1-0" in up.offered(), LONG_S, "the stick is back in the slice")
