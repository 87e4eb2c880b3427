"""`make test-cluster`: get what the tier needs, then run its tests in namespaces of their own.

Network, mounts and processes of the test cluster are invisible outside, and all of it is gone when the tests
end: fixed addresses and the kubelet's usual folders are safe to use inside. VERSIONS=1.37.2,1.34.4 names the
releases to run, newest first.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from tests.cluster.archives import IMAGES_AT, assemble
from tests.cluster.binaries import build_all, kubernetes_versions
from tests.cluster.covers import make_mount_points, remove_mount_points
from tests.kernel.provision import UnavailableError as GuestUnavailableError
from tests.kernel.provision import provide

HERE = Path(__file__).parent
MARK = "LIKEN_CLUSTER_INSIDE"


def main(arguments: list[str]) -> int:
    if os.geteuid() != 0:
        print("cluster tier: nothing ran, a kubelet and its containers need root")
        return 1
    if problem := install_packages():
        print(f"cluster tier: nothing ran, {problem}")
        return 1
    versions = [version for version in os.environ.get("VERSIONS", "").split(",") if version]
    for line in build_all(versions):
        print(f"cluster tier: {line}", flush=True)
    try:
        provide()  # inside there is no network to get a guest's kernel from
    except GuestUnavailableError as reason:
        print(f"cluster tier: test_guest.py does not run, {reason}", flush=True)
    images, sizes = assemble()
    for line in sizes.splitlines():
        print(f"cluster tier: {line}", flush=True)
    environment = {**os.environ, MARK: ",".join(versions or kubernetes_versions()), IMAGES_AT: images}
    made = make_mount_points()
    try:
        return _run([*_enter(), *_pytest(arguments)], environment)
    finally:
        remove_mount_points(made)
        remove_cgroups()


def _run(command: list[str], environment: dict[str, str]) -> int:
    child = subprocess.Popen(command, env=environment)

    def end(number: int, frame: object) -> None:
        # unshare does not listen to SIGTERM; when it is killed, everything inside is
        child.kill()

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches pytest, which ends by itself
    return child.wait()


def install_packages() -> str:
    """Install what debian-packages.txt names and is missing; the problem in words, or nothing."""
    lines = (HERE / "debian-packages.txt").read_text().splitlines()
    packages = [line for line in lines if line and not line.startswith("#")]
    if not shutil.which("apt-get"):
        return f"this is no Debian: install {', '.join(packages)} by hand"
    status = _quiet("dpkg-query", "-W", "-f", "${Package} ${db:Status-Status}\n", *packages).stdout
    missing = sorted(
        set(packages) - {line.split()[0] for line in status.splitlines() if line.endswith(" installed")}
    )
    if not missing:
        return ""
    print(f"cluster tier: installing {', '.join(missing)}", flush=True)
    _quiet("apt-get", "update")
    done = _quiet("apt-get", "install", "-y", "--no-install-recommends", *missing)
    return (
        ""
        if done.returncode == 0
        else f"apt-get install ended with {done.returncode}: {done.stderr.strip()[-300:]}"
    )


def remove_cgroups() -> None:
    """The containers' cgroups are no namespace's and stay, empty, when everything has been killed."""
    for name in ("k8s.io", "kubepods"):
        for top in sorted(Path("/sys/fs/cgroup").glob(f"**/{name}")):
            for folder, _, _ in os.walk(top, topdown=False):
                with contextlib.suppress(OSError):  # another run's containers are in it
                    Path(folder).rmdir()


def _enter() -> list[str]:
    # the first process inside is pytest: when it ends, the kernel ends all that is left
    return ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]


def _pytest(arguments: list[str]) -> list[str]:
    """All tests of this folder, or those that the arguments name."""
    chosen = [] if any("tests/cluster" in argument for argument in arguments) else [str(HERE)]
    return [sys.executable, "-m", "pytest", "--timeout=300", *chosen, *arguments]


def _quiet(*command: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
