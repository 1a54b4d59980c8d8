"""``fed-ucbvi bins``: bins by which all nodes make real environments finite."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import fed_ucbvi
from fed_ucbvi.command_line.flags import OUTPUT, pairs
from fed_ucbvi.command_line.options import JSON, REAL, LiveOptions, argument, fields, option
from fed_ucbvi.command_line.outputs import print_table
from fed_ucbvi.core.errors import check_choice, check_integer
from fed_ucbvi.core.parameters import whole_number

BINS = "Bins"


def bins(
    real: LiveOptions = fields("live_kwargs horizon reward_range"),
    live: str = argument(
        "ID|MODULE:FUNCTION",
        "The environment: a Gymnasium id, or a function of the agent's number.",
    ),
    out: Path = option(..., "FILE", "Where to write the bins.", panel=OUTPUT),
    agent: int = option(0, "I", "Whose environment to try.", panel=REAL),
    episodes: int = option(20, "N", "Episodes with random actions.", panel=BINS),
    bins: int = option(8, "N", "Bins of a continuous dimension.", panel=BINS),
    bins_of: list[str] | None = option(
        None,
        "NAME=N",
        "Another number for one dimension; may be repeated.",
        panel=BINS,
    ),
    values: int = option(5, "N", "Values of a continuous action.", panel=BINS),
    margin: float = option(
        0.25,
        "X",
        "Widen the observed range of rewards by this part of it, on either side.",
        panel=BINS,
    ),
    seed: int = option(0, "N", "Seed of environment and actions.", panel=BINS),
    as_json: bool = JSON,
) -> None:
    """Learn bins from a few episodes with random actions; 'serve --bins' hands them out to all nodes."""
    from fed_ucbvi.environments.finite_spaces import dimensions_of
    from fed_ucbvi.environments.gymnasium_making import make_live

    chosen = replace(real, live=live)
    env = make_live(chosen.maker(), check_integer("agent", agent))
    try:
        usual = {one.name: bins for one in dimensions_of(env.observation_space) if not one.count}
        others = {name: whole_number(name, text) for name, text in pairs("--bins-of", bins_of or ()).items()}
        for name in others:
            check_choice("continuous dimension", name, usual)
        learnt = fed_ucbvi.learn_bins(
            env,
            episodes=episodes,
            bins_per_dimension={**usual, **others},
            actions_per_dimension=values,
            horizon=real.horizon,
            reward_range=chosen.rewards(),
            margin=margin,
            seed=seed,
        )
    finally:
        env.close()
    learnt.save(out)
    S = learnt.states + 1
    A = learnt.number_of_actions
    H = learnt.horizon
    about = {"states": S, "actions": A, "horizon": H, "digest": learnt.digest, "file": str(out)}
    rows = [(one.name, f"{one.count} bins or values") for one in learnt.observations]
    rows += [(f"action {one.name}", f"{one.count} values") for one in learnt.actions]
    if learnt.reward_range is not None:
        low, high = learnt.reward_range
        known = "observed, with a margin; others count as the nearer end" if learnt.clips else "others are an error"
        rows.append(("rewards", f"{low:.6g} to {high:.6g} ({known})"))
    rows += [("digest", learnt.digest[:16]), ("written to", str(out))]
    title = f"{live}: S = {S:,} (the last for what terminates), A = {A:,}, H = {H:,}"
    print_table(as_json, {**json.loads(learnt.text), **about}, title, rows)
