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
import math
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, TypeVar

from fed_ucbvi.algorithms import algorithm_name, as_algorithm, parameters_of
from fed_ucbvi.algorithms.base import Algorithm
from fed_ucbvi.core.errors import InputError, check_positive_integer, check_printable, printable, unknown_name
from fed_ucbvi.core.memory import check_memory
from fed_ucbvi.run_spec import RunSpec, canonical_name, complete_options, complete_parameters, field_value
from fed_ucbvi.sweeps.job import Job

ValueT = TypeVar("ValueT")

BYTES_PER_RUN = 4000
"""What the description of a run takes in memory."""
FEWER = "Use fewer seeds, or several sweeps."
MAX_BYTES = 1 << 20
"""Of a file that describes a sweep."""
NEEDED = ("algorithms", "environments", "episodes")
DEFAULTS: dict[str, Any] = {"eps_p": [0.0], "agents": [20], "seeds": 5, "env_seed": 0, "driver": "auto"}
"""Keys of a grid that may be left out."""
LISTED = {"eps_p": "eps_p", "agents": "agents", "episodes": "episodes", "seeds": "seed"}
"""By key of a grid: the field of a run that its values are of."""


@contextmanager
def _at(key: str) -> Iterator[None]:
    """What is wrong is wrong at this key."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{key}: {error}") from error


def _check_keys(where: str, given: Mapping[str, Any], known: Sequence[str], needed: Sequence[str]) -> None:
    for key in given:
        if key not in known:
            raise InputError(f"{where}{key}: {unknown_name('key', str(key), known)}")
    if missing := [key for key in needed if key not in given]:
        raise InputError(" ".join(f"{where}{key}: is missing; add it." for key in missing))


def _listed(given: Any) -> Any:
    """A list of one where a single number, or one that is written as text, stands for it."""
    return [given] if isinstance(given, int | float | str) else given


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


def _runs_of(grid: Mapping[str, Any]) -> int:
    """The number of runs of a grid."""
    lengths = 1 if isinstance(grid["episodes"], Mapping) else len(grid["episodes"])
    others = ("environments", "algorithms", "eps_p", "agents", "seeds")
    return lengths * math.prod(len(grid[name]) for name in others)


def _lengths(key: str, given: Mapping[str, Any], names: set[str]) -> dict[str, int]:
    for name in sorted(given.keys() ^ names):
        remedy = f"give {name} a value" if name in names else f"remove {name}, or add it to environments"
        raise InputError(f"{key}: the table must name every environment of the grid and no other; {remedy}.")
    found = {}
    for name, length in given.items():
        with _at(f"{key}.{name}"):
            found[name] = field_value("episodes", length)
    return found


def _named(given: Any) -> tuple[str, dict[str, Any]]:
    """The name in a name, a table, or an algorithm or its class; and what else the table holds."""
    if isinstance(given, Algorithm) or (isinstance(given, type) and issubclass(given, Algorithm)):
        algorithm = as_algorithm(given)
        given = {"name": algorithm_name(algorithm), **parameters_of(algorithm)}
    table = {"name": given} if isinstance(given, str) else given
    if not isinstance(table, Mapping):
        raise InputError("must be a name or a table such as {name = '...', option = ...}.")
    if not isinstance(table.get("name"), str):
        raise InputError("the table must name one: name = '...'.")
    return table["name"], {key: value for key, value in table.items() if key != "name"}


class Sweep:
    """A name and grids of runs; everything is checked when the sweep is made.

    A grid is a table, in a TOML file ``[[grid]]``, and stands for all combinations of the values that it lists:

    * ``algorithms``: names, or tables ``{name = ..., label = ..., parameter = ...}``, in Python also algorithms and
      their classes; the label is what tables and figures call it;
    * ``environments``: names, or tables ``{name = ..., option = ...}``;
    * ``eps_p``: heterogeneities, or one;
    * ``agents``: numbers of agents, or one;
    * ``episodes``: values of T, or one, or a table with one T for each environment by name;
    * ``seeds``: the number of seeds, counted from 0, or a list of seeds;
    * ``env_seed``: the environments' seed; ``"seed"`` draws each run's environment from the run's own seed;
    * ``driver``: how the data are collected.

    :attr:`grids` has all defaults filled in.
    """

    def __init__(self, recorded: bool = False, code: Collection[str] | None = None, /, **content: Any) -> None:
        _check_texts("", content)
        given = {"grid" if key == "grids" else key: value for key, value in content.items()}
        _check_keys("", given, ("name", "grid"), needed=("name", "grid"))
        name = given["name"]
        grids = given["grid"]
        if not isinstance(name, str):
            raise InputError(f"name: must be text in quotes, got {name!r}.")
        if not isinstance(grids, list | tuple):
            raise InputError("grid: must be a list of tables; begin each with [[grid]].")
        for key, value in (("name", name), ("grid", grids)):
            if not value:
                raise InputError(f"{key}: is empty; give at least one value.")
        self.name: str = name
        self._recorded = recorded
        self._code = code
        self.grids = [self._grid(one, f"grid[{number}]") for number, one in enumerate(grids)]
        runs = sum(map(_runs_of, self.grids))
        check_memory(f"A sweep of {runs:,} runs", BYTES_PER_RUN * runs, FEWER)
        jobs = (job for number, grid in enumerate(self.grids) for job in self._jobs_of(grid, f"grid[{number}]"))
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
            if Path(path).stat().st_size > MAX_BYTES:
                raise InputError(f"{path} has more than {MAX_BYTES:,} bytes, which no sweep needs.")
            content = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        except InputError:
            raise
        except RecursionError as error:
            raise InputError(f"{path} is not a sweep: its lists and tables are nested too deep.") from error
        except ValueError as error:
            raise InputError(f"{path} is not a TOML file: {printable(str(error)[:200])}.") from error
        except OSError as error:
            raise InputError(f"{path} cannot be read: {error.strerror}.") from error
        with _at(str(path)):
            try:
                return cls(False, code, **content)
            except InputError:
                raise
            except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
                raise InputError(f"it cannot be read as a sweep: {printable(str(error)[:200])}.") from error

    def jobs(self) -> tuple[Job, ...]:
        """All runs: grid by grid, in the order environment, algorithm, eps_p, agents, episodes, seed.

        A run that several grids contain appears once, in the first of them.
        """
        return self._jobs

    def content(self) -> dict[str, Any]:
        """The sweep with all defaults filled in, ready for JSON; ``Sweep(**content)`` gives it back."""
        return {"name": self.name, "grid": self.grids}

    @property
    def digest(self) -> str:
        """The SHA-256 of the name and of the runs, in order, with their labels."""
        text = json.dumps([self.name, [[job.id, job.label] for job in self.jobs()]])
        return hashlib.sha256(text.encode()).hexdigest()

    def _grid(self, given: Any, where: str) -> dict[str, Any]:
        """A grid with all defaults filled in; errors name ``where`` and the key."""
        if not isinstance(given, Mapping):
            raise InputError(f"{where}: must be a table, as [[grid]] begins one, got {given!r}.")
        _check_keys(f"{where}.", given, [*NEEDED, *DEFAULTS], NEEDED)
        grid: dict[str, Any] = {**DEFAULTS, **given}
        if not isinstance(grid["seeds"], list | tuple):
            with _at(f"{where}.seeds"):
                number = check_positive_integer("seeds", grid["seeds"])
                check_memory(f"A sweep of {number:,} seeds", BYTES_PER_RUN * number, FEWER)
                grid["seeds"] = list(range(number))
        grid["algorithms"] = _each(f"{where}.algorithms", grid["algorithms"], self._algorithm)
        grid["environments"] = _each(f"{where}.environments", grid["environments"], self._environment)
        for key, field in LISTED.items():
            if key == "episodes" and isinstance(grid[key], Mapping):
                grid[key] = _lengths(f"{where}.{key}", grid[key], {one["name"] for one in grid["environments"]})
            else:
                grid[key] = _each(f"{where}.{key}", _listed(grid[key]), partial(field_value, field))
        with _at(f"{where}.env_seed"):
            if isinstance(grid["env_seed"], str) and grid["env_seed"] != "seed":
                raise InputError(f"must be a whole number, or 'seed' for each run's own, got '{grid['env_seed']}'.")
            if grid["env_seed"] != "seed":
                grid["env_seed"] = field_value("env_seed", grid["env_seed"])
        with _at(f"{where}.driver"):
            grid["driver"] = field_value("driver", grid["driver"])
        return grid

    def _algorithm(self, given: Any) -> dict[str, Any]:
        name, parameters = _named(given)
        self._check_code(algorithm=name)
        label = parameters.pop("label", None) or ""
        if not isinstance(label, str):
            raise InputError(f"the label must be text in quotes, got {label!r}.")
        if not self._recorded:
            parameters = complete_parameters(name, parameters)
            name = canonical_name(name)
        return {"name": name, "label": label or name, **parameters}

    def _environment(self, given: Any) -> dict[str, Any]:
        name, options = _named(given)
        self._check_code(environment=name, environment_options={"id": options.get("id", "")})
        return {"name": name, **(options if self._recorded else complete_options(name, options))}

    def _check_code(self, **fields: Any) -> None:
        """Raise if a file names code that the person at the keyboard has not."""
        if self._code is not None:
            RunSpec.from_data(fields, code=self._code)

    def _jobs_of(self, grid: Mapping[str, Any], where: str) -> Iterator[Job]:
        """All runs of a grid; if an algorithm rejects a combination, the error names ``where`` and the keys."""
        numbered = [list(enumerate(grid[key])) for key in ("environments", "algorithms")]
        for (e, environment), (a, algorithm) in product(*numbered):
            (place, options), (name, parameters) = _named(environment), _named(algorithm)
            case = {"algorithm": name, "label": parameters.pop("label"), "parameters": parameters}
            case |= {"environment": place, "environment_options": options, "driver": grid["driver"]}
            lengths = grid["episodes"]
            lengths = [lengths[place]] if isinstance(lengths, Mapping) else lengths
            for eps_p, (m, agents), episodes in product(grid["eps_p"], enumerate(grid["agents"]), lengths):
                case |= {"eps_p": eps_p, "agents": agents, "episodes": episodes}
                with _at(f"{where}.agents[{m}] with algorithms[{a}] and environments[{e}]"):
                    own = grid["env_seed"] == "seed"
                    env_seed = grid["env_seed"]
                    jobs = [Job(**case, seed=seed, env_seed=seed if own else env_seed) for seed in grid["seeds"]]
                    if not self._recorded:
                        jobs = [job.complete() for job in jobs]
                        jobs[0].check_possible()  # seeds make no difference to that
                yield from jobs


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
