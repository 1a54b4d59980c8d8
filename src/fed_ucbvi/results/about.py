"""Everything about a run but its numbers."""

from __future__ import annotations

import math
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from fed_ucbvi.theory.bracket import Bracket

if TYPE_CHECKING:
    from fed_ucbvi.algorithms.base import Algorithm, Setting
    from fed_ucbvi.problem.federation import Federation


def versions() -> dict[str, str]:
    """What the result was made with."""
    packages = {name: version(name) for name in ("fed-ucbvi", "numpy", "numba", "polars")}
    return {"python": platform.python_version(), **packages}


@dataclass(frozen=True)
class About:
    """Everything about a run but its numbers: goes into the manifest as it is."""

    algorithm: str
    parameters: Mapping[str, Any]
    rules: tuple[str, ...]
    environment: Mapping[str, Any]
    layout: Mapping[str, Any] | None
    agents: int
    states: int
    actions: int
    horizon: int
    episodes: int
    eps_p: float
    eps_r: float
    seed: int
    driver: str
    facts: Mapping[str, float]
    cautions: tuple[str, ...]
    optimal_value: float
    best_common_value: Bracket
    versions: Mapping[str, str] = field(default_factory=versions)

    @classmethod
    def of(
        cls, algorithm: Algorithm[Any, Any], setting: Setting, federation: Federation | None, driver: str
    ) -> About:
        """The description of a run on ``federation``; where that is None, nothing is known but the setting."""
        from fed_ucbvi.algorithms import algorithm_name, parameters_of

        known: dict[str, Any] = {
            "environment": {"name": "custom"},
            "layout": None,
            "eps_r": math.nan,
            "optimal_value": math.nan,
            "best_common_value": Bracket(math.nan, math.nan),
        }
        if federation is not None:
            common = federation.common
            known = {
                "environment": dict(federation.description),
                "layout": federation.layout,
                "eps_r": federation.eps_r,
                "optimal_value": float(common.initial @ common.solve().V[0]),
                "best_common_value": federation.best_common_value,
            }
        return cls(
            algorithm=algorithm_name(algorithm),
            parameters=parameters_of(algorithm),
            rules=algorithm.rules,
            **asdict(setting),
            driver=driver,
            facts=algorithm.facts(setting),
            cautions=tuple(algorithm.cautions(setting)),
            **known,
        )
