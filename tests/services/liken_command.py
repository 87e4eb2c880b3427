"""The `liken` command as a user sees it: its two streams, its exit code."""

import contextlib
import io
import json
import os
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from services.console.__main__ import run
from tests.desktop import build
from tests.services.process import Process, clean_environment
from tests.waiting import eventually

SETTLE_S = 0.2
LONG_S = 30.0  # what a command may take on two processors that others use too


class Done(NamedTuple):
    """What a command left."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        assert self.code == 0, self.err
        return json.loads(self.out)


def liken(*arguments: str, **variables: str) -> Done:
    """Run one command to its end, in this process: a new one would take half a second each time."""
    out, err = io.StringIO(), io.StringIO()
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(clean_environment(**variables))
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = run(list(arguments))
    finally:
        os.environ.clear()
        os.environ.update(before)
    return Done(code, out.getvalue(), err.getvalue())


class Up:
    """`liken up` on the small desktop of the demonstration, and commands for it."""

    def __init__(self, folder: Path) -> None:
        self.state = folder / "s"
        self.log = folder / "up.log"
        build(folder / "machine")
        self._root = folder / "machine"
        self.start()

    def start(self) -> None:
        arguments = ["-m", "services.console", "up", "--state", str(self.state), "--root", str(self._root)]
        environment = clean_environment(NODE_NAME="n1", METRICS_ADDR="", LIKEN_SETTLE=str(SETTLE_S))
        self.process = Process(arguments, environment, self.log)
        eventually(lambda: "usb-1-2-1-0" in self.offered(), LONG_S, "the adapter is in the slice")

    def run(self, *arguments: str) -> Done:
        return liken(*arguments, "--state", str(self.state))

    def offered(self) -> list[str]:
        names = []
        for path in sorted((self.state / "cluster/slices").glob("*.yaml")):
            names += [device["name"] for device in yaml.safe_load(path.read_text())["spec"]["devices"]]
        return names

    def specs(self) -> dict[str, set[str]]:
        """The nodes of every spec, by the name of its CDI device."""
        found = {}
        for path in sorted((self.state / "cdi").glob("*.json")):
            for device in json.loads(path.read_text())["devices"]:
                found[device["name"]] = {node["path"] for node in device["containerEdits"]["deviceNodes"]}
        return found

    def pids(self) -> dict[str, int]:
        return {each["name"]: each["pid"] for each in self.run("status", "-o", "json").json["processes"]}

    def stop(self) -> None:
        if self.process.popen.poll() is None:
            self.process.stop()
        self.process.close()
