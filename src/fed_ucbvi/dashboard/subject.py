"""What a page is about: the run or sweep that it shows, with its configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from fed_ucbvi.algorithms import algorithm_name, parameters_of
from fed_ucbvi.core.text import shortened
from fed_ucbvi.problem.federation import Federation
from fed_ucbvi.problem.units import Units
from fed_ucbvi.results.about import About

if TYPE_CHECKING:
    from fed_ucbvi.algorithms.base import Algorithm
    from fed_ucbvi.engine.live import LiveFederation
    from fed_ucbvi.network.run_plan import RunPlan

MAX_SQUARES = 2_500
"""Grids with more squares are not drawn: arrows would be too small to see."""
SIZES = ("agents", "states", "actions", "horizon")


class Subject(NamedTuple):
    """What is shown.

    Attributes:
        title: the heading.
        algorithm: its parameters by name; empty for a sweep.
        environment: its options by name, likewise.
        agents: M.
        states: S.
        actions: A.
        horizon: H.
        layout: of the grid that the states live on, if they do; see :mod:`fed_ucbvi.results.grid`.
        nodes: those that are expected, where their names are known before they connect.
        units: of rewards, as far as they are known.
        settings: of the run, by name.
    """

    title: str
    algorithm: Mapping[str, Any] = {}
    environment: Mapping[str, Any] = {}
    agents: int = 0
    states: int = 0
    actions: int = 0
    horizon: int = 0
    layout: Mapping[str, Any] | None = None
    nodes: Sequence[str] = ()
    units: Units = Units()
    settings: Mapping[str, Any] = {}

    @classmethod
    def of(
        cls, algorithm: str, parameters: Mapping[str, Any], environment: Mapping[str, Any] | None, **known: Any
    ) -> Subject:
        """An algorithm by name and parameters, and the description of where it runs; ``known`` are other fields."""
        place = "over the network" if environment is None else f"on {environment.get('name', 'custom')}"
        known = {"units": Units.of(environment or {}), **known}
        return cls(f"{algorithm} {place}", {"name": algorithm, **parameters}, environment or {}, **known)

    @classmethod
    def of_run(
        cls, algorithm: Algorithm[Any, Any], federation: Federation | LiveFederation, **settings: Any
    ) -> Subject:
        """A simulation, or a live run."""
        sizes = {name: getattr(federation, name) or 0 for name in SIZES}
        layout = federation.layout if isinstance(federation, Federation) else None
        name, parameters = algorithm_name(algorithm), parameters_of(algorithm)
        return cls.of(name, parameters, federation.description, **sizes, layout=layout, settings=settings)

    @classmethod
    def of_plan(cls, plan: RunPlan) -> Subject:
        """A run over the network."""
        name, parameters, federation = algorithm_name(plan.algorithm), parameters_of(plan.algorithm), plan.federation
        settings = {"seed": plan.setting.seed, "collection": plan.collection, "secure sums": plan.secure_sums}
        return cls.of(
            name,
            parameters,
            None if federation is None else federation.description,
            **{name: getattr(plan.setting, name) for name in SIZES},
            layout=None if federation is None else federation.layout,
            nodes=tuple(plan.names or ()),
            settings=settings,
        )

    @classmethod
    def of_about(cls, about: About) -> Subject:
        sizes = {name: getattr(about, name) for name in SIZES}
        settings = {"seed": about.seed, "driver": about.driver}
        return cls.of(
            about.algorithm, about.parameters, about.environment, **sizes, layout=about.layout, settings=settings
        )

    def content(self) -> dict[str, Any]:
        """Ready for JSON; a grid that is too fine to be drawn is left out."""
        content = self._asdict()
        layout = content.pop("layout")
        for name in ("algorithm", "environment", "settings"):
            content[name] = {key: shortened(str(value)) for key, value in content[name].items() if value is not None}
        content["nodes"] = list(self.nodes)
        content["units"] = None if self.units == Units() else str(self.units)
        content["grid"] = None
        if layout is not None and layout["rows"] * layout["columns"] <= MAX_SQUARES:
            grid: dict[str, Any] = {name: int(layout[name]) for name in ("rows", "columns")}
            grid["cells"], grid["goals"] = (_squares(layout[name]) for name in ("cells", "goals"))
            content["grid"] = {**grid, "start": [int(part) for part in layout["start"]]}
        return content


def _squares(cells: Sequence[Sequence[int]]) -> list[list[int]]:
    return [[int(part) for part in cell] for cell in cells]
