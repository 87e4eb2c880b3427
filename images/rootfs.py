"""Make the layers of the images as folders: `python3 images/rootfs.py FOLDER`.

The one install script of the daemonless `make images` and of images/Containerfile. It needs Debian's apt-get
and dpkg-deb for the packages, pip for the locked wheels, and Python of the images' own version (a wheel
is for one version). Nothing of the result is run but its own Python, which compiles what it will import.
"""

import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent
PYTHON = "python3.11"
SITE = f"usr/local/lib/{PYTHON}/dist-packages"
# What a server process never imports: tests, tools to install more, and modules whose libraries are left out.
UNWANTED = (
    "usr/share/doc",
    "usr/share/man",
    "usr/share/lintian",
    "usr/share/locale",
    "usr/share/gcc",
    "usr/share/gdb",
    "usr/share/pkgconfig",
    "usr/share/applications",
    "usr/share/pixmaps",
    "usr/share/binfmts",
    "usr/lib/x86_64-linux-gnu/gconv",
    "usr/lib/x86_64-linux-gnu/audit",
    f"usr/lib/{PYTHON}/ensurepip",
    f"usr/lib/{PYTHON}/lib2to3",
    f"usr/lib/{PYTHON}/pydoc_data",
    f"usr/lib/{PYTHON}/curses",
    f"usr/lib/{PYTHON}/dbm",
    f"usr/lib/{PYTHON}/sqlite3",
    f"usr/lib/{PYTHON}/__pycache__",
)
# `liken` for whoever enters a container: there is no shell in it, and -P as everywhere
COMMAND = f"#!/usr/bin/{PYTHON} -P\nfrom services.console.__main__ import main\n\nmain()\n"
UNWANTED_MODULES = ("_curses*", "_dbm*", "_gdbm*", "_sqlite3*", "nis*", "readline*", "_testinternalcapi*")


class LayerError(Exception):
    """A layer cannot be made; the text says what to do."""


def table() -> dict[str, Any]:
    """images/layers.toml."""
    return tomllib.loads((HERE / "layers.toml").read_text())


def make(target: Path) -> None:
    """All layers, each in its folder below `target`. Raises LayerError."""
    if sys.version_info[:2] != (3, 11):
        raise LayerError(f"the images have {PYTHON}: run this with it, not with {sys.version.split()[0]}")
    for program in ("apt-get", "dpkg-deb"):
        if not shutil.which(program):
            raise LayerError(f"{program} is missing: run this on Debian 12, or build images/Containerfile")
    for name, contents in table()["layers"].items():
        _make_layer(target, name, contents)
    for name in table()["layers"]:
        if name != "python":
            _compile(target / "python", target / name)
    _compile(target / "python", target / "python")


def _make_layer(target: Path, name: str, contents: dict[str, Any]) -> None:
    layer = target / name
    layer.mkdir(parents=True)
    if packages := contents.get("debian"):
        _unpack(layer, packages, contents.get("parts", {}))
        _prune(layer)
        _finish(layer)
    if wheels := contents.get("wheels"):
        _install(layer / SITE, wheels, contents.get("without", []))
    if services := contents.get("services"):
        _copy(layer, layer / SITE, services)


