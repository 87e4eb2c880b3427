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
class Promise:
    """What we hold ourselves to: words for people, and the last value that keeps it, in the row's unit."""

    words: str
    limit: float
    at_least: bool = False  # the limit is the lowest value that keeps it, not the highest

    def kept(self, value: float) -> bool:
        return value >= self.limit if self.at_least else value <= self.limit


NONE = Promise("none", 0)


@dataclass(frozen=True)
class Row:
    """One measured thing, beside what was measured in the same run to compare it with.

    `baselines`: the first is the one to compare with. `against`: where no baseline can be measured, what the
    figure counts against. `also`: more of the same measurement.
    """

    section: str
    what: str
    value: float
    unit: str
    baselines: tuple[Figure, ...] = ()
    against: str = ""
    also: tuple[Figure, ...] = ()
    promise: Promise | None = None

    @property
    def missed(self) -> bool:
        """Whether there is a promise that the measured value breaks."""
        return self.promise is not None and not self.promise.kept(self.value)

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
    promise = row.promise.words if row.promise else ""
    return f"| {row.what} | {measured} | {baseline} | {promise}{' **missed**' * row.missed} |"


def verdict(rows: Sequence[Row]) -> str:
    """How many promises were missed, and which."""
    missed = [row for row in rows if row.missed]
    promises = sum(row.promise is not None for row in rows)
    lines = [f"promises missed: {len(missed)} of {promises}"]
    for row in missed:
        words = row.promise.words if row.promise else ""
        lines.append(f"  {row.section}: {row.what}: {_amount(row.value, row.unit)}, promised {words}")
    return "\n".join(lines)


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
    """All rows as JSON: what the table says, baselines, further figures and bounds as numbers."""
    path.parent.mkdir(parents=True, exist_ok=True)
    body = {"machine": machine, "rows": [asdict(row) | {"missed": row.missed} for row in rows]}
    path.write_text(json.dumps(body, indent=1) + "\n")
