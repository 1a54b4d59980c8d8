"""What the server has decided before the run: the task, who may take part, and what happens when things go wrong."""

from __future__ import annotations

import json
import secrets
import time
from dataclasses import dataclass, field
from typing import Any

from fed_ucbvi.algorithms import algorithm_name, parameters_of
from fed_ucbvi.algorithms.base import SUMS, Algorithm, Counting, Message, Setting
from fed_ucbvi.algorithms.counts import Counts
from fed_ucbvi.core.errors import InputError, check_choice, check_integer, check_number, check_positive_integer
from fed_ucbvi.core.sampling.distributions import MAX_COUNT
from fed_ucbvi.core.sampling.philox import MAX_SEED
from fed_ucbvi.core.version import __version__
from fed_ucbvi.engine.going_on import warmed
from fed_ucbvi.environments.bins import Bins
from fed_ucbvi.network.messages import PROTOCOL, Welcome
from fed_ucbvi.network.secure_sums import MIN_NODES
from fed_ucbvi.problem.federation import Federation
from fed_ucbvi.problem.units import Units

LOCKSTEP, LIVE = COLLECTIONS = ("lockstep", "live")
"""Lockstep: all agents stop after the same episode. Live: each node stops when the message to stop arrives."""
AWAY = ("wait", "last", "exclude")
VIOLATION = ("stop", "drop")
STEPS, MODEL = EXCHANGES = ("steps", "model")
"""Steps: a synchronisation asks once for each step. Model: it asks once in all, for transition counts."""
MAX_NUMBERS = 1 << 22
"""In a table of transition counts by (h,s,a,s'), so that a message has at most 32 MiB of them."""


def epoch_now() -> int:
    """The time in milliseconds, which distinguishes the servers of one run."""
    return time.time_ns() // 10**6


@dataclass(frozen=True)
class Rules:
    """Deadlines and policies.

    Args:
        deadline: seconds a node has for one answer; after that its connection is given up.
        patience: seconds to wait for a node that is away (and, before the run, for all to come: ``gathering``).
        away: what to do when patience ends. ``wait``: stop the run, which can be resumed from its checkpoint.
            ``last``: continue with the node's last reports until it comes back. ``exclude``: continue without it for
            good.
        violation: what to do with a node whose report cannot be true: ``stop`` the run or ``drop`` the node.
        gathering: seconds to wait for all nodes before the first round.
    """

    deadline: float = 60.0
    patience: float = 600.0
    away: str = "wait"
    violation: str = "stop"
    gathering: float = 3600.0

    def __post_init__(self) -> None:
        for name in ("deadline", "patience", "gathering"):
            check_number(name, getattr(self, name), above=0)
        check_choice("policy for nodes that are away", self.away, AWAY)
        check_choice("policy for violations", self.violation, VIOLATION)


