"""What a run is, declared once.

Flags of the command line, sweeps, Flower's configuration, manifests and messages are views of :class:`RunSpec`: its
fields, or its JSON.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from fed_ucbvi.core import defaults
from fed_ucbvi.core.errors import InputError, unknown_name
from fed_ucbvi.core.parameters import (
    Bounds,
    Count,
    NonNegative,
    Positive,
    Size,
    check_parameters,
    converted,
    declared,
    json_or_text,
)

if TYPE_CHECKING:
    from fed_ucbvi.algorithms.base import Algorithm, Setting
    from fed_ucbvi.environments import Environment
    from fed_ucbvi.problem.federation import Federation

AGENTS, AGENTS_SERVED = 20, 4
"""The default number of agents, in a simulation and in a federation over the network."""
USUAL_AGENTS = f"{AGENTS}, or the size of a custom federation"
PROBLEM, ALGORITHM, PROMISES, CLUSTER, NETWORK, FAULTS, OUTPUT = (
    *("The problem", "The algorithm", "Do no harm, prove the gain", "Cluster", "The network"),
    *("When things go wrong", "Running and results"),
)
"""Headings under which help lists the fields."""
MIN_NODES = 3
"""In secure sums: with two nodes, each would know the other's numbers from the sum."""
MAX_COUNT = 2**53
MAX_SEED = 2**64 - 1
ID_VERSION = 1
"""Part of every id; increased when a new version gives another result for the same fields."""
ID_LENGTH = 16
NAMED_APART = {"agents": "agents (--agents)", "eps_p": "eps_p (--eps-p)", "seed": "env_seed (--env-seed)"}
"""Parameters of every environment that are fields of their own."""

Options = Mapping[str, Any]
Sizes = tuple[int, int, int]


@dataclass(frozen=True)
class Flag:
    """How a field, an option or an argument of a command is written, explained, and read.

    ``metavar`` stands for the value in help and is empty for a switch; ``panel`` is the heading. ``name`` is the
    flag, if it is not the field's name, and ``default`` the default in words, where the value does not say it.
    ``read`` gives the field's value from what was given for it, where its type does not say how; ``names`` are for
    shells to complete.
    """

    value: Any
    metavar: str
    help: str
    panel: str | None = None
    name: str = ""
    default: str | None = None
    read: Callable[[Any], Any] | None = None
    names: Callable[[], list[str]] | None = None
    is_argument: bool = False


def flag(value: Any, *given: Any, **more: Any) -> Any:
    """A field of a dataclass with its default and its :class:`Flag`."""
    made = {"flag": Flag(value, *given, **more)}
    return field(default_factory=dict, metadata=made) if value == {} else field(default=value, metadata=made)


def _sizes(value: Any) -> Any:
    """``S,A,H`` as three numbers."""
    try:
        numbers = tuple(int(part) for part in (value.split(",") if isinstance(value, str) else value))
    except (TypeError, ValueError):
        numbers = ()
    if len(numbers) != 3 or min(numbers) < 1:
        raise InputError(f"--sizes takes three whole numbers above 0 as S,A,H, got '{value}'.")
    return numbers


def low_and_high(flag: str, value: Any) -> Any:
    """``LOW,HIGH`` as two numbers."""
    try:
        low, high = map(float, value.split(",") if isinstance(value, str) else value)
    except (TypeError, ValueError):
        raise InputError(f"{flag} takes two numbers as LOW,HIGH, got '{value}'.") from None
    return low, high


def _names(value: Any) -> Any:
    """``A,B,...`` as a tuple."""
    names = [part.strip() for part in value.split(",")] if isinstance(value, str) else value
    if not isinstance(names, list | tuple) or not all(isinstance(one, str) for one in names):
        raise InputError(f"nodes are given by their names as A,B,..., got {value!r}.")
    return tuple(names)


def pairs(flag: str, texts: Iterable[str]) -> dict[str, str]:
    """``KEY=VALUE`` texts as a dictionary; dashes in keys may stand for underscores.

    >>> pairs("--option", ["bonus-scale=2"])
    {'bonus_scale': '2'}
    """
    values: dict[str, str] = {}
    for text in texts:
        key, sign, value = text.partition("=")
        key = key.strip().replace("-", "_")
        if not sign or not key:
            raise InputError(f"{flag} takes KEY=VALUE, got '{text}'.")
        if key in values:
            raise InputError(f"{flag} gives {key} twice.")
        values[key] = value.strip()
    return values


