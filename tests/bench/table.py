"""Rows of figures: printed for people, kept for JSON."""

import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

HEADS = "| what | measured | baseline | promise |\n|---|---|---|---|"


@dataclass(frozen=True)
class Figure:
    """A number with its unit and what it is."""

    value: float
    unit: str
    what: str


@dataclass(frozen=True)
class Row:
    """One measured thing, beside what was measured in the same run to compare it with.

    `baselines`: the first is the one to compare with. `against`: where no baseline can be measured, what the
    figure counts against. `also`: more of the same measurement. `promise`: what we hold ourselves to.
    """

    section: str
    what: str
    value: float
    unit: str
    baselines: tuple[Figure, ...] = ()
    against: str = ""
    also: tuple[Figure, ...] = ()
    promise: str = ""

    def __post_init__(self) -> None:
        if not self.baselines and not self.against:
            raise ValueError(f"{self.what}: a figure alone says nothing; measure something beside it")


class Spread(NamedTuple):
    """Median, 99th percentile and worst of one measurement, in milliseconds."""

    p50: float
    p99: float
    worst: float


def percentile(values: Sequence[float], share: float) -> float:
    """The value that `share` of the values do not exceed (nearest rank)."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def spread(seconds: Sequence[float]) -> Spread:
    """How the measured seconds are spread."""
    return Spread(statistics.median(seconds) * 1000, percentile(seconds, 0.99) * 1000, max(seconds) * 1000)


def text(rows: Sequence[Row]) -> str:
    """A Markdown table per section."""
    lines: list[str] = []
    for section in dict.fromkeys(row.section for row in rows):
        lines += ["", f"### {section}", "", HEADS]
        lines += [_line(row) for row in rows if row.section == section]
    return "\n".join(lines).strip() + "\n"


def _line(row: Row) -> str:
    also = ", ".join(f"{each.what} {_amount(each.value, each.unit)}" for each in row.also)
    measured = _amount(row.value, row.unit) + (f" ({also})" if also else "")
    beside = [f"{_amount(each.value, each.unit)} {each.what}" for each in row.baselines]
    if beside:
        beside[0] += _times(row, row.baselines[0])
    baseline = "; ".join([*beside, row.against] if row.against else beside)
    return f"| {row.what} | {measured} | {baseline} | {row.promise} |"


def _times(row: Row, baseline: Figure) -> str:
    """How many times as much was measured, where both are of a kind."""
    if row.unit != baseline.unit or not baseline.value:
        return ""
    times = row.value / baseline.value
    return f" (x{times:.1f})" if times >= 1 else f" (x{times:.2g})"


def _amount(value: float, unit: str) -> str:
    return f"{_number(value)} {unit}".rstrip()


def _number(value: float) -> str:
    return (
        f"{value:.0f}"
        if abs(value) >= 100 or value == int(value)
        else f"{value:.2g}"
        if abs(value) < 1
        else f"{value:.1f}"
    )


def save(rows: Sequence[Row], machine: str, path: Path) -> None:
    """All rows as JSON: what the table says, baselines and further figures as numbers."""
    path.parent.mkdir(parents=True, exist_ok=True)
    body = {"machine": machine, "rows": [asdict(row) for row in rows]}
    path.write_text(json.dumps(body, indent=1) + "\n")
