"""Gymnasium's environments with a table ``P`` as federations (FrozenLake, Taxi, CliffWalking and their like).

The table ``P[s][a]`` lists ``(probability, next state, reward, terminated)``. One state is added, number S. Every
transition that terminates goes there, and the state is never left. So an episode always has H steps, as everywhere in
this package. Rewards belong to transitions; agents are paid their expectation, ``r(s,a) = sum_s' P(s'|s,a)
r(s,a,s')``, rescaled to [0, 1] (:class:`~fed_ucbvi.problem.units.Units`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import numpy as np

from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.memory import SMALLER, ProblemSize, check_memory, check_problem
from fed_ucbvi.core.parameters import Help
from fed_ucbvi.core.types import FloatArray
from fed_ucbvi.environments import gymnasium_making as making
from fed_ucbvi.environments.family import kernel_of, known_as
from fed_ucbvi.problem.federation import Federation, check_eps_p
from fed_ucbvi.problem.kernel import ROW_SUM_TOLERANCE, Kernel
from fed_ucbvi.problem.mdp import MDP, check_initial
from fed_ucbvi.problem.units import Units

if TYPE_CHECKING:
    import gymnasium

BYTES_PER_AGENT = 500
"""Memory of an agent's keyword arguments."""


class Entry(NamedTuple):
    """An entry of ``P[s][a]``."""

    probability: float
    next_state: int
    reward: float
    terminated: bool


class TransitionTable(NamedTuple):
    """The content of ``P`` with the absorbing state: kernel, expected rewards ``[S+1,A]`` and range of rewards."""

    kernel: Kernel
    rewards: FloatArray
    initial: FloatArray
    low: float
    high: float


@known_as("Gymnasium")
def from_gymnasium(
    id: Annotated[str, Help("the name it is registered under, as FrozenLake-v1.")] = "FrozenLake-v1",
    agents: Annotated[int, Help("number of agents, M.")] = 20,
    eps_p: Annotated[float, Help("must be 0: a table has no individual kernels to mix in; see vary.")] = 0.0,
    seed: Annotated[int, Help("of what vary draws.")] = 0,
    *,
    horizon: Annotated[
        int | None,
        Help("H; by default the environment's max_episode_steps, if it has one."),
    ] = None,
    kwargs: Annotated[
        making.Kwargs | Sequence[making.Kwargs] | None,
        Help("keyword arguments of the environment, the same for all agents or a list, one for each."),
    ] = None,
    vary: Annotated[
        Mapping[str, Sequence[float]] | None,
        Help(
            'keyword arguments that differ, as {"success_rate": [0.6, 0.9]}; each agent\'s are uniform on the range.'
        ),
    ] = None,
    reward_range: Annotated[
        Sequence[float] | None,
        Help("(low, high), what becomes 0 and 1; by default the span of the rewards in the tables."),
    ] = None,
    reference: Annotated[str, Help("the common kernel, overlap or mean; see Federation.from_mdps.")] = "overlap",
    bernoulli_rewards: Annotated[bool, Help("whether every reward is 1 or 0, with the same mean.")] = False,
) -> Federation:
    """A registered Gymnasium environment that has a table P, as a federation.

    Agents are all alike unless ``kwargs`` or ``vary`` says otherwise; the smallest eps_p of Assumption 1 is computed.

    >>> lake = from_gymnasium("FrozenLake-v1", agents=4, horizon=30)
    >>> lake.states, lake.actions, lake.eps_p
    (17, 4, 0.0)
    """
    if check_eps_p(eps_p) > 0:
        raise InputError(
            f"eps_p must be 0 for a Gymnasium table, got {eps_p:g}: there is no individual kernel to mix in. Let the "
            'agents differ by keyword arguments, as vary={"success_rate": [0.6, 0.9]}; eps_p is then computed.'
        )
    check_memory(f"A list of {agents:,} agents", BYTES_PER_AGENT * agents, SMALLER)
    kwargs_by_agent = making.kwargs_of_agents(agents, kwargs, vary, seed)
    keys = [json.dumps(own_kwargs, sort_keys=True) for own_kwargs in kwargs_by_agent]
    # One table for each set of keyword arguments.
    tables: dict[str, TransitionTable] = {}
    H: int | None = horizon
    for key, own_kwargs in zip(keys, kwargs_by_agent, strict=True):
        if key not in tables:
            env = making.make_gymnasium(id, own_kwargs)
            try:
                H = making.horizon_of_spec(env, id, H)
                tables[key] = read_table(env, id)
            finally:
                env.close()
    assert H is not None
    kernel = next(iter(tables.values())).kernel
    size = ProblemSize(kernel.states, kernel.actions, kernel.width, own_tables=True)
    check_problem(id, size, len(keys), H, alike=False)
    # Rewards, rescaled by the range that the caller gives or else by their span.
    low = min(table.low for table in tables.values())
    high = max(table.high for table in tables.values())
    bounds = making.reward_bounds(reward_range)
    if bounds is not None and not bounds[0] <= low <= high <= bounds[1]:
        raise InputError(f"reward_range {bounds} does not cover the rewards of {id}, which span {(low, high)}.")
    low, high = bounds or (low, high)
    units = Units.spanning(low, high)
    mdps = {}
    for key, table in tables.items():
        mdps[key] = MDP(
            kernel=table.kernel,
            rewards=np.clip((table.rewards - low) / units.scale, 0.0, 1.0),
            initial=table.initial,
            horizon=H,
        )
    recorded_kwargs: object
    if kwargs is None or isinstance(kwargs, Mapping):
        recorded_kwargs = dict(kwargs or {})
    else:
        recorded_kwargs = [dict(own_kwargs) for own_kwargs in kwargs]
    recorded_ranges = {}
    for name, values in (vary or {}).items():
        recorded_ranges[name] = [float(value) for value in values]
    description = {
        "name": "from_gymnasium",
        "id": id,
        "agents": len(keys),
        "eps_p": 0.0,
        "seed": int(seed),
        "horizon": H,
        "kwargs": recorded_kwargs,
        "vary": recorded_ranges,
        "reward_range": [low, high],
        "reference": reference,
        "reward_offset": units.offset,
        "reward_scale": units.scale,
    }
    federation = Federation.from_mdps([mdps[key] for key in keys], reference=reference, description=description)
    return federation.with_bernoulli_rewards(bernoulli_rewards)


def read_table(env: gymnasium.Env[Any, Any], name: str) -> TransitionTable:
    """The table of one environment, checked row by row."""
    S, A = making.discrete_sizes(env, name)
    plain = env.unwrapped
    P = getattr(plain, "P", None)
    if P is None:
        raise InputError(
            f"{name} has no table P, so its kernel is not known. Let agents learn it from env.step instead: see "
            "LiveFederation."
        )
    start = getattr(plain, "initial_state_distrib", None)
    if start is None:
        raise InputError(f"{name} has a table P but no initial_state_distrib, so the initial states are unknown.")
    initial = check_initial(np.asarray(start, dtype=np.float64), S)
    rows: dict[tuple[int, int], list[Entry]] = {}
    entered = set()
    rewards_paid = []
    terminates = False
    for s in range(S):
        for a in range(A):
            rows[s, a] = _row(P, s, a, S, name)
            for entry in rows[s, a]:
                rewards_paid.append(entry.reward)
                if entry.terminated:
                    terminates = True
                else:
                    entered.add(entry.next_state)
    for (s, a), row in rows.items():
        if not row and (s in entered or initial[s] > 0):
            raise InputError(f"{name}: P[{s}][{a}] is missing or empty, but episodes can go on from state {s}.")
    if terminates or not rewards_paid:
        rewards_paid.append(0.0)
    rewards = np.zeros((S + 1, A))
    supports = []
    for s in range(S):
        supports.append([_support(rows[s, a], S) for a in range(A)])
        for a in range(A):
            rewards[s, a] = sum(entry.probability * entry.reward for entry in rows[s, a])
    supports.append([{S: 1.0}] * A)
    return TransitionTable(
        kernel=kernel_of(supports, common_support=False),
        rewards=rewards,
        initial=np.append(initial, 0.0),
        low=min(rewards_paid),
        high=max(rewards_paid),
    )


def _row(P: Any, s: int, a: int, states: int, name: str) -> list[Entry]:
    """The entries of ``P[s][a]`` with positive probability; none if the row is missing."""
    try:
        entries = list(P[s][a])
    except (KeyError, IndexError, TypeError):
        return []
    row = []
    for entry in entries:
        try:
            p, following, reward, terminated = entry
            p = float(p)
            following = int(following)
            reward = float(reward)
        except (TypeError, ValueError) as error:
            raise InputError(
                f"{name}: P[{s}][{a}] holds {entry!r}, not (probability, next state, reward, terminated)."
            ) from error
        is_possible = p >= 0.0 and math.isfinite(p) and math.isfinite(reward) and 0 <= following < states
        if not is_possible:
            raise InputError(
                f"{name}: P[{s}][{a}] holds {entry!r}; probabilities must not be negative, rewards must be finite "
                f"and next states 0..{states - 1}."
            )
        if p > 0.0:
            checked = Entry(
                probability=p,
                next_state=following,
                reward=reward,
                terminated=bool(terminated),
            )
            row.append(checked)
    total = sum(entry.probability for entry in row)
    if entries and abs(total - 1.0) > ROW_SUM_TOLERANCE:
        raise InputError(f"{name}: the probabilities of P[{s}][{a}] sum to {total:.9g}, not to 1.")
    return row


def _support(row: Sequence[Entry], absorbing: int) -> dict[int, float]:
    """Next states and probabilities; termination, or a state with no entries, leads to the absorbing state."""
    support: dict[int, float] = {}
    for entry in row:
        target = absorbing if entry.terminated else entry.next_state
        support[target] = support.get(target, 0.0) + entry.probability
    return support or {absorbing: 1.0}
