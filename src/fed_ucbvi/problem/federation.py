"""A federation: M agents' MDPs and the common MDP they are compared on (``eq:comMDP``)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fed_ucbvi.core.errors import InputError, check_choice, check_flag, check_integer, check_number
from fed_ucbvi.core.files import reading
from fed_ucbvi.core.numbers import number_text
from fed_ucbvi.core.text import html_table, shortened
from fed_ucbvi.core.types import CountArray, FloatArray, IndexArray
from fed_ucbvi.problem.derived_tables import (
    check_laws,
    common_laws_of,
    kernel_of,
    rewards_of,
    rewards_of_agents,
    transitions_of,
)
from fed_ucbvi.problem.dynamics import Dynamics
from fed_ucbvi.problem.heterogeneity import overlap
from fed_ucbvi.problem.kernel import Kernel, align, frozen_floats, real_numbers
from fed_ucbvi.problem.liars import ATTACKS, Liars, choose_liars
from fed_ucbvi.problem.mdp import MDP, check_initial, check_rewards, horizon_of
from fed_ucbvi.problem.reward_law import Payments, check_variances, none_if_zero, payments
from fed_ucbvi.problem.saving import DYNAMICS, LAWS, VARIANCES, read_tables, write_tables

if TYPE_CHECKING:
    from fed_ucbvi.problem.agent_tables import AgentTables

SAVED_TOLERANCE = 1e-9
"""Largest difference between the tables in a file and those derived from its dynamics."""
OWN_TABLES = ("successors", "probabilities", "rewards", "initial")
BERNOULLI_REWARDS = "bernoulli_rewards"
"""The key in a description that records :meth:`Federation.with_bernoulli_rewards`."""


@dataclass(frozen=True, eq=False)
class Federation:
    """M finite-horizon MDPs on the same states and actions, with the common MDP.

    Build one with :meth:`mixture` or :meth:`from_mdps`; the constructor takes what those two computed.

    Attributes:
        successors: next states ``(steps, S, A, K)``, shared by all agents (the union of their supports).
        probabilities: ``(M, steps, S, A, K)``.
        rewards: ``(M, steps, S, A)``, or ``(1, steps, S, A)`` where all agents have the same.
        initial: ``(M, S)``.
        common: the common MDP, whose reward is the agents' mean and whose kernel is the common one.
        eps_p: the eps_p of Assumption 1; 1 where the assumption fails.
        eps_r: the eps_r of Assumption 2.
        description: name and parameters of the environment, for the record.
        layout: how to draw the states, for environments that live on a grid.
        liars: agents that lie, if any.
        reward_variances: ``(M, steps, S, A)`` or ``(1, steps, S, A)``, with the steps of ``rewards``, which are means
            then; None where rewards are not random. See :mod:`fed_ucbvi.problem.reward_law`.
        dynamics: the known dynamics that the tables follow from (:meth:`from_laws`); None otherwise.
        laws: the laws of outcomes under ``dynamics``, ``(M, G, W)``; None otherwise.
    """

    successors: IndexArray
    probabilities: FloatArray
    rewards: FloatArray
    initial: FloatArray
    common: MDP
    eps_p: float
    eps_r: float
    description: Mapping[str, object] = field(default_factory=dict)
    layout: Mapping[str, object] | None = None
    liars: Liars | None = None
    reward_variances: FloatArray | None = None
    dynamics: Dynamics | None = None
    laws: FloatArray | None = None

    @property
    def agents(self) -> int:
        """M."""
        return int(self.probabilities.shape[0])

    @property
    def states(self) -> int:
        """S."""
        return self.common.states

    @property
    def actions(self) -> int:
        """A."""
        return self.common.actions

    @property
    def horizon(self) -> int:
        """H."""
        return self.common.horizon

    @cached_property
    def honest(self) -> CountArray:
        """The agents that do not lie: regret is an average over these."""
        liars = [] if self.liars is None else list(self.liars.agents)
        return np.delete(np.arange(self.agents), liars)

    @cached_property
    def kinds(self) -> tuple[CountArray, CountArray]:
        """The first honest agent of every kind of MDP, and the kind of each honest agent."""
        tables = [self.probabilities, self.initial]
        if len(self.rewards) > 1:
            tables.append(self.rewards)
        one_kind = all(table.strides[0] == 0 for table in tables)
        if one_kind:
            return self.honest[:1], np.zeros(len(self.honest), dtype=np.int64)
        kind_by_digest: dict[bytes, int] = {}
        kind = np.zeros(len(self.honest), dtype=np.int64)
        for k, i in enumerate(self.honest):
            digest = b""
            for table in tables:
                digest += hashlib.sha256(np.ascontiguousarray(table[i]).tobytes()).digest()
            kind[k] = kind_by_digest.setdefault(digest, len(kind_by_digest))
        _, first_of_kind = np.unique(kind, return_index=True)
        return self.honest[first_of_kind], kind

    @property
    def alike(self) -> bool:
        """True if all honest agents have the same MDP."""
        return len(self.kinds[0]) == 1

    @cached_property
    def kind_tables(self) -> AgentTables:
        """The tables of one agent of every kind."""
        return self.tables_of(self.kinds[0])

    def tables_of(self, chosen: CountArray) -> AgentTables:
        """The tables of these agents."""
        from fed_ucbvi.problem.agent_tables import AgentTables, reachable_states

        rewards = np.broadcast_to(self.rewards, (self.agents, *self.rewards.shape[1:]))
        P = _agents_last(self.probabilities[chosen])
        mu = _agents_last(self.initial[chosen])
        reachable = reachable_states(
            self.successors,
            np.any(P > 0, axis=-1),
            np.any(mu > 0, axis=-1),
            self.horizon,
        )
        return AgentTables.of(
            successors=self.successors,
            probabilities=P,
            rewards=_agents_last(rewards[chosen]),
            initial=mu,
            reachable=reachable,
        )

    @cached_property
    def mean_initial(self) -> FloatArray:
        """The mean over the honest agents of the law of the initial state, ``(S,)``."""
        return np.asarray(self.initial[self.honest].mean(axis=0))

    def agent(self, i: int) -> MDP:
        """The MDP of agent ``i`` (from 0)."""
        variances = None
        if self.reward_variances is not None:
            variances = self.reward_variances[i % len(self.reward_variances)]
        return MDP(
            kernel=Kernel(self.successors, self.probabilities[i]),
            rewards=self.rewards[i % len(self.rewards)],
            initial=self.initial[i],
            horizon=self.horizon,
            reward_variances=variances,
        )

    @cached_property
    def payments(self) -> Payments | None:
        """The amounts that agents are paid and their probabilities, ``(M or 1, steps, S, A)``; None if not random."""
        if self.reward_variances is None:
            return None
        return payments(self.rewards, self.reward_variances)

    @property
    def pay_alike(self) -> bool:
        """True if rewards are not random, or are 0 or one amount, the same for all agents that can be paid it."""
        if self.payments is None:
            return True
        amounts, chances = self.payments
        same_amount = amounts == amounts.max(axis=0)
        return bool((same_amount | (chances == 0.0)).all())

    def with_bernoulli_rewards(self, wanted: bool = True) -> Federation:
        """This federation with every reward 1 or 0, with the same means; unchanged if not ``wanted``.

        >>> from fed_ucbvi import synthetic
        >>> bool(synthetic(agents=2).with_bernoulli_rewards().agent(0).reward_variances.max() <= 0.25)
        True
        """
        if not check_flag(BERNOULLI_REWARDS, wanted):
            return self
        if self.dynamics is not None and self.dynamics.rewards is not None:
            raise InputError(
                "rewards follow from the known dynamics of this federation, so they cannot be drawn anew."
            )
        variances = none_if_zero(self.rewards * (1.0 - self.rewards))
        return replace(
            self,
            reward_variances=variances,
            description={**self.description, BERNOULLI_REWARDS: True},
        )

    def __repr__(self) -> str:
        name = self.description.get("name", "custom")
        lying = ""
        if self.liars is not None:
            lying = f", {len(self.liars.agents):,} of them lie"
        random_rewards = ""
        if self.reward_variances is not None:
            random_rewards = ", random rewards"
        return (
            f"<Federation {name}: {self.agents:,} agents{lying}, "
            f"S = {self.states:,}, A = {self.actions:,}, H = {self.horizon:,}, "
            f"eps_p = {number_text(self.eps_p)}, eps_r = {number_text(self.eps_r)}{random_rewards}>"
        )

    def _repr_html_(self) -> str:
        figures = {
            "agents": self.agents,
            "lying": self.agents - len(self.honest),
            "states": self.states,
            "actions": self.actions,
            "horizon": self.horizon,
            "eps_p": self.eps_p,
            "eps_r": self.eps_r,
        }
        rows = [(name, number_text(figure)) for name, figure in figures.items()]
        if self.reward_variances is not None:
            rows.append(("rewards", "random"))
        for name, value in self.description.items():
            if name not in figures and name not in ("name", "liars"):
                rows.append((name, shortened(str(value))))
        return html_table(f"Federation {self.description.get('name', 'custom')}", rows)

    def without_dynamics(self) -> Federation:
        """A federation of these tables without dynamics, for algorithms that count by step, state and action."""
        return replace(self, dynamics=None, laws=None)

    def with_liars(self, fraction: float, attack: str, seed: int = 0) -> Federation:
        """This federation with a fraction of the agents, chosen from the seed, that lies.

        Attacks are those of :data:`fed_ucbvi.problem.liars.ATTACKS`.
        """
        liars = choose_liars(self.agents, fraction, attack, seed)
        description = dict(self.description)
        description["liars"] = list(liars.agents)
        description["attack"] = attack
        description["liars_seed"] = seed
        return replace(
            self,
            liars=liars if liars.agents else None,
            description=description,
        )

    @property
    def digest(self) -> str:
        """Hexadecimal digits that identify a federation, the first of :attr:`fingerprint`."""
        return self.fingerprint[:16]

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the agents' tables and the horizon, in hexadecimal digits."""
        sha = hashlib.sha256(f"{self.horizon}".encode())
        names = list(OWN_TABLES)
        if self.reward_variances is not None:
            names.append(VARIANCES)
        for name in names:
            table = getattr(self, name)
            sha.update(f"{table.dtype.str} {table.shape}".encode())
            sha.update(np.ascontiguousarray(table).tobytes())
        if self.dynamics is not None and self.laws is not None:
            sha.update(self.dynamics.digest.encode())
            sha.update(self.laws.tobytes())
        return sha.hexdigest()

    def save(self, path: str | Path) -> None:
        """Write the federation to one ``.npz`` file, which ``--env`` takes; a file that exists is replaced."""
        common = self.common
        tables: dict[str, npt.NDArray[Any]] = {
            "successors": self.successors,
            "probabilities": self.probabilities,
            "rewards": self.rewards,
            "initial": self.initial,
            "common_successors": common.kernel.successors,
            "common_probabilities": common.kernel.probabilities,
            "common_rewards": common.rewards,
            "common_initial": common.initial,
        }
        if self.reward_variances is not None:
            tables[VARIANCES] = self.reward_variances
        dynamics_text = None
        if self.dynamics is not None and self.laws is not None:
            dynamics_text, dynamics_tables = self.dynamics.to_tables()
            tables |= {f"{DYNAMICS}{name}": table for name, table in dynamics_tables.items()}
            tables[LAWS] = self.laws
        text = {
            "horizon": self.horizon,
            "eps_p": self.eps_p,
            "eps_r": self.eps_r,
            "description": dict(self.description),
            "layout": None if self.layout is None else dict(self.layout),
            "liars": None if self.liars is None else asdict(self.liars),
            **({} if dynamics_text is None else {"dynamics": dynamics_text}),
        }
        write_tables(Path(path), tables, text)

    @classmethod
    def load(cls, path: str | Path) -> Federation:
        """Read back what :meth:`save` wrote, to the last bit; a damaged or foreign file is refused."""
        tables, about, common = read_tables(Path(path))
        with reading(Path(path)):
            for name, types in (
                ("description", dict),
                ("layout", dict | None),
                ("liars", dict | None),
            ):
                if not isinstance(about[name], types):
                    raise InputError(f"{path} is damaged: its {name} is not a table of options.")
            federation = cls(
                successors=tables["successors"],
                probabilities=tables["probabilities"],
                rewards=tables["rewards"],
                initial=tables["initial"],
                common=common,
                eps_p=float(about["eps_p"]),
                eps_r=float(about["eps_r"]),
                description=about["description"],
                layout=about["layout"],
                liars=_saved_liars(about["liars"], len(tables["probabilities"])),
                reward_variances=tables.get(VARIANCES),
            )
            return federation._with_saved_dynamics(about, tables) if LAWS in tables else federation

    def _with_saved_dynamics(self, about: Mapping[str, Any], tables: Mapping[str, npt.NDArray[Any]]) -> Federation:
        """The federation with the dynamics and laws of a file, if its tables follow from them."""
        own = {name.removeprefix(DYNAMICS): table for name, table in tables.items() if name.startswith(DYNAMICS)}
        dynamics = Dynamics.from_tables(about["dynamics"], own)
        laws = check_laws(tables[LAWS], dynamics)
        transitions = transitions_of(dynamics)
        fits = len(laws) == self.agents and transitions.successors.shape == self.successors.shape
        for agent, probabilities in enumerate(self.probabilities if fits else ()):
            derived = kernel_of(dynamics, laws[agent], transitions)
            fits &= bool(np.allclose(derived, probabilities, rtol=0, atol=SAVED_TOLERANCE))
        if not fits:
            raise InputError("the tables of the agents do not follow from the saved dynamics and laws.")
        return replace(self, dynamics=dynamics, laws=laws)

    @classmethod
    def mixture(
        cls,
        common: Kernel | npt.ArrayLike,
        individual: Sequence[Kernel | npt.ArrayLike],
        eps_p: float,
        *,
        rewards: npt.ArrayLike,
        initial: npt.ArrayLike | int,
        horizon: int | None = None,
        description: Mapping[str, object] | None = None,
        layout: Mapping[str, object] | None = None,
        reward_variances: npt.ArrayLike | str | None = None,
    ) -> Federation:
        """Agents made by Assumption 1: ``P^i = (1 - eps_p) P^c + eps_p P^{ind,i}``.

        Args:
            common: the common kernel, ``[S,A,S]``, ``[H,S,A,S]`` or a :class:`Kernel`.
            individual: one such kernel for each of the M agents.
            eps_p: in ``[0,1)``.
            rewards: ``[S,A]`` or ``[H,S,A]``, the same for all agents, or ``[M,H,S,A]`` (``[M,1,S,A]`` where
                stationary), one table for each agent.
            initial: one distribution ``[S]`` or state for all, or ``[M,S]``.
            horizon: ``H`` where kernels and rewards are stationary.
            description: name and parameters, for the record.
            layout: how to draw the states.
            reward_variances: where rewards are random, their variances, in any of the shapes that ``rewards`` may
                have, or ``"bernoulli"``: every reward is 1 or 0. See :mod:`fed_ucbvi.problem.reward_law`.
        """
        eps = check_eps_p(eps_p)
        if len(individual) == 0:
            raise InputError("a federation needs at least one agent; individual kernels are an empty list.")
        kernels = []
        for kernel in (common, *individual):
            kernels.append(kernel if isinstance(kernel, Kernel) else Kernel.from_dense(kernel))
        successors, stacked = align(kernels)
        probabilities = (1.0 - eps) * stacked[0] + eps * stacked[1:]
        probabilities /= probabilities.sum(axis=-1, keepdims=True)
        return cls._assemble(
            probabilities=probabilities,
            common=Kernel(successors, stacked[0]),
            eps_p=eps,
            rewards=rewards,
            initial=initial,
            horizon=horizon,
            reward_variances=reward_variances,
            description=description,
            layout=layout,
        )

    @classmethod
    def from_mdps(
        cls,
        mdps: Sequence[MDP],
        *,
        reference: str = "overlap",
        description: Mapping[str, object] | None = None,
        layout: Mapping[str, object] | None = None,
    ) -> Federation:
        """Any list of MDPs; eps_p and eps_r are computed.

        ``reference="overlap"`` takes the normalised minimum of the agents' kernels as the common kernel, which
        attains the smallest eps_p; it fails where some ``(h,s,a)`` has no overlap. ``reference="mean"`` takes
        the mean kernel; eps_p is still the smallest of Assumption 1 (1 where that fails).
        """
        check_choice("reference kernel", reference, ("overlap", "mean"))
        if len(mdps) == 0:
            raise InputError("a federation needs at least one agent; the list of MDPs is empty.")
        horizons = {mdp.horizon for mdp in mdps}
        if len(horizons) > 1:
            raise InputError(f"all agents must have the same horizon; got {sorted(horizons)}.")
        successors, probabilities = align([mdp.kernel for mdp in mdps])
        shared = overlap(probabilities)
        if reference == "mean":
            common = Kernel(successors, probabilities.mean(axis=0))
        elif float(shared.mass.min()) <= 0.0:
            h, s, a = np.argwhere(shared.mass <= 0)[0].tolist()
            raise InputError(
                f"Assumption 1 fails: at (h={h}, s={s}, a={a}) no next state is possible for every agent, so "
                'there is no common kernel. Pass reference="mean" to compare with the mean kernel instead.'
            )
        else:
            common = Kernel(successors, shared.minimum / shared.mass[..., None])
        rewards = _stacked([mdp.rewards for mdp in mdps])
        no_variances = np.zeros((1, *rewards.shape[2:]))
        variances = []
        for mdp in mdps:
            variances.append(no_variances if mdp.reward_variances is None else mdp.reward_variances)
        return cls._assemble(
            probabilities=probabilities,
            common=common,
            eps_p=shared.eps_p,
            rewards=rewards,
            initial=np.stack([mdp.initial for mdp in mdps]),
            horizon=horizons.pop(),
            reward_variances=_stacked(variances),
            description=description,
            layout=layout,
        )

    @classmethod
    def from_laws(
        cls,
        dynamics: Dynamics,
        laws: npt.ArrayLike,
        initial: npt.ArrayLike | int,
        *,
        rewards: npt.ArrayLike | None = None,
        reward_variances: npt.ArrayLike | str | None = None,
        reference: str = "overlap",
        description: Mapping[str, object] | None = None,
        layout: Mapping[str, object] | None = None,
    ) -> Federation:
        """Agents with known dynamics and laws ``laws[M,G,W]`` of their own; all tables are derived.

        eps_p is the smallest for which the laws satisfy Assumption 1. The common MDP follows from the common laws and
        the mean of the agents' rewards.

        Args:
            dynamics: see :class:`~fed_ucbvi.problem.dynamics.Dynamics`.
            laws: of each agent, the probability of each outcome under each law.
            initial: as in :meth:`mixture`.
            rewards: mean rewards as in :meth:`mixture`, where ``dynamics`` leave them to be learnt; otherwise None.
            reward_variances: their variances, as in :meth:`mixture`.
            reference: the common laws: ``"overlap"`` or ``"mean"``, as in :meth:`from_mdps`.
            description: name and parameters, for the record.
            layout: how to draw the states.

        >>> from fed_ucbvi import Dynamics
        >>> walk = Dynamics(  # a walk on a line of 5 places; only whether a step slips is unknown, by one law
        ...     laws=1,
        ...     outcomes=2,
        ...     law_of=0,
        ...     next_state=lambda h, s, a, slips: np.where(slips, s, np.clip(s + 2 * a - 1, 0, 4)),
        ...     reward=lambda h, s, a, slips: s == 4,
        ...     horizon=6,
        ...     states=5,
        ...     actions=2,
        ... )
        >>> federation = Federation.from_laws(walk, laws=[[[0.8, 0.2]], [[0.9, 0.1]]], initial=0)
        >>> federation
        <Federation custom: 2 agents, S = 5, A = 2, H = 6, eps_p = 0.1, eps_r = 0>
        >>> federation.agent(1).kernel.dense()[0, 2, 1].tolist()
        [0.0, 0.0, 0.1, 0.9, 0.0]
        """
        own = check_laws(laws, dynamics)
        shared = common_laws_of(own, reference)
        transitions = transitions_of(dynamics)
        probabilities = np.stack([kernel_of(dynamics, one, transitions) for one in own])
        common = Kernel(transitions.successors, kernel_of(dynamics, shared.laws, transitions))
        about = {"name": "custom", **(description or {}), **dynamics.units.description()}
        given = initial, dynamics.horizon
        if dynamics.rewards is None:
            if rewards is None:
                raise InputError("these dynamics leave rewards to be learnt; pass their means as rewards.")
            spread = reward_variances
            federation = cls._assemble(probabilities, common, shared.eps_p, rewards, *given, spread, about, layout)
            return replace(federation, dynamics=dynamics, laws=own)
        if rewards is not None or reward_variances is not None:
            raise InputError("rewards follow from these dynamics; leave out rewards and reward_variances.")
        each = rewards_of_agents(dynamics, own)
        means = _stacked([one.means for one in each])
        variances = _stacked([one.variances for one in each])
        federation = cls._assemble(probabilities, common, shared.eps_p, means, *given, variances, about, layout)
        in_common = MDP(
            common,
            rewards_of(dynamics, shared.laws).means,
            federation.common.initial,
            dynamics.horizon,
        )
        return replace(federation, common=in_common, dynamics=dynamics, laws=own)

    @classmethod
    def _assemble(
        cls,
        probabilities: FloatArray,
        common: Kernel,
        eps_p: float,
        rewards: npt.ArrayLike,
        initial: npt.ArrayLike | int,
        horizon: int | None,
        reward_variances: npt.ArrayLike | str | None,
        description: Mapping[str, object] | None,
        layout: Mapping[str, object] | None,
    ) -> Federation:
        """Agents with the successors of the common kernel; their rewards and first states are checked."""
        agents, steps, states, actions, _ = probabilities.shape
        reward_tables = _by_agent("rewards", rewards, agents)
        means = np.stack([check_rewards(table, states, actions) for table in reward_tables])
        variances = None
        if reward_variances is not None:
            variances = _variances(reward_variances, means, agents)
        if variances is not None:
            means = np.broadcast_to(means, (len(means), *variances.shape[1:]))
        mu = _initial_distributions(initial, agents, states)
        H = horizon_of(steps, means.shape[1], horizon)
        return cls(
            successors=common.successors,
            probabilities=frozen_floats(probabilities),
            rewards=frozen_floats(means),
            initial=frozen_floats(mu),
            common=MDP(common, means.mean(axis=0), mu.mean(axis=0), H),
            eps_p=eps_p,
            eps_r=float(np.ptp(means, axis=0).max()),  # max_{i,j} ||r^i - r^j||_inf
            description=dict(description or {"name": "custom"}),
            layout=layout,
            reward_variances=variances,
        )


