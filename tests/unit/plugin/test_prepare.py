"""Prepare and unprepare without sockets: one claim at a time."""

import os
import threading
import time
import uuid
from pathlib import Path

import pytest

from common.claims import Result
from common.errors import LikenError, MachineError
from services.console.kubelet import for_people
from services.plugin.calls import CallTime, ClaimName
from services.plugin.desk import Prepared
from tests.builders import BOOT_ID
from tests.claim_bench import DRIVER, NODE, Bench, record
from tests.unit.claims.shapes import ADAPTER, GPU, adapter, graphics_card, undriven

OLD_BOOT = "11111111-2222-4333-8444-555555555555"


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def refusal(bench: Bench, claim: ClaimName, seconds: float = 5.0) -> str:
    """The sentence with which prepare refuses; nothing is left on disk."""
    before = bench.files()
    with pytest.raises(LikenError) as error:
        bench.prepare(claim, seconds)
    assert bench.files() == before
    assert "\n" not in str(error.value)
    return str(error.value)


def result(device: str, **words: object) -> dict[str, object]:
    return {"request": "r", "driver": DRIVER, "pool": NODE, "device": device, **words}


def test_a_prepared_claim_has_a_record_a_spec_and_an_answer(bench: Bench) -> None:
    adapter(bench.machine)
    claim = bench.claim(ADAPTER)
    answer = bench.prepare(claim)
    assert answer == (Prepared("r0", NODE, ADAPTER, f"liken.sh/device={claim.uid}-{ADAPTER}", ""),)
    assert bench.paths(claim) == {ADAPTER: ["/dev/ttyUSB0", "/dev/bus/usb/001/002"]}
    entry = bench.store.read(claim.uid)
    assert entry is not None
    promised = Result("r0", NODE, ADAPTER, "usb", "1-1:1.0", "0000:00:14.0/usb2/1:1.0", kinds=("tty",))
    assert entry.record == record(claim.uid, promised, name=claim.name)


def test_prepare_again_gives_the_same_answer_and_writes_nothing(bench: Bench) -> None:
    """D3: idempotent."""
    adapter(bench.machine)
    claim = bench.claim(ADAPTER)
    first, files = bench.prepare(claim), bench.files()
    assert bench.prepare(claim) == first
    assert bench.files() == files


def test_prepare_again_projects_the_hardware_of_now(bench: Bench) -> None:
    device = adapter(bench.machine)
    claim = bench.claim(ADAPTER)
    first = bench.prepare(claim)
    bench.machine.remove(device)
    assert bench.prepare(claim) == first
    assert bench.paths(claim) == {ADAPTER: [f"/dev/liken.sh/absent/{ADAPTER}"]}


def test_nodes_come_from_the_hardware_and_not_from_an_older_inventory(bench: Bench) -> None:
    """R5: the device number moved between scheduling and the container's start."""
    device = undriven(bench.machine, "1-2")
    bench.offers.update(bench.walk())
    claim = bench.claim("usb-1-2")
    bench.machine.remove(device)
    undriven(bench.machine, "1-2")
    bench.prepare(claim)
    assert bench.paths(claim) == {"usb-1-2": ["/dev/bus/usb/001/003"]}


def test_a_device_without_its_node_yet_is_refused_and_given_at_the_retry(bench: Bench) -> None:
    """R14: the kernel made the directory, `dev` comes a moment later."""
    device = adapter(bench.machine)
    bench.offers.update(bench.walk())
    claim = bench.claim(ADAPTER)
    tty = bench.machine.root / device / "1-1:1.0/tty/ttyUSB0"
    (tty / "dev").rename(tty / "not-yet")
    assert "no device node" in refusal(bench, claim)
    (tty / "not-yet").rename(tty / "dev")
    bench.prepare(claim)
    assert bench.paths(claim)[ADAPTER][0] == "/dev/ttyUSB0"


