"""One run of a sweep, described in full before it is made."""

from __future__ import annotations

import hashlib
import json
import typing
import warnings
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fed_ucbvi.algorithms import algorithm_name, class_of, make_algorithm, parameters_of
from fed_ucbvi.algorithms.base import Setting
from fed_ucbvi.core.errors import InputError, check_choice, check_integer, check_positive_integer
from fed_ucbvi.core.plugins import is_attribute
from fed_ucbvi.core.sampling.distributions import MAX_COUNT
from fed_ucbvi.core.sampling.philox import MAX_SEED
from fed_ucbvi.engine.drivers import NAMES
from fed_ucbvi.environments import (
    ENVIRONMENTS,
    Environment,
    current_name,
    find_environment,
    make_environment,
    name_in_ids,
)
from fed_ucbvi.problem.federation import BERNOULLI_REWARDS, check_eps_p
from fed_ucbvi.problem.saving import SUFFIX
from fed_ucbvi.results.style import label_of

if TYPE_CHECKING:
    from fed_ucbvi.results.run import Run

ID_VERSION = 1
"""Part of every id; increased when a new version gives another result for the same parameters."""
ID_LENGTH = 16
OF_THE_JOB = {"agents": "agents", "eps_p": "eps_p", "seed": "env_seed"}
"""Arguments of every environment that are not its options, with their names in a job."""


@dataclass(frozen=True, eq=False)
class Job:
    """One run: what :func:`~fed_ucbvi.engine.running.run` needs, as plain values.

    Parameters and options are completed with their defaults, and numbers take their proper types, so that two ways
    of writing the same run are equal and have the same :attr:`id`. Parameters that cannot be used are an error.

    Args:
        algorithm: its name, or ``module:attribute``; the same class is always called the same.
        parameters: of the algorithm.
        environment: its name, ``module:attribute`` or a file; see :func:`~fed_ucbvi.environments.find_environment`.
        environment_options: of the environment, besides agents, eps_p and seed.
        agents: M.
        eps_p: the weight of the individual kernels, passed to the environment. Where agents differ in another way it
            is 0 here, and the eps_p of the run is computed.
        env_seed: the environment's seed.
        episodes: T.
        seed: the run's seed.
        driver: how the data are collected.
        label: what to call the algorithm in tables and figures; no part of the id. By default its name.

    >>> job = Job("fed-ucbvi", {}, "synthetic", {"states": 3}, 4, 0.1, 0, 1e3, 7)
    >>> job == Job("fed-ucbvi", {"bonus": "practical"}, "synthetic", {"states": 3.0}, 4, 0.1, 0, 1000, 7)
    True
    >>> job.run().episodes_played
    1000
    """

    algorithm: str
    parameters: Mapping[str, Any]
    environment: str
    environment_options: Mapping[str, Any]
    agents: int
    eps_p: float
    env_seed: int
    episodes: int
    seed: int
    driver: str = "auto"
    label: str = ""

    def __post_init__(self) -> None:
        plain = {
            "algorithm": canonical_name(self.algorithm),
            "parameters": complete_parameters(self.algorithm, self.parameters),
            "environment": current_name(self.environment),
            "environment_options": complete_options(self.environment, self.environment_options),
            "agents": check_positive_integer("agents", self.agents),
            "eps_p": check_eps_p(self.eps_p),
            "env_seed": check_integer("env_seed", self.env_seed),
            "episodes": check_positive_integer("episodes", self.episodes, at_most=MAX_COUNT),
            "seed": check_integer("seed", self.seed, at_most=MAX_SEED),
            "label": self.label or self.algorithm,
        }
        for name, value in plain.items():
            object.__setattr__(self, name, value)
        check_choice("driver", self.driver, NAMES)
        if self.agents * self.episodes > MAX_COUNT:
            raise InputError(f"agents x episodes must be at most 2^53, got {self.agents} x {self.episodes}.")
        _environment(self.environment).given(**self._told)

    @classmethod
    def recorded(cls, content: Mapping[str, Any]) -> Job:
        """A job from its stored content, which is complete; the algorithm and environment need not be installed."""
        job = object.__new__(cls)
        for field in fields(cls):
            object.__setattr__(job, field.name, content[field.name])
        object.__setattr__(job, "environment", current_name(job.environment))
        return job

    @property
    def _told(self) -> dict[str, Any]:
        """The parameters that are passed to the environment."""
        return {"agents": self.agents, "eps_p": self.eps_p, "seed": self.env_seed, **self.environment_options}

    @property
    def settings(self) -> dict[str, Any]:
        """Everything but seeds and driver, as :func:`~fed_ucbvi.results.settings.settings_of` has it of the run."""
        labels = {"label": label_of(self.label), "environment_label": label_of(self.environment)}
        options = {f"environment.{name}": value for name, value in self.environment_options.items()}
        return {
            **{name: getattr(self, name) for name in ("algorithm", "environment", "agents", "episodes", "eps_p")},
            **labels,
            **options,
            **{f"algorithm.{name}": value for name, value in self.parameters.items()},
        }

    def content(self) -> dict[str, Any]:
        """The job as plain values, ready for JSON; ``Job(**content)`` gives it back."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @cached_property
    def id(self) -> str:
        """The leading hexadecimal digits of the SHA-256 of everything but the label."""
        content = {name: value for name, value in self.content().items() if name != "label"}
        content["environment"] = name_in_ids(self.environment)
        text = json.dumps({"meaning": ID_VERSION, **content}, sort_keys=True, allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()[:ID_LENGTH]

    def run(self) -> Run:
        """Make the run without warnings and without a progress bar; the result contains the warnings."""
        from fed_ucbvi.engine.running import run
        from fed_ucbvi.engine.simulation import Caution

        federation = make_environment(self.environment, **self._told)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Caution)
            made = run(
                make_algorithm(self.algorithm, self.parameters),
                federation,
                self.episodes,
                seed=self.seed,
                driver=self.driver,
                progress=False,
            )
        return replace(made, about=replace(made.about, algorithm=self.algorithm))

    def check_possible(self) -> None:
        """Raise if the algorithm refuses the setting, before anything runs."""
        algorithm = make_algorithm(self.algorithm, self.parameters)
        try:
            algorithm.check_agents(self.agents)
        except InputError as error:
            raise InputError(f"{error} In a sweep, give it a grid of its own with agents = [1].") from error
        sizes = (
            _sizes(self.environment, _text(self._told))
            if is_own(self.environment)
            else _smallest(self.environment, _text(self.environment_options))[0]
        )
        algorithm.new_server(Setting(*sizes, self.agents, self.episodes, self.eps_p, self.seed))

    def made(self, run: Run) -> bool:
        """Whether ``run`` is the run this job describes.

        Environments are compared by the parameters they were given, because the eps_p of a run may be computed.
        """
        about = run.about
        environment = {**about.environment, "name": current_name(str(about.environment.get("name", "custom")))}
        described = {"name": self.environment, **self._told}
        random = about.environment.get(BERNOULLI_REWARDS)  # left out where nobody asked for it
        return (
            (about.algorithm, about.driver) == (self.algorithm, self.driver)
            and (about.agents, about.episodes, about.seed) == (self.agents, self.episodes, self.seed)
            and dict(about.parameters) == self.parameters
            and all(environment.get(name, value) == value for name, value in described.items())
            and self.environment_options.get(BERNOULLI_REWARDS, random) == random
        )

    def __eq__(self, other: object) -> bool:
        return self.id == other.id if isinstance(other, Job) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.id)


def is_own(environment: str) -> bool:
    """Whether an environment is the user's code or file, and not a registered name."""
    return is_attribute(environment) or environment.endswith(SUFFIX)


