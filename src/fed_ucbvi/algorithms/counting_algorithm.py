"""The frame of algorithms whose agents report counts: the server adds them up and plans from all of them.

Reports are what is new since the last one, in integers. So it does not matter how agents are grouped, nodes can mask
what they report (secure sums), and agents can play another policy than the server's, such as an incumbent, and count
it alike. Fed-KL-UCBVI reports in the same way.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from fed_ucbvi.algorithms.base import Setting
from fed_ucbvi.algorithms.count_reporting import CountingServer, CountReporting
from fed_ucbvi.algorithms.count_table import CountTable
from fed_ucbvi.algorithms.exact_sums import Grid
from fed_ucbvi.algorithms.synchronisation_rules import DoublingRule, SynchronisationRule
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.types import CountArray, FloatArray, MaskArray, PolicyArray
from fed_ucbvi.problem.policies import by_action


class Plan(NamedTuple):
    """The last plan of a server: sets of actions ``(H, S, A)``, values ``(H+1, S)``, and the number of plans."""

    policy: MaskArray
    V: FloatArray
    updates: CountArray


class Planning(NamedTuple):
    """The planning of a server.

    Attributes:
        algorithm: whose ``plan`` is called.
        setting: of the run.
        explore: True for a policy that explores; False for the one to recommend.
    """

    algorithm: CountingAlgorithm
    setting: Setting
    explore: bool


@dataclass
class PlanningServer(CountingServer[Plan, Planning]):
    """A server that plans from the counts of all agents after each synchronisation."""

    grid: Grid

    @property
    def policy(self) -> PolicyArray:
        """Sets of actions ``(H, S, A)``; of a planner the first of each, ``(H, S)``."""
        sets = self.estimates.policy
        return sets if self.rule.explore else np.asarray(sets.argmax(axis=2).astype(np.int32))

    def update(self) -> None:
        self.estimates.updates[0] += 1
        self.plan()

    def plan(self) -> None:
        """Plan anew from the counts."""
        algorithm, setting, explore = self.rule
        policy, V = _checked(algorithm.name, setting, algorithm.plan(setting, self.table, explore=explore))
        self.estimates.policy[...] = by_action(policy, setting.actions)
        self.estimates.V[...] = V


class CountingAlgorithm(CountReporting[PlanningServer]):
    """Defaults for an algorithm that plans from the counts of all agents; a subclass defines :meth:`plan`.

    Such an algorithm has secure sums, quorums, logs of nodes, warm starts and incumbents. By default an agent
    requests a synchronisation once the visits of all agents to some (h,s,a) may have doubled
    (``synchronisation_rule``), and visits are counted by step. ``examples/hoeffding.py`` is a whole algorithm.

    An algorithm that draws among all actions:

    >>> @dataclass(frozen=True)
    ... class Uniform(CountingAlgorithm):
    ...     name: ClassVar[str] = "uniform"
    ...
    ...     def plan(self, setting, counts, *, explore):
    ...         every = np.ones((setting.horizon, setting.states, setting.actions), dtype=bool)
    ...         return every, np.zeros((setting.horizon + 1, setting.states))
    >>> from fed_ucbvi import run, synthetic
    >>> run(Uniform(), synthetic(agents=4), episodes=64).complete
    True
    """

    rules: ClassVar[tuple[str, ...]] = ("global",)

    @abstractmethod
    def plan(self, setting: Setting, counts: CountTable, *, explore: bool) -> tuple[PolicyArray, FloatArray]:
        """A policy and its values from the counts of all agents.

        The plan must depend on nothing else, so that simulations, resumed runs and servers find the same one. Draw
        random numbers, if you need some, from a generator whose seed is made of ``setting.seed`` and the counts.

        Args:
            setting: of the run.
            counts: visits ``counts.visits[h,s,a]``, mean rewards ``counts.mean_rewards()[h,s,a]``, and visits by next
                state ``counts.dense()[h,s,a,s']``; not to be changed.
            explore: True for the policy of the next round; False for the policy to recommend, which should not rely
                on pairs that were never visited.

        Returns:
            Actions ``(H, S)``, or truth values ``(H, S, A)`` for sets of actions among which agents draw; of a policy
            to recommend the first action of each set is used. And values ``(H+1, S)``, 0 in the last row.
        """

    def new_server(self, setting: Setting) -> PlanningServer:
        """The first policy is planned from no counts at all."""
        H = setting.horizon
        S = setting.states
        A = setting.actions
        grid = self.grid(setting)
        table = CountTable.empty(self.counting.shape(H, S, A)[0], S, A, bits=grid.bits)
        server = PlanningServer(_blank(setting), Planning(self, setting, explore=True), table, grid)
        server.plan()
        return server

    def new_planner(self, setting: Setting, server: PlanningServer) -> PlanningServer:
        """The plan to recommend, from all counts of the server."""
        return server.planner(_blank(setting), Planning(self, setting, explore=False))

    def synchronisation_rule(self, setting: Setting) -> SynchronisationRule:
        """The global doubling rule."""
        return DoublingRule.named("global")


def _blank(setting: Setting) -> Plan:
    H = setting.horizon
    S = setting.states
    A = setting.actions
    return Plan(np.zeros((H, S, A), dtype=np.bool_), np.zeros((H + 1, S)), np.zeros(1, dtype=np.int64))


def _checked(name: str, setting: Setting, plan: Any) -> tuple[PolicyArray, FloatArray]:
    """The result of ``plan()``, if it has the form of a policy with values."""
    H = setting.horizon
    S = setting.states
    A = setting.actions
    if not isinstance(plan, tuple) or len(plan) != 2:
        raise InputError(f"{name}: plan() must return a policy and its values, got {type(plan).__name__}.")
    policy, V = plan
    actions = isinstance(policy, np.ndarray) and policy.dtype.kind == "i" and policy.shape == (H, S)
    sets = isinstance(policy, np.ndarray) and policy.dtype.kind == "b" and policy.shape == (H, S, A)
    if not actions and not sets:
        raise InputError(
            f"{name}: the policy of plan() must be actions, integers of shape (H, S) = {(H, S)}, or truth values of "
            f"shape (H, S, A) = {(H, S, A)}, got {_form(policy)}."
        )
    if not isinstance(V, np.ndarray) or V.dtype.kind != "f" or V.shape != (H + 1, S):
        raise InputError(
            f"{name}: the values of plan() must be floats of shape (H+1, S) = {(H + 1, S)}, got {_form(V)}."
        )
    return policy, V


def _form(value: Any) -> str:
    return f"{value.dtype} {value.shape}" if isinstance(value, np.ndarray) else type(value).__name__
