"""What the services tier shares."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


def _short_dir() -> Iterator[Path]:
    # a path short enough for unix sockets; pytest's own may be too long
    folder = Path(tempfile.mkdtemp(prefix="liken-"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def run_dir() -> Iterator[Path]:
    """A folder with a short path, for one test."""
    yield from _short_dir()


@pytest.fixture(scope="module")
def short_dir() -> Iterator[Path]:
    """A folder with a short path, for all tests of a module."""
    yield from _short_dir()
