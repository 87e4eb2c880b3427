"""Container images for tests, made from Debian's busybox-static: no registry and no image tool is needed."""

import hashlib
import io
import json
import shutil
import tarfile
from pathlib import Path

BUSYBOX = "localhost/busybox:1"
PAUSE = "localhost/pause:1"
APPLETS = ("cat", "dd", "grep", "id", "ls", "readlink", "sh", "sleep", "stat", "test", "true")


def busybox_archive(path: Path) -> Path:
    """Write a docker-archive with BUSYBOX (runs what it is told) and PAUSE (sleeps: the sandbox of a pod)."""
    program = shutil.which("busybox")
    assert program, "busybox-static is not installed"
    layer = _layer(Path(program))
    images = {BUSYBOX: ["/bin/sh"], PAUSE: ["/bin/sleep", "2147483647"]}
    with tarfile.open(path, "w") as archive:
        _add(archive, "layer.tar", layer)
        manifest = []
        for number, (name, command) in enumerate(images.items()):
            _add(archive, f"{number}.json", _config(command, hashlib.sha256(layer).hexdigest()))
            manifest.append({"Config": f"{number}.json", "RepoTags": [name], "Layers": ["layer.tar"]})
        _add(archive, "manifest.json", json.dumps(manifest).encode())
    return path


def _layer(program: Path) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as layer:
        for name in ("bin", "dev", "etc", "proc", "sys", "tmp"):
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o755
            layer.addfile(folder)
        _add(layer, "bin/busybox", program.read_bytes(), 0o755)
        for applet in APPLETS:
            link = tarfile.TarInfo(f"bin/{applet}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            layer.addfile(link)
    return buffer.getvalue()


def _config(command: list[str], layer_digest: str) -> bytes:
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Cmd": command, "Env": ["PATH=/bin"], "WorkingDir": "/"},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer_digest}"]},
    }
    return json.dumps(config).encode()


def _add(archive: tarfile.TarFile, name: str, data: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(data), mode
    archive.addfile(entry, io.BytesIO(data))
