"""`liken unclaimed`: hardware without a driver, and the kernel modules that would drive it."""

from collections.abc import Sequence
from pathlib import Path

import typer

from common.inventory import Unclaimed
from services.console.hardware import look
from services.console.output import Format, print_as, print_table, say

MODULES_LOAD = "modules-load"  # lines for a file in /etc/modules-load.d; modules-load.d(5)


def unclaimed(root: Path | None, folder: Path | None, output: str) -> None:
    """List what no driver holds. `output`: a Format, or modules-load."""
    entries = look(root, folder).unclaimed
    if output == MODULES_LOAD:
        for line in modules_load(entries):
            say(line)
        return
    names = [f"{entry.bus} {entry.address}" for entry in entries]
    print_as(_format(output), entries, names=lambda: names, table=lambda wide: _table(entries, wide))


def modules_load(entries: Sequence[Unclaimed]) -> list[str]:
    """A comment with the hardware, then its modules; one that is not on this machine stays a comment."""
    lines = []
    seen: set[str] = set()
    for entry in entries:
        if not entry.modules:
            continue
        lines.append(f"# {entry.bus} {entry.address} {entry.name}".rstrip())
        for module in entry.modules:
            if module in entry.missing:
                lines.append(f"# {module} (not on this machine)")
            elif module not in seen:
                lines.append(module)
            seen.add(module)
    return lines


def _format(output: str) -> Format:
    try:
        return Format(output)
    except ValueError as error:
        allowed = ", ".join([*Format.__members__, MODULES_LOAD])
        raise typer.BadParameter(f"-o {output!r} is not known: allowed is {allowed}") from error


def _table(entries: Sequence[Unclaimed], wide: bool) -> None:
    columns = ["HARDWARE", "NAME", "MODULES"] + (["MODALIAS"] if wide else [])
    rows = [
        [f"{entry.bus} {entry.address}", entry.name, _modules(entry)] + ([entry.modalias] if wide else [])
        for entry in entries
    ]
    print_table(columns, rows, "Every piece of hardware has a driver, or no module that would be one.")


def _modules(entry: Unclaimed) -> str:
    return ", ".join(
        f"{name} (not on this machine)" if name in entry.missing else name for name in entry.modules
    )
