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
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    PrivateAttr,
    Tag,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_serializer,
    model_validator,
)

from fed_ucbvi.algorithms import algorithm_name, as_algorithm, parameters_of
from fed_ucbvi.algorithms.base import Algorithm as AlgorithmBase
from fed_ucbvi.core.errors import (
    InputError,
    check_choice,
    check_integer,
    check_positive_integer,
    check_printable,
    unknown_name,
)
from fed_ucbvi.core.sampling.distributions import MAX_COUNT
from fed_ucbvi.core.sampling.philox import MAX_SEED
from fed_ucbvi.engine.drivers import NAMES
from fed_ucbvi.problem.federation import check_eps_p
from fed_ucbvi.sweeps.job import Job, canonical_name, complete_options, complete_parameters

__all__ = ["Grid", "Job", "Sweep"]

EpsP = Annotated[float, BeforeValidator(check_eps_p)]
Agents = Annotated[int, BeforeValidator(lambda value: check_positive_integer("agents", value))]
Episodes = Annotated[int, BeforeValidator(lambda value: check_positive_integer("episodes", value, at_most=MAX_COUNT))]
Lengths = Annotated[
    Annotated[list[Episodes], Field(min_length=1), Tag("list")] | Annotated[dict[str, Episodes], Tag("table")],
    Discriminator(lambda given: "table" if isinstance(given, Mapping) else "list"),
]
Seed = Annotated[int, BeforeValidator(lambda value: check_integer("a seed", value, at_most=MAX_SEED))]