def _unpack(layer: Path, packages: list[str], parts: dict[str, list[str]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        # not as the user _apt, who may not write here
        _run("apt-get", "download", "-q", "-o", "APT::Sandbox::User=root", *packages, *parts, at=Path(folder))
        archives = sorted(Path(folder).glob("*.deb"))
        for archive in archives:
            wanted = parts.get(archive.name.partition("_")[0])
            if wanted is None:
                _run("dpkg-deb", "-x", archive, layer)
            else:
                _run("dpkg-deb", "-x", archive, Path(folder) / "whole")
                for path in wanted:
                    (layer / path).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy2(Path(folder) / "whole" / path, layer / path)
        names = [archive.name.removesuffix(".deb").replace("%3a", ":") for archive in archives]
    record = layer / "usr/share/liken/debian-packages"
    record.parent.mkdir(parents=True)
    record.write_text("\n".join(names) + "\n")


def _prune(layer: Path) -> None:
    for name in UNWANTED:
        shutil.rmtree(layer / name, ignore_errors=True)
    modules = layer / f"usr/lib/{PYTHON}/lib-dynload"
    for pattern in UNWANTED_MODULES:
        for path in modules.glob(pattern):
            path.unlink()


def _finish(layer: Path) -> None:
    """What the packages' scripts would have made, as far as four processes need it."""
    for folder in ("dev", "etc", "proc", "run", "sys", "tmp", "var/lib/liken", "var/run"):
        (layer / folder).mkdir(parents=True, exist_ok=True)
    (layer / "tmp").chmod(0o1777)
    (layer / "etc/passwd").write_text("root:x:0:0:root:/:/nonexistent\n")
    (layer / "etc/group").write_text("root:x:0:\n")
    (layer / "etc/nsswitch.conf").write_text("hosts: files dns\n")
    (layer / "etc/ld.so.conf").write_text("/lib/x86_64-linux-gnu\n/usr/lib/x86_64-linux-gnu\n")
    # ldconfig enters the folder by chroot; who is not root may do that in a user namespace
    enter = [] if _is_root() else ["unshare", "--map-root-user"]
    _run(*enter, layer / "sbin/ldconfig", "-r", layer)


def _install(site: Path, wheels: list[str], without: list[str]) -> None:
    """The locked releases of these wheels, checked by their hashes, without what the patterns match."""
    locked = locked_requirements()
    with tempfile.TemporaryDirectory() as folder:
        requirements = Path(folder) / "requirements.txt"
        requirements.write_text("".join(locked[name] for name in wheels))
        _run(sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps",
             "--no-compile", "--root-user-action=ignore", "--require-hashes", "--target", site,
             "-r", requirements)  # fmt: skip
    for pattern in ("bin", "share", *without):
        for path in site.glob(pattern):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def _copy(layer: Path, site: Path, services: list[str]) -> None:
    """Our own code: common, and the services named."""
    ignore = shutil.ignore_patterns("__pycache__", "*.proto", "generate.py")
    shutil.copytree(REPOSITORY / "common", site / "common", ignore=ignore)
    (site / "services").mkdir()
    shutil.copy2(REPOSITORY / "services/__init__.py", site / "services")
    for service in services:
        shutil.copytree(REPOSITORY / "services" / service, site / "services" / service, ignore=ignore)
    if "console" in services:
        shutil.copy2(HERE / "supervisord.conf", site / "services/console/supervisord.conf")
        command = layer / "usr/bin/liken"
        command.parent.mkdir(parents=True, exist_ok=True)
        command.write_text(COMMAND)
        command.chmod(0o755)
    version = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["version"]
    metadata = site / f"liken-{version}.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text(f"Metadata-Version: 2.1\nName: liken\nVersion: {version}\n")


def _compile(python: Path, layer: Path) -> None:
    """Byte code beside the sources: the root is read-only where it runs. Valid without looking at times."""
    libraries = ":".join(str(python / path) for path in ("lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu"))
    loader: list[str | Path] = [python / "lib64/ld-linux-x86-64.so.2", "--library-path", libraries]
    # without site: that would import what this machine has installed, not the layer
    interpreter: list[str | Path] = [python / "usr/bin" / PYTHON, "-I", "-S", "-m", "compileall"]
    options: list[str | Path] = [
        "-q",
        "-j",
        "0",
        "-s",
        layer,
        "-p",
        "/",
        "--invalidation-mode",
        "unchecked-hash",
        layer / "usr",
    ]
    _run(*loader, *interpreter, *options, environment={"PYTHONHOME": str(python / "usr")})


def locked_requirements() -> dict[str, str]:
    """The entries of requirements.txt by package name, each with its hashes."""
    text = (REPOSITORY / "requirements.txt").read_text()
    entries = re.findall(r"^(\S+?)==.*\n(?:\s.*\n)*", text, re.MULTILINE)
    bodies = re.findall(r"^\S+?==.*\n(?:\s.*\n)*", text, re.MULTILINE)
    return {name.lower(): body for name, body in zip(entries, bodies, strict=True)}


def _is_root() -> bool:
    return Path("/proc/self").stat().st_uid == 0


def _run(*command: str | Path, at: Path | None = None, environment: dict[str, str] | None = None) -> None:
    words = [str(word) for word in command]
    result = subprocess.run(words, cwd=at, env=environment, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise LayerError(f"{words[0]} ended with {result.returncode}: {result.stderr.strip()[-600:]}")


if __name__ == "__main__":
    try:
        make(Path(sys.argv[1]))
    except LayerError as error:
        print(f"images: {error}", file=sys.stderr)
        sys.exit(1)
