"""What the harness can ask of the guest. Arguments and results are plain JSON."""

import os
import subprocess
import time
from pathlib import Path
from typing import Any


def boottime() -> float:
    """Seconds since the guest started, suspended time included: the clock of kernel messages and of `stirred`."""
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
        if subprocess.run(["modprobe", name, *parameters.split()], capture_output=True, check=False).returncode:
            failed.append(name)
    return failed
