"""The description of a sweep: grids of runs, from a TOML file or from Python.

>>> sweep = Sweep(
...     name="bonuses",
...     grids=[
...         {
...             "algorithms": ["fed-ucbvi", {"name": "fed-ucbvi", "bonus": "theory", "label": "as in theory"}],
...             "environments": [{"name": "gridworld", "rows": 4}],
...             "eps_p": [0, 0.1],
...             "agents": [5],
...             "episodes": [1e3],
...             "seeds": 2,
...         }
...     ],
... )
>>> [(job.label, job.eps_p, job.seed) for job in sweep.jobs()][:3]
[('fed-ucbvi', 0.0, 0), ('fed-ucbvi', 0.0, 1), ('fed-ucbvi', 0.1, 0)]
"""

from __future__ import annotations

import hashlib
import itertools
import json
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

from fed_ucbvi.algorithms import algorithm_name, as_algorithm, parameters_of
from fed_ucbvi.algorithms.base import Algorithm
from fed_ucbvi.core.errors import InputError, check_positive_integer, check_printable, unknown_name
from fed_ucbvi.core.plugins import check_code
from fed_ucbvi.problem.saving import SUFFIX
from fed_ucbvi.run_spec import canonical_name, complete_options, complete_parameters, field_value
from fed_ucbvi.sweeps.job import Job

ValueT = TypeVar("ValueT")

DEFAULTS: dict[str, Any] = {"eps_p": [0.0], "agents": [20], "seeds": 5, "env_seed": 0, "driver": "auto"}
"""Keys of a grid that may be left out."""
NEEDED = ("algorithms", "environments", "episodes")


