"""The claims of the local cluster: the command writes them as a scheduler would, the services read them."""

import re
from pathlib import Path
from typing import Any

import msgspec
import msgspec.yaml

from common.cluster import ClaimMissing
from common.cluster.local import LocalCluster, claim_path
from common.errors import MachineError, RequestError
from common.files import write_atomically
from common.locks import FileLock

DEFAULT_NAMESPACE = "default"
LOCK_S = (
    30.0  # one allocation at a time; it takes milliseconds, a prepare within it up to the kubelet's patience
)
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
MAX_NAME = 253  # DNS subdomain; Kubernetes object names


class Claims:
    """The claims below one local cluster's folder."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._cluster = LocalCluster(root)

    def lock(self) -> FileLock:
        """The lock around an allocation."""
        self._root.mkdir(parents=True, exist_ok=True)
        return FileLock(self._root / "allocate.lock")

    def slices(self) -> list[dict[str, Any]]:
        return self._cluster.list_slices().items

    def all(self) -> list[dict[str, Any]]:
        """Every claim, in the order of namespace and name.

        Raises MachineError when one cannot be read: it may hold a device that must not be given again.
        """
        found = [_read(path) for path in sorted((self._root / "claims").glob("*/*.yaml"))]
        return sorted(found, key=lambda claim: (claim["metadata"]["namespace"], claim["metadata"]["name"]))

    def find(self, namespace: str, name: str) -> dict[str, Any] | None:
        try:
            return self._cluster.claim(namespace, name, 0.0)
        except ClaimMissing:
            return None

    def write(self, claim: dict[str, Any]) -> None:
        """Raises MachineError."""
        path = claim_path(self._root, claim["metadata"]["namespace"], claim["metadata"]["name"])
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise MachineError(
                f"cannot make {path.parent} ({error.strerror}): check the state folder"
            ) from error
        write_atomically(path, msgspec.yaml.encode(claim))

    def remove(self, namespace: str, name: str) -> None:
        claim_path(self._root, namespace, name).unlink(missing_ok=True)


def _read(path: Path) -> dict[str, Any]:
    try:
        claim = msgspec.yaml.decode(path.read_bytes(), type=dict[str, Any])
        if isinstance(claim["metadata"]["namespace"], str) and isinstance(claim["metadata"]["name"], str):
            return claim
    except (OSError, msgspec.MsgspecError, KeyError, TypeError) as error:
        why = str(error).splitlines()[0]
        raise MachineError(f"cannot read the claim {path} ({why}): repair or remove that file") from error
    raise MachineError(f"{path} holds no claim: repair or remove that file")


def parse_name(text: str) -> tuple[str, str]:
    """Namespace and name of `NAME` or `NAMESPACE/NAME`. Raises RequestError for what can be no name."""
    namespace, slash, name = text.rpartition("/")
    if not slash:
        namespace = DEFAULT_NAMESPACE
    for part in (namespace, name):
        if len(part) > MAX_NAME:
            raise RequestError(
                f"the name {part[:20]}... has {len(part)} letters, and a claim's may have {MAX_NAME}:"
                " choose a shorter one"
            )
        if not _NAME.fullmatch(part):
            raise RequestError(
                f"{part!r} is no name for a claim: use lowercase letters, digits, dashes and dots"
            )
    return namespace, name
