"""What the harness can ask of the guest. Arguments and results are plain JSON."""

import contextlib
import fcntl
import os
import subprocess
import time
from pathlib import Path
from typing import Any

from tests.kernel.guest.inputs import open_once, opens, uinput, uinput_end, watch_opens

__all__ = ["open_once", "opens", "uinput", "uinput_end", "watch_opens"]


def boottime() -> float:
    """Seconds since the guest started: the clock of `stirred`."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def run(
    argv: list[str], timeout_s: float = 60.0, environment: dict[str, str] | None = None, text: str = ""
) -> dict[str, Any]:
    """Run a program to its end: `{"code", "out", "err"}`."""
    done = subprocess.run(
        argv,
        capture_output=True,
        text=True,
        errors="replace",
        input=text,
        timeout=timeout_s,
        env={**os.environ, **(environment or {})},
        check=False,
    )
    return {"code": done.returncode, "out": done.stdout, "err": done.stderr}


def start(argv: list[str], log: str, environment: dict[str, str] | None = None) -> int:
    """Start a program in the background, its output into the file `log`; its process id."""
    with Path(log).open("ab") as output:
        child = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
        )
    return child.pid


def kill(pid: int, signal: int) -> None:
    os.kill(pid, signal)


def kill_at(mark: int, what: str, pid: int, signal: int) -> None:
    """Kill a process at the first note of a kind from `mark` on."""
    _observers[-1].wait_note(mark, what, 90.0)
    os.kill(pid, signal)


def read(path: str) -> str | None:
    """A file's text, or None where there is no such file."""
    try:
        return Path(path).read_text(errors="replace")
    except FileNotFoundError:
        return None


def write(path: str, text: str) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(text)


def exists(path: str) -> bool:
    return Path(path).exists()


def listing(path: str) -> list[str]:
    folder = Path(path)
    return sorted(entry.name for entry in folder.iterdir()) if folder.is_dir() else []


def links(path: str) -> dict[str, str]:
    """Name and target of every symlink in a folder."""
    folder = Path(path)
    entries = sorted(folder.iterdir()) if folder.is_dir() else []
    return {entry.name: str(entry.readlink()) for entry in entries if entry.is_symlink()}


def nodes() -> dict[str, list[Any]]:
    """Every device node below /dev: type, major, minor."""
    found: dict[str, list[Any]] = {}
    for folder, _, names in os.walk("/dev"):
        for name in names:
            path = f"{folder}/{name}"
            status = os.lstat(path)
            kind = {0o020000: "c", 0o060000: "b"}.get(status.st_mode & 0o170000)
            if kind:
                found[path] = [kind, os.major(status.st_rdev), os.minor(status.st_rdev)]
    return found


def load(modules: list[str]) -> list[str]:
    """modprobe each `name` or `name:parameters`; the names that could not be loaded."""
    failed = []
    for entry in modules:
        name, _, parameters = entry.partition(":")
        if subprocess.run(
            ["modprobe", name, *parameters.split()], capture_output=True, check=False
        ).returncode:
            failed.append(name)
    return failed


_observers: list[Any] = []


def observe(run_dir: str, cdi: str, slices: str) -> None:
    """Begin to note everything that happens."""
    from tests.kernel.guest.observe import Observer, Places

    _observers.append(Observer(Places(Path(run_dir), Path(cdi), Path(slices))))


def mark() -> int:
    return int(_observers[-1].mark())


def since(mark: int, what: str = "") -> list[dict[str, Any]]:
    return list(_observers[-1].since(mark, what))


def walks(mark: int) -> int:
    """How many inventories were taken since `mark`."""
    return int(_observers[-1].walks(mark))


def seen() -> dict[str, Any]:
    return dict(vars(_observers[-1].seen))


def wait_slice(has: list[str] = [], lacks: list[str] = [], timeout_s: float = 90.0) -> float:  # noqa: B006
    """Wait until the slices list all of `has` and none of `lacks`; when that was, by boottime()."""
    return float(
        _observers[-1].wait(
            lambda seen: set(has) <= set(seen.slice) and not set(lacks) & set(seen.slice), timeout_s
        )
    )


def wait_spec(claim: str, devices: dict[str, list[str]] | None, timeout_s: float = 90.0) -> float:
    """Wait until the claim's spec is exactly `devices` (name: sorted paths); None: until it is gone."""
    return float(_observers[-1].wait(lambda seen: seen.specs.get(claim) == devices, timeout_s))


def wait_returned(claim: str, nodes: int = 1, timeout_s: float = 90.0) -> float:
    """Wait until a spec that names a placeholder names at least that many nodes instead."""

    def returned(seen: Any) -> bool:
        paths = [path for each in seen.specs.get(claim, {}).values() for path in each]
        return len(paths) >= nodes and not any(path.startswith("/dev/liken.sh/") for path in paths)

    return float(_observers[-1].wait(returned, timeout_s))


def agree(
    states: dict[str, dict[str, str]],
    has: list[str],
    lacks: list[str],
    timeout_s: float = 90.0,
) -> float:
    """Wait until inventory, slices, presence and specs agree. `states`: of all devices of all claims."""
    from tests.kernel.guest.agreement import disagreement

    observer = _observers[-1]
    try:
        return float(observer.wait(lambda seen: not disagreement(seen, states, has, lacks), timeout_s))
    except TimeoutError:
        words = disagreement(observer.seen, states, has, lacks)
        raise TimeoutError(f"no agreement within {timeout_s} s: {words}") from None


