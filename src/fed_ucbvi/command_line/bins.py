"""``fed-ucbvi bins``: make the spaces of an environment finite, once for all nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fed_ucbvi.command_line.live_options import REAL, Horizon, LiveKwargs, RewardRange, live_source
from fed_ucbvi.command_line.parameters import whole_number
from fed_ucbvi.command_line.shared_options import OUTPUT, Json

BINS = "Bins"


def bins(
    live: Annotated[
        str,
        typer.Argument(
            metavar="ID|MODULE:FUNCTION", help="The environment: a Gymnasium id, or a function of the agent's number."
        ),
    ],
    out: Annotated[Path, typer.Option(metavar="FILE", help="Where to write the bins.", rich_help_panel=OUTPUT)],
    live_kwargs: LiveKwargs = None,
    agent: Annotated[
        int, typer.Option(parser=whole_number, metavar="I", help="Whose environment to try.", rich_help_panel=REAL)
    ] = 0,
    horizon: Horizon = None,
    reward_range: RewardRange = None,
    episodes: Annotated[
        int,
        typer.Option(parser=whole_number, metavar="N", help="Episodes with random actions.", rich_help_panel=BINS),
    ] = 20,
    bins: Annotated[
        int,
        typer.Option(parser=whole_number, metavar="N", help="Bins of a continuous dimension.", rich_help_panel=BINS),
    ] = 8,
    bins_of: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=N",
            help="Another number for one dimension; may be repeated.",
            rich_help_panel=BINS,
            show_default=False,
        ),
    ] = None,
    values: Annotated[
        int,
        typer.Option(parser=whole_number, metavar="N", help="Values of a continuous action.", rich_help_panel=BINS),
    ] = 5,
    margin: Annotated[
        float,
        typer.Option(
            metavar="X",
            help="Widen the observed range of rewards by this part of it, on either side.",
            rich_help_panel=BINS,
        ),
    ] = 0.25,
    seed: Annotated[
        int,
        typer.Option(parser=whole_number, metavar="N", help="Of environment and actions.", rich_help_panel=BINS),
    ] = 0,
    as_json: Json = False,
) -> None:
    """Learn bins from a few episodes with random actions; 'serve --bins' hands them out to all nodes."""
    import json

    from fed_ucbvi.command_line.outputs import print_json, print_rows
    from fed_ucbvi.command_line.parameters import pairs
    from fed_ucbvi.environments.bin_learning import learn_bins
    from fed_ucbvi.environments.finite_spaces import dimensions_of
    from fed_ucbvi.environments.gymnasium_making import make_live

    source = live_source(live, live_kwargs, reward_range, horizon)
    env = make_live(source.make, agent)
    try:
        usual = {one.name: bins for one in dimensions_of(env.observation_space) if not one.count}
        others = {name: whole_number(text) for name, text in pairs("--bins-of", bins_of or ()).items()}
        learnt = learn_bins(
            env,
            episodes=episodes,
            bins_per_dimension={**usual, **others},
            actions_per_dimension=values,
            horizon=horizon,
            reward_range=source.reward_range,
            margin=margin,
            seed=seed,
        )
    finally:
        env.close()
    learnt.save(out)
    S, A, H = learnt.states + 1, learnt.number_of_actions, learnt.horizon
    if as_json:
        about = {"states": S, "actions": A, "horizon": H, "digest": learnt.digest, "file": str(out)}
        print_json({**json.loads(learnt.text), **about})
        return
    rows = [(one.name, f"{one.count} bins or values") for one in learnt.observations]
    rows += [(f"action {one.name}", f"{one.count} values") for one in learnt.actions]
    if learnt.reward_range is not None:
        low, high = learnt.reward_range
        rows.append(("rewards", f"{low:.6g} to {high:.6g} (observed, with a margin; others count as the nearer end)"))
    rows += [("digest", learnt.digest[:16]), ("written to", str(out))]
    print_rows(f"{live}: S = {S:,} (the last for what terminates), A = {A:,}, H = {H:,}", rows)
