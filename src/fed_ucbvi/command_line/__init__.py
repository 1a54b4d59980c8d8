"""The command line, ``fed-ucbvi``: a table of all commands, and the program made from it.

A command's module is imported when the command runs or shows its help; its function imports what it needs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, Any

import typer

from fed_ucbvi.command_line.options import command
from fed_ucbvi.command_line.program import EXIT_CODES, Program
from fed_ucbvi.core.version import PROGRAM, __version__

RUNS = "Runs"
PAPER = "The paper"
FEDERATIONS = "Federations"


@dataclass(frozen=True, kw_only=True)
class Command:
    """One row of the table of commands.

    Args:
        name: the words after ``fed-ucbvi``. A name of two words is a subcommand of the command before it.
        module: the module that defines the command.
        function: the function in it, whose docstring is the help and whose parameters are the options.
        heading: the heading in the help of the program.
        examples: command lines without ``fed-ucbvi``, for the end of the command's help.
    """

    name: str
    module: str
    function: str
    heading: str
    examples: tuple[str, ...]

    @property
    def group(self) -> str:
        """Name of the command that this is a subcommand of; empty for a command."""
        return self.name.rpartition(" ")[0]

    def load(self) -> Callable[..., None]:
        """Import the module and return the function."""
        module = import_module(self.module)
        function: Callable[..., None] = getattr(module, self.function)
        return function


COMMANDS = (
    Command(
        name="run",
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
        module="fed_ucbvi.command_line.sweeping",
        function="sweep",
        heading=RUNS,
        examples=(
            "sweep examples/sweep.toml --out sweep",
            "sweep examples/sweep.toml --out sweep --resume",
        ),
    ),
    Command(
        name="compare",
        module="fed_ucbvi.paper.commands.comparing",
        function="compare",
        heading=RUNS,
        examples=("compare --seeds 3 --out comparison.md",),
    ),
    Command(
        name="advise",
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
        module="fed_ucbvi.command_line.lists",
        function="algorithms",
        heading=RUNS,
        examples=(
            "algorithms",
            "algorithms fed-kl-ucbvi",
            "algorithms --json",
        ),
    ),
    Command(
        name="bins",
        module="fed_ucbvi.network.commands.binning",
        function="bins",
        heading=RUNS,
        examples=("bins CartPole-v1 --horizon 200 --bins 6 --out bins.json",),
    ),
    Command(
        name="reproduce",
        module="fed_ucbvi.paper.commands.reproducing",
        function="reproduce",
        heading=PAPER,
        examples=(
            "reproduce --out results",
            "reproduce --quick --out quick",
        ),
    ),
    Command(
        name="report",
        module="fed_ucbvi.paper.commands.reporting",
        function="report",
        heading=PAPER,
        examples=("report sweep",),
    ),
    Command(
        name="leaderboard",
        module="fed_ucbvi.paper.commands.comparing",
        function="leaderboard",
        heading=PAPER,
        examples=(
            "leaderboard",
            "leaderboard --algorithm mine:Mine --store my-runs --out my-board",
            "leaderboard --again --store runs --out board",
        ),
    ),
    Command(
        name="plan",
        module="fed_ucbvi.paper.commands.planning",
        function="plan",
        heading=PAPER,
        examples=("plan --env gridworld --eps-p 0.001",),
    ),
    Command(
        name="inspect",
        module="fed_ucbvi.paper.commands.inspecting",
        function="inspect",
        heading=PAPER,
        examples=("inspect --env riverswim --agents 5 --eps-p 0.1 --plot agents.png",),
    ),
    Command(
        name="federate",
        module="fed_ucbvi.network.commands.federating",
        function="federate",
        heading=FEDERATIONS,
        examples=(
            "federate --nodes 4",
            "federate --nodes 2 --env synthetic --episodes 1000 --out my-run",
        ),
    ),
    Command(
        name="serve",
        module="fed_ucbvi.network.commands.serving",
        function="serve",
        heading=FEDERATIONS,
        examples=(
            "serve --certs certs --listen 0.0.0.0:50051 --env gridworld --agents 4 --out my-run",
            "serve --certs certs --sizes 8,4,10 --checkpoint kept --metrics 127.0.0.1:9464 --log-format json",
        ),
    ),
    Command(
        name="join",
        module="fed_ucbvi.network.commands.joining",
        function="join",
        heading=FEDERATIONS,
        examples=("join hub.example.org:50051 --certs certs --name clinic-a --env gridworld --agents 2",),
    ),
    Command(
        name="policy",
        module="fed_ucbvi.network.commands.joining",
        function="policy",
        heading=FEDERATIONS,
        examples=("policy hub.example.org:50051 --certs certs --name clinic-a --out policy.json",),
    ),
    Command(
        name="certs",
        module="fed_ucbvi.network.commands.certifying",
        function="certs",
        heading=FEDERATIONS,
        examples=("certs --out certs --server server --host hub.example.org --node clinic-a --node clinic-b",),
    ),
    Command(
        name="certs request",
        module="fed_ucbvi.network.commands.certifying",
        function="request",
        heading=FEDERATIONS,
        examples=("certs request clinic-c --out mine",),
    ),
    Command(
        name="certs sign",
        module="fed_ucbvi.network.commands.certifying",
        function="sign",
        heading=FEDERATIONS,
        examples=("certs sign mine/clinic-c.csr --out certs",),
    ),
)
"""All commands, in the order of help."""

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


def _program(commands: Iterable[Command], make: Callable[[Any], Any] = command) -> typer.Typer:
    """Return the program with these commands, each made by ``make``; only their modules are imported."""
    program = typer.Typer(cls=Program, context_settings={"help_option_names": ["-h", "--help"]}, **PLAIN)
    codes = ["Exit codes:"]
    codes += [f"{code}: {meaning}" for code, meaning in EXIT_CODES.items()]
    epilog = "\n\n".join([_paragraphs(FIRST), FURTHER, *codes])
    program.callback(invoke_without_command=True, epilog=epilog)(start)

    chosen = list(commands)
    with_subcommands = {one.group for one in chosen}
    groups: dict[str, typer.Typer] = {}
    for one in chosen:
        made = make(one.load())
        epilog = _paragraphs(one.examples)
        if one.group:
            groups[one.group].command(one.name.removeprefix(f"{one.group} "), epilog=epilog)(made)
        elif one.name in with_subcommands:
            groups[one.name] = typer.Typer(**PLAIN)
            groups[one.name].callback(invoke_without_command=True, epilog=epilog)(made)
            program.add_typer(groups[one.name], name=one.name, rich_help_panel=one.heading)
        else:
            program.command(one.name, epilog=epilog, rich_help_panel=one.heading)(made)
    return program


def __getattr__(name: str) -> Any:
    """``app``: the program with all commands, made on first use."""
    if name != "app":
        raise AttributeError(name)
    app = _program(COMMANDS)
    globals()["app"] = app
    return app


def _without_options(function: Callable[..., None]) -> Callable[[], None]:
    """A function with the same name and docstring, but without options, for the list of commands."""

    def listed() -> None: ...

    listed.__name__ = function.__name__
    listed.__doc__ = function.__doc__
    return listed


def main() -> None:
    """Run the program with the arguments of the process; only the requested command is imported."""
    Program.ends_process = True
    first = "".join(sys.argv[1:2])
    if first in ("--help", "-h", "--version"):
        program = _program(COMMANDS, _without_options)
    else:
        requested = [one for one in COMMANDS if first in (one.name, one.group)]
        program = _program(requested or COMMANDS)
    program(prog_name=PROGRAM)