def _agents_last(table: FloatArray) -> FloatArray:
    """A read-only copy of a table ``(m, ...)`` with the agent as its last axis."""
    return frozen_floats(np.moveaxis(table, 0, -1))


def _initial_distributions(initial: npt.ArrayLike | int, agents: int, states: int) -> FloatArray:
    """The initial distribution of every agent, ``(M, S)``, from one for all or one for each."""
    distributions = np.asarray(initial)
    if distributions.ndim != 2:
        return np.stack([check_initial(initial, states)] * agents)
    if len(distributions) != agents:
        raise InputError(f"initial distributions are given for {len(distributions)} agents, kernels for {agents}.")
    return np.stack([check_initial(distribution, states) for distribution in distributions])


def _by_agent(name: str, table: npt.ArrayLike, agents: int) -> FloatArray:
    """A table with an agent axis of length one, or M."""
    numbers = real_numbers(name, table)
    tables = numbers if numbers.ndim == 4 else numbers[None]
    if tables.shape[0] not in (1, agents):
        raise InputError(f"{name} are given for {tables.shape[0]} agents, kernels for {agents}.")
    return tables


def _variances(variances: npt.ArrayLike | str, rewards: FloatArray, agents: int) -> FloatArray | None:
    """Variances of rewards with means ``rewards[M or 1,steps,S,A]``, checked agent by agent; None if all are 0."""
    tables: list[FloatArray] | list[str]
    if isinstance(variances, str):
        tables = [variances]
    else:
        tables = list(_by_agent("reward_variances", variances, agents))
    checked = []
    for i in range(max(len(tables), len(rewards))):
        checked.append(check_variances(tables[i % len(tables)], rewards[i % len(rewards)]))
    return none_if_zero(_stacked(checked))


def _stacked(tables: Sequence[FloatArray]) -> FloatArray:
    """Tables ``(steps, S, A)`` of some agents as one; with one row if all are the same."""
    steps = max(len(table) for table in tables)
    stacked = np.stack([np.broadcast_to(table, (steps, *table.shape[1:])) for table in tables])
    if (stacked == stacked[0]).all():
        return stacked[:1]
    return stacked


def check_eps_p(eps_p: float) -> float:
    """Return eps_p as a float, or raise unless it lies in [0, 1)."""
    return check_number("eps_p", eps_p, at_least=0, below=1, why="Assumption 1")


def _saved_liars(saved: Mapping[str, Any] | None, agents: int) -> Liars | None:
    """The liars of a file, checked."""
    if saved is None:
        return None
    numbers = tuple(check_integer("a liar", i, at_most=agents - 1) for i in saved["agents"])
    check_choice("attack", saved["attack"], ATTACKS)
    return Liars(numbers, saved["attack"], check_integer("the liars' seed", saved["seed"]))
