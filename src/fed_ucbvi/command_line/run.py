"""``fed-ucbvi run``: one run of one algorithm on one environment."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer

from fed_ucbvi.command_line.parameters import whole_number
from fed_ucbvi.command_line.shared_options import (
    ALGORITHM,
    OUTPUT,
    PROBLEM,
    Agents,
    AlgorithmName,
    AlgorithmOption,
    Dashboard,
    DashboardCert,
    DashboardToken,
    DriverName,
    EnvironmentName,
    EnvOption,
    EnvSeed,
    Episodes,
    EpsP,
    Json,
    Out,
    Overwrite,
    Quiet,
    Seed,
    WarmStart,
)
from fed_ucbvi.command_line.tracking import Track, TrackEvery
from fed_ucbvi.core import defaults

CLUSTER = "Cluster"
"""The panel of options for runs on several machines."""


def algorithm_flag(metavar: str, help: str, default: str) -> Any:
    """A flag that an algorithm may or may not know; the default shown is Fed-UCBVI's."""
    return typer.Option(metavar=metavar, help=help, show_default=default, rich_help_panel=ALGORITHM)


def run(
    env: EnvironmentName = defaults.ENVIRONMENT,
    agents: Agents = None,
    episodes: Episodes = 30_000,
    eps_p: EpsP = 0.0,
    env_seed: EnvSeed = 0,
    env_option: EnvOption = None,
    liars: Annotated[
        float, typer.Option(metavar="X", help="Fraction of the agents that lie.", rich_help_panel=PROBLEM)
    ] = 0.0,
    attack: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="What liars do: random, flip, inflate, collude, mimic, counts, silent or spam.",
            rich_help_panel=PROBLEM,
        ),
    ] = "random",
    algorithm: AlgorithmName = defaults.ALGORITHM,
    option: AlgorithmOption = None,
    bonus: Annotated[str | None, algorithm_flag("NAME", "practical, theory or corrected.", "practical")] = None,
    bonus_scale: Annotated[str | None, algorithm_flag("X", "Factor on the bonus.", "1")] = None,
    aggregation: Annotated[str | None, algorithm_flag("NAME", "weighted or uniform.", "weighted")] = None,
    synchronisation: Annotated[str | None, algorithm_flag("NAME", "mixture, local or global.", "mixture")] = None,
    nu: Annotated[str | None, algorithm_flag("X", "Threshold between the two rules.", "from the theory")] = None,
    strict: Annotated[
        bool | None,
        typer.Option(
            "--strict/--no-strict",
            help="Compare with > instead of >=.",
            show_default="no-strict",
            rich_help_panel=ALGORITHM,
        ),
    ] = None,
    delta: Annotated[str | None, algorithm_flag("X", "Failure probability.", "0.05")] = None,
    initial_policy: Annotated[str | None, algorithm_flag("NAME", "random or first.", "random")] = None,
    ties: Annotated[str | None, algorithm_flag("NAME", "first or random.", "first")] = None,
    radius: Annotated[
        str | None, algorithm_flag("X", "Factor on the radius of Fed-KL-UCBVI's ball; 1 is proved.", "1")
    ] = None,
    stationary: Annotated[
        bool | None,
        typer.Option(
            "--stationary/--no-stationary",
            help="Count visits over all steps together; kernel and rewards must not depend on the step.",
            show_default="no-stationary",
            rich_help_panel=ALGORITHM,
        ),
    ] = None,
    min_round_growth: Annotated[
        str | None, algorithm_flag("X", "Share of the episodes so far that a round lasts at least.", "0")
    ] = None,
    seed: Seed = 0,
    warm_start: WarmStart = None,
    driver: DriverName = "auto",
    fleets: Annotated[
        str,
        typer.Option(metavar="NAME", help="Where the agents are: local or, as actors, ray.", rich_help_panel=CLUSTER),
    ] = "local",
    address: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Of a Ray cluster.",
            show_default="Ray is started on this machine",
            rich_help_panel=CLUSTER,
        ),
    ] = None,
    fleet_count: Annotated[
        int | None,
        typer.Option(
            parser=whole_number,
            metavar="N",
            help="Into how many fleets the agents are split on Ray.",
            show_default="one a core",
            rich_help_panel=CLUSTER,
        ),
    ] = None,
    out: Out = None,
    overwrite: Overwrite = False,
    checkpoint: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder to keep the state in, for 'resume'.", rich_help_panel=OUTPUT),
    ] = None,
    checkpoint_every: Annotated[
        int,
        typer.Option(
            parser=whole_number, metavar="K", help="Rounds between two checkpoints.", rich_help_panel=OUTPUT
        ),
    ] = 100,
    track: Track = None,
    track_every: TrackEvery = 1,
    dashboard: Dashboard = None,
    dashboard_cert: DashboardCert = None,
    dashboard_token: DashboardToken = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run a federated algorithm and print its regret and communication.

    With --fleets ray the agents are on a Ray cluster; the result is that of --driver episodes, bit for bit.
    Ctrl-C ends the run early; with --out the result so far is saved. Defaults of the algorithm's flags are those of
    Fed-UCBVI; 'fed-ucbvi algorithms' lists the others'.
    """
    from fed_ucbvi.core import second_process

    if driver == "auto" and fleets == "local":
        second_process.start("fed_ucbvi.engine.compile_rounds", "counts._collect")
    from fed_ucbvi.command_line.counts import counts_at
    from fed_ucbvi.command_line.interruption import interruptible
    from fed_ucbvi.command_line.live_page import PageOptions, page_of_run
    from fed_ucbvi.command_line.outputs import (
        check_apart,
        check_checkpoint,
        check_out,
        finish,
        others_on_standard_error,
        plain_warnings,
    )
    from fed_ucbvi.command_line.parameters import build_algorithm, build_environment
    from fed_ucbvi.command_line.tracking import tracking
    from fed_ucbvi.engine.running import run as simulate
    from fed_ucbvi.engine.simulation import Interrupted
    from fed_ucbvi.results.round_record import together
    from fed_ucbvi.results.storage import FORMAT

    flags = {
        "bonus": bonus,
        "bonus_scale": bonus_scale,
        "aggregation": aggregation,
        "synchronisation": synchronisation,
        "nu": nu,
        "strict": strict,
        "delta": delta,
        "initial_policy": initial_policy,
        "ties": ties,
        "radius": radius,
        "stationary": stationary,
        "min_round_growth": min_round_growth,
    }
    chosen = build_algorithm(algorithm, flags, option or ())
    if out is not None:
        check_out(out, overwrite=overwrite, kind=FORMAT)
    if checkpoint is not None:
        check_checkpoint(checkpoint)
    if out is not None and checkpoint is not None:
        check_apart(out, checkpoint)
    federation = build_environment(env, agents, eps_p, env_seed, env_option or ())
    if liars:
        federation = federation.with_liars(liars, attack, env_seed)
    page_options = PageOptions(dashboard, dashboard_cert, dashboard_token)
    with (
        interruptible() as interruption,
        plain_warnings(),
        tracking(track or (), track_every) as trackers,
        page_of_run(page_options, chosen, federation) as page,
    ):
        try:
            with others_on_standard_error() if fleets == "ray" else nullcontext():
                result = simulate(
                    chosen,
                    federation,
                    episodes,
                    seed=seed,
                    driver=driver,
                    fleets=fleets,
                    address=address,
                    fleet_count=fleet_count,
                    progress=not quiet,
                    on_round=together(page.on_round, trackers.on_round if track else None),
                    checkpoint=checkpoint,
                    checkpoint_every=checkpoint_every,
                    warm_start=None if warm_start is None else counts_at(warm_start),
                )
        except Interrupted as stop:
            result = stop.partial
        interruption.saving()
        trackers.finish(result)
        page.finish(result)
        finish(result, out=out, overwrite=overwrite, as_json=as_json, quiet=quiet, checkpoint=checkpoint)
