"""Tells when a file first says something, by a clock that all processes share.

`python -m tests.services.spec_clock PATH`: for each word on stdin one line on stdout, the CLOCK_MONOTONIC
second at which PATH was seen to contain the word. A process of its own: a busy test would see it late.
"""

import sys
import time
from pathlib import Path

from tests.waiting import eventually

STEP_S = 0.0005


def main(path: Path) -> None:
    for line in sys.stdin:
        word = line.strip().encode()
        eventually(lambda word=word: word in _content(path), 60, word.decode(), step_s=STEP_S)  # type: ignore[misc]
        print(time.monotonic(), flush=True)


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


if __name__ == "__main__":
    main(Path(sys.argv[1]))
