"""All prepared claims of a machine at a glance."""

from pathlib import Path

import pytest

from common.claims import NO_BOOT
from common.errors import MachineError
from common.hardware.machine import Machine
from common.hardware.tree import Tree
from common.inventory import SCHEMA, ClaimPresence, DevicePresence, Presence
from common.prepared import look, moment, open_prepared, presence
from common.settings import read_settings
from tests.builders import BOOT_ID
from tests.claim_bench import NODE, Bench
from tests.unit.claims.shapes import ADAPTER, adapter


def test_every_claim_is_told_with_its_states_since_when_and_what_its_spec_says(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    device = adapter(bench.machine)
    claim = bench.take(ADAPTER)
    bench.machine.remove(device)
    before = bench.files()
    (claimed,) = look(bench.prepared)
    since = moment(bench.specs.path(claim.uid).stat().st_mtime)
    gone = DevicePresence(NODE, ADAPTER, "absent", since, "unplugged")
    assert claimed.devices == (gone,)
    assert [node.path for node in claimed.spec[ADAPTER]] == ["/dev/ttyUSB0", "/dev/bus/usb/001/002"]
    assert presence(BOOT_ID, [claimed]) == Presence(
        SCHEMA, BOOT_ID, (ClaimPresence("default", claim.name, claim.uid, (gone,)),)
    )
    assert bench.files() == before


def test_a_claim_whose_spec_cannot_be_read_hides_no_other(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    adapter(bench.machine)
    adapter(bench.machine, "1-4", "ttyUSB1")
    bad, good = bench.take(ADAPTER), bench.take("usb-1-4-1-0")
    bench.specs.path(bad.uid).unlink()
    bench.specs.path(bad.uid).mkdir()
    states = {one.device: one.state for claimed in look(bench.prepared) for one in claimed.devices}
    assert states == {ADAPTER: "unknown", "usb-1-4-1-0": "present"}
    assert bench.paths(good) != {}


def test_a_played_machine_needs_no_boot_id_and_a_real_one_does(tmp_path: Path) -> None:
    (tmp_path / "sys").mkdir()
    environ = {"LIKEN_KUBELET": str(tmp_path / "k"), "LIKEN_HOST_PROC": str(tmp_path / "proc")}
    tree = Tree(tmp_path)
    played = open_prepared(read_settings(None, environ | {"LIKEN_ROOT": str(tmp_path)}), tree, Machine())
    assert played.store.boot == NO_BOOT
    with pytest.raises(MachineError, match="LIKEN_HOST_PROC"):
        open_prepared(read_settings(None, environ), tree, Machine())


def test_a_moment_is_told_in_utc() -> None:
    assert moment(0.0) == "1970-01-01T00:00:00.000Z"
    assert moment(None) == ""
