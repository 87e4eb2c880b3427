"""On machines that hypothesis imagines, product and second opinion agree as they do on recorded ones."""

import pytest
from hypothesis import HealthCheck, given, settings

from common.hardware.machine import Machine
from common.hardware.walk import walk
from tests.machines.imagined import Imagined, imagined
from tests.machines.opinion import opinion
from tests.machines.product import TAKEN, offer
from tests.machines.vanishing import Vanishing

quick = settings(
    max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)


@pytest.mark.parametrize("roles", [None, ("sd3", "mmcblk5")], ids=["nothing declared", "disks declared"])
@quick
@given(machine=imagined())
def test_product_and_second_opinion_agree_on_any_machine(
    machine: Imagined, roles: tuple[str, ...] | None
) -> None:
    said = opinion(machine.recording(), roles)
    declared = Machine(roles=None if roles is None else frozenset(roles))
    found = walk(Vanishing(machine.archive()).tree(), declared, "node", TAKEN)
    assert {device.name: offer(device) for device in found.devices} == said.devices
    assert {
        entry.node: (f"{entry.bus} {entry.address}", entry.reason) for entry in found.withheld
    } == said.withheld
    assert {f"{entry.bus} {entry.address}" for entry in found.unclaimed} == said.unclaimed
