"""Every device that a recorded machine offers can be claimed, and the claim gives what was offered."""

from pathlib import Path

import pytest

from common.cdi import Specs
from common.claims import Record, Result, Store
from common.hardware.machine import Machine
from common.inventory import SCHEMA, Device
from common.projection import Projector
from common.slots import SysfsSlots
from tests.cdi_rules import check_file
from tests.machines.product import inventory, opened
from tests.machines.recording import archives, machine_name

RECORDINGS = [pytest.param(path, id=machine_name(path)) for path in archives()]
pytestmark = pytest.mark.skipif(
    not RECORDINGS, reason="no recorded machines: set LIKEN_MACHINES to their folder"
)
UID = "0a1b2c3d-0000-4000-8000-000000000001"


def promised(device: Device) -> Result:
    """What prepare writes down of a device."""
    port = str(device.attributes.get("physicalPath", {}).get("string", ""))
    return Result("r", "n1", device.name, device.bus, device.address, port, device.variant, device.kinds)


@pytest.mark.parametrize("path", RECORDINGS)
def test_the_spec_of_a_claim_on_everything_names_what_was_offered(path: Path, tmp_path: Path) -> None:
    """One claim on all devices: walk and slot agree, and a runtime takes the file."""
    found = inventory(path)
    store, specs = Store(tmp_path, found.boot), Specs(tmp_path / "cdi", "liken.sh")
    with opened(path) as tree:
        slots = SysfsSlots(tree, Machine())
        slots.hear(found)
        if not found.devices:
            assert store.entries() == []
            return
        store.write(Record(SCHEMA, "d", "c", UID, tuple(promised(device) for device in found.devices)))
        projection = Projector(store, specs, slots).project(UID)
    assert {one.device: (one.state, one.reason) for one in projection.devices} == {
        device.name: ("present", "") for device in found.devices
    }
    nodes = check_file(specs.path(UID))
    assert {
        name.removeprefix(f"{UID}-"): [node["path"] for node in given] for name, given in nodes.items()
    } == {device.name: [node.path for node in device.nodes] for device in found.devices}