def test_a_name_that_the_inventory_lacks_is_looked_for_in_the_hardware(bench: Bench) -> None:
    """D3, R13: before the inventory has it a claim is answered from the plugin's own walk."""
    bench.offers.update(bench.walk())
    adapter(bench.machine)
    assert bench.prepare(bench.claim(ADAPTER))[0].device == ADAPTER


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ({}, "not allocated"),
        ({"allocation": None}, "not allocated"),
        ({"allocation": {"devices": {"results": []}}}, "names no device"),
        ({"allocation": {"devices": {"results": [{"request": 1}]}}}, "cannot be understood"),
        (
            {"allocation": {"devices": {"results": [result(ADAPTER, driver="gpu.example.com")]}}},
            "names no device",
        ),
        ({"allocation": {"devices": {"results": [result(ADAPTER, pool="n2")]}}}, "names no device"),
        ({"allocation": {"devices": {"results": [result("usb-9-9")]}}}, "no device usb-9-9"),
    ],
)
def test_an_allocation_that_gives_us_nothing_is_refused_in_words(
    bench: Bench, status: dict[str, object], words: str
) -> None:
    adapter(bench.machine)
    claim = bench.claim()
    bench.cluster.claims[claim.namespace, claim.name]["status"] = status
    assert words in refusal(bench, claim)


@pytest.mark.parametrize(
    ("known", "told"),
    [
        (False, f"this machine has no device {ADAPTER} now; "),
        (True, f"{ADAPTER} cannot be given now: unplugged; "),
    ],
)
def test_a_device_that_is_unplugged_is_the_kubelets_to_wait_for_and_a_persons_to_claim_again(
    bench: Bench, known: bool, told: str
) -> None:
    device = adapter(bench.machine)
    if known:
        bench.offers.update(bench.walk())
    bench.machine.remove(device)
    refused = refusal(bench, bench.claim(ADAPTER))
    assert refused == f"{told}it is prepared when the device is back"
    assert for_people(refused) == f"{told}plug it in, and claim it again"


def test_a_claim_that_was_replaced_is_refused(bench: Bench) -> None:
    adapter(bench.machine)
    claim = bench.claim(ADAPTER)
    assert "was replaced" in refusal(bench, claim._replace(uid=str(uuid.uuid4())))


def test_a_claim_that_is_gone_and_a_cluster_that_is_away_are_told(bench: Bench) -> None:
    adapter(bench.machine)
    claim = bench.claim(ADAPTER)
    assert "there is no claim" in refusal(bench, claim._replace(name="other"))
    bench.cluster.away = True
    assert "does not answer" in refusal(bench, claim)


@pytest.mark.parametrize("uid", ["", "../../etc/passwd", "a/b", "A" * 36, "x" * 5000, "."])
def test_what_is_no_uid_never_reaches_a_file(bench: Bench, uid: str) -> None:
    adapter(bench.machine)
    assert "not the UID" in refusal(bench, ClaimName("default", "c", uid))


@pytest.mark.parametrize(
    ("namespace", "name"), [("../x", "c"), ("d", "../c"), ("d", ".."), ("", "c"), ("d", "")]
)
def test_names_that_are_no_names_never_reach_a_file(bench: Bench, namespace: str, name: str) -> None:
    assert "is not the name" in refusal(bench, ClaimName(namespace, name, str(uuid.uuid4())))


def test_only_our_driver_and_our_pool_are_taken(bench: Bench) -> None:
    adapter(bench.machine)
    claim = bench.claim(ADAPTER, results=[result("x", driver="other"), result("y", pool="n2")])
    assert [one.device for one in bench.prepare(claim)] == [ADAPTER]


def test_a_sub_request_is_answered_with_its_main_request(bench: Bench) -> None:
    adapter(bench.machine)
    claim = bench.claim(results=[result(ADAPTER, request="main/second")])
    assert bench.prepare(claim)[0].request == "main"


def test_a_shareable_device_held_twice_by_one_claim_is_one_cdi_device(bench: Bench) -> None:
    graphics_card(bench.machine)
    results = [result(GPU, request="a", shareID="s1"), result(GPU, request="b", shareID="s2")]
    claim = bench.claim(results=results)
    answer = bench.prepare(claim)
    assert [(one.request, one.share_id) for one in answer] == [("a", "s1"), ("b", "s2")]
    assert {one.cdi_id for one in answer} == {f"liken.sh/device={claim.uid}-{GPU}"}
    assert bench.paths(claim) == {GPU: ["/dev/dri/renderD128"]}


def test_render_node_and_card_node_are_two_devices_of_one_claim(bench: Bench) -> None:
    graphics_card(bench.machine)
    claim = bench.take(GPU, f"{GPU}-display")
    assert bench.paths(claim) == {GPU: ["/dev/dri/renderD128"], f"{GPU}-display": ["/dev/dri/card1"]}


# -- who holds what


