"""A certificate authority for one test cluster, made with the openssl command."""

from dataclasses import dataclass
from pathlib import Path

import yaml

from tests.cluster.processes import run

DAYS = "2"  # a test cluster lives for minutes


@dataclass(frozen=True)
class Pair:
    """A certificate and its key."""

    certificate: Path
    key: Path


class Authority:
    """Signs the certificates of one cluster; everything lies in `folder`."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self.root = Pair(folder / "ca.crt", folder / "ca.key")
        _key(self.root.key)
        subject = ("-subj", "/CN=liken test cluster")
        run(
            "openssl",
            "req",
            "-x509",
            "-new",
            "-key",
            self.root.key,
            "-out",
            self.root.certificate,
            "-days",
            DAYS,
            *subject,
            "-addext",
            "keyUsage=critical,keyCertSign,cRLSign,digitalSignature",
        )

    def issue(self, user: str, groups: tuple[str, ...] = (), names: tuple[str, ...] = ()) -> Pair:
        """A certificate for client and server use; `names` are subjectAltName entries: IP:127.0.0.1."""
        base = user.replace(":", "-").replace("/", "-")
        pair = Pair(self._folder / f"{base}.crt", self._folder / f"{base}.key")
        _key(pair.key)
        subject = "".join(f"/O={group}" for group in groups) + f"/CN={user}"
        request = run("openssl", "req", "-new", "-key", pair.key, "-subj", subject)
        extensions = self._folder / f"{base}.ext"
        lines = ["keyUsage=critical,digitalSignature", "extendedKeyUsage=clientAuth,serverAuth"]
        lines += [f"subjectAltName={','.join(names)}"] if names else []
        extensions.write_text("\n".join(lines) + "\n")
        run(
            "openssl",
            "x509",
            "-req",
            "-CA",
            self.root.certificate,
            "-CAkey",
            self.root.key,
            "-CAcreateserial",
            "-days",
            DAYS,
            "-extfile",
            extensions,
            "-out",
            pair.certificate,
            stdin=request,
        )
        return pair

    def signing_key(self, name: str) -> Pair:
        """A key for service account tokens with its public half in place of a certificate."""
        pair = Pair(self._folder / f"{name}.pub", self._folder / f"{name}.key")
        _key(pair.key)
        run("openssl", "pkey", "-in", pair.key, "-pubout", "-out", pair.certificate)
        return pair


def kubeconfig(path: Path, server: str, authority: Path, user: dict[str, str]) -> Path:
    """Write a kubeconfig; `user` is its user entry (client-certificate and client-key, or token)."""
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": "test", "cluster": {"server": server, "certificate-authority": str(authority)}}
        ],
        "users": [{"name": "user", "user": user}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "user"}}],
        "current-context": "test",
    }
    path.write_text(yaml.safe_dump(content))
    return path


def _key(path: Path) -> None:
    run("openssl", "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", path)
