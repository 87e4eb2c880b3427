"""Everything the kernel tier needs that is not Python: Debian packages, a kernel, two files to boot from.

Kept in `${XDG_CACHE_HOME:-~/.cache}/liken/kernel`, outside the repository. Run by hand:
`python -m tests.kernel.provision`.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
META_PACKAGE = "linux-image-amd64"  # depends on Debian's newest kernel of the running release
# Only what a service or the guest's agent imports goes on the disk; tools for developers stay behind.
LEFT_OUT = (
    *(
        "mypy",
        "mypyc",
        "ruff",
        "grpc_tools",
        "pip",
        "setuptools",
        "hypothesis",
        "celpy",
        "lark",
        "importlinter",
    ),
    *("grimp", "hatchling", "test", "idlelib", "lib2to3", "tkinter", "turtledemo", "ensurepip", "pydoc_data"),
    "site-packages",
)
PYTHON_DISK_SPARE = 48 << 20  # bytes for inodes and directories beyond the files


class UnavailableError(Exception):
    """The tier cannot run here; the text is one line that says what is missing."""


@dataclass(frozen=True)
class Provisions:
    """Paths on the host: what QEMU boots and what the guest mounts."""

    kernel: Path
    modules: Path  # .../lib/modules/<release>, with its depmod indexes
    release: str
    python_disk: Path  # ext4: `stdlib/` and `site-packages/`


def cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "liken" / "kernel"


def provide() -> Provisions:
    """Install and unpack what is missing. Raises UnavailableError."""
    if os.geteuid() != 0:
        raise UnavailableError("the kernel tier needs root: it installs packages and shares / with its guest")
    _install_packages()
    cache = cache_folder()
    cache.mkdir(parents=True, exist_ok=True)
    image = _kernel(cache)
    release = next((image / "lib/modules").iterdir()).name
    return Provisions(
        kernel=image / "boot" / f"vmlinuz-{release}",
        modules=image / "lib/modules" / release,
        release=release,
        python_disk=_python_disk(cache),
    )


def wanted_packages() -> list[str]:
    lines = (HERE / "debian-packages.txt").read_text().splitlines()
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def _install_packages() -> None:
    missing = [name for name in wanted_packages() if not _installed(name)]
    if not missing:
        return
    if shutil.which("apt-get") is None:
        raise UnavailableError(f"the kernel tier needs apt-get to install {', '.join(missing)}")
    _apt("update")
    _apt("install", "--yes", "--no-install-recommends", *missing)


def _installed(package: str) -> bool:
    query = ["dpkg-query", "--show", "--showformat=${Status}", package]
    try:
        answer = subprocess.run(query, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise UnavailableError("the kernel tier needs a Debian system: there is no dpkg-query") from None
    return answer.stdout == "install ok installed"


def _apt(*words: str, cwd: Path | None = None) -> None:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(
        ["apt-get", "-qq", *words], capture_output=True, text=True, cwd=cwd, env=environment, check=False
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise UnavailableError(f"the kernel tier cannot run `apt-get {' '.join(words)}`: {last}")


def _kernel(cache: Path) -> Path:
    """Unpack the newest kernel package, running none of its scripts."""
    finished = sorted(cache.glob("linux-image-*/.complete"))
    if finished:
        return finished[-1].parent
    package = _kernel_package()
    with tempfile.TemporaryDirectory(dir=cache) as name:
        work = Path(name)
        _apt("download", package, cwd=work)
        archive = next(work.glob("*.deb"))
        unpacked = work / "image"
        subprocess.run(["dpkg", "-x", str(archive), str(unpacked)], check=True)
        release = next((unpacked / "lib/modules").iterdir()).name
        subprocess.run([_sbin("depmod"), "-b", str(unpacked), release], check=True)
        (unpacked / ".complete").touch()
        home = cache / package
        shutil.rmtree(home, ignore_errors=True)
        return unpacked.rename(home)


def _kernel_package() -> str:
    words = ["apt-cache", "depends", META_PACKAGE]
    answer = subprocess.run(words, capture_output=True, text=True, check=False).stdout
    found = re.search(r"Depends: (linux-image-\d\S+-amd64)$", answer, re.MULTILINE)
    if found is None:
        raise UnavailableError(f"the kernel tier finds no kernel: apt-cache knows no {META_PACKAGE}")
    return found.group(1)


def _sbin(name: str) -> str:
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin") or name


def _python_disk(cache: Path) -> Path:
    """An ext4 image of the standard library and the packages: imports by 9p take far longer."""
    recipe = f"{sys.version}{LEFT_OUT}{(REPOSITORY / 'requirements-dev.txt').read_text()}"
    key = hashlib.sha256(recipe.encode()).hexdigest()[:12]
    disk = cache / f"python-{key}.ext4"
    if disk.exists():
        return disk
    for stale in cache.glob("python-*.ext4"):
        stale.unlink()
    with tempfile.TemporaryDirectory(dir=cache) as name:
        staged = Path(name) / "root"
        ignore = shutil.ignore_patterns(*LEFT_OUT, "tests", "config-*", "*.a")
        for part in ("stdlib", "purelib"):
            target = "site-packages" if part == "purelib" else part
            shutil.copytree(sysconfig.get_path(part), staged / target, ignore=ignore, symlinks=True)
        compile_all = [sys.executable, "-m", "compileall", "-q", "-j2", str(staged)]
        subprocess.run(compile_all, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        size = sum(path.lstat().st_size + 4096 for path in staged.rglob("*")) + PYTHON_DISK_SPARE
        made = Path(name) / "disk"
        words = ["-q", "-d", str(staged), "-O", "^has_journal", str(made), f"{size // 1024}k"]
        subprocess.run([_sbin("mkfs.ext4"), *words], check=True, capture_output=True)
        return made.rename(disk)


def main() -> int:
    try:
        print(provide())
    except UnavailableError as reason:
        print(reason, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