def canonical_name(algorithm: str) -> str:
    """The recorded name of an algorithm that has several names, or ``algorithm`` if that would not find the class.

    >>> canonical_name("fed_ucbvi:FedUCBVI")
    'fed-ucbvi'
    """
    kind = class_of(algorithm)
    name = algorithm_name(kind)
    try:
        return name if class_of(name) is kind else algorithm
    except InputError:
        return algorithm


def complete_parameters(algorithm: str, given: Mapping[str, object]) -> dict[str, Any]:
    """All parameters of ``algorithm``, checked, numbers in the type the field is declared with.

    >>> complete_parameters("fed-ucbvi", {"nu": 100})["nu"]
    100.0
    """
    hints = _types(class_of(algorithm))  # type: ignore[arg-type]
    typed = {}
    for name, value in given.items():
        kinds = typing.get_args(hints.get(name)) or (hints.get(name),)
        if bool in kinds and not isinstance(value, bool):
            raise InputError(f"{name} must be true or false, got {value!r}.")
        if int in kinds and isinstance(value, float) and value.is_integer():
            value = int(value)
        elif float in kinds and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        typed[name] = value
    return parameters_of(make_algorithm(algorithm, typed))


@lru_cache
def _types(algorithm: Hashable) -> dict[str, Any]:
    return typing.get_type_hints(algorithm)


def complete_options(environment: str, given: Mapping[str, object]) -> dict[str, Any]:
    """All options of ``environment``, checked, as its description states them.

    >>> complete_options("gridworld", {"rows": 3.0})["walls"]
    [[1, 1]]
    """
    found = _environment(environment)
    for name, field_of_job in OF_THE_JOB.items():
        if name in given:
            raise InputError(f"{name} is no option of an environment here; give it as {field_of_job}.")
    options = {**found.defaults(), **given}
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
    """What a name stands for, cached: files are read, and functions inspected, once for all jobs of a sweep."""
    if name.endswith(SUFFIX) and Path(name).is_file():
        status = Path(name).stat()
        return _found(name, (status.st_mtime_ns, status.st_size))
    return _found(name, ENVIRONMENTS[name]) if name in ENVIRONMENTS else find_environment(name)


@lru_cache(maxsize=32)
def _found(name: str, _as_it_is: Hashable) -> Environment:
    return find_environment(name)


Sizes = tuple[int, int, int]


@lru_cache(maxsize=256)
def _smallest(environment: str, options: str) -> tuple[Sizes, Mapping[str, Any]]:
    """Sizes and description of the environment with one agent, to check whether its options can be used.

    Where options list something for each agent there are as many agents as the list is long.
    """
    given = json.loads(options)
    listed = given.get("kwargs")
    agents = len(listed) if isinstance(listed, list) else 1
    return _made(environment, {"agents": agents, "eps_p": 0.0, "seed": 0, **given})


@lru_cache(maxsize=256)
def _sizes(environment: str, told: str) -> Sizes:
    """Sizes of a user's environment, with the parameters of a job."""
    return _made(environment, json.loads(told))[0]


def _made(environment: str, told: Mapping[str, Any]) -> tuple[Sizes, Mapping[str, Any]]:
    try:
        made = make_environment(environment, **told)
    except InputError:
        raise
    except (ValueError, OverflowError, MemoryError) as error:
        raise InputError(f"{environment}: {error}.") from error
    return (made.states, made.actions, made.horizon), made.description
