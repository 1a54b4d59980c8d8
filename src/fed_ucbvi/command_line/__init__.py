"""The command line, ``fed-ucbvi``. Commands import what they need when they run, so that help comes at once."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Annotated

import typer

from fed_ucbvi.command_line.act import act
from fed_ucbvi.command_line.advise import advise
from fed_ucbvi.command_line.bins import bins
from fed_ucbvi.command_line.certs import certs, certs_app
from fed_ucbvi.command_line.compare import compare
from fed_ucbvi.command_line.counts import counts
from fed_ucbvi.command_line.examples import epilogue, program_epilogue
from fed_ucbvi.command_line.federate import federate
from fed_ucbvi.command_line.inspect import inspect
from fed_ucbvi.command_line.interruption import own_process
from fed_ucbvi.command_line.join import join
from fed_ucbvi.command_line.leaderboard import leaderboard
from fed_ucbvi.command_line.leave import leave
from fed_ucbvi.command_line.lists import algorithms, environments
from fed_ucbvi.command_line.plan import plan
from fed_ucbvi.command_line.play import play
from fed_ucbvi.command_line.policy import policy
from fed_ucbvi.command_line.program import Program
from fed_ucbvi.command_line.report import report
from fed_ucbvi.command_line.reproduce import reproduce
from fed_ucbvi.command_line.resume import resume
from fed_ucbvi.command_line.run import run
from fed_ucbvi.command_line.serve import serve
from fed_ucbvi.command_line.show import show
from fed_ucbvi.command_line.sweep import sweep
from fed_ucbvi.command_line.watch import watch
from fed_ucbvi.core.garbage import collect_seldom
from fed_ucbvi.core.version import PROGRAM, __version__

__all__ = ["app", "main"]

COMMANDS = (
    *(run, resume, counts, show, watch, play, act),
    *(sweep, reproduce, report, compare, leaderboard),
    *(advise, plan, inspect, environments, algorithms),
    *(bins, federate, serve, join, leave, policy, certs),
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"fed-ucbvi {__version__}")
        raise typer.Exit


def start(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Federated regret minimisation in tabular Markov decision processes."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def _program(commands: Iterable[Callable[..., None]]) -> typer.Typer:
    """The program with these of its commands."""
    program = typer.Typer(
        cls=Program,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    program.callback(invoke_without_command=True, epilog=program_epilogue())(start)
    for command in commands:
        if command is certs:
            program.add_typer(certs_app, name=certs.__name__)
        else:
            program.command(epilog=epilogue(command.__name__))(command)
    return program


app = _program(COMMANDS)


def main() -> None:
    """Run the program with the arguments of the process."""
    own_process()
    collect_seldom()
    named = [command for command in COMMANDS if command.__name__ in sys.argv[1:2]]
    program = _program(named) if named else app  # one command is made ready sooner than all
    program(prog_name=PROGRAM)
