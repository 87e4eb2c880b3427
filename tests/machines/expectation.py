"""The expectation files: what each recorded machine offers, as a person reads it off the recording.

A file names every device with the hardware it belongs to and its nodes below /dev, every withheld node
under its reason, and the hardware without a driver. `input/event{0..31}` stands for thirty-two names. Where a
list of unclaimed hardware would be too long to read, `count` gives its length, `among` those that matter.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parent / "expected"
FLAGS = {
    "renderNode": "renderNode",
    "displayNode": "displayNode",
    "sound.liken.sh/supportsSound": "supportsSound",
}


@dataclass(frozen=True)
class Offer:
    """One published device, in the terms that the files, the second opinion and the product share."""

    hardware: str  # "usb 1-9"
    kinds: tuple[str, ...]
    subsystem: str
    shareable: bool
    flags: tuple[str, ...]
    nodes: tuple[str, ...]


@dataclass(frozen=True)
class Expectation:
    """One file."""

    machine: str
    storage: str
    devices: dict[str, Offer]
    withheld: dict[str, tuple[str, str]]  # node -> hardware, reason
    unclaimed: set[str] | None  # None: only counted
    unclaimed_count: int
    unclaimed_among: set[str]
    attributes: dict[str, dict[str, Any]]


def expected_machines() -> list[str]:
    """The machines that have a file, sorted."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def read(machine: str) -> Expectation:
    """The expectation file of one machine."""
    document = yaml.safe_load((FOLDER / f"{machine}.yaml").read_text("utf-8"))
    unclaimed = document["unclaimed"]
    listed = set(unclaimed) if isinstance(unclaimed, list) else None
    return Expectation(
        machine=document["machine"],
        storage=document["storage"],
        devices={name: _offer(body) for name, body in document["devices"].items()},
        withheld={
            node: (hardware, reason)
            for reason, owners in document["withheld"].items()
            for hardware, nodes in owners.items()
            for node in _nodes(nodes)
        },
        unclaimed=listed,
        unclaimed_count=len(unclaimed) if listed is not None else unclaimed["count"],
        unclaimed_among=listed if listed is not None else set(unclaimed.get("among", ())),
        attributes=document.get("attributes", {}),
    )


def _offer(body: dict[str, Any]) -> Offer:
    return Offer(
        hardware=body["of"],
        kinds=tuple(body.get("kinds", ())),
        subsystem=body.get("subsystem", ""),
        shareable=body.get("shareable", False),
        flags=tuple(sorted(body.get("flags", ()))),
        nodes=tuple(sorted(_nodes(body["nodes"]))),
    )


def _nodes(text: str) -> list[str]:
    found = []
    for word in text.split():
        span = re.fullmatch(r"(.*)\{(\d+)\.\.(\d+)\}", word)
        names = [f"{span[1]}{n}" for n in range(int(span[2]), int(span[3]) + 1)] if span else [word]
        found += [f"/dev/{name}" for name in names]
    return found
