"""What a run is, declared once: types, bounds, defaults and help texts of its fields.

Flags of the command line, sweeps, Flower's configuration, manifests and messages are views of :class:`RunSpec`: its
fields, or its JSON.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Self

from fed_ucbvi.core import defaults
from fed_ucbvi.core.errors import InputError, unknown_name
from fed_ucbvi.core.limits import MAX_COUNT, MAX_SEED, check_total_episodes
from fed_ucbvi.core.parameters import (
    Bounds,
    Count,
    Help,
    NonNegative,
    Positive,
    Size,
    check_parameters,
    check_value,
    converted,
    declared,
)

if TYPE_CHECKING:
    from fed_ucbvi.algorithms.base import Algorithm, Setting
    from fed_ucbvi.environments import Environment
    from fed_ucbvi.problem.federation import Federation

AGENTS = 20
AGENTS_SERVED = 4
"""The default number of agents, in a simulation and in a federation over the network."""
MIN_NODES = 3
"""In secure sums: with two nodes, each would know the other's numbers from the sum."""
ID_VERSION = 1
"""Part of every id; increased when a new version gives another result for the same fields."""
ID_LENGTH = 16
NAMED_APART = {"agents": "agents (--agents)", "eps_p": "eps_p (--eps-p)", "seed": "env_seed (--env-seed)"}
"""Parameters of every environment that are fields of their own."""

Options = Mapping[str, Any]
Sizes = tuple[int, int, int]


class Listed(NamedTuple):
    """The length of a field that is a tuple, None for any, and the type of its values."""

    length: int | None
    kind: Any


SEQUENCES = {
    "sizes": Listed(3, Size),
    "nodes": Listed(None, str),
    "return_range": Listed(2, float),
}


ALGORITHM_HELP = "A name of 'fed-ucbvi algorithms', or Python: module:attribute."


@dataclass(frozen=True, kw_only=True)
class FederationRules:
    """How a run over the network is held: part of a spec, and of the server's plan."""

    collection: Annotated[
        Literal["lockstep", "live"],
        Help("lockstep (all stop after the same episode) or live (where the stop reaches them)."),
    ] = "lockstep"
    nodes: Annotated[tuple[str, ...] | None, Help("Nodes that may take part; by default all certified.")] = None
    secure_sums: Annotated[bool, Help("Nodes mask what they report: the server learns sums only.")] = False
    least_episodes: Annotated[
        Size, Help("With secure sums: new episodes from which on a node counts as a contributor.")
    ] = 1
    least_members: Annotated[
        int, Bounds(MIN_NODES), Help("With secure sums: contributors without whom nothing is added up.")
    ] = MIN_NODES
    deadline: Annotated[Positive, Help("For one answer of a node.")] = 60.0
    patience: Annotated[Positive, Help("Time to wait for a node that is away before the run stops.")] = 600.0
    gathering: Annotated[Positive, Help("For all nodes to connect before round 1.")] = 3600.0
    quorum: Annotated[
        Size | None,
        Help("Close rounds with K nodes or more; the others catch up. Nodes that break the protocol are excluded."),
    ] = None
    wait: Annotated[NonNegative, Help("With --quorum: for the others, once K nodes have answered.")] = 5.0

    def __post_init__(self) -> None:
        _check_fields(self, FederationRules)

    @property
    def live(self) -> bool:
        """Whether each node stops when the message to stop arrives, and not all after the same episode."""
        return self.collection == "live"

    @property
    def rules(self) -> dict[str, Any]:
        return {one.name: getattr(self, one.name) for one in fields(FederationRules)}


@dataclass(kw_only=True)
class NodeTerms:
    """The terms on which a node takes part in a run: part of a node, and flags of ``join``."""

    algorithm: Annotated[
        str | None, Help("Take part in runs of this algorithm only; one that is not registered must be named.")
    ] = None
    send_trajectories: Annotated[bool, Help("Agree to algorithms that send trajectories.")] = False
    require_secure_sums: Annotated[bool, Help("Take part only where the server learns sums over nodes.")] = False
    least_episodes: Annotated[
        Size, Help("With secure sums: only if nodes with fewer new episodes do not count as contributors.")
    ] = 1
    least_members: Annotated[
        int,
        Bounds(MIN_NODES),
        Help("With secure sums: only in sums of so many contributors; 3 and those that may be the server's."),
    ] = MIN_NODES
    most_failures: Annotated[
        Count, Help("How often to send again what was not confirmed, in other company; 0 is strict.")
    ] = 3
    no_rewards: Annotated[
        bool, Help("Do not report the rewards of every round; where episodes began is reported in any case.")
    ] = False

    def __post_init__(self) -> None:
        check_parameters(self)


