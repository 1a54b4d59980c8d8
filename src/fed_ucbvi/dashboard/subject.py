"""What a page is about: the run or sweep that it shows, before anything is known of how it goes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from fed_ucbvi.algorithms import algorithm_name
from fed_ucbvi.algorithms.base import Algorithm, Setting
from fed_ucbvi.problem.federation import Federation
from fed_ucbvi.problem.units import Units
from fed_ucbvi.results.about import About

if TYPE_CHECKING:
    from fed_ucbvi.engine.live import LiveFederation

MOST_SQUARES = 2_500
"""Grids with more squares are not drawn: one could not see an arrow."""


class Subject(NamedTuple):
    """What is shown.

    Attributes:
        title: the heading.
        algorithm: its name; empty for a sweep.
        environment: likewise.
        agents: M.
        states: S.
        actions: A.
        horizon: H.
        layout: of the grid that the states live on, if they do; see :mod:`fed_ucbvi.results.grid`.
        nodes: those that are expected, where their names are known before they come.
        units: of rewards, as far as they are known.
    """

    title: str
    algorithm: str = ""
    environment: str = ""
    agents: int = 0
    states: int = 0
    actions: int = 0
    horizon: int = 0
    layout: Mapping[str, Any] | None = None
    nodes: Sequence[str] = ()
    units: Units = Units()

    @classmethod
    def of_run(cls, algorithm: Algorithm[Any, Any], federation: Federation | LiveFederation) -> Subject:
        """A simulation, or a live run."""
        name, where = algorithm_name(algorithm), str(federation.description.get("name", "custom"))
        sizes = (federation.agents, federation.states, federation.actions, federation.horizon or 0)
        layout = federation.layout if isinstance(federation, Federation) else None
        return cls(f"{name} on {where}", name, where, *sizes, layout, units=Units.of(federation.description))

    @classmethod
    def of_plan(
        cls,
        algorithm: Algorithm[Any, Any],
        setting: Setting,
        federation: Federation | None,
        nodes: Sequence[str] | None,
    ) -> Subject:
        """A run over the network."""
        sizes = (setting.agents, setting.states, setting.actions, setting.horizon)
        where = "" if federation is None else str(federation.description.get("name", "custom"))
        name = algorithm_name(algorithm)
        title = f"{name} on {where}" if where else f"{name} over the network"
        layout = None if federation is None else federation.layout
        return cls(title, name, where, *sizes, layout, tuple(nodes or ()))

    @classmethod
    def of_about(cls, about: About) -> Subject:
        """A run that is on record."""
        where = str(about.environment.get("name", "custom"))
        sizes = (about.agents, about.states, about.actions, about.horizon)
        units = Units.of(about.environment)
        return cls(f"{about.algorithm} on {where}", about.algorithm, where, *sizes, about.layout, units=units)

    def content(self) -> dict[str, Any]:
        """Ready for JSON; a grid that is too fine to be drawn is left out."""
        content = self._asdict()
        layout = content.pop("layout")
        content["nodes"] = list(self.nodes)
        content["units"] = None if self.units == Units() else str(self.units)
        content["grid"] = None
        if layout is not None and layout["rows"] * layout["columns"] <= MOST_SQUARES:
            grid: dict[str, Any] = {name: int(layout[name]) for name in ("rows", "columns")}
            grid["cells"], grid["goals"] = (_squares(layout[name]) for name in ("cells", "goals"))
            content["grid"] = {**grid, "start": [int(part) for part in layout["start"]]}
        return content


def _squares(cells: Sequence[Sequence[int]]) -> list[list[int]]:
    return [[int(part) for part in cell] for cell in cells]
