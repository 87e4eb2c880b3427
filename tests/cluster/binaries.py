"""The programs of a real cluster: found, or built from Go modules at the releases tools/*/go.mod name.

Each folder of tools/ is one module with `tool` lines; a folder named like a version is Kubernetes of that
version. What is built is kept outside the repository, below $XDG_CACHE_HOME/liken/kube, and found there.
LIKEN_KUBE_BIN or KUBEBUILDER_ASSETS may name a folder of ready programs: they stand in for the newest
Kubernetes, etcd and containerd, as far as that folder has them.
"""

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

TOOLS = Path(__file__).parent / "tools"
VERSION = re.compile(r"\d+\.\d+\.\d+")
BUILD_LIMIT_S = 1800  # one program; kube-apiserver takes 400 s on two idle cores


class UnavailableError(Exception):
    """A program is not there and could not be built; the text says why in one line."""


@dataclass(frozen=True)
class Program:
    """One program: which module folder makes it, its Go package, and its release."""

    tool: str  # folder below tools/
    package: str
    version: str

    @property
    def name(self) -> str:
        # a module's root package is called by its major version: go.etcd.io/etcd/server/v3 is etcd
        last = self.package.rsplit("/", 1)[-1]
        return self.tool if re.fullmatch(r"v\d+", last) else last

    @property
    def kubernetes(self) -> bool:
        return VERSION.fullmatch(self.tool) is not None

    @property
    def cached(self) -> Path:
        folder = self.tool if self.kubernetes else f"{self.tool}-{self.version}"
        return cache() / folder / self.name


def cache() -> Path:
    """The folder that keeps what was built."""
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "liken" / "kube"


def programs() -> list[Program]:
    """All programs that the tool folders describe, by folder and name."""
    return [program for module in sorted(TOOLS.glob("*/go.mod")) for program in _of_module(module)]


def kubernetes_versions() -> list[str]:
    """The Kubernetes releases that have a tool folder, newest first."""
    folders = [path.parent.name for path in TOOLS.glob("*/go.mod") if VERSION.fullmatch(path.parent.name)]
    return sorted(folders, key=lambda text: [int(part) for part in text.split(".")], reverse=True)


def find(name: str, version: str | None = None) -> Path:
    """The path of a program; `version` is a Kubernetes release, None for the newest and for other programs.

    Raises UnavailableError.
    """
    newest = kubernetes_versions()[0]
    if version in (None, newest) and (given := _given(name)):
        return given
    for program in programs():
        if program.name == name and program.tool in (version or newest, "containerd", "etcd"):
            if program.cached.exists():
                return program.cached
            raise UnavailableError(
                f"{name} {program.version} is not built: see what `make test-cluster` printed"
            )
    raise UnavailableError(f"no tools folder describes {name} {version or ''}")


def build_all(versions: list[str] | None = None) -> Iterator[str]:
    """Build what is missing; yields one line for each program built or not to be had."""
    wanted = versions or kubernetes_versions()
    for version in sorted(set(wanted) - set(kubernetes_versions())):
        yield f"Kubernetes {version}: not built, `python -m tests.cluster.add_version {version}` comes first"
    newest = kubernetes_versions()[0]
    for program in programs():
        if program.kubernetes and program.tool not in wanted:
            continue
        if program.cached.exists() or (
            program.tool in (newest, "containerd", "etcd") and _given(program.name)
        ):
            continue
        yield _build(program)


def build_tool(tool: str) -> Iterator[str]:
    """Build what is missing of one folder of tools/; yields a line for each program, as build_all does."""
    for program in programs():
        if program.tool == tool and not program.cached.exists() and not _given(program.name):
            yield _build(program)


def _build(program: Program) -> str:
    label = f"{program.name} {program.version}"
    if not shutil.which("go"):
        return f"{label}: not built, there is no go command; install Go or set LIKEN_KUBE_BIN"
    print(f"building {label} (minutes, once)", flush=True)
    target = program.cached
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = target.with_name(f".{target.name}.{os.getpid()}")
    flags = " ".join(["-s", "-w", *_stamps(program)])
    command = [
        "nice",
        "-n",
        "15",
        "go",
        "build",
        "-trimpath",
        "-ldflags",
        flags,
        "-o",
        str(fresh),
        program.package,
    ]
    begun = time.monotonic()
    environment = {**os.environ, "CGO_ENABLED": "0"}
    try:
        result = subprocess.run(
            command,
            cwd=TOOLS / program.tool,
            env=environment,
            capture_output=True,
            text=True,
            timeout=BUILD_LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"{label}: not built, go build took more than {BUILD_LIMIT_S} s"
    if result.returncode != 0:
        last = (result.stderr.strip().splitlines() or ["no output"])[-1]
        return f"{label}: not built, go build ended with {result.returncode}: {last}"
    fresh.rename(target)
    return f"{label}: built in {time.monotonic() - begun:.0f} s"


def _stamps(program: Program) -> list[str]:
    """The linker values that a release build sets; without them a kubelet reports v0.0.0 as its version."""
    if not program.kubernetes:
        return []
    major, minor, _ = program.version.split(".")
    package = "k8s.io/component-base/version"
    values = {
        "gitVersion": f"v{program.version}",
        "gitMajor": major,
        "gitMinor": minor,
        "gitTreeState": "clean",
    }
    return [f"-X {package}.{name}={value}" for name, value in values.items()]


def _of_module(module: Path) -> Iterator[Program]:
    text = module.read_text()
    required = dict(re.findall(r"^(?:require)?\s+(\S+) v(\S+)", text, re.MULTILINE))
    for package in re.findall(r"^(?:tool)?\s+(\S+/\S+)$", text, re.MULTILINE):
        owner = max((name for name in required if f"{package}/".startswith(f"{name}/")), key=len)
        yield Program(module.parent.name, package, required[owner])


def _given(name: str) -> Path | None:
    for variable in ("LIKEN_KUBE_BIN", "KUBEBUILDER_ASSETS"):
        if folder := os.environ.get(variable):
            path = Path(folder) / name
            if os.access(path, os.X_OK):
                return path
    return None


if __name__ == "__main__":
    lines = list(build_all(sys.argv[1:] or None))
    print("\n".join(lines) or f"nothing to build: {cache()} is complete")
    sys.exit(any("not built" in line for line in lines))
