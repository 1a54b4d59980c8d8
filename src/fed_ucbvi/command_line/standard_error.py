"""What commands say on standard error: plain lines or, with ``--log-format json``, one JSON object a line."""

from __future__ import annotations

import datetime
import json
import logging
import sys
from types import TracebackType
from typing import Annotated

import typer

from fed_ucbvi.command_line.shared_options import OUTPUT
from fed_ucbvi.core.errors import check_choice
from fed_ucbvi.core.text import printable, shortened

TEXT, JSON = "text", "json"
FIELDS = ("node", "round")
"""What a log record may be about, by the names under which ``extra`` gives it."""
LONGEST_MESSAGE, LONGEST_EXCEPTION = 4_000, 20_000
"""Characters."""
PREFIXES = {logging.WARNING: "warning: ", logging.ERROR: "error: "}
"""Before what the program itself says in plain lines."""

LogFormat = Annotated[
    str,
    typer.Option(
        metavar="FORMAT",
        help="On standard error: text, or json (one object a line, with time and level).",
        rich_help_panel=OUTPUT,
    ),
]

log = logging.getLogger("fed_ucbvi.command_line")


class JsonLines(logging.Formatter):
    """One JSON object a record: ``time`` (UTC), ``level``, ``logger``, ``message`` and what is known of FIELDS."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, in ASCII; long messages are cut."""
        time = datetime.datetime.fromtimestamp(record.created, datetime.UTC)
        line = {
            "time": time.isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": shortened(printable(record.getMessage()), LONGEST_MESSAGE),
        }
        line |= {name: value for name in FIELDS if (value := getattr(record, name, None)) is not None}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)[-LONGEST_EXCEPTION:]
        return json.dumps(line, default=str)


def write_log(how: str, level: int) -> None:
    """Log to standard error from this level on, in this format; in JSON also Python's warnings and errors."""
    check_choice("format of the log", how, (TEXT, JSON))
    root = logging.getLogger()
    if how == TEXT:
        logging.basicConfig(format="%(message)s", level=level)
        return
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines())
    root.handlers[:] = [handler]
    root.setLevel(level)
    logging.captureWarnings(True)
    sys.excepthook = _log_exception


def writes_json() -> bool:
    """Whether standard error holds JSON."""
    return bool(_json_handlers())


def say(text: str, level: int = logging.INFO) -> None:
    """One line on standard error, however little is logged."""
    handlers = _json_handlers()
    for handler in handlers:
        handler.handle(log.makeRecord(log.name, level, "", 0, text, (), None))
    if not handlers:
        typer.echo(f"{PREFIXES.get(level, '')}{text}", err=True)


def _json_handlers() -> list[logging.Handler]:
    return [handler for handler in logging.getLogger().handlers if isinstance(handler.formatter, JsonLines)]


def _log_exception(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """What nobody has caught, in place of Python's own lines."""
    log.critical("the program has failed: %s", error, exc_info=(kind, error, trace))
