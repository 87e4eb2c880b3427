"""The local adapter: a cluster that is a folder of YAML files."""

import threading
from pathlib import Path

import pytest
import yaml

from common.cluster import ClaimMissing, Cluster, ClusterUnavailable, Raw, SliceEvent
from common.cluster.local import MAX_EVENTS, LocalCluster, claim_path
from common.errors import MachineError
from services.publisher.slices import slices
from tests.publishing import NODE, devices, inventory
from tests.waiting import eventually

CLAIM: Raw = {"kind": "ResourceClaim", "metadata": {"name": "c", "namespace": "default", "uid": "u"}}


def body(count: int = 1, node: str = NODE) -> Raw:
    return slices(inventory(*devices(count)), node).slices[0]


def listen(cluster: Cluster, into: list[SliceEvent]) -> threading.Thread:
    def run() -> None:
        for event in cluster.watch_slices(""):
            into.append(event)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


def test_a_slice_is_a_file_of_its_name(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path)

    returned = cluster.apply_slice(body())

    assert returned == body()
    assert yaml.safe_load((tmp_path / "slices/n1-liken.sh.yaml").read_text()) == body()
    assert cluster.list_slices().items == [body()]


def test_a_deleted_slice_is_no_file_any_more(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path)
    held = cluster.apply_slice(body())

    cluster.delete_slice(held)
    cluster.delete_slice(held)

    assert list((tmp_path / "slices").iterdir()) == []


def test_the_longest_name_fits_into_a_file_name(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path)
    node = "n" * 253

    cluster.apply_slice(body(1, node))

    assert cluster.list_slices().items == [body(1, node)]


def test_there_are_no_slices_before_the_first(tmp_path: Path) -> None:
    assert LocalCluster(tmp_path / "none").list_slices().items == []


def test_it_has_no_nodes(tmp_path: Path) -> None:
    assert LocalCluster(tmp_path).node_uid() == ""


def test_a_claim_is_read_from_its_file(tmp_path: Path) -> None:
    path = claim_path(tmp_path, "default", "c")
    path.parent.mkdir(parents=True)
    path.write_text(yaml.safe_dump(CLAIM))

    assert LocalCluster(tmp_path).claim("default", "c", 1.0) == CLAIM


@pytest.mark.parametrize(
    ("namespace", "name"), [("default", "c"), ("..", "c"), ("default", "../c"), ("", "c")]
)
def test_a_claim_that_is_not_there_is_said_so(tmp_path: Path, namespace: str, name: str) -> None:
    with pytest.raises(ClaimMissing):
        LocalCluster(tmp_path).claim(namespace, name, 1.0)


@pytest.mark.parametrize("content", [b"[", b"", b"- a", b"metadata: 5", b"\xff\xfe\x00", b"a: &x [*x]"])
def test_a_file_that_is_no_object_is_named(tmp_path: Path, content: bytes) -> None:
    path = claim_path(tmp_path, "default", "c")
    path.parent.mkdir(parents=True)
    path.write_bytes(content)

    with pytest.raises(ClusterUnavailable, match=r"c\.yaml"):
        LocalCluster(tmp_path).claim("default", "c", 1.0)


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "slices").write_text("a file where the folder should be")

    with pytest.raises(MachineError, match="slices"):
        LocalCluster(tmp_path).apply_slice(body())


def test_a_watch_tells_what_others_do_to_the_files(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path, poll_s=0.01)
    cluster.apply_slice(body())
    path = tmp_path / "slices/n1-liken.sh.yaml"
    path.write_text(yaml.safe_dump(body(3)))
    found: list[SliceEvent] = []

    for event in cluster.watch_slices(""):
        found.append(event)
        if len(found) == 1:
            path.unlink()
        elif len(found) == 2:
            path.write_text(yaml.safe_dump(body(2)))
        else:
            cluster.close()

    assert [(event.kind, len(event.object["spec"]["devices"])) for event in found] == [
        ("MODIFIED", 3),
        ("DELETED", 3),
        ("ADDED", 2),
    ]


def test_a_file_that_goes_right_after_a_write_is_missed(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path, poll_s=0.01)
    found: list[SliceEvent] = []
    listen(cluster, found)

    cluster.apply_slice(body())
    (tmp_path / "slices/n1-liken.sh.yaml").unlink()
    eventually(lambda: found, what="an event")
    cluster.close()

    assert [event.kind for event in found] == ["DELETED"]


def test_a_watch_ends_when_the_cluster_is_closed(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path)
    thread = listen(cluster, [])

    cluster.close()

    eventually(lambda: not thread.is_alive(), what="the watch has ended")
    assert not thread.is_alive()


def test_events_are_kept_in_a_file_that_does_not_grow_without_end(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path)

    for number in range(MAX_EVENTS + 5):
        cluster.event("DevicesOverflow", f"note {number}", warning=True)

    events = yaml.safe_load((tmp_path / "events.yaml").read_text())
    assert len(events) == MAX_EVENTS
    assert (events[-1]["type"], events[-1]["note"]) == ("Warning", f"note {MAX_EVENTS + 4}")


def test_a_damaged_file_of_events_is_begun_anew(tmp_path: Path) -> None:
    (tmp_path / "events.yaml").write_text("[")

    LocalCluster(tmp_path).event("StorageUnknown", "note", warning=False)

    assert len(yaml.safe_load((tmp_path / "events.yaml").read_text())) == 1
