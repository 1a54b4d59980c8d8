"""A run over the network: the run, and the rules of the federation that makes it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.parameters import Bounds, Help, NonNegative, Positive, Size
from fed_ucbvi.specifications.fields import check_fields, field_names, plain_fields
from fed_ucbvi.specifications.run import RunSpec

if TYPE_CHECKING:
    from fed_ucbvi.algorithms.base import Setting
    from fed_ucbvi.problem.federation import Federation

AGENTS_SERVED = 4
"""The default number of agents in a federation over the network."""
MIN_NODES = 3
"""In secure sums: with two nodes, each would know the other's numbers from the sum."""


@dataclass(frozen=True, kw_only=True)
class FederationRules:
    """The rules by which a run over the network is held."""

    collection: Annotated[
        Literal["lockstep", "live"],
        Help("lockstep (all stop after the same episode) or live (where the stop reaches them)."),
    ] = "lockstep"
    nodes: Annotated[tuple[str, ...] | None, Help("Nodes that may take part; by default all certified.")] = None
    secure_sums: Annotated[bool, Help("Nodes mask what they report: the server learns sums only.")] = False
    least_episodes: Annotated[
        Size,
        Help("With secure sums: episodes of a round from which on a node counts as a contributor."),
    ] = 1
    least_members: Annotated[
        int,
        Bounds(MIN_NODES),
        Help("With secure sums: contributors without whom nothing is added up."),
    ] = MIN_NODES
    deadline: Annotated[Positive, Help("Time limit for one answer of a node.")] = 60.0
    patience: Annotated[Positive, Help("Time to wait for a node that is away before the run stops.")] = 600.0
    gathering: Annotated[Positive, Help("Time limit for all nodes to connect before round 1.")] = 3600.0
    quorum: Annotated[
        Size | None,
        Help("Close rounds with K nodes or more; the others catch up. Nodes that break the protocol are excluded."),
    ] = None
    wait: Annotated[
        NonNegative,
        Help("With --quorum: time to wait for the others, once K nodes have answered."),
    ] = 5.0

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def live(self) -> bool:
        """True if each node stops when the message to stop arrives, False if all stop after the same episode."""
        return self.collection == "live"


@dataclass(frozen=True, kw_only=True)
class FederationSpec:
    """A run over the network: the run, and the rules of the federation that makes it."""

    run: RunSpec = field(default_factory=RunSpec)
    rules: FederationRules = field(default_factory=FederationRules)

    @classmethod
    def from_data(cls, data: Mapping[str, Any], *, code: Collection[str] = ()) -> FederationSpec:
        """Read the fields of a run and of rules from one table; see :meth:`RunSpec.from_data`."""
        names = field_names(FederationRules)
        rules = {name: value for name, value in data.items() if name in names}
        run = {name: value for name, value in data.items() if name not in names}
        return cls(run=RunSpec.from_data(run, code=code), rules=FederationRules(**rules))

    def to_data(self) -> dict[str, Any]:
        """All fields in one table of plain values, ready for JSON."""
        return {**self.run.to_data(), **plain_fields(self.rules)}

    def setting(self, federation: Federation | None = None) -> Setting:
        """The setting that everyone knows before the run, from the federation or, without one, from the sizes."""
        from fed_ucbvi.algorithms.base import Setting

        problem = self.run.problem
        options = self.run.options
        if federation is not None:
            random = federation.reward_variances is not None
            return Setting.of(federation, options.episodes, options.seed, random_rewards=random)
        if problem.sizes is None:
            raise InputError("the problem is not known; give its sizes (--sizes S,A,H).")
        S, A, H = problem.sizes
        random_rewards = self.rules.live if problem.random_rewards is None else problem.random_rewards
        return Setting(
            states=S,
            actions=A,
            horizon=H,
            agents=AGENTS_SERVED if problem.agents is None else problem.agents,
            episodes=options.episodes,
            eps_p=problem.eps_p or 0.0,
            seed=options.seed,
            eps_p_known=problem.eps_p is not None,
            random_rewards=random_rewards,
        )
