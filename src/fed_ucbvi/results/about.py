"""Description of a run: algorithm, environment, sizes and versions; and labels and colours for figures."""

from __future__ import annotations

import math
import platform
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from fed_ucbvi.algorithms import algorithm_name, known_class, parameters_of
from fed_ucbvi.core.colours import RESERVED, distinct_colours
from fed_ucbvi.core.version import PROGRAM, __version__
from fed_ucbvi.environments import environment_label
from fed_ucbvi.results.looks import look_of

if TYPE_CHECKING:
    from fed_ucbvi.algorithms.base import Algorithm, Setting
    from fed_ucbvi.problem.federation import Federation


_version = cache(version)  # it reads files


def versions() -> dict[str, str]:
    """Versions of Python, this package and its numerical dependencies, as far as they are installed."""
    made_with = {"python": platform.python_version(), PROGRAM: __version__}
    for name in ("numpy", "numba", "polars"):
        with suppress(PackageNotFoundError):
            made_with[name] = _version(name)
    return made_with


@dataclass(frozen=True, kw_only=True)
class About:
    """Description of a run, without its results; it is stored in the manifest as it is.

    The defaults describe an unknown problem.
    """

    algorithm: str
    parameters: Mapping[str, Any]
    rules: tuple[str, ...]
    environment: Mapping[str, Any]
    layout: Mapping[str, Any] | None = None
    agents: int
    states: int
    actions: int
    horizon: int
    episodes: int
    eps_p: float
    eps_r: float = math.nan
    seed: int
    driver: str
    facts: Mapping[str, float]
    cautions: tuple[str, ...]
    optimal_value: float = math.nan
    """The optimal value of the common MDP."""
    versions: Mapping[str, str] = field(default_factory=versions)
    alike: bool | None = None
    """True if all agents have the same MDP; None if that is unknown."""
    random_rewards: bool = False
    """True if rewards were taken to be random."""
    label: str = ""
    """Label of the algorithm in tables and figures; for a run of a sweep, the label that the sweep gives it."""
    colour: str = ""
    """The colour that the algorithm gives itself, if any."""
    environment_label: str = ""
    """Label of the environment."""

    @property
    def eps_p_assumed(self) -> float:
        """The eps_p with which nu was computed if eps_p is unknown: 0, as if agents were alike. Otherwise NaN."""
        nu_was_computed = "nu" in self.facts and self.parameters.get("nu") is None
        if nu_was_computed and math.isnan(self.eps_p):
            return 0.0
        return math.nan

    @classmethod
    def of(
        cls,
        algorithm: Algorithm[Any, Any],
        setting: Setting,
        environment: Mapping[str, Any],
        federation: Federation | None,
        driver: str,
    ) -> About:
        """Description of a run in an environment; ``federation`` is the problem, if it is known."""
        sizes = asdict(setting)
        del sizes["grid_bits"]
        del sizes["starts_known"]
        earlier_visits = sizes.pop("earlier_visits")
        if not sizes.pop("eps_p_known"):
            sizes["eps_p"] = math.nan
        facts = dict(algorithm.facts(setting))
        if earlier_visits:
            facts["earlier_visits"] = float(earlier_visits)
        name = algorithm_name(algorithm)
        about = cls(
            algorithm=name,
            parameters=parameters_of(algorithm),
            rules=algorithm.rules,
            environment=dict(environment),
            driver=driver,
            facts=facts,
            cautions=tuple(algorithm.cautions(setting)),
            label=label_of(name),
            colour=look_of(name).colour,
            environment_label=label_of(str(environment.get("name", "custom"))),
            **sizes,
        )
        if federation is None:
            return about
        common = federation.common
        return replace(
            about,
            layout=federation.layout,
            eps_r=federation.eps_r,
            optimal_value=float(common.initial @ common.solve().V[0]),
            alike=federation.alike,
        )


def different_colours(wanted: Sequence[str]) -> list[str]:
    """A different colour for each entry; an empty one gets a colour that no algorithm of this package has."""
    return distinct_colours(wanted, avoid=RESERVED)


def colour_of(algorithm: str) -> str:
    """The colour of an algorithm that is drawn beside none without a colour of its own."""
    return different_colours([look_of(algorithm).colour])[0]


def label_of(name: str) -> str:
    """The label of an algorithm or environment; its name if it has no label.

    >>> label_of("fed-ucbvi"), label_of("deep_sea"), label_of("something new")
    ('Fed-UCBVI', 'DeepSea', 'something new')
    """
    kind = known_class(name)
    return environment_label(name) if kind is None else kind.label
