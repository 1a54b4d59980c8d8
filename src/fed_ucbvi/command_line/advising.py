"""``fed-ucbvi advise``: an algorithm and its parameters for a problem."""

from __future__ import annotations

from dataclasses import asdict

import fed_ucbvi
from fed_ucbvi.command_line.flags import PROBLEM
from fed_ucbvi.command_line.options import JSON, REAL, LiveOptions, fields, option
from fed_ucbvi.command_line.outputs import print_table
from fed_ucbvi.command_line.sizes import ACTIONS, STATES, federation_of
from fed_ucbvi.core.errors import InputError, check_integer
from fed_ucbvi.specifications.problem import AGENTS, ProblemSpec


def advise(
    problem: ProblemSpec = fields("environment environment_options eps_p agents"),
    real: LiveOptions = fields(
        "live live_kwargs horizon",
        live={"help": "Or a real environment to try: a Gymnasium id, or a function of the agent's number."},
    ),
    states: int | None = STATES,
    actions: int | None = ACTIONS,
    episodes: int | None = option(
        None,
        "T",
        "Episodes that each agent can play, if that is given.",
        panel=PROBLEM,
    ),
    stationary: bool = option(
        False,
        "",
        "Next states and rewards do not depend on the step, as you know.",
        panel=PROBLEM,
    ),
    agent: int = option(0, "I", "Number of the agent whose environment to try.", panel=REAL),
    sample: int = option(30, "N", "Episodes with random actions in it.", panel=REAL),
    seed: int = option(0, "N", "Seed of these episodes.", panel=REAL),
    as_json: bool = JSON,
) -> None:
    """Recommend an algorithm, how it counts visits, and numbers of bins and episodes, with the reasons."""
    from fed_ucbvi.environments.gymnasium_making import make_live

    if problem.environment is not None and real.live is not None:
        raise InputError("pass either --env (tables) or --live (an environment to try).")
    if real.live is None and real.live_kwargs is not None:
        raise InputError("--live-kwargs needs --live.")
    if problem.environment is None and problem.eps_p:
        raise InputError("--eps-p needs --env.")
    federation = federation_of(problem)
    make = None if real.live is None else real.maker()
    tried = None if make is None else make_live(make, check_integer("agent", agent))
    try:
        advice = fed_ucbvi.choose_parameters(
            federation or tried,
            states=states,
            actions=actions,
            horizon=real.horizon,
            agents=problem.agents or AGENTS,
            episodes=episodes,
            stationary=stationary,
            sample_episodes=sample,
            seed=seed,
        )
    finally:
        if tried is not None:
            tried.close()
    options = " ".join(f"--option {name}={str(value).lower()}" for name, value in advice.options.items())
    rows = [
        ("run", f"--algorithm {advice.algorithm} {options}".strip()),
        ("episodes", f"{advice.episodes:,} for each agent"),
    ]
    if advice.problem.bins is not None:
        rows.append(("bins", f"{advice.problem.bins} for each continuous dimension ('fed-ucbvi bins')"))
    if advice.problem.warning is not None:
        rows.append(("warning", advice.problem.warning))
    for number, reason in enumerate(advice.reasons):
        rows.append(("because" if number == 0 else "", reason))
    advised = advice.problem
    sizes = f"S = {advised.states:,}, A = {advised.actions:,}, H = {advised.horizon:,}, M = {advised.agents:,}"
    print_table(as_json, asdict(advice), f"Advice for {sizes}", rows)
