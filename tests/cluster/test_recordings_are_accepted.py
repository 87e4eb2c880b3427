"""Every recorded machine's slices are valid for real API servers, the newest and the oldest supported."""

import copy
from pathlib import Path

import pytest

from services.publisher.slices import slices
from tests.cluster.api import Object
from tests.cluster.control_plane import ControlPlane
from tests.machines.product import inventory
from tests.machines.recording import archives, dumps, machine_name

RECORDINGS = [*archives(), *dumps()]


@pytest.mark.parametrize("recording", RECORDINGS, ids=machine_name)
def test_the_newest_api_server_accepts_and_keeps_every_field(
    control_plane: ControlPlane, recording: Path
) -> None:
    wanted = _wanted(recording)

    kept = [control_plane.api.apply(item, "liken", dry=True) for item in wanted]

    assert [_specified(item) for item in kept] == [_specified(item) for item in wanted]


@pytest.mark.parametrize("recording", RECORDINGS, ids=machine_name)
def test_the_oldest_api_server_accepts_and_drops_only_sharing(oldest: ControlPlane, recording: Path) -> None:
    wanted = _wanted(recording)

    kept = [oldest.api.apply(item, "liken", dry=True) for item in wanted]

    assert [_specified(item) for item in kept] == [_without_sharing(_specified(item)) for item in wanted]


def _wanted(recording: Path) -> list[Object]:
    wanted = slices(inventory(recording), "node", node_uid="0b4a7bd5-6ef2-4d5f-a7a2-9c1f3a1c9d21")
    assert not wanted.left_out, f"left out: {wanted.left_out}"
    return list(wanted.slices)


def _specified(item: Object) -> Object:
    """A slice's spec; servers leave an empty list of devices out, or answer null."""
    return {key: value for key, value in item["spec"].items() if value not in ([], None)}


def _without_sharing(spec: Object) -> Object:
    kept = copy.deepcopy(spec)
    for device in kept.get("devices", []):
        device.pop("allowMultipleAllocations", None)
    return kept
