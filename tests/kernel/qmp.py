"""QEMU's control socket: plug, unplug, and look whether the machine still runs."""

import json
import socket
import threading
from pathlib import Path
from typing import Any


class QmpError(Exception):
    """QEMU refused a command; the text is its own."""


class Qmp:
    def __init__(self, path: Path, timeout_s: float = 30.0) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(timeout_s)
        self._socket.connect(str(path))
        self._lines = self._socket.makefile("rb")
        self._one_at_a_time = threading.Lock()
        self._lines.readline()  # the greeting
        self.command("qmp_capabilities")

    def command(self, execute: str, **arguments: Any) -> Any:
        """Run one command and give its result. Events that come in between are dropped. Raises QmpError."""
        message = {"execute": execute, "arguments": arguments}
        with self._one_at_a_time:
            self._socket.sendall(json.dumps(message).encode() + b"\n")
            while True:
                line = self._lines.readline()
                if not line:
                    raise QmpError(f"{execute}: QEMU closed its control socket")
                answer = json.loads(line)
                if "return" in answer:
                    return answer["return"]
                if "error" in answer:
                    raise QmpError(f"{execute}: {answer['error']['desc']}")

    def close(self) -> None:
        self._lines.close()
        self._socket.close()
