"""The command line, ``fed-ucbvi``. Commands import what they need when they run, so that help comes at once."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Annotated, Any

import typer

from fed_ucbvi.command_line.examples import epilogue, program_epilogue
from fed_ucbvi.command_line.options import command
from fed_ucbvi.command_line.program import Program, ignore_late_signals
from fed_ucbvi.core.own_process import claim_process
from fed_ucbvi.core.version import PROGRAM, __version__

COMMANDS = {
    name: module
    for module, names in {
        "running": "run resume counts",
        "show": "show",
        "page": "watch",
        "policies": "play act",
        "sweeping": "sweep reproduce report compare leaderboard",
        "problems": "advise plan inspect environments algorithms bins",
        "federation": "federate serve replay transcript",
        "nodes": "join leave policy",
        "certs": "certs",
    }.items()
    for name in names.split()
}
"""Every command with its module, in the order in which help lists them."""


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


def _program(names: Iterable[str], make: Callable[[Any], Any] = command) -> typer.Typer:
    """The program with these of its commands, as ``make`` gives them; nothing else is imported."""
    program = _group(cls=Program, context_settings={"help_option_names": ["-h", "--help"]})
    program.callback(invoke_without_command=True, epilog=program_epilogue())(start)
    for name in names:
        module = import_module(f"{__name__}.{COMMANDS[name]}")
        made = make(getattr(module, name))
        if name == "certs":
            group = _group()
            group.callback(invoke_without_command=True, epilog=epilogue(name))(made)
            for part in (module.request, module.sign):
                group.command(epilog=epilogue(f"{name} {part.__name__}"))(make(part))
            program.add_typer(group, name=name)
        else:
            program.command(epilog=epilogue(name))(made)
    return program


def _group(**more: Any) -> typer.Typer:
    return typer.Typer(pretty_exceptions_enable=False, **more)


def __getattr__(name: str) -> Any:
    """``app``: the program with all commands, made when it is wanted."""
    if name != "app":
        raise AttributeError(name)
    globals()["app"] = app = _program(COMMANDS)
    return app


def _named(function: Callable[..., None]) -> Callable[[], None]:
    """A command without options, to be listed."""

    def listed() -> None: ...

    listed.__name__, listed.__doc__ = function.__name__, function.__doc__
    return listed


def main() -> None:
    """Run the program with the arguments of the process; what these do not need is not made ready."""
    ignore_late_signals()
    claim_process()
    first = sys.argv[1:2]
    if first in (["--help"], ["-h"], ["--version"]):
        program = _program(COMMANDS, _named)
    else:
        program = _program([name for name in first if name in COMMANDS] or COMMANDS)
    program(prog_name=PROGRAM)
