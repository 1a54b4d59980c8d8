"""A synchronisation rule of one's own: ``fed-ucbvi run --algorithm examples.own_rule:RootRuleKL``."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

import fed_ucbvi as fed
from fed_ucbvi import CountArray, Setting, SynchronisationRule


@dataclass(frozen=True, kw_only=True)
class RootRule(SynchronisationRule):
    """An agent requests a synchronisation after ``sqrt(n^i) + ceil(N / (2 M))`` visits, where n^i are its own."""

    @property
    def shared(self) -> bool:
        """Limits depend on an agent's own visits."""
        return False

    def limits(self, own: Any, total: CountArray, agents: int) -> CountArray:
        """At least 1."""
        return np.asarray(np.maximum(1, np.sqrt(own).astype(np.int64) - (-total // (2 * agents))))


@dataclass(frozen=True)
class RootRuleKL(fed.FedKLUCBVI):
    """Fed-KL-UCBVI with that rule."""

    name: ClassVar[str] = "fed-kl-root"
    rules: ClassVar[tuple[str, ...]] = ("root",)

    def synchronisation_rule(self, setting: Setting) -> SynchronisationRule:
        """One rule for all settings."""
        return RootRule()


@dataclass(frozen=True)
class RootRuleUCBVI(fed.FedUCBVI):
    """Fed-UCBVI with that rule."""

    name: ClassVar[str] = "fed-ucbvi-root"
    rules: ClassVar[tuple[str, ...]] = ("root",)

    def synchronisation_rule(self, setting: Setting) -> SynchronisationRule:
        """One rule for all settings."""
        return RootRule()


if __name__ == "__main__":
    federation = fed.gridworld(agents=20)
    for algorithm in (fed.FedKLUCBVI(), RootRuleKL()):
        print(algorithm.name, fed.run(algorithm, federation, 3_000, seed=0))
