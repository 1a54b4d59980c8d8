"""Environments by name: this package's, those that installed packages register, ``module:attribute``, and files."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from fed_ucbvi.core.errors import InputError, printable, unknown_name
from fed_ucbvi.core.plugins import Registry, is_attribute, load_attribute, loaded_attribute
from fed_ucbvi.environments.chain import chain
from fed_ucbvi.environments.deep_sea import deep_sea
from fed_ucbvi.environments.garnet import garnet
from fed_ucbvi.environments.gridworld import gridworld
from fed_ucbvi.environments.gymnasium_tables import from_gymnasium
from fed_ucbvi.environments.hard_instance import hard_instance
from fed_ucbvi.environments.n_room import n_room
from fed_ucbvi.environments.names import former_name, label_of_builder
from fed_ucbvi.environments.random_mdps import random_mdps
from fed_ucbvi.environments.riverswim import riverswim
from fed_ucbvi.environments.six_arms import six_arms
from fed_ucbvi.environments.synthetic import synthetic
from fed_ucbvi.environments.two_state_chain import two_state_chain
from fed_ucbvi.environments.windy_cliff import windy_cliff
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
    )
}
"""Every builder takes ``agents``, ``eps_p``, ``seed`` and its own options, and returns a federation."""
REGISTRY: Mapping[str, Any] = Registry(ENVIRONMENTS, GROUP)
"""The environments of this package and those that other packages register."""
FORMER_NAMES = {former: name for name, builder in ENVIRONMENTS.items() if (former := former_name(builder))}
"""Names of environments in earlier versions, with their present names."""
COMMON = ("agents", "eps_p", "seed")
"""The parameters that every environment may have; all others are its own options."""
DIGEST = "digest"
FederationLike = Federation | MDP | Sequence[MDP] | str
"""What :func:`as_federation` takes."""
MUST_GIVE = "must give a Federation or a list of MDPs"


def current_name(name: str) -> str:
    """The present name of an environment, which is that of its function. Hyphens may replace underscores.

    Names of earlier versions are translated, so that their files can be read. Any other name is returned as it is.

    >>> current_name("deepsea"), current_name("deep-sea"), current_name("deep_sea"), current_name("shops:five")
    ('deep_sea', 'deep_sea', 'deep_sea', 'shops:five')
    """
    if name in REGISTRY:
        return name
    spelled = name.replace("-", "_")
    return spelled if spelled in REGISTRY else FORMER_NAMES.get(name, name)


def name_in_ids(name: str) -> str:
    """The name of an environment in the ids of runs: its oldest name, so that ids stay the same.

    >>> name_in_ids("deep_sea"), name_in_ids("gridworld")
    ('deepsea', 'gridworld')
    """
    name = current_name(name)
    return former_name(ENVIRONMENTS.get(name)) or name


def environment_label(name: str) -> str:
    """The label of an environment in tables and figures; its name if it has no label. Nothing is imported for it.

    >>> environment_label("deep_sea"), environment_label("shops:five")
    ('DeepSea', 'shops:five')
    """
    builder = _at_hand(current_name(name))
    return label_of_builder(builder) or name


def _at_hand(name: str) -> object:
    """What a recorded name stands for; None if its code has not been imported or cannot be loaded."""
    if is_attribute(name):
        return loaded_attribute(name)
    try:
        return REGISTRY.get(name)
    except InputError:
        return None


@dataclass(frozen=True, eq=False)
class Environment:
    """What a name stands for: a function that returns a federation, or a federation.

    Args:
        name: as it was given.
        made: the function, or the federation.
    """

    name: str
    made: Callable[..., Any] | Federation

    @cached_property
    def _parameters(self) -> Mapping[str, inspect.Parameter]:
        return {} if isinstance(self.made, Federation) else inspect.signature(self.made).parameters

    @cached_property
    def _open(self) -> bool:
        """Whether the function takes any option (``**options``)."""
        return any(parameter.kind is parameter.VAR_KEYWORD for parameter in self._parameters.values())

    def accepts(self, key: str) -> bool:
        """Whether it has the parameter ``key``; every environment has ``bernoulli_rewards`` (:meth:`build`)."""
        return key in self._parameters or self._open or key == BERNOULLI_REWARDS

    def defaults(self) -> dict[str, Any]:
        """Its own options with their defaults, where JSON can hold these; for a federation, its digest."""
        if isinstance(self.made, Federation):
            return {DIGEST: self.made.digest}
        return {
            name: parameter.default
            for name, parameter in self._parameters.items()
            if name not in COMMON and parameter.default is not parameter.empty and _can_be_written(parameter.default)
        }

    def recorded(self, description: Mapping[str, object]) -> dict[str, object]:
        """The entries of a description that are its parameters."""
        known = {BERNOULLI_REWARDS, *({DIGEST} if isinstance(self.made, Federation) else self._parameters)}
        return {key: value for key, value in description.items() if key in known}

    def given(self, **parameters: object) -> dict[str, Any]:
        """The given parameters that it takes; one that would have no effect is an error.

        The number of agents is never an error here: the caller compares it with the result.
        """
        told = {}
        for key, value in parameters.items():
            if self.accepts(key):
                told[key] = value
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
        return told

    def make(self, **parameters: object) -> Federation:
        """Make the federation; its number of agents must be the one given."""
        federation = self.build(**parameters)
        wanted = parameters.get("agents", federation.agents)
        if wanted != federation.agents:
            raise InputError(
                f"{self.name} has {federation.agents} agents, not {wanted}; say agents = {federation.agents}."
            )
        return federation

    def build(self, **parameters: object) -> Federation:
        """Make the federation; its number of agents may differ from the one given (a node has only some agents).

        Its description contains what is needed to make it again: its name and all its parameters. With
        ``bernoulli_rewards=True`` every reward is 1 or 0, with the same means
        (:meth:`~fed_ucbvi.problem.federation.Federation.with_bernoulli_rewards`).
        """
        told = self.given(**parameters)
        random = False if BERNOULLI_REWARDS in self._parameters else told.pop(BERNOULLI_REWARDS, False)
        federation = self.made if isinstance(self.made, Federation) else self._call(told)
        federation = federation.with_bernoulli_rewards(random)
        if self._ours:
            return federation
        rest = {key: value for key, value in federation.description.items() if key not in COMMON}
        about = {**rest, **self.defaults(), **told, "name": self.name, "agents": federation.agents}
        return replace(federation, description=about)

    @property
    def _ours(self) -> bool:
        """Whether it belongs to this package; such environments write their own description."""
        return ENVIRONMENTS.get(self.name) is self.made and str(self.made.__module__).startswith(f"{__name__}.")

    def _call(self, told: Mapping[str, Any]) -> Federation:
        assert not isinstance(self.made, Federation)
        try:
            inspect.signature(self.made).bind(**told)
        except TypeError as error:
            raise InputError(
                f"{self.name}: {error}; it may take {', '.join(COMMON)}, and options, which are given by name."
            ) from error
        try:
            return _federation(f"{self.name} {MUST_GIVE}", self.made(**told))
        except InputError:
            raise
        except TypeError as error:
            raise InputError(f"{self.name}: {error}") from error
        except Exception as error:
            if self._ours:
                raise
            raise InputError(f"{self.name} failed: {type(error).__name__}: {error}") from error


def _can_be_written(value: object) -> bool:
    """Whether JSON can hold a value."""
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return False
    return True


def as_federation(given: FederationLike) -> Federation:
    """What people pass as a problem: a federation, the name of an environment, an MDP, or a list with one per agent.

    >>> as_federation("gridworld").agents, as_federation(as_federation("gridworld").agent(0)).agents
    (20, 1)
    """
    if isinstance(given, str):
        return make_environment(given)
    built: object = given
    hint = f"; call it: {built.__name__}()" if inspect.isfunction(built) else ""
    return _federation("pass a Federation, the name of an environment, an MDP or a list of MDPs", built, hint)


def _federation(expected: str, built: object, hint: str = "") -> Federation:
    """An object as a federation; for a list of MDPs the common MDP has the mean kernel."""
    if isinstance(built, Federation):
        return built
    mdps = [built] if isinstance(built, MDP) else list(built) if isinstance(built, Sequence) else []
    if not mdps or not all(isinstance(mdp, MDP) for mdp in mdps):
        raise InputError(f"{expected}, got {type(built).__name__}{hint}.")
    return Federation.from_mdps(mdps, reference="mean")


def find_environment(name: str) -> Environment:
    """What ``name`` stands for.

    Args:
        name: as registered; a file that :meth:`Federation.save` wrote, by its suffix ``.npz``; or
            ``module:attribute``: a :class:`Federation`, a list of MDPs, or a function that returns one of these. The
            function is called with those of ``agents``, ``eps_p``, ``seed`` and the options for which it has
            parameters.
    """
    if name.endswith(SUFFIX):
        return Environment(name, Federation.load(name))
    name = current_name(name)
    if not is_attribute(name) and name not in REGISTRY:
        raise unknown_name("environment", name, REGISTRY)
    found = load_attribute(name) if is_attribute(name) else REGISTRY[name]
    return Environment(name, found if callable(found) else _federation(f"{name} {MUST_GIVE}", found))


def make_environment(name: str, **parameters: object) -> Federation:
    """The environment that ``name`` stands for; see :func:`find_environment`.

    >>> make_environment("synthetic", agents=4, eps_p=0.2).agents
    4
    """
    return find_environment(name).make(**parameters)


def recorded_options(description: Mapping[str, object], named: str | None = None) -> tuple[str, dict[str, object]]:
    """Name and options of the environment of a saved description; liars are left out.

    Args:
        description: the name and all parameters of the environment, as runs store them.
        named: the name of the environment, if the caller gives it. Without it, code (``module:attribute``) is not
            run, because a file may name any code.

    >>> world = make_environment("gridworld", agents=3, eps_p=0.1)
    >>> name, options = recorded_options({**world.description, "liars": [2]})
    >>> make_environment(name, **options).description == world.description
    True
    """
    name = current_name(str(description.get("name", "custom")) if named is None else named)
    if named is None and is_attribute(name):
        raise InputError(
            f"the environment is {printable(name)}, code that is not run because a file names it; if you trust it, "
            "name it yourself (--env)."
        )
    if named is None and not name.endswith(SUFFIX) and name not in REGISTRY:
        raise InputError(
            f"the environment '{printable(name)}' cannot be made again from its description; only these can: "
            f"{', '.join(sorted(REGISTRY))}, and saved federations ({SUFFIX}). If a package registers it, install it."
        )
    return name, find_environment(name).recorded(description)
