"""Running an algorithm on live Gymnasium environments, whose kernels nobody needs to know."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fed_ucbvi.algorithms import AlgorithmLike, as_algorithm
from fed_ucbvi.algorithms.base import Algorithm, Array, Budgets, FleetTables, Message
from fed_ucbvi.algorithms.counts import Counts
from fed_ucbvi.core.errors import InputError, check_positive_integer
from fed_ucbvi.core.types import CountArray, PolicyArray
from fed_ucbvi.engine.checkpoint import Checkpoint
from fed_ucbvi.engine.drivers.base import Driver, RoundEnd
from fed_ucbvi.engine.drivers.live import LiveDriver, LiveTables, on_wider_supports
from fed_ucbvi.engine.progress import Progress, announce_compilation
from fed_ucbvi.engine.rounds import Paid, PlayedRound
from fed_ucbvi.engine.simulation import Caution, Simulation, drive
from fed_ucbvi.engine.warm_start import counts_from
from fed_ucbvi.environments import FederationLike, as_federation
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
from fed_ucbvi.problem.mdp import MDP
from fed_ucbvi.problem.units import Units
from fed_ucbvi.results.agents import is_known
from fed_ucbvi.results.round_record import OnRound
from fed_ucbvi.results.run import Run

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
        random_rewards: whether rewards depend on chance, given step, state and action. Then Fed-UCBVI's bonus covers
            their spread. Otherwise their means are taken for what is paid.
    """

    make: Callable[[int], gymnasium.Env[Any, Any]]
    agents: int
    horizon: int | None = None
    reward_range: Sequence[float] | None = None
    eps_p: float | None = None
    vectorisation: str = "sync"
    description: Mapping[str, object] = field(default_factory=lambda: {"name": "custom"})
    random_rewards: bool = False
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
        random_rewards: bool = False,
    ) -> LiveFederation:
        """Agents with the environment registered as ``id``; ``kwargs``, ``vary`` and ``seed`` as for tables.

        (:func:`fed_ucbvi.environments.gymnasium_tables.from_gymnasium`.)
        """
        each = kwargs_of_agents(agents, kwargs, vary, seed)
        about = {"name": from_gymnasium.__name__, "id": id, "kwargs": kwargs or {}, "vary": vary or {}, "seed": seed}
        bounds = reward_bounds(reward_range)
        return cls(
            limited_maker(id, each.__getitem__, horizon),
            agents,
            horizon,
            bounds,
            eps_p,
            vectorisation,
            {**about, "reward_range": bounds and list(bounds)},
            random_rewards,
        )


