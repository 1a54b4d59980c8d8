"""The problem of a run: an environment with its options, or sizes or bins where nobody knows its tables."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from fed_ucbvi.core import defaults
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.parameters import Bounds, Count, Help, NonNegative, Size
from fed_ucbvi.core.plugins import is_attribute
from fed_ucbvi.specifications.fields import Options, Sizes, check_fields

if TYPE_CHECKING:
    from fed_ucbvi.problem.federation import Federation

AGENTS = 20
"""The default number of agents of a simulation."""
SEPARATE_FIELDS = {
    "agents": "agents (--agents)",
    "eps_p": "eps_p (--eps-p)",
    "seed": "env_seed (--env-seed)",
}
"""Parameters of every environment that are fields of their own."""


@dataclass(frozen=True, kw_only=True)
class ProblemSpec:
    """The problem of a run.

    An environment is a registered name with options, a file, or ``module:attribute``. Where no party knows tables,
    ``sizes`` or ``bins`` stand in for it.

    >>> problem = ProblemSpec(environment="synthetic", environment_options={"states": 3}, agents=4)
    >>> problem.make_federation().states
    3
    """

    environment: Annotated[
        str | None,
        Help("A name of 'fed-ucbvi environments', a saved federation (.npz), or Python: module:attribute."),
    ] = None
    environment_options: Annotated[
        Options,
        Help(
            "An option of the environment, as rows=5 or walls=[[1,1],[2,3]]; may be repeated. All of them have "
            "bernoulli_rewards=true: rewards are 1 or 0, with the same means. 'fed-ucbvi environments NAME' lists "
            "the others."
        ),
    ] = field(default_factory=dict)
    sizes: Annotated[
        tuple[Size, Size, Size] | None,
        Help("Or just the sizes of the problem: states, actions and steps."),
    ] = None
    bins: Annotated[
        Path | None,
        Help("Or the bins ('fed-ucbvi bins') by which all nodes make real environments finite."),
    ] = None
    agents: Annotated[Size | None, Help("Number of agents.")] = None
    eps_p: Annotated[
        Annotated[float, Bounds(0, below=1, why="Assumption 1")] | None,
        Help("Heterogeneity, from 0 to below 1."),
    ] = None
    env_seed: Annotated[Count, Help("Seed of the agents' kernels.")] = 0
    random_rewards: Annotated[
        bool | None,
        Help("With --sizes or --bins: rewards may depend on chance, or are fixed by step, state and action."),
    ] = None
    liars: Annotated[NonNegative, Help("Fraction of the agents that are Byzantine.")] = 0.0
    attack: Annotated[
        str,
        Help("The attack of Byzantine agents: random, flip, inflate, collude, mimic, counts, silent or spam."),
    ] = "random"

    def __post_init__(self) -> None:
        check_fields(self)
        check_option_names(self.environment_options)

    @property
    def environment_parameters(self) -> dict[str, Any]:
        """Parameters that a complete problem passes to its environment."""
        return {
            "agents": self.agents,
            "eps_p": self.eps_p,
            "seed": self.env_seed,
            **self.environment_options,
        }

    def complete(self) -> ProblemSpec:
        """This problem with all defaults filled in, so that equal problems are equal; checks the options.

        >>> one = ProblemSpec(environment="synthetic", environment_options={"states": 3}, agents=4)
        >>> other = ProblemSpec(environment="synthetic", environment_options={"states": 3.0}, agents=4, eps_p=0)
        >>> one.complete() == other.complete()
        True
        """
        from fed_ucbvi.environments import find_environment

        described = describe_environment(self.environment or defaults.ENVIRONMENT, self.environment_options)
        made = replace(
            self,
            environment=described.name,
            environment_options=described.options,
            agents=AGENTS if self.agents is None else self.agents,
            eps_p=self.eps_p or 0.0,
        )
        find_environment(described.name).given(**made.environment_parameters)
        return made

    def make_federation(self, default_agents: int = AGENTS) -> Federation:
        """Make the federation.

        Args:
            default_agents: number of agents if :attr:`agents` is None and the environment does not choose it.
        """
        from fed_ucbvi.environments import find_environment

        name = self.environment or defaults.ENVIRONMENT
        environment = find_environment(name)
        parameters = dict(self.environment_options)
        if self.agents is not None:
            parameters["agents"] = self.agents
        elif environment.accepts("agents") and not environment.chooses_agents:
            parameters["agents"] = default_agents
        with input_errors(name):
            federation = environment.make(eps_p=self.eps_p or 0.0, seed=self.env_seed, **parameters)
        if not self.liars:
            return federation
        return federation.with_liars(self.liars, self.attack, self.env_seed)


class DescribedEnvironment(NamedTuple):
    """An environment by its current name with all its options.

    Attributes:
        sizes: ``(S, A, H)``; None for code or a file of the user's, whose sizes may depend on the agents.
    """

    name: str
    options: dict[str, Any]
    sizes: Sizes | None


def describe_environment(name: str, given: Options) -> DescribedEnvironment:
    """Complete and check the options of an environment.

    >>> describe_environment("gridworld", {"rows": 3.0}).options["walls"]
    [[1, 1]]
    """
    from fed_ucbvi.environments import current_name, find_environment
    from fed_ucbvi.problem.federation import BERNOULLI_REWARDS

    check_option_names(given)
    current = current_name(name)
    found = find_environment(current)
    options = {**found.defaults(), **given}
    found.given(**options)
    sizes = None
    if not is_own_environment(current):
        smallest = _smallest(current, _json_text(given))
        options = {key: smallest.description.get(key, value) for key, value in options.items()}
        sizes = smallest.sizes
    if options.get(BERNOULLI_REWARDS) is False:
        del options[BERNOULLI_REWARDS]  # False is the default
    plain: dict[str, Any] = json.loads(_json_text(options))
    return DescribedEnvironment(current, plain, sizes)


def is_own_environment(name: str) -> bool:
    """True for the user's code or file, False for a registered name."""
    from fed_ucbvi.problem.saving import SUFFIX

    return is_attribute(name) or name.endswith(SUFFIX)


