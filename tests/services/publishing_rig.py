"""The real publisher process, what feeds it, and the API server it talks to: the stand-in or a real one.

With `LIKEN_TEST_KUBECONFIG` set to an administrator's kubeconfig, tests that use `open_server` run against
that API server; each test has a node name of its own, and removes its Node and slices at the end.
"""

import contextlib
import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

from common.bus import BusSender
from common.cluster import Raw
from common.cluster.http import Api, Missing
from common.inventory import (
    SCHEMA,
    ClaimPresence,
    Device,
    DevicePresence,
    Facts,
    Inventory,
    InventoryMessage,
    Presence,
)
from tests.publishing import DRIVER, KNOWN
from tests.services.api_stand_in import ApiStandIn
from tests.services.process import Process, clean_environment, free_port

SLICES = "/apis/resource.k8s.io/v1/resourceslices"
REAL = "LIKEN_TEST_KUBECONFIG"


class Server(Protocol):
    """What the tests do to an API server, as an administrator or a kubelet would."""

    node: str

    def kubeconfig(self) -> Path: ...
    def add_node(self) -> str: ...
    def slices(self) -> dict[str, Raw]: ...
    def delete(self, name: str) -> None: ...
    def delete_all(self) -> None: ...
    def edit(self, name: str, change: Callable[[Raw], None]) -> None: ...
    def events(self) -> list[str]: ...
    def close(self) -> None: ...


class StandInServer:
    """The stand-in, for one node."""

    def __init__(self, folder: Path, node: str, api: ApiStandIn) -> None:
        self.node = node
        self.api = api
        self._folder = folder

    def kubeconfig(self) -> Path:
        return self.api.kubeconfig(self._folder / "kubeconfig")

    def add_node(self) -> str:
        return self.api.store.add_node(self.node)

    def slices(self) -> dict[str, Raw]:
        items, _ = self.api.store.listed({"spec.nodeName": self.node})
        return {item["metadata"]["name"]: item for item in items}

    def delete(self, name: str) -> None:
        self.api.store.delete(name)

    def delete_all(self) -> None:
        self.api.store.delete_all()

    def edit(self, name: str, change: Callable[[Raw], None]) -> None:
        self.api.store.edit(name, change)

    def events(self) -> list[str]:
        return [event["reason"] for event in self.api.store.events]

    def close(self) -> None:
        self.api.stop()


class RealServer:
    """A real API server, for one node."""

    def __init__(self, kubeconfig: Path, node: str) -> None:
        self.node = node
        self._kubeconfig = kubeconfig
        self._api = Api({"KUBECONFIG": str(kubeconfig)})
        self._selector = {"fieldSelector": f"spec.driver={DRIVER},spec.nodeName={node}"}

    def kubeconfig(self) -> Path:
        return self._kubeconfig

    def add_node(self) -> str:
        body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": self.node}}
        return str(self._api.request("POST", "/api/v1/nodes", None, body)["metadata"]["uid"])

    def slices(self) -> dict[str, Raw]:
        items = self._api.request("GET", SLICES, self._selector)["items"]
        return {item["metadata"]["name"]: item for item in items}

    def delete(self, name: str) -> None:
        self._api.request("DELETE", f"{SLICES}/{name}")

    def delete_all(self) -> None:
        self._api.request("DELETE", SLICES, self._selector)

    def edit(self, name: str, change: Callable[[Raw], None]) -> None:
        item = self._api.request("GET", f"{SLICES}/{name}")
        change(item)
        item["metadata"].pop("resourceVersion")
        self._api.request("PUT", f"{SLICES}/{name}", None, item)

    def events(self) -> list[str]:
        found = self._api.request("GET", "/apis/events.k8s.io/v1/namespaces/default/events")["items"]
        return [event["reason"] for event in found if event["regarding"].get("name") == self.node]

    def close(self) -> None:
        with contextlib.suppress(Missing):  # not every test makes its Node
            self._api.request("DELETE", f"/api/v1/nodes/{self.node}")
        self.delete_all()
        self._api.close()


def open_server(folder: Path) -> Iterator[Server]:
    """The server that the environment names, with a fresh node name (the Node is not made yet)."""
    node = f"node-{uuid.uuid4().hex[:8]}"
    if os.environ.get(REAL):
        server: Server = RealServer(Path(os.environ[REAL]), node)
    else:
        api = ApiStandIn()
        api.start()
        server = StandInServer(folder, node, api)
    try:
        yield server
    finally:
        server.close()


class Rig:
    """Publisher processes of one node, and the two services that they listen to."""

    def __init__(self, folder: Path, server: Server, driver: str = DRIVER) -> None:
        self.server = server
        self._folder = folder
        self._driver = driver
        self.processes: list[Process] = []
        self.watcher = BusSender(folder / "run/bus", "watcher")
        self.reconciler = BusSender(folder / "run/bus", "reconciler")
        self.first = f"{server.node}-{driver}"

    def start(self, **variables: str) -> Process:
        """One more publisher of the node, ready."""
        environment = clean_environment(
            NODE_NAME=self.server.node,
            LIKEN_CLUSTER="kubernetes",
            KUBECONFIG=str(self.server.kubeconfig()),
            LIKEN_RUN=str(self._folder / "run"),
            LIKEN_KUBELET=str(self._folder / "kubelet"),
            METRICS_ADDR=f"127.0.0.1:{free_port()}",
        )
        log = self._folder / f"publisher-{len(self.processes)}.log"
        process = Process(["-P", "-m", "services.publisher"], environment | variables, log)
        self.processes.append(process)
        return process.wait_ready()

    def offer(self, *found: Device, facts: Facts = KNOWN, stirred: float = 0.0) -> None:
        """The watcher found these devices."""
        inventory = Inventory(SCHEMA, self.server.node, "boot", "2026-01-01T00:00:00Z", facts, tuple(found))
        self.watcher.state("inventory", InventoryMessage(SCHEMA, inventory, "", stirred))

    def fail(self, error: str) -> None:
        """The watcher could not read the hardware."""
        self.watcher.state("inventory", InventoryMessage(SCHEMA, None, error))

    def claimed(self, *names: str) -> None:
        """The reconciler knows a prepared claim on these devices."""
        entries = tuple(DevicePresence(self.server.node, name, "present", "now", "") for name in names)
        self.reconciler.state("presence", Presence(SCHEMA, "boot", (ClaimPresence("ns", "c", "u", entries),)))

    def published(self) -> list[str]:
        """The names of the devices that the server holds, sorted."""
        found = self.server.slices()
        return sorted(d["name"] for item in found.values() for d in item["spec"].get("devices") or ())

    def shows(self, *found: Device) -> Callable[[], bool]:
        """Whether the slices offer exactly these, for `eventually`."""
        names = sorted(item.name for item in found)
        return lambda: self.server.slices() != {} and self.published() == names

    def close(self) -> None:
        for process in self.processes:
            process.close()
        self.watcher.close()
        self.reconciler.close()
