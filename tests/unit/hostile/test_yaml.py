"""YAML that others wrote: the machine file and the objects of a local cluster."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.cluster import ClaimMissing, ClusterUnavailable
from common.cluster.local import LocalCluster, claim_path
from common.errors import RequestError
from common.hardware.machine import Machine, load_machine, parse_machine
from common.yamltext import MAX_BYTES, YamlError, read_yaml
from tests.unit.hostile.bounds import any_folder, bounded, is_one_line, outcome
from tests.unit.hostile.texts import damaged

MACHINE = b"""spec:
  serio:
  - {protocol: pulse8-cec, vendor: 2548, product: 1002, serial: "0012"}
  storage:
    roles: [nvme0n1, /dev/sda, "0000:00:17.0"]
  release: [watchdog, mei]
"""
CLAIM = b"""apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {namespace: default, name: c, uid: 0a1b2c3d-0000-4000-8000-000000000001, created: 2026-01-01}
status:
  allocation:
    devices:
      results:
      - {request: r, driver: liken.sh, pool: n1, device: usb-1-1-1-0}
"""
BOMB = b"a: &a [x, x]\n" + b"".join(
    b"b%d: &b%d [*%s, *%s]\n" % (n, n, p, p)
    for n, p in ((n, b"a" if n == 0 else b"b%d" % (n - 1)) for n in range(60))
)
MERGES = b"b0: &b0 {x: 1}\n" + b"".join(
    b"b%d: &b%d {<<: [%s]}\n" % (n, n, b", ".join([b"*b%d" % (n - 1)] * 9)) for n in range(1, 12)
)
HOSTILE = {
    "aliases that double": BOMB,
    "merges that multiply": MERGES,
    "an alias to itself": b"metadata: &a {name: *a}\n",
    "lists without end": b"[" * 200_000,
    "rows without end": b"- " * 200_000,
    "mappings without end": b"{a: " * 200_000,
    "a tag": b"metadata: {name: !!timestamp x}\n",
    "an object of Python": b"metadata: !!python/object/apply:os.system [true]\n",
    "more than any object": b"#" * (MAX_BYTES + 1),
    "no characters": b"\xff\xfe\x00",
}
NUMBERS = {  # where every scalar is text, these are names like others
    "a number of a million digits": b"metadata: {name: %s}\n" % (b"9" * 1_000_000),
    "a day that is none": b"metadata: {name: 2026-99-99}\n",
}


@given(content=damaged(MACHINE))
def test_any_machine_file_is_a_machine_or_a_refusal_in_one_line(content: bytes) -> None:
    found = outcome(lambda: parse_machine(content, "machine.yaml"), RequestError)
    assert isinstance(found, Machine | RequestError)
    assert is_one_line(found)


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_machine_file_is_refused_at_once(content: bytes) -> None:
    with bounded(64), pytest.raises(RequestError) as refusal:
        parse_machine(content, "machine.yaml")
    assert len(str(refusal.value)) < 500


def test_of_a_machine_file_of_100_mb_no_more_is_read_than_one_can_have(tmp_path: Path) -> None:
    path = tmp_path / "machine.yaml"
    with path.open("wb") as file:
        file.truncate(25 * MAX_BYTES)
    with bounded(32), pytest.raises(RequestError, match="larger than"):
        load_machine(path)


@any_folder
@given(content=damaged(CLAIM))
def test_any_object_of_a_local_cluster_is_one_or_an_error_that_names_its_file(
    tmp_path: Path, content: bytes
) -> None:
    cluster = LocalCluster(tmp_path)
    for path in (claim_path(tmp_path, "default", "c"), tmp_path / "slices/s.yaml"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    for look in (lambda: cluster.claim("default", "c", 1.0), lambda: cluster.list_slices().items):
        found = outcome(look, ClusterUnavailable)
        assert isinstance(found, dict | list) or "repair or remove that file" in str(found)
        assert is_one_line(found)


@pytest.mark.parametrize("content", (HOSTILE | NUMBERS).values(), ids=HOSTILE | NUMBERS)
def test_a_hostile_object_of_a_local_cluster_is_refused_at_once(tmp_path: Path, content: bytes) -> None:
    cluster = LocalCluster(tmp_path)
    (tmp_path / "slices").mkdir()
    (tmp_path / "slices/s.yaml").write_bytes(content)
    with bounded(64), pytest.raises(ClusterUnavailable, match="repair or remove"):
        cluster.list_slices()


@any_folder
@given(content=damaged(b"- {time: x, type: Normal, reason: r, note: n}\n"))
def test_any_file_of_events_takes_another_event(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "events.yaml").write_bytes(content)
    LocalCluster(tmp_path).event("Reason", "a note", warning=True)
    assert read_yaml((tmp_path / "events.yaml").read_bytes())[-1]["note"] == "a note"


@given(namespace=st.text(max_size=20) | st.just(".."), name=st.text(max_size=20) | st.just("../../x"))
def test_a_claim_lies_inside_the_cluster_whatever_it_is_called(namespace: str, name: str) -> None:
    root = Path("/cluster")
    try:
        path = claim_path(root, namespace, name)
    except ClaimMissing:
        path = root / "claims/none/none.yaml"
    assert path.parent.parent == root / "claims"
    assert ".." not in path.parts


def test_what_the_local_cluster_writes_it_reads_back_although_parts_are_the_same_object(
    tmp_path: Path,
) -> None:
    same = {"string": "usb"}
    body = {"metadata": {"name": "s"}, "spec": {"devices": [{"a": same, "b": same}, {"a": same}]}}
    cluster = LocalCluster(tmp_path)
    cluster.apply_slice(body)
    assert cluster.list_slices().items == [body]


def test_a_note_of_hostile_signs_reads_back(tmp_path: Path) -> None:
    note = "&a *b !c \u2028 \x1b[31m #"
    LocalCluster(tmp_path).event("Reason", note, warning=False)
    assert read_yaml((tmp_path / "events.yaml").read_bytes())[0]["note"] == note


def test_the_error_tells_the_line() -> None:
    with pytest.raises(YamlError) as refusal:
        read_yaml(b"a: 1\nb: *x\n")
    assert refusal.value.line == 2
