"""What the services tier shares."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def run_dir() -> Iterator[Path]:
    """A folder with a path short enough for unix sockets; pytest's own may be too long."""
    folder = Path(tempfile.mkdtemp(prefix="liken-"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)
