"""The folders of the machine that a cluster writes to; the tier covers each with a folder of its own."""

from pathlib import Path

from tests.cluster.processes import run

KUBELET = Path("/var/lib/kubelet")
CDI = Path("/run/cdi")
COVERED = (
    KUBELET,
    CDI,
    Path("/etc/liken"),
    Path("/lib/modules"),
    Path("/dev/dri"),
    Path("/dev/bus"),
    Path("/run/containerd"),
    Path("/run/netns"),
    Path("/var/lib/cni"),
    Path("/var/log/containers"),
)

# What a kubelet wants of the kernel, and would set for the whole machine: it finds it here and sets nothing.
SYSCTLS = {
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxbytes": "25000000",
    "kernel/keys/root_maxkeys": "1000000",
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
}


def make_mount_points() -> list[Path]:
    """Make those that the machine does not have; which these are, for remove_mount_points()."""
    made = []
    for path in COVERED:
        for folder in (*reversed(path.parents), path):
            if not folder.exists():
                folder.mkdir()
                made.append(folder)
    return made


def remove_mount_points(made: list[Path]) -> None:
    for path in reversed(made):
        path.rmdir()


def cover(folder: Path) -> None:
    """Inside the tier's mount namespace: put a folder below `folder` over each of them."""
    for number, path in enumerate(COVERED):
        own = folder / f"cover{number}"
        own.mkdir(parents=True)
        run("mount", "--bind", own, path)
        run("mount", "--make-rshared", path)
    for name, value in SYSCTLS.items():
        own = folder / name.replace("/", ".")
        own.write_text(f"{value}\n")
        run("mount", "--bind", own, f"/proc/sys/{name}")
