"""`make demo`: the whole chain on a recorded machine, one line per step with its time.

A USB serial adapter is claimed, unplugged and plugged in again; the claim's CDI spec follows. Needs neither
root nor hardware. Ends by itself and leaves nothing running, also when a step fails.
"""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml

from services.console.play import Player
from tests.waiting import eventually

RECORDING = Path(__file__).parent / "machines/recordings/guest-full.tar.xz"
ADAPTER, PORT = "usb-1-3-1-0", "1-3"
# a graphics card's two halves, a sound card, the adapter, a smart card reader without a driver, a USB stick
SHOWN = (
    "pci-0000-00-04-0",
    "pci-0000-00-04-0-display",
    "pci-0000-00-05-0",
    ADAPTER,
    "usb-1-5",
    "usb-2-4-1-0",
)
LIMIT_S = 10.0  # for each step; the whole takes about ten seconds
LIKEN = [sys.executable, "-P", "-m", "services.console"]
_SLOWEST_END_S = 15.0
_FILE_CLOCK_S = 0.004  # a file's time is that of the kernel's last tick


class Demo:
    """The steps. Each prints one line when it is done."""

    def __init__(self, folder: Path) -> None:
        self.state = folder / "state"
        self._started = time.monotonic()

    def run(self) -> None:
        print(f"          the machine: {RECORDING.name}, recorded in a virtual machine")
        with self._services():
            names = self.step("start the four services and wait for the ResourceSlice", self._slice)
            shown = ", ".join(name for name in names if name in SHOWN)
            print(f"          {len(names)} devices, among them {shown}")
            nodes = self.step(f"claim {ADAPTER}", self._claim)
            print(f"          its CDI spec names {' '.join(nodes)}")
            late_s = self.step("unplug the adapter and wait for a safe spec", self._unplug)
            print(f"          within {1000 * late_s:.0f} ms of the remove event: {' '.join(self._nodes())}")
            self.step(
                "the adapter leaves the slice, after the settle time", lambda: self._wait_offered(False)
            )
            new = self.step("plug it in again and wait for its new nodes", lambda: self._plug(nodes))
            print(f"          the same claim now names {' '.join(new)}")
            self.step("the adapter is back in the slice", lambda: self._wait_offered(True))
            self.step("release the claim: record and spec are gone", self._release)
        print(f"{time.monotonic() - self._started:6.2f} s  in all; nothing is left running")

    def step(self, words: str, act: Callable[[], Any]) -> Any:
        start = time.monotonic()
        result = act()
        print(f"{time.monotonic() - start:6.2f} s  {words}", flush=True)
        return result

    @contextlib.contextmanager
    def _services(self) -> Iterator[None]:
        # no port is needed to look at, and one in use must not stop a demonstration
        environ = {**os.environ, "METRICS_ADDR": "", "NODE_NAME": "demo"}
        command = [*LIKEN, "up", "--state", str(self.state), "--root", str(RECORDING)]
        with (self.state.parent / "up.log").open("wb") as log:
            process = subprocess.Popen(command, env=environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            yield
        finally:
            process.terminate()
            try:
                code = process.wait(_SLOWEST_END_S)
            except subprocess.TimeoutExpired:
                process.kill()  # the services end with it
                raise
        if code != 0:
            raise AssertionError(f"liken up ended with {code}: {self.log()}")

    def log(self) -> str:
        return (self.state.parent / "up.log").read_text(errors="replace")

    def _liken(self, *arguments: str) -> str:
        command = [*LIKEN, *arguments, "--state", str(self.state)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        if done.returncode != 0:
            raise AssertionError(done.stderr.strip())
        return done.stdout

    def _slice(self) -> list[str]:
        eventually(lambda: ADAPTER in self._offered(), LIMIT_S, "the adapter is in the slice")
        return self._offered()

    def _offered(self) -> list[str]:
        found = []
        for path in sorted((self.state / "cluster/slices").glob("*.yaml")):
            content = yaml.safe_load(path.read_text())
            found += [device["name"] for device in content["spec"]["devices"]]
        return found

    def _wait_offered(self, offered: bool) -> None:
        what = f"the adapter is {'in' if offered else 'out of'} the slice"
        eventually(lambda: (ADAPTER in self._offered()) is offered, LIMIT_S, what)

    def _claim(self) -> list[str]:
        self._liken("claim", "serial", ADAPTER)
        return self._nodes()

    def _specs(self) -> list[Path]:
        return sorted((self.state / "cdi").glob("*.json"))

    def _nodes(self) -> list[str]:
        (spec,) = self._specs()
        (device,) = json.loads(spec.read_text())["devices"]
        return [node["path"] for node in device["containerEdits"]["deviceNodes"]]

    def _player(self) -> Player:
        return Player(self.state / "machine", self.state / "run")

    def _unplug(self) -> float:
        """Seconds from the adapter's remove event to the spec that names no node of the adapter."""
        sent = self._player().unplug(PORT)
        absent = [f"/dev/liken.sh/absent/{ADAPTER}"]
        eventually(lambda: self._nodes() == absent, LIMIT_S, "the spec names the absent node")
        removed = next(
            event.at for event in sent if event.action == "remove" and event.devpath.endswith(f"{PORT}:1.0")
        )
        written = self._specs()[0].stat().st_mtime - time.time() + time.monotonic()
        return max(0.0, written - removed) + _FILE_CLOCK_S

    def _plug(self, before: list[str]) -> list[str]:
        self._player().plug(PORT)
        eventually(
            lambda: "/dev/ttyUSB1" in self._nodes() and not set(before) & set(self._nodes()),
            LIMIT_S,
            f"the spec names new nodes and none of {before}",
        )
        return self._nodes()

    def _release(self) -> None:
        self._liken("release", "serial")
        eventually(lambda: not self._specs(), LIMIT_S, "the spec is gone")


def main() -> int:
    folder = Path(tempfile.mkdtemp(prefix="liken-demo-"))
    demo = Demo(folder)
    try:
        demo.run()
    except (AssertionError, OSError, subprocess.SubprocessError) as error:
        print(f"the demo failed: {error}", file=sys.stderr)
        if (folder / "up.log").exists():
            print(demo.log(), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
