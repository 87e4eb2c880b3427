"""The publisher process against an API server: the stand-in, or the real one of LIKEN_TEST_KUBECONFIG."""

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from common.cluster import Raw
from common.inventory import Device
from services.publisher.slices import slices
from tests.publishing import UNKNOWN, device, devices, inventory
from tests.services.publishing_rig import Rig, Server, open_server
from tests.waiting import eventually

GPU = device("pci-0000-00-02-0", {"renderNode": {"bool": True}}, shareable=True)
STICK = device("usb-1-2-1-0", {"serial": {"string": "00000001"}})
SOON_S = 15.0  # of a loaded machine; what must be quick is measured
AT_ONCE_S = 1.0


@pytest.fixture
def server(run_dir: Path) -> Iterator[Server]:
    yield from open_server(run_dir)


@pytest.fixture
def rig(run_dir: Path, server: Server) -> Iterator[Rig]:
    made = Rig(run_dir, server)
    yield made
    made.close()


def running(rig: Rig, *found: Device) -> None:
    """A node with a publisher whose slices are written."""
    rig.server.add_node()
    rig.start()
    rig.offer(*found)
    eventually(rig.shows(*found), SOON_S, "the first slices")


def versions(server: Server) -> dict[str, str]:
    return {name: item["metadata"]["resourceVersion"] for name, item in server.slices().items()}


def test_an_inventory_becomes_the_slice_that_the_rules_make_of_it(rig: Rig) -> None:
    uid = rig.server.add_node()
    rig.start()
    rig.offer(STICK, device("pci-0000-00-1f-3"))
    eventually(lambda: rig.server.slices(), SOON_S, "a slice")

    item = rig.server.slices()[rig.first]
    (wanted,) = slices(inventory(STICK, device("pci-0000-00-1f-3")), rig.server.node, node_uid=uid).slices

    assert item["spec"] == wanted["spec"]
    assert item["metadata"]["ownerReferences"] == wanted["metadata"]["ownerReferences"]
    assert [entry["manager"] for entry in item["metadata"]["managedFields"]] == ["liken"]


def test_text_that_yaml_would_not_take_is_published_unchanged(rig: Rig) -> None:
    odd = device("usb-9", {"name": {"string": '\x01\t\n\x7f\x85\x9f\u2028\ufeff\U0001f600"\\ '}})
    running(rig, odd)

    (entry,) = devices_of(rig.server.slices()[rig.first]["spec"])
    assert entry["attributes"] == odd.attributes


def test_without_a_change_nothing_is_written_and_with_one_a_single_slice_is(rig: Rig) -> None:
    many = devices(200)
    running(rig, *many)
    before = versions(rig.server)

    for _ in range(3):
        rig.offer(*many)
    rig.offer(*many, STICK)
    eventually(rig.shows(*many, STICK), SOON_S, "the slices with the stick")

    assert [name for name, version in versions(rig.server).items() if version != before[name]] == [
        f"{rig.first}-2"
    ]


def test_the_hot_plug_time_is_measured(rig: Rig) -> None:
    running(rig)
    stirred = time.clock_gettime(time.CLOCK_BOOTTIME) - 1.0
    process = rig.start()  # stands by: it must not measure
    rig.offer(STICK, stirred=stirred)
    eventually(rig.shows(STICK), SOON_S, "the stick")

    active = rig.processes[0]
    eventually(
        lambda: active.metric("liken_hot_plug_to_slice_seconds_count") == 1.0, SOON_S, "one measurement"
    )
    assert 1.0 <= active.metric("liken_hot_plug_to_slice_seconds_sum") <= 1.0 + SOON_S
    assert process.metric("liken_hot_plug_to_slice_seconds_count") == 0.0


def test_a_killed_publisher_takes_up_its_slices_without_a_write(rig: Rig) -> None:
    many = devices(300)
    running(rig, *many)
    before = versions(rig.server)

    rig.processes[0].kill()
    process = rig.start()
    eventually(lambda: process.metric("liken_slices") == 3.0, SOON_S, "the new process has looked")

    assert versions(rig.server) == before
    assert process.metric('liken_slice_writes_total{outcome="applied"}') == 0.0


def test_the_end_of_the_publisher_leaves_the_slices(rig: Rig) -> None:
    running(rig, STICK)
    before = versions(rig.server)

    code = rig.processes[0].stop()

    assert code == 0
    assert versions(rig.server) == before


def test_slices_that_a_starting_kubelet_deletes_are_back_within_a_second(rig: Rig) -> None:
    """K4."""
    many = devices(300)
    running(rig, *many)
    before = {name: item["spec"] for name, item in rig.server.slices().items()}

    for _ in range(3):
        rig.server.delete_all()
        start = time.monotonic()
        eventually(rig.shows(*many), SOON_S, "all slices again")
        took_s = time.monotonic() - start
        print(f"three deleted slices were back after {took_s * 1000:.0f} ms")

        assert took_s < AT_ONCE_S
        assert {name: devices_of(item["spec"]) for name, item in rig.server.slices().items()} == {
            name: devices_of(spec) for name, spec in before.items()
        }


