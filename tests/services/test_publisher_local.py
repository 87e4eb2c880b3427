"""The publisher process on the local cluster: slices are files."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from common.bus import BusSender
from tests.publishing import NODE, device, message
from tests.services.process import Process, clean_environment, free_port
from tests.waiting import eventually

STICK = device("usb-1-2-1-0")
SOON_S = 10.0


class Machine:
    """A publisher on a folder, and the watcher that it listens to."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / f"cluster/slices/{NODE}-liken.sh.yaml"
        self._folder = folder
        self.watcher = BusSender(folder / "run/bus", "watcher")
        self.process = self.start()

    def start(self) -> Process:
        environment = clean_environment(
            NODE_NAME=NODE,
            LIKEN_CLUSTER="local",
            LIKEN_LOCAL=str(self._folder / "cluster"),
            LIKEN_RUN=str(self._folder / "run"),
            LIKEN_KUBELET=str(self._folder / "kubelet"),
            METRICS_ADDR=f"127.0.0.1:{free_port()}",
        )
        self.process = Process(["-P", "-m", "services.publisher"], environment, self._folder / "log")
        return self.process.wait_ready()

    def close(self) -> None:
        self.process.close()
        self.watcher.close()


@pytest.fixture
def machine(run_dir: Path) -> Iterator[Machine]:
    made = Machine(run_dir)
    yield made
    made.close()


def test_a_slice_that_somebody_removed_or_altered_is_put_right(machine: Machine) -> None:
    machine.watcher.state("inventory", message(STICK))
    eventually(lambda: STICK.name in machine.file.read_text(), SOON_S, "the first slice")

    machine.file.unlink()
    eventually(machine.file.exists, SOON_S, "the slice again")
    machine.file.write_text(machine.file.read_text().replace(STICK.name, "usb-9"))
    eventually(lambda: STICK.name in machine.file.read_text(), SOON_S, "the slice as it was")

    assert machine.process.log.count("put right") == 2


def test_a_restart_writes_nothing(machine: Machine) -> None:
    machine.watcher.state("inventory", message(STICK))
    eventually(lambda: STICK.name in machine.file.read_text(), SOON_S, "the first slice")
    before = machine.file.stat()

    machine.process.kill()
    machine.start()
    eventually(lambda: machine.process.metric("liken_slices") == 1.0, SOON_S, "the new process has looked")

    assert machine.file.stat() == before
