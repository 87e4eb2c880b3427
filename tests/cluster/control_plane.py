"""etcd, kube-apiserver, kube-scheduler and kube-controller-manager with certificates of their own.

They run in the network namespace that tests/cluster/__main__.py makes: addresses and ports are fixed there.
"""

from pathlib import Path

from tests.cluster.api import Api, ApiError, Object
from tests.cluster.binaries import find, kubernetes_versions
from tests.cluster.certificates import Authority, kubeconfig
from tests.cluster.processes import Running
from tests.waiting import eventually

HOST_ADDRESS = "10.88.0.1"  # the bridge of the pods; also the node's address
SERVICE_ADDRESS = "10.96.0.1"  # what pods find in KUBERNETES_SERVICE_HOST: the first address of SERVICES
GUEST_GATEWAY = "10.0.2.2"  # this machine, as a QEMU guest with user networking sees it
SERVICES = "10.96.0.0/24"
START_LIMIT_S = 90  # 4 s on an idle machine
NODES = "system:nodes"


class ControlPlane:
    """One running cluster without nodes. `api` is the administrator's view of it."""

    def __init__(self, folder: Path, version: str | None = None, port: int = 443) -> None:
        self.version = version or kubernetes_versions()[0]
        self.server = f"https://127.0.0.1:{port}"
        self._folder = folder
        self.port = self._port = port
        self._running: list[Running] = []
        self.authority = Authority(folder / "certificates")
        self.admin = self.authority.issue("admin", ("system:masters",))
        self.kubeconfig = self.client_config("admin", ("system:masters",))
        self.api = Api(self.server, self.ca, self.admin)

    @property
    def ca(self) -> str:
        return str(self.authority.root.certificate)

    def client_config(self, user: str, groups: tuple[str, ...] = ()) -> Path:
        """A kubeconfig with a certificate of that user."""
        pair = self.authority.issue(user, groups)
        entry = {"client-certificate": str(pair.certificate), "client-key": str(pair.key)}
        return kubeconfig(
            pair.key.with_suffix(".kubeconfig"), self.server, self.authority.root.certificate, entry
        )

    def token_config(self, name: str, token: str) -> Path:
        """A kubeconfig with a bearer token."""
        path = self._folder / f"{name}.kubeconfig"
        return kubeconfig(path, self.server, self.authority.root.certificate, {"token": token})

    def as_token(self, token: str) -> Api:
        return Api(self.server, self.ca, token=token)

    def start(self, controllers: bool = True) -> "ControlPlane":
        """Start everything and wait until it answers; `controllers`: the controller manager too."""
        self._start_storage()
        self._start_api_server(controllers)
        eventually(self._ready, START_LIMIT_S, f"kube-apiserver {self.version} is ready", step_s=0.1)
        config = f"--kubeconfig={self.kubeconfig}"
        self._run(
            "kube-scheduler",
            config,
            "--leader-elect=false",
            "--bind-address=127.0.0.1",
            f"--secure-port={10259 + self._port}",
            self._own_certificates("scheduler"),
        )
        if controllers:
            # nodes that are only objects have no kubelet that renews a lease: nobody may call them lost
            self._run(
                "kube-controller-manager",
                config,
                "--leader-elect=false",
                "--bind-address=127.0.0.1",
                "--controllers=*,-node-lifecycle-controller",
                f"--service-account-private-key-file={self._tokens.key}",
                f"--root-ca-file={self.ca}",
                f"--secure-port={10257 + self._port}",
                self._own_certificates("controllers"),
            )
            eventually(self._serves_accounts, 60, "the default service account", step_s=0.1)
        return self

    def stop(self) -> None:
        for running in reversed(self._running):
            running.stop()

    def restart_api_server(self) -> None:
        next(running for running in self._running if running.name == "kube-apiserver").restart()
        eventually(self._ready, START_LIMIT_S, "kube-apiserver is ready again", step_s=0.1)

    def _start_storage(self) -> None:
        client, peer = f"http://127.0.0.1:{2379 + self._port}", f"http://127.0.0.1:{2380 + self._port + 1000}"
        self._run(
            "etcd",
            "--data-dir",
            str(self._folder / "etcd"),
            "--listen-client-urls",
            client,
            "--advertise-client-urls",
            client,
            "--listen-peer-urls",
            peer,
            "--initial-advertise-peer-urls",
            peer,
            "--initial-cluster",
            f"default={peer}",
            # a test cluster may lose its data: without fsync a slow disk does not decide the times
            "--unsafe-no-fsync",
            "--log-level",
            "error",
        )

    def _start_api_server(self, controllers: bool) -> None:
        names = ("IP:127.0.0.1", f"IP:{HOST_ADDRESS}", f"IP:{SERVICE_ADDRESS}", f"IP:{GUEST_GATEWAY}")
        serving = self.authority.issue("kube-apiserver", names=names)
        kubelet = self.authority.issue("apiserver-kubelet-client", ("system:masters",))
        self._tokens = self.authority.signing_key("tokens")
        self._run(
            "kube-apiserver",
            f"--etcd-servers=http://127.0.0.1:{2379 + self._port}",
            f"--secure-port={self._port}",
            f"--advertise-address={HOST_ADDRESS}",
            "--endpoint-reconciler-type=none",
            f"--service-cluster-ip-range={SERVICES}",
            f"--tls-cert-file={serving.certificate}",
            f"--tls-private-key-file={serving.key}",
            f"--client-ca-file={self.ca}",
            f"--kubelet-client-certificate={kubelet.certificate}",
            f"--kubelet-client-key={kubelet.key}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={self._tokens.certificate}",
            f"--service-account-signing-key-file={self._tokens.key}",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            "--allow-privileged=true",
            # the node's name is known to no name server
            "--kubelet-preferred-address-types=InternalIP",
            # without the controller manager no namespace has a service account, and no pod would be let in
            *([] if controllers else ["--disable-admission-plugins=ServiceAccount"]),
        )

    def _run(self, program: str, *arguments: str) -> Running:
        kubernetes = program.startswith("kube-")
        path = find(program, self.version if kubernetes else None)
        # the newest controller manager serves every version: only API server and scheduler are built for all
        running = Running(program, [path, *arguments], self._folder / f"{program}.log")
        self._running.append(running)
        return running

    def _own_certificates(self, name: str) -> str:
        return f"--cert-dir={self._folder / name}"  # else it writes below /var/run/kubernetes

    def _serves_accounts(self) -> bool:
        self._check_alive()
        return self.api.find("ServiceAccount", "default", "default") is not None

    def _check_alive(self) -> None:
        for running in self._running:
            running.check_alive()

    def _ready(self) -> bool:
        self._check_alive()
        try:
            return bool(self.api.call("GET", "/readyz") == "ok")
        except ApiError as error:
            raise AssertionError(str(error)) from error


def fake_node(api: Api, name: str) -> Object:
    """A Node object that the scheduler may use, without a kubelet behind it."""
    api.create(
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": name,
                "labels": {"kubernetes.io/os": "linux", "kubernetes.io/hostname": name},
            },
        }
    )
    capacity = {"cpu": "8", "memory": "32Gi", "pods": "110"}
    ready = {
        "type": "Ready",
        "status": "True",
        "reason": "Test",
        "message": "",
        "lastHeartbeatTime": "2026-01-01T00:00:00Z",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    status = {"capacity": capacity, "allocatable": capacity, "conditions": [ready]}
    api.patch("Node", name, {"status": status}, sub="status")
    # an admission plugin taints every new node as not ready, and nobody here takes that away
    return api.patch("Node", name, {"spec": {"taints": None}})