class LiveSimulation(Simulation):
    """A run on live environments. What cannot be computed without their kernels is NaN."""

    def __init__(
        self,
        algorithm: Algorithm[Any, Any],
        live: LiveFederation,
        episodes: int,
        seed: int,
        score_with: Federation | None,
        *,
        grid_bits: int = 0,
        counts: Counts | None = None,
    ) -> None:
        self.live = live
        scored = _scored(live, score_with)
        super().__init__(algorithm, scored, episodes, seed, LiveDriver.name, grid_bits=grid_bits, counts=counts)
        if self.algorithm.keeps_experience:
            self.tables.remember_all()
        self._width = self.tables.width

    def _random_rewards(self) -> bool:
        return self.live.random_rewards

    def _make_drivers(self) -> tuple[Driver, Sequence[Driver], FleetTables]:
        """Live drivers on common tables."""
        live, setting = self.live, self.setting
        counting, grid = self.algorithm.counting, self.algorithm.reward_grid(setting)
        self.tables = LiveTables(
            setting.agents, setting.horizon, setting.states, setting.actions, counting=counting, grid=grid
        )

        def driver(agents: range) -> LiveDriver:
            return LiveDriver(self.tables, agents, live.make, live.vectorisation, live.units, setting.seed)

        everyone = range(setting.agents)
        together = driver(everyone)
        apart = [] if self.algorithm.together else [driver(range(i, i + 1)) for i in everyone]
        self._drivers = [together, *apart]
        return together, apart, self.tables.for_agents()

    def _play_round(self, broadcast: Message) -> PlayedRound:
        """One round; the reward on record is the one that was paid."""
        self.tables.forget_payments()
        played = super()._play_round(broadcast)
        everyone = self.setting.agents * played.stop.length
        episodes = everyone if played.lengths is None else int(played.lengths.sum())
        starts = self.tables.starts.sum(axis=0)
        return played._replace(paid=Paid(episodes, self.tables.paid, starts, self.tables.paid_squares))

    def _collect(self, policy: PolicyArray, budgets: Budgets) -> tuple[RoundEnd, CountArray | None]:
        played = super()._collect(policy, budgets)
        if self.tables.width > self._width:
            self._widen()
        return played

    def _widen(self) -> None:
        """Move the agents to wider supports."""
        self._width = self.tables.width
        self.agents = on_wider_supports(self.algorithm, self.setting, self.agents, self.tables)
        self.algorithm.budgets(self.agents, self.algorithm.broadcast(self.server))

    def identity(self) -> dict[str, Any]:
        """Sizes, the description, and what was said about the environments."""
        known = {"states": self.live.states, "actions": self.live.actions, "eps_p": self.live.eps_p}
        random = {"random_rewards": True} if self.live.random_rewards else {}
        about = {**known, **random, "scored": is_known(self.federation), **self.live.description}
        same: dict[str, Any] = json.loads(json.dumps(about))
        return same

    def _seen(self) -> dict[str, Array]:
        """Supports and means of rewards."""
        return self.tables.arrays()

    def _see_again(self, arrays: Mapping[str, Array]) -> None:
        """Supports as wide as they were, and agents with as many slots."""
        self.tables.restore(arrays)
        if self.tables.width != self._width:
            self._width = self.tables.width
            self.agents = self.algorithm.new_agents(self.setting, self.tables.for_agents())

    def close(self) -> None:
        """Close all environments."""
        for driver in self._drivers:
            driver.close()


def run_live(
    algorithm: AlgorithmLike,
    live: LiveFederation,
    episodes: int,
    *,
    seed: int = 0,
    score_with: FederationLike | None = None,
    progress: bool | Callable[[Progress], None] = True,
    on_round: OnRound | None = None,
    checkpoint: str | Path | None = None,
    checkpoint_every: int = 100,
    warm_start: Counts | str | Path | None = None,
) -> Run:
    """Run ``algorithm`` on live environments for exactly ``episodes`` episodes per agent.

    All agents stop after the same number of episodes, as in simulation. Regret and values are unknown (NaN, ``null``
    in JSON) unless ``score_with`` gives the federation that the environments are, which the agents never see.

    Args:
        algorithm: as for :func:`fed_ucbvi.run`.
        live: the environments.
        episodes: T.
        seed: of the environments (each agent's from ``(seed, agent)``, once, at its first reset), the initial
            policy and ties.
        score_with: the same problem as a table, as :func:`from_gymnasium` makes it, to compute regret with. A table
            of one's own need not have the state that is added to the environments' states for what terminates.
        progress: as for :func:`fed_ucbvi.run`.
        on_round: as for :func:`fed_ucbvi.run`.
        checkpoint: folder to keep the state in, for :func:`resume_live`.
        checkpoint_every: rounds between two checkpoints; what real environments have played since the last one is
            lost when a run is killed.
        warm_start: as for :func:`fed_ucbvi.run`.

    Raises:
        InputError: if something cannot be used.
        Interrupted: on Ctrl-C; carries the partial result.
    """
    algorithm, live, table = as_algorithm(algorithm), _as_live(live), _as_table(score_with)
    announce_compilation()
    every = check_positive_integer("checkpoint_every", checkpoint_every)
    simulation = LiveSimulation(algorithm, live, episodes, seed, table, counts=counts_from(warm_start))
    store = nullcontext() if checkpoint is None else Checkpoint.create(Path(checkpoint), simulation, every)
    with closing(simulation), store as kept:
        for text in algorithm.cautions(simulation.setting):
            warnings.warn(text, Caution, stacklevel=2)
        return drive(simulation, progress, kept, on_round)


