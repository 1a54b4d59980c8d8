"""Advice on a run that has learnt little.

The server's values are optimistic; what separates them from the truth is what it has not seen yet. A run *has learnt
little* when its recommended policy is worth less than half of what the server still hopes for. What that is worth is
the mean over agents where their MDPs are known; otherwise what it is estimated at; and where nothing was planned,
what the last tenth of the episodes paid. A policy known to be within 1 % of the best shared one is good enough,
whatever the server hopes for.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fed_ucbvi.problem.units import Units

if TYPE_CHECKING:
    from fed_ucbvi.results.run import Run

LITTLE = 0.5
"""A policy worth less than this share of what the server hopes for has learnt little."""
GOOD_ENOUGH = 0.99
"""Share of the best shared policy's value from which there is nothing to complain about."""


def _worth(run: Run) -> tuple[float, str]:
    """The best figure there is for what the policy is worth, and what to call it."""
    figures = {
        "the policy is worth": run.agents_value.mean,
        "the policy is estimated at": run.estimated_value,
        "the last tenth of them paid": run.recent_reward,
    }
    return next(((worth, said) for said, worth in figures.items() if not math.isnan(worth)), (math.nan, ""))


def learnt_little(run: Run) -> bool:
    """Whether the recommended policy is worth less than half of what the server still hopes for."""
    known, best = run.agents_value.mean, run.about.best_common_value.lower
    worth, _ = _worth(run)
    hoped = run.optimistic_value if run.episodes_played else math.nan
    return worth < LITTLE * hoped and not known >= GOOD_ENOUGH * best


def advice_on(run: Run) -> str | None:
    """What to try where little was learnt, in one sentence; None where there is nothing to say."""
    if not learnt_little(run):
        return None
    units, H = Units.of(run.about.environment), run.about.horizon
    worth, said = _worth(run)
    hope, get = (f"{units.original_return(value, H):,.4g}" for value in (run.optimistic_value, worth))
    parameters = run.about.parameters
    scales = {name: parameters[name] for name in ("bonus_scale", "scale") if parameters.get(name)}
    tries = ["more episodes", *(f"a smaller {name} ({x / 10:g} instead of {x:g})" for name, x in scales.items())]
    if parameters.get("clip") == "horizon":
        tries.append("clip='remaining'")
    return f"has learnt little: the server still hopes for {hope} an episode, {said} {get}; try {', '.join(tries)}"