@dataclass(frozen=True, kw_only=True)
class RunSpec(FederationRules):
    """What a run is: the problem, the algorithm, who collects the data, the federation's rules and what is kept.

    Values are checked when it is made; the text of a number, such as ``"1e3"``, stands for the number. A problem is
    the name of an environment with options, a file, ``module:attribute``, or sizes alone.

    >>> spec = RunSpec(environment="synthetic", agents=4, episodes="1e3", parameters={"min_round_growth": "1"})
    >>> spec.episodes, spec.complete().parameters["min_round_growth"]
    (1000, 1.0)
    >>> RunSpec.from_data(spec.to_data()) == spec
    True
    >>> RunSpec.from_data({"algorithm": "mine:Mine"})
    Traceback (most recent call last):
    fed_ucbvi.core.errors.InputError: the algorithm is mine:Mine, code that is not run because a file names it; if
    you trust it, name it yourself (--code mine:Mine).
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
    sizes: Annotated[Sizes | None, Help("Or just the sizes of the problem.")] = None
    bins: Annotated[
        Path | None, Help("Or the bins ('fed-ucbvi bins') by which all nodes make real environments finite.")
    ] = None
    agents: Annotated[Size | None, Help("Number of agents.")] = None
    episodes: Annotated[int, Bounds(1, at_most=MAX_COUNT), Help("Episodes per agent; 1e9 is fine.")] = 30_000
    eps_p: Annotated[
        Annotated[float, Bounds(0, below=1, why="Assumption 1")] | None, Help("Heterogeneity, from 0 to below 1.")
    ] = None
    env_seed: Annotated[Count, Help("Seed of the agents' kernels.")] = 0
    random_rewards: Annotated[
        bool | None,
        Help("With --sizes or --bins: rewards may depend on chance, or are fixed by step, state and action."),
    ] = None
    liars: Annotated[NonNegative, Help("Fraction of the agents that are Byzantine.")] = 0.0
    attack: Annotated[str, Help("What they do: random, flip, inflate, collude, mimic, counts, silent or spam.")] = (
        "random"
    )
    algorithm: Annotated[str, Help(ALGORITHM_HELP)] = defaults.ALGORITHM
    parameters: Annotated[
        Options,
        Help("A parameter of the algorithm, as stationary=true; may be repeated. See 'fed-ucbvi algorithms NAME'."),
    ] = field(default_factory=dict)
    seed: Annotated[int, Bounds(0, at_most=MAX_SEED), Help("Seed of the run.")] = 0
    label: Annotated[str, Help("The algorithm's name in tables and figures.")] = ""
    warm_start: Annotated[
        Path | None, Help("Start from the counts of a run: a file of 'fed-ucbvi counts', or its checkpoint.")
    ] = None
    incumbent: Annotated[str | None, Help("The policy played today, or a function of step and state.")] = None
    loss: Annotated[
        Annotated[float, Bounds(0, below=1)] | None,
        Help("What exploring may cost, as a share of its worth; with 0 the incumbent is only evaluated."),
    ] = None
    until_gap: Annotated[
        Positive | None, Help("End once the recommended policy is certified to be so near to the best.")
    ] = None
    return_range: Annotated[
        tuple[float, float] | None,
        Help("Between which what an episode pays always lies, if narrower than by rewards."),
    ] = None
    driver: Annotated[
        Literal["auto", "counts", "episodes", "cuda"], Help("auto, counts, episodes or, on a GPU, cuda.")
    ] = "auto"
    fleets: Annotated[Literal["local", "ray"], Help("Where the agents are: local or, as actors, ray.")] = "local"
    address: Annotated[str | None, Help("Of a Ray cluster.")] = None
    fleet_count: Annotated[Size | None, Help("How many fleets the agents are split into on Ray.")] = None
    checkpoint: Annotated[Path | None, Help("Folder to keep the state in, to resume the run from.")] = None
    checkpoint_every: Annotated[Size, Help("Rounds between two checkpoints.")] = 100
    out: Annotated[Path | None, Help("Folder to save the run in.")] = None
    overwrite: Annotated[bool, Help("Replace an earlier run in --out.")] = False

    def __post_init__(self) -> None:
        _check_fields(self, RunSpec)
        check_total_episodes(self.agents or 1, self.episodes)

    def __hash__(self) -> int:
        return hash(self.to_json())

    @classmethod
    def from_data(cls, data: Mapping[str, Any], *, code: Collection[str] = ()) -> Self:
        """Read what :meth:`to_data` gave.

        Args:
            data: fields by name. They may name only registered algorithms and environments, and files: data never
                make code run.
            code: names of code (``module:attribute``) that the person at the keyboard wrote, and data may repeat.
        """
        from fed_ucbvi.core.plugins import check_code

        known = [one.name for one in fields(cls)]
        for name in data:
            if name not in known:
                raise unknown_name("field of a run", str(name), known)
        spec = cls(**data)
        for kind, name in (
            ("algorithm", spec.algorithm),
            ("environment", spec.environment or ""),
            ("incumbent", spec.incumbent or ""),
            ("Gymnasium environment", str(spec.environment_options.get("id", ""))),
        ):
            if name not in code and not name.endswith(".npz"):
                check_code(kind, name)
        return spec

    def to_data(self) -> dict[str, Any]:
        """All fields as plain values, ready for JSON."""
        return {one.name: _plain(getattr(self, one.name)) for one in fields(self)}

    def to_json(self) -> str:
        return json.dumps(self.to_data(), sort_keys=True, allow_nan=False)

    @cached_property
    def id(self) -> str:
        """Of a complete spec: digits that identify the simulated run, whatever it is called and where it is kept."""
        content = {name: getattr(self, name) for name in SIMULATED}
        text = json.dumps({"meaning": ID_VERSION, **content}, sort_keys=True, allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()[:ID_LENGTH]

    def complete(self) -> Self:
        """The same with all defaults filled in and numbers in their proper types, so that equal runs are equal.

        The same algorithm is always called the same. What cannot be used is an error.

        >>> one = RunSpec(environment="synthetic", environment_options={"states": 3}, agents=4)
        >>> other = RunSpec(environment="synthetic", environment_options={"states": 3.0}, agents=4, eps_p=0)
        >>> one.complete().id == other.complete().id
        True
        """
        from fed_ucbvi.environments import current_name

        name = current_name(self.environment or defaults.ENVIRONMENT)
        made = replace(
            self,
            algorithm=canonical_name(self.algorithm),
            parameters=complete_parameters(self.algorithm, self.parameters),
            environment=name,
            environment_options=complete_options(name, self.environment_options),
            agents=AGENTS if self.agents is None else self.agents,
            eps_p=self.eps_p or 0.0,
            label=self.label or self.algorithm,
        )
        _environment(name).given(**made.of_environment)
        return made

    @property
    def of_environment(self) -> dict[str, Any]:
        """What a complete spec passes to the environment."""
        return {"agents": self.agents, "eps_p": self.eps_p, "seed": self.env_seed, **self.environment_options}

    def check_possible(self) -> None:
        """Raise if the algorithm refuses the setting of a complete spec, before anything runs."""
        from fed_ucbvi.algorithms.base import Setting
        from fed_ucbvi.algorithms.state_memory import check_server_memory

        assert self.environment is not None
        assert self.agents is not None
        algorithm = self.make_algorithm()
        algorithm.check_agents(self.agents)
        own = is_own(self.environment)
        make, told = (_made, self.of_environment) if own else (_smallest, self.environment_options)
        sizes, _ = make(self.environment, _text(told))
        setting = Setting(*sizes, self.agents, self.episodes, self.eps_p or 0.0, self.seed)
        check_server_memory(algorithm, setting)
        algorithm.new_server(setting)

    def make_algorithm(self) -> Algorithm[Any, Any]:
        """With parameters in the types of their fields; names that it does not have are left as they are."""
        from fed_ucbvi.algorithms import class_of, make_algorithm

        kind: Any = class_of(self.algorithm)
        hints = declared(kind)
        given = self.parameters.items()
        typed = {name: converted(name, value, hints.get(name)) for name, value in given}
        return make_algorithm(self.algorithm, typed)

    def make_federation(self, usual: int = AGENTS) -> Federation:
        """The problem; without ``agents``, environments of users choose how many, and others get ``usual``."""
        from fed_ucbvi.environments import find_environment

        name = self.environment or defaults.ENVIRONMENT
        environment = find_environment(name)
        told = dict(self.environment_options)
        if self.agents is not None:
            told["agents"] = self.agents
        elif environment.accepts("agents") and not environment.chooses_agents:
            told["agents"] = usual
        with _plain_errors(name):
            federation = environment.make(eps_p=self.eps_p or 0.0, seed=self.env_seed, **told)
        return federation.with_liars(self.liars, self.attack, self.env_seed) if self.liars else federation

    def source(self, agents: int) -> Callable[[int], Federation]:
        """The problem of a node: a function of M, with the node's own agents alone if it has fewer.

        What can be wrong with a registered environment of ``agents`` agents is an error at once.
        """
        from fed_ucbvi.environments import REGISTRY, find_environment

        name = self.environment or defaults.ENVIRONMENT
        environment = find_environment(name)
        told = {"eps_p": self.eps_p or 0.0, "seed": self.env_seed, **self.environment_options}

        def source(M: int) -> Federation:
            with _plain_errors(name):
                return environment.build(agents=M, **told)

        environment.given(agents=agents, **told)
        if environment.name in REGISTRY:
            source(agents)
        return source

    def setting(self, federation: Federation | None = None) -> Setting:
        """What everyone knows before the run, of the problem or, where there is none, of its sizes."""
        from fed_ucbvi.algorithms.base import Setting

        if federation is not None:
            random = federation.reward_variances is not None
            return Setting.of(federation, self.episodes, self.seed, random_rewards=random)
        if self.sizes is None:
            raise InputError("the problem is not known; give its sizes (--sizes S,A,H).")
        agents = AGENTS_SERVED if self.agents is None else self.agents
        known = self.eps_p is not None
        random = self.live if self.random_rewards is None else self.random_rewards  # tables say whether theirs are
        return Setting(*self.sizes, agents, self.episodes, self.eps_p or 0.0, self.seed, known, random)


SIMULATED = (
    "algorithm",
    "parameters",
    "environment",
    "environment_options",
    "agents",
    "eps_p",
    "env_seed",
    "episodes",
    "seed",
    "driver",
)
"""The fields on which the result of a simulation depends; liars aside, which sweeps do not have."""


def field_value(name: str, given: Any) -> Any:
    """Return the value of a field of :class:`RunSpec` in the type of the field, or raise if it does not fit.

    >>> field_value("episodes", "1e4"), field_value("eps_p", 0), field_value("sizes", [8, 4, 10])
    (10000, 0.0, (8, 4, 10))
    """
    if given is RunSpec.__dataclass_fields__[name].default:
        return given
    if name == "environment_options":
        return _environment_options(given)
    if name == "parameters":
        return _options(name, given)
    if name in SEQUENCES:
        return _sequence(name, given)
    return converted(name, given, declared(RunSpec)[name])


def _check_fields(values: FederationRules, kind: type) -> None:
    """Check the fields that ``kind`` declares or inherits, and convert their values to the types of the fields."""
    for one in fields(kind):
        object.__setattr__(values, one.name, field_value(one.name, getattr(values, one.name)))


def _sequence(name: str, given: Any) -> tuple[Any, ...]:
    """A list or tuple, as JSON and Python give it, as a tuple of checked values."""
    expected = SEQUENCES[name]
    if not isinstance(given, list | tuple) or expected.length not in (None, len(given)):
        number = "" if expected.length is None else f"{expected.length} "
        raise InputError(f"{name} must be a list of {number}values, got {given!r}.")
    return tuple(check_value(name, value, expected.kind) for value in given)


def _options(name: str, given: Any) -> dict[str, Any]:
    if not isinstance(given, Mapping):
        raise InputError(f"{name} must be a table of names and values, got {given!r}.")
    return dict(given)


def _environment_options(given: Any) -> dict[str, Any]:
    options = _options("environment_options", given)
    for key, instead in NAMED_APART.items():
        if key in options:
            raise InputError(f"{key} is not an option of the environment; give it as {instead}.")
    return options


def _plain(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    return list(value) if isinstance(value, tuple) else dict(value) if isinstance(value, Mapping) else value


@contextmanager
def _plain_errors(name: str) -> Iterator[None]:
    """Values that an environment cannot be made with are errors of the input."""
    try:
        yield
    except InputError:
        raise
    except (ValueError, OverflowError) as error:
        raise InputError(f"{name}: {error}.") from error


def is_own(environment: str) -> bool:
    """Whether an environment is the user's code or file, and not a registered name."""
    from fed_ucbvi.core.plugins import is_attribute
    from fed_ucbvi.problem.saving import SUFFIX

    return is_attribute(environment) or environment.endswith(SUFFIX)


