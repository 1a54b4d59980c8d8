"""Standard error, signals, and errors that become one message and an exit code."""

from __future__ import annotations

import datetime
import json
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn

import typer
from typer.core import TyperGroup

from fed_ucbvi.core.errors import InputError, check_choice, unknown_name
from fed_ucbvi.core.text import one_line, shortened

FAILED = 1
BAD_INPUT = 2
INTERRUPTED = 128 + signal.SIGINT
UNREAD = 128 + signal.SIGPIPE
EXIT_CODES = {
    0: "success",
    FAILED: "some runs of a sweep or a reproduction have failed; or the program itself, with a traceback",
    BAD_INPUT: "something cannot be used, or a federation cannot continue; the message says what to change",
    INTERRUPTED: "stopped by Ctrl-C or SIGTERM",
    UNREAD: "the output pipe was closed",
}
"""Meanings of the exit codes of all commands."""
TEXT = "text"
JSON = "json"
FIELDS = ("node", "round")
"""The fields of a log record that ``extra`` may give."""
LONGEST_MESSAGE = 4_000
LONGEST_EXCEPTION = 20_000
"""Characters."""
PREFIXES = {logging.WARNING: "warning: ", logging.ERROR: "error: "}
"""Prefixes of the program's own messages in plain text."""

PATIENCE = 5.0
"""Seconds after the first signal in which further ones are ignored, so that the partial result can be made."""

log = logging.getLogger("fed_ucbvi.command_line")


class JsonLines(logging.Formatter):
    """One JSON object a record: ``time`` (UTC), ``level``, ``logger``, ``message`` and what is known of FIELDS."""

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.datetime.fromtimestamp(record.created, datetime.UTC)
        line = {
            "time": time.isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": shortened(one_line(record.getMessage()), LONGEST_MESSAGE),
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
    sys.excepthook = lambda kind, error, trace: log.critical(
        "the program has failed: %s", error, exc_info=(kind, error, trace)
    )


def writes_json() -> bool:
    return bool(_json_handlers())


def say(text: str, level: int = logging.INFO) -> None:
    """Print one line on standard error, whatever the level of the log."""
    handlers = _json_handlers()
    for handler in handlers:
        handler.handle(log.makeRecord(log.name, level, "", 0, text, (), None))
    if not handlers:
        typer.echo(f"{PREFIXES.get(level, '')}{text}", err=True)


def _json_handlers() -> list[logging.Handler]:
    return [handler for handler in logging.getLogger().handlers if isinstance(handler.formatter, JsonLines)]


class Interruption:
    """Turns signals into ``KeyboardInterrupt`` until results are being saved."""

    def __init__(self) -> None:
        self.stopped_at: float | None = None
        self._saving = False

    def saving(self) -> None:
        """From now on signals are ignored: saving is short and must not be cut off."""
        self._saving = True

    def handle(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if self._saving or (self.stopped_at is not None and now - self.stopped_at < PATIENCE):
            return
        self.stopped_at = now
        raise KeyboardInterrupt


@contextmanager
def interruptible() -> Iterator[Interruption]:
    """SIGINT and SIGTERM both stop the block; a signal that the process was started to ignore stays ignored.

    Where the process ends with the command, further signals are ignored after the first.
    """
    interruption = Interruption()
    earlier = {}
    try:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                if signal.getsignal(number) != signal.SIG_IGN:
                    earlier[number] = signal.signal(number, interruption.handle)
        yield interruption
    finally:
        for number, handler in earlier.items():
            is_ending = Program.ends_process and interruption.stopped_at is not None
            signal.signal(number, signal.SIG_IGN if is_ending else handler)


class Program(TyperGroup):
    """The group of all commands; ends with one of :data:`EXIT_CODES`."""

    ends_process = False
    """True if the process ends with the command, as it does when a shell starts the program."""

    def main(self, *args: Any, **given: Any) -> Any:
        if os.environ.get("COLUMNS") == "0":
            del os.environ["COLUMNS"]  # Rich would print lines of no width; others take 0 as "not known"
        try:
            code = super().main(*args, **{**given, "standalone_mode": False})
            sys.stdout.flush()
        except SystemExit as end:
            if isinstance(end.__context__, BrokenPipeError):  # Typer has dealt with it, by code 1
                _end_unread()
            raise
        except BrokenPipeError:
            _end_unread()
        except typer.Abort:  # Ctrl-C outside a command
            say("interrupted")
            sys.exit(INTERRUPTED)
        except InputError as error:
            fail(str(error))
        except OSError as error:
            about = f"{error.filename}: " if error.filename else ""
            fail(f"{about}{error.strerror or error}.")
        except MemoryError as error:
            fail(f"there is not enough memory for this ({error}). Use a smaller problem.")
        except Exception as error:
            if not hasattr(error, "format_message"):  # which class Typer raises depends on its version
                raise
            context = getattr(error, "ctx", None)
            where = f" See '{context.command_path} --help'." if context else ""
            fail(f"{error.format_message().rstrip('.')}.{where}")
        sys.exit(code if isinstance(code, int) else 0)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[0] not in self.commands and not args[0].startswith("-") and not ctx.resilient_parsing:
            raise unknown_name("command", args[0], self.commands)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run a command; a Ctrl-C that it does not handle itself finds nothing to save."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            say("interrupted; nothing is saved")
            raise typer.Exit(INTERRUPTED) from None


def fail(message: str) -> NoReturn:
    """End with a message about bad input."""
    say(message, logging.ERROR)
    sys.exit(BAD_INPUT)


def _end_unread() -> NoReturn:
    """End quietly and discard the rest of the output."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    sys.exit(UNREAD)
