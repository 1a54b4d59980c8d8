"""Live Gymnasium environments as a federation, whose kernels nobody needs to know."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from fed_ucbvi.algorithms.base import Algorithm, Setting
from fed_ucbvi.core.errors import InputError, check_positive_integer
from fed_ucbvi.engine.live_party import LiveParty
from fed_ucbvi.environments.gymnasium_making import (
    Kwargs,
    kwargs_of_agents,
    limited_maker,
    live_sizes,
    live_units,
    reward_bounds,
)
from fed_ucbvi.environments.gymnasium_tables import from_gymnasium
from fed_ucbvi.problem.federation import Federation, check_eps_p
from fed_ucbvi.problem.units import Units

if TYPE_CHECKING:
    import gymnasium


@dataclass(frozen=True)
class LiveFederation:
    """M agents, each with a Gymnasium environment of its own, known by ``reset`` and ``step`` alone.

    Observations and actions must be ``Discrete``. There is one state more than the environment has, the last: an
    episode that terminates goes there, is paid 0 and stays until the horizon.

    Args:
        make: agent i's environment is ``make(i)``.
        agents: M.
        horizon: H; by default the environment's max_episode_steps, if it has one.
        reward_range: ``(low, high)``, between which every reward lies; it cannot be found out, so it must be given.
        eps_p: of Assumption 1, if it is known; Fed-UCBVI's threshold nu depends on it. Where it is not given it is
            unknown, and nu is computed as if the agents were alike, with 0.
        vectorisation: ``sync``: all environments in this process; ``async``: a process for each agent, which pays
            where a step takes long.
        description: for the record.
        random_rewards: True, as by default, if rewards may depend on chance, given step, state and action: optimism
            then covers their spread. With False a second, different reward of an agent for the same step, state and
            action ends the run with an error.
    """

    make: Callable[[int], gymnasium.Env[Any, Any]]
    agents: int
    horizon: int | None = None
    reward_range: Sequence[float] | None = None
    eps_p: float | None = None
    vectorisation: str = "sync"
    description: Mapping[str, object] = field(default_factory=lambda: {"name": "custom"})
    random_rewards: bool = True
    states: int = field(init=False)
    actions: int = field(init=False)
    units: Units = field(init=False)

    def __post_init__(self) -> None:
        M = check_positive_integer("agents", self.agents)
        if self.eps_p is not None:
            check_eps_p(self.eps_p)
        units = live_units(self.reward_range)
        states, actions, horizon = live_sizes(self.make, range(M), self.horizon)
        told = {"horizon": horizon, "agents": M, "reward_offset": units.offset, "reward_scale": units.scale}
        computed = {"horizon": horizon, "states": states, "actions": actions, "units": units}
        for name, value in {**computed, "description": {**self.description, **told}}.items():
            object.__setattr__(self, name, value)

    @classmethod
    def from_gymnasium(
        cls,
        id: str,
        agents: int = 20,
        *,
        horizon: int | None = None,
        reward_range: Sequence[float] | None = None,
        kwargs: Kwargs | Sequence[Kwargs] | None = None,
        vary: Mapping[str, Sequence[float]] | None = None,
        seed: int = 0,
        eps_p: float | None = None,
        vectorisation: str = "sync",
        random_rewards: bool = True,
    ) -> LiveFederation:
        """Agents with the environment registered as ``id``; ``kwargs``, ``vary`` and ``seed`` as for tables.

        (:func:`fed_ucbvi.environments.gymnasium_tables.from_gymnasium`.)
        """
        each = kwargs_of_agents(agents, kwargs, vary, seed)
        make = limited_maker(id, each.__getitem__, horizon)
        bounds = reward_bounds(reward_range)
        given = {"id": id, "kwargs": kwargs or {}, "vary": vary or {}, "seed": seed}
        about = {"name": from_gymnasium.__name__, **given, "reward_range": bounds and list(bounds)}
        return cls(make, agents, horizon, bounds, eps_p, vectorisation, about, random_rewards)

    def party(self, algorithm: Algorithm[Any, Any], setting: Setting) -> LiveParty:
        """The agents of a run, with their environments, in this process."""
        return LiveParty(algorithm, setting, range(self.agents), self.make, self.units, self.vectorisation)

    def identity(self, *, scored: bool) -> dict[str, Any]:
        """Identity of environments, which no file can hold; ready for JSON.

        ``scored`` says whether the run on them is scored by a table.
        """
        known = {"states": self.states, "actions": self.actions, "eps_p": self.eps_p, "scored": scored}
        random = {"random_rewards": True} if self.random_rewards else {}
        same: dict[str, Any] = json.loads(json.dumps({**known, **random, **self.description}))
        return same

    def scored_by(self, table: Federation) -> Federation:
        """The federation by which a run is scored: ``table``, with the description of these environments.

        Raises:
            InputError: if the table has other sizes or units.
        """
        if table.states == self.states - 1:
            table = _with_end(table)
        sizes = (table.agents, table.states, table.actions, table.horizon)
        expected = (self.agents, self.states, self.actions, int(self.horizon or 0))
        if sizes != expected:
            raise InputError(
                f"score_with is not the same problem: (M, S, A, H) is {sizes}, that of the environments "
                f"{expected} (one state more than they have, for what terminates)."
            )
        if Units.of(table.description) != self.units:
            raise InputError(
                f"score_with counts rewards in {Units.of(table.description)}, the live run in {self.units}; pass "
                "the same reward_range to both."
            )
        return replace(
            table,
            eps_p=math.nan if self.eps_p is None else float(self.eps_p),
            description=dict(self.description),
            liars=None,
            reward_variances=None,
            dynamics=None,
            laws=None,
        )


def _with_end(table: Federation) -> Federation:
    """This federation with the state that live runs add to the environments' own; here nothing leads to it."""
    agents = [table.agent(i).with_end() for i in range(table.agents)]
    longer = Federation.from_mdps(agents, reference="mean", description=table.description)
    return replace(longer, common=table.common.with_end(), eps_r=table.eps_r)
