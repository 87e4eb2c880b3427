"""What reaches a terminal, and what reaches a program."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.console.output import Format, complain, escaped, print_as, print_table


@given(st.text())
def test_escaped_text_is_printable_and_of_one_line(text: str) -> None:
    result = escaped(text)
    assert result.isprintable()
    assert len(result.splitlines()) <= 1


def test_what_people_can_read_is_left_alone() -> None:
    assert escaped("Ultra 12² 日本 [/foo] [bold]") == "Ultra 12² 日本 [/foo] [bold]"


def test_a_table_shows_markup_as_it_is_and_escapes_control_characters(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_table(
        ["NAME", "HARDWARE"], [["usb-1", "[/foo] \x1b[31m\u202eevil\n"], ["usb-2", ":smile:"]], "none"
    )
    assert capsys.readouterr().out.splitlines() == [
        "NAME   HARDWARE",
        "usb-1  [/foo] \\x1b[31m\\u202eevil\\n",
        "usb-2  :smile:",
    ]


def test_a_table_never_wraps_or_cuts(capsys: pytest.CaptureFixture[str]) -> None:
    long = "x" * 500
    print_table(["A", "B"], [[long, "y"]], "none")
    assert capsys.readouterr().out.splitlines()[1] == f"{long}  y"


def test_an_empty_table_says_so_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["A"], [], "Nothing here.")
    assert capsys.readouterr().out == "Nothing here.\n"


def test_an_error_is_one_line_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    complain("first\nsecond\x07")
    assert capsys.readouterr().err == "liken: first second\\x07\n"


def test_each_form_prints_the_same_value(capsys: pytest.CaptureFixture[str]) -> None:
    def printed(form: Format) -> str:
        print_as(form, {"a": ["é"]}, names=lambda: ["n"], table=lambda wide: print(f"table {wide}"))
        return capsys.readouterr().out

    assert json.loads(printed(Format.json)) == {"a": ["é"]}
    assert printed(Format.yaml) == "a:\n- é\n"
    assert printed(Format.name) == "n\n"
    assert printed(Format.table) == "table False\n"
    assert printed(Format.wide) == "table True\n"
