"""What the publisher does in one situation after another, on a cluster and a clock in memory."""

import itertools
import logging
from collections.abc import Callable

import pytest
from prometheus_client import CollectorRegistry

from common.cluster import Cause, ClusterUnavailable, Raw, Refused
from common.inventory import ClaimPresence, Device, DevicePresence, InventoryMessage, Presence
from services.publisher.metrics import Metrics
from services.publisher.publisher import Publisher
from services.publisher.seen import Seen
from services.publisher.watching import Watching
from services.publisher.writer import Clocks
from tests.publishing import DRIVER, NODE, UNKNOWN, MemoryCluster, device, devices, message
from tests.services.api_store import ApiStore

GPU = device("pci-0000-00-02-0", {"class": {"string": "display"}}, shareable=True)
STICK = device("usb-1-2-1-0")
FIRST = "n1-liken.sh"


class Rig:
    """A publisher, its cluster, and time that passes only when the test says so."""

    def __init__(self, store: ApiStore | None = None, *, active: bool = True, node: bool = True) -> None:
        self.now = 1000.0
        self.store = store or ApiStore()
        if node and store is None:
            self.store.add_node(NODE)
        self.cluster = MemoryCluster(self.store)
        self.registry = CollectorRegistry()
        self.metrics = Metrics(self.registry)
        self.seen = Seen()
        clocks = Clocks(lambda: self.now, lambda: self.now, lambda: self.now)
        self.publisher = Publisher(self.cluster, NODE, DRIVER, self.seen, self.metrics, clocks)
        hours = itertools.count(step=3600.0)  # a watch of the memory cluster ends at once, and looks long
        self.watching = Watching(self.cluster, self.seen, lambda: None, self.metrics, lambda: next(hours))
        if active:
            self.publisher.activate()

    def offer(self, *found: Device) -> None:
        self.publisher.inventory(message(*found))

    def run(self, seconds: float = 0.0) -> None:
        """List or hear events, then take turns for that long (0: whatever is due now)."""
        self.watching.step()
        end = self.now + seconds
        while True:
            pause_s = self.publisher.turn()
            if pause_s is None or self.now + pause_s > end:
                self.now = end
                return
            self.now += pause_s

    def asked(self, verb: str) -> int:
        return self.cluster.requests.count(verb)

    def published(self) -> list[str]:
        return [
            d["name"]
            for name in sorted(self.store.slices)
            for d in self.store.slices[name]["spec"].get("devices") or ()
        ]

    def metric(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(name, labels)

    def told(self) -> list[str]:
        return [event["reason"] for event in self.store.events]


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_the_first_inventory_is_published() -> None:
    rig = Rig()
    rig.offer(GPU, STICK)

    rig.run()

    assert rig.published() == [GPU.name, STICK.name]
    assert (
        rig.store.slices[FIRST]["metadata"]["ownerReferences"][0]["uid"]
        == rig.store.nodes[NODE]["metadata"]["uid"]
    )
    assert rig.metric("liken_slice_writes_total", outcome="applied") == 1
    assert rig.metric("liken_devices", **{"class": "display"}) == 1


def test_without_a_change_nothing_is_asked_or_written() -> None:
    rig = Rig()
    rig.offer(GPU, STICK)
    rig.run()
    before = list(rig.cluster.requests)

    for _ in range(5):
        rig.offer(GPU, STICK)
        assert rig.publisher.turn() is None

    assert rig.cluster.requests == before


def test_a_restart_writes_nothing_when_the_cluster_holds_what_is_wanted() -> None:
    first = Rig()
    first.offer(*devices(300))
    first.run()

    again = Rig(first.store)
    again.offer(*devices(300))
    again.run(10)

    assert again.cluster.requests == ["list", "node"]


def test_nothing_is_written_before_the_slices_are_listed() -> None:
    rig = Rig()
    rig.offer(STICK)

    assert rig.publisher.turn() is None
    assert rig.cluster.requests == []


def test_what_is_not_written_counts_as_pending_from_the_start() -> None:
    rig = Rig()
    rig.offer(STICK)
    rig.publisher.turn()
    waiting = rig.metric("liken_slice_pending_seconds") or 0.0

    rig.run()

    assert waiting > 0.0
    assert rig.metric("liken_slice_pending_seconds") == 0.0


def test_a_slice_that_changed_unseen_is_read_before_it_is_written() -> None:
    rig = Rig()
    rig.offer(STICK)
    rig.run()

    rig.store.edit(FIRST, lambda item: item["spec"]["pool"].update(generation=7))
    rig.offer(STICK, GPU)
    rig.publisher.turn()
    assert rig.published() == [STICK.name]
    rig.now += 1.0
    rig.publisher.turn()

    assert rig.published() == [GPU.name, STICK.name]
    assert rig.store.slices[FIRST]["spec"]["pool"]["generation"] == 7
    assert rig.metric("liken_slice_writes_total", outcome="conflict") == 1


def test_a_standby_writes_nothing_until_it_is_active() -> None:
    rig = Rig(active=False)
    rig.offer(STICK)
    rig.run()
    assert rig.published() == []

    rig.publisher.activate()
    rig.run()

    assert rig.published() == [STICK.name]


def test_an_inventory_that_is_an_error_keeps_the_slices_and_stops_writing() -> None:
    rig = Rig()
    rig.offer(STICK)
    rig.run()

    rig.publisher.inventory(InventoryMessage(1, None, "cannot read /sys/bus"))
    rig.run(60)
    assert rig.published() == [STICK.name]
    rig.store.delete_all()
    rig.run(60)
    assert rig.published() == []

    rig.offer(STICK)
    rig.run()
    assert rig.published() == [STICK.name]
    assert rig.told() == ["HardwareUnreadable"]


def test_no_hardware_is_an_empty_slice() -> None:
    rig = Rig()
    rig.offer(STICK)
    rig.run()

    rig.offer()
    rig.run()

    assert list(rig.store.slices) == [FIRST]
    assert rig.published() == []


def test_a_server_that_returns_no_devices_as_null_causes_no_further_write() -> None:
    rig = Rig()
    rig.store.empty_is_null = True
    rig.offer()
    rig.run()

    rig.offer(STICK)
    rig.run()
    rig.offer()
    rig.run(60)

    assert rig.asked("apply") == 3
    assert rig.told() == []


@pytest.mark.parametrize("what", ["delete", "devices", "generation", "owner"])
def test_what_others_do_to_a_slice_is_put_right(what: str) -> None:
    rig = Rig()
    rig.offer(STICK)
    rig.run()
    wanted = rig.store.slices[FIRST]["spec"]

    if what == "delete":
        rig.store.delete(FIRST)
    elif what == "devices":
        rig.store.edit(FIRST, lambda item: item["spec"]["devices"].clear())
    elif what == "generation":
        rig.store.edit(FIRST, lambda item: item["spec"]["pool"].update(resourceSliceCount=2))
    else:
        rig.store.edit(FIRST, lambda item: item["metadata"].pop("ownerReferences"))
    rig.run()

    assert rig.published() == [STICK.name]
    assert rig.store.slices[FIRST]["spec"]["pool"]["resourceSliceCount"] == 1
    assert rig.store.slices[FIRST]["spec"]["devices"] == wanted["devices"]
    assert rig.store.slices[FIRST]["metadata"]["ownerReferences"][0]["name"] == NODE


def test_somebody_elses_labels_are_left_alone() -> None:
    rig = Rig()
    rig.offer(STICK)
    rig.run()

    rig.store.edit(FIRST, lambda item: item["metadata"].update(labels={"theirs": "yes"}))
    rig.run()

    assert rig.asked("apply") == 1
    assert rig.store.slices[FIRST]["metadata"]["labels"] == {"theirs": "yes"}


def test_who_undoes_our_work_again_and_again_does_not_get_us_into_a_race() -> None:
    rig = Rig()
    rig.offer(STICK)
    rig.run()

    for _ in range(600):
        if FIRST in rig.store.slices:
            rig.store.delete(FIRST)
        rig.run(1)

    assert 20 <= rig.asked("apply") <= 110  # ten a minute, for ten minutes


def test_a_node_that_was_made_again_becomes_the_owner() -> None:
    rig = Rig()
    rig.offer(STICK)
    rig.run()

    uid = rig.store.add_node(NODE)
    rig.store.delete(FIRST)  # what the garbage collector does
    rig.run()

    assert rig.store.slices[FIRST]["metadata"]["ownerReferences"][0]["uid"] == uid


def test_a_slice_of_ours_in_another_pool_is_replaced() -> None:
    store = ApiStore()
    store.add_node(NODE)
    spec: Raw = {
        "driver": DRIVER,
        "nodeName": NODE,
        "pool": {"name": "old", "generation": 4, "resourceSliceCount": 1},
    }
    store.apply(
        FIRST,
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": FIRST},
            "spec": spec,
        },
    )
    rig = Rig(store)
    rig.offer(STICK)

    rig.run()

    assert rig.store.slices[FIRST]["spec"]["pool"]["name"] == NODE
    assert rig.published() == [STICK.name]


