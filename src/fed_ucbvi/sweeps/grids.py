"""One grid of a sweep: the values to combine, read and checked once, and the runs that they make."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from fed_ucbvi.algorithms import algorithm_name, as_algorithm, parameters_of
from fed_ucbvi.algorithms.base import Algorithm, Setting, check_agents
from fed_ucbvi.algorithms.state_memory import check_server_memory
from fed_ucbvi.core.errors import InputError, check_positive_integer, unknown_name
from fed_ucbvi.core.limits import check_total_episodes
from fed_ucbvi.core.memory import check_memory
from fed_ucbvi.environments import Environment, find_environment
from fed_ucbvi.specifications.algorithm import AlgorithmSpec, recorded_name
from fed_ucbvi.specifications.problem import (
    DescribedEnvironment,
    ProblemSpec,
    describe_environment,
    make_described,
)
from fed_ucbvi.specifications.run import RunOptions, check_named_code
from fed_ucbvi.specifications.texts import read_field, read_parameters
from fed_ucbvi.sweeps.job import Job

ValueT = TypeVar("ValueT")

BYTES_PER_RUN = 4000
"""Memory for the description of a run."""
FEWER = "Use fewer seeds, or several sweeps."
NEEDED = ("algorithms", "environments", "episodes")
DEFAULTS: dict[str, Any] = {
    "eps_p": [0.0],
    "agents": [20],
    "seeds": 5,
    "env_seed": 0,
    "driver": "auto",
}
"""Keys of a grid that may be left out."""
OWN_SEED = "seed"
"""Value of ``env_seed`` that draws each run's environment from the run's own seed."""


@dataclass(frozen=True)
class NamedEnvironment:
    """An environment of a grid, under the name by which the grid gives it."""

    given_name: str
    described: DescribedEnvironment

    def content(self) -> dict[str, Any]:
        return {"name": self.given_name, **self.described.options}


@dataclass(frozen=True)
class Cell:
    """One combination of a grid's values, of which there is a run for each seed.

    Args:
        problem: the problem; its ``env_seed`` is 0 if each run's environment is drawn from the run's own seed.
        described: the environment of the problem.
    """

    problem: ProblemSpec
    algorithm: AlgorithmSpec
    episodes: int
    described: DescribedEnvironment


@dataclass(frozen=True)
class Grid:
    """The values that a grid combines, with all defaults filled in.

    Args:
        episodes: numbers of episodes, or one number for each environment by name.
        env_seed: the environments' seed, or :data:`OWN_SEED`.
        recorded: True for the grid of a stored sweep, which may name what is not installed.
    """

    algorithms: list[AlgorithmSpec]
    environments: list[NamedEnvironment]
    eps_p: list[float]
    agents: list[int]
    episodes: list[int] | dict[str, int]
    seeds: list[int]
    env_seed: int | str
    driver: str
    recorded: bool

    @property
    def runs(self) -> int:
        """Number of runs."""
        lengths = 1 if isinstance(self.episodes, dict) else len(self.episodes)
        others = (self.environments, self.algorithms, self.eps_p, self.agents, self.seeds)
        return lengths * math.prod(len(values) for values in others)

    def content(self) -> dict[str, Any]:
        """The grid as a table, ready for JSON."""
        return {
            "eps_p": self.eps_p,
            "agents": self.agents,
            "seeds": self.seeds,
            "env_seed": self.env_seed,
            "driver": self.driver,
            "algorithms": [{"name": one.name, "label": one.label, **one.parameters} for one in self.algorithms],
            "environments": [one.content() for one in self.environments],
            "episodes": self.episodes,
        }

    def jobs(self, where: str) -> Iterator[Job]:
        """All runs, in the order environment, algorithm, eps_p, agents, episodes, seed.

        If an algorithm or an environment rejects a combination, the error names ``where`` and the keys.
        """
        made = [] if self.recorded else [algorithm.make() for algorithm in self.algorithms]
        for e, environment in enumerate(self.environments):
            found = None if self.recorded else find_environment(environment.described.name)
            for a, algorithm in enumerate(self.algorithms):
                others = f"algorithms[{a}] and environments[{e}]"
                for eps_p in self.eps_p:
                    for m, agents in enumerate(self.agents):
                        for episodes in self._lengths_of(environment):
                            with at_key(f"{where}.agents[{m}] with {others}"):
                                cell = self._cell(environment, algorithm, eps_p, agents, episodes)
                                if found is not None:
                                    check_cell(cell, found, made[a])
                            yield from self._jobs_of(cell)

    def _lengths_of(self, environment: NamedEnvironment) -> list[int]:
        if isinstance(self.episodes, dict):
            return [self.episodes[environment.given_name]]
        return self.episodes

    def _cell(
        self,
        environment: NamedEnvironment,
        algorithm: AlgorithmSpec,
        eps_p: float,
        agents: int,
        episodes: int,
    ) -> Cell:
        described = environment.described
        problem = ProblemSpec(
            environment=described.name,
            environment_options=described.options,
            agents=agents,
            eps_p=eps_p,
            env_seed=0 if isinstance(self.env_seed, str) else self.env_seed,
        )
        return Cell(problem=problem, algorithm=algorithm, episodes=episodes, described=described)

    def _jobs_of(self, cell: Cell) -> Iterator[Job]:
        for seed in self.seeds:
            problem = cell.problem
            if self.env_seed == OWN_SEED:
                problem = replace(problem, env_seed=seed)
            yield Job(
                problem=problem,
                algorithm=cell.algorithm,
                episodes=cell.episodes,
                seed=seed,
                driver=self.driver,
            )


def check_cell(cell: Cell, environment: Environment, algorithm: Algorithm[Any, Any]) -> None:
    """Raise if the environment or the algorithm refuses a combination, before anything runs.

    The seeds make no difference to that, so it is done once for all runs of a cell.
    """
    problem = cell.problem
    agents = problem.agents or 1
    parameters = problem.environment_parameters
    check_total_episodes(agents, cell.episodes)
    environment.given(**parameters)
    try:
        check_agents(algorithm, agents)
    except InputError as error:
        raise InputError(f"{error} In a sweep, give it a grid of its own with agents = [1].") from error
    sizes = cell.described.sizes
    if sizes is None:
        sizes = make_described(cell.described.name, parameters).sizes
    S, A, H = sizes
    setting = Setting(
        states=S,
        actions=A,
        horizon=H,
        agents=agents,
        episodes=cell.episodes,
        eps_p=problem.eps_p or 0.0,
        seed=0,
    )
    check_server_memory(algorithm, setting)
    algorithm.new_server(setting)


# ------------------------------------------------------------------------------------------------- reading a grid


@contextmanager
def at_key(key: str) -> Iterator[None]:
    """Name the key in errors of the block."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{key}: {error}") from error


