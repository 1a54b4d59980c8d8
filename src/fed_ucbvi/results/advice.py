"""Advice on a run that has learnt little.

The server's values are optimistic; what separates them from the truth is what it has not seen yet. A run *has learnt
little* when its recommended policy is worth less than half of what the server still hopes for. What that is worth is
the mean over agents where their MDPs are known; otherwise what it is estimated at; and where nothing was planned,
what the last tenth of the episodes paid. A policy known to be within 1 % of the best shared one is good enough,
whatever the server hopes for.
"""

from __future__ import annotations

from fed_ucbvi.problem.units import Units
from fed_ucbvi.results.about import About

LITTLE = 0.5
"""A policy worth less than this share of what the server hopes for has learnt little."""
GOOD_ENOUGH = 0.99
"""Share of the best shared policy's value from which there is nothing to complain about."""


def learnt_little(worth: float, hoped: float, known: float, best: float) -> bool:
    """Whether a policy is worth less than half of what the server still hopes for.

    Args:
        worth: the best figure there is for what the policy is worth.
        hoped: the server's optimistic value.
        known: what the policy is worth on average over the agents; NaN where their MDPs are unknown.
        best: what the best shared policy is worth, at least.
    """
    return worth < LITTLE * hoped and not known >= GOOD_ENOUGH * best


def advice_on(about: About, hoped: float, worth: float, said: str) -> str:
    """What to try where little was learnt, in one sentence; ``said`` is what to call ``worth``."""
    units, H = Units.of(about.environment), about.horizon
    hope, get = (f"{units.original_return(value, H):,.4g}" for value in (hoped, worth))
    parameters = about.parameters
    scales = {name: parameters[name] for name in ("bonus_scale", "scale") if parameters.get(name)}
    tries = ["more episodes", *(f"a smaller {name} ({x / 10:g} instead of {x:g})" for name, x in scales.items())]
    if parameters.get("clip") == "horizon":
        tries.append("clip='remaining'")
    return f"has learnt little: the server still hopes for {hope} an episode, {said} {get}; try {', '.join(tries)}"
