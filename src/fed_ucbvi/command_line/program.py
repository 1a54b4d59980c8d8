"""How the program ends: errors become one plain message on standard error and an exit code."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any, NoReturn, Protocol, runtime_checkable

import typer
from typer.core import TyperGroup

from fed_ucbvi.command_line.standard_error import say
from fed_ucbvi.core.errors import InputError, unknown_name

FAILED = 1
BAD_INPUT = 2
INTERRUPTED = 128 + signal.SIGINT
UNREAD = 128 + signal.SIGPIPE
EXIT_CODES = {
    0: "it is done",
    FAILED: "some runs of a sweep or a reproduction have failed; or the program has, and says where",
    BAD_INPUT: "something cannot be used, or a federation cannot go on; the message says what to change",
    INTERRUPTED: "stopped by Ctrl-C or SIGTERM",
    UNREAD: "nobody reads its output any more",
}
"""Of all commands."""


@runtime_checkable
class UsageError(Protocol):
    """What Typer raises about a command line; which class it is depends on Typer's version."""

    exit_code: int

    def format_message(self) -> str:
        """The error in words."""
        ...


class Program(TyperGroup):
    """The group of all commands; ends with one of :data:`EXIT_CODES`."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run a command and turn what it raises into a message and an exit code."""
        if os.environ.get("COLUMNS") == "0":
            del os.environ["COLUMNS"]  # Rich would print lines of no width; others take 0 as "not known"
        try:
            code = super().main(args, prog_name, complete_var, False, windows_expand_args, **extra)
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
            _fail(str(error))
        except OSError as error:
            _fail(plain_reason(error))
        except MemoryError as error:
            _fail(f"there is not enough memory for this ({error}). Take a smaller problem.")
        except Exception as error:
            if not isinstance(error, UsageError):
                raise
            context = getattr(error, "ctx", None)
            where = f" See '{context.command_path} --help'." if context else ""
            _fail(f"{error.format_message().rstrip('.')}.{where}")
        sys.exit(code if isinstance(code, int) else 0)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that the first argument names."""
        if args[0] not in self.commands and not args[0].startswith("-") and not ctx.resilient_parsing:
            raise unknown_name("command", args[0], self.commands)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run a command; one that leaves Ctrl-C to the program had nothing to save."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            say("interrupted; nothing is saved")
            raise typer.Exit(INTERRUPTED) from None


def plain_reason(error: OSError) -> str:
    """The operating system's words, with the file they are about."""
    what = error.strerror or str(error)
    return f"{error.filename}: {what}." if error.filename else f"{what}."


def _fail(message: str) -> NoReturn:
    say(message, logging.ERROR)
    sys.exit(BAD_INPUT)


def _end_unread() -> NoReturn:
    """End quietly; what is still to be written on standard output is discarded."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    sys.exit(UNREAD)
