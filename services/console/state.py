"""The state folder of `liken up`: where everything of a machine without Kubernetes lies.

up.lock           held by the supervisor for its life; its text is the supervisor's process id
up.json           what the running four were told, for the other commands
supervisor.sock   control
logs/             one file per process, rotated
run/ kubelet/ cdi/ cluster/   LIKEN_RUN, LIKEN_KUBELET, LIKEN_CDI, LIKEN_LOCAL
machine/          the played machine's tree, when one is played
"""

import fcntl
import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from common.errors import MachineError, RequestError
from common.files import write_atomically
from common.settings import Settings, read_settings

SCHEMA = 1
MAX_SOCKET_PATH = 107  # bytes; sockaddr_un of Linux, with the closing zero
LONGEST_SOCKET = "kubelet/plugins_registry/liken.sh-reg.sock"  # bound below the state folder
LOCK_DESCRIPTOR = 256  # supervisord closes the numbers below its minfds when it starts a child or reloads


class Up(msgspec.Struct, frozen=True):
    """What `liken up` told its processes: LIKEN_ variables and NODE_NAME; `source` is what --root named."""

    schema: int
    environment: dict[str, str]
    source: str = ""


class State:
    """One state folder. Nothing is made or read before it is asked for."""

    def __init__(self, folder: Path | None, environ: Mapping[str, str] = os.environ) -> None:
        self.folder = Path(os.path.abspath(folder or default_folder(environ)))  # noqa: PTH100 - not resolve(): keep links

    @property
    def lock(self) -> Path:
        return self.folder / "up.lock"

    @property
    def control(self) -> Path:
        return self.folder / "supervisor.sock"

    @property
    def logs(self) -> Path:
        return self.folder / "logs"

    @property
    def machine(self) -> Path:
        return self.folder / "machine"

    @property
    def _up(self) -> Path:
        return self.folder / "up.json"

    def folders(self) -> dict[str, str]:
        """The variables that place every folder of a local cluster below this one."""
        return {
            "LIKEN_RUN": str(self.folder / "run"),
            "LIKEN_KUBELET": str(self.folder / "kubelet"),
            "LIKEN_CDI": str(self.folder / "cdi"),
            "LIKEN_LOCAL": str(self.folder / "cluster"),
        }

    def make(self) -> None:
        """Make the folder. Raises RequestError when its path is too long for sockets, MachineError when it
        cannot be written."""
        room = MAX_SOCKET_PATH - len(LONGEST_SOCKET) - 1
        if len(os.fsencode(self.folder)) > room:
            raise RequestError(
                f"the path {self.folder} is too long for the sockets in it:"
                f" name a folder of at most {room} bytes with --state"
            )
        try:
            self.logs.mkdir(parents=True, exist_ok=True)
            for path in self.folders().values():
                Path(path).mkdir(exist_ok=True)
            (self.folder / "run").chmod(0o700)
        except OSError as error:
            raise MachineError(
                f"cannot write the state folder {self.folder} ({error.strerror}): name another with --state"
            ) from error

    def hold(self) -> int:
        """Take the lock that one `liken up` holds; returns its descriptor.

        The descriptor outlives supervisord's clean-up. Raises RequestError when another one holds it.
        """
        try:
            file = os.open(self.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise MachineError(
                f"cannot write the state folder {self.folder} ({error.strerror}): name another with --state"
            ) from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(file)
            raise RequestError(
                f"another liken is up with the state {self.folder} (process {self.holder() or 'unknown'}):"
                " stop it with liken down, or name another folder with --state"
            ) from error
        held = fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, LOCK_DESCRIPTOR)
        os.close(file)
        os.ftruncate(held, 0)
        os.pwrite(held, str(os.getpid()).encode(), 0)
        return held

    def holder(self) -> int | None:
        """The process id of the supervisor that is up with this state, or None."""
        try:
            with self.lock.open() as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                except BlockingIOError:
                    return int(file.read() or 0) or None
        except (OSError, ValueError):
            return None
        return None

    def write(self, up: Up) -> None:
        """Leave word for the other commands. Raises MachineError."""
        write_atomically(self._up, msgspec.json.format(msgspec.json.encode(up), indent=2))

    def read(self) -> Up:
        """What the last `liken up` with this state told its processes.

        Raises RequestError when there was none.
        """
        try:
            up = msgspec.json.decode(self._up.read_bytes(), type=Up)
        except FileNotFoundError as error:
            raise RequestError(
                f"nothing was ever up with the state {self.folder}:"
                " start it with liken up, or name its folder with --state"
            ) from error
        except (OSError, msgspec.MsgspecError) as error:
            raise MachineError(f"cannot read {self._up} ({error}): start again with liken up") from error
        if up.schema != SCHEMA:
            raise MachineError(
                f"{self._up} has the schema {up.schema}, this liken knows {SCHEMA}: start again with liken up"
            )
        return up

    def settings(self, environ: Mapping[str, str] = os.environ) -> Settings:
        """The settings of the four that are or were up with this state. Raises as `read` does.

        In a pod there is no state folder: there they are those of the environment.
        """
        if not self._up.exists():
            settings = read_settings(None, environ)
            if settings.cluster == "kubernetes":
                return settings
        return read_settings(None, {**environ, **self.read().environment})

    def require_up(self) -> None:
        """Raise RequestError unless the four run with this state."""
        self.read()
        if self.holder() is None:
            raise RequestError(f"nothing is up with the state {self.folder}: start it with liken up")


def default_folder(environ: Mapping[str, str]) -> Path:
    """`liken` below the XDG state home."""
    home = environ.get("XDG_STATE_HOME", "")
    base = Path(home) if home.startswith("/") else Path(environ.get("HOME") or "/root") / ".local/state"
    return base / "liken"
