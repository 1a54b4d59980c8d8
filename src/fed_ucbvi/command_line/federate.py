"""``fed-ucbvi federate``: a whole federation on this machine, every party a process of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fed_ucbvi.command_line.parameters import whole_number
from fed_ucbvi.command_line.shared_options import (
    NETWORK,
    OUTPUT,
    PROBLEM,
    AlgorithmName,
    AlgorithmOption,
    Dashboard,
    DashboardCert,
    DashboardToken,
    EnvironmentName,
    EnvOption,
    EnvSeed,
    Episodes,
    EpsP,
    Exchange,
    Json,
    Out,
    Overwrite,
    Quiet,
    SecureSums,
    Seed,
)
from fed_ucbvi.command_line.standard_error import TEXT, LogFormat, write_log
from fed_ucbvi.core import defaults


def federate(
    nodes: Annotated[
        int, typer.Option(parser=whole_number, metavar="N", help="Nodes, each a process.", rich_help_panel=NETWORK)
    ] = 4,
    agents: Annotated[
        int | None,
        typer.Option(
            parser=whole_number,
            metavar="M",
            help="Agents on all of them.",
            show_default="one each, or as many as a federation of one's own has",
            rich_help_panel=PROBLEM,
        ),
    ] = None,
    env: EnvironmentName = defaults.ENVIRONMENT,
    episodes: Episodes = 30_000,
    eps_p: EpsP = 0.0,
    env_seed: EnvSeed = 0,
    env_option: EnvOption = None,
    algorithm: AlgorithmName = defaults.ALGORITHM,
    option: AlgorithmOption = None,
    seed: Seed = 0,
    secure_sums: SecureSums = False,
    exchange: Exchange = "steps",
    folder: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Keep certificates, checkpoint and states here; the same command goes on from there.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    log_format: LogFormat = TEXT,
    out: Out = None,
    overwrite: Overwrite = False,
    dashboard: Dashboard = None,
    dashboard_cert: DashboardCert = None,
    dashboard_token: DashboardToken = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Start a server and nodes on this machine, with certificates made for the occasion, and show the run."""
    import logging

    write_log(log_format, logging.WARNING)
    from fed_ucbvi.command_line.interruption import interruptible
    from fed_ucbvi.command_line.live_page import PageOptions
    from fed_ucbvi.command_line.parameters import build_environment
    from fed_ucbvi.network.local import run_locally, work_folder

    if agents is None:
        agents = build_environment(env, None, eps_p, env_seed, env_option or (), usual=nodes).agents
    problem = ["--env", env, "--eps-p", repr(eps_p), "--env-seed", str(env_seed)]
    for text in env_option or ():
        problem += ["--env-option", text]
    rest = ["--episodes", str(episodes), "--algorithm", algorithm, "--seed", str(seed)]
    for text in option or ():
        rest += ["--option", text]
    if out is not None:
        rest += ["--out", str(out)]
    rest += ["--exchange", exchange, *PageOptions(dashboard, dashboard_cert, dashboard_token).arguments()]
    switches = (("--overwrite", overwrite), ("--json", as_json), ("--quiet", quiet), ("--secure-sums", secure_sums))
    for flag, wanted in switches:
        rest += [flag] if wanted else []
    rest += ["--log-format", log_format]
    own = ["--algorithm", algorithm, "--send-trajectories", "--share-counts", "--log-format", log_format]
    own += ["--require-secure-sums"] if secure_sums else []
    with interruptible(), work_folder(folder) as place:
        code = run_locally(
            place,
            agents=agents,
            nodes=nodes,
            server_arguments=[*problem, *rest],
            node_arguments=[*problem, *own],
        )
    if code:
        raise typer.Exit(code if code > 0 else 128 - code)  # a server that was killed, as a shell tells it
