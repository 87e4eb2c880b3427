"""On the PYTHONPATH of processes whose wall clock jumps: $LIKEN_TEST_CLOCK names a file of seconds to add.

The monotonic clock is not touched, as with a real clock that is set. gRPC's own modules are left out: its
core reads the clock of the kernel, its Python side time.time(): two clocks that differ for ever are no jump.
"""

import datetime
import os
import sys
import time
from pathlib import Path

_OFFSET = Path(os.environ.get("LIKEN_TEST_CLOCK", "/nonexistent"))
_time, _time_ns = time.time, time.time_ns
_Datetime = datetime.datetime


def _offset_s() -> float:
    try:
        return float(_OFFSET.read_text())
    except (OSError, ValueError):
        return 0.0


def _jumped_time() -> float:
    caller = sys._getframe(1).f_globals.get("__name__", "")
    return _time() if caller.partition(".")[0] == "grpc" else _time() + _offset_s()


class _Jumped(_Datetime):
    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> "_Jumped":
        return super().now(tz) + datetime.timedelta(seconds=_offset_s())


time.time = _jumped_time
time.time_ns = lambda: _time_ns() + int(_offset_s() * 1e9)
datetime.datetime = _Jumped  # type: ignore[misc]
