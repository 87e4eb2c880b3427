"""One QEMU guest: its command line, its boot, and calls into it."""

import ctypes
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from tests.kernel.provision import HERE, REPOSITORY, Provisions, UnavailableError
from tests.kernel.qmp import Qmp

MEMORY_MIB = 3072
BOOT_TIMEOUT_S = 180.0
# An older processor is cheaper to emulate: no wide vectors, which C libraries would use for every copy. The
# guards against its flaws cost as much again; without the last words the clock is read from an emulated chip.
CPU = "Nehalem-v1,+rdrand"
# A kernel of which both processors spin, which the emulator brings about once in a long while, ends at once.
KERNEL_WORDS = (
    "console=ttyS0 panic=-1 quiet loglevel=4 random.trust_cpu=on mitigations=off tsc=reliable clocksource=tsc"
    " softlockup_panic=1 watchdog_thresh=30"
)
LOCKED_UP = "softlockup: hung tasks"  # linux kernel/watchdog.c, the words of its panic
PR_SET_PDEATHSIG = 1  # linux/prctl.h
BOOT_MODULES = ("virtio_pci", "9p", "9pnet_virtio", "overlay", "virtio_blk", "ext4", "virtio_console")
PRODUCT = ("common", "services", "images", "tests/kernel", "tests/__init__.py", "tests/waiting.py")


class GuestError(Exception):
    """A call into the guest failed; the text holds the guest's own words."""


class Guest:
    """A running guest. `call` runs a function of tests.kernel.guest.calls in it; `qmp` plugs and unplugs."""

    def __init__(self, work: Path, process: "subprocess.Popen[bytes]", helpers: Sequence[Any] = ()) -> None:
        self.work = work
        self.backends: set[str] = set()  # names of the drives and chardevs that were made for hot-plug
        self._process = process
        self._helpers = helpers
        self._pending: dict[int, Future[Any]] = {0: Future()}
        self._last_id = 0
        self._lock = threading.Lock()
        self._socket = _connect(work / "agent.sock", process)
        self.qmp = Qmp(work / "qmp.sock")
        threading.Thread(target=self._receive, daemon=True).start()

    def wait_ready(self, timeout_s: float = BOOT_TIMEOUT_S) -> None:
        try:
            self._pending[0].result(timeout_s)
        except TimeoutError:
            raise GuestError(
                f"the guest did not boot in {timeout_s:.0f} s; its console ends:\n{self.console()}"
            ) from None

    def call(self, name: str, *args: Any, wait_s: float = 180.0, **named: Any) -> Any:
        """Call and wait for the result. Raises GuestError when the guest raised, died, or is silent."""
        return self.begin(name, *args, **named).result(wait_s)

    def begin(self, name: str, *args: Any, **named: Any) -> "Future[Any]":
        with self._lock:
            self._last_id += 1
            number = self._last_id
            answer: Future[Any] = Future()
            self._pending[number] = answer
            message = {"id": number, "call": name, "args": args, "named": named}
            self._socket.sendall(json.dumps(message).encode() + b"\n")
        return answer

    def run(self, *argv: str, wait_s: float = 60.0, check: bool = True, **named: Any) -> str:
        """Run a program in the guest; its output. Raises GuestError when it fails and `check` is set."""
        done = self.call("run", list(argv), timeout_s=wait_s, wait_s=wait_s + 30, **named)
        if check and done["code"]:
            raise GuestError(f"{' '.join(argv)}: exit {done['code']}: {done['out']}{done['err']}")
        return str(done["out"])

    def console(self, lines: int = 30) -> str:
        text = (self.work / "console.log").read_text(errors="replace")
        return "\n".join(text.splitlines()[-lines:])

    def locked_up(self) -> bool:
        """Whether the guest ended because its processors spun."""
        return self._process.poll() is not None and LOCKED_UP in self.console(500)

    def _receive(self) -> None:
        for line in self._socket.makefile("rb"):
            message = json.loads(line)
            answer = self._pending.pop(message["id"], None)
            if answer is None:
                continue
            if "error" in message:
                answer.set_exception(GuestError(message["error"]))
            else:
                answer.set_result(message["result"])
        for answer in self._pending.values():
            answer.set_exception(GuestError(f"the guest ended; its console ends:\n{self.console()}"))

    def close(self) -> None:
        """End QEMU and what was started beside it."""
        for process in (self._process, *self._helpers):
            process.kill()
            process.wait()
        self._socket.close()


def _connect(path: Path, process: "subprocess.Popen[bytes]") -> socket.socket:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and process.poll() is None:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.connect(str(path))
        except (FileNotFoundError, ConnectionRefusedError):
            connection.close()
            threading.Event().wait(0.05)
        else:
            return connection
    raise UnavailableError(f"QEMU did not start: {(path.parent / 'qemu.log').read_text()[-500:].strip()}")


