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
>>> [(job.algorithm.label, job.problem.eps_p, job.seed) for job in sweep.jobs()][:3]
[('fed-ucbvi', 0.0, 0), ('fed-ucbvi', 0.0, 1), ('fed-ucbvi', 0.1, 0)]
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from fed_ucbvi.core.errors import InputError, check_printable, printable
from fed_ucbvi.core.memory import check_memory
from fed_ucbvi.sweeps.grids import BYTES_PER_RUN, FEWER, at_key, check_keys, read_grid
from fed_ucbvi.sweeps.job import Job

MAX_BYTES = 1 << 20
"""Largest size of a file that describes a sweep."""


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
        check_keys("", given, ("name", "grid"), needed=("name", "grid"))
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
        read = []
        for number, one in enumerate(grids):
            read.append(read_grid(one, f"grid[{number}]", recorded=recorded, code=code))
        runs = sum(grid.runs for grid in read)
        check_memory(f"A sweep of {runs:,} runs", BYTES_PER_RUN * runs, FEWER)
        jobs: dict[Job, None] = {}
        for number, grid in enumerate(read):
            jobs.update(dict.fromkeys(grid.jobs(f"grid[{number}]")))
        self.grids = [grid.content() for grid in read]
        self._jobs = tuple(jobs)

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
        with at_key(str(path)):
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
        text = json.dumps([self.name, [[job.id, job.algorithm.label] for job in self.jobs()]])
        return hashlib.sha256(text.encode()).hexdigest()


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
