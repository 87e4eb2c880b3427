"""`make bench`: figures and ratios of this machine. `--only walk` measures one section."""

import argparse
import os
import platform
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from tests.bench import calls, idle, passes, plugging, publisher, rates, starting, uevents, walking
from tests.bench.table import Row, save, text, verdict

SECTIONS: dict[str, Callable[[], Iterator[Row]]] = {
    "walk": walking.measure,
    "start": starting.measure,
    "plug": plugging.measure,
    "uevents": uevents.measure,
    "rates": rates.measure,
    "calls": calls.measure,
    "passes": passes.measure,
    "slices": publisher.measure,
    "idle": idle.measure,
}
OUTPUT = Path("dist/bench.json")
PAGE = """# Performance

Made by `make bench` on {day}: {machine}. Medians where nothing else is said; the services,
their callers and the stand-in for the API server share the processors. What the figures mean for one node is
in [limits](limits.md), for a cluster in [API load](api-load.md).

- "measured" has more figures of the same measurement in brackets.
- "baseline" is measured in the same run: what the least program for the same task takes, and after an x how
  many times as much ours took. Where there is no such program, it says against what the figure counts. "By
  plain calls" are the very files, links and folders that ours read: noted once at the one door to /sys, then
  read again by open, read, readlink and scandir in a loop that decides nothing.
- "promise" is what we hold ourselves to; **missed** where this run did not keep it.
- Idle: on a virtual machine at rest each waking costs several times what it costs on a busy one, in every
  process. The baselines of that row show the price of the day: a bare gRPC server, which takes 14 ms per
  minute where the promise was made, and a Python that only wakes.

{table}"""


def machine() -> str:
    """What these figures were measured on."""
    model = "unknown processor"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    return (
        f"{os.cpu_count()} x {model}, Linux {platform.release()}, Python {platform.python_version()},"
        f" load {os.getloadavg()[0]:.1f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--only", choices=sorted(SECTIONS), action="append")
    parser.add_argument("--page", type=Path, help="write the figures as a page, too")
    asked = parser.parse_args()
    where = machine()
    print(where, flush=True)
    rows: list[Row] = []
    for name in asked.only or SECTIONS:
        begin = time.monotonic()
        found = list(SECTIONS[name]())
        rows += found
        print(f"\n{text(found)}\n({name}: {time.monotonic() - begin:.0f} s)", flush=True)
    save(rows, where, OUTPUT)
    if asked.page:
        asked.page.write_text(
            PAGE.format(machine=where, day=f"{datetime.now(UTC):%Y-%m-%d}", table=text(rows))
        )
    print(f"\n{verdict(rows)}")
    print(f"\nall figures as JSON: {OUTPUT}")


if __name__ == "__main__":
    main()