@contextmanager
def _at(key: str) -> Iterator[None]:
    """What is wrong is wrong at this key."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{key}: {error}") from error


class Choice(NamedTuple):
    """An algorithm or an environment with options; written as its name alone, or as a table.

    ``label`` is what tables and figures call an algorithm.
    """

    name: str
    options: Mapping[str, Any]
    label: str = ""

    @classmethod
    def of(cls, given: Any, *, labelled: bool) -> Choice:
        """From a name, a table ``{name = ..., option = ...}`` or, in Python, an algorithm or its class."""
        if isinstance(given, Algorithm) or (isinstance(given, type) and issubclass(given, Algorithm)):
            algorithm = as_algorithm(given)
            given = {"name": algorithm_name(algorithm), **parameters_of(algorithm)}
        table = {"name": given} if isinstance(given, str) else given
        if not isinstance(table, Mapping):
            raise InputError("must be a name or a table such as {name = '...', option = ...}.")
        if not isinstance(table.get("name"), str):
            raise InputError("the table must name one: name = '...'.")
        label = (table.get("label") or "") if labelled else ""
        if not isinstance(label, str):
            raise InputError(f"the label must be text in quotes, got {label!r}.")
        own = ("name", "label") if labelled else ("name",)
        return cls(table["name"], {key: value for key, value in table.items() if key not in own}, label)

    def as_table(self) -> dict[str, Any]:
        return {"name": self.name, **({"label": self.label} if self.label else {}), **self.options}


@dataclass(frozen=True)
class SweepGrid:
    """All combinations of the values listed.

    Attributes:
        algorithms: names, or tables ``{name = ..., label = ..., parameter = ...}``.
        environments: names, or tables ``{name = ..., option = ...}``.
        eps_p: heterogeneities.
        agents: numbers of agents.
        episodes: values of T, or a table with one T for each environment by name.
        seeds: the number of seeds, counted from 0, or a list of seeds.
        env_seed: the environments' seed; ``"seed"`` draws each run's environment from the run's own seed.
        driver: how the data are collected.
    """

    algorithms: Sequence[Choice]
    environments: Sequence[Choice]
    eps_p: Sequence[float]
    agents: Sequence[int]
    episodes: Sequence[int] | Mapping[str, int]
    seeds: Sequence[int]
    env_seed: int | Literal["seed"]
    driver: str

    @classmethod
    def of(cls, given: Any, where: str, *, recorded: bool) -> SweepGrid:
        """Read a table; errors name ``where`` and the key.

        If it is ``recorded``, it was stored complete, and what it names need not be installed.
        """
        if not isinstance(given, Mapping):
            raise InputError(f"{where}: must be a table, as [[grid]] begins one, got {given!r}.")
        _check_keys(f"{where}.", given, list(cls.__dataclass_fields__), NEEDED)
        table = {**DEFAULTS, **given}
        if not isinstance(table["seeds"], list | tuple):
            with _at(f"{where}.seeds"):
                table["seeds"] = list(range(check_positive_integer("seeds", table["seeds"])))

        def each(key: str, read: Callable[[Any], ValueT]) -> list[ValueT]:
            return _each(f"{where}.{key}", table[key], read)

        algorithms = each("algorithms", partial(_algorithm, recorded=recorded))
        environments = each("environments", partial(_environment, recorded=recorded))
        lengths, env_seed = table["episodes"], table["env_seed"]
        if isinstance(lengths, Mapping):
            lengths = _lengths(f"{where}.episodes", lengths, {one.name for one in environments})
        else:
            lengths = each("episodes", partial(field_value, "episodes"))
        if env_seed != "seed":
            with _at(f"{where}.env_seed"):
                if isinstance(env_seed, str):
                    raise InputError(f"must be a whole number, or 'seed' for each run's own seed, got '{env_seed}'.")
                env_seed = field_value("env_seed", env_seed)
        with _at(f"{where}.driver"):
            driver = field_value("driver", table["driver"])
        eps_p, agents, seeds = (
            each(key, partial(field_value, name))
            for key, name in (("eps_p", "eps_p"), ("agents", "agents"), ("seeds", "seed"))
        )
        return cls(algorithms, environments, eps_p, agents, lengths, seeds, env_seed, driver)

    def as_table(self) -> dict[str, Any]:
        chosen = {name: [one.as_table() for one in getattr(self, name)] for name in ("algorithms", "environments")}
        return {**asdict(self), **chosen}

    def cases(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """All combinations without the seeds: the keys they come from, and the arguments of a job."""
        for (e, environment), (a, algorithm) in itertools.product(
            enumerate(self.environments), enumerate(self.algorithms)
        ):
            lengths = [self.episodes[environment.name]] if isinstance(self.episodes, Mapping) else self.episodes
            for eps_p, (m, agents), episodes in itertools.product(self.eps_p, enumerate(self.agents), lengths):
                yield (
                    f"agents[{m}] with algorithms[{a}] and environments[{e}]",
                    {
                        "algorithm": algorithm.name,
                        "parameters": algorithm.options,
                        "environment": environment.name,
                        "environment_options": environment.options,
                        "agents": agents,
                        "eps_p": eps_p,
                        "episodes": episodes,
                        "driver": self.driver,
                        "label": algorithm.label,
                    },
                )

    def jobs(self, where: str, *, recorded: bool) -> Iterator[Job]:
        """All runs; if an algorithm rejects a combination, the error names ``where`` and the keys."""
        for key, case in self.cases():
            with _at(f"{where}.{key}"):
                jobs = [
                    Job(**case, seed=seed, env_seed=seed if self.env_seed == "seed" else self.env_seed)
                    for seed in self.seeds
                ]
                if not recorded:
                    jobs = [job.complete() for job in jobs]
                    jobs[0].check_possible()  # seeds make no difference to that
            yield from jobs


def _check_keys(where: str, given: Mapping[str, Any], known: Sequence[str], needed: Sequence[str]) -> None:
    for key in given:
        if key not in known:
            raise InputError(f"{where}{key}: {unknown_name('key', str(key), known)}")
    if missing := [key for key in needed if key not in given]:
        raise InputError(" ".join(f"{where}{key}: is missing; add it." for key in missing))


def _each(key: str, given: Any, read: Callable[[Any], ValueT]) -> list[ValueT]:
    """What a list holds, each read; errors name the key and the place in the list."""
    if not isinstance(given, list | tuple):
        raise InputError(f"{key}: must be a list in square brackets, got {given!r}.")
    if not given:
        raise InputError(f"{key}: is empty; give at least one value.")
    found = []
    for number, one in enumerate(given):
        with _at(f"{key}[{number}]"):
            found.append(read(one))
    return found


def _algorithm(given: Any, *, recorded: bool) -> Choice:
    chosen = Choice.of(given, labelled=True)
    if recorded:
        return chosen
    name = canonical_name(chosen.name)
    return Choice(name, complete_parameters(chosen.name, chosen.options), chosen.label or name)


def _environment(given: Any, *, recorded: bool) -> Choice:
    chosen = Choice.of(given, labelled=False)
    return chosen if recorded else Choice(chosen.name, complete_options(chosen.name, chosen.options))


def _lengths(key: str, given: Mapping[str, Any], names: set[str]) -> dict[str, int]:
    for name in sorted(given.keys() ^ names):
        remedy = f"give {name} a value" if name in names else f"remove {name}, or add it to environments"
        raise InputError(f"{key}: the table must name every environment of the grid and no other; {remedy}.")
    found = {}
    for name, length in given.items():
        with _at(f"{key}.{name}"):
            found[name] = field_value("episodes", length)
    return found


class Sweep:
    """A name and grids of runs; everything is checked when the sweep is made.

    Attributes:
        name: what the sweep is called.
        grids: see :class:`SweepGrid`; in a TOML file each is a table ``[[grid]]``.
    """

    def __init__(self, **content: Any) -> None:
        self._fill(content, recorded=False)

    @classmethod
    def recorded(cls, content: Mapping[str, Any]) -> Sweep:
        """A sweep from its stored :meth:`content`; what it names need not be installed."""
        sweep = cls.__new__(cls)
        sweep._fill(content, recorded=True)
        return sweep

    def _fill(self, content: Mapping[str, Any], *, recorded: bool) -> None:
        _check_texts("", content)
        given = {"grid" if key == "grids" else key: value for key, value in content.items()}
        _check_keys("", given, ("name", "grid"), needed=("name", "grid"))
        name, grids = given["name"], given["grid"]
        if not isinstance(name, str):
            raise InputError(f"name: must be text in quotes, got {name!r}.")
        if not isinstance(grids, list | tuple):
            raise InputError("grid: must be a list of tables; begin each with [[grid]].")
        for key, value in (("name", name), ("grid", grids)):
            if not value:
                raise InputError(f"{key}: is empty; give at least one value.")
        self.name: str = name
        self.grids = [SweepGrid.of(one, f"grid[{n}]", recorded=recorded) for n, one in enumerate(grids)]
        jobs = (job for n, grid in enumerate(self.grids) for job in grid.jobs(f"grid[{n}]", recorded=recorded))
        self._jobs = tuple(dict.fromkeys(jobs))

    @classmethod
    def from_toml(cls, path: str | Path, *, code: Collection[str] = ()) -> Sweep:
        """Read a sweep from a TOML file; errors name the file, the key and what to do.

        Args:
            path: the file.
            code: what the file may name beside registered algorithms and environments: ``module:attribute``.
        """
        try:
            content = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise InputError(f"{path} is not a TOML file: {error}.") from error
        except OSError as error:
            raise InputError(f"{path} cannot be read: {error.strerror}.") from error
        try:
            for kind, name in _names(content):
                if name not in code:
                    check_code(kind, name)
            return cls(**content)
        except InputError as error:
            raise InputError(f"{path}: {error}") from error

    def jobs(self) -> tuple[Job, ...]:
        """All runs: grid by grid, in the order environment, algorithm, eps_p, agents, episodes, seed.

        A run that several grids contain appears once, in the first of them.
        """
        return self._jobs

    def content(self) -> dict[str, Any]:
        """The sweep with all defaults filled in, ready for JSON; ``Sweep(**content)`` gives it back."""
        return {"name": self.name, "grid": [grid.as_table() for grid in self.grids]}

    @property
    def digest(self) -> str:
        """The SHA-256 of the name and of the runs, in order, with their labels."""
        text = json.dumps([self.name, [[job.id, job.label] for job in self.jobs()]])
        return hashlib.sha256(text.encode()).hexdigest()


def _names(content: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What a file names that may be code: algorithms, environments and Gymnasium ids."""
    grids = content.get("grid", ())
    for grid in grids if isinstance(grids, list) else ():
        for kind in ("algorithm", "environment"):
            chosen = grid.get(f"{kind}s", ()) if isinstance(grid, Mapping) else ()
            for one in chosen if isinstance(chosen, list) else ():
                named = one if isinstance(one, Mapping) else {"name": one}
                yield from ((kind, str(named[key])) for key in ("name", "id") if not _is_file(named.get(key)))


def _is_file(name: object) -> bool:
    return not isinstance(name, str) or name.endswith(SUFFIX)


def _check_texts(key: str, value: object) -> None:
    """Raise if a text anywhere in a sweep holds control characters."""
    if isinstance(value, str):
        check_printable(key or "a key", value)
    elif isinstance(value, Mapping):
        for name, part in value.items():
            _check_texts(key, str(name))
            _check_texts(f"{key}.{name}".removeprefix("."), part)
    elif isinstance(value, (list, tuple)):
        for number, part in enumerate(value):
            _check_texts(f"{key}[{number}]", part)