def test_without_its_node_it_waits_and_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig(node=False)
    rig.offer(STICK)

    rig.run(3600)
    asked = rig.asked("node")
    rig.store.add_node(NODE)
    rig.run(120)

    assert rig.published() == [STICK.name]
    assert asked < 150  # once a minute, quicker at first
    assert warnings(caplog) == ["node n1 is not in the cluster; waits for it (is NODE_NAME right?)"]
    assert rig.metric("liken_publisher_condition", condition="NodeMissing") == 0


def test_a_server_that_drops_a_field_is_told_of_once_and_written_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rig = Rig()
    rig.store.dropped_fields = {"allowMultipleAllocations"}
    rig.offer(GPU, STICK)

    rig.run()
    for _ in range(20):
        rig.offer(GPU, STICK)
        rig.run(60)

    assert rig.asked("apply") == 1
    assert rig.told() == ["FieldsDropped"]
    assert warnings(caplog) == [
        "the API server does not keep spec.devices[].allowMultipleAllocations; shareable devices are"
        " exclusive there (Kubernetes keeps it from 1.36 on)"
    ]
    assert rig.metric("liken_dropped_fields") == 1


def test_a_watch_that_breaks_every_minute_brings_the_dropped_fields_up_once_an_hour() -> None:
    rig = Rig()
    rig.store.dropped_fields = {"allowMultipleAllocations"}
    rig.offer(GPU)
    rig.run()

    for _ in range(180):
        rig.seen.broke()
        rig.run(60)

    assert rig.asked("apply") == 4
    assert rig.told() == ["FieldsDropped"]