def wait_note(mark: int, what: str, timeout_s: float = 90.0) -> dict[str, Any]:
    return dict(_observers[-1].wait_note(mark, what, timeout_s))


def gadget(action: str, *args: Any, **named: Any) -> None:
    """make, identity, plug, unplug, remove: see tests.kernel.guest.gadgets."""
    from tests.kernel.guest import gadgets

    getattr(gadgets, action)(*args, **named)


def prepare(kubelet_dir: str, claims: list[dict[str, str]]) -> dict[str, Any]:
    from tests.kernel.guest import kubelet  # late: gRPC takes two seconds to import here

    return kubelet.prepare(kubelet_dir, claims)


def unprepare(kubelet_dir: str, claims: list[dict[str, str]]) -> dict[str, str]:
    from tests.kernel.guest import kubelet

    return kubelet.unprepare(kubelet_dir, claims)


def processes(prefix: str) -> dict[str, int]:
    """Process ids of running `python -m <module>` whose module begins with `prefix`."""
    found = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if "-m" in words and words[words.index("-m") + 1].startswith(prefix):
            found[words[words.index("-m") + 1]] = int(folder.name)
    return found


def nap(seconds: float) -> None:
    """Let time pass in the guest: for the few scenarios that must see that nothing comes."""
    time.sleep(seconds)


def wait_path(path: str, timeout_s: float = 60.0) -> float:
    """Wait until there is something at `path`; when it was seen first."""
    deadline = time.monotonic() + timeout_s
    while not os.path.lexists(path):  # a dangling link counts
        if time.monotonic() > deadline:
            raise TimeoutError(f"nothing at {path} within {timeout_s} s")
        time.sleep(0.01)
    return boottime()


def wait_path_gone(path: str, timeout_s: float = 60.0) -> None:
    """Wait until there is nothing at `path`."""
    deadline = time.monotonic() + timeout_s
    while os.path.lexists(path):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{path} is there after {timeout_s} s")
        time.sleep(0.01)


def memory_kib(prefix: str) -> dict[str, int]:
    """Proportional set size of each process that `processes` finds, in KiB."""
    sizes = {}
    for module, pid in processes(prefix).items():
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        sizes[module] = next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return sizes


def wait_kinds(name: str, kinds: list[str], timeout_s: float = 90.0) -> float:
    """Wait until the inventory has the device `name` with exactly these kinds."""

    def there(seen: Any) -> bool:
        return any(each["name"] == name and list(each["kinds"]) == kinds for each in seen.whole["devices"])

    return float(_observers[-1].wait(there, timeout_s))


def timed(argv: list[str], timeout_s: float = 60.0) -> list[float]:
    """Run a program that must succeed; boottime() before and after it."""
    began = boottime()
    subprocess.run(argv, check=True, capture_output=True, timeout=timeout_s)
    return [began, boottime()]


def guard(owners: dict[str, str]) -> None:
    """Have the witness check that each claim's spec never names a node but those of its USB interface."""
    _observers[-1].guard(owners)


def guard_end() -> dict[str, Any]:
    """Each spec as it was written, how often the guard looked, and what was wrong; the guard ends."""
    return dict(_observers[-1].guard_end())


def power_cycle(device: str) -> None:
    """Take a USB device's configuration away, which unplugs what is behind it, and give it back at once."""
    configuration = Path(f"/sys/bus/usb/devices/{device}/bConfigurationValue")
    configuration.write_text("0")
    configuration.write_text("1")


LOOP_CTL_ADD, LOOP_CTL_REMOVE = 0x4C80, 0x4C81  # linux/loop.h
FIRST_LOOP = 100


def storm(pairs: int) -> list[float]:
    """Make and remove `pairs` veth pairs, with a loop device after every ten; boottime() before and after."""
    began = boottime()
    control = os.open("/dev/loop-control", os.O_RDWR)
    for batch in range(0, pairs, 10):
        lines = "".join(
            f"link add va{number} type veth peer name vb{number}\nlink del va{number}\n"
            for number in range(batch, min(batch + 10, pairs))
        )
        subprocess.run(["ip", "-batch", "-"], input=lines, text=True, check=True, capture_output=True)
        number = FIRST_LOOP + batch
        fcntl.ioctl(control, LOOP_CTL_ADD, number)
        subprocess.run(["losetup", f"/dev/loop{number}", "/run/storm.img"], check=True, capture_output=True)
        subprocess.run(["losetup", "--detach", f"/dev/loop{number}"], check=True)
        fcntl.ioctl(control, LOOP_CTL_REMOVE, number)
    os.close(control)
    return [began, boottime()]


def flood(path: str, count: int) -> None:
    """Have the kernel send `count` change events for the device at `path`."""
    uevent = Path(path) / "uevent"
    for _ in range(count):
        uevent.write_text("change")


def metric(url: str, name: str) -> float:
    """The value of one unlabelled metric of a service."""
    import urllib.request

    with urllib.request.urlopen(url, timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return float(next(line.split()[1] for line in lines if line.startswith(f"{name} ")))


def wait_process(words: str, timeout_s: float = 60.0) -> None:
    """Wait until a process runs whose command line begins with `words`."""
    deadline = time.monotonic() + timeout_s
    while not any(line.startswith(words) for line in _command_lines()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"no process {words!r} within {timeout_s} s")
        time.sleep(0.05)


def _command_lines() -> list[str]:
    lines = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                lines.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    return lines
