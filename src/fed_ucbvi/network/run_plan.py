"""Decisions of the server before the run: the task, who may take part, and what happens when things go wrong."""

from __future__ import annotations

import functools
import json
import math
import secrets
import time
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any

from fed_ucbvi.algorithms import algorithm_name, parameters_of
from fed_ucbvi.algorithms.base import Algorithm, Counting, Message, Setting, check_agents
from fed_ucbvi.algorithms.count_reporting import CountReporting, as_count_reporting
from fed_ucbvi.algorithms.count_table import CountTable, table_of_lists
from fed_ucbvi.algorithms.exact_sums import Grid
from fed_ucbvi.algorithms.fields import has_trajectories
from fed_ucbvi.algorithms.increments import Support, increments_of, listed_counts
from fed_ucbvi.core.errors import (
    InputError,
    check_number,
    check_positive_integer,
    printable,
)
from fed_ucbvi.core.limits import check_total_episodes
from fed_ucbvi.core.numbers import byte_count
from fed_ucbvi.core.plugins import is_attribute
from fed_ucbvi.core.version import __version__
from fed_ucbvi.engine.extension import warm_setting
from fed_ucbvi.engine.promises import Promises
from fed_ucbvi.environments.bins import Bins
from fed_ucbvi.network.certificates import check_name
from fed_ucbvi.network.federation_spec import AGENTS_SERVED, FederationRules, FederationSpec
from fed_ucbvi.network.messages import PROTOCOL, Welcome, one_line
from fed_ucbvi.problem.federation import Federation
from fed_ucbvi.problem.units import Units
from fed_ucbvi.results.policy import PolicyLike
from fed_ucbvi.specifications.fields import field_names

MAX_NUMBERS = 1 << 22
"""Transition counts in a report, so that a message has at most 32 MiB of them."""

MAX_SPEC_BYTES = 1 << 16
"""Of the spec in a welcome, which is a few hundred bytes long."""


EPOCHS_AHEAD = 3_600_000
"""How far a server's epoch may be ahead of another party's clock: an hour, for clocks that differ."""


def epoch_now() -> int:
    """Return the epoch of a server that starts now: the time in milliseconds."""
    return time.time_ns() // 10**6