def test_a_server_that_drops_a_field_still_gets_every_change_in_one_write() -> None:
    rig = Rig()
    rig.store.dropped_fields = {"allowMultipleAllocations"}
    rig.offer(GPU, *devices(200))
    rig.run()

    rig.offer(GPU, *devices(201))
    rig.run()

    pools = {item["spec"]["pool"]["generation"] for item in rig.store.slices.values()}
    assert rig.asked("apply") == 3
    assert pools == {1}


def test_restarts_on_a_server_that_drops_a_field_in_two_slices_change_nothing_there() -> None:
    """Kubernetes 1.34, 1.35: the first write after a start offers the field again and is no change."""
    shared = [device(f"gpu-{number:03}", shareable=True) for number in range(200)]
    first = Rig()
    first.store.dropped_fields = {"allowMultipleAllocations"}
    first.offer(*shared)
    first.run()
    before = dict(first.store.slices)

    for _ in range(3):
        again = Rig(first.store)
        again.offer(*shared)
        again.run(10)

    assert first.store.slices == before
    first.store.dropped_fields = set()
    again = Rig(first.store)
    again.offer(*shared)
    again.run(10)
    found = [one for item in first.store.slices.values() for one in item["spec"]["devices"]]
    assert all(one["allowMultipleAllocations"] for one in found)


def test_a_server_that_came_back_is_offered_the_dropped_fields_once_more() -> None:
    rig = Rig()
    rig.store.dropped_fields = {"allowMultipleAllocations"}
    rig.offer(GPU)
    rig.run()

    rig.store.dropped_fields = set()
    rig.seen.broke()
    rig.run()

    assert rig.store.slices[FIRST]["spec"]["devices"][0]["allowMultipleAllocations"] is True
    assert rig.metric("liken_dropped_fields") == 0


def test_unknown_storage_is_told_each_time_it_turns() -> None:
    rig = Rig()
    bad, good = message(STICK, facts=UNKNOWN), message(STICK)

    for word in (bad, bad, good, bad):
        rig.publisher.inventory(word)
        rig.run(60)

    assert rig.told() == ["StorageUnknown", "StorageUnknown"]
    assert rig.asked("apply") == 1


def test_overflow_is_told_each_time_it_turns_and_knows_the_claims() -> None:
    rig = Rig()
    last = devices(1025)[-1].name
    claim = ClaimPresence("ns", "c", "u", (DevicePresence(NODE, last, "present", "now", ""),))
    rig.publisher.presence(Presence(1, "boot", (claim,)))

    for count in (1025, 1025, 1000, 1025):
        rig.offer(*devices(count))
        rig.run()

    assert rig.told() == ["DevicesOverflow", "DevicesOverflow"]
    assert last in rig.published()
    assert rig.metric("liken_overflow_devices") == 1


