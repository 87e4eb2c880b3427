"""A kubelet as far as a DRA driver sees it, over the real sockets.

Behaves as kubernetes pkg/kubelet/pluginmanager and pkg/kubelet/cm/dra do: watches plugins_registry, gives
GetInfo one second, takes the first version of the plugin's list that it knows, notifies, keeps one connection
per instance, calls the instance registered last, and forgets an instance whose registration socket goes.
"""

import stat
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import grpc

from services.plugin.api import (
    dra_v1_pb2,
    dra_v1_pb2_grpc,
    health_v1_pb2,
    health_v1_pb2_grpc,
    health_v1alpha1_pb2,
    health_v1alpha1_pb2_grpc,
    pluginregistration_pb2,
    pluginregistration_pb2_grpc,
)

KNOWN_VERSIONS = ("v1.DRAPlugin",)
GET_INFO_S = 1.0  # kubernetes pkg/kubelet/pluginmanager/operationexecutor
CALL_S = 45.0  # kubernetes pkg/kubelet/cm/dra/plugin
SCAN_S = 0.02


class Claim(NamedTuple):
    """A claim as the kubelet names it."""

    namespace: str
    name: str
    uid: str


class Prepared(NamedTuple):
    """What the plugin answered for one claim."""

    error: str
    devices: tuple["PreparedDevice", ...]


class PreparedDevice(NamedTuple):
    requests: tuple[str, ...]
    pool: str
    device: str
    cdi_ids: tuple[str, ...]
    share_id: str | None


class Instance(NamedTuple):
    """One registered instance of the driver."""

    socket: Path
    driver: str
    endpoint: str
    versions: tuple[str, ...]
    get_info_s: float
    channel: grpc.Channel


class Kubelet:
    """Watches a registry folder until `close`."""

    def __init__(self, registry: Path, *, refuse: str = "", silent: bool = False) -> None:
        """`refuse`: tell every plugin this error instead of yes. `silent`: tell it nothing."""
        self.registry = registry
        self.refuse = refuse
        self.silent = silent
        self.instances: list[Instance] = []
        self.registrations = 0
        self.failures: list[str] = []
        self._seen: dict[Path, int] = {}
        self._guard = threading.Lock()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="kubelet", daemon=True)
        self._thread.start()

    def restart(self) -> None:
        """Forget everything; every socket is found anew."""
        with self._guard:
            for instance in self.instances:
                instance.channel.close()
            self.instances.clear()
            self._seen.clear()

    def close(self) -> None:
        self._closed.set()
        self._thread.join()
        self.restart()

    def __enter__(self) -> "Kubelet":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- the calls

    def prepare(self, *claims: Claim, timeout_s: float = CALL_S) -> dict[str, Prepared]:
        """NodePrepareResources at the instance registered last. Checks the rules for the answer."""
        request = dra_v1_pb2.NodePrepareResourcesRequest(claims=[_claim(claim) for claim in claims])
        answer = self._stub().NodePrepareResources(request, timeout=timeout_s)
        self._check(claims, answer.claims)
        return {uid: _prepared(one) for uid, one in answer.claims.items()}

    def unprepare(self, *claims: Claim, timeout_s: float = CALL_S) -> dict[str, str]:
        """NodeUnprepareResources at the instance registered last; the error per claim, "" for none."""
        request = dra_v1_pb2.NodeUnprepareResourcesRequest(claims=[_claim(claim) for claim in claims])
        answer = self._stub().NodeUnprepareResources(request, timeout=timeout_s)
        self._check(claims, answer.claims)
        return {uid: one.error for uid, one in answer.claims.items()}

    def health(self, version: str = "v1") -> "HealthStream":
        """Open a health stream at the instance registered last."""
        return HealthStream(self._last().channel, version)

    def _stub(self) -> Any:
        return dra_v1_pb2_grpc.DRAPluginStub(self._last().channel)  # type: ignore[no-untyped-call]

    def _last(self) -> Instance:
        with self._guard:
            assert self.instances, "no instance of the driver is registered"
            return self.instances[-1]

    @staticmethod
    def _check(claims: tuple[Claim, ...], answer: Any) -> None:
        asked = {claim.uid for claim in claims}
        if set(answer) != asked:  # no AssertionError: who waits for a registration must not take it for that
            raise RuntimeError(f"asked for {sorted(asked)}, answered {sorted(answer)}")

    # -- registration

    def _watch(self) -> None:
        while not self._closed.wait(SCAN_S):
            self._scan()

    def _scan(self) -> None:
        now = dict(self._sockets())
        for path in [path for path, inode in self._seen.items() if now.get(path) != inode]:
            self._forget(path)
        for path, inode in now.items():
            if path not in self._seen:
                self._seen[path] = inode
                self._register(path)

    def _sockets(self) -> Iterator[tuple[Path, int]]:
        if not self.registry.is_dir():
            return
        for path in sorted(self.registry.iterdir()):
            try:
                found = path.lstat()
            except FileNotFoundError:
                continue
            if stat.S_ISSOCK(found.st_mode) and not path.name.startswith("."):
                yield path, found.st_ino

    def _forget(self, path: Path) -> None:
        with self._guard:
            self._seen.pop(path, None)
            for instance in [one for one in self.instances if one.socket == path]:
                self.instances.remove(instance)
                instance.channel.close()

    def _register(self, path: Path) -> None:
        try:
            with grpc.insecure_channel(f"unix:{path}") as channel:
                stub: Any = pluginregistration_pb2_grpc.RegistrationStub(channel)  # type: ignore[no-untyped-call]
                begin = time.monotonic()
                info = stub.GetInfo(pluginregistration_pb2.InfoRequest(), timeout=GET_INFO_S)
                took = time.monotonic() - begin
                error = self.refuse or self._admit(path, info, took)
                if not self.silent:
                    status = pluginregistration_pb2.RegistrationStatus(
                        plugin_registered=not error, error=error
                    )
                    stub.NotifyRegistrationStatus(status, timeout=5.0)
        except grpc.RpcError as error:
            self.failures.append(f"{path.name}: {error}")

    def _admit(self, path: Path, info: Any, took: float) -> str:
        if info.type != "DRAPlugin":
            return f"unknown plugin type {info.type!r}"
        if not any(version in KNOWN_VERSIONS for version in info.supported_versions):
            return f"no known version among {list(info.supported_versions)}"
        with self._guard:
            if any((one.driver, one.endpoint) == (info.name, info.endpoint) for one in self.instances):
                return "already registered"
            channel = grpc.insecure_channel(f"unix:{info.endpoint}")
            versions = tuple(info.supported_versions)
            self.instances.append(Instance(path, info.name, info.endpoint, versions, took, channel))
            self.registrations += 1
        return ""