def canonical_name(algorithm: str) -> str:
    """The recorded name of an algorithm that has several names, or ``algorithm`` if that would not find the class.

    >>> canonical_name("fed_ucbvi:FedUCBVI")
    'fed-ucbvi'
    """
    from fed_ucbvi.algorithms import algorithm_name, class_of

    kind = class_of(algorithm)
    name = algorithm_name(kind)
    try:
        return name if class_of(name) is kind else algorithm
    except InputError:
        return algorithm


def complete_parameters(algorithm: str, given: Mapping[str, object]) -> dict[str, Any]:
    """All parameters of ``algorithm``, checked, in the types their fields are declared with.

    >>> complete_parameters("fed-ucbvi", {"nu": 100})["nu"], complete_parameters("fed-ucbvi", {"nu": "none"})["nu"]
    (100.0, None)
    """
    from fed_ucbvi.algorithms import parameters_of

    return parameters_of(RunSpec(algorithm=algorithm, parameters=given).make_algorithm())


def complete_options(environment: str, given: Mapping[str, object]) -> dict[str, Any]:
    """All options of ``environment``, checked, as its description states them.

    >>> complete_options("gridworld", {"rows": 3.0})["walls"]
    [[1, 1]]
    """
    from fed_ucbvi.problem.federation import BERNOULLI_REWARDS

    found = _environment(environment)
    options = {**found.defaults(), **_environment_options(given)}
    found.given(**options)
    if not is_own(environment):
        described = _smallest(environment, _text(given))[1]
        options = {name: described.get(name, value) for name, value in options.items()}
    if options.get(BERNOULLI_REWARDS) is False:
        del options[BERNOULLI_REWARDS]  # nothing was asked for
    plain: dict[str, Any] = json.loads(_text(options))
    return plain