def test_what_is_left_out_is_told_once_for_each(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig()
    one, two = device("usb-1", {"serial": {"string": "x" * 70}}), device("Usb-2")

    for found in ((one,), (one,), (one, two), (one, two)):
        rig.offer(*found)
        rig.run()

    assert warnings(caplog) == [
        "attribute 'serial' of usb-1 is not published: its text has 70 bytes, allowed are 64",
        "device Usb-2 is not published: its name is no DNS label of at most 63 characters",
    ]
    assert rig.told() == ["DevicesLeftOut"]
    assert rig.metric("liken_left_out") == 2


def test_the_server_is_left_alone_for_as_long_as_it_asked_even_when_hardware_changes() -> None:
    rig = Rig()
    rig.offer(STICK)
    rig.cluster.before = _failing("apply", ClusterUnavailable("too many requests", 30.0))
    rig.run()

    rig.offer(STICK, GPU)
    rig.run(29)
    assert rig.asked("apply") == 1
    rig.cluster.before = lambda verb, body: None
    rig.run(10)

    assert rig.published() == [GPU.name, STICK.name]


def test_an_api_server_that_is_away_for_a_day_is_asked_once_a_minute_and_told_of_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rig = Rig()
    rig.offer(STICK)
    rig.run()
    rig.offer(GPU)
    rig.cluster.before = _failing("apply", ClusterUnavailable("connection refused"))

    rig.run(86400)

    assert rig.asked("apply") < 86400 / 30 + 20
    assert warnings(caplog) == ["cannot write the slices: connection refused; tries again"]
    assert rig.metric("liken_slice_pending_seconds") is not None


def test_a_device_that_only_the_server_refuses_is_left_out_alone_until_it_changes() -> None:
    rig = Rig()
    odd, better = device("usb-9", {"name": {"string": "?"}}), device("usb-9", {"name": {"string": "!"}})
    rig.cluster.before = _refusing(odd)
    rig.offer(STICK, odd)

    rig.run()
    assert rig.published() == [STICK.name]
    assert rig.told() == ["DevicesLeftOut"]
    assert rig.asked("apply") == 2

    rig.offer(STICK, better)
    rig.run()
    assert rig.published() == [STICK.name, "usb-9"]


def test_a_refusal_without_a_reason_is_no_hot_loop_and_ends_with_a_change() -> None:
    rig = Rig()
    rig.offer(STICK)
    rig.cluster.before = _failing("apply", Refused("denied by policy"))

    rig.run(3600)
    assert rig.asked("apply") < 15
    assert rig.told() == ["SliceRefused"]

    rig.cluster.before = lambda verb, body: None
    rig.offer(STICK, GPU)
    rig.run()
    assert rig.published() == [GPU.name, STICK.name]


def test_events_that_cannot_be_written_are_given_up_and_disturb_nothing() -> None:
    rig = Rig()
    rig.cluster.before = _failing("event", ClusterUnavailable("forbidden"))
    rig.publisher.inventory(message(STICK, facts=UNKNOWN))

    rig.run(3600)

    assert rig.published() == [STICK.name]
    assert rig.asked("event") == 5


def test_hot_plug_time_runs_from_the_first_event_to_the_written_slice() -> None:
    rig = Rig()
    rig.offer()
    rig.run()

    rig.publisher.inventory(message(STICK, stirred=rig.now - 1.5))
    rig.cluster.before = _failing("apply", ClusterUnavailable("away", 2.0))
    rig.run()
    rig.cluster.before = lambda verb, body: None
    rig.publisher.inventory(message(STICK, GPU, stirred=rig.now - 0.1))
    rig.run(4)

    assert rig.metric("liken_hot_plug_to_slice_seconds_count") == 1
    assert 3.5 <= (rig.metric("liken_hot_plug_to_slice_seconds_sum") or 0) <= 4.5


def test_at_rest_for_a_day_only_watches_are_asked_for() -> None:
    rig = Rig()
    rig.offer(GPU, *devices(200))
    rig.run()
    before = list(rig.cluster.requests)

    def an_hour_passes(verb: str, body: Raw) -> None:
        if verb == "watch":
            rig.now += 3000

    rig.cluster.before = an_hour_passes
    start = rig.now
    while rig.now < start + 86400:
        rig.watching.step()
        for _ in range(50):  # the heartbeat of the inventory, once a minute
            rig.offer(GPU, *devices(200))
            assert rig.publisher.turn() is None

    assert set(rig.cluster.requests[len(before) :]) == {"watch"}
    assert rig.asked("watch") - before.count("watch") == 29  # 86400 / 3000, rounded up


def _failing(wanted: str, error: Exception) -> Callable[[str, Raw], None]:
    def before(verb: str, body: Raw) -> None:
        if verb == wanted:
            raise error

    return before


def _refusing(odd: Device) -> Callable[[str, Raw], None]:
    form = dict(odd.attributes)

    def before(verb: str, body: Raw) -> None:
        for number, entry in enumerate(body["spec"]["devices"] if verb == "apply" else ()):
            if entry["attributes"] == form:
                raise Refused("invalid", (Cause(f"spec.devices[{number}].attributes[name]", "not this"),))

    return before