def test_a_second_claim_on_an_exclusive_device_waits_for_the_end_of_the_first(bench: Bench) -> None:
    """D12: after a forced deletion the scheduler may give a device away twice."""
    adapter(bench.machine)
    first = bench.take(ADAPTER)
    second = bench.claim(ADAPTER)
    words = refusal(bench, second)
    assert f"{ADAPTER} is still held by the claim default/{first.name} ({first.uid})" in words
    bench.unprepare(first)
    assert bench.prepare(second)[0].device == ADAPTER


def test_a_whole_device_and_its_interfaces_exclude_each_other(bench: Bench) -> None:
    """D12: the two forms have two names."""
    device = undriven(bench.machine, "1-2")
    whole = bench.take("usb-1-2")
    bench.machine.bind(f"{device}/1-2:1.0", "ch341")
    bench.machine.tty(f"{device}/1-2:1.0", "ttyUSB0")
    interface = bench.claim("usb-1-2-1-0")
    assert "same hardware as usb-1-2" in refusal(bench, interface)
    bench.unprepare(whole)
    bench.prepare(interface)
    bench.machine.remove(f"{device}/1-2:1.0/tty/ttyUSB0")
    bench.machine.unbind(f"{device}/1-2:1.0")
    assert "same hardware as usb-1-2-1-0" in refusal(bench, bench.claim("usb-1-2"))


def test_two_interfaces_of_one_device_go_to_two_claims(bench: Bench) -> None:
    device = adapter(bench.machine)
    bench.machine.hidraw(bench.machine.interface(device, 1, driver="usbhid", usb_class="03"), "hidraw0")
    bench.take(ADAPTER)
    assert bench.prepare(bench.claim("usb-1-1-1-1"))[0].device == "usb-1-1-1-1"


def test_a_shareable_device_is_never_refused(bench: Bench) -> None:
    """D12."""
    graphics_card(bench.machine)
    for _ in range(3):
        bench.take(GPU)
    assert len(bench.store.uids()) == 3


def test_the_exclusive_parts_of_one_card_are_held_apart(bench: Bench) -> None:
    graphics_card(bench.machine)
    bench.take(f"{GPU}-display")
    bench.take(f"{GPU}-i2c-dev")
    assert "still held" in refusal(bench, bench.claim(f"{GPU}-display"))


def test_admin_access_is_never_refused_and_refuses_nobody(bench: Bench) -> None:
    """D12: it makes nobody an owner."""
    adapter(bench.machine)
    bench.prepare(bench.claim(results=[result(ADAPTER, adminAccess=True)]))
    bench.take(ADAPTER)
    bench.prepare(bench.claim(results=[result(ADAPTER, adminAccess=True)]))
    assert "still held" in refusal(bench, bench.claim(ADAPTER))


def test_a_record_of_an_earlier_boot_holds_nothing(bench: Bench) -> None:
    """D3."""
    adapter(bench.machine)
    bench.restart(OLD_BOOT)
    bench.take(ADAPTER)
    bench.restart(BOOT_ID)
    assert bench.prepare(bench.claim(ADAPTER))[0].device == ADAPTER


@pytest.mark.parametrize("content", [b"{", b'{"schema": 2}'])
def test_a_record_that_cannot_be_read_still_holds_what_its_spec_names(bench: Bench, content: bytes) -> None:
    adapter(bench.machine)
    adapter(bench.machine, "1-4", "ttyUSB1")
    first = bench.take(ADAPTER)
    path = bench.plugin_dir / "claims" / BOOT_ID / f"{first.uid}.json"
    path.write_bytes(content)
    bench.reconcile()
    assert "still held" in refusal(bench, bench.claim(ADAPTER))
    bench.take("usb-1-4-1-0")
    bench.unprepare(first)
    bench.take(ADAPTER)
    assert not path.exists()


def test_an_unreadable_holder_of_a_whole_device_excludes_its_interfaces(bench: Bench) -> None:
    device = undriven(bench.machine, "1-2")
    whole = bench.take("usb-1-2")
    (bench.plugin_dir / "claims" / BOOT_ID / f"{whole.uid}.json").write_bytes(b"{")
    bench.machine.bind(f"{device}/1-2:1.0", "ch341")
    bench.machine.tty(f"{device}/1-2:1.0", "ttyUSB0")
    bench.restart()
    assert "still held" in refusal(bench, bench.claim("usb-1-2-1-0"))