@dataclass(frozen=True)
class RunPlan:
    """A run over the network.

    Args:
        algorithm: parameters.
        setting: S, A, H, M, T, eps_p and the seed, and whether rewards are random.
        names: the nodes that may take part; all that hold a certificate if none are named.
        collection: how agents stop.
        rules: deadlines and policies.
        federation: the problem, where the server knows it; then regret is on record.
        run: identifies the run.
        secure_sums: nodes mask what they report, and the server learns sums over all of them.
        exchange: whether a synchronisation asks step by step or once for transition counts.
        counts: of an earlier run, to start from.
        without: nodes that have left for good.
        epoch: grows with every server that resumes the run; nodes refuse a smaller one than they have met.
        bins: by which all nodes make their real environments finite; part of what the run is.
    """

    algorithm: Algorithm[Any, Any]
    setting: Setting
    names: tuple[str, ...] | None = None
    collection: str = LOCKSTEP
    rules: Rules = field(default_factory=Rules)
    federation: Federation | None = None
    run: str = field(default_factory=lambda: secrets.token_hex(8))
    secure_sums: bool = False
    exchange: str = STEPS
    counts: Counts | None = field(default=None, compare=False)
    without: tuple[str, ...] = ()
    epoch: int = field(default_factory=epoch_now)
    bins: Bins | None = None

    def __post_init__(self) -> None:
        check_choice("collection", self.collection, COLLECTIONS)
        check_choice("way of exchanging", self.exchange, EXCHANGES)
        M, T = self.setting.agents, self.setting.episodes
        check_positive_integer("agents", M)
        check_positive_integer("episodes", T, at_most=MAX_COUNT // M)
        check_integer("seed", self.setting.seed, at_most=MAX_SEED)
        check_number("eps_p", self.setting.eps_p, at_least=0, at_most=1)
        if not self.algorithm.together:
            raise InputError(
                f"{self.algorithm.name} with these parameters lets every agent play on until it asks itself; over "
                "the network all agents stop together. Take forced_synchronisation=true."
            )
        self.algorithm.check_agents(M)
        if self.bins is not None:
            self._check_bins(self.bins)
        if self.counts is not None:
            setting, counts = warmed(self.algorithm, self.setting, self.counts)
            object.__setattr__(self, "setting", setting)
            object.__setattr__(self, "counts", counts)
        if self.secure_sums:
            self._check_secure()
        if self.exchange == MODEL:
            self._check_model()
        elif self.algorithm.server_counts:
            stationary = self.algorithm.counting is Counting.STATIONARY
            self._check_numbers("Use fed-ucbvi." if stationary else "Use stationary=True or fed-ucbvi.")

    def _check_bins(self, bins: Bins) -> None:
        """Raise unless bins belong to the run."""
        if self.collection != LIVE:
            raise InputError(
                "bins are for nodes with real environments, which cannot play in lockstep; serve with --collection "
                "live."
            )
        s, own = self.setting, (bins.states + 1, bins.number_of_actions, bins.horizon)
        if (s.states, s.actions, s.horizon) != own:
            raise InputError(
                f"the run has (S, A, H) = ({s.states}, {s.actions}, {s.horizon}), its bins make {own} (one state "
                "more than they have, for what terminates)."
            )

    def _check_secure(self) -> None:
        """Raise where sums cannot be all that the server learns."""
        named = self.setting.agents if self.names is None else len(set(self.names))
        if min(named, self.setting.agents) < MIN_NODES:
            raise InputError(
                f"secure sums need at least {MIN_NODES} nodes, each with an agent or more: from the sum of two, "
                "each would know the other's numbers."
            )
        if self.algorithm.takes != SUMS or (self.federation is not None and self.federation.liars is not None):
            raise InputError(
                f"{self.algorithm.name} needs every agent's report by itself, so secure sums cannot hide it. Take "
                "an algorithm whose reports are sums, or leave out --secure-sums."
            )
        if self.rules.away == "last":
            raise InputError(
                "secure sums do not go with --on-away last: nobody has the last report of a node by itself. Take "
                "wait or exclude."
            )

    def _check_model(self) -> None:
        """Raise where transition counts cannot replace reports."""
        if not self.algorithm.has_models:
            raise InputError(
                f"{self.algorithm.name} with these parameters does not work from counts added up over agents; take "
                "--exchange steps."
            )
        self._check_numbers("Use --exchange steps.")

    def _check_numbers(self, instead: str) -> None:
        """Raise where transition counts are too many for a message."""
        s = self.setting
        steps = 1 if self.algorithm.counting is Counting.STATIONARY else s.horizon
        numbers = steps * s.states * s.actions * s.states
        if numbers > MAX_NUMBERS:
            raise InputError(
                f"transition counts by step, state, action and next state would be {numbers:,} numbers a message, "
                f"which has at most {MAX_NUMBERS:,}. {instead}"
            )

    @property
    def may_exclude(self) -> bool:
        """Whether the run goes on without nodes that stay away or break the rules."""
        return self.rules.away == "exclude" or self.rules.violation == "drop"

    @property
    def units(self) -> Units | None:
        """Those of rewards, where the problem or the bins say them; else the nodes do."""
        if self.federation is not None:
            return Units.of(self.federation.description)
        observed = None if self.bins is None else self.bins.reward_range
        return None if observed is None else Units.spanning(*observed)

    @property
    def exchanges(self) -> int:
        """How many queries one synchronisation sends down."""
        return 1 if self.exchange == MODEL else self.algorithm.exchanges(self.setting)

    def query(self, server: Any, exchange: int) -> Message:
        """What a query holds; nothing, where counts are asked for."""
        return () if self.exchange == MODEL else self.algorithm.query(server, exchange)

    def report(self, agents: Any, query: Message, exchange: int) -> Message:
        """What agents answer."""
        return (
            self.algorithm.model(agents) if self.exchange == MODEL else self.algorithm.report(agents, query, exchange)
        )

    def welcome(self) -> Welcome:
        """What a node is told."""
        s = self.setting
        parameters = json.dumps(parameters_of(self.algorithm), sort_keys=True)
        return Welcome(
            PROTOCOL,
            __version__,
            self.run,
            algorithm_name(self.algorithm),
            parameters,
            s.states,
            s.actions,
            s.horizon,
            s.agents,
            s.episodes,
            s.eps_p,
            s.seed,
            self.collection,
            s.random_rewards,
            self.epoch,
            self.secure_sums,
            self.exchange,
            self.may_exclude,
            s.grid_bits,
            s.earlier_visits,
            "" if self.bins is None else self.bins.text,
        )


def plan_for(
    algorithm: Algorithm[Any, Any], federation: Federation, episodes: int, *, seed: int = 0, **rest: Any
) -> RunPlan:
    """The plan of a run whose problem the server knows."""
    setting = Setting(
        federation.states,
        federation.actions,
        federation.horizon,
        federation.agents,
        episodes,
        federation.eps_p,
        seed,
        random_rewards=federation.reward_variances is not None,
    )
    return RunPlan(algorithm, setting, federation=federation, **rest)