def _text(options: Mapping[str, object]) -> str:
    try:
        return json.dumps(dict(options), sort_keys=True, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InputError(f"options must be plain, finite values: {error}.") from error


def _environment(name: str) -> Environment:
    """What a name stands for, cached: files are read, and functions inspected, once for all runs of a sweep."""
    from fed_ucbvi.environments import ENVIRONMENTS, find_environment
    from fed_ucbvi.problem.saving import SUFFIX

    if name.endswith(SUFFIX) and Path(name).is_file():
        status = Path(name).stat()
        return _found(name, (status.st_mtime_ns, status.st_size))
    return _found(name, ENVIRONMENTS[name]) if name in ENVIRONMENTS else find_environment(name)


@lru_cache(maxsize=32)
def _found(name: str, _as_it_is: Hashable) -> Environment:
    from fed_ucbvi.environments import find_environment

    return find_environment(name)


@lru_cache(maxsize=256)
def _smallest(environment: str, options: str) -> tuple[Sizes, Mapping[str, Any]]:
    """Sizes and description of the environment with one agent, to check whether its options can be used.

    Where options list something for each agent there are as many agents as the list is long.
    """
    given = json.loads(options)
    listed = given.get("kwargs")
    agents = len(listed) if isinstance(listed, list) else 1
    return _made(environment, _text({"agents": agents, "eps_p": 0.0, "seed": 0, **given}))


@lru_cache(maxsize=256)
def _made(environment: str, told: str) -> tuple[Sizes, Mapping[str, Any]]:
    from fed_ucbvi.environments import make_environment

    try:
        with _plain_errors(environment):
            made = make_environment(environment, **json.loads(told))
    except MemoryError as error:
        raise InputError(f"{environment}: {error}.") from error
    return (made.states, made.actions, made.horizon), made.description