def test_a_claim_whose_record_was_set_aside_is_prepared_anew(bench: Bench) -> None:
    adapter(bench.machine)
    claim = bench.take(ADAPTER)
    path = bench.plugin_dir / "claims" / BOOT_ID / f"{claim.uid}.json"
    path.write_bytes(b"{")
    bench.reconcile()
    assert not path.exists()
    bench.prepare(claim)
    assert [entry.form for entry in bench.store.entries()] == ["readable"]


def test_a_claim_of_a_newer_version_is_left_to_that_version(bench: Bench) -> None:
    adapter(bench.machine)
    claim = bench.take(ADAPTER)
    path = bench.plugin_dir / "claims" / BOOT_ID / f"{claim.uid}.json"
    path.write_bytes(b'{"schema": 2}')
    before = bench.files()
    assert "newer version" in refusal(bench, claim)
    bench.reconcile()
    assert bench.files() == before


# -- storage and held nodes


def test_a_disk_that_the_machine_uses_by_now_is_refused(bench: Bench) -> None:
    device = bench.machine.usb("1-3")
    interface = bench.machine.interface(device, 0, driver="usb-storage", usb_class="08")
    disk = bench.machine.scsi_disk(interface, "sda", host=6)
    bench.offers.update(bench.walk())
    bench.machine.mount(disk, at="/data")
    assert "/data" in refusal(bench, bench.claim("usb-1-3-1-0"))


def test_a_port_that_became_the_console_is_refused(bench: Bench) -> None:
    adapter(bench.machine)
    bench.offers.update(bench.walk())
    bench.machine.console("ttyUSB0")
    assert "console" in refusal(bench, bench.claim(ADAPTER))


def test_an_interface_that_a_program_holds_is_refused(bench: Bench) -> None:
    """W2: it is not in the slice either; only a claim that is prepared already keeps its node."""
    device = adapter(bench.machine)
    bench.offers.update(bench.walk())
    bench.machine.bind(f"{device}/1-1:1.0", "usbfs")
    assert "a program holds it" in refusal(bench, bench.claim(ADAPTER))


# -- time


def test_a_call_without_time_for_the_lock_is_told_so_and_succeeds_when_repeated(bench: Bench) -> None:
    """K8."""
    adapter(bench.machine)
    claim = bench.claim(ADAPTER)
    with bench.store.lock(1.0):
        assert "held by another" in refusal(bench, claim, seconds=0.1)
    assert bench.prepare(claim)[0].device == ADAPTER


def test_a_call_that_the_kubelet_gave_up_stops_waiting(bench: Bench) -> None:
    adapter(bench.machine)
    call = CallTime(60.0)
    ended = threading.Event()

    def wait() -> None:
        with pytest.raises(MachineError, match="cancelled"):
            bench.new_desk().prepare(bench.claim(ADAPTER), call)
        ended.set()

    with bench.store.lock(1.0):
        threading.Thread(target=wait, daemon=True).start()
        call.cancelled.set()
        assert ended.wait(5.0)
    assert bench.store.uids() == []


def test_a_cdi_folder_that_cannot_be_written_is_told_and_prepare_completes_once_it_can(bench: Bench) -> None:
    adapter(bench.machine)
    claim = bench.claim(ADAPTER)
    bench.cdi.write_text("a file in the folder's place")
    with pytest.raises(MachineError, match="LIKEN_CDI"):
        bench.prepare(claim)
    bench.cdi.unlink()
    bench.prepare(claim)
    assert bench.paths(claim)[ADAPTER][0] == "/dev/ttyUSB0"


def test_a_plugin_folder_that_cannot_be_written_is_told_and_nothing_is_half_done(bench: Bench) -> None:
    adapter(bench.machine)
    claim = bench.claim(ADAPTER)
    folder = bench.plugin_dir / "claims" / BOOT_ID
    folder.rmdir()
    folder.write_text("a file in the folder's place")
    with pytest.raises(MachineError):
        bench.prepare(claim)
    assert bench.paths(claim) == {}
    folder.unlink()
    bench.prepare(claim)
    assert bench.paths(claim)[ADAPTER][0] == "/dev/ttyUSB0"


# -- unprepare


def test_unprepare_needs_neither_cluster_nor_hardware(bench: Bench) -> None:
    """K6."""
    device = adapter(bench.machine)
    claim = bench.take(ADAPTER)
    bench.machine.remove(device)
    bench.cluster.away = True
    bench.unprepare(claim)
    assert bench.files() == {}


