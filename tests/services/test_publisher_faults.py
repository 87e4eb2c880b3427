"""The publisher process against an API server that misbehaves in every way the stand-in can."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.publishing import device, devices
from tests.services.api_stand_in import ApiStandIn
from tests.services.process import Process
from tests.services.publishing_rig import Rig, StandInServer
from tests.waiting import eventually

GPU = device("pci-0000-00-02-0", {"renderNode": {"bool": True}}, shareable=True)
STICK = device("usb-1-2-1-0", {"serial": {"string": "00000001"}})
SOON_S = 15.0


class Node:
    """One publisher for all tests of this module: it has to survive each of them."""

    def __init__(self, folder: Path) -> None:
        self.api = ApiStandIn(bookmark_s=0.2)
        self.api.start()
        self.server = StandInServer(folder, "n1", self.api)
        self.server.add_node()
        self.rig = Rig(folder, self.server)
        self.process: Process = self.rig.start()

    def calm(self) -> None:
        """No faults, the stick is published, the watch is open, and nothing is going on."""
        self.api.start()
        self.api.faults.clear()
        self.api.muted.clear()
        self.api.store.dropped_fields = set()
        self.rig.offer(STICK)
        eventually(self.rig.shows(STICK), 60.0, "the slice with the stick")
        eventually(lambda: self.api.open_watches == 1, 60.0, "the watch")
        heard = self.api.bookmarks
        eventually(lambda: self.api.bookmarks > heard + 1, 5.0, "the watch brings something")
        self.api.log.clear()

    def applies(self) -> int:
        return self.api.count("apply")

    def close(self) -> None:
        self.rig.close()
        self.api.stop()


@pytest.fixture(scope="module")
def shared(short_dir: Path) -> Iterator[Node]:
    made = Node(short_dir)
    yield made
    made.close()


@pytest.fixture
def node(shared: Node) -> Node:
    shared.calm()
    return shared


@pytest.mark.parametrize("what", [409, 429, 500, 503, "lost", "cut", "garbage"], ids=str)
def test_a_write_that_fails_is_done_after_all(node: Node, what: int | str) -> None:
    fault = node.api.fail("apply", what, times=2)

    node.rig.offer(STICK, GPU)
    eventually(lambda: fault.met >= 1 and node.rig.shows(STICK, GPU)(), SOON_S, "both devices")

    assert node.process.popen.poll() is None


def test_the_server_is_left_alone_for_as_long_as_it_asked(node: Node) -> None:
    node.api.fail("apply", 429, headers={"Retry-After": "2"})

    node.rig.offer(STICK, GPU)
    eventually(node.rig.shows(STICK, GPU), SOON_S, "both devices")

    refused, accepted = (seen for seen in node.api.log if seen.verb == "apply")
    assert (refused.status, accepted.status) == (429, 200)
    assert accepted.at - refused.at >= 2.0


def test_a_slow_server_gets_one_write_for_all_that_happened_meanwhile(node: Node) -> None:
    node.api.fail("apply", "late", seconds=1.0)

    for count in range(1, 30):
        node.rig.offer(STICK, *devices(count))
    eventually(node.rig.shows(STICK, *devices(29)), SOON_S, "the newest inventory")

    assert node.applies() <= 3


def test_fields_that_the_server_drops_cost_one_write_one_line_and_one_event(node: Node) -> None:
    """D11."""
    node.api.store.dropped_fields = {"allowMultipleAllocations"}
    node.api.store.events.clear()
    before = node.process.log.count("does not keep")

    for _ in range(5):
        node.rig.offer(STICK, GPU)
    eventually(lambda: node.server.events() == ["FieldsDropped"], SOON_S, "the event")
    node.api.store.touch()  # bookmarks go on
    node.rig.offer(STICK, GPU)
    eventually(lambda: node.process.metric("liken_dropped_fields") == 1.0, SOON_S, "the metric")

    assert node.applies() == 1
    assert node.process.log.count("does not keep") == before + 1


def test_a_device_that_the_server_refuses_is_left_out_alone(node: Node) -> None:
    node.api.fail("apply", 422, causes=[("spec.devices[0].attributes[x]", "may not be")])  # by name the GPU

    node.rig.offer(STICK, GPU, *devices(3))
    eventually(node.rig.shows(STICK, *devices(3)), SOON_S, "all but the GPU")

    assert "the API server refuses it: may not be" in node.process.log
    assert node.applies() == 2


def test_a_refusal_is_no_hot_loop(node: Node) -> None:
    fault = node.api.fail("apply", 422, times=1000)

    node.rig.offer(STICK, GPU)
    condition = 'liken_publisher_condition{condition="SliceRefused"}'
    eventually(lambda: node.process.metric(condition) == 1.0, SOON_S, "the metric")
    met = fault.met
    fault.left = 0
    node.rig.offer(STICK, device("usb-3"))
    eventually(node.rig.shows(STICK, device("usb-3")), SOON_S, "the next change is tried at once")

    assert met <= 2


@pytest.mark.parametrize("how", ["closed", "cut", "expired", "expired while away", "429", "500"])
def test_a_slice_deleted_while_the_watch_is_gone_comes_back(node: Node, how: str) -> None:
    """K10."""
    if how == "expired while away":
        node.api.store.forget()
    if how in ("429", "500"):
        node.api.fail("watch", int(how))
    if how == "cut":
        node.api.cut()
    elif how == "expired":
        node.api.store.forget()  # an ERROR event inside the open watch
    else:
        node.api.close_watches()
    node.server.delete(node.rig.first)
    eventually(node.rig.shows(STICK), SOON_S, "the slice again")

    requests = len(node.api.log)
    assert requests < 15
    eventually(lambda: node.api.open_watches == 1, SOON_S, "the watch again")


def test_what_happened_while_the_server_was_away_is_made_good(node: Node) -> None:
    noticed = node.process.log.count("cannot watch the slices")
    node.api.stop()
    node.server.delete(node.rig.first)
    for count in range(1, 40):
        node.rig.offer(STICK, *devices(count))
    eventually(
        lambda: node.process.log.count("cannot watch the slices") > noticed, SOON_S, "the publisher notices"
    )
    healthy = node.process.get("/healthz")[0], node.process.get("/readyz")[0]
    connected = node.process.metric("liken_api_connected")

    node.api.start()
    eventually(node.rig.shows(STICK, *devices(39)), 10.0, "the newest inventory")

    assert healthy == (200, 200)  # the API's health is a metric, not ours
    assert connected == 0.0
    eventually(lambda: node.process.metric("liken_api_connected") == 1.0, 10.0, "the watch again")


def test_a_list_that_fails_is_tried_again(node: Node) -> None:
    node.api.fail("list", 500)
    node.api.fail("list", "garbage")
    node.api.cut()
    node.server.delete(node.rig.first)

    eventually(node.rig.shows(STICK), 10.0, "the slice again")

    assert node.api.count("list") >= 3


def test_at_rest_nothing_is_asked(node: Node) -> None:
    start = time.monotonic()
    eventually(lambda: time.monotonic() - start > 3.0, 10.0, "three seconds have passed", step_s=0.1)

    assert node.api.log == []


def test_a_server_that_does_not_answer_does_not_hold_up_the_end(run_dir: Path) -> None:
    node = Node(run_dir)
    fault = node.api.fail("apply", "hang")
    node.rig.offer(STICK)
    eventually(lambda: fault.met == 1, SOON_S, "a write without an answer")

    start = time.monotonic()
    code = node.process.stop()
    took_s = time.monotonic() - start
    node.close()

    assert code == 0
    assert took_s < 4.0


def test_many_changes_that_cannot_be_written_do_not_fill_the_memory(node: Node) -> None:
    many = devices(500)
    node.rig.offer(STICK, *many)
    eventually(node.rig.shows(STICK, *many), SOON_S, "all devices")
    before = memory_kib(node.process)

    fault = node.api.fail("apply", 503, times=10_000)
    for number in range(200):
        node.rig.offer(STICK, *many[number:])
    eventually(lambda: fault.met > 3, SOON_S, "some failed writes")
    after = memory_kib(node.process)
    fault.left = 0
    eventually(node.rig.shows(STICK, *many[199:]), 60.0, "the newest inventory")
    print(f"200 inventories of 500 devices that could not be written: {after - before} KiB more")

    assert after - before < 20 * 1024


def memory_kib(process: Process) -> int:
    text = Path(f"/proc/{process.pid}/status").read_text()
    return int(text.split("VmRSS:")[1].split()[0])