class Report(NamedTuple):
    """The health of one device, as the stream told it last."""

    health: str
    message: str
    timeout_s: int


class HealthStream:
    """Collects what a health stream sends, in a thread."""

    def __init__(self, channel: grpc.Channel, version: str) -> None:
        api: Any = {"v1": health_v1_pb2, "v1alpha1": health_v1alpha1_pb2}[version]
        stubs: Any = {"v1": health_v1_pb2_grpc, "v1alpha1": health_v1alpha1_pb2_grpc}[version]
        self.reports: dict[tuple[str, str], Report] = {}
        self.messages = 0
        self.ended = threading.Event()
        self._api = api
        self._call = stubs.DRAResourceHealthStub(channel).NodeWatchResources(api.NodeWatchResourcesRequest())
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def of(self, device: str) -> Report | None:
        """The last report on a device, by its name."""
        return next((report for (_, name), report in list(self.reports.items()) if name == device), None)

    def word(self, device: str) -> str:
        """HEALTHY, UNHEALTHY, UNKNOWN, or "" while there is no report."""
        report = self.of(device)
        return report.health if report else ""

    def close(self) -> None:
        self._call.cancel()
        self._thread.join()

    def _read(self) -> None:
        try:
            for message in self._call:
                self.reports = {
                    (one.device.pool_name, one.device.device_name): Report(
                        self._api.HealthStatus.Name(one.health),
                        one.message,
                        one.health_check_timeout_seconds,
                    )
                    for one in message.devices
                }
                self.messages += 1
        except grpc.RpcError:
            pass  # cancelled by us, or the plugin went away: `ended` tells
        finally:
            self.ended.set()


def _claim(claim: Claim) -> Any:
    return dra_v1_pb2.Claim(namespace=claim.namespace, name=claim.name, uid=claim.uid)


def _prepared(answer: Any) -> Prepared:
    return Prepared(
        answer.error,
        tuple(
            PreparedDevice(
                tuple(one.request_names),
                one.pool_name,
                one.device_name,
                tuple(one.cdi_device_ids),
                one.share_id if one.HasField("share_id") else None,
            )
            for one in answer.devices
        ),
    )
