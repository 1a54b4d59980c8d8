"""One run of a sweep, described in full before it is made."""

from __future__ import annotations

import hashlib
import inspect
import json
import typing
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

from fed_ucbvi.algorithms import ALGORITHMS, make_algorithm, parameters_of
from fed_ucbvi.algorithms.base import Setting
from fed_ucbvi.drivers import DRIVERS
from fed_ucbvi.environments import ENVIRONMENTS, make_environment
from fed_ucbvi.errors import InputError, check_choice, check_integer, check_positive_integer
from fed_ucbvi.problem.federation import check_eps_p
from fed_ucbvi.sampling.distributions import MAX_COUNT
from fed_ucbvi.sampling.philox import MAX_SEED

if TYPE_CHECKING:
    from fed_ucbvi.problem.federation import Federation
    from fed_ucbvi.results.run import Run

MEANING = 1
"""Part of every id; raised when the same parameters come to give another result."""
ID_LENGTH = 16
OF_THE_JOB = {"agents": "agents", "eps_p": "eps_p", "seed": "env_seed"}
"""Arguments of every environment that are not options of it, and how a job calls them."""


@dataclass(frozen=True, eq=False)
class Job:
    """One run: what :func:`~fed_ucbvi.simulation.run` needs, as plain values.

    Parameters and options are completed with their defaults, and numbers take their proper types, so that two ways
    of writing the same run are equal and have the same :attr:`id`. Parameters that cannot be used are refused.

    Args:
        algorithm: its name.
        parameters: of the algorithm.
        environment: its name.
        environment_options: of the environment, besides agents, eps_p and seed.
        agents: M.
        eps_p: weight of the individual kernels.
        env_seed: the environment's seed.
        episodes: T.
        seed: the run's seed.
        driver: who collects the data.
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
            "parameters": complete_parameters(self.algorithm, self.parameters),
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
        check_choice("driver", self.driver, DRIVERS)
        if self.agents * self.episodes > MAX_COUNT:
            raise InputError(f"agents x episodes must be at most 2^53, got {self.agents} x {self.episodes}.")

    def content(self) -> dict[str, Any]:
        """The job as plain values, ready for JSON; ``Job(**content)`` gives it back."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @cached_property
    def id(self) -> str:
        """The leading hexadecimal digits of the SHA-256 of everything but the label."""
        content = {name: value for name, value in self.content().items() if name != "label"}
        text = json.dumps({"meaning": MEANING, **content}, sort_keys=True, allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()[:ID_LENGTH]

    def run(self) -> Run:
        """Make the run, without cautions and without a progress bar; cautions are on record in the result."""
        from fed_ucbvi.simulation import Caution, run

        federation = make_environment(
            self.environment,
            agents=self.agents,
            eps_p=self.eps_p,
            seed=self.env_seed,
            **self.environment_options,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Caution)
            return run(
                make_algorithm(self.algorithm, self.parameters),
                federation,
                self.episodes,
                seed=self.seed,
                driver=self.driver,
                progress=False,
            )

    def check_possible(self) -> None:
        """Raise if the algorithm refuses the setting, before anything runs."""
        algorithm = make_algorithm(self.algorithm, self.parameters)
        if algorithm.single_agent and self.agents != 1:
            raise InputError(
                f"{self.algorithm} is a single-agent algorithm, but agents is {self.agents}; "
                "give it a grid of its own with agents = [1]."
            )
        small = _smallest(self.environment, _text(self.environment_options))
        sizes = (small.states, small.actions, small.horizon)
        algorithm.new_server(Setting(*sizes, self.agents, self.episodes, self.eps_p, self.seed))

    def made(self, run: Run) -> bool:
        """Whether ``run`` is the run this job describes."""
        about = run.about
        described = {"name": self.environment, "seed": self.env_seed, **self.environment_options}
        return (
            (about.algorithm, about.driver) == (self.algorithm, self.driver)
            and (about.agents, about.eps_p, about.episodes) == (self.agents, self.eps_p, self.episodes)
            and about.seed == self.seed
            and dict(about.parameters) == self.parameters
            and all(about.environment.get(name, value) == value for name, value in described.items())
        )

    def __eq__(self, other: object) -> bool:
        return self.id == other.id if isinstance(other, Job) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.id)


def complete_parameters(algorithm: str, given: Mapping[str, object]) -> dict[str, Any]:
    """All parameters of ``algorithm``, checked, numbers in the type the field is declared with.

    >>> complete_parameters("fed-ucbvi", {"nu": 100})["nu"]
    100.0
    """
    check_choice("algorithm", algorithm, ALGORITHMS)
    hints = _types(algorithm)
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
def _types(algorithm: str) -> dict[str, Any]:
    return typing.get_type_hints(ALGORITHMS[algorithm])


def complete_options(environment: str, given: Mapping[str, object]) -> dict[str, Any]:
    """All options of ``environment``, checked, as its description states them.

    >>> complete_options("gridworld", {"rows": 3.0})["walls"]
    [[1, 1]]
    """
    check_choice("environment", environment, ENVIRONMENTS)
    for name, field_of_job in OF_THE_JOB.items():
        if name in given:
            raise InputError(f"{name} is no option of an environment here; give it as {field_of_job}.")
    described = _smallest(environment, _text(given)).description
    defaults = {
        name: parameter.default
        for name, parameter in inspect.signature(ENVIRONMENTS[environment]).parameters.items()
        if name not in OF_THE_JOB
    }
    return {name: described.get(name, given.get(name, default)) for name, default in defaults.items()}


def _text(options: Mapping[str, object]) -> str:
    try:
        return json.dumps(dict(options), sort_keys=True, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InputError(f"options must be plain, finite values: {error}.") from error


@lru_cache(maxsize=256)
def _smallest(environment: str, options: str) -> Federation:
    """The environment with one agent: to see whether its options can be used, and its sizes."""
    try:
        return make_environment(environment, agents=1, eps_p=0.0, seed=0, **json.loads(options))
    except InputError:
        raise
    except (ValueError, OverflowError, MemoryError) as error:
        raise InputError(f"{environment}: {error}.") from error
