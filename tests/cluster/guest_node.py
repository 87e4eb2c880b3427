"""A node that is a QEMU guest of the kernel tier: its own kernel with real hot-plug, the API server outside.

The guest's root is this machine's, read-only under a memory file system; what a node must keep over a reboot
(the kubelet's checkpoints, containerd's images) lies on a disk of its own.
"""

import subprocess
from pathlib import Path

import yaml

from tests.cluster.accounts import node_token
from tests.cluster.binaries import find
from tests.cluster.certificates import kubeconfig
from tests.cluster.control_plane import GUEST_GATEWAY, NODES, ControlPlane
from tests.cluster.images import busybox_archive
from tests.cluster.node import containerd_config, kubelet_config
from tests.kernel.machine import Guest, boot
from tests.kernel.plugs import Plugs
from tests.kernel.product import Product
from tests.kernel.provision import provide
from tests.waiting import eventually

NAME = "guest"
ADDRESS = "10.0.2.15"
MODULES = ("xhci_pci", "ftdi_sio", "virtio_net", "usbhid", "hid_generic", "evdev", "veth", "bridge")
DISK_MIB = 512
KEPT = "/run/kept"  # where the guest has its disk
START_LIMIT_S = 240  # everything starts on an emulated processor, perhaps a busy one
# The USB controller of the kernel tier's guests, so that its ways to plug work here; port 8 is left free.
HARDWARE = (
    *("-device", "qemu-xhci,id=xhci,p2=8,p3=8,addr=0x3"),
    *("-device", "virtio-net-pci,netdev=net,addr=0x9,romfile="),
)


class GuestNode:
    """The node `guest`. Its files lie in `folder`; `boot` may be called again after `power_off`."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        self._plane = plane
        self._folder = folder
        self._boots = 0
        folder.mkdir()
        self._disk = folder / "kept.ext4"
        with self._disk.open("wb") as disk:
            disk.truncate(DISK_MIB << 20)
        subprocess.run(["mkfs.ext4", "-q", self._disk], check=True)
        self._images = busybox_archive(folder / "busybox.tar")
        self._network = folder / "cni"
        self._network.mkdir()
        # pods of this node use its network; a runtime without any configuration would not be ready
        (self._network / "10-none.conflist").write_text(
            '{"cniVersion": "1.0.0", "name": "none", "plugins": [{"type": "ptp"}]}'
        )
        self._write_configurations()

    def boot(self, *devices: str) -> None:
        """Start the guest with `devices` plugged in, its runtime, its kubelet and our four processes."""
        self._boots += 1
        words = [*HARDWARE, "-netdev", f"user,id=net,host={GUEST_GATEWAY}", *self._disk_words(), *devices]
        self.guest: Guest = boot(provide(), self._folder / f"boot{self._boots}", words)
        failed = self.guest.call("load", list(MODULES))
        assert failed == [], f"modules that do not load: {failed}"
        self._prepare()
        self.plugs = Plugs(self.guest)
        self._start_runtime()
        self._start(
            "kubelet",
            find("kubelet", self._plane.version),
            f"--config={self._folder}/kubelet.yaml",
            f"--kubeconfig={self._kubelet_user}",
            f"--hostname-override={NAME}",
            f"--node-ip={ADDRESS}",
            "--v=2",
        )
        eventually(self._ready, START_LIMIT_S, "the guest's node is ready", step_s=0.2)
        self._plane.api.patch("Node", NAME, {"spec": {"taints": None}})
        self.product = Product(self.guest)
        self.product.up(LIKEN_CLUSTER="kubernetes", KUBECONFIG=str(self._own_user()), METRICS_ADDR="")

    def power_off(self) -> None:
        """As if the plug was pulled, after what was written has reached the disk."""
        self.guest.run("sync")
        self.guest.close()

    def log(self, name: str, lines: int = 20) -> str:
        text = str(self.guest.call("read", f"/run/{name}.log") or "")
        return "\n".join(text.splitlines()[-lines:])

    def _disk_words(self) -> list[str]:
        return [
            *("-drive", f"if=none,id=kept,format=raw,file={self._disk}"),
            *("-device", "virtio-blk-pci,drive=kept,serial=kept,addr=0x13"),
        ]

    def _prepare(self) -> None:
        """Network, the disk, and folders that belong to this node and not to the machine below."""
        script = f"""
        for block in /sys/block/vd*; do
            [ "$(cat $block/serial)" = kept ] && disk=/dev/$(basename $block)
        done
        mkdir -p {KEPT} /var/lib/kubelet /var/lib/cni /var/log/containers /etc/liken
        mount -t ext4 $disk {KEPT}
        mkdir -p {KEPT}/kubelet {KEPT}/containerd
        mount --bind {KEPT}/kubelet /var/lib/kubelet
        for folder in /var/lib/cni /var/log/containers /etc/liken; do mount -t tmpfs none $folder; done
        mount --make-rshared /
        ip link set eth0 up
        ip addr add {ADDRESS}/24 dev eth0
        ip route add default via {GUEST_GATEWAY}
        """
        self.guest.run("sh", "-ec", script)

    def _start_runtime(self) -> None:
        self._start("containerd", find("containerd"), "--config", f"{self._folder}/containerd.toml")
        ctr = [str(find("ctr")), "--address", "/run/containerd.sock", "--namespace", "k8s.io"]
        eventually(lambda: self._says_yes(*ctr, "version"), START_LIMIT_S, "containerd answers", step_s=0.5)
        self.guest.run(*ctr, "images", "import", "--local", str(self._images), wait_s=START_LIMIT_S)

    def _write_configurations(self) -> None:
        config = kubelet_config(Path("/run"), Path("/run/containerd.sock"), self._plane.ca)
        (self._folder / "kubelet.yaml").write_text(yaml.safe_dump(config))
        text = containerd_config(Path("/run"), Path("/run/containerd.sock"), self._network)
        kept = text.replace('root = "/run/containerd"', f'root = "{KEPT}/containerd"')
        assert kept != text
        (self._folder / "containerd.toml").write_text(kept)
        pair = self._plane.authority.issue(f"system:node:{NAME}", (NODES,))
        entry = {"client-certificate": str(pair.certificate), "client-key": str(pair.key)}
        self._kubelet_user = self._kubeconfig("kubelet", entry)

    def _own_user(self) -> Path:
        return self._kubeconfig(f"liken{self._boots}", {"token": node_token(self._plane.api, NAME)})

    def _kubeconfig(self, name: str, entry: dict[str, str]) -> Path:
        server = f"https://{GUEST_GATEWAY}:{self._plane.port}"
        path = self._folder / f"{name}.kubeconfig"
        return kubeconfig(path, server, Path(self._plane.ca), entry)

    def _start(self, name: str, *words: str | Path) -> None:
        path = f"{find('containerd').parent}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        argv = [str(word) for word in words]
        self.guest.call("start", argv, f"/run/{name}.log", environment={"PATH": path})

    def _says_yes(self, *words: str) -> bool:
        return bool(self.guest.call("run", list(words))["code"] == 0)

    def _ready(self) -> bool:
        node = self._plane.api.find("Node", NAME)
        conditions = node.get("status", {}).get("conditions", []) if node else []
        booted = node and node["status"]["nodeInfo"]["bootID"] == self._boot_id()
        return bool(booted) and any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)

    def _boot_id(self) -> str:
        return str(self.guest.call("read", "/proc/sys/kernel/random/boot_id")).strip()
