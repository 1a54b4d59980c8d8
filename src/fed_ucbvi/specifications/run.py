"""The options of a run, and a run described as a whole: problem, algorithm and options."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from fed_ucbvi.core.errors import unknown_name
from fed_ucbvi.core.limits import MAX_COUNT, MAX_SEED, check_total_episodes
from fed_ucbvi.core.parameters import Bounds, Help, Positive, Size
from fed_ucbvi.core.plugins import check_code
from fed_ucbvi.specifications.algorithm import AlgorithmSpec
from fed_ucbvi.specifications.fields import check_fields, field_names, plain_fields
from fed_ucbvi.specifications.problem import ProblemSpec

ID_VERSION = 1
"""Part of every id; increased when a new version gives another result for the same fields."""
ID_LENGTH = 16


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """The options of a run: its length and seed, where it starts, its promises, and where it is kept."""

    episodes: Annotated[int, Bounds(1, at_most=MAX_COUNT), Help("Episodes per agent; 1e9 is fine.")] = 30_000
    seed: Annotated[int, Bounds(0, at_most=MAX_SEED), Help("Seed of the run.")] = 0
    warm_start: Annotated[
        Path | None,
        Help("Start from the counts of a run: a file of 'fed-ucbvi counts', or its checkpoint."),
    ] = None
    incumbent: Annotated[
        str | None,
        Help("The policy in use today: a policy file, or a function of step and state."),
    ] = None
    loss: Annotated[
        Annotated[float, Bounds(0, below=1)] | None,
        Help(
            "Largest cost of exploring, as a share of the incumbent's value. With 0 the run only watches: it plays "
            "the incumbent throughout and bounds its value."
        ),
    ] = None
    until_gap: Annotated[
        Positive | None,
        Help("Stop when the certified gap of the recommended policy is at most X."),
    ] = None
    return_range: Annotated[
        tuple[float, float] | None,
        Help("Range of the return of every episode, if it is narrower than the rewards imply."),
    ] = None
    driver: Annotated[
        Literal["auto", "counts", "episodes", "cuda"],
        Help("auto, counts, episodes or, on a GPU, cuda."),
    ] = "auto"
    fleets: Annotated[Literal["local", "ray"], Help("Where the agents are: local or, as actors, ray.")] = "local"
    address: Annotated[str | None, Help("Address of a Ray cluster.")] = None
    fleet_count: Annotated[Size | None, Help("Number of fleets into which the agents are split on Ray.")] = None
    checkpoint: Annotated[Path | None, Help("Folder to keep the state in, to resume the run from.")] = None
    checkpoint_every: Annotated[Size, Help("Rounds between two checkpoints.")] = 100
    out: Annotated[Path | None, Help("Folder to save the run in.")] = None
    overwrite: Annotated[bool, Help("Replace an earlier run in --out.")] = False

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True, kw_only=True)
class RunSpec:
    """A run described as a whole.

    >>> spec = RunSpec(
    ...     problem=ProblemSpec(environment="synthetic", agents=4),
    ...     algorithm=AlgorithmSpec(name="fed-ucbvi"),
    ...     options=RunOptions(episodes=1000),
    ... )
    >>> RunSpec.from_data(spec.to_data()) == spec
    True
    """

    problem: ProblemSpec = field(default_factory=ProblemSpec)
    algorithm: AlgorithmSpec = field(default_factory=AlgorithmSpec)
    options: RunOptions = field(default_factory=RunOptions)

    def __post_init__(self) -> None:
        check_total_episodes(self.problem.agents or 1, self.options.episodes)

    @classmethod
    def from_data(cls, data: Mapping[str, Any], *, code: Collection[str] = ()) -> RunSpec:
        """Read the plain data of :meth:`to_data`.

        Args:
            data: fields by name. They may name only registered algorithms and environments, and files: data never
                make code run.
            code: names of code (``module:attribute``) that the user has given, and data may repeat.

        >>> RunSpec.from_data({"algorithm": "mine:Mine"})
        Traceback (most recent call last):
        fed_ucbvi.core.errors.InputError: the algorithm is mine:Mine, code that is not run because a file names it; if
        you trust it, name it yourself (--code mine:Mine).
        """
        for name in data:
            if name not in DATA_NAMES:
                raise unknown_name("field of a run", str(name), DATA_NAMES)
        check_named_code(data, code)
        return cls(
            problem=ProblemSpec(**_part(data, ProblemSpec)),
            algorithm=AlgorithmSpec(**_part(data, AlgorithmSpec)),
            options=RunOptions(**_part(data, RunOptions)),
        )

    def to_data(self) -> dict[str, Any]:
        """All fields of the three parts in one table of plain values, ready for JSON."""
        return {
            **plain_fields(self.problem),
            **algorithm_data(self.algorithm),
            **plain_fields(self.options),
        }

    def to_json(self) -> str:
        return json.dumps(self.to_data(), sort_keys=True, allow_nan=False)

    @property
    def id(self) -> str:
        """Identifier of a complete simulated run; labels and places of results are not part of it."""
        options = self.options
        content = simulated_content(
            self.problem,
            self.algorithm,
            episodes=options.episodes,
            seed=options.seed,
            driver=options.driver,
        )
        return run_id(content)

    def complete(self) -> RunSpec:
        """This run with all defaults filled in, so that equal runs have equal ids; checks names and options."""
        return replace(self, problem=self.problem.complete(), algorithm=self.algorithm.complete())


def run_id(content: Mapping[str, Any]) -> str:
    """Identifier of a complete simulated run with this :func:`simulated_content`."""
    text = json.dumps({"meaning": ID_VERSION, **content}, sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:ID_LENGTH]


def simulated_content(
    problem: ProblemSpec,
    algorithm: AlgorithmSpec,
    *,
    episodes: int,
    seed: int,
    driver: str,
) -> dict[str, Any]:
    """The fields on which the result of a simulation depends, ready for JSON; without Byzantine agents."""
    return {
        "algorithm": algorithm.name,
        "parameters": algorithm.parameters,
        "environment": problem.environment,
        "environment_options": problem.environment_options,
        "agents": problem.agents,
        "eps_p": problem.eps_p,
        "env_seed": problem.env_seed,
        "episodes": episodes,
        "seed": seed,
        "driver": driver,
    }


def algorithm_data(algorithm: AlgorithmSpec) -> dict[str, Any]:
    """The fields of an algorithm by their names in the data of a run."""
    return {
        "algorithm": algorithm.name,
        "parameters": dict(algorithm.parameters),
        "label": algorithm.label,
    }


def check_named_code(data: Mapping[str, Any], code: Collection[str]) -> None:
    """Raise if data name code (``module:attribute``) that is not in ``code``."""
    options = data.get("environment_options")
    gymnasium_id = options.get("id", "") if isinstance(options, Mapping) else ""
    named = {
        "algorithm": data.get("algorithm"),
        "environment": data.get("environment"),
        "incumbent": data.get("incumbent"),
        "Gymnasium environment": gymnasium_id,
    }
    for kind, value in named.items():
        name = str(value or "")
        if name not in code and not name.endswith(".npz"):
            check_code(kind, name)


DATA_NAMES = [*field_names(ProblemSpec), "algorithm", "parameters", "label", *field_names(RunOptions)]
"""Names in the data of a run."""


def _part(data: Mapping[str, Any], kind: Any) -> dict[str, Any]:
    """The fields of one part, from the data of a run."""
    part = {name: data[name] for name in field_names(kind) if name in data}
    if kind is AlgorithmSpec and "algorithm" in data:
        part["name"] = data["algorithm"]
    return part
