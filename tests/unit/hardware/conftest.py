from pathlib import Path

import pytest

from tests.builders import MachineBuilder


@pytest.fixture
def machine(tmp_path: Path) -> MachineBuilder:
    """An empty machine to build on."""
    return MachineBuilder(tmp_path)
