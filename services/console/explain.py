"""`liken explain`: which rule published, split, held, withheld or ignored something, and what to do."""

from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path

from common.errors import LikenError, RequestError
from common.hardware.delivery import natural
from common.hardware.explain import Answer, Facts
from common.hardware.explain_lookup import Lookup
from common.hardware.survey import survey
from common.hardware.walk import walk
from services.console.claim_words import explain_claim
from services.console.hardware import Opened, opened
from services.console.output import Format, print_as, print_table, say

_LONG_RUN = 5  # nodes in a row, such as the 32 input nodes of a Bluetooth radio
_COVERED = {"delivered", "usbfs"}  # nodes that the answers for their hardware name already


def explain(what: str | None, root: Path | None, state: Path | None, output: Format) -> None:
    """Answer for `what`: a device, a node, a bus address, a claim; None for everything.

    Raises RequestError when nothing is called so.
    """
    with opened(root, state) as machine:
        facts = Facts(
            machine.tree,
            survey(machine.tree, machine.machine),
            walk(machine.tree, machine.machine, machine.settings.node_name, ""),
        )
        lookup = Lookup(facts)
        answers = lookup.everything() if what is None else _find(lookup, machine, what, root)

    def table(_wide: bool) -> None:
        if what is None:
            print_table(["WHAT", "STATE", "RULE", "WHY"], _rows(answers), "No hardware at all.")
        else:
            _print_answers(answers)

    print_as(output, answers, names=lambda: [answer.subject for answer in answers], table=table)


def _find(lookup: Lookup, machine: Opened, what: str, root: Path | None) -> list[Answer]:
    """Hardware first; then a claim; then a device that is not published just now, or a role."""
    try:
        return lookup.find(what)
    except RequestError as unknown:
        try:
            answers = explain_claim(what, machine, lookup) if root is None else []
        except LikenError as error:
            raise RequestError(f"{unknown}; the claims cannot be read: {error}") from error
        answers = answers or lookup.unpublished(what) or lookup.roles(what)
        if not answers:
            raise
        return answers


def _print_answers(answers: list[Answer]) -> None:
    for number, answer in enumerate(answers):
        if number:
            say("")
        say(answer.why)
        for label, value in _details(answer):
            say(f"  {label:<9} {value}")
        for line in answer.advice:
            say(f"  -> {line}" if not _is_quoted(line) else f"     {line}")


def _is_quoted(line: str) -> bool:
    """Lines to put into a file keep their indentation and get no arrow."""
    return line == "spec:" or line.startswith("  ")


def _details(answer: Answer) -> Iterable[tuple[str, str]]:
    hardware = f"{answer.hardware} {answer.name}".strip()
    if hardware:
        yield "hardware", hardware
    if answer.driver:
        yield "driver", answer.driver
    if answer.devices:
        yield "devices", ", ".join(answer.devices)
    if answer.nodes:
        yield (
            "delivers" if answer.state in {"published", "present"} else "nodes",
            " ".join(_short(answer.nodes)),
        )


def _short(paths: Sequence[str]) -> list[str]:
    """Long runs of numbered nodes as "first ... last"."""
    found: list[str] = []
    for _, group in groupby(enumerate(paths), key=_run):
        run = [path for _, path in group]
        found += run if len(run) < _LONG_RUN else [run[0], "...", run[-1]]
    return found


def _run(numbered: tuple[int, str]) -> tuple[str, int]:
    position, path = numbered
    stem = path.rstrip("0123456789")
    return stem, int(path[len(stem) :] or 0) - position


def _rows(answers: list[Answer]) -> list[list[str]]:
    """One row per hardware, and one for each group of nodes that no row says anything about yet."""
    subjects = {(answer.hardware, answer.rule) for answer in answers if not _is_node(answer)}
    rows, nodes = [], []
    for answer in answers:
        if not _is_node(answer):
            rows.append([answer.subject, answer.state, answer.rule, answer.why])
        elif answer.rule not in _COVERED and (answer.hardware, answer.rule) not in subjects:
            nodes.append(answer)
    return [*rows, *_grouped(nodes)]


def _is_node(answer: Answer) -> bool:
    return answer.subject.startswith(("/dev/", "char ", "block "))


def _grouped(nodes: list[Answer]) -> list[list[str]]:
    """Nodes of one reason in one row: a machine can have hundreds of virtual terminals."""

    def reason(answer: Answer) -> tuple[str, str, str]:
        return answer.rule, answer.hardware, answer.why.removeprefix(answer.subject)

    rows = []
    for (rule, _, why), members in groupby(sorted(nodes, key=reason), key=reason):
        names = sorted((answer.subject for answer in members), key=natural)
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        rows.append([f"{names[0]}{more}", "ignored", rule, f"{names[0]}{why}"])
    return rows
