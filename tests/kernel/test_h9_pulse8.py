"""Hard scenario 9: a CEC adapter behind a serial line that the machine attaches (spec.serio)."""

import json
import sys
import time
from collections.abc import Iterator

import pytest

from tests.kernel.bench import Bench
from tests.kernel.conftest import Tell
from tests.kernel.machine import Guest
from tests.kernel.product import LIKEN, SETTLED_S, SIGKILL, Claim, Product, absent
from tests.kernel.test_2_hotplug import inventories, settle
from tests.waiting import eventually

MACHINE_FILE = "/etc/liken/machine.yaml"
DECLARED = 'spec:\n  serio:\n  - {protocol: pulse8-cec, vendor: "2548", product: "1002"}\n'
PORT = 0
EMULATOR_LOG = "/run/pulse8.log"
SIGTERM = 15
BURSTS = 2  # the kernel asks the adapter before it makes the devices: that may be a burst of its own


class Adapter:
    """A plugged Pulse-Eight adapter: a serial line at its interface 0, a HID interface at 2."""

    def __init__(self, guest: Guest, bench: Bench) -> None:
        self._guest, self._bench = guest, bench
        bench.make("pulse8", "2548", "1002", "acm", "hid", product_name="CEC Adapter")
        number = guest.call("read", "/sys/kernel/config/usb_gadget/pulse8/functions/acm.pulse8-0/port_num")
        words = [sys.executable, "-P", "-m", "tests.kernel.guest.pulse8", f"/dev/ttyGS{number.strip()}"]
        guest.run("rm", "-f", EMULATOR_LOG)
        self._emulator = guest.call("start", words, EMULATOR_LOG)
        self._inputattach = 0
        self.mark = 0  # before it was plugged
        self.address = bench.address(PORT)
        self.line, self.hid = (f"usb-{self.address}-1-{number}" for number in (0, 2))
        self.cec, self.input = f"{self.line}-cec", f"{self.line}-input"
        self.answers(1)

    def openings(self) -> int:
        """How often the emulator has opened its end of the line."""
        return (self._guest.call("read", EMULATOR_LOG) or "").count("answers")

    def answers(self, openings: int) -> None:
        """Wait until the emulator has opened its end of the line that often."""
        eventually(lambda: self.openings() >= openings, 60.0, "the emulator answers", step_s=0.1)

    def plug(self) -> float:
        """Plug it in; its tty is there afterwards. The host's monotonic clock before."""
        self.mark = self._guest.call("mark")
        began = self._bench.plug("pulse8", PORT)
        self._guest.call("wait_path", f"/sys/bus/usb/devices/{self.address}:1.0/tty")
        return began

    def unplug(self) -> float:
        return self._bench.unplug("pulse8")

    def tty(self) -> str:
        return f"/dev/{self._below('tty')[0]}"

    def attach(self) -> float:
        """Attach the line as the machine's owner does; the host's monotonic clock before."""
        began = time.monotonic()
        words = ["inputattach", "--pulse8-cec", self.tty()]
        self._inputattach = self._guest.call("start", words, "/run/inputattach.log")
        return began

    def detach(self, signal: int = SIGTERM) -> float:
        began = time.monotonic()
        self._guest.call("kill", self._inputattach, signal)
        self._inputattach = 0
        return began

    def nodes(self, variant: str) -> list[str]:
        """What /sys has below the line: its nodes of "cec" or "input"."""
        pattern = {"cec": "cec*", "input": "rc/rc*/input*/event*"}[variant]
        place = f"/sys/bus/usb/devices/{self.address}:1.0/tty/*/serio*/{pattern}"
        prefix = {"cec": "/dev/", "input": "/dev/input/"}[variant]
        found = self._guest.run("sh", "-c", f"ls -d {place}", check=False).split()
        return sorted(prefix + path.rpartition("/")[2] for path in found)

    def close(self) -> None:
        if self._inputattach:
            self.detach(SIGKILL)
        self._guest.call("kill", self._emulator, SIGKILL)

    def _below(self, folder: str) -> list[str]:
        found: list[str] = self._guest.call("listing", f"/sys/bus/usb/devices/{self.address}:1.0/{folder}")
        return found