def check_keys(where: str, given: Mapping[str, Any], known: Sequence[str], needed: Sequence[str]) -> None:
    """Raise if a table has an unknown key, or lacks one that is needed."""
    for key in given:
        if key not in known:
            raise InputError(f"{where}{key}: {unknown_name('key', str(key), known)}")
    missing = [key for key in needed if key not in given]
    if missing:
        raise InputError(" ".join(f"{where}{key}: is missing; add it." for key in missing))


def read_grid(
    given: Any,
    where: str,
    *,
    recorded: bool = False,
    code: Collection[str] | None = None,
) -> Grid:
    """Read a grid; errors name ``where`` and the key.

    Args:
        given: the table.
        where: the grid's place in the sweep.
        recorded: True for the grid of a stored sweep, whose names are not looked up.
        code: code of the user's that the grid may name; None if the user wrote the grid in Python.
    """
    if not isinstance(given, Mapping):
        raise InputError(f"{where}: must be a table, as [[grid]] begins one, got {given!r}.")
    check_keys(f"{where}.", given, [*NEEDED, *DEFAULTS], NEEDED)
    table: dict[str, Any] = {**DEFAULTS, **given}
    environments = _each(
        f"{where}.environments",
        table["environments"],
        partial(_read_environment, recorded=recorded, code=code),
    )
    algorithms = _each(
        f"{where}.algorithms",
        table["algorithms"],
        partial(_read_algorithm, recorded=recorded, code=code),
    )
    return Grid(
        algorithms=algorithms,
        environments=environments,
        eps_p=_numbers(f"{where}.eps_p", table["eps_p"], ProblemSpec, "eps_p"),
        agents=_numbers(f"{where}.agents", table["agents"], ProblemSpec, "agents"),
        episodes=_read_episodes(f"{where}.episodes", table["episodes"], environments),
        seeds=_read_seeds(f"{where}.seeds", table["seeds"]),
        env_seed=_read_env_seed(f"{where}.env_seed", table["env_seed"]),
        driver=_read_driver(f"{where}.driver", table["driver"]),
        recorded=recorded,
    )


