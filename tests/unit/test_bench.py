"""The figures of `make bench`: none without something to compare with, the same in the table and in JSON."""

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest

from common.hardware.machine import Machine
from common.hardware.tree import Tree
from common.hardware.walk import walk
from common.inventory import Inventory
from tests.bench.replay import Replay, record
from tests.bench.table import NONE, Figure, Promise, Row, save, spread, text, verdict
from tests.bench.walked import COUNT, ENDED, SECONDS, Walks, next_walk, settle, walks
from tests.builders import MachineBuilder

ROW = Row(
    "Calls",
    "prepare",
    3.0,
    "ms",
    (Figure(0.5, "ms", "an empty servicer"), Figure(2000.0, "calls/s", "of eight")),
    also=(Figure(9.0, "ms", "p99"),),
    promise=Promise("4 ms", 4),
)
MISSED = replace(ROW, value=4.1)
SLOW = Row("Calls", "eight", 399, "/s", against="one", promise=Promise("400/s", 400, at_least=True))


def walked(tree: Tree) -> Inventory:
    return walk(tree, Machine(), "n", "2026-01-01T00:00:00Z")


def test_a_figure_without_anything_to_compare_it_with_is_refused() -> None:
    with pytest.raises(ValueError, match="prepare"):
        Row("Calls", "prepare", 3.0, "ms")


def test_the_table_tells_how_many_times_the_first_baseline_was_measured() -> None:
    assert text([ROW]).splitlines()[-1] == (
        "| prepare | 3 ms (p99 9 ms) | 0.5 ms an empty servicer (x6.0); 2000 calls/s of eight | 4 ms |"
    )


def test_what_only_counts_says_against_what() -> None:
    row = Row("Idle", "walks", 0, "", against="counted over 60 s", promise=NONE)
    assert text([row]).splitlines()[-1] == "| walks | 0 | counted over 60 s | none |"


def test_a_missed_promise_is_marked() -> None:
    assert [line.rpartition("; ")[2] for line in text([ROW, MISSED]).splitlines()[-2:]] == [
        "2000 calls/s of eight | 4 ms |",
        "2000 calls/s of eight | 4 ms **missed** |",
    ]


@pytest.mark.parametrize(("value", "missed"), [(399.9, True), (400, False), (401, False)])
def test_a_promise_of_at_least_so_much_is_missed_below(value: float, missed: bool) -> None:
    assert replace(SLOW, value=value).missed is missed


def test_the_end_tells_which_promises_were_missed() -> None:
    assert verdict([ROW, replace(ROW, promise=None), MISSED, SLOW]).splitlines() == [
        "promises missed: 2 of 3",
        "  Calls: prepare: 4.1 ms, promised 4 ms",
        "  Calls: eight: 399 /s, promised 400/s",
    ]


def test_json_has_baselines_and_further_figures_as_numbers(tmp_path: Path) -> None:
    save([ROW], "a machine", tmp_path / "bench.json")
    assert json.loads((tmp_path / "bench.json").read_text()) == {
        "machine": "a machine",
        "rows": [
            {
                "section": "Calls",
                "what": "prepare",
                "value": 3.0,
                "unit": "ms",
                "baselines": [
                    {"value": 0.5, "unit": "ms", "what": "an empty servicer"},
                    {"value": 2000.0, "unit": "calls/s", "what": "of eight"},
                ],
                "against": "",
                "also": [{"value": 9.0, "unit": "ms", "what": "p99"}],
                "promise": {"words": "4 ms", "limit": 4, "at_least": False},
                "missed": False,
            }
        ],
    }


class Pages:
    """A watcher that answers with one page after the other, and then always with the last."""

    def __init__(self, *pages: Walks) -> None:
        self.pages = list(pages)

    def get(self, path: str) -> tuple[int, str]:
        assert path == "/metrics"
        page = self.pages.pop(0) if len(self.pages) > 1 else self.pages[0]
        return 200, f"# HELP\n{COUNT} {page.done}.0\n{SECONDS} {page.seconds}\n{ENDED} {page.ended}\n"


def test_a_walk_is_known_by_what_is_counted_before_and_after_it() -> None:
    before = Walks(3, 1.5, 90.0)
    assert next_walk(Pages(before, before, Walks(4, 1.75, 100.0)), before) == (99.75, 100.0)


def test_nobody_knows_when_the_first_of_two_walks_was() -> None:
    before = Walks(3, 1.5, 90.0)
    assert next_walk(Pages(Walks(5, 1.75, 100.0)), before) is None


def test_a_walk_that_began_before_the_reason_for_it_settles_nothing() -> None:
    now = time.time()
    old, new = Walks(2, 2.0, now + 0.1), Walks(3, 2.5, now + 2)
    watcher = Pages(Walks(1, 1.0, now - 10), old, old, new)
    settle(watcher, lambda: None)
    assert walks(watcher) == new


def test_the_99th_percentile_of_a_hundred_is_the_last_but_one() -> None:
    assert spread([number / 1000 for number in range(1, 101)]) == (50.5, 99.0, 100.0)


def test_a_walk_whose_reads_are_noted_finds_what_it_finds_otherwise(tmp_path: Path) -> None:
    machine = MachineBuilder(tmp_path)
    machine.tty(machine.interface(machine.usb("1-1"), 0, driver="ch341"), "ttyUSB0")
    found: list[Inventory] = []
    record(tmp_path, lambda tree: found.append(walked(tree)))
    assert found == [walked(machine.tree())]


def test_the_baseline_asks_once_for_each_thing_that_was_asked_for(tmp_path: Path) -> None:
    def work(tree: Tree) -> None:
        for _ in range(2):
            tree.names("sys/bus")
            tree.text("sys/none")
            tree.target("sys/bus/usb")

    (tmp_path / "sys/bus").mkdir(parents=True)
    asked = [("entries", "sys/bus"), ("read", "sys/none"), ("link", "sys/bus/usb")]
    assert record(tmp_path, work).asked == asked


def test_the_baseline_takes_what_is_not_there_for_an_answer(tmp_path: Path) -> None:
    (tmp_path / "sys").mkdir()
    asked = [("read", "sys/none"), ("link", "sys/none"), ("entries", "sys/none"), ("entries", "sys")]
    assert Replay(tmp_path, asked)() == 1