def _listed(flag: str, value: Any) -> dict[str, Any]:
    """Options as a mapping, or as ``KEY=VALUE`` texts."""
    if isinstance(value, Mapping):
        return dict(value)
    if not isinstance(value, list | tuple | None) or not all(isinstance(text, str) for text in value or ()):
        raise InputError(f"{flag} takes KEY=VALUE, got {value!r}.")
    return dict(pairs(flag, value or ()))


def _environment_options(value: Any) -> dict[str, Any]:
    """Options of an environment; texts are JSON."""
    options = _listed("--env-option", value)
    if not isinstance(value, Mapping):
        options = {key: json_or_text(key, text) for key, text in options.items()}
    for key, instead in NAMED_APART.items():
        if key in options:
            raise InputError(f"{key} is not an option of the environment; give it as {instead}.")
    return options


def environment_names() -> list[str]:
    from fed_ucbvi.environments import REGISTRY

    return list(REGISTRY)


def algorithm_names() -> list[str]:
    from fed_ucbvi.algorithms import REGISTRY

    return list(REGISTRY)


NAME = "NAME|FILE|MODULE:ATTRIBUTE"
ENVIRONMENT_HELP = "A name of 'fed-ucbvi environments', a saved federation (.npz), or Python: module:attribute."
ALGORITHM_HELP = "A name of 'fed-ucbvi algorithms', or Python: module:attribute."
OPTION_HELP = (
    "An option of the environment, as rows=5 or walls=[[1,1],[2,3]]; may be repeated. All of them have "
    "bernoulli_rewards=true: rewards are 1 or 0, with the same means. 'fed-ucbvi environments NAME' lists the others."
)
PARAMETER_HELP = "A parameter of the algorithm, as stationary=true; may be repeated. See 'fed-ucbvi algorithms NAME'."


@dataclass(frozen=True, kw_only=True)
class FederationRules:
    """How a run over the network is held: part of a spec, and of the server's plan."""

    collection: Literal["lockstep", "live"] = flag(
        "lockstep",
        "HOW",
        "lockstep (all stop after the same episode) or live (where the stop reaches them).",
        NETWORK,
    )
    nodes: tuple[str, ...] | None = flag(
        None, "A,B,...", "Nodes that may take part; by default all certified.", NETWORK, read=_names
    )
    secure_sums: bool = flag(False, "", "Nodes mask what they report: the server learns sums only.", NETWORK)
    least_episodes: Size = flag(
        1, "N", "With secure sums: new episodes from which on a node counts as a contributor.", NETWORK
    )
    least_members: Annotated[int, Bounds(MIN_NODES)] = flag(
        MIN_NODES, "N", "With secure sums: contributors without whom nothing is added up.", NETWORK
    )
    deadline: Positive = flag(60.0, "SECONDS", "For one answer of a node.", FAULTS)
    patience: Positive = flag(600.0, "SECONDS", "For a node that is away.", FAULTS)
    gathering: Positive = flag(3600.0, "SECONDS", "For all nodes to connect before round 1.", FAULTS)
    on_away: Literal["wait", "last", "exclude"] = flag(
        "wait", "POLICY", "wait (then stop), last (continue with its last report) or exclude.", FAULTS
    )
    quorum: Size | None = flag(
        None, "K", "Close rounds with K nodes or more; the others catch up.", FAULTS, default="all nodes"
    )
    wait: NonNegative = flag(5.0, "SECONDS", "With --quorum: for the others, once K nodes have answered.", FAULTS)
    on_violation: Literal["stop", "drop"] = flag("stop", "POLICY", "stop the run or drop the node.", FAULTS)
    without: tuple[str, ...] = flag(
        *((), "NAME", "A node of the run in --checkpoint that has left for good; may be repeated.", FAULTS),
        read=_names,
    )

    def __post_init__(self) -> None:
        for one in fields(self):
            if "flag" in one.metadata:
                object.__setattr__(self, one.name, field_value(one.name, getattr(self, one.name)))

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

    algorithm: str | None = flag(
        None,
        "NAME|MODULE:ATTRIBUTE",
        "Take part in runs of this algorithm only; one that is not registered must be named.",
        ALGORITHM,
        default="any that is registered",
        names=algorithm_names,
    )
    send_trajectories: bool = flag(False, "", "Agree to algorithms that send trajectories.", OUTPUT)
    require_secure_sums: bool = flag(False, "", "Take part only where the server learns sums over nodes.", OUTPUT)
    least_episodes: Size = flag(
        1, "N", "With secure sums: only if nodes with fewer new episodes do not count as contributors.", OUTPUT
    )
    least_members: Annotated[int, Bounds(MIN_NODES)] = flag(
        *(MIN_NODES, "N"),
        "With secure sums: only in sums of so many contributors; 3 and those that may be the server's.",
        OUTPUT,
    )
    most_failures: Count = flag(
        3, "N", "How often to send again what was not confirmed, in other company; 0 is strict.", OUTPUT
    )
    no_rewards: bool = flag(
        False, "", "Do not report the rewards of every round; where episodes began is reported in any case.", OUTPUT
    )

    def __post_init__(self) -> None:
        check_parameters(self)