@dataclass(frozen=True)
class RunPlan:
    """A run over the network, with its rules.

    Args:
        federation: the problem, where the server knows it; then regret is on record.
        counts: of an earlier run, to start from.
        rules: the rules of the federation.
        epoch: grows with every server that resumes the run; nodes refuse a smaller one than they have met.
        bins: by which all nodes make their real environments finite; part of what the run is.
        promises: to keep while the run learns.
        told_support: what a node was told of the transitions that there can be.
    """

    algorithm: Algorithm[Any, Any]
    setting: Setting
    _: KW_ONLY
    federation: Federation | None = None
    rules: FederationRules = field(default_factory=FederationRules)
    run: str = field(default_factory=lambda: secrets.token_hex(8))
    counts: CountTable | None = field(default=None, compare=False)
    epoch: int = field(default_factory=epoch_now)
    bins: Bins | None = None
    promises: Promises | None = field(default=None, compare=False)
    told_support: bytes = field(default=b"", repr=False)

    def __post_init__(self) -> None:
        for name in self.rules.nodes or ():
            check_name(name)
        if self.federation is None:  # the server knows sizes only
            object.__setattr__(self, "setting", replace(self.setting, starts_known=False))
        M = self.setting.agents
        check_positive_integer("episodes", self.setting.episodes)
        check_total_episodes(M, self.setting.episodes)
        check_number("eps_p", self.setting.eps_p, at_least=0, at_most=1)
        if not self.algorithm.stops_jointly:
            raise InputError(
                f"{self.algorithm.name} with these parameters lets every agent play on until it asks itself; over "
                "the network all agents stop together. Use forced_synchronisation=true."
            )
        if self.algorithm.level_law(self.setting).number > 1:
            raise InputError(
                f"{self.algorithm.name} with a drawn radius plays several policies in a round, which nodes do not "
                "yet do: the run's seed would show the server which of them each node plays. Use optimism=certain."
            )
        check_agents(self.algorithm, M)
        self._check_collection()
        if self.bins is not None:
            self._check_bins(self.bins)
        if self.rules.quorum is not None:
            as_count_reporting(
                self.algorithm,
                "needs a report of every node in every synchronisation, so rounds cannot close without some of "
                "them. Use fed-kl-ucbvi, whose reports are what is new, or leave out --quorum.",
            )
        if self.counts is not None:
            setting, counts = warm_setting(self.algorithm, self.setting, self.counts)
            object.__setattr__(self, "setting", setting)
            object.__setattr__(self, "counts", counts)
        if self.rules.secure_sums:
            self._check_secure()
        if self.promises is not None:
            self.promises.apply(self.algorithm)
            if self.rules.quorum is not None:
                raise InputError(
                    "what exploring costs must be known at the end of every round, and a node that is away may have "
                    "explored without anybody knowing; leave out --quorum, or --incumbent and --until-gap."
                )

    def _check_collection(self) -> None:
        if self.rules.live and self.setting.agents > 1 and has_trajectories(self.algorithm.report_type):
            raise InputError(
                f"{self.algorithm.name} needs one episode of every agent in every round; in a live collection nodes "
                "stop where they are. Use lockstep, or an algorithm that reports counts."
            )
        if not self.rules.live and self.bins is not None:
            raise InputError(
                "bins are for real environments, which cannot play in lockstep; serve with --collection live."
            )

    def _check_bins(self, bins: Bins) -> None:
        s = self.setting
        own = (bins.states + 1, bins.number_of_actions, bins.horizon)
        if (s.states, s.actions, s.horizon) != own:
            raise InputError(
                f"the run has (S, A, H) = ({s.states}, {s.actions}, {s.horizon}), its bins make {own} (one state "
                "more than they have, for what terminates)."
            )

    def _check_secure(self) -> None:
        if self.most_nodes < self.rules.least_members:
            raise InputError(
                f"secure sums need at least {self.rules.least_members} nodes, each with an agent or more: from the "
                "sum of two, each would know the other's numbers."
            )
        as_count_reporting(
            self.algorithm,
            "does not report what agents count in one round, which secure sums add up; use fed-kl-ucbvi or a "
            "CountingAlgorithm, or leave out --secure-sums.",
        )

    @property
    def most_nodes(self) -> int:
        """Largest number of nodes that can take part: each has an agent or more."""
        M = self.setting.agents
        return M if self.rules.nodes is None else min(M, len(set(self.rules.nodes)))

    @property
    def shape(self) -> tuple[int, int, int]:
        """``(steps, S, A)`` of a table of counts."""
        s = self.setting
        return 1 if self.algorithm.counting is Counting.STATIONARY else s.horizon, s.states, s.actions

    @functools.cached_property
    def support(self) -> Support:
        """The transitions that reports of what is new list: those of the problem, or all where nobody knows it.

        Raises:
            InputError: if they are too many for a message.
        """
        support = None
        if self.told_support:
            support = Support.unpacked(self.told_support, self.shape)
        elif self.federation is not None:
            support = Support.of(self.federation.successors, self.shape[0])
        numbers = math.prod(self.shape) * self.setting.states if support is None else support.numbers
        if numbers > MAX_NUMBERS:
            raise InputError(
                f"transition counts by step, state, action and next state would be {numbers:,} numbers a message, "
                f"which has at most {MAX_NUMBERS:,}. Use fewer states, or fed-ucbvi."
            )
        return support or Support.full(self.shape)

    @property
    def _grid(self) -> Grid:
        grid = self.algorithm.grid(self.setting)
        assert grid is not None
        return grid

    def listed(self, new: CountTable) -> Message:
        """New counts as a report; :meth:`read_counts` reads a sum of them."""
        return increments_of(new, self.support, self._grid)

    def read_counts(self, report: Message) -> CountTable:
        return listed_counts(self.support, self._grid, *report)

    def table_of(self, listed: dict[str, Any]) -> CountTable:
        """A table from what is listed of it."""
        return table_of_lists(self.shape, self._grid.bits, listed)

    @property
    def units(self) -> Units | None:
        """The units of rewards, where problem or bins give them; otherwise nodes declare them."""
        if self.federation is not None:
            return Units.of(self.federation.description)
        observed = None if self.bins is None else self.bins.reward_range
        return None if observed is None else Units.spanning(*observed)

    @property
    def exchanges(self) -> int:
        """Number of exchanges in one synchronisation."""
        return self.algorithm.message_sizes(self.setting).exchanges

    @property
    def reports_counts(self) -> bool:
        """True if agents report new counts."""
        return isinstance(self.algorithm, CountReporting)

    def welcome(self) -> Welcome:
        """The description of the run for nodes: the part of its specification that concerns them, and the epoch."""
        setting = self.setting
        spec = {
            "algorithm": algorithm_name(self.algorithm),
            "parameters": parameters_of(self.algorithm),
            "sizes": [setting.states, setting.actions, setting.horizon],
            "agents": setting.agents,
            "episodes": setting.episodes,
            "seed": setting.seed,
            "random_rewards": setting.random_rewards,
            "return_range": None if self.promises is None else self.promises.return_range,
            "collection": self.rules.collection,
            "secure_sums": self.rules.secure_sums,
            "least_episodes": self.rules.least_episodes,
            "least_members": self.rules.least_members,
        }
        lists_support = self.reports_counts and self.federation is not None
        return Welcome(
            protocol=PROTOCOL,
            version=__version__,
            run=self.run,
            epoch=self.epoch,
            spec=json.dumps(spec, sort_keys=True).encode(),
            eps_p=setting.eps_p,
            grid_bits=setting.grid_bits,
            earlier_visits=setting.earlier_visits,
            bins=b"" if self.bins is None else self.bins.text.encode(),
            support=self.support.packed if lists_support else b"",
        )

    @classmethod
    def told_by(cls, welcome: Welcome, spec: FederationSpec, algorithm: Algorithm[Any, Any]) -> RunPlan:
        """A node's view of the run; raises :class:`InputError` if the run is invalid."""
        setting = replace(
            spec.setting(),
            eps_p_known=True,
            eps_p=welcome.eps_p,
            grid_bits=welcome.grid_bits,
            earlier_visits=welcome.earlier_visits,
        )
        return cls(algorithm, setting, rules=spec.rules, told_support=welcome.support)


