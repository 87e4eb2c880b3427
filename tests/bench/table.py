"""Rows of figures: printed for people, kept for JSON."""

import json
import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple


class Row(NamedTuple):
    """One measured thing. `baseline` was measured in the same run; `promise` is what we hold ourselves to."""

    section: str
    what: str
    value: float
    unit: str
    baseline: str = ""
    promise: str = ""


def percentile(values: Sequence[float], share: float) -> float:
    """The value that `share` of the values do not exceed (nearest rank)."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def spread(values: Sequence[float], scale: float = 1000.0) -> tuple[float, float, float]:
    """Median, 99th percentile and worst, scaled (to milliseconds by default)."""
    return (
        statistics.median(values) * scale,
        percentile(values, 0.99) * scale,
        max(values) * scale,
    )


def text(rows: Sequence[Row]) -> str:
    """A Markdown table per section."""
    lines: list[str] = []
    for section in dict.fromkeys(row.section for row in rows):
        lines += ["", f"### {section}", "", "| what | measured | baseline | promise |", "|---|---|---|---|"]
        for row in rows:
            if row.section == section:
                lines.append(
                    f"| {row.what} | {_number(row.value)} {row.unit} | {row.baseline} | {row.promise} |"
                )
    return "\n".join(lines).strip() + "\n"


def _number(value: float) -> str:
    return (
        f"{value:.0f}"
        if abs(value) >= 100 or value == int(value)
        else f"{value:.2g}"
        if abs(value) < 1
        else f"{value:.1f}"
    )


def save(rows: Sequence[Row], machine: str, path: Path) -> None:
    """All rows as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    body = {"machine": machine, "rows": [row._asdict() for row in rows]}
    path.write_text(json.dumps(body, indent=1) + "\n")