def test_unprepare_of_an_unknown_claim_is_fine_and_touches_nothing(bench: Bench) -> None:
    adapter(bench.machine)
    bench.take(ADAPTER)
    before = bench.files()
    bench.unprepare(ClaimName("default", "c", str(uuid.uuid4())))
    bench.unprepare(ClaimName("default", "c", "../../etc"))
    assert bench.files() == before


def test_unprepare_goes_by_the_uid_alone(bench: Bench) -> None:
    adapter(bench.machine)
    claim = bench.take(ADAPTER)
    bench.unprepare(ClaimName("", "", claim.uid))
    assert bench.files() == {}


def test_unprepare_twice_is_fine_by_either_instance(bench: Bench) -> None:
    adapter(bench.machine)
    claim = bench.take(ADAPTER)
    bench.unprepare(claim)
    bench.desk = bench.new_desk()
    bench.unprepare(claim)
    assert bench.files() == {}


# -- re-bind


def detached(bench: Bench, interfaces: int = 1) -> str:
    """An adapter whose interfaces were taken from their drivers; returns the USB device."""
    device = adapter(bench.machine)
    for number in range(1, interfaces):
        interface = bench.machine.interface(device, number, driver="usbhid", usb_class="03")
        bench.machine.hidraw(interface, f"hidraw{number}")
    return device


def test_the_last_claim_of_a_usb_device_has_its_drivers_bound_again(bench: Bench) -> None:
    """W3."""
    device = detached(bench)
    claim = bench.take(ADAPTER)
    bench.machine.unbind(f"{device}/1-1:1.0")
    bench.unprepare(claim)
    assert bench.probe.read_bytes() == b"1-1:1.0"
    assert bench.probes == ["no driver", "no driver"]  # a played file binds nothing; before and after


def test_nothing_is_bound_while_another_claim_holds_the_device(bench: Bench) -> None:
    """W3, W4."""
    device = detached(bench, interfaces=2)
    first = bench.take(ADAPTER)
    second = bench.take("usb-1-1-1-1")
    bench.machine.unbind(f"{device}/1-1:1.0")
    bench.unprepare(first)
    assert bench.probes == []
    bench.unprepare(second)
    assert bench.probe.read_bytes() == b"1-1:1.0"


def test_an_interface_with_a_driver_or_with_a_program_is_left_alone(bench: Bench) -> None:
    """W2, W3."""
    device = detached(bench, interfaces=2)
    claim = bench.take(ADAPTER)
    bench.machine.bind(f"{device}/1-1:1.0", "usbfs")
    bench.unprepare(claim)
    assert bench.probes == []
    assert bench.probe.read_bytes() == b""


def test_admin_access_neither_binds_nor_prevents_binding(bench: Bench) -> None:
    device = detached(bench)
    admin = bench.claim(results=[result(ADAPTER, adminAccess=True)])
    bench.prepare(admin)
    owner = bench.take(ADAPTER)
    bench.machine.unbind(f"{device}/1-1:1.0")
    bench.unprepare(owner)
    assert bench.probe.read_bytes() == b"1-1:1.0"
    bench.probes.clear()
    bench.unprepare(admin)
    assert bench.probes == []


def test_a_re_bind_that_fails_does_not_fail_the_call(bench: Bench) -> None:
    """W3, K7."""
    device = detached(bench)
    claim = bench.take(ADAPTER)
    bench.machine.unbind(f"{device}/1-1:1.0")
    bench.probe.unlink()
    bench.probe.mkdir()
    bench.unprepare(claim)
    assert bench.files() == {}
    assert set(bench.probes) == {"failed"}


def test_a_re_bind_that_hangs_holds_the_call_for_its_limit_only(bench: Bench) -> None:
    """K7: a FIFO that nobody reads hangs as a driver does that never ends its probe."""
    device = detached(bench)
    claim = bench.take(ADAPTER)
    bench.machine.unbind(f"{device}/1-1:1.0")
    bench.probe.unlink()
    os.mkfifo(bench.probe)
    begin = time.monotonic()
    bench.unprepare(claim)
    assert time.monotonic() - begin < 2.0  # the limit is 0.2 s here
    assert bench.files() == {}
    assert bench.probes == ["hung"]  # and it is not asked a second time while it hangs
    with bench.probe.open("rb") as reader:
        assert reader.read() == b"1-1:1.0"
