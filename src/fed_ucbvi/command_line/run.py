"""``fed-ucbvi run``: one run of one algorithm on one environment."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fed_ucbvi.command_line.parameters import whole_number
from fed_ucbvi.command_line.shared_options import (
    ALGORITHM,
    OUTPUT,
    PROBLEM,
    Agents,
    AlgorithmName,
    AlgorithmOption,
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
)


def run(
    env: EnvironmentName = "gridworld",
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
    algorithm: AlgorithmName = "fed-ucbvi",
    option: AlgorithmOption = None,
    bonus: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="practical, theory or corrected.", rich_help_panel=ALGORITHM),
    ] = None,
    bonus_scale: Annotated[
        str | None, typer.Option(metavar="X", help="Factor on the bonus.", rich_help_panel=ALGORITHM)
    ] = None,
    aggregation: Annotated[
        str | None, typer.Option(metavar="NAME", help="weighted or uniform.", rich_help_panel=ALGORITHM)
    ] = None,
    synchronisation: Annotated[
        str | None, typer.Option(metavar="NAME", help="mixture, local or global.", rich_help_panel=ALGORITHM)
    ] = None,
    nu: Annotated[
        str | None,
        typer.Option(metavar="X", help="Threshold between the two rules.", rich_help_panel=ALGORITHM),
    ] = None,
    strict: Annotated[
        bool | None,
        typer.Option("--strict/--no-strict", help="Compare with > instead of >=.", rich_help_panel=ALGORITHM),
    ] = None,
    clip: Annotated[
        str | None, typer.Option(metavar="NAME", help="horizon or remaining.", rich_help_panel=ALGORITHM)
    ] = None,
    delta: Annotated[
        str | None, typer.Option(metavar="X", help="Failure probability.", rich_help_panel=ALGORITHM)
    ] = None,
    initial_policy: Annotated[
        str | None, typer.Option(metavar="NAME", help="random or first.", rich_help_panel=ALGORITHM)
    ] = None,
    ties: Annotated[
        str | None, typer.Option(metavar="NAME", help="first or random.", rich_help_panel=ALGORITHM)
    ] = None,
    seed: Seed = 0,
    driver: Annotated[
        str, typer.Option(metavar="NAME", help="auto, counts or episodes.", rich_help_panel=OUTPUT)
    ] = "auto",
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
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run a federated algorithm and print its regret and communication.

    Ctrl-C ends the run early; with --out the result so far is saved.
    """
    from fed_ucbvi.command_line.interruption import interruptible
    from fed_ucbvi.command_line.outputs import check_apart, check_checkpoint, check_out, finish, plain_warnings
    from fed_ucbvi.command_line.parameters import build_algorithm, build_environment
    from fed_ucbvi.results.storage import FORMAT
    from fed_ucbvi.simulation import Interrupted
    from fed_ucbvi.simulation import run as simulate

    flags = {
        "bonus": bonus,
        "bonus_scale": bonus_scale,
        "aggregation": aggregation,
        "synchronisation": synchronisation,
        "nu": nu,
        "strict": strict,
        "clip": clip,
        "delta": delta,
        "initial_policy": initial_policy,
        "ties": ties,
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
    with interruptible() as interruption, plain_warnings():
        try:
            result = simulate(
                chosen,
                federation,
                episodes,
                seed=seed,
                driver=driver,
                progress=not quiet,
                checkpoint=checkpoint,
                checkpoint_every=checkpoint_every,
            )
        except Interrupted as stop:
            result = stop.partial
        interruption.saving()
        finish(result, out=out, overwrite=overwrite, as_json=as_json, quiet=quiet, checkpoint=checkpoint)
