"""The product under test: `liken up` on the played machine, against an API server and a kubelet."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from services.console.play import Player
from services.console.uevents import Sender, Sent
from tests.chaos.attributes import Told
from tests.services.api_stand_in import ApiStandIn
from tests.services.kubelet_stand_in import Kubelet
from tests.services.process import ROOT, Process, clean_environment
from tests.waiting import eventually

NODE = "chaos"
DRIVER = "liken.sh"
SECOND = ("watcher", "publisher", "plugin", "reconciler")


class System:
    """One run's processes and folders, below `folder` (a short path)."""

    def __init__(self, folder: Path, source: Path) -> None:
        self.folder = folder
        self.state = folder / "s"
        self.kubelet_dir = folder / "k"
        self.cdi = folder / "cdi"
        self.plugin_dir = self.kubelet_dir / "plugins/liken.sh"
        self.bus = self.state / "run/bus"
        self.registry = self.kubelet_dir / "plugins_registry"
        self.clock = folder / "clock"
        for each in (self.cdi, self.plugin_dir, self.registry):
            each.mkdir(parents=True, exist_ok=True)
        self.clock.write_text("0\n")
        self.api = ApiStandIn()
        self.api.start()
        self.api.store.add_node(NODE)
        self.kubelet = Kubelet(self.registry)
        self.second: list[Process] = []
        self._log = (folder / "up.log").open("wb")
        self._up = self._start(source)
        eventually(lambda: len(self.pids()) == 4, 40, "all four run")
        self.player = Player(self.state / "machine", self.state / "run")
        eventually(lambda: self.kubelet.instances, 30, "the plugin is registered")

    @property
    def root(self) -> Path:
        return self.state / "machine"

    def environment(self) -> dict[str, str]:
        variables = {
            "NODE_NAME": NODE,
            "METRICS_ADDR": "",
            "LIKEN_CLUSTER": "kubernetes",
            "KUBECONFIG": str(self.api.kubeconfig(self.folder / "kubeconfig")),
            "LIKEN_KUBELET": str(self.kubelet_dir),
            "LIKEN_CDI": str(self.cdi),
        }
        variables["LIKEN_TEST_CLOCK"] = str(self.clock)
        variables["PYTHONPATH"] = f"{Path(__file__).parent / 'clock'}:{ROOT}"
        return clean_environment(**variables)

    def _start(self, source: Path) -> subprocess.Popen[bytes]:
        command = [
            sys.executable,
            "-m",
            "services.console",
            "up",
            "--state",
            str(self.state),
            "--root",
            str(source),
        ]
        return subprocess.Popen(
            command,
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            cwd=ROOT,
        )

    # -- processes

    def status(self) -> list[dict[str, Any]]:
        """What `liken status` says of the four; empty while the supervisor does not answer."""
        command = [
            sys.executable,
            "-m",
            "services.console",
            "status",
            "--state",
            str(self.state),
            "-o",
            "json",
        ]
        done = subprocess.run(
            command, env=clean_environment(), capture_output=True, text=True, cwd=ROOT, check=False
        )
        if done.returncode != 0:
            return []
        found: list[dict[str, Any]] = json.loads(done.stdout)["processes"]
        return found

    def pids(self) -> dict[str, int]:
        """The pid of each service that runs, read from /proc: children of the supervisor."""
        found = {}
        children = Path(f"/proc/{self._up.pid}/task/{self._up.pid}/children")
        with contextlib.suppress(FileNotFoundError):
            for pid in children.read_text().split():
                with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                    line = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
                    if match := re.search(r"services\.(watcher|publisher|plugin|reconciler)\0", line):
                        found[match.group(1)] = int(pid)
        return found

    def kill(self, service: str) -> bool:
        """SIGKILL; False when it does not run now."""
        pid = self.pids().get(service)
        if pid is None:
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            return True
        return False

    def memory_kib(self) -> dict[str, tuple[int, int]]:
        """The pid and the resident memory of each service."""
        found = {}
        for service, pid in self.pids().items():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError, StopIteration):
                lines = Path(f"/proc/{pid}/status").read_text().splitlines()
                found[service] = pid, int(next(line for line in lines if line.startswith("VmRSS")).split()[1])
        return found

    # -- a second instance, as in a rolling update

    def start_second(self) -> None:
        run = self.folder / "r2"
        for service in SECOND:
            variables = {
                **self.environment(),
                "POD_UID": "5ec0ad00-0000-4000-8000-000000000002",
                "METRICS_ADDR": "",  # a port that was free a moment ago may be another test's by now
                "LIKEN_RUN": str(run),
                "LIKEN_ROOT": str(self.root),
            }
            self.second.append(
                Process(["-m", f"services.{service}"], variables, self.folder / f"second-{service}.log")
            )

    def stop_second(self) -> list[int]:
        """End it as a kubelet would; the exit codes."""
        codes = [process.stop() for process in self.second]
        self.second.clear()
        return codes

    def relay(self, sent: tuple[Sent, ...]) -> None:
        """The kernel tells every listener; the player told only the first watcher."""
        if self.second:
            sender = Sender(self.folder / "r2")
            for event in sent:
                sender.send(event.action, event.devpath, {"SUBSYSTEM": "usb", "SEQNUM": "0"})
            sender.close()

    # -- what is on disk and on the server

    def records(self) -> set[tuple[str, str]]:
        """UID and device of each record."""
        found = set()
        for path in (self.plugin_dir / "claims").rglob("*.json"):
            record = json.loads(path.read_text())
            found |= {(path.stem, each["device"]) for each in record["results"] if record["uid"] == path.stem}
        return found

    def leftovers(self) -> set[str]:
        """The temporary files under specs and records: a killed writer's, while nobody writes."""
        found = [*self.cdi.glob(".liken-*"), *(self.plugin_dir / "claims").rglob(".liken-*")]
        return {path.name for path in found}

    def spec(self, uid: str) -> Path:
        return self.cdi / f"liken.sh-device_{uid}.json"

    def specs(self) -> set[str]:
        return {path.stem.partition("_")[2] for path in self.cdi.glob("liken.sh-device_*.json")}

    def offered(self) -> Told:
        """All that the slices on the server say of devices."""
        devices = [device for spec in self._slices() for device in spec.get("devices", ())]
        return {
            (device["name"], name, kind, value)
            for device in devices
            for name, typed in device["attributes"].items()
            for kind, value in typed.items()
        } | {
            (device["name"], field, "", value if isinstance(value, bool) else json.dumps(value))
            for device in devices
            for field, value in device.items()
            if field not in ("name", "attributes")
        }

    def pool_faults(self) -> set[str]:
        """What is wrong with the slices themselves: they must be one complete pool of this node."""
        slices = self._slices()
        names = Counter(device["name"] for spec in slices for device in spec.get("devices", ()))
        found = {f"{name} is there {count} times" for name, count in names.items() if count > 1}
        generations = {spec["pool"]["generation"] for spec in slices}
        if len(generations) != 1:
            found.add(f"{len(slices)} slices have the generations {sorted(generations)}")
        for spec in slices:
            own = {field: value for field, value in spec.items() if field != "devices"}
            pool = {
                "name": NODE,
                "generation": spec["pool"]["generation"],
                "resourceSliceCount": len(slices),
            }
            if own != {"driver": DRIVER, "nodeName": NODE, "pool": pool}:
                found.add(f"one of {len(slices)} slices says {own}")
        return found

    def _slices(self) -> list[dict[str, Any]]:
        """The spec of each slice on the server, all of one moment."""
        with self.api.store.changed:
            return [each["spec"] for each in self.api.store.slices.values()]

    def bus_answers(self) -> set[str]:
        """The services whose socket on the bus takes a connection."""
        found = set()
        for path in self.bus.glob("*.sock"):
            with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as end:
                end.connect(str(path))
                found.add(path.stem)
        return found

    def close(self) -> int:
        """End everything; the exit code of `liken up`."""
        self.stop_second()
        self.kubelet.close()
        self._up.send_signal(signal.SIGINT)
        try:
            code = self._up.wait(20)
        finally:
            if self._up.poll() is None:
                self._up.kill()
            self.api.stop()
            self._log.close()
        return code
