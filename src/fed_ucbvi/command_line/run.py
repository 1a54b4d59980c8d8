"""``fed-ucbvi run``: one run of one algorithm on one environment."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fed_ucbvi.command_line.parameters import whole_number

PROBLEM, ALGORITHM, OUTPUT = "The problem", "The algorithm", "Running and results"


def run(
    env: Annotated[
        str, typer.Option(metavar="NAME", help="See 'fed-ucbvi environments'.", rich_help_panel=PROBLEM)
    ] = "gridworld",
    agents: Annotated[
        int, typer.Option(parser=whole_number, metavar="M", help="Number of agents.", rich_help_panel=PROBLEM)
    ] = 20,
    episodes: Annotated[
        int,
        typer.Option(
            parser=whole_number, metavar="T", help="Episodes per agent; 1e9 is fine.", rich_help_panel=PROBLEM
        ),
    ] = 30_000,
    eps_p: Annotated[
        float, typer.Option(metavar="X", help="Heterogeneity, from 0 to below 1.", rich_help_panel=PROBLEM)
    ] = 0.0,
    env_seed: Annotated[
        int,
        typer.Option(parser=whole_number, metavar="N", help="Seed of the agents' kernels.", rich_help_panel=PROBLEM),
    ] = 0,
    env_option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=JSON",
            help="An option of the environment, as rows=5 or walls=[[1,1],[2,3]]; may be repeated.",
            rich_help_panel=PROBLEM,
            show_default=False,
        ),
    ] = None,
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
    algorithm: Annotated[
        str, typer.Option(metavar="NAME", help="See 'fed-ucbvi algorithms'.", rich_help_panel=ALGORITHM)
    ] = "fed-ucbvi",
    option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="Any parameter of the algorithm, as nu=500; may be repeated. The flags below are short for some.",
            rich_help_panel=ALGORITHM,
            show_default=False,
        ),
    ] = None,
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
    seed: Annotated[
        int, typer.Option(parser=whole_number, metavar="N", help="Seed of the run.", rich_help_panel=OUTPUT)
    ] = 0,
    driver: Annotated[
        str, typer.Option(metavar="NAME", help="auto, counts or episodes.", rich_help_panel=OUTPUT)
    ] = "auto",
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder to save the run in.", rich_help_panel=OUTPUT)
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace an earlier run in --out.", rich_help_panel=OUTPUT)
    ] = False,
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
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.", rich_help_panel=OUTPUT)] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", help="No progress bar and no summary.", rich_help_panel=OUTPUT)
    ] = False,
) -> None:
    """Run a federated algorithm and print its regret and communication.

    Ctrl-C ends the run early; with --out the result so far is saved.
    """
    from fed_ucbvi.algorithms import make_algorithm
    from fed_ucbvi.command_line.interruption import interruptible
    from fed_ucbvi.command_line.outputs import check_apart, check_checkpoint, check_out, finish, plain_warnings
    from fed_ucbvi.command_line.parameters import algorithm_options, build_environment
    from fed_ucbvi.results.run import FORMAT
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
    chosen = make_algorithm(algorithm, algorithm_options(algorithm, flags, option or ()))
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
