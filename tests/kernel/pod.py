"""The four services as containers with the mounts and the security context that deploy/ gives them."""

from dataclasses import dataclass
from typing import Any

import yaml

from tests.kernel.machine import Guest
from tests.kernel.product import NODE, SERVICES, STATE
from tests.kernel.provision import REPOSITORY
from tests.kernel.runtime import SIGKILLED, Runtime

MANIFEST = REPOSITORY / "deploy/base/daemonset.yaml"
POD_UID = "3f0c9d0e-5a43-4a5c-9f0e-5d8f0f1e2a3b"
PROFILE = "liken-pod"  # AppArmor: the runtime's default rules under this name
NETWORK = "/run/netns/pod"
CLUSTER = "/cluster"
# What stands in for the node's folders; the local cluster's folder replaces the API's token.
HOST = {
    "/var/lib/kubelet/plugins/liken.sh": f"{STATE}/kubelet/plugins/liken.sh",
    "/var/lib/kubelet/plugins_registry": f"{STATE}/kubelet/plugins_registry",
    "/var/run/cdi": f"{STATE}/cdi",
}


@dataclass(frozen=True)
class Container:
    """One container of the manifest: its own variables and its mounts (source, place, read-only)."""

    name: str
    environment: dict[str, str]
    mounts: list[tuple[str, str, bool]]


def containers() -> list[Container]:
    """The service containers of deploy/, in the order of the manifest."""
    documents = yaml.safe_load_all(MANIFEST.read_text())
    spec = next(each for each in documents if each["kind"] == "DaemonSet")["spec"]["template"]["spec"]
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    return [_container(each, volumes) for each in spec["containers"] if each["name"] in SERVICES]


def _container(each: dict[str, Any], volumes: dict[str, Any]) -> Container:
    known = {"spec.nodeName": NODE, "metadata.uid": POD_UID}
    environment = {
        variable["name"]: variable.get("value") or known[variable["valueFrom"]["fieldRef"]["fieldPath"]]
        for variable in each["env"]
    }
    context = each["securityContext"]
    assert context["readOnlyRootFilesystem"]
    assert context["capabilities"] == {"drop": ["ALL"]}
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}
    mounts = [
        (_source(volumes[mount["name"]]), mount["mountPath"], bool(mount.get("readOnly")))
        for mount in each["volumeMounts"]
        if "projected" not in volumes[mount["name"]]
    ]
    local = {"LIKEN_CLUSTER": "local", "LIKEN_LOCAL": CLUSTER}
    return Container(each["name"], {**environment, **local}, [*mounts, (f"{STATE}/cluster", CLUSTER, False)])


def _source(volume: dict[str, Any]) -> str:
    if "emptyDir" in volume:
        return f"{STATE}/run"
    path = str(volume["hostPath"]["path"])
    return HOST.get(path, path)


class Pod:
    def __init__(self, guest: Guest, runtime: Runtime) -> None:
        self._guest = guest
        self._runtime = runtime

    def start(self) -> None:
        # the registration names the service socket as the kubelet sees it
        self._guest.run(
            "sh",
            "-c",
            "mount -t securityfs securityfs /sys/kernel/security; ip netns add pod; mkdir -p /etc/liken"
            f" /var/lib/kubelet {' '.join(HOST.values())} && mount --bind {STATE}/kubelet /var/lib/kubelet",
        )
        for container in containers():
            self._runtime.start_service(
                container.name, container.environment, container.mounts, PROFILE, NETWORK
            )

    def stop(self) -> None:
        for name in SERVICES:
            self._runtime.stop_service(name, SIGKILLED)
        self._guest.run("sh", "-c", "umount /var/lib/kubelet; ip netns del pod")
