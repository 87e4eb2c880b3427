"""Text of the kernel and of devices."""

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from common.hardware.text import MAX_BYTES, clean, cut, fits, uevent


def test_text_is_trimmed_and_freed_of_what_does_not_print() -> None:
    assert clean(b" a\x00b\tc\n") == "abc"


def test_bytes_that_are_no_text_are_replaced() -> None:
    assert clean(b"ok\xff") == "ok\ufffd"


def test_direction_marks_and_separators_are_dropped() -> None:
    assert clean("a\u202eb\u2028c\u200bd".encode()) == "abcd"


@given(content=st.binary())
def test_cleaning_twice_changes_nothing(content: bytes) -> None:
    once = clean(content)
    assert clean(once.encode()) == once
    assert not {unicodedata.category(sign) for sign in once} & {"Cc", "Cf", "Cs", "Zl", "Zp"}


@given(text=st.text())
def test_a_cut_text_fits_and_is_a_beginning(text: str) -> None:
    short = cut(text)
    assert len(short.encode("utf-8", "replace")) <= MAX_BYTES
    assert text.startswith(short) or "\ud800" <= max(text) <= "\udfff" or not text.isprintable()


def test_what_fits_is_not_cut() -> None:
    text = "é" * (MAX_BYTES // 2)
    assert (fits(text), cut(text), fits(text + "x")) == (True, text, False)


def test_a_uevent_is_read_line_by_line() -> None:
    assert uevent(b"MAJOR=4\nDEVNAME=tty=S0\nodd\n\n") == {"MAJOR": "4", "DEVNAME": "tty=S0"}


def test_a_missing_uevent_says_nothing() -> None:
    assert (uevent(None), uevent(b"")) == ({}, {})
