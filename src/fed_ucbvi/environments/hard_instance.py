"""The hard instance of Domingues, Ménard, Kaufmann and Valko (ALT 2021), behind the lower bound of the regret."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fed_ucbvi.core.errors import InputError, check_integer, check_number
from fed_ucbvi.core.types import FloatArray
from fed_ucbvi.environments.family import Family, RandomPart, Rows, environment, generator, kernel_of, shifted, whole
from fed_ucbvi.problem.kernel import Kernel

WAIT = 0
"""The action that stays in the waiting state."""


@environment(
    "hard instance",
    actions=whole(2),
    depth=whole(2),
    waiting=whole(),
    gap=lambda name, value: check_number(name, value, at_least=0, at_most=0.5),
)
def hard_instance(
    agents: int = 20,
    eps_p: float = 0.0,
    seed: int = 0,
    *,
    spread: float = 0.0,
    actions: int = 2,
    depth: int = 2,
    horizon: int = 12,
    waiting: int | None = None,
    gap: float = 0.25,
    best: Sequence[int] | None = None,
    bernoulli_rewards: bool = False,
) -> Family:
    """A needle in a haystack of ``waiting * leaves * actions`` places, for ``S = 3 + (A^d - 1) / (A - 1)``.

    The agent may wait in state 0 with action 0 during the first ``waiting`` steps. Then it walks down a full A-ary
    tree of d levels; action a leads to child a. Any action in a leaf leads to the good or the bad state, which are
    never left. Both have probability 1/2, except in one place: at the step, leaf and action ``best`` the good state
    has probability 1/2 + gap. After step ``waiting + d`` (from 1) every step in the good state pays 1, so waiting
    costs nothing and ``V* = (H - waiting - d) (1/2 + gap)``. The lower bound takes ``waiting = H/3`` and
    ``gap = (1 - 1/n) sqrt(n/T) / (2 sqrt 2)`` with n places.

    Args:
        agents: M.
        eps_p: weight of the individual kernels (Assumption 1), which move to any state that some action reaches.
        seed: of ``best`` and of the differences between agents; those of agent i depend only on ``(seed, i)``.
        spread: how far the gap differs between agents: the odds of twice the gap are ``e^x`` times those of
            ``2 gap``, so all gaps stay between 0 and 1/2.
        actions: A, at least 2.
        depth: d, the levels of the tree, at least 2.
        horizon: H, at least 3 d.
        waiting: the last step (from 1) at which the agent may wait, at most H - d; by default H/3, rounded down.
        gap: between 0 and 1/2.
        best: step, leaf and action of the needle, all from 0: the step from d to waiting + d - 1; by default drawn.
        bernoulli_rewards: whether every reward is 1 or 0, with the same mean.

    >>> float(hard_instance(agents=2).common.solve().V[0, 0])  # (12 - 4 - 2) * 0.75
    4.5
    """
    A, d, H = actions, depth, horizon
    if 3 * d > H:
        raise InputError(f"horizon must be at least 3 * depth = {3 * d}, got {H}.")
    last = check_integer("waiting", H // 3 if waiting is None else waiting, at_least=1, at_most=H - d)
    nodes, leaves = (A**d - 1) // (A - 1), A ** (d - 1)
    rng = generator(seed, RandomPart.STRUCTURE)
    drawn = [int(rng.integers(low, high)) for low, high in ((d, last + d), (0, leaves), (0, A))]
    step, leaf, action = _place(drawn if best is None else best, d, last, leaves, A)
    good, bad = nodes + 1, nodes + 2
    rewards = np.zeros((H, nodes + 3, A))
    rewards[last + d :, good] = 1.0

    def outcome(h: int, k: int, a: int, edge: float) -> dict[int, float]:
        more = edge if (h, k, a) == (step, leaf, action) else 0.0
        return {good: 0.5 + more, bad: 0.5 - more}

    def table(h: int, edge: float) -> Rows:
        wait = [{0: 1.0} if a == WAIT and h < last else {1: 1.0} for a in range(A)]
        tree = [[{A * node + a + 2: 1.0} for a in range(A)] for node in range(nodes - leaves)]
        ends = [[outcome(h, k, a, edge) for a in range(A)] for k in range(leaves)]
        return [wait, *tree, *ends, [{good: 1.0}] * A, [{bad: 1.0}] * A]

    def kernel(x: FloatArray) -> Kernel:
        edge = shifted(2.0 * gap, x) / 2.0
        return kernel_of(*(table(h, edge) for h in range(H)))

    return Family(
        kernel=kernel,
        varies="twice the gap",
        rewards=rewards,
        initial=0,
        horizon=H,
        resolved={"waiting": last, "best": [step, leaf, action]},
    )


def _place(best: Sequence[int], depth: int, waiting: int, leaves: int, actions: int) -> tuple[int, int, int]:
    try:
        step, leaf, action = best
    except (TypeError, ValueError) as error:
        raise InputError(f"best must be a step, a leaf and an action, as [3, 0, 1]; got {best!r}.") from error
    return (
        check_integer("best: the step", step, at_least=depth, at_most=waiting + depth - 1),
        check_integer("best: the leaf", leaf, at_most=leaves - 1),
        check_integer("best: the action", action, at_most=actions - 1),
    )
