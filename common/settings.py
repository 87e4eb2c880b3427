"""The environment, read once into a typed value."""

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

import msgspec

from common.errors import RequestError

Service = Literal["watcher", "publisher", "plugin", "reconciler"]
SERVICES: tuple[Service, ...] = ("watcher", "publisher", "plugin", "reconciler")
DEFAULT_METRICS_ADDR: dict[Service, str] = {
    "watcher": ":9200",
    "publisher": ":9201",
    "plugin": ":9202",
    "reconciler": ":9203",
}
_DNS_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
MAX_NODE_NAME = 253  # DNS subdomain; Kubernetes object names
MAX_DRIVER_NAME = 63  # Kubernetes API limit for DRA driver names


class SettingsError(RequestError):
    """One or more variables are wrong; the text names every one of them, its value and what is allowed."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What one process was told. Times are seconds. Paths are as this process sees them."""

    node_name: str
    metrics_addr: str  # "HOST:PORT", HOST may be empty for all addresses; "" turns the listener off
    driver: str
    root: Path  # a folder or, for commands, a recording, in place of /
    host_proc: Path
    host_modules: Path
    host_bus: Path  # the only thing ever written below /sys is usb/drivers_probe in here
    run: Path
    kubelet: Path
    cdi: Path
    cluster: Literal["local", "kubernetes"]
    local: Path
    settle_s: float  # quiet time after the last uevent before a walk
    settle_ceiling_s: float  # a walk comes at the latest this long after the first uevent
    pass_s: float  # the reconciler's backstop
    machine: Path
    pod_uid: str
    log_format: Literal["text", "json"]
    log_level: str

    @property
    def bus_dir(self) -> Path:
        return self.run / "bus"

    @property
    def plugin_dir(self) -> Path:
        """The folder of this driver below the kubelet's: sockets, records, locks."""
        return self.kubelet / "plugins" / self.driver

    @property
    def claims_dir(self) -> Path:
        return self.plugin_dir / "claims"

    @property
    def registry_dir(self) -> Path:
        return self.kubelet / "plugins_registry"

    @property
    def played(self) -> bool:
        """True when the hardware is a tree and not this machine's: such a tree sends no kernel events."""
        return self.root != Path("/")


class _Reader:
    """Collects every problem instead of stopping at the first."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self.problems: list[str] = []

    def text(self, name: str, default: str, allowed: str = "", valid: Callable[[str], bool] = bool) -> str:
        value = self._environ.get(name, default)
        if allowed and not valid(value):
            self.problems.append(f"{name}={value!r}: allowed is {allowed}")
        return value

    def choice(self, name: str, default: str, *allowed: str) -> str:
        return self.text(name, default, " or ".join(allowed), lambda value: value in allowed)

    def path(self, name: str, default: Path) -> Path:
        value = self.text(name, str(default), "an absolute path", lambda text: text.startswith("/"))
        return Path(value)

    def seconds(self, name: str, default: float) -> float:
        value = self._environ.get(name, str(default))
        try:
            number = float(value)
        except ValueError:
            number = -1.0
        if not 0.0 < number <= 3600.0:
            self.problems.append(f"{name}={value!r}: allowed is a number of seconds above 0 and up to 3600")
            return default
        return number


def read_settings(service: Service | None = None, environ: Mapping[str, str] = os.environ) -> Settings:
    """Read all settings of `service` (None: of a command) from the environment.

    Raises SettingsError that names all wrong variables together.
    """
    read = _Reader(environ)
    in_pod = "KUBERNETES_SERVICE_HOST" in environ
    root = read.path("LIKEN_ROOT", Path("/"))
    run = read.path("LIKEN_RUN", Path("/run/liken"))
    host_proc = read.path("LIKEN_HOST_PROC", root / "proc")
    settings = Settings(
        node_name=read.text(
            "NODE_NAME", _host_name(host_proc), "a DNS subdomain of at most 253 characters", _is_node_name
        ),
        metrics_addr=_metrics_addr(read, service),
        driver=read.text(
            "LIKEN_DRIVER", "liken.sh", "a DNS subdomain of at most 63 characters", _is_driver_name
        ),
        root=root,
        host_proc=host_proc,
        host_modules=read.path("LIKEN_HOST_MODULES", root / "lib/modules"),
        host_bus=read.path("LIKEN_HOST_BUS", Path("/sys/bus")),
        run=run,
        kubelet=read.path("LIKEN_KUBELET", Path("/var/lib/kubelet")),
        cdi=read.path("LIKEN_CDI", Path("/var/run/cdi")),
        cluster=read.choice("LIKEN_CLUSTER", "kubernetes" if in_pod else "local", "local", "kubernetes"),  # type: ignore[arg-type]
        local=read.path("LIKEN_LOCAL", run / "cluster"),
        settle_s=read.seconds("LIKEN_SETTLE", 1.0),
        settle_ceiling_s=read.seconds("LIKEN_SETTLE_CEILING", 5.0),
        pass_s=read.seconds("LIKEN_PASS", 30.0),
        machine=read.path("LIKEN_MACHINE", root / "etc/liken/machine.yaml"),
        pod_uid=read.text("POD_UID", ""),
        log_format=read.choice("LOG_FORMAT", "text", "text", "json"),  # type: ignore[arg-type]
        log_level=read.choice("LOG_LEVEL", "INFO", "DEBUG", "INFO", "WARNING", "ERROR"),
    )
    if settings.settle_s > settings.settle_ceiling_s:
        read.problems.append(
            f"LIKEN_SETTLE={settings.settle_s}: allowed is at most LIKEN_SETTLE_CEILING"
            f" ({settings.settle_ceiling_s})"
        )
    if read.problems:
        raise SettingsError("; ".join(read.problems))
    return settings


def _host_name(host_proc: Path) -> str:
    # /proc and not the host name call: a container has a name of its own
    try:
        return (host_proc / "sys/kernel/hostname").read_text().strip().lower() or os.uname().nodename.lower()
    except OSError:
        return os.uname().nodename.lower()


def _metrics_addr(read: _Reader, service: Service | None) -> str:
    default = DEFAULT_METRICS_ADDR[service] if service else ""
    return read.text("METRICS_ADDR", default, "HOST:PORT, :PORT, or nothing to turn it off", _is_address)


def _is_address(value: str) -> bool:
    host, separator, port = value.rpartition(":")
    del host
    return value == "" or (bool(separator) and port.isascii() and port.isdigit() and 0 <= int(port) < 65536)


def _is_node_name(value: str) -> bool:
    return len(value) <= MAX_NODE_NAME and _DNS_SUBDOMAIN.fullmatch(value) is not None


def _is_driver_name(value: str) -> bool:
    return len(value) <= MAX_DRIVER_NAME and _DNS_SUBDOMAIN.fullmatch(value) is not None
