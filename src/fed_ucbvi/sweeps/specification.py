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
import json
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Literal, TypeVar

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


@dataclass(frozen=True)
class SweepGrid:
    """All combinations of the values listed.

    Attributes:
        algorithms: names, or tables ``{name = ..., label = ..., parameter = ...}``, in Python also algorithms and
            their classes; the label is what tables and figures call it.
        environments: names, or tables ``{name = ..., option = ...}``.
        eps_p: heterogeneities.
        agents: numbers of agents.
        episodes: values of T, or a table with one T for each environment by name.
        seeds: the number of seeds, counted from 0, or a list of seeds.
        env_seed: the environments' seed; ``"seed"`` draws each run's environment from the run's own seed.
        driver: how the data are collected.
    """

    algorithms: Sequence[dict[str, Any]]
    environments: Sequence[dict[str, Any]]
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
        values: dict[str, Any] = {**DEFAULTS, **given}
        if not isinstance(values["seeds"], list | tuple):
            with _at(f"{where}.seeds"):
                values["seeds"] = list(range(check_positive_integer("seeds", values["seeds"])))
        readers: dict[str, Callable[[Any], Any]] = {
            "algorithms": partial(_algorithm, recorded=recorded),
            "environments": partial(_environment, recorded=recorded),
            "seeds": partial(field_value, "seed"),
            **{key: partial(field_value, key) for key in ("eps_p", "agents", "episodes")},
        }
        for key, read in readers.items():
            if key == "episodes" and isinstance(values[key], Mapping):
                names = {one["name"] for one in values["environments"]}
                values[key] = _lengths(f"{where}.{key}", values[key], names)
            else:
                values[key] = _each(f"{where}.{key}", values[key], read)
        with _at(f"{where}.env_seed"):
            if isinstance(values["env_seed"], str) and values["env_seed"] != "seed":
                raise InputError(f"must be a whole number, or 'seed' for each run's own, got '{values['env_seed']}'.")
            if values["env_seed"] != "seed":
                values["env_seed"] = field_value("env_seed", values["env_seed"])
        with _at(f"{where}.driver"):
            values["driver"] = field_value("driver", values["driver"])
        return cls(**values)

    def jobs(self, where: str, *, recorded: bool) -> Iterator[Job]:
        """All runs; if an algorithm rejects a combination, the error names ``where`` and the keys."""
        for (e, environment), (a, algorithm) in product(enumerate(self.environments), enumerate(self.algorithms)):
            name, lengths = environment["name"], self.episodes
            case = {
                "algorithm": algorithm["name"],
                "label": algorithm["label"],
                "parameters": _without(algorithm, "name", "label"),
                "environment": name,
                "environment_options": _without(environment, "name"),
                "driver": self.driver,
            }
            each = product(
                self.eps_p, enumerate(self.agents), [lengths[name]] if isinstance(lengths, Mapping) else lengths
            )
            for eps_p, (m, agents), episodes in each:
                case |= {"eps_p": eps_p, "agents": agents, "episodes": episodes}
                with _at(f"{where}.agents[{m}] with algorithms[{a}] and environments[{e}]"):
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


def _table(given: Any) -> dict[str, Any]:
    """A name, a table, or an algorithm or its class, as a table."""
    if isinstance(given, Algorithm) or (isinstance(given, type) and issubclass(given, Algorithm)):
        algorithm = as_algorithm(given)
        given = {"name": algorithm_name(algorithm), **parameters_of(algorithm)}
    table = {"name": given} if isinstance(given, str) else given
    if not isinstance(table, Mapping):
        raise InputError("must be a name or a table such as {name = '...', option = ...}.")
    if not isinstance(table.get("name"), str):
        raise InputError("the table must name one: name = '...'.")
    return dict(table)


def _without(table: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in table.items() if key not in keys}


def _algorithm(given: Any, *, recorded: bool) -> dict[str, Any]:
    table = _table(given)
    label = table.get("label") or ""
    if not isinstance(label, str):
        raise InputError(f"the label must be text in quotes, got {label!r}.")
    name, parameters = table["name"], _without(table, "name", "label")
    if not recorded:
        parameters, name = complete_parameters(name, parameters), canonical_name(name)
    return {"name": name, "label": label or name, **parameters}


def _environment(given: Any, *, recorded: bool) -> dict[str, Any]:
    table = _table(given)
    return table if recorded else {"name": table["name"], **complete_options(table["name"], _without(table, "name"))}


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

    def __init__(self, recorded: bool = False, /, **content: Any) -> None:
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
    def recorded(cls, content: Mapping[str, Any]) -> Sweep:
        """A sweep from its stored :meth:`content`; what it names need not be installed."""
        return cls(True, **content)

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
        return {"name": self.name, "grid": [asdict(grid) for grid in self.grids]}

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
