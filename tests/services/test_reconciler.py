"""The real reconciler process; the test plays the watcher and the plugin's part on disk."""

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from common.cdi import Specs
from common.claims import Result, Store
from common.hardware.machine import Machine
from common.projection import Projector
from common.slots import SysfsSlots
from tests.builders import BOOT_ID
from tests.claim_bench import record
from tests.services.kubelet_stand_in import Claim
from tests.services.played_node import DRIVER, NODE, PlayedNode
from tests.unit.claims.shapes import ADAPTER, adapter
from tests.waiting import eventually

USB1 = "sys/devices/pci0000:00/0000:00:14.0/usb1"
ABSENT = {ADAPTER: [f"/dev/liken.sh/absent/{ADAPTER}"]}
PRESENT = {ADAPTER: ["/dev/ttyUSB0", "/dev/bus/usb/001/002"]}
CLAIM = Claim("default", "c", "0a1b2c3d-0000-4000-8000-000000000001")


@pytest.fixture
def node(run_dir: Path) -> Iterator[PlayedNode]:
    """A node with an adapter and a claim on it, as the plugin would have left it."""
    node = PlayedNode(run_dir)
    adapter(node.machine)
    hold(node, CLAIM, "1-1:1.0", ADAPTER)
    yield node
    node.close()


def hold(node: PlayedNode, claim: Claim, address: str, device: str) -> None:
    """Record and spec of a claim on a USB interface."""
    store, specs = Store(node.plugin_dir, BOOT_ID), Specs(node.cdi, DRIVER)
    port = "0000:00:14.0/usb2/" + address.partition("-")[2]
    promised = Result("r", NODE, device, "usb", address, port, kinds=("tty",))
    store.make_folders()
    with store.lock(5.0):
        store.write(record(claim.uid, promised, name=claim.name))
        Projector(store, specs, SysfsSlots(node.machine.tree(), Machine())).project(claim.uid)


def test_a_removal_makes_the_spec_safe_at_the_tick_and_not_after_the_settle_time(node: PlayedNode) -> None:
    """R16, R11: nothing but the tick of a remove event."""
    assert node.watcher is not None
    node.start("reconciler")
    node.inventory()
    eventually(lambda: node.state(CLAIM, ADAPTER)[0] == "present", 5, "the state is told")
    times = []
    for _ in range(20):
        node.machine.remove(f"{USB1}/1-1")
        begin = time.monotonic()
        node.stir()
        eventually(lambda: node.paths(CLAIM) == ABSENT, 5, "safe", step_s=0.0005)
        times.append(time.monotonic() - begin)
        adapter(node.machine)
        node.stir()
        eventually(lambda: node.paths(CLAIM)[ADAPTER][0] == "/dev/ttyUSB0", 5, "back")
    ordered = sorted(times)
    print(f"tick to safe spec: median {ordered[10] * 1000:.1f} ms, worst {ordered[-1] * 1000:.1f} ms")
    assert ordered[10] < 1.0


def test_without_a_watcher_it_looks_every_second(node: PlayedNode) -> None:
    reconciler = node.start("reconciler")
    node.machine.remove(f"{USB1}/1-1")
    eventually(lambda: node.paths(CLAIM) == ABSENT, 5, "safe although nobody told")
    assert reconciler.metric('liken_pass_seconds_count{cause="alone"}') >= 1
    assert reconciler.metric("liken_backstop_repairs_total") == 0
    eventually(lambda: node.state(CLAIM, ADAPTER) == ("absent", "unplugged"), 5, "the state is told")


def test_a_repair_at_the_backstop_counts_as_a_defect(node: PlayedNode) -> None:
    """D1: a folder emptied while liken runs."""
    assert node.watcher is not None
    reconciler = node.start("reconciler", LIKEN_PASS="1")
    node.inventory()
    eventually(lambda: reconciler.metric('liken_pass_seconds_count{cause="backstop"}') >= 1, 10)
    node.spec_path(CLAIM).unlink()
    eventually(lambda: node.paths(CLAIM) == PRESENT, 5, "the spec is back")
    eventually(lambda: reconciler.metric("liken_backstop_repairs_total") == 1, 5)
    assert reconciler.metric('liken_spec_rewrites_total{reason="vanished"}') == 1


def test_a_restarted_one_knows_the_claims_and_mends_what_happened_meanwhile(node: PlayedNode) -> None:
    """D2."""
    node.start("reconciler").kill()
    node.machine.remove(f"{USB1}/1-1")
    node.start("reconciler")
    eventually(lambda: node.paths(CLAIM) == ABSENT, 5, "safe after the start")
    assert node.records() == [CLAIM.uid]


def test_idle_it_writes_nothing(node: PlayedNode) -> None:
    reconciler = node.start("reconciler", LIKEN_PASS="0.2")
    before = node.spec_path(CLAIM).stat()
    eventually(lambda: reconciler.metric('liken_pass_seconds_count{cause="backstop"}') >= 3, 10)
    after = node.spec_path(CLAIM).stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert node.leftovers() == []


