"""A process under test: started, asked over HTTP, ended whatever happens."""

import contextlib
import itertools
import os
import random
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.waiting import eventually

ROOT = Path(__file__).parents[2]
START_S = 20.0  # on two processors that others use too


# Below the ports that the kernel gives to connections; each process of tests begins somewhere else.
_PORTS = itertools.cycle(random.sample(range(20_000, 30_000), 10_000))


def free_port() -> int:
    """A TCP port that nobody listens on now, that no connection takes, and that was not handed out lately.

    The kernel would give a port again to the next who asks, before the process that it is for listens on it.
    """
    for port in _PORTS:
        try:
            with socket.create_server(("127.0.0.1", port)):
                return port
        except OSError:
            continue  # somebody listens there
    raise AssertionError("every port is taken")


def clean_environment(**variables: str) -> dict[str, str]:
    """The environment without what a developer's shell may set, and with `variables`."""
    foreign = ("LIKEN_", "LOG_", "METRICS_", "NODE_NAME", "POD_", "KUBERNETES_", "KUBECONFIG")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    return kept | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"} | variables


class Process:
    """One process with its log in a file, so that a long log never blocks it."""

    def __init__(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        log: Path,
        prefix: Sequence[str] = (),
    ) -> None:
        """Run Python with `arguments`; `prefix` is a command that runs it, such as unshare."""
        self.log_path = log
        self.port = int(environment.get("METRICS_ADDR", "").rpartition(":")[2] or 0)
        with log.open("ab") as file:
            self.popen = subprocess.Popen(
                [*prefix, sys.executable, *arguments],
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
            )

    @property
    def pid(self) -> int:
        return self.popen.pid

    @property
    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    def get(self, path: str) -> tuple[int, str]:
        """Status and body of an HTTP request to this process."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def metric(self, line: str) -> float:
        """The value of the metric named exactly so, labels included; 0 when there is none yet."""
        for row in self.get("/metrics")[1].splitlines():
            name, _, value = row.rpartition(" ")
            if name == line:
                return float(value)
        return 0.0

    def wait_ready(self) -> "Process":
        def ready() -> bool:
            if self.popen.poll() is not None:
                raise RuntimeError(f"the process ended with {self.popen.returncode}: {self.log}")
            return self.get("/readyz")[0] == 200

        eventually(ready, START_S, "the process is ready")
        return self

    def signal(self, number: signal.Signals) -> None:
        self.popen.send_signal(number)

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self.popen.kill()
        self.popen.wait()

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        self.popen.terminate()
        return self.wait()

    def wait(self, timeout_s: float = START_S) -> int:
        return self.popen.wait(timeout_s)

    def memory_kib(self) -> int:
        """Its proportional share of the memory it uses."""
        return pss_kib(self.pid)

    def cpu_ns(self) -> int:
        """Processor time of all its threads so far, in nanoseconds."""
        return cpu_ns(self.pid)

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.kill()


def pss_kib(pid: int) -> int:
    """A process's proportional share of the memory it uses."""
    rows = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(row.split()[1]) for row in rows if row.startswith("Pss:"))


def cpu_ns(pid: int) -> int:
    """Processor time of all threads of a process so far, in nanoseconds."""
    return sum(int(path.read_text().split()[0]) for path in Path(f"/proc/{pid}/task").glob("*/schedstat"))
