"""One real node: containerd and a kubelet on the test machine, in the namespaces of this tier.

The kubelet's usual folders are covered by folders of this run, so the shipped manifests work here unchanged.
The machine may have cgroup v1 and no systemd: what that needs is in kubelet_config().
"""

import json
import subprocess
from pathlib import Path

import yaml

from tests.cluster.api import Object
from tests.cluster.binaries import find
from tests.cluster.control_plane import HOST_ADDRESS, NODES, ControlPlane
from tests.cluster.covers import KUBELET
from tests.cluster.images import PAUSE, busybox_archive
from tests.cluster.processes import Running, run
from tests.waiting import eventually

READY_LIMIT_S = 90  # 4 s on an idle machine
SANDBOX_NETWORK = {
    "cniVersion": "1.0.0",
    "name": "pods",
    "plugins": [
        {
            "type": "bridge",
            "bridge": "cni0",
            "isGateway": True,
            "ipam": {
                "type": "host-local",
                "ranges": [[{"subnet": "10.88.0.0/16", "rangeStart": "10.88.1.1"}]],
                "routes": [{"dst": "0.0.0.0/0"}],
            },
        }
    ],
}


class Worker:
    """The node `name` of a cluster."""

    def __init__(self, plane: ControlPlane, folder: Path, name: str = "worker") -> None:
        self.name = name
        self.api = plane.api
        self._plane = plane
        self._folder = folder
        self._socket = folder / "containerd.sock"

    def start(self) -> "Worker":
        self._folder.mkdir(parents=True)
        self._start_containerd()
        self.import_images(busybox_archive(self._folder / "busybox.tar"))
        self._start_kubelet()
        eventually(self._ready, READY_LIMIT_S, f"node {self.name} is ready", step_s=0.1)
        self.api.patch("Node", self.name, {"spec": {"taints": None}})
        return self

    def stop(self) -> None:
        self.kubelet.stop()
        self.containerd.stop()

    def import_images(self, archive: Path) -> None:
        ctr = find("ctr")
        run(ctr, "--address", self._socket, "--namespace", "k8s.io", "images", "import", "--local", archive)

    def tag(self, image: str, name: str) -> None:
        """One more name for an image."""
        ctr = find("ctr")
        run(ctr, "--address", self._socket, "--namespace", "k8s.io", "images", "tag", image, name)

    def restart_kubelet(self) -> None:
        self.kubelet.restart()

    def object(self) -> Object:
        return self.api.get("Node", self.name)

    def _start_containerd(self) -> None:
        network = self._folder / "cni"
        network.mkdir()
        (network / "10-pods.conflist").write_text(json.dumps(SANDBOX_NETWORK))
        config = self._folder / "containerd.toml"
        config.write_text(containerd_config(self._folder, self._socket, network))
        # the shim is looked for in PATH
        path = ":".join([str(find("containerd-shim-runc-v2").parent), "/usr/sbin:/usr/bin:/sbin:/bin"])
        command: list[str | Path] = [find("containerd"), "--config", config]
        self.containerd = Running("containerd", command, self._folder / "containerd.log", {"PATH": path})
        eventually(self._runtime_answers, READY_LIMIT_S, "containerd answers", step_s=0.1)

    def _start_kubelet(self) -> None:
        user = self._plane.client_config(f"system:node:{self.name}", (NODES,))
        serving = self._plane.authority.issue(
            f"kubelet-{self.name}", names=(f"IP:{HOST_ADDRESS}", "IP:127.0.0.1")
        )
        config = kubelet_config(self._folder, self._socket, self._plane.ca)
        config |= {"tlsCertFile": str(serving.certificate), "tlsPrivateKeyFile": str(serving.key)}
        path = self._folder / "kubelet.yaml"
        path.write_text(yaml.safe_dump(config))
        command: list[str | Path] = [
            find("kubelet", self._plane.version),
            f"--config={path}",
            f"--kubeconfig={user}",
            f"--hostname-override={self.name}",
            f"--node-ip={HOST_ADDRESS}",
            f"--root-dir={KUBELET}",
            "--v=2",
        ]
        self.kubelet = Running("kubelet", command, self._folder / "kubelet.log")

    def _runtime_answers(self) -> bool:
        self.containerd.check_alive()
        command: list[str | Path] = [find("ctr"), "--address", self._socket, "version"]
        return subprocess.run(command, capture_output=True, check=False, timeout=30).returncode == 0

    def _ready(self) -> bool:
        self.kubelet.check_alive()
        node = self.api.find("Node", self.name)
        conditions = node.get("status", {}).get("conditions", []) if node else []
        return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def containerd_config(folder: Path, socket: Path, network: Path) -> str:
    """containerd 2 has CDI on by default and looks in /etc/cdi and /var/run/cdi."""
    return f"""version = 3
root = "{folder}/containerd"
state = "{folder}/containerd.state"
[grpc]
address = "{socket}"
[ttrpc]
address = "{socket}.ttrpc"
[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = '{PAUSE}'
[plugins.'io.containerd.cri.v1.runtime']
# root of a test machine may lack the capability to lower it
restrict_oom_score_adj = true
[plugins.'io.containerd.cri.v1.runtime'.cni]
bin_dirs = ['/usr/lib/cni', '/opt/cni/bin']
conf_dir = '{network}'
"""


def kubelet_config(folder: Path, socket: Path, ca: str) -> Object:
    """For a machine with cgroup v1, without iptables, or with a disk that is nearly full."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "containerRuntimeEndpoint": f"unix://{socket}",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": False},
            "x509": {"clientCAFile": ca},
        },
        "authorization": {"mode": "AlwaysAllow"},
        "failCgroupV1": False,
        "cgroupDriver": "cgroupfs",
        "cgroupsPerQOS": False,
        "enforceNodeAllocatable": [],
        "featureGates": {"KubeletInUserNamespace": True},
        "makeIPTablesUtilChains": False,
        "failSwapOn": False,
        "resolvConf": "",
        "evictionHard": {"nodefs.available": "0%", "nodefs.inodesFree": "0%", "imagefs.available": "0%"},
        "imageGCHighThresholdPercent": 100,
        "podLogsDir": f"{folder}/pods.log",
        "volumePluginDir": f"{folder}/volume-plugins",
        "registerNode": True,
        # how soon a pod is tried again whose devices could not be prepared; by default after 60 to 90 s
        "syncFrequency": "10s",
        "serializeImagePulls": False,
        "shutdownGracePeriod": "0s",
    }