RECORDED = "recorded"
"""Key in the context of validation: the content was stored complete, so what it names need not be installed."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, validate_by_name=True, validate_by_alias=True)


class _Choice(_Strict):
    """A name with options: written as the name alone, or as a table ``{name = ..., option = ...}``."""

    name: str
    options: dict[str, Any]

    @model_validator(mode="before")
    @classmethod
    def _from_text_or_table(cls, given: object) -> object:
        if isinstance(given, str):
            return {"name": given, "options": {}}
        if not isinstance(given, Mapping):
            raise InputError("must be a name or a table such as {name = '...', option = ...}.")
        if not isinstance(given.get("name"), str):
            raise InputError("the table must say which one is meant: name = '...'.")
        own = {key: given[key] for key in cls.model_fields if key != "options" and given.get(key) is not None}
        return {**own, "options": {key: value for key, value in given.items() if key not in cls.model_fields}}

    @model_serializer
    def _as_table(self) -> dict[str, Any]:
        own = {key: getattr(self, key) for key in type(self).model_fields if key != "options"}
        return {**own, **self.options}


class Algorithm(_Choice):
    """An algorithm with parameters and, for tables and figures, a label."""

    label: str = ""

    @model_validator(mode="before")
    @classmethod
    def _from_algorithm(cls, given: object) -> object:
        """In Python an algorithm or its class will do."""
        if isinstance(given, AlgorithmBase) or (isinstance(given, type) and issubclass(given, AlgorithmBase)):
            given = as_algorithm(given)
            return {"name": algorithm_name(given), **parameters_of(given)}
        return given

    @model_validator(mode="after")
    def _complete(self, info: ValidationInfo) -> Algorithm:
        if info.context and info.context[RECORDED]:
            return self
        name, completed = canonical_name(self.name), complete_parameters(self.name, self.options)
        return self.model_construct(name=name, label=self.label or name, options=completed)


class Environment(_Choice):
    """An environment with options."""

    @model_validator(mode="after")
    def _complete(self, info: ValidationInfo) -> Environment:
        if info.context and info.context[RECORDED]:
            return self
        return self.model_construct(name=self.name, options=complete_options(self.name, self.options))


class Grid(_Strict):
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

    algorithms: list[Algorithm] = Field(min_length=1)
    environments: list[Environment] = Field(min_length=1)
    eps_p: list[EpsP] = Field(default=[0.0], min_length=1)
    agents: list[Agents] = Field(default=[20], min_length=1)
    episodes: Lengths
    seeds: list[Seed] = Field(default=[0, 1, 2, 3, 4], min_length=1)
    env_seed: int | Literal["seed"] = 0
    driver: str = "auto"

    @field_validator("seeds", mode="before")
    @classmethod
    def _count_seeds(cls, given: object) -> object:
        return given if isinstance(given, (list, tuple)) else list(range(check_positive_integer("seeds", given)))

    @field_validator("env_seed", mode="before")
    @classmethod
    def _check_env_seed(cls, given: object) -> object:
        if given == "seed":
            return given
        if isinstance(given, str):
            raise InputError(f"must be a whole number, or 'seed' for each run's own seed, got '{given}'.")
        return check_integer("env_seed", given)

    @field_validator("driver")
    @classmethod
    def _check_driver(cls, given: str) -> str:
        check_choice("driver", given, NAMES)
        return given

    @field_validator("episodes")
    @classmethod
    def _check_table(cls, given: list[int] | dict[str, int], info: ValidationInfo) -> list[int] | dict[str, int]:
        names = {choice.name for choice in info.data.get("environments", ())}
        if isinstance(given, dict) and names:
            for name in sorted(given.keys() ^ names):
                remedy = f"give {name} a value" if name in names else f"remove {name}, or add it to environments"
                raise InputError(f"the table must name every environment of the grid and no other; {remedy}.")
        return given

    def cases(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """All combinations without the seeds: the keys they come from, and the arguments of a job."""
        for (e, environment), (a, algorithm) in itertools.product(
            enumerate(self.environments), enumerate(self.algorithms)
        ):
            lengths = self.episodes if isinstance(self.episodes, list) else [self.episodes[environment.name]]
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
            contents = [
                {**case, "seed": seed, "env_seed": seed if self.env_seed == "seed" else self.env_seed}
                for seed in self.seeds
            ]
            if recorded:
                yield from map(Job.recorded, contents)
                continue
            try:
                jobs = [Job(**content) for content in contents]
                jobs[0].check_possible()  # seeds make no difference to that
            except InputError as error:
                raise InputError(f"{where}.{key}: {error}") from error
            yield from jobs


class Sweep(_Strict):
    """A name and grids of runs; everything is checked when the sweep is made.

    Attributes:
        name: what the sweep is called.
        grids: see :class:`Grid`; in a TOML file each is a table ``[[grid]]``.
    """

    name: str = Field(min_length=1)
    grids: list[Grid] = Field(alias="grid", min_length=1)

    _jobs: tuple[Job, ...] = PrivateAttr()

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
        try:
            self.__pydantic_validator__.validate_python(
                dict(content), self_instance=self, context={RECORDED: recorded}
            )
        except ValidationError as error:
            raise InputError(_explain(error)) from None
        jobs = (
            job for number, grid in enumerate(self.grids) for job in grid.jobs(f"grid[{number}]", recorded=recorded)
        )
        self._jobs = tuple(dict.fromkeys(jobs))

    @classmethod
    def from_toml(cls, path: str | Path) -> Sweep:
        """Read a sweep from a TOML file; errors name the file, the key and what to do."""
        try:
            content = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise InputError(f"{path} is not a TOML file: {error}.") from error
        except OSError as error:
            raise InputError(f"{path} cannot be read: {error.strerror}.") from error
        try:
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
        return self.model_dump(mode="json", by_alias=True)

    @property
    def digest(self) -> str:
        """The SHA-256 of the name and of the runs, in order, with their labels."""
        text = json.dumps([self.name, [[job.id, job.label] for job in self.jobs()]])
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


def _explain(error: ValidationError) -> str:
    """What pydantic found, key by key, in one line."""
    return " ".join(f"{_key(detail['loc'])}: {_reason(detail)}" for detail in error.errors(include_url=False))


def _key(location: tuple[int | str, ...]) -> str:
    """A key as it is written in the file; pydantic's names of types are left out.

    >>> _key(("grid", 1, "episodes", "list", 0))
    'grid[1].episodes[0]'
    """
    parts = ["grid" if part == "grids" else part for part in location if part not in ("list", "table")]
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts).removeprefix(".")


def _reason(detail: Mapping[str, Any]) -> str:
    """What is wrong, what was expected and what to do."""
    location, given = detail["loc"], detail["input"]
    match detail["type"]:
        case "value_error":
            return str(detail["ctx"]["error"])
        case "missing":
            return "is missing; add it."
        case "extra_forbidden":
            known = ["name", "grid"] if len(location) == 1 else list(Grid.model_fields)
            return str(unknown_name("key", str(location[-1]), known))
        case "too_short" | "string_too_short":
            return "is empty; give at least one value."
        case "list_type" if len(location) == 1:
            return "must be a list of tables; begin each with [[grid]]."
        case "list_type":
            return f"must be a list in square brackets, got {given!r}."
        case "model_type":
            return f"must be a table, as [[grid]] begins one, got {given!r}."
        case "string_type":
            return f"must be text in quotes, got {given!r}."
        case _:
            return f"{detail['msg']}, got {given!r}."
