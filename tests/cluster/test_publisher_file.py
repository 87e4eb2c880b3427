"""The publisher's own tests of the services tier, against real API servers instead of the stand-in."""

import os
import subprocess
import sys
from pathlib import Path

from tests.cluster.control_plane import ControlPlane
from tests.services.publishing_rig import REAL

ROOT = Path(__file__).parents[2]
TESTS = "tests/services/test_publisher.py"


def test_the_publisher_passes_its_tests_on_the_newest_kubernetes(control_plane: ControlPlane) -> None:
    code, output = run_tests(control_plane)

    assert code == 0, output


def test_the_publisher_passes_its_tests_on_the_oldest_kubernetes(oldest: ControlPlane) -> None:
    code, output = run_tests(oldest)

    assert code == 0, output


def run_tests(plane: ControlPlane) -> tuple[int, str]:
    """The exit code of pytest, and what it said."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", TESTS],
        env={**os.environ, REAL: str(plane.kubeconfig)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr
