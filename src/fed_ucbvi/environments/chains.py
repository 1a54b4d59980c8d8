"""States in a row, behind doors or in a tree: RiverSwim, chains, SixArms and the hard instance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import numpy as np

from fed_ucbvi.core.errors import InputError, check_integer
from fed_ucbvi.core.memory import ProblemSize
from fed_ucbvi.core.parameters import Bounds, Count, Help, Share, Size
from fed_ucbvi.core.types import FloatArray
from fed_ucbvi.environments import family
from fed_ucbvi.environments.family import (
    Agents,
    BernoulliRewards,
    EpsP,
    Family,
    Horizon,
    Seed,
    Spread,
    environment,
    grid_layout,
    kernel_of,
    shifted,
)
from fed_ucbvi.problem.kernel import Kernel
from fed_ucbvi.problem.units import Units

SWIM: dict[str, dict[str, tuple[float, float, float]]] = {
    "tabularl": {
        "first": (0.6, 0.4, 0.0),
        "between": (0.35, 0.6, 0.05),
        "last": (0.0, 0.6, 0.4),
    },
    "strehl-littman": {
        "first": (0.3, 0.7, 0.0),
        "between": (0.3, 0.6, 0.1),
        "last": (0.0, 0.3, 0.7),
    },
}
"""Probabilities that swimming right moves one state up, stays, or drifts one state down."""
ARMS = 6
OPENS = (1.0, 0.15, 0.10, 0.05, 0.03, 0.01)
PAYS = (50.0, 133.0, 300.0, 800.0, 1660.0, 6000.0)
"""Probability that the door of each room opens, and the reward of a step in that room."""
WAY_OUT = 4
"""The one action that leaves the first room."""
WAIT = 0
"""The action that stays in the waiting state of the hard instance."""


def _tree_size(options: Mapping[str, Any]) -> ProblemSize:
    """Sizes of the hard instance; trees of more than 64 levels, which fit into no memory, count as 64 levels."""
    A = options["actions"]
    nodes = (A ** min(options["depth"], 64) - 1) // (A - 1)
    return ProblemSize(nodes + 3, A, A, options["horizon"])


def _line(states: int) -> dict[str, object]:
    """States in a row from the first, where episodes start, to the last, the goal; actions are left and right."""
    return grid_layout(
        rows=1,
        columns=states,
        cells=[(0, s) for s in range(states)],
        start=(0, 0),
        goals=[(0, states - 1)],
        moves=[(0, -1), (0, 1)],
    )


@environment("RiverSwim", lambda options: ProblemSize(options["states"], 2, 3))
def riverswim(
    agents: Agents = 20,
    eps_p: Annotated[
        EpsP,
        Help("weight of the individual kernels (Assumption 1), which move to neighbouring states or stay."),
    ] = 0.0,
    seed: Seed = 0,
    *,
    spread: Annotated[
        Spread,
        Help(
            "how far the current differs between agents: a current x makes swimming up e^{-x} and "
            "drifting down e^x times as likely, relative to staying."
        ),
    ] = 0.0,
    states: Annotated[int, Bounds(3), Help("S, at least 3.")] = 6,
    horizon: Horizon = 20,
    variant: Annotated[Literal["tabularl", "strehl-littman"], Help("tabularl or strehl-littman.")] = "tabularl",
    bernoulli_rewards: BernoulliRewards = False,
) -> Family:
    """RiverSwim of Strehl and Littman (2008), in their version or in that of TabulaRL (Osband).

    Action 0 (left) always drifts one state down. Action 1 (right) moves up, stays or drifts down. Action 0 in the
    first state pays a little, action 1 in the last state pays 1. In TabulaRL's version swimming up, staying and
    drifting have probabilities 0.35, 0.6 and 0.05, and episodes begin in the first state; in Strehl and Littman's
    0.3, 0.6 and 0.1, rewards are 5 and 10000 (divided by 10000 here), and episodes begin in the second or third
    state.
    """
    S = states
    original = variant == "strehl-littman"
    rewards = np.zeros((S, 2))
    rewards[0, 0] = 5e-4 if original else 5e-3
    rewards[S - 1, 1] = 1.0
    start = np.zeros(S)
    if original:
        start[[1, 2]] = 0.5
    else:
        start[0] = 1.0

    def kernel(x: FloatArray) -> Kernel:
        places = ["first", *["between"] * (S - 2), "last"]
        table = []
        for s, place in enumerate(places):
            up, stay, down = SWIM[variant][place]
            table.append([{max(s - 1, 0): 1.0}, _swim(s, up, stay, down, x)])
        return kernel_of(table)

    return Family(
        kernel=kernel,
        rewards=rewards,
        initial=start,
        varies="the chance of moving",
        layout=None if original else _line(S),
        units=Units(scale=10000.0) if original else Units(),
    )


def _swim(s: int, up: float, stay: float, down: float, x: FloatArray) -> dict[int, float]:
    """Next states of swimming right in state s when the current is x, with their probabilities."""
    weights = {s - 1: down * float(np.exp(x)), s: stay, s + 1: up * float(np.exp(-x))}
    total = sum(weights.values())
    return {state: weight / total for state, weight in weights.items() if weight > 0}


@environment("chain", lambda options: ProblemSize(options["length"], 2, 2))
def chain(
    agents: Agents = 20,
    eps_p: Annotated[
        EpsP,
        Help("weight of the individual kernels (Assumption 1), which move to either side."),
    ] = 0.0,
    seed: Seed = 0,
    *,
    spread: Annotated[
        Spread,
        Help("how far the probability of failing differs between agents: its odds are e^x times those of fail."),
    ] = 0.0,
    length: Annotated[int, Bounds(2), Help("number of states, at least 2.")] = 5,
    fail: Annotated[
        Share | None,
        Help("probability that a move fails; by default 0.1, and 1/length in TabulaRL's variant."),
    ] = None,
    horizon: Annotated[
        Size | None,
        Help("H; by default twice the length, and the length in TabulaRL's variant."),
    ] = None,
    variant: Annotated[Literal["rlberry", "tabularl"], Help("rlberry or tabularl.")] = "rlberry",
    bernoulli_rewards: BernoulliRewards = False,
) -> Family:
    """The chain of rlberry-scool, or the stochastic chain of TabulaRL (Osband).

    Action 0 goes one state to the left, action 1 one to the right; a move that fails goes the other way, and one that
    would leave the chain stays. rlberry-scool's: both moves fail with probability 0.1; every step in the first state
    pays 0.05, every step in the last one 1. TabulaRL's: moves to the right fail with probability 1/length, those to
    the left never; moving right in the last state pays 1. (There rewards are Gaussian with deviation 1, and moving
    left in the first state pays one of mean 0; here they are their means.) Episodes begin in the first state.
    """
    L = length
    both_fail = variant == "rlberry"
    if both_fail:
        default_fail = 0.1
        default_horizon = 2 * L
    else:
        default_fail = 1.0 / L
        default_horizon = L
    q = default_fail if fail is None else fail
    H = default_horizon if horizon is None else horizon
    rewards = np.zeros((L, 2))
    if both_fail:
        rewards[0] = 0.05
        rewards[L - 1] = 1.0
    else:
        rewards[L - 1, 1] = 1.0

    def kernel(x: FloatArray) -> Kernel:
        p = shifted(q, x)
        p_left = p if both_fail else 0.0
        table = []
        for s in range(L):
            left = max(s - 1, 0)
            right = min(s + 1, L - 1)
            moving_left = {left: 1.0 - p_left, right: p_left}
            moving_right = {left: p, right: 1.0 - p}
            table.append([moving_left, moving_right])
        return kernel_of(table)

    return Family(
        kernel=kernel,
        rewards=rewards,
        varies="the probability of failing",
        layout=_line(L),
        resolved={"fail": q, "horizon": H},
    )


@environment("SixArms", lambda _: ProblemSize(ARMS + 1, ARMS, ARMS + 1))
def six_arms(
    agents: Agents = 20,
    eps_p: Annotated[
        EpsP,
        Help(
            "weight of the individual kernels (Assumption 1): from the hall to anywhere, from a room "
            "to the hall or into the room again."
        ),
    ] = 0.0,
    seed: Seed = 0,
    *,
    spread: Annotated[
        Spread,
        Help(
            "how far the doors differ between agents: the odds that a door opens are e^x times those "
            "above, with x drawn for each door (the first always opens)."
        ),
    ] = 0.0,
    horizon: Horizon = 20,
    bernoulli_rewards: BernoulliRewards = False,
) -> Family:
    """SixArms of Strehl and Littman (2008), with rewards divided by 6000.

    In the hall, state 0, action a tries the door of room a + 1, which opens with probability 1, 0.15, 0.1, 0.05, 0.03
    or 0.01; otherwise the agent stays in the hall. In room 1 every action but 4 stays and pays 50; in room i >= 2
    only action i - 1 stays, and pays 133, 300, 800, 1660 or 6000. All other actions lead back to the hall.
    """
    staying_actions = [[a for a in range(ARMS) if a != WAY_OUT]]  # of each room
    for room in range(2, ARMS + 1):
        staying_actions.append([room - 1])
    rewards = np.zeros((ARMS + 1, ARMS))
    for room, actions in enumerate(staying_actions, start=1):
        rewards[room, actions] = PAYS[room - 1] / PAYS[-1]

    def kernel(x: FloatArray) -> Kernel:
        hall = []
        for a in range(ARMS):
            p = shifted(OPENS[a], x[a])
            hall.append({0: 1.0 - p, a + 1: p})
        table = [hall]
        for room, actions in enumerate(staying_actions, start=1):
            table.append([{room: 1.0} if a in actions else {0: 1.0} for a in range(ARMS)])
        return kernel_of(table)

    return Family(
        kernel=kernel,
        rewards=rewards,
        varies="the probability that a door opens",
        shape=(ARMS,),
        units=Units(scale=PAYS[-1]),
    )


@environment("two-state chain", lambda _: ProblemSize(2, 1, 2))
def two_state_chain(
    agents: Agents = 2,
    eps_p: EpsP = 0.0,
    seed: Annotated[
        Count,
        Help("of the agents' p where spread is above zero; agent i's depends on (seed, i) alone."),
    ] = 0,
    *,
    spread: Annotated[
        Spread,
        Help("how far p differs between agents: its odds are e^x times those of leave."),
    ] = 0.0,
    leave: Annotated[Share, Help("p of the common kernel.")] = 0.0,
    horizon: Horizon = 10,
    bernoulli_rewards: BernoulliRewards = False,
) -> Family:
    """The pair of MDPs of the paper's ``lem:performance-difference-lb``, as agents of one federation.

    There is one action. Every step in the first state pays 1 and leaves it with probability p; the second state pays
    nothing and is never left. A value is ``1 + (1-p) + ... + (1-p)^{H-1} = (1 - (1-p)^H) / p``. Under the individual
    kernels even agents never leave and odd agents leave at once, so with ``leave = 0`` agents 0 and 1 are the lemma's
    two MDPs, p = 0 and p = eps_p, and their values differ by ``H - (1 - (1-eps_p)^H) / eps_p``, which is at least
    ``eps_p H^2 / 4`` for ``eps_p < 2/H``.

    >>> pair = two_state_chain(eps_p=0.1)
    >>> [round(float(pair.agent(i).solve().V[0, 0]), 6) for i in (0, 1)], round((1 - 0.9**10) / 0.1, 6)
    ([10.0, 6.513216], 6.513216)
    """

    def leaving(p: float) -> Kernel:
        return kernel_of([[{0: 1.0 - p, 1: p}], [{1: 1.0}]])

    return Family(
        kernel=lambda x: leaving(shifted(leave, x)),
        rewards=np.array([[1.0], [0.0]]),
        varies="the probability of leaving",
        individual=lambda _, i, __: leaving(float(i % 2)),
    )


@environment("hard instance", _tree_size)
def hard_instance(
    agents: Agents = 20,
    eps_p: Annotated[
        EpsP,
        Help("weight of the individual kernels (Assumption 1), which move to any state that some action reaches."),
    ] = 0.0,
    seed: Annotated[
        Count,
        Help("of best and of the differences between agents; those of agent i depend only on (seed, i)."),
    ] = 0,
    *,
    spread: Annotated[
        Spread,
        Help(
            "how far the gap differs between agents: the odds of twice the gap are e^x times those of "
            "2 gap, so all gaps stay between 0 and 1/2."
        ),
    ] = 0.0,
    actions: Annotated[int, Bounds(2), Help("A, at least 2.")] = 2,
    depth: Annotated[int, Bounds(2), Help("d, the levels of the tree, at least 2.")] = 2,
    horizon: Annotated[Size, Help("H, at least 3 d.")] = 12,
    waiting: Annotated[
        Size | None,
        Help("the last step (from 1) at which the agent may wait, at most H - d; by default H/3, rounded down."),
    ] = None,
    gap: Annotated[float, Bounds(at_least=0, at_most=0.5), Help("between 0 and 1/2.")] = 0.25,
    best: Annotated[
        Sequence[int] | None,
        Help(
            "step, leaf and action of the needle, all from 0: the step from d to waiting + d - 1; by default drawn."
        ),
    ] = None,
    bernoulli_rewards: BernoulliRewards = False,
) -> Family:
    """A needle in a haystack of ``waiting * leaves * actions`` places, for ``S = 3 + (A^d - 1) / (A - 1)``.

    The agent may wait in state 0 with action 0 during the first ``waiting`` steps. Then it walks down a full A-ary
    tree of d levels; action a leads to child a. Any action in a leaf leads to the good or the bad state, which are
    never left. Both have probability 1/2, except in one place: at the step, leaf and action ``best`` the good state
    has probability 1/2 + gap. After step ``waiting + d`` (from 1) every step in the good state pays 1, so waiting
    costs nothing and ``V* = (H - waiting - d) (1/2 + gap)``. The lower bound of the regret (Domingues, Ménard,
    Kaufmann and Valko, ALT 2021) takes ``waiting = H/3`` and ``gap = (1 - 1/n) sqrt(n/T) / (2 sqrt 2)`` with n
    places.

    >>> float(hard_instance(agents=2).common.solve().V[0, 0])  # (12 - 4 - 2) * 0.75
    4.5
    """
    A = actions
    d = depth
    H = horizon
    if 3 * d > H:
        raise InputError(f"horizon must be at least 3 * depth = {3 * d}, got {H}.")
    last = check_integer("waiting", H // 3 if waiting is None else waiting, at_least=1, at_most=H - d)
    nodes = (A**d - 1) // (A - 1)
    leaves = A ** (d - 1)
    rng = family.generator(seed, family.RandomPart.STRUCTURE)
    drawn_step = int(rng.integers(d, last + d))
    drawn_leaf = int(rng.integers(0, leaves))
    drawn_action = int(rng.integers(0, A))
    try:
        step, leaf, action = (drawn_step, drawn_leaf, drawn_action) if best is None else best
    except (TypeError, ValueError) as error:
        raise InputError(f"best must be a step, a leaf and an action, as [3, 0, 1]; got {best!r}.") from error
    step = check_integer("best: the step", step, at_least=d, at_most=last + d - 1)
    leaf = check_integer("best: the leaf", leaf, at_most=leaves - 1)
    action = check_integer("best: the action", action, at_most=A - 1)
    good = nodes + 1
    bad = nodes + 2
    rewards = np.zeros((H, nodes + 3, A))
    rewards[last + d :, good] = 1.0

    def outcome(h: int, k: int, a: int, edge: float) -> dict[int, float]:
        more = edge if (h, k, a) == (step, leaf, action) else 0.0
        return {good: 0.5 + more, bad: 0.5 - more}

    def table(h: int, edge: float) -> family.Rows:
        wait = [{0: 1.0} if a == WAIT and h < last else {1: 1.0} for a in range(A)]
        tree = [[{A * node + a + 2: 1.0} for a in range(A)] for node in range(nodes - leaves)]
        ends = [[outcome(h, k, a, edge) for a in range(A)] for k in range(leaves)]
        return [wait, *tree, *ends, [{good: 1.0}] * A, [{bad: 1.0}] * A]

    def kernel(x: FloatArray) -> Kernel:
        edge = shifted(2.0 * gap, x) / 2.0
        return kernel_of(*(table(h, edge) for h in range(H)))

    return Family(
        kernel,
        rewards,
        varies="twice the gap",
        resolved={"waiting": last, "best": [step, leaf, action]},
    )
