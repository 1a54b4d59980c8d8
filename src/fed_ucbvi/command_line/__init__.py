"""The command line, ``fed-ucbvi``. Commands import what they need when they run, so that help comes at once."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Annotated, Any

import typer

from fed_ucbvi.command_line.options import command
from fed_ucbvi.command_line.program import EXIT_CODES, Program
from fed_ucbvi.core.own_process import claim_process
from fed_ucbvi.core.version import PROGRAM, __version__

EXAMPLES = {
    "running": """
        run --env gridworld --agents 20 --episodes 30000 --out my-run
        run --env riverswim --eps-p 0.1 --algorithm fedq-bernstein --json
        run --env-option rows=5 --option bonus=theory --checkpoint kept
        resume kept --out my-run
        resume kept --episodes 60000 --out my-longer-run
        counts kept --out counts.npz
        counts --from-logs log.csv --sizes 8,4,10 --over-all-steps --out counts.npz --plan policy.json
    """,
    "saved_runs": """
        show my-run
        show my-run --out my-run.pdf
        show sweep --format latex --columns group,mean,ratio
        play my-run --episodes 1 --render text
        play my-run --agent 3 --out my-run.gif
        act my-run --step 0 --state 3
        act policy.json --certs certs --step 0 --state 3
    """,
    "sweeping": """
        sweep examples/sweep.toml --out sweep
        sweep examples/sweep.toml --out sweep --resume
        reproduce --out results
        reproduce --quick --out quick
        report sweep
        compare --seeds 3 --out comparison.md
        leaderboard
        leaderboard --algorithm mine:Mine --store my-runs --out my-board
        leaderboard --again --store runs --out board
    """,
    "problems": """
        advise --states 21 --actions 6 --horizon 30 --agents 5
        advise --live CartPole-v1 --episodes 2000
        plan --env gridworld --eps-p 0.001
        inspect --env riverswim --agents 5 --eps-p 0.1 --plot agents.png
        environments
        environments --json
        algorithms
        algorithms fed-kl-ucbvi
        algorithms --json
        bins CartPole-v1 --horizon 200 --bins 6 --out bins.json
    """,
    "federation": """
        federate --nodes 4
        federate --nodes 2 --env synthetic --episodes 1000 --out my-run
        serve --certs certs --listen 0.0.0.0:50051 --env gridworld --agents 4 --out my-run
        serve --certs certs --sizes 8,4,10 --checkpoint kept --metrics 127.0.0.1:9464 --log-format json
        replay kept
        transcript show kept
        transcript verify kept clinic-a --certs certs
    """,
    "nodes": """
        join hub.example.org:50051 --certs certs --name clinic-a --env gridworld --agents 2
        leave hub.example.org:50051 --certs certs --name clinic-a
        policy hub.example.org:50051 --certs certs --name clinic-a --out policy.json
        certs --out certs --server server --host hub.example.org --node clinic-a --node clinic-b
        certs request clinic-c --out mine
        certs sign mine/clinic-c.csr --out certs
    """,
}
"""By module: examples of its commands, in the order of help."""
COMMANDS = {line.split()[0]: module for module, text in EXAMPLES.items() for line in text.strip().splitlines()}
FIRST = ("run --episodes 3000", "run --episodes 3000 --out my-run", "show my-run", "environments")
"""Examples for the help of the program itself."""
FURTHER = """Every command has examples in its own help: fed-ucbvi COMMAND --help

Your shell completes commands, options and names after: fed-ucbvi --install-completion"""
PLAIN: dict[str, Any] = {"pretty_exceptions_enable": False}


def examples(command: str) -> list[str]:
    """The examples of a command or a subcommand (``certs sign``)."""
    lines = map(str.strip, EXAMPLES[COMMANDS[command.split()[0]]].splitlines())
    return [line for line in lines if f"{line} ".startswith(f"{command} ")]


def _paragraphs(examples: Iterable[str]) -> str:
    """Empty lines make Typer begin a new line."""
    return "\n\n".join(["Examples:", *(f"fed-ucbvi {words}" for words in examples)])


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
    """The program with these commands, each made by ``make``; nothing else is imported."""
    program = typer.Typer(cls=Program, context_settings={"help_option_names": ["-h", "--help"]}, **PLAIN)
    codes = "\n\n".join(["Exit codes:", *(f"{code}: {meaning}" for code, meaning in EXIT_CODES.items())])
    program.callback(invoke_without_command=True, epilog=f"{_paragraphs(FIRST)}\n\n{FURTHER}\n\n{codes}")(start)
    for name in names:
        module = import_module(f"{__name__}.{COMMANDS[name]}")
        made = make(getattr(module, name))
        if name == "certs":
            group = typer.Typer(**PLAIN)
            group.callback(invoke_without_command=True, epilog=_paragraphs(examples(name)))(made)
            for part in (module.request, module.sign):
                group.command(epilog=_paragraphs(examples(f"{name} {part.__name__}")))(make(part))
            program.add_typer(group, name=name)
        else:
            program.command(epilog=_paragraphs(examples(name)))(made)
    return program


def __getattr__(name: str) -> Any:
    """``app``: the program with all commands, made on first use."""
    if name != "app":
        raise AttributeError(name)
    globals()["app"] = app = _program(COMMANDS)
    return app


def _named(function: Callable[..., None]) -> Callable[[], None]:

    def listed() -> None: ...

    listed.__name__, listed.__doc__ = function.__name__, function.__doc__
    return listed


def main() -> None:
    """Run the program with the arguments of the process; only the requested command is registered."""
    claim_process()
    first = sys.argv[1:2]
    if first in (["--help"], ["-h"], ["--version"]):
        program = _program(COMMANDS, _named)
    else:
        program = _program([name for name in first if name in COMMANDS] or COMMANDS)
    program(prog_name=PROGRAM)
