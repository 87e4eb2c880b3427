"""The clusters of this tier. They are started once, when the first test needs them."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.cluster.accounts import install, node_token
from tests.cluster.binaries import UnavailableError
from tests.cluster.control_plane import HOST_ADDRESS, SERVICE_ADDRESS, ControlPlane
from tests.cluster.covers import cover
from tests.cluster.node import Worker
from tests.cluster.objects import DEPLOY, MANIFESTS, load
from tests.cluster.played import PlayedMachine
from tests.cluster.services import Services
from tests.waiting import eventually

Tell = Callable[[str], None]
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
def tell(request: pytest.FixtureRequest) -> Tell:
    """Print a line about what happened and how long it took, whatever pytest captures."""
    capture = request.config.pluginmanager.getplugin("capturemanager")

    def line(text: str) -> None:
        with capture.global_and_fixture_disabled():
            print(f"\n  {text}", end=" ", flush=True)

    return line


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
    plane = _started(ControlPlane(folder / "newest", os.environ[MARK].split(",")[0]))
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


@pytest.fixture(scope="session")
def worker(control_plane: ControlPlane, folder: Path) -> Iterator[Worker]:
    """A real node of the newest cluster, with the DeviceClasses of the tests."""
    shipped = DEPLOY / "examples/deviceclasses.yaml"
    for path in (shipped, MANIFESTS / "classes.yaml", MANIFESTS / "node-claims.yaml"):
        for thing in load(path):
            control_plane.api.apply(thing)
    worker = Worker(control_plane, folder / "worker")
    try:
        worker.start()
    except UnavailableError as error:
        pytest.skip(str(error))
    yield worker
    worker.stop()


@pytest.fixture(scope="session")
def machine(folder: Path) -> PlayedMachine:
    """What the real node seems to have: a card, and two functions with nodes of this machine."""
    machine = PlayedMachine(folder / "machine")
    machine.add_gpu()
    machine.add_hidraw("0000:00:05.0", 5, "loop5")
    machine.add_hidraw("0000:00:06.0", 6, "zram0")
    return machine


@pytest.fixture(scope="module")
def liken(
    control_plane: ControlPlane, worker: Worker, machine: PlayedMachine, folder: Path
) -> Iterator[Services]:
    """Our four processes on the real node, with its slice published and the plugin registered."""
    install(control_plane)
    config = control_plane.token_config("worker", node_token(control_plane.api, worker.name))
    own = Path(tempfile.mkdtemp(prefix="liken-", dir=folder))
    services = Services(own, machine, worker.name, config).start()
    try:
        eventually(partial(_serves, services, worker), 40, "our driver serves the node", step_s=0.05)
        yield services
    finally:
        services.stop()
        control_plane.api.delete_all("ResourceSlice")


def _serves(services: Services, worker: Worker) -> bool:
    services.check_alive()
    published = worker.api.find("ResourceSlice", f"{worker.name}-liken.sh") is not None
    return published and bool(services.said("plugin", "registered"))


def _started(plane: ControlPlane, controllers: bool = True) -> ControlPlane:
    try:
        return plane.start(controllers)
    except UnavailableError as error:
        plane.stop()
        pytest.skip(str(error))
