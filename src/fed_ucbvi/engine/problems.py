"""Problems that a run can be played on: simulated federations and live environments, behind one interface.

A :class:`Problem` has sizes, units and, where its laws are known, the federation by which a run is scored. It makes
the party of agents that plays. Nothing behind this interface asks which kind of problem it is.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from fed_ucbvi.algorithms.base import Algorithm, Counting, Setting
from fed_ucbvi.algorithms.known_dynamics import FedKLUCBVIOverLaws
from fed_ucbvi.algorithms.return_bounds import new_histogram
from fed_ucbvi.core.errors import InputError, check_integer, check_positive_integer
from fed_ucbvi.core.files import file_digest
from fed_ucbvi.core.limits import MAX_COUNT, MAX_SEED, check_total_episodes
from fed_ucbvi.core.sampling.levels import ONE_LEVEL
from fed_ucbvi.core.types import CountArray, PolicyArray
from fed_ucbvi.engine.drivers.base import Fleet
from fed_ucbvi.engine.drivers.cuda import CUDA
from fed_ucbvi.engine.drivers.episodes import SimulatedReturns
from fed_ucbvi.engine.drivers.laws import LawReturns, law_fleet
from fed_ucbvi.engine.drivers.live import LiveDriver, LiveTables
from fed_ucbvi.engine.law_party import LawParty, check_law_driver
from fed_ucbvi.engine.live import LiveFederation
from fed_ucbvi.engine.simulated_party import SimulatedParty
from fed_ucbvi.environments import FederationLike, as_federation
from fed_ucbvi.problem.dynamics import Dynamics
from fed_ucbvi.problem.federation import Federation
from fed_ucbvi.problem.policies import by_action
from fed_ucbvi.problem.units import Units

FEDERATION = "federation.npz"
"""File of a checkpoint that holds a simulated federation."""


class Problem(ABC):
    """A problem of M agents, as a run sees it.

    Attributes:
        agents: M.
        states: S.
        actions: A.
        horizon: H.
        units: units of rewards.
        eps_p: heterogeneity; NaN if it is unknown.
        random_rewards: True if rewards may depend on chance, given step, state and action.
        known: the federation by which a run is scored; None where the laws of the agents are unknown.
        description: name and options, for the record.
        dynamics: known dynamics by which an algorithm may count; None where nothing is known.
        driver_name: name of the driver that collects the data, for the record.
        terminates: True if the last state stands for the end of an episode.
    """

    agents: int
    states: int
    actions: int
    horizon: int
    units: Units
    eps_p: float
    random_rewards: bool
    known: Federation | None
    description: Mapping[str, Any]
    dynamics: Dynamics | None = None
    driver_name: str
    terminates: bool

    @property
    def sizes(self) -> tuple[int, int, int]:
        """``(S, A, H)``."""
        return self.states, self.actions, self.horizon

    @abstractmethod
    def party(self, algorithm: Algorithm[Any, Any], setting: Setting) -> Any:
        """All agents of a run, ready to play."""

    def check_policies_change(self) -> None:
        """Raise if the agents cannot start from counts, play an incumbent or verify a policy; by default they can."""
        return

    def check_checkpoint(self) -> None:
        """Raise if a run on this problem cannot have a checkpoint; by default it can."""
        return

    @abstractmethod
    def returns(
        self, policy: PolicyArray, episodes: int, seed: int, limits: tuple[float, float] | None
    ) -> CountArray:
        """Histogram of the returns of ``episodes`` episodes of every agent under ``policy``.

        ``limits`` is the stated range of a return in [0, H]; a return outside is an error.
        """

    @abstractmethod
    def save(self, folder: Path) -> dict[str, Any]:
        """Write the problem to the folder of a checkpoint; entries of the manifest by which it is found again."""

    @abstractmethod
    def check_saved(self, folder: Path, manifest: Mapping[str, Any]) -> None:
        """Raise unless this is the problem of the checkpoint in ``folder``."""

    def setting(self, episodes: int, seed: int, grid_bits: int = 0) -> Setting:
        """The setting of a run of ``episodes`` episodes of every agent, checked."""
        T = check_positive_integer("episodes", episodes, at_most=MAX_COUNT)
        check_total_episodes(self.agents, T)
        eps_p_known = not math.isnan(self.eps_p)
        return Setting(
            states=self.states,
            actions=self.actions,
            horizon=self.horizon,
            agents=self.agents,
            episodes=T,
            eps_p=self.eps_p if eps_p_known else 0.0,
            seed=check_integer("seed", seed, at_most=MAX_SEED),
            eps_p_known=eps_p_known,
            random_rewards=self.random_rewards,
            grid_bits=grid_bits,
            starts_known=self.known is not None,
        )


class SimulatedProblem(Problem):
    """A federation whose agents are simulated in this process.

    Args:
        federation: the agents' MDPs.
        driver: how the data are collected; see :func:`fed_ucbvi.run`.
        pooled: False to keep the counts of every agent apart, also where one table for all agents would do. The
            result is the same.
    """

    terminates = False

    def __init__(self, federation: Federation, driver: str = "auto", *, pooled: bool = True) -> None:
        self.known: Federation = federation
        self.agents = federation.agents
        self.states = federation.states
        self.actions = federation.actions
        self.horizon = federation.horizon
        self.units = Units.of(federation.description)
        self.eps_p = federation.eps_p
        self.random_rewards = federation.reward_variances is not None
        self.description = federation.description
        self.driver_name = driver
        self._pooled = pooled

    def party(self, algorithm: Algorithm[Any, Any], setting: Setting) -> Any:
        return SimulatedParty(algorithm, setting, self.known, self.driver_name, pooled=self._pooled)

    def check_policies_change(self) -> None:
        if self.driver_name == CUDA:
            raise elsewhere_error()

    def check_checkpoint(self) -> None:
        if self.driver_name == CUDA:
            raise InputError("a run with the driver cuda has no checkpoint: what agents know stays on the GPU.")

    def returns(
        self, policy: PolicyArray, episodes: int, seed: int, limits: tuple[float, float] | None
    ) -> CountArray:
        histogram = new_histogram()
        fleet = Fleet.of(self.known, seed, random_rewards=self.random_rewards)
        simulated = SimulatedReturns(fleet, self.known)
        simulated.add(by_action(policy, self.actions), 0, episodes, histogram, limits)
        return histogram

    def save(self, folder: Path) -> dict[str, Any]:
        path = folder / FEDERATION
        self.known.save(path)
        return {"federation": file_digest(path)}

    def check_saved(self, folder: Path, manifest: Mapping[str, Any]) -> None:
        if "live" in manifest:
            raise _live_checkpoint(folder)

    @staticmethod
    def load(folder: Path, manifest: Mapping[str, Any]) -> SimulatedProblem:
        """The problem of the checkpoint in ``folder``."""
        if "live" in manifest:
            raise _live_checkpoint(folder)
        path = folder / FEDERATION
        if file_digest(path) != manifest["federation"]:
            raise InputError(f"{path} is damaged: it is not the file that was written.")
        return simulated_problem(Federation.load(path), manifest["driver"])


class KnownProblem(SimulatedProblem):
    """A simulated federation with known dynamics, which algorithms use.

    Args:
        federation: made by :meth:`Federation.from_laws`.
        driver: ``auto`` or ``episodes``; both play episode by episode.
        pooled: as for :class:`SimulatedProblem`.
    """

    def __init__(self, federation: Federation, driver: str = "auto", *, pooled: bool = True) -> None:
        check_law_driver(driver)
        super().__init__(federation, driver, pooled=pooled)
        self.dynamics = federation.dynamics

    def party(self, algorithm: Algorithm[Any, Any], setting: Setting) -> Any:
        if isinstance(algorithm, FedKLUCBVIOverLaws):
            return LawParty(algorithm, setting, self.known, pooled=self._pooled)
        return super().party(algorithm, setting)  # by step or over all steps, which are dynamics too

    def returns(
        self, policy: PolicyArray, episodes: int, seed: int, limits: tuple[float, float] | None
    ) -> CountArray:
        histogram = new_histogram()
        fleet = law_fleet(self.known, seed, 0, pooled=True, levels=ONE_LEVEL)
        returns = LawReturns(fleet, self.known)
        returns.add(by_action(policy, self.actions), 0, episodes, histogram, limits)
        return histogram


class LiveProblem(Problem):
    """Agents with Gymnasium environments of their own.

    Args:
        live: the environments.
        known: a table of the same problem, by which a run is scored; agents never see it.
    """

    driver_name = LiveDriver.name
    terminates = True

    def __init__(self, live: LiveFederation, known: Federation | None = None) -> None:
        self.live = live
        self.known = None if known is None else live.scored_by(known)
        self.agents = live.agents
        self.states = live.states
        self.actions = live.actions
        self.horizon = int(live.horizon or 0)
        self.units = live.units
        self.eps_p = math.nan if live.eps_p is None else float(live.eps_p)
        self.random_rewards = live.random_rewards
        self.description = live.description

    def party(self, algorithm: Algorithm[Any, Any], setting: Setting) -> Any:
        return self.live.party(algorithm, setting)

    def returns(
        self, policy: PolicyArray, episodes: int, seed: int, limits: tuple[float, float] | None
    ) -> CountArray:
        live = self.live
        agents = range(self.agents)
        counting = Counting.PAIRS if policy.ndim == 3 else Counting.POLICY
        tables = LiveTables(
            agents=self.agents,
            horizon=self.horizon,
            states=self.states,
            actions=self.actions,
            counting=counting,
            return_limits=limits,
        )
        no_limits = np.ones((1, *tables.visits.shape[1:]), dtype=np.int64)
        driver = LiveDriver(tables, agents, live.make, live.vectorisation, live.units, seed)
        with closing(driver):
            driver.extend(policy, no_limits, 0, episodes, asking=False)
        return tables.returns

    def save(self, folder: Path) -> dict[str, Any]:
        """Write nothing, as no file can hold environments; the manifest has what identifies them."""
        return {"live": self._identity()}

    def check_saved(self, folder: Path, manifest: Mapping[str, Any]) -> None:
        if "live" not in manifest:
            raise InputError(f"{folder} is the checkpoint of a simulation; continue it with resume({str(folder)!r}).")
        saved = manifest["live"]
        own = self._identity()
        for key in (*saved, *own):
            if saved.get(key) != own.get(key):
                raise InputError(
                    f"{folder} holds a run on other environments: {key} was {saved.get(key)}, and is "
                    f"{own.get(key)} now."
                )

    def _identity(self) -> dict[str, Any]:
        return self.live.identity(scored=self.known is not None)


ProblemLike = Problem | LiveFederation | FederationLike
"""What :func:`as_problem` takes."""


def as_problem(given: ProblemLike, driver: str = "auto", score_with: FederationLike | None = None) -> Problem:
    """The problem that a caller means.

    Args:
        given: a problem, live environments, or whatever stands for a federation.
        driver: how a simulation collects its data.
        score_with: for live environments, a table of the same problem to score the run by.
    """
    if isinstance(given, Problem):
        return given
    if isinstance(given, LiveFederation):
        if driver != "auto":
            raise InputError("live environments are played in this process, by a driver of their own; name no other.")
        return LiveProblem(given, None if score_with is None else as_federation(score_with))
    if score_with is not None:
        raise InputError("score_with is for live environments; tables are scored by themselves.")
    return simulated_problem(as_federation(given), driver)


def simulated_problem(federation: Federation, driver: str) -> SimulatedProblem:
    """The problem of a federation; one with known dynamics if it has any."""
    if federation.dynamics is None:
        return SimulatedProblem(federation, driver)
    return KnownProblem(federation, driver)


def elsewhere_error() -> InputError:
    """The error of a run that would have to change policies or counts of agents that are elsewhere."""
    return InputError(
        "a warm start, an incumbent and until_gap are for agents in this process; use fleets='local' and another "
        "driver than cuda."
    )


def _live_checkpoint(folder: Path) -> InputError:
    return InputError(
        f"{folder} is the checkpoint of a live run, which needs its environments: continue it in Python with "
        f"resume({str(folder)!r}, environments)."
    )
