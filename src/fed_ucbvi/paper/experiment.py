"""Experiments and their sizes: the paper's settings, and which of them are run at which size."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from fed_ucbvi.core.errors import check_choice, check_positive_integer
from fed_ucbvi.paper.report.content import Section, Verdict
from fed_ucbvi.paper.report.traces import Traces

Grids = list[dict[str, Any]]
"""Grids of a sweep; see :class:`~fed_ucbvi.sweeps.specification.Sweep`."""

EPISODES = {"gridworld": 30_000, "synthetic": 3_000}
"""The paper's environments and their T."""
EPS_P = (0.0, *(round(10.0**power, 6) for power in (-3, -2.5, -2, -1.5, -1, -0.5)))
"""Heterogeneities: none, and a logarithmic grid to six decimals."""
AGENTS = (2, 5, 10, 20, 50, 100)
BASE_AGENTS = 20
"""M where it does not vary."""
SEEDS = 5
"""The paper's runs for each cell."""
QUICK_SEEDS = 2

_QUICK_EPISODES = {"gridworld": 1_500, "synthetic": 300}
_QUICK_EPS_P = (0.0, 0.1, EPS_P[-1])
_QUICK_AGENTS = (2, 5, 10)


@dataclass(frozen=True)
class RunScale:
    """A size with the number of seeds.

    Args:
        size: ``quick``, every figure from little data; ``default``, the paper's settings, with FedQ at one or two
            eps_p where M varies; ``full``, all of the grid.
        seeds: runs for each cell.

    >>> RunScale("quick", 2).agents, RunScale().seeds
    ((2, 5, 10), 5)
    """

    size: str = "default"
    seeds: int = SEEDS

    def __post_init__(self) -> None:
        check_choice("size", self.size, ("quick", "default", "full"))
        check_positive_integer("seeds", self.seeds)

    @property
    def quick(self) -> bool:
        return self.size == "quick"

    @property
    def episodes(self) -> dict[str, int]:
        return dict(_QUICK_EPISODES if self.quick else EPISODES)

    @property
    def eps_p(self) -> tuple[float, ...]:
        return _QUICK_EPS_P if self.quick else EPS_P

    @property
    def agents(self) -> tuple[int, ...]:
        return _QUICK_AGENTS if self.quick else AGENTS

    @property
    def base_agents(self) -> int:
        return _QUICK_AGENTS[-1] if self.quick else BASE_AGENTS

    def grid(self, algorithms: Sequence[str | dict[str, Any]], **changes: Any) -> dict[str, Any]:
        """A grid of a sweep: both environments, the base M, one instance of the environment for each seed."""
        return {
            "algorithms": algorithms,
            "environments": [*self.episodes],
            "episodes": self.episodes,
            "eps_p": [0.0],
            "agents": [self.base_agents],
            "seeds": list(range(self.seeds)),
            "env_seed": "seed",
            **changes,
        }


@dataclass(frozen=True)
class Experiment:
    """An experiment: which runs to make first, and ``further``, stage by stage, once those of earlier stages exist.

    ``verdicts`` judges the claims, None where the runs cannot judge one; ``analyse`` makes the section of the report,
    but for the verdicts. It must work also if runs are missing.
    """

    grids: Callable[[RunScale], Grids]
    verdicts: Callable[[Traces], Iterable[Verdict | None]]
    analyse: Callable[[Traces, RunScale], Section]
    further: tuple[Callable[[Traces, RunScale], Grids], ...] = ()

    def judge(self, table: Traces) -> list[Verdict]:
        return [verdict for verdict in self.verdicts(table) if verdict is not None]

    def grids_at(self, stage: int, table: Traces, scale: RunScale) -> Grids:
        """Runs of a stage; ``table`` has the runs of earlier stages."""
        if stage == 0:
            return self.grids(scale)
        if stage <= len(self.further):
            return self.further[stage - 1](table, scale)
        return []
