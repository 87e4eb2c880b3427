"""How the command prints: tables for people, JSON, YAML and names for programs.

Everything that comes from hardware or from a cluster is escaped on its way to a terminal: a USB stick can be
named `[/foo]` or carry escape sequences.
"""

import sys
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from typing import Any

import msgspec


class Format(StrEnum):
    """The words after -o."""

    table = "table"
    json = "json"
    yaml = "yaml"
    name = "name"
    wide = "wide"


def escaped(text: str) -> str:
    """`text` in one line without anything that could steer a terminal; backslash escapes stand for it."""
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)


def say(line: str) -> None:
    """Print one line for people."""
    print(escaped(line), flush=True)


def complain(line: str) -> None:
    """Print one line to stderr, marked as the command's own."""
    print(f"liken: {escaped(line.replace(chr(10), ' '))}", file=sys.stderr, flush=True)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]], empty: str) -> None:
    """Print aligned columns; `empty` says in words that there is nothing. Never cuts or wraps a name."""
    from rich.console import Console  # late: only a table for people pays for it
    from rich.table import Table
    from rich.text import Text

    lines = [[Text(escaped(cell), no_wrap=True) for cell in row] for row in rows]
    if not lines:
        say(empty)
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        table.add_column(column, no_wrap=True, overflow="ignore")
    for line in lines:
        table.add_row(*line)
    width = 2 * len(columns) + sum(
        max(text.cell_len for text in column)
        for column in zip(*lines, [Text(name) for name in columns], strict=True)
    )
    console = Console(markup=False, highlight=False, emoji=False, soft_wrap=False, width=width)
    with console.capture() as printed:
        console.print(table)
    print("\n".join(line.rstrip() for line in printed.get().splitlines()))


def print_json(value: object) -> None:
    """Print any message type or plain value as indented JSON."""
    print(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def print_yaml(documents: Sequence[object]) -> None:
    """Print each document as YAML, with `---` between them."""
    import yaml  # late: 40 ms that only this form needs

    plain = [msgspec.to_builtins(document) for document in documents]
    print(yaml.safe_dump_all(plain, sort_keys=False, allow_unicode=True, width=110), end="")


def print_as(
    output: Format,
    value: Any,
    *,
    names: Callable[[], Iterable[str]],
    table: Callable[[bool], None],
    documents: Sequence[object] | None = None,
) -> None:
    """Print `value` in the form asked for; `table` is told whether the wide form is wanted.

    `documents`: what YAML prints when that is several objects rather than `value`.
    """
    if output is Format.json:
        print_json(value)
    elif output is Format.yaml:
        print_yaml([value] if documents is None else documents)
    elif output is Format.name:
        for name in names():
            say(name)
    else:
        table(output is Format.wide)