def read_spec(data: bytes, only: str | None = None) -> FederationSpec:
    """Specification that a server sends; ``only`` is the algorithm that the person at the keyboard has named.

    Data never make code run: without it the algorithm must be a registered one.
    """
    if len(data) > MAX_SPEC_BYTES:
        raise InputError(
            f"the server's spec has {byte_count(len(data))}; at most {byte_count(MAX_SPEC_BYTES)} are read."
        )
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise InputError(f"the server's spec is no JSON: {one_line(str(error))}.") from error
    if not isinstance(fields, dict):
        raise InputError("the server's spec is no JSON object.")
    name = str(fields.get("algorithm", ""))
    if only not in (None, name):
        raise InputError(f"the server runs {printable(name)}; this node takes part in {only} only (--algorithm).")
    if only is None and is_attribute(name):
        raise InputError(
            f"the server runs {printable(name)}, which is not registered here. If you have this code and trust it, "
            "name it when starting the node (--algorithm)."
        )
    try:
        spec = FederationSpec.from_data(fields, code=() if only is None else (only,))
    except (InputError, TypeError, ArithmeticError) as error:
        raise InputError(f"the server's spec cannot be: {one_line(str(error))}") from error
    problem = spec.run.problem
    if problem.sizes is None or problem.agents is None:
        raise InputError("the server's spec has no sizes.")
    return spec


def plan_for(
    algorithm: Algorithm[Any, Any],
    federation: Federation,
    episodes: int,
    *,
    seed: int = 0,
    **rest: Any,
) -> RunPlan:
    """The plan of a run on a federation that the server knows; ``rest`` are fields of the plan or of its rules."""
    random = federation.reward_variances is not None
    setting = Setting.of(federation, episodes, seed, random_rewards=random)
    rules = {name: value for name, value in rest.items() if name in field_names(FederationRules)}
    others = {name: value for name, value in rest.items() if name not in rules}
    return RunPlan(algorithm, setting, federation=federation, rules=FederationRules(**rules), **others)


def plan_of(
    spec: FederationSpec,
    *,
    counts: CountTable | None = None,
    incumbent: PolicyLike | None = None,
) -> RunPlan:
    """The plan of a run, from an environment, or from sizes or bins alone, when eps_p may be unknown.

    Args:
        spec: the run and the rules.
        counts: counts of an earlier run, to start from.
        incumbent: the policy in use today.
    """
    problem = spec.run.problem
    options = spec.run.options
    if [problem.environment, problem.sizes, problem.bins].count(None) != 2:
        raise InputError(
            "pass one of --env NAME (the server scores), --sizes S,A,H (it knows nothing else), and --bins FILE (for "
            "real environments that are made finite)."
        )
    algorithm = spec.run.algorithm.make()
    federation = None
    bins = None
    if problem.environment is not None:
        if problem.random_rewards is not None:
            raise InputError(
                "--random-rewards and --fixed-rewards go with --sizes or --bins; the tables of --env say whether "
                "rewards are random. Leave them out."
            )
        federation = problem.make_federation(AGENTS_SERVED)
    elif problem.bins is not None:
        bins = Bins.load(problem.bins)
        sizes = (bins.states + 1, bins.number_of_actions, bins.horizon)
        spec = replace(spec, run=replace(spec.run, problem=replace(problem, sizes=sizes)))
    setting = spec.setting(federation)
    promises = Promises.of(
        incumbent,
        options.loss,
        options.until_gap,
        (setting.horizon, setting.states, setting.actions),
        terminates=federation is None,
        return_range=options.return_range,
    )
    return RunPlan(
        algorithm,
        setting,
        federation=federation,
        rules=spec.rules,
        counts=counts,
        bins=bins,
        promises=promises,
    )
