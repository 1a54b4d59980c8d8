"""Advice on a run that has learnt little.

The server's values are optimistic, and they exceed the truth by what the server has not seen yet. A run *has learnt
little* when its recommended policy is worth less than half of the server's optimistic value. The worth of the policy
is the mean over agents if their MDPs are known, and otherwise the plan's estimate. If nothing was planned, it is the
mean reward of the last tenth of the episodes. A policy known to be within 1 % of the best shared one is good enough
in any case.
"""

from __future__ import annotations

from fed_ucbvi.problem.units import Units
from fed_ucbvi.results.about import About

LITTLE = 0.5
"""A policy worth less than this share of what the server hopes for has learnt little."""
FAST = 0.5
"""The radius of ``FedKLUCBVI.fast()``."""
GOOD_ENOUGH = 0.99
"""A policy with at least this share of the best shared policy's value needs no advice."""


def learnt_little(worth: float, hoped: float, known: float, best: float) -> bool:
    """Whether a policy is worth less than half of what the server still hopes for.

    Args:
        worth: the best available figure for the value of the policy.
        hoped: the server's optimistic value.
        known: what the policy is worth on average over the agents; NaN where their MDPs are unknown.
        best: a lower bound on the value of the best shared policy.
    """
    return worth < LITTLE * hoped and not known >= GOOD_ENOUGH * best


def advice_on(about: About, hoped: float, worth: float, said: str) -> str:
    """One sentence on what to try where little was learnt; ``said`` is the name of ``worth`` in the sentence."""
    units, H = Units.of(about.environment), about.horizon
    hope, get = (f"{units.original_return(value, H):,.4g}" for value in (hoped, worth))
    parameters = about.parameters
    scales = {name: parameters[name] for name in ("bonus_scale", "scale") if parameters.get(name)}
    tries = ["more episodes", *(f"a smaller {name} ({x / 10:g} instead of {x:g})" for name, x in scales.items())]
    if parameters.get("radius", 0.0) > FAST:
        tries.append(f"a smaller radius ({FAST:g} instead of {parameters['radius']:g}, without proof)")
    if parameters.get("stationary") is False:
        tries.append("stationary=true if kernel and rewards do not depend on the step")
    if parameters.get("clip") == "horizon":
        tries.append("clip='remaining'")
    return f"has learnt little: the server still hopes for {hope} an episode, {said} {get}; try {', '.join(tries)}"