@pytest.fixture(scope="module")
def declared(guest: Guest, product: Product) -> Iterator[Product]:
    """The product on a machine whose file declares the adapter's line."""
    guest.call("write", MACHINE_FILE, DECLARED)
    assert guest.call("load", ["serport", "pulse8_cec"]) == []
    product.restart()
    yield product
    guest.run("rm", MACHINE_FILE)
    product.restart()


@pytest.fixture
def adapter(guest: Guest, declared: Product, bench: Bench) -> Iterator[Adapter]:
    made = Adapter(guest, bench)
    made.plug()
    declared.waiting_for_slice(has=[made.hid]).result(120)
    yield made
    made.close()


def offered(product: Product, adapter: Adapter) -> dict[str, list[str]]:
    """Everything published of the adapter: name -> paths of its nodes."""
    return {
        device["name"]: [node["path"] for node in device["nodes"]]
        for device in product.inventory()["devices"]
        if device["name"].startswith(f"usb-{adapter.address}")
    }


def ever_offered(guest: Guest, adapter: Adapter) -> set[str]:
    """Names of the adapter in any inventory or slice since it was plugged."""
    notes = [note for what in ("inventory", "slice") for note in guest.call("since", adapter.mark, what)]
    names = {name for note in notes for name in note["names"]}
    return {name for name in names if name.startswith(f"usb-{adapter.address}")}


def named_once_absent(guest: Guest, mark: int, claim: Claim) -> set[str]:
    """Nodes that the claim's spec named since `mark` after it had named the placeholder."""
    written = [note["specs"].get(claim.uid, {}) for note in guest.call("since", mark, "specs")]
    paths = [[path for nodes in spec.values() for path in nodes] for spec in written]
    first = paths.index(absent(claim.devices[0]))
    return {path for each in paths[first:] for path in each}


def specs(product: Product, claims: list[Claim]) -> list[dict[str, list[str]] | None]:
    return [product.spec(claim) for claim in claims]


def test_a_line_that_is_not_attached_offers_nothing(
    guest: Guest, declared: Product, adapter: Adapter, tell: Tell
) -> None:
    settle(guest, adapter.mark)
    found = offered(declared, adapter)
    assert list(found) == [adapter.hid]
    assert ever_offered(guest, adapter) == {adapter.hid}
    assert [path.rstrip("0123456789") for path in found[adapter.hid]] == ["/dev/hidraw", "/dev/usb/hiddev"]
    interface = f"{adapter.address}:1.0"
    kept = [
        (entry["node"], entry["reason"])
        for entry in declared.inventory()["withheld"]
        if entry["address"].startswith(adapter.address)
    ]
    assert kept == [(adapter.tty(), "serio")]
    answer = json.loads(guest.run(LIKEN, "explain", interface, "-o", "json"))
    assert [(each["state"], each["rule"], each["devices"]) for each in answer] == [("withheld", "serio", [])]
    tell(f"explain: {answer[0]['why']}")


def test_an_attached_line_offers_its_bus_and_its_remote(
    guest: Guest, declared: Product, adapter: Adapter, tell: Tell
) -> None:
    mark = guest.call("mark")
    listed = declared.waiting_for_slice(has=[adapter.cec, adapter.input])
    began = adapter.attach()
    at = listed.result(120)
    told = time.monotonic() - began
    settle(guest, mark)
    added = [note["at"] for note in guest.call("since", mark, "uevent") if note["action"] == "add"]
    tell(
        f"inputattach to slice {told:.2f} s: the kernel's part {added[-1] - added[0]:.2f} s,"
        f" in the slice {at - added[-1]:.2f} s later (settle time {SETTLED_S} s)"
    )
    found = offered(declared, adapter)
    bus, remote = adapter.nodes("cec"), adapter.nodes("input")
    assert found == {adapter.cec: bus, adapter.input: remote, adapter.hid: found[adapter.hid]}
    assert not any(path.startswith("/dev/bus/usb/") for path in found[adapter.hid])
    assert (len(bus), len(remote)) == (1, 1)
    kinds = {name: declared.device(name)["kinds"] for name in (adapter.cec, adapter.input)}
    assert kinds == {adapter.cec: ["cec"], adapter.input: ["input"]}
    assert 1 <= inventories(guest, mark) <= BURSTS
    assert ever_offered(guest, adapter) == {adapter.hid, adapter.cec, adapter.input}

    claim = declared.claim("sibling", adapter.hid)  # the line's usbfs node would be a way around its rule
    declared.agree(has=[adapter.cec, adapter.input, adapter.hid])
    assert declared.spec(claim) == {adapter.hid: found[adapter.hid]}
    declared.release(claim)


