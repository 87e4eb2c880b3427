"""The clusters of this tier. They are started once, when the first test needs them."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.binaries import UnavailableError
from tests.cluster.control_plane import HOST_ADDRESS, SERVICE_ADDRESS, ControlPlane
from tests.cluster.covers import cover

MARK = "LIKEN_CLUSTER_INSIDE"
NETWORK = (
    "ip link set lo up",
    f"ip addr add {SERVICE_ADDRESS}/32 dev lo",
    "ip link add cni0 type bridge",
    f"ip addr add {HOST_ADDRESS}/16 dev cni0",
    "ip link set cni0 up",
    # containers see the mounts of their pods through shared propagation; nothing of it leaves this namespace
    "mount --make-rshared /",
)


@pytest.fixture(scope="session")
def folder() -> Iterator[Path]:
    """Everything of this run; short, because socket paths have 107 bytes."""
    if MARK not in os.environ:
        pytest.fail("these tests make networks and mounts: run them with `make test-cluster`", pytrace=False)
    for command in NETWORK:
        subprocess.run(command.split(), check=True)
    path = Path(tempfile.mkdtemp(prefix="liken-", dir="/var/tmp"))
    cover(path / "covers")
    yield path
    if not os.environ.get("LIKEN_KEEP"):
        shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="session")
def control_plane(folder: Path) -> Iterator[ControlPlane]:
    """The newest Kubernetes."""
    plane = _started(ControlPlane(folder / "newest"))
    yield plane
    plane.stop()


@pytest.fixture(scope="session")
def oldest(folder: Path) -> Iterator[ControlPlane]:
    """API server and scheduler of the oldest supported Kubernetes."""
    versions = os.environ[MARK].split(",")
    if len(versions) < 2:
        pytest.skip(f"only Kubernetes {versions[0]} was asked for")
    plane = _started(ControlPlane(folder / "oldest", versions[-1], port=6444), controllers=False)
    yield plane
    plane.stop()


def _started(plane: ControlPlane, controllers: bool = True) -> ControlPlane:
    try:
        return plane.start(controllers)
    except UnavailableError as error:
        plane.stop()
        pytest.skip(str(error))