def boot(provisions: Provisions, work: Path, devices: Sequence[str], *, tpm: bool = False) -> Guest:
    """Start a guest with the given `-device`/`-drive`/... words and wait until its agent answers."""
    work.mkdir(parents=True, exist_ok=True)
    initramfs = make_initramfs(provisions, work)
    helpers = [_start_tpm(work)] if tpm else []
    words = [
        *["qemu-system-x86_64", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"],
        *["-machine", "q35", "-accel", "tcg,thread=multi", "-cpu", CPU, "-smp", "2", "-m", str(MEMORY_MIB)],
        *["-kernel", str(provisions.kernel), "-initrd", str(initramfs)],
        *["-append", KERNEL_WORDS],
        *["-serial", f"file:{work}/console.log"],
        *["-qmp", f"unix:{work}/qmp.sock,server=on,wait=off"],
        *["-chardev", f"socket,id=agent,path={work}/agent.sock,server=on,wait=off"],
        *["-device", "virtio-serial-pci,id=vser,addr=0x10"],
        *["-device", "virtserialport,bus=vser.0,chardev=agent,name=liken.agent"],
        *["-fsdev", "local,id=host,path=/,security_model=none,readonly=on,multidevs=remap"],
        *["-device", "virtio-9p-pci,fsdev=host,mount_tag=host,addr=0x11"],
        *["-drive", f"if=none,id=python,format=raw,readonly=on,file={provisions.python_disk}"],
        *["-device", "virtio-blk-pci,drive=python,serial=liken-python,addr=0x12"],
        *devices,
    ]
    with (work / "qemu.log").open("wb") as log:
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=_as_helper
        )
    try:
        guest = Guest(work, process, helpers)
        guest.wait_ready()
    except BaseException:
        for started in (process, *helpers):
            started.kill()
        raise
    return guest


def _as_helper() -> None:
    """Of a child before it runs: the tests end it, and nothing is left when they are killed themselves."""
    os.nice(5)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # ctrl-C is for the tests
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _start_tpm(work: Path) -> "subprocess.Popen[bytes]":
    state = work / "tpm"
    state.mkdir(exist_ok=True)
    words = [
        "swtpm",
        "socket",
        "--tpm2",
        "--tpmstate",
        f"dir={state}",
        "--ctrl",
        f"type=unixio,path={work}/tpm.sock",
    ]
    quiet = subprocess.DEVNULL
    return subprocess.Popen(words, stdin=quiet, stdout=quiet, stderr=quiet, preexec_fn=_as_helper)


def make_initramfs(provisions: Provisions, work: Path) -> Path:
    """busybox, the modules the root needs, and the product as it is now."""
    with tempfile.TemporaryDirectory(dir=work) as name:
        root = Path(name)
        for folder in ("bin", "proc", "sys", "dev", "modules", "guest/product"):
            (root / folder).mkdir(parents=True)
        shutil.copy2(shutil.which("busybox") or "/bin/busybox", root / "bin/busybox")
        (root / "bin/sh").symlink_to("busybox")
        shutil.copy2(HERE / "guest/init.sh", root / "init")
        (root / "init").chmod(0o755)
        shutil.copy2(HERE / "guest/pid1.sh", root / "guest/pid1.sh")
        (root / "guest/paths").write_text(_paths(provisions))
        (root / "guest/modules").write_text("\n".join(_copy_modules(provisions, root / "modules")) + "\n")
        _copy_product(root / "guest/product")
        image = work / "initramfs"
        pack = "find . -print0 | cpio --null --quiet --create --format=newc"
        with image.open("wb") as output:
            subprocess.run(["sh", "-c", pack], cwd=root, stdout=output, check=True)
    return image


def _paths(provisions: Provisions) -> str:
    values = {
        "PYTHON": sys.executable,
        "STDLIB": sysconfig.get_path("stdlib"),
        "PURELIB": sysconfig.get_path("purelib"),
        "REPOSITORY": REPOSITORY,
        "MODULES": provisions.modules,
        "RELEASE": provisions.release,
    }
    return "".join(f"{name}='{value}'\n" for name, value in values.items())


def _copy_modules(provisions: Provisions, target: Path) -> list[str]:
    """Copy the modules of the boot with what they need; their file names in the order to load them."""
    names: list[str] = []
    base = provisions.modules.parents[2]
    for module in BOOT_MODULES:
        words = ["modprobe", "-S", provisions.release, "-d", str(base), "--show-depends", module]
        path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
        listed = subprocess.run(words, capture_output=True, text=True, check=True, env={"PATH": path})
        for line in listed.stdout.splitlines():
            kind, _, file = line.partition(" ")
            source = Path(file.strip())
            if kind == "insmod" and source.name not in names:
                shutil.copy2(source, target / source.name)
                names.append(source.name)
    return names


def _copy_product(target: Path) -> None:
    for part in PRODUCT:
        source = REPOSITORY / part
        if source.is_dir():
            shutil.copytree(source, target / part, ignore=shutil.ignore_patterns("__pycache__"))
        elif source.exists():
            (target / part).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target / part)
    words = [sys.executable, "-m", "compileall", "-q", "-s", str(target), "-p", str(REPOSITORY), str(target)]
    subprocess.run(words, check=False, stdout=subprocess.DEVNULL)