def test_the_second_of_two_stands_by_tells_the_states_and_takes_over(node: PlayedNode) -> None:
    """A rolling update: two pods, one plugin folder."""
    first = node.start("reconciler")
    second = node.start("reconciler", LIKEN_RUN=str(node.run / "r2"))
    assert (first.metric("liken_reconciler_active"), second.metric("liken_reconciler_active")) == (1.0, 0.0)
    first.signal(signal.SIGSTOP)
    node.machine.remove(f"{USB1}/1-1")
    state = 'liken_claimed_devices{state="absent"}'
    eventually(lambda: second.metric(state) == 1.0, 10, "the second sees it")
    assert node.paths(CLAIM) == PRESENT  # and writes nothing
    first.kill()
    eventually(lambda: node.paths(CLAIM) == ABSENT, 10, "the second took over")
    assert second.metric("liken_reconciler_active") == 1.0


def test_records_that_it_cannot_read_are_told_and_disturb_no_other(node: PlayedNode) -> None:
    newer = Claim("default", "n", "0a1b2c3d-0000-4000-8000-000000000002")
    broken = Claim("default", "b", "0a1b2c3d-0000-4000-8000-000000000003")
    for number, claim in ((2, newer), (3, broken)):
        adapter(node.machine, f"1-{number}", f"ttyUSB{number}")
        hold(node, claim, f"1-{number}:1.0", f"usb-1-{number}-1-0")
    folder = node.plugin_dir / "claims" / BOOT_ID
    (folder / f"{newer.uid}.json").write_text('{"schema": 2}')
    (folder / f"{broken.uid}.json").write_text("{")
    left_alone = node.spec_path(newer).read_bytes()
    reconciler = node.start("reconciler")
    node.machine.remove(f"{USB1}/1-1")
    eventually(lambda: node.paths(CLAIM) == ABSENT, 5, "the readable one is kept right")
    assert node.spec_path(newer).read_bytes() == left_alone
    assert node.paths(broken) == {"usb-1-3-1-0": ["/dev/liken.sh/withheld/usb-1-3-1-0"]}
    names = {path.name for path in folder.iterdir()}
    assert names == {f"{CLAIM.uid}.json", f"{newer.uid}.json", f"{broken.uid}.broken"}
    assert reconciler.metric("liken_unreadable_records") == 2.0
    assert reconciler.metric("liken_prepared_claims") == 3.0


def test_records_that_cannot_be_listed_make_all_unknown_and_are_told_once(node: PlayedNode) -> None:
    reconciler = node.start("reconciler")
    eventually(lambda: node.state(CLAIM, ADAPTER)[0] == "present", 5, "the state is told")
    folder = node.plugin_dir / "claims" / BOOT_ID
    folder.rename(folder.with_name("away"))
    folder.write_text("not a folder")
    node.stir()
    eventually(lambda: node.state(CLAIM, ADAPTER)[0] == "unknown", 5, "nobody can tell")
    node.stir()
    folder.unlink()
    folder.with_name("away").rename(folder)
    node.stir()  # a pass may have come between the two
    eventually(lambda: node.state(CLAIM, ADAPTER)[0] == "present", 5, "known again")
    assert reconciler.log.count("no pass") == 1
    assert node.paths(CLAIM) == PRESENT


def test_a_leftover_that_cannot_be_removed_ends_no_process(node: PlayedNode) -> None:
    ours = node.cdi / f".liken-{DRIVER}-device_x"
    ours.mkdir()
    reconciler = node.start("reconciler", LIKEN_PASS="0.2")
    eventually(lambda: reconciler.metric('liken_pass_seconds_count{cause="backstop"}') >= 3, 10)
    assert reconciler.popen.poll() is None
    assert ours.is_dir()


def test_a_late_listener_gets_the_states_at_once(node: PlayedNode) -> None:
    node.start("reconciler")
    eventually(lambda: node.presence() is not None, 5, "the last state is sent to whoever comes")
    assert node.state(CLAIM, ADAPTER) == ("present", "")


def test_leftovers_of_killed_writers_are_swept_at_the_backstop(node: PlayedNode) -> None:
    ours = node.cdi / f".liken-{DRIVER}-device_{CLAIM.uid}.json-x1"
    foreign = node.cdi / ".other-tool"
    ours.write_text("")
    foreign.write_text("")
    node.start("reconciler", LIKEN_PASS="0.2")
    eventually(lambda: not ours.exists(), 5, "swept")
    assert foreign.exists()


def test_a_plugin_that_died_half_way_through_an_unprepare_is_no_defect_of_ours(node: PlayedNode) -> None:
    """It removed the spec and was killed before the record; no tick tells of it."""
    assert node.watcher is not None
    reconciler = node.start("reconciler")
    node.inventory()
    plugin = node.start("plugin")
    adapter(node.machine, "1-4", "ttyUSB4")
    other = node.prepared("usb-1-4-1-0")
    told = eventually(lambda: node.state(other, "usb-1-4-1-0")[0], 5, "the plugin's tick was heard")
    assert told == "present"
    node.spec_path(CLAIM).unlink()
    plugin.kill()
    eventually(lambda: node.paths(CLAIM) == PRESENT, 5, "long before the backstop")
    assert reconciler.metric("liken_backstop_repairs_total") == 0