def test_a_detached_lines_claims_are_absent_and_come_back_when_it_is_attached_again(
    guest: Guest, declared: Product, adapter: Adapter, tell: Tell
) -> None:
    names = [adapter.cec, adapter.input]
    listed = declared.waiting_for_slice(has=names)
    adapter.attach()
    listed.result(120)
    claims = [declared.claim(f"line-{number}", name) for number, name in enumerate(names)]
    before = [adapter.nodes("cec"), adapter.nodes("input")]
    assert specs(declared, claims) == [{adapter.cec: before[0]}, {adapter.input: before[1]}]
    declared.agree(has=[*names, adapter.hid])
    keeps = guest.call("start", ["sh", "-c", f"exec sleep 600 <{before[0][0]}"], "/dev/null")
    guest.call("wait_process", "sleep 600")  # after the shell has opened the node

    safe = [declared.waiting_for_spec(claims[each], {names[each]: absent(names[each])}) for each in (0, 1)]
    gone = declared.waiting_for_slice(lacks=names)
    mark = guest.call("mark")
    began = adapter.detach()
    for wait in safe:
        wait.result(120)
    told = time.monotonic() - began
    gone.result(120)
    tell(f"inputattach ended to absent specs {told * 1000:.0f} ms, to slice {time.monotonic() - began:.2f} s")
    assert list(offered(declared, adapter)) == [adapter.hid]
    declared.agree(absent=claims, has=[adapter.hid], lacks=names)

    # the old bus is still open and somebody else takes the remote's number: both come back with other numbers
    assert [guest.call("uinput", "takes a number")] == before[1]
    back = [declared.waiting_for_return(claim) for claim in claims]
    listed = declared.waiting_for_slice(has=names)
    began = adapter.attach()
    for wait in back:
        wait.result(120)
    told = time.monotonic() - began
    listed.result(120)
    after = [adapter.nodes("cec"), adapter.nodes("input")]
    tell(
        f"attached again to both specs {told:.2f} s, to slice {time.monotonic() - began:.2f} s;"
        f" {before[0][0]} is {after[0][0]} now, {before[1][0]} is {after[1][0]}"
    )
    assert (after[0] != before[0], after[1] != before[1]) == (True, True)
    assert specs(declared, claims) == [{adapter.cec: after[0]}, {adapter.input: after[1]}]
    declared.agree(has=names)
    for each, claim in enumerate(claims):
        assert named_once_absent(guest, mark, claim) == {*absent(names[each]), *after[each]}
    guest.call("kill", keeps, SIGKILL)
    guest.call("uinput_end")
    for claim in claims:
        declared.release(claim)


def test_an_attached_adapter_that_is_unplugged_is_absent_until_its_line_is_attached_again(
    guest: Guest, declared: Product, adapter: Adapter, tell: Tell
) -> None:
    listed = declared.waiting_for_slice(has=[adapter.cec])
    adapter.attach()
    listed.result(120)
    claim = declared.claim("unplugged", adapter.cec)

    safe = declared.waiting_for_spec(claim, {adapter.cec: absent(adapter.cec)})
    gone = declared.waiting_for_slice(lacks=[adapter.cec, adapter.input, adapter.hid])
    openings = adapter.openings()
    began = adapter.unplug()
    safe.result(120)
    tell(f"unplugged to absent spec {(time.monotonic() - began) * 1000:.0f} ms")
    gone.result(120)
    adapter.plug()
    adapter.answers(openings + 1)
    declared.waiting_for_slice(has=[adapter.hid]).result(120)
    assert list(offered(declared, adapter)) == [adapter.hid]
    assert declared.spec(claim) == {adapter.cec: absent(adapter.cec)}
    declared.agree(absent=[claim], has=[adapter.hid], lacks=[adapter.cec, adapter.input])

    back = declared.waiting_for_return(claim)
    began = adapter.attach()
    back.result(120)
    tell(f"plugged again; attached to spec {time.monotonic() - began:.2f} s")
    assert declared.spec(claim) == {adapter.cec: adapter.nodes("cec")}
    declared.agree(has=[adapter.cec])
    declared.release(claim)
