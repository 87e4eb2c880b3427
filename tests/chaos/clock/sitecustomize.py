"""On the PYTHONPATH of processes whose wall clock jumps: $LIKEN_TEST_CLOCK names a file of seconds to add.

The monotonic clock is not touched, as with a real clock that is set. The plugin is left out: gRPC's core
reads the clock of the kernel and its Python side time.time(): two clocks that differ for ever are no jump.
"""

import os
import sys
import time
from pathlib import Path

_OFFSET = Path(os.environ.get("LIKEN_TEST_CLOCK", "/nonexistent"))
_time, _time_ns = time.time, time.time_ns


def _offset_s() -> float:
    try:
        return float(_OFFSET.read_text())
    except (OSError, ValueError):
        return 0.0


if "services.plugin" not in sys.orig_argv:
    time.time = lambda: _time() + _offset_s()
    time.time_ns = lambda: _time_ns() + int(_offset_s() * 1e9)
