"""`make images`: the images as OCI archives, without a container engine and without a registry.

    python3 images/assemble.py FOLDER [TAG]

Each archive can be imported by `ctr images import`, `podman load` or `skopeo copy`. Two runs on one state of
the package mirror give the same bytes: names are sorted, times and owners are zero.
"""

import gzip
import hashlib
import io
import json
import sys
import tarfile
import tempfile
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

import rootfs

LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
CONFIG = "application/vnd.oci.image.config.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"


class Blob(NamedTuple):
    """One content-addressed file of an archive."""

    media_type: str
    data: bytes

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.data).hexdigest()

    def descriptor(self, **more: Any) -> dict[str, Any]:
        return {
            "mediaType": self.media_type,
            "digest": f"sha256:{self.digest}",
            "size": len(self.data),
            **more,
        }


class Layer(NamedTuple):
    """A compressed layer, and the digest of what is in it."""

    blob: Blob
    diff_id: str
    unpacked_bytes: int


def assemble(target: Path, tag: str) -> list[str]:
    """Write one archive per image; one line per image with its sizes. Raises LayerError."""
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        rootfs.make(Path(folder))
        layers = {name: _layer(Path(folder) / name) for name in rootfs.table()["layers"]}
    lines = []
    for name, image in rootfs.table()["images"].items():
        parts = [layers[layer] for layer in image["layers"]]
        path = target / f"{name}.oci.tar"
        _write(path, f"{name}:{tag}", image, parts)
        packed, unpacked = path.stat().st_size, sum(part.unpacked_bytes for part in parts)
        lines.append(f"{name}:{tag}  {packed / 1e6:.1f} MB packed, {unpacked / 1e6:.1f} MB unpacked  {path}")
    return lines


def _layer(folder: Path) -> Layer:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for path in sorted(folder.rglob("*")):
            archive.add(path, str(path.relative_to(folder)), recursive=False, filter=_anonymous)
    plain = buffer.getvalue()
    packed = gzip.compress(plain, compresslevel=6, mtime=0)
    return Layer(Blob(LAYER, packed), hashlib.sha256(plain).hexdigest(), len(plain))


def _anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = entry.mtime = 0
    entry.uname = entry.gname = ""
    return entry


def _write(path: Path, reference: str, image: dict[str, Any], parts: list[Layer]) -> None:
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {
            "Entrypoint": image["entrypoint"],
            "Cmd": image.get("command", []),
            # two arenas for malloc: threads would otherwise each keep memory that they used once
            "Env": ["PATH=/usr/local/bin:/usr/bin", "MALLOC_ARENA_MAX=2"],
            "WorkingDir": "/",
            "StopSignal": "SIGTERM",
            "Labels": {"org.opencontainers.image.title": reference.partition(":")[0]},
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{part.diff_id}" for part in parts]},
        "history": [{"created_by": f"images/layers.toml: {name}"} for name in image["layers"]],
    }
    config_blob = Blob(CONFIG, _json(config))
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": config_blob.descriptor(),
        "layers": [part.blob.descriptor() for part in parts],
    }
    manifest_blob = Blob(MANIFEST, _json(manifest))
    names = {
        "io.containerd.image.name": f"docker.io/library/{reference}",
        "org.opencontainers.image.ref.name": reference,
    }
    index = {
        "schemaVersion": 2,
        "mediaType": INDEX,
        "manifests": [manifest_blob.descriptor(annotations=names)],
    }
    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as archive:
        _add(archive, "oci-layout", _json({"imageLayoutVersion": "1.0.0"}))
        _add(archive, "index.json", _json(index))
        for blob in (config_blob, manifest_blob, *(part.blob for part in parts)):
            _add(archive, f"blobs/sha256/{blob.digest}", blob.data)


def _json(content: Any) -> bytes:
    return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()


def _add(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(data), 0o644
    archive.addfile(entry, io.BytesIO(data))


def version() -> str:
    project = tomllib.loads((rootfs.REPOSITORY / "pyproject.toml").read_text())["project"]
    return str(project["version"])


if __name__ == "__main__":
    try:
        print("\n".join(assemble(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else version())))
    except rootfs.LayerError as error:
        print(f"images: {error}", file=sys.stderr)
        sys.exit(1)
