"""The folders of the machine that a cluster writes to; the tier covers each with a folder of its own."""

from pathlib import Path

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
