"""What a hostile text may lead to, and how much of the processor and of memory it may cost."""

import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from hypothesis import HealthCheck, settings

CPU_S = (
    10.0  # of processor time, so that a busy machine fails no test; a reader that is not linear needs hours
)


# a folder of the test may serve all examples: each of them writes all that it reads
any_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
few = settings(
    any_folder, max_examples=max(1, settings().max_examples // 4)
)  # for those that write many files


def outcome(read: Callable[[], object], error: type[Exception]) -> object:
    """What `read` gives, or its error; another class of exception fails the test."""
    try:
        return read()
    except error as refusal:
        return refusal


def is_one_line(found: object) -> bool:
    """Whether an error is one line; true for what is no error."""
    return not isinstance(found, Exception) or len(str(found).splitlines()) == 1


@contextmanager
def bounded(memory_mib: int, cpu_s: float = CPU_S) -> Iterator[None]:
    """Fail when what is inside takes more of either than it may."""
    tracemalloc.start()
    begin = time.process_time()
    try:
        yield
        spent, (_, peak) = time.process_time() - begin, tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert spent < cpu_s, f"{spent:.1f} s of processor time"
    assert peak < memory_mib * 1024 * 1024, f"{peak / 1024 / 1024:.0f} MiB"
