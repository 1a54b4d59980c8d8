"""``fed-ucbvi advise``: which algorithm, which options, how many bins and episodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fed_ucbvi.command_line.live_options import REAL, Horizon, LiveKwargs, live_source
from fed_ucbvi.command_line.parameters import USUAL_AGENTS, whole_number
from fed_ucbvi.command_line.shared_options import PROBLEM, EnvOption, EpsP, Json, environment_flag

if TYPE_CHECKING:
    from fed_ucbvi.analysis.advise import Advice


def advise(
    env: Annotated[str | None, environment_flag(rich_help_panel=PROBLEM)] = None,
    env_option: EnvOption = None,
    eps_p: EpsP = 0.0,
    states: Annotated[
        int | None,
        typer.Option(parser=whole_number, metavar="S", help="Or just sizes: states.", rich_help_panel=PROBLEM),
    ] = None,
    actions: Annotated[
        int | None, typer.Option(parser=whole_number, metavar="A", help="Actions.", rich_help_panel=PROBLEM)
    ] = None,
    agents: Annotated[
        int | None,
        typer.Option(
            parser=whole_number,
            metavar="M",
            help="Number of agents.",
            show_default=f"{USUAL_AGENTS}, or as many as a federation of one's own has",
            rich_help_panel=PROBLEM,
        ),
    ] = None,
    episodes: Annotated[
        int | None,
        typer.Option(
            parser=whole_number,
            metavar="T",
            help="Episodes that each agent can play, if that is given.",
            rich_help_panel=PROBLEM,
        ),
    ] = None,
    live: Annotated[
        str | None,
        typer.Option(
            metavar="ID|MODULE:FUNCTION",
            help="Or a real environment to try: a Gymnasium id, or a function of the agent's number.",
            rich_help_panel=REAL,
        ),
    ] = None,
    live_kwargs: LiveKwargs = None,
    agent: Annotated[
        list[int] | None,
        typer.Option(
            parser=whole_number,
            metavar="I",
            help="Whose environment to try; may be repeated, to see whether they differ.",
            show_default="the first and the last",
            rich_help_panel=REAL,
        ),
    ] = None,
    horizon: Horizon = None,
    sample: Annotated[
        int,
        typer.Option(
            parser=whole_number, metavar="N", help="Episodes with random actions in each.", rich_help_panel=REAL
        ),
    ] = 30,
    seed: Annotated[
        int, typer.Option(parser=whole_number, metavar="N", help="Of these episodes.", rich_help_panel=REAL)
    ] = 0,
    as_json: Json = False,
) -> None:
    """Recommend an algorithm, its options, and numbers of bins and episodes, with the reasons."""
    from fed_ucbvi.analysis.advise import choose_parameters
    from fed_ucbvi.command_line.outputs import print_json, print_rows
    from fed_ucbvi.command_line.parameters import build_environment
    from fed_ucbvi.core.errors import InputError
    from fed_ucbvi.environments.gymnasium_making import make_live

    if env is not None and live is not None:
        raise InputError("say either --env (tables) or --live (an environment to try).")
    if env is None and (env_option or eps_p):
        raise InputError("--env-option and --eps-p need --env.")
    if live is None and live_kwargs is not None:
        raise InputError("--live-kwargs needs --live.")
    if env is not None:
        if (states, actions, horizon) != (None, None, None):
            raise InputError("--env brings its sizes along; leave out --states, --actions and --horizon.")
        federation = build_environment(env, agents, eps_p, 0, env_option or ())
        advice = choose_parameters(federation, episodes=episodes, seed=seed)
    else:
        M = USUAL_AGENTS if agents is None else agents
        make = None if live is None else live_source(live, live_kwargs, None, horizon).make
        tried = [] if make is None else [make_live(make, i) for i in agent or sorted({0, M - 1})]
        try:
            advice = choose_parameters(
                tried or None,
                states=states,
                actions=actions,
                horizon=horizon,
                agents=M,
                episodes=episodes,
                sample_episodes=sample,
                seed=seed,
            )
        finally:
            for one in tried:
                one.close()
    if as_json:
        print_json(advice.summary())
    else:
        print_rows(*_rows(advice))


def _rows(advice: Advice) -> tuple[str, list[tuple[str, str]]]:
    """The advice in plain words."""
    known = advice.problem
    options = " ".join(f"--option {name}={str(value).lower()}" for name, value in advice.options.items())
    words = f"--algorithm {advice.algorithm} {options}".strip()
    rows = [("run", words + (" --random-rewards" if advice.random_rewards else ""))]
    rows.append(("federate", "yes" if advice.together else "no"))
    rows.append(("episodes", f"{advice.episodes:,} for each agent"))
    if advice.bins_per_dimension is not None:
        rows.append(("bins", f"{advice.bins_per_dimension} for each continuous dimension ('fed-ucbvi bins')"))
    rows += [("because" if number == 0 else "", reason) for number, reason in enumerate(advice.reasons)]
    sizes = f"S = {known.states:,}, A = {known.actions:,}, H = {known.horizon:,}, M = {known.agents:,}"
    return f"Advice for {sizes}", rows
