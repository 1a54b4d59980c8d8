"""The command line, ``fed-ucbvi``: a table of the core's commands, and the program made from all commands.

Other commands attach by entry points, those of the paper and of federations as well as those of other packages.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import typer

from fed_ucbvi.command_line.commands import GROUP, HEADINGS, RUNS, Command
from fed_ucbvi.command_line.options import command
from fed_ucbvi.command_line.program import EXIT_CODES, Program, fail, say
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.plugins import Registry, registered
from fed_ucbvi.core.version import PROGRAM, __version__

COMMANDS = (
    Command(
        name="run",
        summary="Run a federated algorithm and print its regret and communication.",
        module="fed_ucbvi.command_line.running",
        function="run",
        heading=RUNS,
        examples=(
            "run --env gridworld --agents 20 --episodes 30000 --out my-run",
            "run --env riverswim --eps-p 0.1 --algorithm fedq-bernstein --json",
            "run --env-option rows=5 --option stationary=true --checkpoint kept",
        ),
    ),
    Command(
        name="resume",
        summary="Resume an interrupted run; the result equals that of a run that was never interrupted.",
        module="fed_ucbvi.command_line.running",
        function="resume",
        heading=RUNS,
        examples=(
            "resume kept --out my-run",
            "resume kept --episodes 60000 --out my-longer-run",
        ),
    ),
    Command(
        name="counts",
        summary="Write what the agents of a run have counted, or what a log holds, to a file for --warm-start.",
        module="fed_ucbvi.command_line.running",
        function="counts",
        heading=RUNS,
        examples=(
            "counts kept --out counts.npz",
            "counts --from-logs log.csv --sizes 8,4,10 --over-all-steps --out counts.npz --plan policy.json",
        ),
    ),
    Command(
        name="show",
        summary=(
            "Draw a saved run and print its summary; compare several runs, or those of a sweep, over their seeds."
        ),
        module="fed_ucbvi.command_line.saved_runs",
        function="show",
        heading=RUNS,
        examples=(
            "show my-run",
            "show my-run --out my-run.pdf",
            "show sweep --format latex --columns group,mean,ratio",
        ),
    ),
    Command(
        name="play",
        summary=(
            "Play the policy that a run recommends, and compare what it is paid with what the run says it is worth."
        ),
        module="fed_ucbvi.command_line.saved_runs",
        function="play",
        heading=RUNS,
        examples=(
            "play my-run --episodes 1 --render text",
            "play my-run --agent 3 --out my-run.gif",
        ),
    ),
    Command(
        name="act",
        summary=(
            "Print the action of a policy; without --step and --state, one for each line 'h s' of standard input."
        ),
        module="fed_ucbvi.command_line.saved_runs",
        function="act",
        heading=RUNS,
        examples=(
            "act my-run --step 0 --state 3",
            "act policy.json --certs certs --step 0 --state 3",
        ),
    ),
    Command(
        name="sweep",
        summary="Make every run that FILE describes and DIR does not hold yet.",
        module="fed_ucbvi.command_line.sweeping",
        function="sweep",
        heading=RUNS,
        examples=(
            "sweep examples/sweep.toml --out sweep",
            "sweep examples/sweep.toml --out sweep --resume",
        ),
    ),
    Command(
        name="advise",
        summary=("Recommend an algorithm, how it counts visits, and numbers of bins and episodes, with the reasons."),
        module="fed_ucbvi.command_line.advising",
        function="advise",
        heading=RUNS,
        examples=(
            "advise --states 21 --actions 6 --horizon 30 --agents 5",
            "advise --live CartPole-v1 --episodes 2000",
        ),
    ),
    Command(
        name="environments",
        summary="List the environments and their options, which --env-option sets.",
        module="fed_ucbvi.command_line.lists",
        function="environments",
        heading=RUNS,
        examples=(
            "environments",
            "environments --json",
        ),
    ),
    Command(
        name="algorithms",
        summary="List the algorithms and their parameters, which --option sets.",
        module="fed_ucbvi.command_line.lists",
        function="algorithms",
        heading=RUNS,
        examples=(
            "algorithms",
            "algorithms fed-kl-ucbvi",
            "algorithms --json",
        ),
    ),
)
"""The commands of the core, in the order of help."""

FIRST = ("run --episodes 3000", "run --episodes 3000 --out my-run", "show my-run", "environments")
"""Examples for the help of the program itself."""
FURTHER = """Every command has examples in its own help: fed-ucbvi COMMAND --help