def resume_live(
    folder: str | Path,
    live: LiveFederation,
    *,
    episodes: int | None = None,
    score_with: FederationLike | None = None,
    progress: bool | Callable[[Progress], None] = True,
    on_round: OnRound | None = None,
) -> Run:
    """Resume the live run whose checkpoint is in ``folder``, on the environments it was begun with.

    Server, agents, supports, records and clocks are those of the checkpoint. The environments are not in it. They are
    made anew, and each is seeded at its first reset from (seed, agent, number of the episode), so that it does not
    show again what has been seen. Where an episode depends on nothing but its number, the result equals that of an
    uninterrupted run bit for bit; elsewhere it is another run of the same law.

    Args:
        folder: what ``run_live(..., checkpoint=folder)`` wrote.
        live: the environments: same sizes, same description, same reward_range and eps_p as then.
        episodes: T, if there are to be more than planned; as for :func:`fed_ucbvi.resume`.
        score_with: the table, if there was one.
        progress: as for :func:`fed_ucbvi.run`.
        on_round: as for :func:`fed_ucbvi.run`.

    Raises:
        InputError: if the environments are others than those of the checkpoint, or something else cannot be used.
        Interrupted: on Ctrl-C; carries the partial result.
    """
    live, table = _as_live(live), _as_table(score_with)

    def simulate(algorithm: Algorithm[Any, Any], **rest: Any) -> LiveSimulation:
        return LiveSimulation(algorithm, live, score_with=table, **rest)

    store, simulation = Checkpoint.open_live(Path(folder), simulate, episodes)
    with closing(simulation), store:
        return drive(simulation, progress, store, on_round)


def _as_live(given: object) -> LiveFederation:
    if not isinstance(given, LiveFederation):
        raise InputError(
            "pass a LiveFederation, such as LiveFederation.from_gymnasium('CliffWalking-v1', agents=4, ...), not "
            f"{type(given).__name__}; what is known as tables is for run()."
        )
    return given


def _as_table(given: FederationLike | None) -> Federation | None:
    return None if given is None else as_federation(given)


def _scored(live: LiveFederation, table: Federation | None) -> Federation:
    """The federation that a live run is measured on: the one given, or one of which nothing is known."""
    M, S, A, H = live.agents, live.states, live.actions, int(live.horizon or 0)
    description = dict(live.description)
    eps_p = math.nan if live.eps_p is None else float(live.eps_p)
    if table is not None:
        table = _with_end(table) if table.states == S - 1 else table
        sizes = (table.agents, table.states, table.actions, table.horizon)
        if sizes != (M, S, A, H):
            raise InputError(
                f"score_with is not the same problem: (M, S, A, H) is {sizes}, that of the environments "
                f"{(M, S, A, H)} (one state more than they have, for what terminates)."
            )
        if Units.of(table.description) != live.units:
            raise InputError(
                f"score_with counts rewards in {Units.of(table.description)}, the live run in {live.units}; pass the "
                "same reward_range to both."
            )
        return replace(table, eps_p=eps_p, description=description, liars=None, reward_variances=None)
    common = MDP.unknown(S, A, H)
    return Federation(
        successors=common.kernel.successors,
        probabilities=np.broadcast_to(common.kernel.probabilities, (M, 1, S, A, 1)),
        rewards=common.rewards[None],
        initial=np.full((M, S), np.nan),
        common=common,
        eps_p=eps_p,
        eps_r=float("nan"),
        description=description,
    )


def _with_end(table: Federation) -> Federation:
    """The same federation with the state that live runs add to the environments' own; here nothing leads to it."""
    agents = [table.agent(i).with_end() for i in range(table.agents)]
    longer = Federation.from_mdps(agents, reference="mean", description=table.description)
    return replace(longer, common=table.common.with_end(), eps_r=table.eps_r)
