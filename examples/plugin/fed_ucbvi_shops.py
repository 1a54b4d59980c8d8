"""An environment and an algorithm of one's own: once installed, fed-ucbvi knows both by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from fed_ucbvi import MDP, Federation, FedUCBVI, Help, known_as, register_look


@known_as("small shops")
def shops(
    agents: Annotated[int, Help("number of shops.")] = 5,
    seed: Annotated[int, Help("of the shops' customers.")] = 0,
    *,
    capacity: Annotated[int, Help("the most pieces that a shop can hold.")] = 4,
    horizon: Annotated[int, Help("days of an episode.")] = 7,
) -> Federation:
    """Shops that order every evening what they sell the next day; they differ in how many customers come.

    The state is the stock. An order fills it up to ``capacity`` at most, each sale pays 1 and each piece on the shelf
    costs 0.2. The number of customers is binomial; agent i's probability is drawn from (seed, i).
    """
    chances = [np.random.default_rng([seed, i]).uniform(0.3, 0.7) for i in range(agents)]
    return Federation.from_mdps([_shop(chance, capacity, horizon) for chance in chances])


def _shop(chance: float, capacity: int, horizon: int) -> MDP:
    n = capacity
    customers = np.array([1.0])
    for _ in range(n):
        customers = np.convolve(customers, [1.0 - chance, chance])
    kernel = np.zeros((n + 1, n + 1, n + 1))
    paid = np.zeros((n + 1, n + 1))
    for stock in range(n + 1):
        for order in range(n + 1):
            full = min(stock + order, n)
            for come, probability in enumerate(customers):
                sold = min(come, full)
                kernel[stock, order, full - sold] += probability
                paid[stock, order] += probability * sold
            paid[stock, order] -= 0.2 * full
    return MDP(kernel, np.clip((paid + 0.2 * n) / (1.2 * n), 0.0, 1.0), initial=0, horizon=horizon)


@dataclass(frozen=True)
class BoldFedUCBVI(FedUCBVI):
    """Fed-UCBVI that explores with half the bonus."""

    name: ClassVar[str] = "bold-fed-ucbvi"
    label: ClassVar[str] = "Bold Fed-UCBVI"

    bonus_scale: float = 0.5


register_look(BoldFedUCBVI.name, colour="#117733")
