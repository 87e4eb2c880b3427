"""Programs that a test starts: each with a log file, stopped at the end, and quoted when it failed."""

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

STOP_LIMIT_S = 10
QUOTED_LINES = 15


class Running:
    """One started program. `log` is the file that has its output."""

    def __init__(
        self,
        name: str,
        command: Sequence[str | Path],
        log: Path,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.log = log
        self._command = [str(word) for word in command]
        self._environment = {**os.environ, **(environment or {})}
        self._process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self.log_start = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as output:
            return subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=self._environment,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def check_alive(self) -> bool:
        """True while it runs; AssertionError with the end of its log when it ended by itself."""
        assert self.alive, f"{self.name} ended with {self._process.returncode}:\n{self.tail()}"
        return True

    def tail(self, lines: int = QUOTED_LINES) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def stop(self, first: signal.Signals = signal.SIGTERM) -> None:
        """End it and its process group; SIGKILL after STOP_LIMIT_S."""
        if self.alive:
            self._process.send_signal(first)
            try:
                self._process.wait(STOP_LIMIT_S)
            except subprocess.TimeoutExpired:
                os.killpg(self.pid, signal.SIGKILL)
                self._process.wait(STOP_LIMIT_S)

    def restart(self, first: signal.Signals = signal.SIGTERM) -> None:
        self.stop(first)
        self._process = self._start()


def run(*command: str | Path, stdin: str | None = None) -> str:
    """Run to the end; the output, or AssertionError with what it said."""
    words = [str(word) for word in command]
    result = subprocess.run(words, input=stdin, capture_output=True, text=True, check=False, timeout=120)
    assert result.returncode == 0, (
        f"{' '.join(words)} ended with {result.returncode}: {result.stderr.strip()}"
    )
    return result.stdout
