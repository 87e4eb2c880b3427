"""A node for tests: a built machine, the folders, and the real plugin and reconciler as processes.

The test plays the watcher: `stir` and `inventory` send what it would send, at the moment the test chooses.
"""

import signal
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from common.bus import BusReader, BusSender, decode
from common.hardware.machine import load_machine
from common.hardware.walk import walk
from common.inventory import SCHEMA, InventoryMessage, Presence
from tests.builders import BOOT_ID, MachineBuilder
from tests.cdi_rules import check_file
from tests.services.kubelet_stand_in import Claim, Kubelet
from tests.services.process import Process, clean_environment, free_port
from tests.waiting import eventually

NODE = "n1"
DRIVER = "liken.sh"


class PlayedNode:
    """One node below `run`, a folder with a short path."""

    def __init__(self, run: Path) -> None:
        self.run = run
        self.machine = MachineBuilder(run / "root")
        self.kubelet_dir = run / "k"
        self.plugin_dir = self.kubelet_dir / "plugins" / DRIVER
        self.registry = self.kubelet_dir / "plugins_registry"
        self.cdi = run / "cdi"
        self.cluster = run / "cluster"
        self.probe = run / "bus" / "usb" / "drivers_probe"
        self.registry.mkdir(parents=True)
        self.probe.parent.mkdir(parents=True)
        self.probe.touch()
        self.processes: list[Process] = []
        self._watcher: BusSender | None = None
        self._ear: BusReader | None = None
        self._presence: Presence | None = None
        self._kubelet: Kubelet | None = None

    # -- processes

    def start(self, service: str, **variables: str) -> Process:
        """Start a service and wait until it is ready."""
        return self.launch(service, **variables).wait_ready()

    def launch(self, service: str, **variables: str) -> Process:
        environment = clean_environment(**(self.environment() | variables))
        log = self.run / f"{service}-{len(self.processes)}.log"
        process = Process(["-m", f"services.{service}"], environment, log)
        self.processes.append(process)
        return process

    def environment(self) -> dict[str, str]:
        return {
            "NODE_NAME": NODE,
            "METRICS_ADDR": f"127.0.0.1:{free_port()}",
            "LIKEN_ROOT": str(self.machine.root),
            "LIKEN_RUN": str(self.run / "r"),
            "LIKEN_KUBELET": str(self.kubelet_dir),
            "LIKEN_CDI": str(self.cdi),
            "LIKEN_LOCAL": str(self.cluster),
            "LIKEN_HOST_BUS": str(self.run / "bus"),
        }

    @property
    def kubelet(self) -> Kubelet:
        if self._kubelet is None:
            self._kubelet = Kubelet(self.registry)
        return self._kubelet

    def registered(self) -> Kubelet:
        """The kubelet, once it knows an instance of the driver."""
        eventually(lambda: self.kubelet.instances, 10, "the plugin is registered")
        return self.kubelet

    def close(self) -> None:
        for process in self.processes:
            if process.popen.poll() is None:
                process.signal(signal.SIGCONT)
            process.close()
        for part in (self._kubelet, self._watcher, self._ear):
            if part is not None:
                part.close()

    # -- claims

    def claim(
        self,
        *devices: str,
        name: str = "",
        uid: str = "",
        results: Sequence[Mapping[str, Any]] = (),
    ) -> Claim:
        """A claim in the cluster with these devices allocated, or with `results` as they are."""
        uid = uid or str(uuid.uuid4())
        claim = Claim("default", name or f"claim-{uid[:8]}", uid)
        given = [
            {"request": f"r{number}", "driver": DRIVER, "pool": NODE, "device": device}
            for number, device in enumerate(devices)
        ]
        self.put_claim(claim, {"allocation": {"devices": {"results": [*given, *results]}}})
        return claim

    def put_claim(self, claim: Claim, status: Mapping[str, Any]) -> None:
        """Put a ResourceClaim with this status into the cluster."""
        body = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"namespace": claim.namespace, "name": claim.name, "uid": claim.uid},
            "status": dict(status),
        }
        path = self.claim_path(claim)
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(".tmp")
        temporary.write_text(yaml.safe_dump(body))
        temporary.rename(path)

    def claim_path(self, claim: Claim) -> Path:
        """Where the local cluster keeps the claim."""
        return self.cluster / "claims" / claim.namespace / f"{claim.name}.yaml"

    def prepared(self, *devices: str) -> Claim:
        """A claim on these devices that the kubelet has prepared."""
        claim = self.claim(*devices)
        answer = self.registered().prepare(claim)[claim.uid]
        assert answer.error == "", answer.error
        return claim

    def records(self, boot: str = BOOT_ID) -> list[str]:
        """The UIDs that have a record."""
        return sorted(path.stem for path in (self.plugin_dir / "claims" / boot).glob("*.json"))

    def spec_path(self, claim: Claim) -> Path:
        return self.cdi / f"{DRIVER}-device_{claim.uid}.json"

    def paths(self, claim: Claim) -> dict[str, list[str]]:
        """The node paths that the claim's spec gives per device; {} without a spec. Checks all CDI rules."""
        path = self.spec_path(claim)
        if not path.exists():
            return {}
        found = check_file(path, DRIVER)
        return {
            name.removeprefix(f"{claim.uid}-"): [node["path"] for node in nodes]
            for name, nodes in found.items()
        }

    def leftovers(self) -> list[str]:
        """Temporary files in the folders of records and specs."""
        found = [*self.cdi.glob(".*"), *(self.plugin_dir / "claims").rglob(".*")]
        return sorted(path.name for path in found)

    # -- the watcher's part

    @property
    def watcher(self) -> BusSender:
        if self._watcher is None:
            self._watcher = BusSender(self.run / "r" / "bus", "watcher")
        return self._watcher

    def stir(self) -> None:
        """The tick of a uevent."""
        self.watcher.tick("stirred")

    def inventory(self) -> None:
        """The inventory of now."""
        machine = load_machine(self.machine.root / "etc/liken/machine.yaml")
        found = walk(self.machine.tree(), machine, NODE, "2026-01-01T00:00:00Z")
        self.watcher.state("inventory", InventoryMessage(SCHEMA, found))

    # -- the publisher's ear

    def presence(self) -> Presence | None:
        """The newest states that the reconciler sent."""
        if self._ear is None:
            self._ear = BusReader(self.run / "r" / "bus", "publisher", ["presence"])
        for message in self._ear.wait(0):
            if message.payload is not None:
                self._presence = decode(message.topic, message.payload, Presence)
        return self._presence

    def state(self, claim: Claim, device: str) -> tuple[str, str]:
        """State and reason of a device of a claim, as the reconciler sent it last; ("", "") for none."""
        presence = self.presence()
        for one in presence.claims if presence else ():
            for found in one.devices:
                if (one.uid, found.device) == (claim.uid, device):
                    return found.state, found.reason
        return "", ""