def check_option_names(options: Options) -> None:
    """Raise if a field of the problem is given as an option of its environment."""
    for key, instead in SEPARATE_FIELDS.items():
        if key in options:
            raise InputError(f"{key} is not an option of the environment; give it as {instead}.")


@contextmanager
def input_errors(name: str) -> Iterator[None]:
    """Turn errors of values that an environment cannot be made with into :class:`InputError`."""
    try:
        yield
    except InputError:
        raise
    except (ValueError, OverflowError) as error:
        raise InputError(f"{name}: {error}.") from error


def _json_text(options: Options) -> str:
    try:
        return json.dumps(dict(options), sort_keys=True, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InputError(f"options must be plain, finite values: {error}.") from error


class _MadeEnvironment(NamedTuple):
    """Sizes and description of an environment that was made to check its options."""

    sizes: Sizes
    description: Mapping[str, Any]


@lru_cache(maxsize=256)
def _smallest(environment: str, options: str) -> _MadeEnvironment:
    """Make a registered environment with one agent.

    Where options list something for each agent there are as many agents as the list is long.
    """
    given = json.loads(options)
    listed = given.get("kwargs")
    agents = len(listed) if isinstance(listed, list) else 1
    return make_described(environment, {"agents": agents, "eps_p": 0.0, "seed": 0, **given})


def make_described(environment: str, parameters: Options) -> _MadeEnvironment:
    """Make an environment and keep its sizes and description only."""
    from fed_ucbvi.environments import make_environment

    try:
        with input_errors(environment):
            made = make_environment(environment, **parameters)
    except MemoryError as error:
        raise InputError(f"{environment}: {error}.") from error
    return _MadeEnvironment((made.states, made.actions, made.horizon), made.description)
