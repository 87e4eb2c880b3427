"""Our four processes beside a real cluster, each started as in production: `python -m services.<name>`."""

import signal
import sys
from pathlib import Path

from common.settings import SERVICES, Service
from tests.cluster.covers import CDI, KUBELET
from tests.cluster.played import PlayedMachine
from tests.cluster.processes import Running
from tests.waiting import eventually

START_LIMIT_S = 30


class Services:
    """One set of the four processes on one node; `run` is its own bus and socket folder."""

    def __init__(
        self,
        folder: Path,
        machine: PlayedMachine,
        node: str,
        kubeconfig: Path,
        pod_uid: str = "",
        kubelet: Path = KUBELET,
    ) -> None:
        self.folder = folder
        self.run = folder / "run"
        self.run.mkdir(parents=True, exist_ok=True)
        self._machine = machine
        self.running: dict[Service, Running] = {}
        self.environment = {
            "NODE_NAME": node,
            "POD_UID": pod_uid,
            "METRICS_ADDR": "",
            "LIKEN_ROOT": str(machine.root),
            "LIKEN_RUN": str(self.run),
            "LIKEN_KUBELET": str(kubelet),
            "LIKEN_CDI": str(CDI),
            "LIKEN_CLUSTER": "kubernetes",
            "KUBECONFIG": str(kubeconfig),
            # the machine's own drivers_probe is nothing to play with
            "LIKEN_HOST_BUS": str(machine.root / "sys/bus"),
        }

    def start(self, *names: Service) -> "Services":
        """Start these (all four by default) and wait for the watcher's socket."""
        for name in names or SERVICES:
            command = [sys.executable, "-m", f"services.{name}"]
            self.running[name] = Running(name, command, self.folder / f"{name}.log", self.environment)
        listener = self.run / "uevents.sock"
        if "watcher" in self.running:
            eventually(listener.exists, START_LIMIT_S, "the watcher listens")
            self._machine.listeners.append(listener)
        return self

    def stop(self, first: signal.Signals = signal.SIGTERM) -> None:
        self._machine.listeners[:] = [path for path in self._machine.listeners if path.parent != self.run]
        for running in self.running.values():
            running.stop(first)

    def said(self, name: Service, words: str) -> list[str]:
        """The log lines since its last start that contain `words`."""
        running = self.running[name]
        lines = running.log.read_bytes()[running.log_start :].decode(errors="replace").splitlines()
        return [line for line in lines if words in line]

    def check_alive(self) -> bool:
        return all(running.check_alive() for running in self.running.values())
