"""``fed-ucbvi plan``: what the theory guarantees at a setting."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import fed_ucbvi
from fed_ucbvi.command_line.flags import PROBLEM
from fed_ucbvi.command_line.options import JSON, fields, option
from fed_ucbvi.command_line.outputs import print_table, up_and_down
from fed_ucbvi.command_line.sizes import ACTIONS, SIZES, STATES, federation_of
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.specifications.problem import AGENTS, ProblemSpec
from fed_ucbvi.specifications.run import RunOptions

if TYPE_CHECKING:
    from fed_ucbvi.paper.forecast import Forecast, Promise


def plan(
    problem: ProblemSpec = fields("environment environment_options agents eps_p"),
    run: RunOptions = fields("episodes"),
    states: int | None = STATES,
    actions: int | None = ACTIONS,
    horizon: int | None = option(None, "H", "Steps.", panel=SIZES),
    eps_r: float | None = option(None, "X", "Largest difference of rewards; by default 0.", panel=SIZES),
    delta: float = option(0.05, "X", "Failure probability.", panel=PROBLEM),
    as_json: bool = JSON,
) -> None:
    """Print what the theory guarantees at a setting: rounds, bytes, regret, and whether to federate."""
    federation = federation_of(problem)
    if federation is not None and eps_r is not None:
        raise InputError("--env brings --eps-r along; leave it out, or pass it as --env-option eps_r=X.")
    made = fed_ucbvi.plan(
        federation,
        episodes=run.episodes,
        states=states,
        actions=actions,
        horizon=horizon,
        agents=problem.agents or AGENTS,
        eps_p=problem.eps_p or 0.0,
        eps_r=eps_r or 0.0,
        delta=delta,
    )
    title = (
        f"Fed-UCBVI with S = {made.states:,}, A = {made.actions:,}, H = {made.horizon:,}, M = {made.agents:,}, "
        f"T = {_large(made.episodes)}, eps_p = {made.eps_p:g}, eps_r = {made.eps_r:g}, delta = {made.delta:g}"
    )
    print_table(as_json, made.summary(), title, _answers(made))


def _answers(made: Forecast) -> Iterator[tuple[str, str]]:
    M = made.agents
    T = made.episodes
    bound = made.bound
    need = f"it needs N >= nu = {_large(made.nu)}, and N is at most M T = {_large(M * T)}"
    if made.global_rule_reachable:
        yield "global rule", f"can fire: {need}"
    elif made.global_rule_from is None:
        why = f"because 14 eps_p H = {14 * made.eps_p * made.horizon:.3g} >= 1"
        yield "global rule", f"can never fire, whatever T, {why}: {need}"
    else:
        yield "global rule", f"cannot fire: {need}; it could from T = {_large(made.global_rule_from)} on"
    yield "rounds", f"at most {made.rounds:,} (the paper's R_max, with log2: {made.rounds_max_log2:,.0f})"
    yield "one round", f"{up_and_down(made.one_synchronisation)}, {M:,} agents together"
    yield "all rounds", f"at most {up_and_down(made.all_rounds)}"
    yield (
        "regret",
        f"at most {_large(bound.federated)} with probability {1 - made.delta:g}: exploration "
        f"{_large(bound.exploration)}, burn-in {_large(bound.burn_in)}, heterogeneity "
        f"{_large(bound.heterogeneity)} (with the constants as printed: {_large(made.bound_paper)})",
    )
    below = "at this heterogeneity the regret bound is above it whatever T"
    if made.nontrivial_from is not None:
        below = f"the regret bound is below it from T = {_large(made.nontrivial_from)} on"
    yield "trivial bound", f"{made.trivial_formula} = {_large(made.trivial)}; {below}"
    order = f"; an order only, because it asks for {made.lower.unmet[0]}" if made.lower.unmet else ""
    hardest = f"{_large(made.lower.value)} on the hardest MDP of these sizes"
    yield "lower bound", f"{hardest}, whatever the algorithm{order}"
    yield "Fed-KL-UCBVI", _promise(made.kl, made.delta)
    yield "the same, stationary", _promise(made.kl_stationary, made.delta)
    if M == 1:
        yield "federate?", "there is one agent only"
        return
    most = made.trivial_formula
    answer = {
        "yes": "yes, its bound is lower than that of one agent alone",
        "no": "no, the bound of one agent alone is lower",
        "undecided": f"the bounds cannot tell at this T: all, also that of one agent alone, are above {most}",
    }[made.verdict]
    yield "federate?", f"{answer}, {_large(made.alone)}; what sharing costs, 'fed-ucbvi inspect' computes"
    if made.federation_wins_below is not None:
        yield "eps_p", f"at this T federation wins below eps_p = {made.federation_wins_below:.3g}"
    if made.alone_wins_from is not None and made.alone_wins_in_order is not None:
        yield "for how long?", _for_how_long(T, made.alone_wins_from, made.alone_wins_in_order)


def _promise(made: Promise, delta: float) -> str:
    rounds, bound = made
    if bound is None:
        return f"at most {rounds:,} rounds; a bound on its regret is proved for agents that are all alike"
    return (
        f"at most {rounds:,} rounds, regret at most {_large(bound.federated)} with probability {1 - 2 * delta:g}: "
        f"exploration {_large(bound.exploration)}, burn-in {_large(bound.burn_in)}"
    )


def _large(value: float) -> str:
    return f"{value:,.0f}" if value < 1e7 else f"{value:.3g}"


def _for_how_long(episodes: int, proven: int, in_order: float) -> str:
    """From which T on one agent alone is better, by the bounds with and without their constants."""
    rough = max(1, math.ceil(in_order))
    if episodes < min(proven, rough):
        conclusion = "is below both, so federate"
    elif episodes >= max(proven, rough):
        conclusion = "is above both, so let each agent learn alone"
    else:
        conclusion = "lies between, so try both"
    return (
        "in the long run one agent alone wins, because sharing a policy costs agents that differ something in every "
        f"episode, and learning costs less and less. By the bounds with their large constants it does from T = "
        f"{_large(proven)} on, by their orders (constants and logarithms left out) from T = {_large(rough)} on; "
        f"T = {_large(episodes)} {conclusion}"
    )
