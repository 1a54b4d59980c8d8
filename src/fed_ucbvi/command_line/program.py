"""How the program ends: errors become one plain message on standard error and an exit code."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import click
import typer
from typer.core import TyperGroup

from fed_ucbvi.errors import InputError, unknown_name

BAD_INPUT = 2
INTERRUPTED = 130


class Program(TyperGroup):
    """The group of all commands; ends with 0, with 2 where something cannot be used, with 130 on Ctrl-C."""

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
        try:
            code = super().main(args, prog_name, complete_var, False, windows_expand_args, **extra)
        except click.UsageError as error:
            where = f" See '{error.ctx.command_path} --help'." if error.ctx else ""
            _fail(f"{error.format_message().rstrip('.')}.{where}")
        except click.ClickException as error:
            _fail(error.format_message())
        except InputError as error:
            _fail(str(error))
        except OSError as error:
            _fail(_plain(error))
        except MemoryError as error:
            _fail(f"there is not enough memory for this ({error}). Take a smaller problem.")
        sys.exit(code if isinstance(code, int) else 0)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that the first argument names."""
        if args[0] not in self.commands and not args[0].startswith("-"):
            raise unknown_name("command", args[0], self.commands)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; one that leaves Ctrl-C to the program had nothing to save."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            typer.echo("interrupted; nothing is saved", err=True)
            raise typer.Exit(INTERRUPTED) from None


def _fail(message: str) -> NoReturn:
    typer.echo(f"error: {message}", err=True)
    sys.exit(BAD_INPUT)


def _plain(error: OSError) -> str:
    """The operating system's words, with the file they are about."""
    what = error.strerror or str(error)
    return f"{error.filename}: {what}." if error.filename else f"{what}."
