"""A bench for the life of a claim without processes: a built machine, real files, a cluster of dicts."""

import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry

from common.cdi import Specs
from common.claims import Record, Result, Store
from common.cluster import ClaimMissing, ClusterUnavailable
from common.hardware.machine import Machine
from common.hardware.tree import Tree
from common.hardware.walk import walk
from common.inventory import SCHEMA, Inventory
from common.prepared import Prepared
from common.projection import Projector
from common.slots import SysfsSlots
from services.plugin.calls import CallTime, ClaimName
from services.plugin.desk import Desk
from services.plugin.desk import Prepared as Answer
from services.plugin.offers import Offers
from services.plugin.rebind import Rebinder
from services.reconciler.metrics import ReconcilerMetrics
from services.reconciler.passes import Reconciler
from tests.builders import BOOT_ID, MachineBuilder
from tests.cdi_rules import check_file

NODE, DRIVER = "n1", "liken.sh"


class DictCluster:
    """A cluster that holds claims in a dict; `away` makes it answer nothing."""

    def __init__(self) -> None:
        self.claims: dict[tuple[str, str], dict[str, Any]] = {}
        self.away = False

    def claim(self, namespace: str, name: str, timeout_s: float) -> dict[str, Any]:
        if self.away:
            raise ClusterUnavailable("the API server does not answer")
        try:
            return self.claims[namespace, name]
        except KeyError as error:
            raise ClaimMissing(f"there is no claim {namespace}/{name}") from error


class Bench:
    """Plugin and reconciler of one node as objects in this process."""

    def __init__(self, folder: Path, machine: Machine | None = None) -> None:
        self.folder = folder
        self.machine = MachineBuilder(folder / "root")
        self.plugin_dir = folder / "kubelet/plugins" / DRIVER
        self.cdi = folder / "cdi"
        self.probe = folder / "drivers_probe"
        self.probe.touch()
        self.cluster = DictCluster()
        self.probes: list[str] = []
        self.waits: list[float] = []
        self.declared = machine or Machine()
        self.restart()

    def restart(self, boot: str = BOOT_ID, tree: Tree | None = None) -> None:
        """All processes anew, with empty memory; `boot` is the boot that they find, `tree` what they see."""
        self.store = Store(self.plugin_dir, boot)
        self.store.make_folders()
        self.specs = Specs(self.cdi, DRIVER)
        self.slots = SysfsSlots(tree or self.machine.tree(), self.declared)
        self.projector = Projector(self.store, self.specs, self.slots)
        self.offers = Offers(self.walk)
        self.rebinder = Rebinder(self.probe, self.slots.drivers, self.probes.append, limit_s=0.2)
        self.desk = self.new_desk()
        self.prepared = Prepared(self.store, self.specs, self.slots, self.projector)
        self.metrics = ReconcilerMetrics(CollectorRegistry())
        self.reconciler = Reconciler(self.prepared, self.metrics)

    def new_desk(self) -> Desk:
        """The plugin of one more instance on the same files."""
        return Desk(
            claims=self.cluster,
            store=self.store,
            specs=self.specs,
            slots=self.slots,
            offers=self.offers,
            rebinder=self.rebinder,
            driver=DRIVER,
            pool=NODE,
            waited=self.waits.append,
        )

    def walk(self) -> Inventory:
        return walk(self.machine.tree(), self.declared, NODE, "2026-01-01T00:00:00Z")

    # -- claims

    def claim(
        self, *devices: str, name: str = "", uid: str = "", results: Sequence[Mapping[str, Any]] = ()
    ) -> ClaimName:
        """A claim in the cluster with these devices allocated, and with `results` as they are."""
        uid = uid or str(uuid.uuid4())
        claim = ClaimName("default", name or f"claim-{uid[:8]}", uid)
        given = [
            {"request": f"r{number}", "driver": DRIVER, "pool": NODE, "device": device}
            for number, device in enumerate(devices)
        ]
        self.cluster.claims[claim.namespace, claim.name] = {
            "metadata": {"uid": uid},
            "status": {"allocation": {"devices": {"results": [*given, *results]}}},
        }
        return claim

    def prepare(self, claim: ClaimName, seconds: float = 5.0) -> tuple[Answer, ...]:
        return self.desk.prepare(claim, CallTime(seconds))

    def take(self, *devices: str) -> ClaimName:
        """A claim on these devices, prepared."""
        claim = self.claim(*devices)
        self.prepare(claim)
        return claim

    def unprepare(self, claim: ClaimName, seconds: float = 5.0) -> None:
        self.desk.unprepare(claim, CallTime(seconds))

    def reconcile(self, *, write: bool = True, backstop: bool = False) -> dict[str, str]:
        """A pass; the state of each device by name."""
        presence = self.reconciler.run(write=write, backstop=backstop)
        return {one.device: one.state for claim in presence.claims for one in claim.devices}

    def paths(self, claim: ClaimName) -> dict[str, list[str]]:
        """The node paths that the claim's spec gives per device; {} without a spec. Checks all CDI rules."""
        path = self.specs.path(claim.uid)
        if not path.exists():
            return {}
        found = check_file(path, DRIVER)
        return {
            name.removeprefix(f"{claim.uid}-"): [node["path"] for node in nodes]
            for name, nodes in found.items()
        }

    def files(self) -> dict[str, tuple[int, bytes]]:
        """Every file of records and specs with its inode: whoever writes one changes this."""
        found = [*self.cdi.glob("*"), *(self.plugin_dir / "claims").rglob("*")]
        return {
            str(path.relative_to(self.folder)): (path.stat().st_ino, path.read_bytes())
            for path in sorted(found)
            if path.is_file()
        }


def record(uid: str, *results: Result, name: str = "claim", schema: int = SCHEMA) -> Record:
    """A record by hand."""
    return Record(schema, "default", name, uid, results)
