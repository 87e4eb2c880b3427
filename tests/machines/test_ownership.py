"""The second opinion, the expectation files and the product must say the same of every recorded machine."""

from pathlib import Path

import pytest

from tests.machines.expectation import Expectation, expected_machines, read
from tests.machines.marks import HAS_MACHINES
from tests.machines.opinion import Opinion, opinion
from tests.machines.recording import archives, dumps, load, machine_name

RECORDINGS = [pytest.param(path, id=machine_name(path)) for path in archives() + dumps()]
pytestmark = pytest.mark.skipif(
    not RECORDINGS, reason="no recorded machines: set LIKEN_MACHINES to their folder"
)


def second(path: Path) -> tuple[Opinion, Expectation]:
    return opinion(load(path)), read(machine_name(path))


def test_every_recorded_machine_has_an_expectation_file() -> None:
    recorded = {machine_name(path) for path in archives() + dumps()}
    assert recorded - set(expected_machines()) == set()
    assert not HAS_MACHINES or set(expected_machines()) == recorded


@pytest.mark.parametrize("path", RECORDINGS)
def test_the_second_opinion_offers_what_the_file_expects(path: Path) -> None:
    said, expected = second(path)
    assert said.devices == expected.devices
    assert said.storage == expected.storage


@pytest.mark.parametrize("path", RECORDINGS)
def test_the_second_opinion_withholds_what_the_file_expects(path: Path) -> None:
    said, expected = second(path)
    assert said.withheld == expected.withheld


@pytest.mark.parametrize("path", RECORDINGS)
def test_the_second_opinion_lists_the_unclaimed_hardware_of_the_file(path: Path) -> None:
    said, expected = second(path)
    assert len(said.unclaimed) == expected.unclaimed_count
    assert expected.unclaimed_among <= said.unclaimed
    assert expected.unclaimed in (None, said.unclaimed)
