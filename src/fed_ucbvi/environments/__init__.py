"""Environments by name: this package's, those that installed packages register, ``module:attribute``, and files."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from fed_ucbvi.core.errors import InputError, printable, unknown_name
from fed_ucbvi.core.plugins import Registry, check_code
from fed_ucbvi.environments.chains import chain, hard_instance, riverswim, six_arms, two_state_chain
from fed_ucbvi.environments.family import LABEL
from fed_ucbvi.environments.gridworlds import deep_sea, gridworld, n_room, windy_cliff
from fed_ucbvi.environments.gymnasium_tables import from_gymnasium
from fed_ucbvi.environments.random_problems import garnet, random_mdps, synthetic
from fed_ucbvi.environments.sepsis import icu_sepsis
from fed_ucbvi.problem.federation import BERNOULLI_REWARDS, Federation
from fed_ucbvi.problem.mdp import MDP
from fed_ucbvi.problem.saving import SUFFIX

GROUP = "fed_ucbvi.environments"
"""Entry points by which other packages register environments."""

ENVIRONMENTS: dict[str, Callable[..., Federation]] = {
    builder.__name__: builder
    for builder in (
        gridworld,
        synthetic,
        riverswim,
        chain,
        deep_sea,
        six_arms,
        n_room,
        hard_instance,
        two_state_chain,
        garnet,
        windy_cliff,
        random_mdps,
        from_gymnasium,
        icu_sepsis,
    )
}
"""Every builder takes ``agents``, ``eps_p``, ``seed`` and its own options, and returns a federation."""
REGISTRY = Registry(ENVIRONMENTS, GROUP)
"""The environments of this package and those that other packages register."""
COMMON = ("agents", "eps_p", "seed")
"""The parameters that every environment may have; all others are its own options."""
DIGEST = "digest"
FederationLike = Federation | MDP | Sequence[MDP] | str
"""Problems that :func:`as_federation` accepts."""
MUST_GIVE = "must give a Federation or a list of MDPs"


def current_name(name: str) -> str:
    """The registered name of an environment, in which hyphens may replace underscores; any other name as it is.

    >>> current_name("deep-sea"), current_name("deep_sea"), current_name("shops:five")
    ('deep_sea', 'deep_sea', 'shops:five')
    """
    spelled = name.replace("-", "_")
    spelled = name.replace("-", "_")
    if name not in REGISTRY and spelled in REGISTRY:
        return spelled
    return name


def environment_label(name: str) -> str:
    """The label of an environment in tables and figures; its name if it has no label. Nothing is imported for it.

    >>> environment_label("deep_sea"), environment_label("shops:five")
    ('DeepSea', 'shops:five')
    """
    label = getattr(REGISTRY.at_hand(current_name(name)), LABEL, None)
    return label if isinstance(label, str) else name


@dataclass(frozen=True, eq=False)
class Environment:
    """An environment by name: a function that returns a federation, or a federation."""

    name: str
    made: Callable[..., Any] | Federation

    @cached_property
    def _parameters(self) -> Mapping[str, inspect.Parameter]:
        if isinstance(self.made, Federation):
            return {}
        return inspect.signature(self.made).parameters

    def accepts(self, key: str) -> bool:
        """True if it has the parameter ``key``; every environment has ``bernoulli_rewards`` (:meth:`build`)."""
        if key in self._parameters or key == BERNOULLI_REWARDS:
            return True
        kinds = {parameter.kind for parameter in self._parameters.values()}
        return inspect.Parameter.VAR_KEYWORD in kinds

    @property
    def chooses_agents(self) -> bool:
        """True if it has a number of agents of its own where none is given; registered environments have not."""
        if isinstance(self.made, Federation):
            return True
        agents = self._parameters.get("agents")
        return self.name not in REGISTRY and (agents is None or agents.default is not agents.empty)

    def defaults(self) -> dict[str, Any]:
        """Its own options with their defaults, where JSON can hold these; for a federation, its digest."""
        if isinstance(self.made, Federation):
            return {DIGEST: self.made.digest}
        options = {}
        for name, parameter in self._parameters.items():
            has_default = parameter.default is not parameter.empty
            if name not in COMMON and has_default and _can_be_written(parameter.default):
                options[name] = parameter.default
        return options

    def recorded(self, description: Mapping[str, object]) -> dict[str, object]:
        """The entries of a description that are its parameters."""
        names = {BERNOULLI_REWARDS, *self._parameters}
        if isinstance(self.made, Federation):
            names.add(DIGEST)
        return {key: value for key, value in description.items() if key in names}

    def given(self, **parameters: object) -> dict[str, Any]:
        """The given parameters that it takes; one that would have no effect is an error.

        The number of agents is never an error here: the caller compares it with the result.
        """
        accepted = {}
        for key, value in parameters.items():
            if self.accepts(key):
                accepted[key] = value
            elif key in ("eps_p", "seed"):
                if value:
                    raise InputError(f"{self.name} does not take {key}, got {value}; leave it at 0.")
            elif key == DIGEST and isinstance(self.made, Federation):
                if value != self.made.digest:
                    raise InputError(
                        f"{self.name} holds another federation than the one that is meant: its digest is "
                        f"{self.made.digest}, not {value}."
                    )
            elif key != "agents":
                raise unknown_name(f"option of {self.name}", key, self._parameters)
        return accepted

    def make(self, **parameters: object) -> Federation:
        """Make the federation; its number of agents must be the one given."""
        federation = self.build(**parameters)
        wanted = parameters.get("agents", federation.agents)
        if wanted != federation.agents:
            raise InputError(
                f"{self.name} has {federation.agents} agents, not {wanted}; pass agents = {federation.agents}."
            )
        return federation

    def build(self, **parameters: object) -> Federation:
        """Make the federation; its number of agents may differ from the one given (a node has only some agents).

        Its description contains what is needed to make it again: its name and all its parameters. With
        ``bernoulli_rewards=True`` every reward is 1 or 0, with the same means
        (:meth:`~fed_ucbvi.problem.federation.Federation.with_bernoulli_rewards`).
        """
        accepted = self.given(**parameters)
        bernoulli_rewards = False
        if BERNOULLI_REWARDS not in self._parameters:
            bernoulli_rewards = accepted.pop(BERNOULLI_REWARDS, False)
        if isinstance(self.made, Federation):
            federation = self.made
        else:
            federation = self._call(accepted)
        federation = federation.with_bernoulli_rewards(bernoulli_rewards)
        if self._is_built_in:
            return federation
        description = {key: value for key, value in federation.description.items() if key not in COMMON}
        description.update(self.defaults())
        description.update(accepted)
        description["name"] = self.name
        description["agents"] = federation.agents
        return replace(federation, description=description)

    @property
    def _is_built_in(self) -> bool:
        """True if it belongs to this package; such environments write their own description."""
        if ENVIRONMENTS.get(self.name) is not self.made:
            return False
        return str(self.made.__module__).startswith(f"{__name__}.")

    def _call(self, accepted: Mapping[str, Any]) -> Federation:
        assert not isinstance(self.made, Federation)
        try:
            inspect.signature(self.made).bind(**accepted)
        except TypeError as error:
            raise InputError(
                f"{self.name}: {error}; it may take {', '.join(COMMON)}, and options, which are given by name."
            ) from error
        try:
            return _federation(f"{self.name} {MUST_GIVE}", self.made(**accepted))
        except InputError:
            raise
        except TypeError as error:
            raise InputError(f"{self.name}: {error}") from error
        except Exception as error:
            if self._is_built_in:
                raise
            raise InputError(f"{self.name} failed: {type(error).__name__}: {error}") from error


def _can_be_written(value: object) -> bool:
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return False
    return True


def as_federation(problem: FederationLike) -> Federation:
    """A problem as a federation: a federation, the name of an environment, an MDP, or a list with one per agent.

    >>> as_federation("gridworld").agents, as_federation(as_federation("gridworld").agent(0)).agents
    (20, 1)
    """
    if isinstance(problem, str):
        return make_environment(problem)
    built: object = problem
    hint = ""
    if inspect.isfunction(built):
        hint = f"; call it: {built.__name__}()"
    return _federation("pass a Federation, the name of an environment, an MDP or a list of MDPs", built, hint)


def _federation(expected: str, built: object, hint: str = "") -> Federation:
    """An object as a federation; for a list of MDPs the common MDP has the mean kernel."""
    if isinstance(built, Federation):
        return built
    mdps: list[object] = []
    if isinstance(built, MDP):
        mdps = [built]
    elif isinstance(built, Sequence):
        mdps = list(built)
    checked = [mdp for mdp in mdps if isinstance(mdp, MDP)]
    if not checked or len(checked) < len(mdps):
        raise InputError(f"{expected}, got {type(built).__name__}{hint}.")
    return Federation.from_mdps(checked, reference="mean")


def find_environment(name: str) -> Environment:
    """Environment of that name.

    Args:
        name: as registered; a file that :meth:`Federation.save` wrote, by its suffix ``.npz``; or
            ``module:attribute``: a :class:`Federation`, a list of MDPs, or a function that returns one of these. The
            function is called with those of ``agents``, ``eps_p``, ``seed`` and the options for which it has
            parameters.
    """
    if name.endswith(SUFFIX):
        return Environment(name, Federation.load(name))
    name = current_name(name)
    found = REGISTRY.find("environment", name)
    if not callable(found):
        found = _federation(f"{name} {MUST_GIVE}", found)
    return Environment(name, found)


def make_environment(name: str, **parameters: object) -> Federation:
    """Make the environment of that name; see :func:`find_environment`.

    >>> make_environment("synthetic", agents=4, eps_p=0.2).agents
    4
    """
    return find_environment(name).make(**parameters)


def recorded_options(description: Mapping[str, object], named: str | None = None) -> tuple[str, dict[str, object]]:
    """Name and options of the environment of a saved description; liars are left out.

    Args:
        description: the name and all parameters of the environment, as runs store them.
        named: the name of the environment, if the caller gives it, or its Gymnasium id. Without it, code
            (``module:attribute``, or a Gymnasium id ``module:Name-v0``) is not run, because a file may name any code.

    >>> world = make_environment("gridworld", agents=3, eps_p=0.1)
    >>> name, options = recorded_options({**world.description, "liars": [2]})
    >>> make_environment(name, **options).description == world.description
    True
    """
    id_ = str(description.get("id", ""))
    if named is not None and named == id_:
        named = None  # the person has named the code that registers it
    else:
        check_code("Gymnasium environment", id_, "--env")
    name = current_name(str(description.get("name", "custom")) if named is None else named)
    if named is None:
        check_code("environment", name, "--env")
    if named is None and not name.endswith(SUFFIX) and name not in REGISTRY:
        raise InputError(
            f"the environment '{printable(name)}' cannot be made again from its description; only these can: "
            f"{', '.join(sorted(REGISTRY))}, and saved federations ({SUFFIX}). If a package registers it, install it."
        )
    return name, find_environment(name).recorded(description)
