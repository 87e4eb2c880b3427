"""`make demo`, as it is."""

import subprocess
import sys
from pathlib import Path

from tests.services.process import ROOT, clean_environment

STEPS = 7


def test_the_demonstration_ends_by_itself_and_leaves_nothing(run_dir: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.demo"],
        cwd=ROOT,
        env=clean_environment(TMPDIR=str(run_dir)),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert sum(line.lstrip()[:1].isdigit() for line in done.stdout.splitlines()) >= STEPS
    assert "/dev/liken.sh/absent/usb-1-3-1-0" in done.stdout
    assert "/dev/ttyUSB1" in done.stdout
    assert list(run_dir.iterdir()) == []
    assert running_in(run_dir) == []


def running_in(folder: Path) -> list[str]:
    """The processes of a `liken up` with its state below `folder`."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            variables = path.read_bytes()
        except OSError:
            continue  # it ended just now, or it is not ours to look at
        if f"LIKEN_STATE={folder}/".encode() in variables:
            found.append(path.parent.name)
    return found