@dataclass(frozen=True, kw_only=True)
class RunSpec(FederationRules):
    """What a run is: the problem, the algorithm, who collects the data, the federation's rules and what is kept.

    Values are checked, and texts such as ``"1e4"`` or ``["bonus=theory"]`` are understood, when it is made. A problem
    is the name of an environment with options, a file, ``module:attribute``, or sizes alone.

    >>> spec = RunSpec(environment="synthetic", agents=4, episodes="1e3", parameters=["bonus-scale=2"])
    >>> spec.episodes, spec.complete().parameters["bonus_scale"]
    (1000, 2.0)
    >>> RunSpec.from_data(spec.to_data()) == spec
    True
    >>> RunSpec.from_data({"algorithm": "mine:Mine"})
    Traceback (most recent call last):
    fed_ucbvi.core.errors.InputError: the algorithm is mine:Mine, code that is not run because a file names it; if
    you trust it, name it yourself (--code mine:Mine).
    """

    environment: str | None = flag(
        None, NAME, ENVIRONMENT_HELP, PROBLEM, name="--env", default=defaults.ENVIRONMENT, names=environment_names
    )
    environment_options: Options = flag(
        {}, "KEY=JSON", OPTION_HELP, PROBLEM, name="--env-option", read=_environment_options
    )
    sizes: Sizes | None = flag(None, "S,A,H", "Or just the sizes of the problem.", PROBLEM, read=_sizes)
    bins: Path | None = flag(
        None, "FILE", "Or the bins ('fed-ucbvi bins') by which all nodes make real environments finite.", PROBLEM
    )
    agents: Size | None = flag(None, "M", "Number of agents.", PROBLEM, default=USUAL_AGENTS)
    episodes: Annotated[int, Bounds(1, at_most=MAX_COUNT)] = flag(
        30_000, "T", "Episodes per agent; 1e9 is fine.", PROBLEM
    )
    eps_p: Annotated[float, Bounds(0, below=1, why="Assumption 1")] | None = flag(
        None, "X", "Heterogeneity, from 0 to below 1.", PROBLEM, default="0"
    )
    env_seed: Count = flag(0, "N", "Seed of the agents' kernels.", PROBLEM)
    random_rewards: bool = flag(
        False,
        "",
        "With --sizes or --bins: rewards depend on chance, and the bonus is to cover their spread.",
        PROBLEM,
    )
    liars: NonNegative = flag(0.0, "X", "Fraction of the agents that are Byzantine.", PROBLEM)
    attack: str = flag(
        "random", "NAME", "What they do: random, flip, inflate, collude, mimic, counts, silent or spam.", PROBLEM
    )
    algorithm: str = flag(
        defaults.ALGORITHM, "NAME|MODULE:ATTRIBUTE", ALGORITHM_HELP, ALGORITHM, names=algorithm_names
    )
    parameters: Options = flag(
        {}, "KEY=VALUE", PARAMETER_HELP, ALGORITHM, name="--option", read=partial(_listed, "--option")
    )
    seed: Annotated[int, Bounds(0, at_most=MAX_SEED)] = flag(0, "N", "Seed of the run.", ALGORITHM)
    label: str = flag("", "TEXT", "The algorithm's name in tables and figures.", ALGORITHM)
    warm_start: Path | None = flag(
        None, "PATH", "Start from the counts of a run: a file of 'fed-ucbvi counts', or its checkpoint.", PROBLEM
    )
    incumbent: str | None = flag(
        None, "FILE|MODULE:ATTRIBUTE", "The policy played today, or a function of step and state.", PROMISES
    )
    loss: Annotated[float, Bounds(above=0, below=1)] | None = flag(
        None, "X", "What exploring may cost, as a share of its worth.", PROMISES, default="0.05"
    )
    until_gap: Positive | None = flag(
        None, "X", "End once the recommended policy is certified to be so near to the best.", PROMISES
    )
    return_range: tuple[float, float] | None = flag(
        *(None, "LOW,HIGH", "Between which what an episode pays always lies, if narrower than by rewards.", PROMISES),
        read=partial(low_and_high, "--return-range"),
    )
    evaluate: str | None = flag(
        None, "FILE|MODULE:ATTRIBUTE", "Only play this policy, without learning, and say what it is worth.", PROMISES
    )
    driver: Literal["auto", "counts", "episodes", "cuda"] = flag(
        "auto", "NAME", "auto, counts, episodes or, on a GPU, cuda.", OUTPUT
    )
    fleets: Literal["local", "ray"] = flag(
        "local", "NAME", "Where the agents are: local or, as actors, ray.", CLUSTER
    )
    address: str | None = flag(
        None, "HOST:PORT", "Of a Ray cluster.", CLUSTER, default="Ray is started on this machine"
    )
    fleet_count: Size | None = flag(
        None, "N", "How many fleets the agents are split into on Ray.", CLUSTER, default="one a core"
    )
    checkpoint: Path | None = flag(None, "DIR", "Folder to keep the state in, to resume the run from.", OUTPUT)
    checkpoint_every: Size = flag(100, "K", "Rounds between two checkpoints.", OUTPUT)
    out: Path | None = flag(None, "DIR", "Folder to save the run in.", OUTPUT)
    overwrite: bool = flag(False, "", "Replace an earlier run in --out.", OUTPUT)

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.agents or 1) * self.episodes > MAX_COUNT:
            raise InputError(f"agents x episodes must be at most 2^53, got {self.agents} x {self.episodes}.")

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
            ("policy", spec.evaluate or ""),
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

        assert self.environment is not None
        assert self.agents is not None
        algorithm = self.make_algorithm()
        algorithm.check_agents(self.agents)
        own = is_own(self.environment)
        make, told = (_made, self.of_environment) if own else (_smallest, self.environment_options)
        sizes, _ = make(self.environment, _text(told))
        algorithm.new_server(Setting(*sizes, self.agents, self.episodes, self.eps_p or 0.0, self.seed))

    def make_algorithm(self) -> Algorithm[Any, Any]:
        """With parameters in the types of their fields; names that it does not have are left as they are."""
        from fed_ucbvi.algorithms import class_of, make_algorithm

        kind: Any = class_of(self.algorithm)
        hints, given = declared(kind), self.parameters.items()
        typed = {name: converted(name, value, hints.get(name)) for name, value in given}
        return make_algorithm(self.algorithm, typed)

    def make_federation(self, usual: int = AGENTS) -> Federation:
        """The problem; without ``agents`` it has its own number of agents or, if this can be chosen, ``usual``."""
        from fed_ucbvi.environments import find_environment

        name = self.environment or defaults.ENVIRONMENT
        environment, told = find_environment(name), dict(self.environment_options)
        if self.agents is not None or environment.accepts("agents"):
            told["agents"] = usual if self.agents is None else self.agents
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
        return Setting(*self.sizes, agents, self.episodes, self.eps_p or 0.0, self.seed, known, self.random_rewards)


RunSpec.__doc__ = "\n".join(
    [f"{RunSpec.__doc__}", "    Args:"]
    + [
        f"        {one.name}: {(text := one.metadata['flag'].help)[0].lower()}{text[1:]}"
        for one in sorted(fields(RunSpec), key=lambda one: hasattr(FederationRules, one.name))
    ]
)
SIMULATED = (
    *("algorithm", "parameters", "environment", "environment_options", "agents", "eps_p", "env_seed"),
    *("episodes", "seed", "driver"),
)
"""The fields on which the result of a simulation depends; liars aside, which sweeps do not have."""


def field_value(name: str, given: Any) -> Any:
    """The value of a field of :class:`RunSpec` from what was given for it, which may be text; raise if it is none.

    >>> field_value("episodes", "1e4"), field_value("eps_p", 0)
    (10000, 0.0)
    """
    one = RunSpec.__dataclass_fields__[name]
    if given is one.default:
        return given
    if (read := one.metadata["flag"].read) is not None:
        return read(given)
    return converted(name, given, declared(RunSpec)[name])


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
