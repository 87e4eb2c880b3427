"""containerd and runc in the guest, reading the CDI specs that the product writes."""

import sys
import sysconfig
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from tests.cluster.binaries import UnavailableError as NotBuiltError
from tests.cluster.binaries import build_tool, find
from tests.kernel.machine import Guest
from tests.kernel.provision import REPOSITORY, UnavailableError
from tests.waiting import eventually

HOME = "/run/containerd"
SOCKET = f"{HOME}/containerd.sock"
ROOTFS = "/run/rootfs"
WHOLE_ROOTFS = "/run/whole"  # the guest's own root, for containers that run Python
APPLETS = ("sh", "ls", "stat", "sleep", "cat", "id", "seq")
SIGKILLED = 9
# What a container has by default: containerd, pkg/oci.
DEFAULT_CAPABILITIES = (
    *(
        "CHOWN",
        "DAC_OVERRIDE",
        "FSETID",
        "FOWNER",
        "MKNOD",
        "NET_RAW",
        "SETGID",
        "SETUID",
        "SETFCAP",
        "SETPCAP",
    ),
    *("NET_BIND_SERVICE", "SYS_CHROOT", "KILL", "AUDIT_WRITE"),
)
START_S = 60.0
CONTAINER_S = 120.0
CONFIG = f"""version = 3
root = "{HOME}/root"
state = "{HOME}/state"
[grpc]
address = "{SOCKET}"
[ttrpc]
address = "{SOCKET}.ttrpc"
"""


def programs() -> Path:
    """The folder with containerd, its shim and ctr, built when need be. Raises UnavailableError."""
    try:
        for line in build_tool("containerd"):
            print(line, flush=True)
        return find("containerd").parent
    except NotBuiltError as reason:
        raise UnavailableError(f"no container runtime for the guest: {reason}") from reason


class Runtime:
    """One containerd; its containers share a root file system of busybox."""

    def __init__(self, guest: Guest, folder: Path, cdi: str) -> None:
        """Start it. `cdi` is the product's folder of specs, shown to it as /var/run/cdi."""
        self._guest = guest
        self._folder = folder
        self._runs = 0
        guest.call("write", f"{HOME}/config.toml", CONFIG)
        applets = " ".join(APPLETS)
        guest.run(
            "sh",
            "-c",
            f"mkdir -p /run/cdi {ROOTFS}/bin {ROOTFS}/proc {ROOTFS}/sys {ROOTFS}/dev {ROOTFS}/tmp;"
            f" mount --bind {cdi} /run/cdi; cp $(command -v busybox) {ROOTFS}/bin/busybox;"
            f" for name in {applets}; do ln -sf busybox {ROOTFS}/bin/$name; done",
        )
        path = f"{folder}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        words = [f"{folder}/containerd", "--config", f"{HOME}/config.toml"]
        guest.call("start", words, f"{HOME}/log", environment={"PATH": path})
        eventually(self._answers, START_S, "containerd answers", step_s=0.5)

    def run(self, ids: list[str], *command: str, user: str = "0:0") -> dict[str, Any]:
        """Run a container to its end with CDI devices: `{"code", "out", "err"}`."""
        return self.begin(ids, *command, user=user).result(CONTAINER_S + 30)

    def begin(self, ids: list[str], *command: str, user: str = "0:0") -> "Future[dict[str, Any]]":
        """Start a container; its result when it has ended."""
        argv = self._words(ids, user, ROOTFS, command)
        return self._guest.begin("run", argv, timeout_s=CONTAINER_S)

    def begin_python(self, ids: list[str], script: str, *arguments: str) -> "Future[dict[str, Any]]":
        """Run a script of this repository in a container that has the guest's files, and its own /dev."""
        self._lay_out_whole()
        argv = self._words(ids, "0:0", WHOLE_ROOTFS, (sys.executable, script, *arguments))
        return self._guest.begin("run", argv, timeout_s=CONTAINER_S)

    def start_service(
        self,
        name: str,
        environment: dict[str, str],
        mounts: list[tuple[str, str, bool]],
        apparmor: str,
        network: str,
    ) -> None:
        """Start `python -m services.<name>` in the background: no capability, a read-only root, the runtime's
        default seccomp and AppArmor profiles. `mounts` are (source, place, read-only)."""
        self._lay_out_whole()
        places = " ".join(f"{WHOLE_ROOTFS}{place.replace('/var/run/', '/run/')}" for _, place, _ in mounts)
        self._guest.run("sh", "-c", f"mkdir -p {places}")
        words = ["run", "--detach", "--rootfs", "--read-only", "--seccomp", "--cwd", "/"]
        words += ["--apparmor-default-profile", apparmor, "--with-ns", f"network:{network}"]
        for capability in DEFAULT_CAPABILITIES:
            words += ["--cap-drop", f"CAP_{capability}"]
        for variable, value in {**environment, "PYTHONPATH": str(REPOSITORY)}.items():
            words += ["--env", f"{variable}={value}"]
        for source, place, read_only in mounts:
            options = "rbind:ro" if read_only else "rbind:rw"
            words += ["--mount", f"type=bind,src={source},dst={place},options={options}"]
        command = [sys.executable, "-P", "-m", f"services.{name}"]
        argv = [f"{self._folder}/ctr", "--address", SOCKET, *words, WHOLE_ROOTFS, name, *command]
        self._guest.call("start", argv, f"/run/{name}.ctr.log")

    def stop_service(self, name: str, signal: int) -> None:
        ctr = f"{self._folder}/ctr --address {SOCKET}"
        gone = f"{ctr} tasks delete --force {name}; {ctr} containers delete {name}"
        kill = f"{ctr} tasks kill -s {signal} {name}; {gone}"
        self._guest.run("sh", "-c", kill, check=False)

    def _lay_out_whole(self) -> None:
        # the root alone and what Python needs: all mounts would bring a /sys that no container may cover
        parts = [sysconfig.get_path("stdlib"), sysconfig.get_path("purelib")]
        parts += [f"{REPOSITORY}/{part}" for part in ("common", "services", "tests")]
        binds = "".join(f" && mount --bind {part} {WHOLE_ROOTFS}{part}" for part in parts)
        make = f"mkdir -p {WHOLE_ROOTFS} && mount --bind / {WHOLE_ROOTFS}{binds}"
        self._guest.run("sh", "-c", f"mountpoint -q {WHOLE_ROOTFS} || ({make})")

    def _words(self, ids: list[str], user: str, rootfs: str, command: tuple[str, ...]) -> list[str]:
        self._runs += 1
        devices = [word for name in ids for word in ("--device", name)]
        words = ["run", "--rm", "--rootfs", "--net-host", "--env", "PATH=/bin", "--user", user, *devices]
        return [f"{self._folder}/ctr", "--address", SOCKET, *words, rootfs, f"run-{self._runs}", *command]

    def _answers(self) -> bool:
        argv = [f"{self._folder}/ctr", "--address", SOCKET, "version"]
        return bool(self._guest.call("run", argv, timeout_s=CONTAINER_S)["code"] == 0)
