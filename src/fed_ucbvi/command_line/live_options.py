"""Options about real environments, and what they name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fed_ucbvi.command_line.parameters import whole_number

if TYPE_CHECKING:
    from fed_ucbvi.network.live_agents import LiveSource

REAL = "Real environments"
LiveKwargs = Annotated[
    str | None, typer.Option(metavar="JSON", help="Keyword arguments for a Gymnasium id.", rich_help_panel=REAL)
]
RewardRange = Annotated[
    str | None,
    typer.Option(
        metavar="LOW,HIGH",
        help="Between which every reward lies; if not given, the one observed when bins were learnt.",
        rich_help_panel=REAL,
    ),
]
Horizon = Annotated[
    int | None,
    typer.Option(
        parser=whole_number,
        metavar="H",
        help="Steps of an episode; by default max_episode_steps.",
        rich_help_panel=REAL,
    ),
]


def live_source(live: str, kwargs: str | None, reward_range: str | None, horizon: int | None) -> LiveSource:
    """Real environments, from the words of the command line."""
    from fed_ucbvi.command_line.parameters import json_or_text
    from fed_ucbvi.core.errors import InputError
    from fed_ucbvi.network.live_agents import LiveSource

    options = {} if kwargs is None else json_or_text("--live-kwargs", kwargs)
    if not isinstance(options, dict):
        raise InputError(f"--live-kwargs takes a JSON object, as '{{\"map_name\": \"8x8\"}}', got '{kwargs}'.")
    try:
        ends = None if reward_range is None else tuple(float(part) for part in reward_range.split(","))
    except ValueError:
        ends = ()
    if ends is not None and len(ends) != 2:
        raise InputError(f"--reward-range takes two numbers as LOW,HIGH, got '{reward_range}'.")
    return LiveSource.of(live, options, reward_range=ends, horizon=horizon)
