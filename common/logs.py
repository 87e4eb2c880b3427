"""Log lines: text for people, JSON for programs. Standard library logging underneath."""

import json
import logging
import sys
from collections.abc import MutableMapping
from datetime import UTC, datetime
from typing import Any, TextIO

from common.settings import Settings

_CONTROL = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160))} | {
    0x2028: "\\u2028",
    0x2029: "\\u2029",
}
_FIELDS = "liken_fields"


class FieldLog(logging.LoggerAdapter[logging.Logger]):
    """A logger whose every line carries the same fields."""

    def __init__(self, logger: "logging.Logger | FieldLog", **fields: str) -> None:
        inherited: dict[str, str] = {}
        if isinstance(logger, FieldLog):
            inherited, logger = logger.fields, logger.logger
        super().__init__(logger, {})
        self.fields: dict[str, str] = inherited | fields

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        kwargs["extra"] = {_FIELDS: self.fields}
        return msg, kwargs


def claim_log(logger: logging.Logger | FieldLog, namespace: str, name: str, uid: str) -> FieldLog:
    """A logger for lines about one claim."""
    return FieldLog(logger, namespace=namespace, claim=name, uid=uid)


def device_log(logger: logging.Logger | FieldLog, device: str) -> FieldLog:
    """A logger for lines about one device, by its published name."""
    return FieldLog(logger, device=device)


class TextFormatter(logging.Formatter):
    """`2026-11-29T13:37:25.123Z INFO watcher: message namespace=default claim=tty uid=...`, one line each.

    Control characters are escaped: a device may carry any bytes in its name. A traceback has its own lines.
    """

    def __init__(self, service: str) -> None:
        super().__init__()
        self._service = service

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, str] = getattr(record, _FIELDS, {})
        told = "".join(f" {name}={value}" for name, value in fields.items())
        line = f"{_moment(record)} {record.levelname} {self._service}: {record.getMessage()}{told}"
        if not line.isprintable():
            line = line.translate(_CONTROL)
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JsonFormatter(logging.Formatter):
    """One JSON object per line: time, level, service, logger, message, then the fields."""

    def __init__(self, service: str) -> None:
        super().__init__()
        self._service = service

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, str] = {
            "time": _moment(record),
            "level": record.levelname.lower(),
            "service": self._service,
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= getattr(record, _FIELDS, {})
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def set_up_logs(service: str, settings: Settings, stream: TextIO | None = None) -> None:
    """Send every line of this process to `stream` (stderr), in the format and from the level set."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter(service) if settings.log_format == "json" else TextFormatter(service))
    logging.basicConfig(level=settings.log_level, handlers=[handler], force=True)
    # no line of ours names thread, process or line of code: the library need not find them out for each
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    # libraries speak about themselves only when something is wrong
    for library in ("urllib3", "kubernetes", "asyncio", "grpc"):
        logging.getLogger(library).setLevel(max(logging.WARNING, logging.getLevelName(settings.log_level)))


def _moment(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, tz=UTC)
    return moment.isoformat(timespec="milliseconds")[: -len("+00:00")] + "Z"