def test_a_slice_deleted_right_after_a_write_is_back_within_a_second(rig: Rig) -> None:
    """K4."""
    running(rig)

    for number in range(5):
        found = devices(number + 1)
        rig.offer(*found)
        eventually(rig.shows(*found), SOON_S, "the write")
        rig.server.delete(rig.first)
        start = time.monotonic()
        eventually(rig.shows(*found), SOON_S, "the slice again")

        assert time.monotonic() - start < AT_ONCE_S


def test_slices_deleted_during_an_update_of_several_are_back_whole(rig: Rig) -> None:
    """K4."""
    many = devices(500)
    running(rig, *many)

    rig.offer(*many[1:-1])  # changes the first and the last slice: a new generation of all four
    rig.server.delete_all()
    eventually(rig.shows(*many[1:-1]), SOON_S, "all slices again")

    pools = {pool(item) for item in rig.server.slices().values()}
    assert len(pools) == 1
    assert {count for _, count in pools} == {len(rig.server.slices())}


def test_a_slice_that_somebody_altered_is_put_right_within_a_second(rig: Rig) -> None:
    running(rig, STICK, GPU)

    rig.server.edit(rig.first, lambda item: item["spec"]["devices"].pop())
    start = time.monotonic()
    eventually(rig.shows(STICK, GPU), SOON_S, "both devices")

    assert time.monotonic() - start < AT_ONCE_S


def test_devices_that_leave_take_their_slices_with_them(rig: Rig) -> None:
    many = devices(300)
    running(rig, *many)

    rig.offer(*many[:10])
    eventually(lambda: list(rig.server.slices()) == [rig.first], SOON_S, "one slice")

    assert rig.published() == [item.name for item in many[:10]]
    assert {pool(item) for item in rig.server.slices().values()} == {(2, 1)}


def test_a_node_without_anything_to_offer_has_an_empty_slice(rig: Rig) -> None:
    running(rig)

    assert {name: devices_of(item["spec"]) for name, item in rig.server.slices().items()} == {rig.first: []}


def test_hardware_that_cannot_be_read_changes_nothing(rig: Rig) -> None:
    running(rig, STICK)
    before = versions(rig.server)

    rig.fail("cannot read /sys/bus")
    condition = 'liken_publisher_condition{condition="HardwareUnreadable"}'
    eventually(lambda: rig.processes[0].metric(condition) == 1.0, SOON_S, "the error is known")

    assert versions(rig.server) == before


def test_a_node_that_is_not_there_yet_is_waited_for(rig: Rig) -> None:
    process = rig.start()
    rig.offer(STICK)
    eventually(lambda: "is not in the cluster" in process.log, SOON_S, "the publisher says so")
    assert rig.server.slices() == {}

    rig.server.add_node()

    eventually(rig.shows(STICK), 10.0, "the slice")
    assert process.log.count("is not in the cluster") == 1


def test_a_standby_takes_over_within_a_second_of_the_active_ones_end(rig: Rig) -> None:
    running(rig, STICK)
    standby = rig.start()
    eventually(lambda: standby.metric("liken_api_connected") == 1.0, SOON_S, "the standby has listed")
    assert standby.metric("liken_publisher_active") == 0.0

    rig.processes[0].signal(signal.SIGSTOP)  # alive, holds the lock, and does nothing
    rig.offer(STICK, GPU)
    eventually(lambda: "stands by" in standby.log, SOON_S, "the second instance stands by")
    assert rig.published() == [STICK.name]
    rig.processes[0].kill()
    start = time.monotonic()
    eventually(rig.shows(STICK, GPU), SOON_S, "the standby writes")
    took_s = time.monotonic() - start
    print(f"the standby wrote {took_s * 1000:.0f} ms after the end of the active one")

    assert took_s < AT_ONCE_S + 0.5  # with the write


def test_unknown_storage_is_an_event_on_the_node(rig: Rig) -> None:
    running(rig, STICK)

    for _ in range(3):
        rig.offer(STICK, facts=UNKNOWN)
    eventually(lambda: rig.server.events() == ["StorageUnknown"], SOON_S, "the event")

    assert rig.processes[0].log.count("no disk is offered") == 1


def test_too_many_devices_are_told_and_claimed_ones_stay(rig: Rig) -> None:
    many = devices(1030)
    rig.claimed(many[-1].name)
    running(rig, *many[:1023], many[-1])

    rig.offer(*many)
    eventually(lambda: rig.server.events() == ["DevicesOverflow"], SOON_S, "the event")

    assert rig.published() == [item.name for item in (*many[:1023], many[-1])]
    assert rig.processes[0].metric("liken_overflow_devices") == 6.0


def pool(item: Raw) -> tuple[int, int]:
    return item["spec"]["pool"]["generation"], item["spec"]["pool"]["resourceSliceCount"]


def devices_of(spec: Raw) -> list[Raw]:
    return spec.get("devices") or []
