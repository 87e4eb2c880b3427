"""Every command that a page shows is run as it stands there, on the machine of `make demo`.

What needs a cluster is run by the cluster tier; a command that is neither here nor there fails the last test.
"""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.desktop import build
from tests.services.process import ROOT, clean_environment
from tests.unit.test_documents import PAGES
from tests.waiting import eventually

_BLOCK = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
ELSEWHERE = {"kubectl": "the cluster tier", "make": "this is make test; the others are tiers of .ci/run"}


def commands(page: Path) -> list[str]:
    """The command lines of a page, without what follows a # as a comment."""
    found = []
    for block in _BLOCK.findall(page.read_text()):
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append(shlex.join(shlex.split(line[2:], comments=True)))
    return found


def liken_pages() -> list[Path]:
    return [page for page in PAGES if any(line.startswith("liken ") for line in commands(page))]


class Terminal:
    """A shell's view: a folder to stand in, and the `liken up` that runs in another terminal."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._up: subprocess.Popen[bytes] | None = None
        self.environment = clean_environment(
            METRICS_ADDR="", NODE_NAME="demo", XDG_STATE_HOME=str(folder / "state"), LIKEN_SETTLE="0.2"
        )
        build(folder / "machine")
        code, output = self.run(f"liken record machine.tar.xz --root {folder / 'machine'}")
        assert code == 0, output

    def run(self, line: str) -> tuple[int, str]:
        """Exit code and output of a command."""
        words = shlex.split(line)[1:]
        if words[0] == "up":
            return self._start(words), ""
        done = subprocess.run(
            [sys.executable, "-P", "-m", "services.console", *words],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    def ensure_up(self) -> None:
        """Most commands speak with a liken that runs."""
        if self._up is None:
            self._start(["up"])

    def _start(self, words: list[str]) -> int:
        self.close()
        # on the machine of the demo and not on this one: what is plugged in here is nobody's business
        words = words if "--root" in words else [*words, "--root", str(self.folder / "machine")]
        with (self.folder / "up.log").open("ab") as log:
            self._up = subprocess.Popen(
                [sys.executable, "-P", "-m", "services.console", *words],
                cwd=self.folder,
                env=self.environment,
                stdout=log,
                stderr=log,
            )
        eventually(self._offers_the_adapter, 40, "the adapter is in the slice", step_s=0.2)
        return 0

    def _offers_the_adapter(self) -> bool:
        # the running four have to say so: the slices of an earlier `liken up` may lie there still
        code, output = self.run("liken status -o json")
        told = json.loads(output) if code == 0 else {}
        slices = (self.folder / "state").rglob("slices/*.yaml")
        return bool(told.get("inventory")) and any("usb-1-2-1-0" in path.read_text() for path in slices)

    def close(self) -> None:
        if self._up is not None:
            self._up.send_signal(signal.SIGINT)
            self._up.wait(30)
            self._up = None


@pytest.fixture
def terminal(run_dir: Path) -> Iterator[Terminal]:
    found = Terminal(run_dir)
    yield found
    found.close()


@pytest.mark.parametrize("page", liken_pages(), ids=lambda page: page.stem)
def test_the_commands_of_a_page_work_in_the_order_in_which_they_stand(page: Path, terminal: Terminal) -> None:
    for line in commands(page):
        if not line.startswith("liken "):
            continue
        if "--root" not in line:
            terminal.ensure_up()
        code, output = terminal.run(line)
        assert code == 0, f"{line}: {output}"


def test_every_command_of_a_page_is_run_by_some_tier() -> None:
    others = {line.split()[0] for page in PAGES for line in commands(page)} - {"liken"}
    assert others <= set(ELSEWHERE)


def test_the_root_of_this_checkout_is_where_the_pages_are() -> None:
    assert Path(os.path.commonpath(PAGES)) == ROOT
