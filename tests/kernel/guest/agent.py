"""The harness's hand inside the guest: answers calls that come over a virtio serial port, one JSON line each.

A call names a function of `tests.kernel.guest.calls`. Each runs in a thread of its own, so a call that waits
for something holds up no other.
"""

import json
import os
import select
import threading
import time
import traceback
from pathlib import Path
from typing import Any

PORT_NAME = "liken.agent"


class Agent:
    def __init__(self, port: int) -> None:
        self._port = port
        self._writing = threading.Lock()

    def send(self, message: dict[str, Any]) -> None:
        line = json.dumps(message).encode() + b"\n"
        with self._writing:
            while line:
                line = line[os.write(self._port, line) :]

    def serve(self) -> None:
        """Read lines for ever. A port without a peer reads as nothing; then wait for the next one."""
        rest = b""
        while True:
            select.select([self._port], [], [])
            data = os.read(self._port, 65536)
            if not data:
                time.sleep(0.05)
                continue
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                threading.Thread(target=self._answer, args=(json.loads(line),), daemon=True).start()

    def _answer(self, call: dict[str, Any]) -> None:
        from tests.kernel.guest import calls  # late: the agent is ready before everything is imported

        try:
            result = getattr(calls, call["call"])(*call["args"], **call["named"])
            self.send({"id": call["id"], "result": result})
        except Exception as error:  # noqa: BLE001 - whatever went wrong belongs to the caller
            text = f"{type(error).__name__}: {error}\n{traceback.format_exc(limit=-4)}"
            self.send({"id": call["id"], "error": text})


def find_port() -> Path:
    """The character device of the port the harness gave us."""
    while True:
        for name in sorted(Path("/sys/class/virtio-ports").glob("*/name")):
            if name.read_text().strip() == PORT_NAME:
                return Path("/dev") / name.parent.name
        time.sleep(0.05)


def main() -> None:
    port = os.open(find_port(), os.O_RDWR)
    agent = Agent(port)
    agent.send({"id": 0, "result": {"ready": time.clock_gettime(time.CLOCK_BOOTTIME)}})
    agent.serve()


if __name__ == "__main__":
    main()
