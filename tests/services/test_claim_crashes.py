"""A crash between any two steps leaves a state that the next call or pass completes."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.services.crash_steps import UID, WORKS
from tests.services.process import ROOT, clean_environment
from tests.unit.claims.shapes import ADAPTER, GPU

RIGHT = {ADAPTER: ["/dev/ttyUSB0", "/dev/bus/usb/001/002"], GPU: ["/dev/dri/renderD128"]}
SAFE = RIGHT | {ADAPTER: [f"/dev/liken.sh/absent/{ADAPTER}"]}
NOTHING: tuple[dict[str, str], dict[str, list[str]]] = ({}, {})
PREPARED = ({UID: "readable"}, RIGHT)
UNPLUGGED = ({UID: "readable"}, SAFE)
BROKEN = ({UID: "broken"}, RIGHT)
ASIDE = ({UID: "aside"}, {name: [f"/dev/liken.sh/withheld/{name}"] for name in RIGHT})
ASIDE_WITH_NODES = ({UID: "aside"}, RIGHT)
RECORD_ONLY: tuple[dict[str, str], dict[str, list[str]]] = ({UID: "readable"}, {})
BROKEN_WITHOUT_SPEC: tuple[dict[str, str], dict[str, list[str]]] = ({UID: "broken"}, {})
SPEC_ONLY: tuple[dict[str, str], dict[str, list[str]]] = ({}, RIGHT)

# what may be left by a crash, what the same work makes of it, what a pass makes of it
EXPECTED: dict[str, tuple[list[Any], list[Any], list[Any]]] = {
    "prepare": ([NOTHING, RECORD_ONLY, PREPARED], [PREPARED], [NOTHING, PREPARED]),
    "prepare again after an unplug": ([PREPARED, UNPLUGGED], [UNPLUGGED], [UNPLUGGED]),
    "prepare anew over a broken record": ([BROKEN, PREPARED], [PREPARED], [ASIDE, PREPARED]),
    "unprepare": ([PREPARED, RECORD_ONLY, NOTHING], [NOTHING], [PREPARED, NOTHING]),
    "unprepare of a broken record": (
        [BROKEN, BROKEN_WITHOUT_SPEC, NOTHING],
        [NOTHING],
        [ASIDE, ({UID: "aside"}, {}), NOTHING],
    ),
    "make a spec safe": ([PREPARED, UNPLUGGED], [UNPLUGGED], [UNPLUGGED]),
    "make a spec that vanished": ([RECORD_ONLY, PREPARED], [PREPARED], [PREPARED]),
    "set a record aside": ([BROKEN, ASIDE_WITH_NODES, ASIDE], [ASIDE], [ASIDE]),
    "remove an orphan": ([SPEC_ONLY, NOTHING], [NOTHING], [NOTHING]),
}


def steps_of(word: str, folder: Path) -> list[dict[str, Any]]:
    """What each step's crash left, in the order of the steps; the last one did not die."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.services.crash_steps", str(folder), word],
        cwd=ROOT,
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def seen(state: dict[str, Any]) -> tuple[dict[str, str], dict[str, list[str]]]:
    return state["records"], state["specs"]


@pytest.mark.parametrize("word", sorted(WORKS))
def test_whatever_a_crash_leaves_is_completed(word: str, tmp_path: Path) -> None:
    left, again, passed = EXPECTED[word]
    steps = steps_of(word, tmp_path)
    assert [step["died"] for step in steps] == [True] * (len(steps) - 1) + [False]
    for step in steps:
        told = f"{word}, step {step['step']}"
        assert seen(step["left"]) in left, told
        assert seen(step["again"]) in again, told
        assert seen(step["pass"]) in passed, told
        assert seen(step["unprepare"]) == NOTHING, told
        for way in ("left", "again", "pass", "unprepare"):
            assert step[way]["temporary"] <= 1, told
            assert step[way].get("after sweep", 0) == 0, told


def test_every_step_that_changes_a_file_is_tried(tmp_path: Path) -> None:
    # a record: temporary file, mode, rename; the CDI folder, not there at first; a spec as a record
    assert len(steps_of("prepare", tmp_path)) >= 8
