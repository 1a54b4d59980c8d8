"""``fed-ucbvi compare``: every algorithm side by side, next to the theory's orders."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fed_ucbvi.command_line.parameters import USUAL_AGENTS, whole_number
from fed_ucbvi.command_line.shared_options import ALGORITHM_HELP, EnvOption, algorithm_flag, environment_flag


def compare(
    algorithms: Annotated[
        list[str] | None, algorithm_flag(f"Only this one; may be repeated. {ALGORITHM_HELP}")
    ] = None,
    env: Annotated[str | None, environment_flag(show_default="the paper's two, at its settings")] = None,
    env_option: EnvOption = None,
    agents: Annotated[
        int | None,
        typer.Option(
            parser=whole_number,
            metavar="M",
            help="Number of agents in --env.",
            show_default=f"{USUAL_AGENTS}, or as many as a federation of one's own has",
        ),
    ] = None,
    episodes: Annotated[
        int | None,
        typer.Option(parser=whole_number, metavar="T", help="Episodes per agent in --env.", show_default="30000"),
    ] = None,
    seeds: Annotated[int, typer.Option(parser=whole_number, metavar="N", help="Runs of each.")] = 5,
    out: Annotated[Path | None, typer.Option(metavar="FILE.md", help="Write the tables as Markdown.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Run every algorithm at the paper's settings, or in an environment, and tabulate regret, rounds and bytes."""
    import tempfile

    from fed_ucbvi.command_line.interruption import interruptible
    from fed_ucbvi.command_line.outputs import print_json, warn
    from fed_ucbvi.core.errors import InputError
    from fed_ucbvi.core.files import new_file
    from fed_ucbvi.engine.progress import progress_bar
    from fed_ucbvi.paper import table1
    from fed_ucbvi.paper.scale import Scale
    from fed_ucbvi.paper.traces import load_pairs
    from fed_ucbvi.sweeps.execution import run_sweep
    from fed_ucbvi.sweeps.specification import Sweep

    if algorithms:
        table1.check_names(algorithms)
    grids = table1.grids(Scale(seeds=seeds), algorithms or None)
    if env is not None:
        grids = _elsewhere(grids, env, env_option or (), agents, 30_000 if episodes is None else episodes)
    elif (agents, episodes, env_option) != (None, None, None):
        raise InputError("--agents, --episodes and --env-option need --env.")
    sweep = Sweep(name="compare", grids=grids)
    with tempfile.TemporaryDirectory() as folder:
        with interruptible(), progress_bar("runs") as report:
            outcome = run_sweep(sweep, Path(folder) / "sweep", report=report)
        summary = table1.tabulate(load_pairs(Path(folder) / "sweep", sweep.jobs()))
    if env is not None:
        summary["claims"] = []  # the orderings are reported of the paper's settings
    for id_, error in outcome.failed.items():
        warn(f"run {id_} failed: {error}")
    text = table1.markdown(summary)
    if out is not None:
        with new_file(out) as draft:
            draft.write_text(text, encoding="utf-8")
    if as_json:
        print_json(summary)
    elif out is None:
        typer.echo(text)
    else:
        typer.echo(f"saved in {out}")


def _elsewhere(
    grids: list[dict[str, Any]], env: str, texts: list[str] | tuple[()], agents: int | None, episodes: int
) -> list[dict[str, Any]]:
    """The grids of the paper's settings in another environment; it is drawn from each seed where it can be.

    Single-agent algorithms are left out where the environment cannot be had with one agent.
    """
    from fed_ucbvi.command_line.parameters import build_environment, environment_options
    from fed_ucbvi.core.errors import InputError
    from fed_ucbvi.environments import find_environment

    found, options = find_environment(env), environment_options(texts)
    M = build_environment(env, agents, 0.0, 0, texts).agents
    free = found.accepts("agents")
    changed = [
        {
            **grid,
            "environments": [{"name": env, **options}],
            "episodes": [episodes],
            "agents": [1 if grid["agents"] == [1] else M],
            "env_seed": "seed" if found.accepts("seed") else 0,
        }
        for grid in grids
        if free or M == 1 or grid["agents"] != [1]
    ]
    if not changed:
        raise InputError(f"{env} has {M} agents, and these algorithms are for one.")
    return changed
