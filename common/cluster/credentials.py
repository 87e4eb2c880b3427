"""Where the Kubernetes API is and how to be let in: the service account of a pod, or KUBECONFIG.

The official client reads the files, asks the helpers that a kubeconfig may name, and keeps the connections.
"""

import os
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common.cluster.port import ClusterUnavailable, one_line

if TYPE_CHECKING:
    from urllib3.response import BaseHTTPResponse

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")  # Kubernetes puts it into every pod
CONNECTIONS = 16  # kept open: as many as claims are prepared at once; the client's own is five per processor
AUTH_S = 5.0  # tokens are renewed minutes before they expire
_WRONG_FILES = (OSError, ValueError, KeyError, TypeError, AttributeError)  # what the client makes of nonsense

Look = Mapping[Path, tuple[int, int, int]]  # files with their time, inode and size


class Session:
    """One set of credentials and its connections."""

    def __init__(self, configuration: Any, manager: Any, files: Look) -> None:
        """`manager` is the client's, of connections to any host."""
        from urllib3 import Retry
        from urllib3.util import parse_url

        self.files = files  # what the credentials were read from, as it was then
        host = str(configuration.host)
        if manager.proxy is None:
            # all requests go to one host: the manager would take the URL apart to find that out for each
            self._send, self._base = manager.connection_from_url(host).urlopen, parse_url(host).path or ""
        else:
            self._send, self._base = manager.request, host
        self._never = Retry.from_int(False)  # we decide when to ask again
        self._configuration = configuration
        self._auth: tuple[float, dict[str, str]] = (0.0, {})

    def current(self) -> bool:
        """Whether the files are still as they were read."""
        return self.files == _look(self.files)

    def send(self, method: str, path: str, **more: Any) -> "BaseHTTPResponse":
        """The head of the answer, whatever its status. Nothing is sent twice, and no redirect is followed.

        `more` is `body`, `headers` and `timeout` as urllib3 takes them. Raises what urllib3 does.
        """
        url = f"{self._base}{path}"
        answer: BaseHTTPResponse = self._send(method, url, retries=self._never, preload_content=False, **more)
        return answer

    def auth_headers(self) -> dict[str, str]:
        """Refreshed by the client; asked for every AUTH_S only, which halves the time of a request.

        Raises ClusterUnavailable when they cannot be refreshed.
        """
        until, headers = self._auth
        now = time.monotonic()
        if now >= until:
            from kubernetes import config

            try:
                settings = self._configuration.auth_settings().values()
            except (config.ConfigException, *_WRONG_FILES) as error:
                raise ClusterUnavailable(f"the credentials cannot be renewed: {one_line(error)}") from error
            headers = {
                item["key"]: item["value"] for item in settings if item["in"] == "header" and item["value"]
            }
            self._auth = (now + AUTH_S, headers)
        return headers


def open_session(environ: Mapping[str, str], account: Path = SERVICE_ACCOUNT) -> Session:
    """Read the credentials: KUBECONFIG, else the service account of the pod, else ~/.kube/config.

    Raises ClusterUnavailable when there are none, or no usable ones.
    """
    import yaml
    from kubernetes import client, config

    configuration = client.Configuration()
    kubeconfig = environ.get("KUBECONFIG", "")
    try:
        if not kubeconfig and "KUBERNETES_SERVICE_HOST" in environ:
            files = _load_account(configuration, environ, account)
        else:
            files = _load_kubeconfig(configuration, kubeconfig or str(Path("~/.kube/config").expanduser()))
        configuration.socket_options = _socket_options()
        configuration.connection_pool_maxsize = CONNECTIONS
        return Session(configuration, client.ApiClient(configuration).rest_client.pool_manager, files)
    except (config.ConfigException, yaml.YAMLError, *_WRONG_FILES) as error:
        where = "KUBECONFIG" if kubeconfig else "the service account or KUBECONFIG"
        raise ClusterUnavailable(
            f"no credentials for the API server: {one_line(error)}; check {where}"
        ) from error


def _load_account(configuration: Any, environ: Mapping[str, str], account: Path) -> Look:
    from kubernetes.config.incluster_config import InClusterConfigLoader

    token, authority = account / "token", account / "ca.crt"
    files = _look([token, authority])
    loader = InClusterConfigLoader(str(token), str(authority), environ=environ)  # type: ignore[no-untyped-call]
    loader.load_and_set(configuration)  # type: ignore[no-untyped-call]
    return files


def _load_kubeconfig(configuration: Any, paths: str) -> Look:
    from kubernetes import config

    files = _look(_files_of(paths))
    config.load_kube_config(config_file=paths, client_configuration=configuration)  # type: ignore[no-untyped-call]
    return files


def _files_of(kubeconfig: str) -> list[Path]:
    """The kubeconfig files and every file they name."""
    import yaml

    found = []
    for name in kubeconfig.split(os.pathsep):
        path = Path(name)
        found.append(path)
        content = yaml.safe_load(path.read_text()) if path.is_file() else None
        if not isinstance(content, dict):
            continue
        entries = [entry.get("user") for entry in content.get("users") or ()]
        entries += [entry.get("cluster") for entry in content.get("clusters") or ()]
        for entry in entries:
            keys = ("tokenFile", "client-certificate", "client-key", "certificate-authority")
            found += [path.parent / entry[key] for key in keys if entry and entry.get(key)]
    return found


def _look(files: Sequence[Path] | Mapping[Path, object]) -> dict[Path, tuple[int, int, int]]:
    found = {}
    for path in files:
        try:
            status = path.stat()  # follows the links of a projected volume
            found[path] = (status.st_mtime_ns, status.st_ino, status.st_size)
        except OSError:
            found[path] = (0, 0, 0)
    return found


def _socket_options() -> list[tuple[int, int, int]]:
    """No delay of small writes; a peer that vanished is noticed within 30 s, also under a silent watch."""
    return [
        (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
        (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 15),
        (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
        (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
        (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 30_000),
    ]