Your shell completes commands, options and names after: fed-ucbvi --install-completion"""
PLAIN: dict[str, Any] = {"pretty_exceptions_enable": False}


def _paragraphs(examples: Iterable[str]) -> str:
    """Lines of an epilog; Typer begins a new line only after an empty one."""
    lines = ["Examples:"]
    lines += [f"fed-ucbvi {words}" for words in examples]
    return "\n\n".join(lines)


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


def all_commands() -> list[Command]:
    """The commands of the core, then those of installed packages by heading and name.

    A command that cannot be loaded is left out with a warning.
    """
    attached = []
    for name in registered(GROUP):
        try:
            attached.append(attached_command(name))
        except InputError as error:
            say(str(error), logging.WARNING)
    known = {one.name for one in COMMANDS}
    others = [one for one in attached if one.name not in known]
    return [*COMMANDS, *sorted(others, key=_place_in_help)]


def attached_command(name: str) -> Command:
    """The command that an installed package registers under a name."""
    found = Registry({}, GROUP)[name]
    if not isinstance(found, Command) or found.name != name:
        raise InputError(f"'{name}' is registered in {GROUP}, but is not a Command of that name.")
    return found


def _place_in_help(one: Command) -> tuple[int, str, str]:
    known = one.heading in HEADINGS
    return HEADINGS.index(one.heading) if known else len(HEADINGS), one.heading, one.name


def _new_program() -> typer.Typer:
    """The program without commands."""
    program = typer.Typer(cls=Program, context_settings={"help_option_names": ["-h", "--help"]}, **PLAIN)
    codes = ["Exit codes:"]
    codes += [f"{code}: {meaning}" for code, meaning in EXIT_CODES.items()]
    epilog = "\n\n".join([_paragraphs(FIRST), FURTHER, *codes])
    program.callback(invoke_without_command=True, epilog=epilog)(start)
    return program


def _program(commands: Iterable[Command]) -> typer.Typer:
    """The program with these commands; only their modules are imported."""
    program = _new_program()
    for one in commands:
        made = command(one.load())
        epilog = _paragraphs(one.examples)
        if one.subcommands:
            group = typer.Typer(**PLAIN)
            group.callback(invoke_without_command=True, epilog=epilog)(made)
            for part in one.subcommands:
                group.command(part.name, epilog=_paragraphs(part.examples))(command(part.load()))
            program.add_typer(group, name=one.name, rich_help_panel=one.heading)
        else:
            program.command(one.name, epilog=epilog, rich_help_panel=one.heading)(made)
    return program


def _list_of_commands() -> typer.Typer:
    """The program for its own help: all commands with their summaries, none of which is imported."""
    program = _new_program()
    for one in all_commands():

        def listed() -> None: ...

        program.command(one.name, help=one.summary, rich_help_panel=one.heading)(listed)
    return program


def __getattr__(name: str) -> Any:
    """``app``: the program with all commands, made on first use."""
    if name != "app":
        raise AttributeError(name)
    app = _program(all_commands())
    globals()["app"] = app
    return app


def _requested(name: str) -> Sequence[Command]:
    """The command with this name alone, or all commands if there is none."""
    for one in COMMANDS:
        if one.name == name:
            return [one]
    if name in registered(GROUP):
        return [attached_command(name)]
    return all_commands()


def main() -> None:
    """Run the program with the arguments of the process; only the requested command is imported."""
    Program.ends_process = True
    first = "".join(sys.argv[1:2])
    if first in ("--help", "-h", "--version"):
        program = _list_of_commands()
    else:
        try:
            program = _program(_requested(first))
        except InputError as error:
            fail(str(error))
    program(prog_name=PROGRAM)
