"""The four services on a played machine, with an API server that answers at once, for measuring."""

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.services.api_stand_in import ApiStandIn
from tests.services.kubelet_stand_in import Claim
from tests.services.machine import SERVICES, PlayedMachine
from tests.services.played_node import NODE
from tests.services.process import Process

DEFAULT_SETTLE_S = 1.0
MEMORY = Path("/dev/shm")  # the CDI folder of a node is below /run, in memory; the records are on its disk


class MeasuredNode(PlayedMachine):
    """A played machine whose services talk to an API server over HTTP; `root` plays another tree."""

    def __init__(
        self, run: Path, adapters: int, root: Path | None = None, settle_s: float = DEFAULT_SETTLE_S
    ) -> None:
        super().__init__(run, adapters)
        self._settle_s = settle_s
        self._memory = Path(tempfile.mkdtemp(prefix="bench-", dir=MEMORY)) if MEMORY.is_dir() else None
        if self._memory is not None:
            self.cdi = self._memory / "cdi"
        self.api = ApiStandIn()
        self.api.start()
        self.api.store.add_node(NODE)
        self._kubeconfig = self.api.kubeconfig(run / "kubeconfig")
        self._root = root

    def environment(self) -> dict[str, str]:
        more = {
            "LIKEN_CLUSTER": "kubernetes",
            "KUBECONFIG": str(self._kubeconfig),
            "LIKEN_SETTLE": str(self._settle_s),
        }
        if self._root:
            more |= {"LIKEN_ROOT": str(self._root)}
        return super().environment() | more

    def process(self, service: str) -> Process:
        """The process of a service, where all four were started by `node`."""
        return self.processes[SERVICES.index(service)]

    def put_claim(self, claim: Claim, status: object) -> None:
        self.api.store.add_claim(
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceClaim",
                "metadata": {"namespace": claim.namespace, "name": claim.name, "uid": claim.uid},
                "status": status,
            }
        )

    def await_plugins(self) -> None:
        """Play the kubelet from now on: a plugin is ready when one has registered it."""
        assert not self.kubelet.instances

    def offered(self) -> set[str]:
        with self.api.store.changed:
            slices = list(self.api.store.slices.values())
        return {device["name"] for each in slices for device in each["spec"].get("devices", ())}

    def close(self) -> None:
        super().close()
        self.api.stop()
        if self._memory is not None:
            shutil.rmtree(self._memory, ignore_errors=True)


@contextmanager
def node(
    adapters: int,
    root: Path | None = None,
    services: Sequence[str] = (),
    settle_s: float = DEFAULT_SETTLE_S,
) -> Iterator[MeasuredNode]:
    """A node with all services (or `services`) ready; everything is gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="bench-", dir="/tmp"))
    measured = MeasuredNode(folder, adapters, root, settle_s)
    try:
        measured.await_plugins()
        for process in [measured.launch(each) for each in services or SERVICES]:
            process.wait_ready()
        yield measured
    finally:
        measured.close()
        shutil.rmtree(folder, ignore_errors=True)
