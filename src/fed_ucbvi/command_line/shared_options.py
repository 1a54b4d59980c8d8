"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fed_ucbvi.command_line.parameters import USUAL_AGENTS, whole_number

PROBLEM, ALGORITHM, NETWORK, FAULTS, OUTPUT = (
    "The problem",
    "The algorithm",
    "The network",
    "When things go wrong",
    "Running and results",
)


def environment_names() -> list[str]:
    """For shells to complete."""
    from fed_ucbvi.environments import REGISTRY

    return list(REGISTRY)


def _algorithms() -> list[str]:
    from fed_ucbvi.algorithms import REGISTRY

    return list(REGISTRY)


def _drivers() -> list[str]:
    from fed_ucbvi.engine.drivers import NAMES

    return list(NAMES)


def environment_flag(
    help: str = "A name of 'fed-ucbvi environments', a saved federation (.npz), or Python: module:attribute.",
    **more: Any,
) -> Any:
    """The option ``--env``; shells complete the names of environments after it."""
    what = "NAME|FILE|MODULE:ATTRIBUTE"
    return typer.Option("--env", metavar=what, help=help, autocompletion=environment_names, **more)


ALGORITHM_HELP = "A name of 'fed-ucbvi algorithms', or Python: module:attribute."


def algorithm_flag(help: str = ALGORITHM_HELP, **more: Any) -> Any:
    """The option ``--algorithm``; shells complete the names of algorithms after it."""
    return typer.Option(
        "--algorithm",
        metavar="NAME|MODULE:ATTRIBUTE",
        help=help,
        autocompletion=_algorithms,
        **more,
    )


EnvironmentName = Annotated[str, environment_flag(rich_help_panel=PROBLEM)]
Agents = Annotated[
    int | None,
    typer.Option(
        parser=whole_number,
        metavar="M",
        help="Number of agents.",
        show_default=f"{USUAL_AGENTS}, or as many as a federation of one's own has",
        rich_help_panel=PROBLEM,
    ),
]
Episodes = Annotated[
    int,
    typer.Option(parser=whole_number, metavar="T", help="Episodes per agent; 1e9 is fine.", rich_help_panel=PROBLEM),
]
EpsP = Annotated[float, typer.Option(metavar="X", help="Heterogeneity, from 0 to below 1.", rich_help_panel=PROBLEM)]
EnvSeed = Annotated[
    int, typer.Option(parser=whole_number, metavar="N", help="Seed of the agents' kernels.", rich_help_panel=PROBLEM)
]
EnvOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY=JSON",
        help=(
            "An option of the environment, as rows=5 or walls=[[1,1],[2,3]]; may be repeated. All of them take "
            "bernoulli_rewards=true: rewards are 1 or 0, with the same means."
        ),
        rich_help_panel=PROBLEM,
        show_default=False,
    ),
]
AlgorithmName = Annotated[str, algorithm_flag(rich_help_panel=ALGORITHM)]
DriverName = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="auto, counts, episodes or, on a GPU, cuda.",
        autocompletion=_drivers,
        rich_help_panel=OUTPUT,
    ),
]
AlgorithmOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY=VALUE",
        help="A parameter of the algorithm, as synchronisation=local; may be repeated.",
        rich_help_panel=ALGORITHM,
        show_default=False,
    ),
]
Seed = Annotated[
    int, typer.Option(parser=whole_number, metavar="N", help="Seed of the run.", rich_help_panel=ALGORITHM)
]

Certificates = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Folder with certificates ('fed-ucbvi certs').", rich_help_panel=NETWORK),
]
ServerAddress = Annotated[str, typer.Argument(metavar="HOST:PORT", help="The server.")]
NodeName = Annotated[
    str, typer.Option(metavar="NAME", help="This node; its certificate bears the name.", rich_help_panel=NETWORK)
]
ServerName = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="In the server's certificate, if not HOST.", rich_help_panel=NETWORK),
]
Insecure = Annotated[bool, typer.Option("--insecure", help="No TLS; on this machine only.", rich_help_panel=NETWORK)]
SecureSums = Annotated[
    bool,
    typer.Option(
        "--secure-sums", help="Nodes mask what they report: the server learns sums only.", rich_help_panel=NETWORK
    ),
]
Exchange = Annotated[
    str,
    typer.Option(
        metavar="HOW",
        help="steps (one question a step) or model (transition counts, asked for once a round).",
        rich_help_panel=NETWORK,
    ),
]
WarmStart = Annotated[
    Path | None,
    typer.Option(
        metavar="PATH",
        help="Start from the counts of an earlier run: a file of 'fed-ucbvi counts', or the run's checkpoint.",
        rich_help_panel=PROBLEM,
    ),
]
Out = Annotated[Path | None, typer.Option(metavar="DIR", help="Folder to save the run in.", rich_help_panel=OUTPUT)]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Replace an earlier run in --out.", rich_help_panel=OUTPUT)
]
Dashboard = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT", help="Serve a live page here; port 0 takes a free one.", rich_help_panel=OUTPUT
    ),
]
DashboardCert = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Serve the page by TLS with this certificate; its key lies beside it (.key).",
        rich_help_panel=OUTPUT,
    ),
]
DashboardToken = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Show the page to those who know the word in FILE.", rich_help_panel=OUTPUT),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.", rich_help_panel=OUTPUT)]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress and no summary.", rich_help_panel=OUTPUT)]