def _each(key: str, given: Any, read: Callable[[Any], ValueT]) -> list[ValueT]:
    """The values of a list, each read; errors name the key and the place in the list."""
    if not isinstance(given, list | tuple):
        raise InputError(f"{key}: must be a list in square brackets, got {given!r}.")
    if not given:
        raise InputError(f"{key}: is empty; give at least one value.")
    found = []
    for number, one in enumerate(given):
        with at_key(f"{key}[{number}]"):
            found.append(read(one))
    return found


def _numbers(key: str, given: Any, kind: Any, field: str) -> list[Any]:
    """Values of a field of a specification; a single number, or its text, stands for a list of one."""
    listed = [given] if isinstance(given, int | float | str) else given
    return _each(key, listed, partial(read_field, kind, field))


def _read_episodes(key: str, given: Any, environments: list[NamedEnvironment]) -> list[int] | dict[str, int]:
    if not isinstance(given, Mapping):
        return _numbers(key, given, RunOptions, "episodes")
    names = {one.given_name for one in environments}
    for name in sorted(given.keys() ^ names):
        remedy = f"give {name} a value" if name in names else f"remove {name}, or add it to environments"
        raise InputError(f"{key}: the table must name every environment of the grid and no other; {remedy}.")
    found = {}
    for name, length in given.items():
        with at_key(f"{key}.{name}"):
            found[name] = read_field(RunOptions, "episodes", length)
    return found


def _read_seeds(key: str, given: Any) -> list[int]:
    """Seeds: a list of them, or their number, counted from 0."""
    if isinstance(given, list | tuple):
        return _each(key, given, partial(read_field, RunOptions, "seed"))
    with at_key(key):
        number = check_positive_integer("seeds", given)
        check_memory(f"A sweep of {number:,} seeds", BYTES_PER_RUN * number, FEWER)
    return list(range(number))


def _read_env_seed(key: str, given: Any) -> int | str:
    if given == OWN_SEED:
        return OWN_SEED
    with at_key(key):
        if isinstance(given, str):
            raise InputError(f"must be a whole number, or 'seed' for each run's own, got '{given}'.")
        seed: int = read_field(ProblemSpec, "env_seed", given)
        return seed


def _read_driver(key: str, given: Any) -> str:
    with at_key(key):
        driver: str = read_field(RunOptions, "driver", given)
        return driver


def _read_algorithm(given: Any, *, recorded: bool, code: Collection[str] | None) -> AlgorithmSpec:
    if isinstance(given, Algorithm) or (isinstance(given, type) and issubclass(given, Algorithm)):
        algorithm = as_algorithm(given)
        given = {"name": algorithm_name(algorithm), **parameters_of(algorithm)}
    name, parameters = _named(given)
    if code is not None:
        check_named_code({"algorithm": name}, code)
    label = parameters.pop("label", None) or ""
    if not isinstance(label, str):
        raise InputError(f"the label must be text in quotes, got {label!r}.")
    if recorded:
        return AlgorithmSpec(name=name, parameters=parameters, label=label or name)
    spec = AlgorithmSpec(name=name, parameters=read_parameters(name, parameters)).complete()
    return replace(spec, label=label or recorded_name(name))


def _read_environment(given: Any, *, recorded: bool, code: Collection[str] | None) -> NamedEnvironment:
    name, options = _named(given)
    if code is not None:
        check_named_code({"environment": name, "environment_options": options}, code)
    if recorded:
        return NamedEnvironment(name, DescribedEnvironment(name, options, None))
    return NamedEnvironment(name, describe_environment(name, options))


def _named(given: Any) -> tuple[str, dict[str, Any]]:
    """The name in a name or a table, and the other entries of the table."""
    table = {"name": given} if isinstance(given, str) else given
    if not isinstance(table, Mapping):
        raise InputError("must be a name or a table such as {name = '...', option = ...}.")
    if not isinstance(table.get("name"), str):
        raise InputError("the table must name one: name = '...'.")
    others = {key: value for key, value in table.items() if key != "name"}
    return table["name"], others
