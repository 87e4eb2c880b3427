"""The machine file: strict, and every error names its place."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.errors import RequestError
from common.hardware.machine import Machine, SerialLine, load_machine, machine_of, parse_machine
from tests.builders import MachineBuilder

WHOLE = b"""
spec:
  serio:
  - {protocol: pulse8-cec, vendor: 2548, product: 1002}
  - {protocol: rainshadow-cec, vendor: 0x04D8, product: FF59, serial: 0012}
  storage:
    roles: [nvme0n1, /dev/sda, "0000:00:17.0"]
  release: [watchdog, mei]
"""


def test_everything_is_read() -> None:
    assert parse_machine(WHOLE, "machine.yaml") == Machine(
        serio=(
            SerialLine("pulse8-cec", "2548", "1002"),
            SerialLine("rainshadow-cec", "04d8", "ff59", "0012"),
        ),
        roles=frozenset({"nvme0n1", "sda", "0000:00:17.0"}),
        release=frozenset({"watchdog", "mei"}),
    )


def test_ids_need_no_quotes() -> None:
    content = b"spec: {serio: [{protocol: pulse8-cec, vendor: 0403, product: 6e10}]}"
    (line,) = parse_machine(content, "machine.yaml").serio
    assert (line.vendor, line.product) == ("0403", "6e10")


@pytest.mark.parametrize(
    "content", [b"", b"spec:\n", b"apiVersion: v1\nkind: Machine\nmetadata: {name: n1}\n"]
)
def test_a_file_that_declares_nothing_declares_nothing(content: bytes) -> None:
    assert parse_machine(content, "machine.yaml") == Machine()


def test_a_missing_file_declares_nothing(tmp_path: Path) -> None:
    assert load_machine(tmp_path / "machine.yaml") == Machine()


def test_no_roles_and_an_empty_list_of_roles_differ() -> None:
    assert parse_machine(b"spec: {storage: {roles: []}}", "f").roles == frozenset()
    assert parse_machine(b"spec: {storage: {}}", "f").roles is None


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("/dev/sda", "sda"),
        ("/dev/../dev/sda", "sda"),
        ("/dev/cciss/c0d0", "cciss/c0d0"),
        ('"00:17.0"', "0000:00:17.0"),
        ('"10000:00:17.0"', "10000:00:17.0"),
    ],
)
def test_a_role_is_a_disk_or_an_address_however_it_is_written(written: str, meant: str) -> None:
    content = f"spec: {{storage: {{roles: [{written}]}}}}".encode()
    assert parse_machine(content, "f").roles == frozenset({meant})


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"spec: [1]", "spec has to be a mapping"),
        (b"- 1", "the file has to be a mapping"),
        (b"specs: {}", "specs is not known; did you mean spec?"),
        (b"spec: {stoarge: {}}", "spec.stoarge is not known; did you mean storage?"),
        (b"spec: {release: [watchdgo]}", "spec.release[0] 'watchdgo' is not known"),
        (b"spec: {release: [tpm]}", "spec.release[0] 'tpm' is not known"),
        (b"spec: {release: watchdog}", "spec.release has to be a list"),
        (b"spec: {storage: {roles: [{}]}}", "spec.storage.roles[0] has to be a text"),
        (
            b"spec: {storage: {roles: [/dev/disk/by-id/x]}}",
            "spec.storage.roles[0] '/dev/disk/by-id/x' is no name of a disk",
        ),
        (b"spec: {storage: {roles: [/dev/mapper/root]}}", "roles[0] '/dev/mapper/root' is no name of a disk"),
        (b"spec: {storage: {roles: [/dev//disk/by-id/x]}}", "is no name of a disk"),
        (b"spec: {storage: {roles: [UUID=1234]}}", "roles[0] 'UUID=1234' is no name of a disk"),
        (b"spec: {storage: {roles: [/sys/block/sda]}}", "roles[0] '/sys/block/sda' is no name of a disk"),
        (b"spec: {storage: {roles: }}", "spec.storage.roles names no disk; write []"),
        (b"spec: {storage: {roles: sda}}", "spec.storage.roles has to be a list"),
        (
            b"spec:\n  release: []\n  release: []\n",
            "machine.yaml, line 3: this is not YAML: release is there twice",
        ),
        (b"spec: {storage: {roles: [a], roles: [b]}}", "roles is there twice"),
        (b"a:\n- {b: 1, b: 2}\n", "line 2: this is not YAML: b is there twice"),
        (b"a: &a [*a]", "this is not YAML"),
        (b"a: " + b"[" * 5000, "this is not YAML"),
        (b"spec: {serio: [{vendor: 2548, product: 1002}]}", "spec.serio[0].protocol has to be a text"),
        (b"spec: {serio: [{protocol: x, vendor: 2548, product: 1002}]}", "spec.serio[0].protocol 'x'"),
        (
            b"spec: {serio: [{protocol: pulse8-cec, vendor: 25489, product: 1002}]}",
            "spec.serio[0].vendor '25489' is not a USB id; write four hex digits",
        ),
        (b"spec: {serio: [{protocol: pulse8-cec, vendor: 2548}]}", "spec.serio[0].product has to be"),
        (b"spec:\n  a: [\n", "line"),
        (b"\xff\xfe\x00", "this is not YAML"),
    ],
)
def test_a_wrong_file_is_refused_with_its_place(content: bytes, words: str) -> None:
    with pytest.raises(RequestError) as error:
        parse_machine(content, "machine.yaml")
    assert words in str(error.value)
    assert str(error.value).startswith("machine.yaml")
    assert "\n" not in str(error.value)


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="cannot read the machine file"):
        load_machine(tmp_path)


def test_a_tree_may_carry_its_own(machine: MachineBuilder) -> None:
    assert machine_of(machine.tree()) == Machine()
    machine.write("etc/liken/machine.yaml", "spec: {release: [mei]}\n")
    assert machine_of(machine.tree()) == Machine(release=frozenset({"mei"}))


@given(content=st.binary(max_size=80))
def test_any_bytes_are_a_machine_or_a_clear_refusal(content: bytes) -> None:
    try:
        result: object = parse_machine(content, "machine.yaml")
    except RequestError as error:
        result = error
    assert isinstance(result, Machine | RequestError)
