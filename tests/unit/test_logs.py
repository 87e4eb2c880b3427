"""Log lines for people and for programs."""

import io
import json
import logging
from collections.abc import Iterator

import pytest

from common.logs import JsonFormatter, TextFormatter, claim_log, device_log


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    logger = logging.Logger("common.test")
    yield logger
    logger.handlers.clear()


def written(logger: logging.Logger, formatter: logging.Formatter) -> io.StringIO:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(formatter)
    logger.addHandler(handler)
    return stream


def test_a_line_about_a_claim_names_it(logger: logging.Logger) -> None:
    stream = written(logger, TextFormatter("plugin"))
    claim_log(logger, "default", "tty", "u-1").info("prepared in %d ms", 3)
    assert stream.getvalue().endswith(" INFO plugin: prepared in 3 ms namespace=default claim=tty uid=u-1\n")


def test_a_line_about_a_device_of_a_claim_names_both_as_json(logger: logging.Logger) -> None:
    stream = written(logger, JsonFormatter("plugin"))
    device_log(claim_log(logger, "default", "tty", "u-1"), "usb-1-2").warning("is away")
    line = json.loads(stream.getvalue())
    assert {name: line[name] for name in ("message", "level", "namespace", "claim", "uid", "device")} == {
        "message": "is away",
        "level": "warning",
        "namespace": "default",
        "claim": "tty",
        "uid": "u-1",
        "device": "usb-1-2",
    }


def test_a_hostile_name_stays_on_its_line(logger: logging.Logger) -> None:
    stream = written(logger, TextFormatter("watcher"))
    device_log(logger, "x\n2026 INFO watcher: forged\x1b[31m\u2028").info("is\rnew")
    assert stream.getvalue().count("\n") == 1
    assert "is\\x0dnew" in stream.getvalue()
    assert "\x1b" not in stream.getvalue()


def test_a_traceback_follows_its_line(logger: logging.Logger) -> None:
    stream = written(logger, TextFormatter("watcher"))
    try:
        raise ValueError("x")
    except ValueError:
        logger.exception("failed")
    assert stream.getvalue().splitlines()[1] == "Traceback (most recent call last):"


def test_json_keeps_a_traceback_within_its_line(logger: logging.Logger) -> None:
    stream = written(logger, JsonFormatter("watcher"))
    try:
        raise ValueError("x")
    except ValueError:
        logger.exception("failed")
    assert "ValueError: x" in json.loads(stream.getvalue())["traceback"]
