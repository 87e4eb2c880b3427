"""The kernel's own events on this machine: netlink, a full buffer, real devices, real mounts. Needs root."""

import errno
import fcntl
import os
import select
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from common.bus import BusReader, Message
from services.watcher.mounts import MountWatch
from services.watcher.sources import KernelSource
from services.watcher.uevent import Uevent
from tests.services.process import Process, clean_environment, free_port
from tests.waiting import eventually

LOOP_CTL_ADD, LOOP_CTL_REMOVE = 0x4C80, 0x4C81  # linux/loop.h
LOOP = 97  # a loop device that nobody else uses


def skip_unless(possible: bool, reason: str) -> None:
    if not possible:
        pytest.skip(reason)


def uevent_file() -> Path:
    """A `uevent` file of /sys below /devices/ and not virtual, whose events harm nobody."""
    skip_unless(os.geteuid() == 0, "not root: the kernel sends no events at our word")
    for device in sorted(Path("/sys/bus/platform/devices").iterdir()):
        file = device.resolve() / "uevent"
        if "/virtual/" not in str(file) and os.access(file, os.W_OK):
            return file
    pytest.skip("no uevent file of /sys can be written: /sys is read-only here")


@pytest.fixture
def source() -> Iterator[KernelSource]:
    source = KernelSource()
    yield source
    source.close()


def heard(source: KernelSource) -> Callable[[], list[Uevent]]:
    seen: list[Uevent] = []

    def look() -> list[Uevent]:
        seen.extend(source.receive().events)
        return seen

    return look


def test_an_event_of_the_kernel_arrives_with_its_path(source: KernelSource) -> None:
    file = uevent_file()
    look = heard(source)
    file.write_text("change")
    wanted = Uevent("change", str(file.parent).removeprefix("/sys"))
    assert eventually(lambda: wanted in look(), 5)


def test_events_that_the_kernel_dropped_are_told_and_later_ones_arrive() -> None:
    file = uevent_file()
    source = KernelSource(receive_buffer=4096)
    try:
        for _ in range(500):
            file.write_text("change")
        batches = [source.receive()]
        assert any(batch.lost for batch in batches)
        while source.receive().events:
            pass
        look = heard(source)
        file.write_text("change")
        assert eventually(look, 5)
        assert not source.receive().lost
    finally:
        source.close()


@pytest.fixture
def watcher(tmp_path: Path, run_dir: Path) -> Iterator[Process]:
    environment = clean_environment(
        NODE_NAME="n1",
        METRICS_ADDR=f"127.0.0.1:{free_port()}",
        LIKEN_RUN=str(run_dir),
        LIKEN_SETTLE="0.3",
        LIKEN_MACHINE=str(tmp_path / "machine.yaml"),
    )
    process = Process(["-m", "services.watcher"], environment, tmp_path / "watcher.log")
    yield process
    process.close()


def test_the_watcher_of_this_machine_walks_for_a_device_that_the_kernel_adds(watcher: Process) -> None:
    file = uevent_file()
    watcher.wait_ready()
    assert "receive buffer" in watcher.log
    walks = watcher.metric("liken_walk_seconds_count")
    file.write_text("add")
    eventually(lambda: watcher.metric("liken_walk_seconds_count") > walks, 10, "a walk")
    assert watcher.metric('liken_uevents_total{action="add",woke="true"}') >= 1
    assert watcher.stop() == 0


def test_kernel_events_arrive_in_a_network_namespace_of_its_own(tmp_path: Path, run_dir: Path) -> None:
    file = uevent_file()
    made = subprocess.run(["unshare", "-n", "true"], capture_output=True)
    skip_unless(made.returncode == 0, "no network namespace can be made")
    environment = clean_environment(
        NODE_NAME="n1", METRICS_ADDR="", LIKEN_RUN=str(run_dir), LIKEN_MACHINE=str(tmp_path / "machine.yaml")
    )
    watcher = Process(["-m", "services.watcher"], environment, tmp_path / "watcher.log", ["unshare", "-n"])
    reader = BusReader(run_dir / "bus", "reconciler", ["stirred"])
    try:
        assert eventually(lambda: reader.wait(1), 20), "the tick of the connection"
        file.write_text("add")
        assert reader.wait(5) == [Message("stirred", None)]
    finally:
        reader.close()
        watcher.close()


def test_a_real_loop_device_comes_and_goes_and_wakes_no_walk(watcher: Process) -> None:
    skip_unless(
        os.geteuid() == 0 and os.access("/dev/loop-control", os.W_OK), "/dev/loop-control cannot be used"
    )
    watcher.wait_ready()
    walks = watcher.metric("liken_walk_seconds_count")
    with open("/dev/loop-control", "rb") as control:  # noqa: PTH123 - a device, not a file
        try:
            fcntl.ioctl(control, LOOP_CTL_ADD, LOOP)
        except OSError as error:
            pytest.skip(f"no loop device can be made: {os.strerror(error.errno or errno.EIO)}")
        fcntl.ioctl(control, LOOP_CTL_REMOVE, LOOP)
    eventually(lambda: watcher.metric('liken_uevents_total{action="remove",woke="false"}') >= 1, 5)
    assert watcher.metric('liken_uevents_total{action="add",woke="false"}') >= 1
    assert watcher.metric("liken_walk_seconds_count") == walks


NAMESPACE = """
mount --make-rprivate / && echo ready && read line &&
mount -o loop {folder}/disk.img {folder}/at && echo mounted && read line
"""


@pytest.fixture
def namespace(tmp_path: Path) -> "Iterator[subprocess.Popen[str]]":
    """A shell in a mount namespace of its own; it mounts a real file system when it is sent a line."""
    skip_unless(os.geteuid() == 0, "not root: no mount namespace")
    skip_unless(
        bool(shutil.which("mkfs.ext4", path="/usr/sbin:/sbin:/usr/bin")), "mkfs.ext4 is not installed"
    )
    (tmp_path / "at").mkdir()
    with (tmp_path / "disk.img").open("wb") as image:
        image.truncate(2 * 1024 * 1024)
    made = subprocess.run(["/usr/sbin/mkfs.ext4", "-q", str(tmp_path / "disk.img")], capture_output=True)
    skip_unless(made.returncode == 0, "mkfs.ext4 does not work here")
    shell = subprocess.Popen(
        ["unshare", "-m", "sh", "-c", NAMESPACE.format(folder=tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    yield shell
    shell.kill()
    shell.communicate()


def test_a_mount_in_another_mount_namespace_is_noticed(
    tmp_path: Path, namespace: "subprocess.Popen[str]"
) -> None:
    assert namespace.stdin is not None
    assert namespace.stdout is not None
    skip_unless(namespace.stdout.readline() == "ready\n", "no mount namespace can be made")
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/1").symlink_to(f"/proc/{namespace.pid}")
    (tmp_path / "proc/swaps").symlink_to("/proc/swaps")
    watch = MountWatch(tmp_path / "proc")
    assert not watch.changed()
    namespace.stdin.write("go\n")
    namespace.stdin.flush()
    skip_unless(
        namespace.stdout.readline() == "mounted\n", "no file system can be mounted from a loop device"
    )

    def told() -> bool:
        return bool(select.select([watch], [], [], 0)[0]) and watch.changed()

    assert eventually(told, 5, "the mount is noticed")
    watch.close()
