"""The result of a run as a value: it saves to Parquet and JSON and loads back equal."""

from __future__ import annotations

import hashlib
import math
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fed_ucbvi._types import CountArray, FloatArray, IndexArray
from fed_ucbvi.errors import InputError
from fed_ucbvi.files import new_folder, read_manifest, reading, write_manifest

if TYPE_CHECKING:
    import polars as pl
    from matplotlib.figure import Figure

FORMAT = "fed-ucbvi/run"
FORMAT_VERSION = 1
ROUNDS = "rounds.parquet"

COLUMNS: dict[str, type[np.generic]] = {
    "start": np.int64,
    "length": np.int64,
    "agent_episodes": np.int64,
    "regret": np.float64,
    "reward": np.float64,
    "askers": np.int64,
    "agent": np.int64,
    "step": np.int64,
    "state": np.int64,
    "action": np.int64,
    "rule": np.int64,
    "messages_up": np.int64,
    "messages_down": np.int64,
    "bytes_up": np.int64,
    "bytes_down": np.int64,
}
"""One record a round. ``start`` counts the episodes before it and ``length`` those in it, of the agent that has
played most; ``agent_episodes`` adds up all agents' (M times the length where they stop together). ``regret`` and
``reward`` are sums over its episodes, averaged over agents; who asked is -1 in a round cut short; ``rule`` is an
index into the algorithm's rules."""


def columns_of(rows: Sequence[tuple[float, ...]]) -> dict[str, npt.NDArray[Any]]:
    """Rows of records as columns."""
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(COLUMNS)
    return {
        name: np.array(column, dtype=dtype) for (name, dtype), column in zip(COLUMNS.items(), columns, strict=True)
    }


def versions() -> dict[str, str]:
    """What the result was made with."""
    packages = {name: version(name) for name in ("fed-ucbvi", "numpy", "numba", "polars")}
    return {"python": platform.python_version(), **packages}


@dataclass(frozen=True)
class About:
    """Everything about a run but its numbers: goes into the manifest as it is."""

    algorithm: str
    parameters: Mapping[str, Any]
    rules: tuple[str, ...]
    environment: Mapping[str, Any]
    layout: Mapping[str, Any] | None
    agents: int
    states: int
    actions: int
    horizon: int
    episodes: int
    eps_p: float
    eps_r: float
    seed: int
    driver: str
    facts: Mapping[str, float]
    cautions: tuple[str, ...]
    optimal_value: float
    versions: Mapping[str, str] = field(default_factory=versions)


@dataclass(frozen=True, eq=False)
class Run:
    """A finished (or interrupted) run.

    Attributes:
        about: algorithm, environment, sizes, seed, driver, versions.
        records: one entry a round, by column; see :data:`COLUMNS`.
        policy: the policy in force at the end, ``(H, S)``.
        V: the server's optimistic values at the end, ``(H+1, S)``.
        value: what that policy is worth in the common MDP from its initial distribution.
        wall_seconds: how long the run took.
        complete: whether all episodes were played.
    """

    about: About
    records: Mapping[str, npt.NDArray[Any]]
    policy: IndexArray
    V: FloatArray
    value: float
    wall_seconds: float
    complete: bool

    @cached_property
    def _ends(self) -> FloatArray:
        return np.asarray(np.cumsum(self.records["agent_episodes"], dtype=np.int64) / self.about.agents)

    @cached_property
    def _cumulative_regret(self) -> FloatArray:
        return np.asarray(np.cumsum(self.records["regret"]))

    @property
    def episodes_played(self) -> int:
        """Episodes each agent played; T if the run is complete."""
        return int(self._ends[-1]) if len(self._ends) else 0

    @property
    def common_regret(self) -> float:
        """The common regret after the last episode (``def:common_regret``)."""
        return float(self._cumulative_regret[-1]) if len(self._ends) else 0.0

    @property
    def rounds(self) -> int:
        """Communication rounds: synchronisations that somebody asked for."""
        return int((self.records["askers"] > 0).sum())

    @property
    def average_reward(self) -> float:
        """Reward an agent collected per episode, in its own MDP, averaged over agents and episodes."""
        return float(self.records["reward"].sum()) / max(1, self.episodes_played)

    @property
    def bytes_up(self) -> int:
        """Bytes from agents to server."""
        return int(self.records["bytes_up"].sum())

    @property
    def bytes_down(self) -> int:
        """Bytes from server to agents."""
        return int(self.records["bytes_down"].sum())

    @property
    def rules_fired(self) -> dict[str, int]:
        """How many synchronisations each rule asked for."""
        fired = self.records["rule"][self.records["askers"] > 0]
        return {rule: int((fired == code).sum()) for code, rule in enumerate(self.about.rules)}

    def regret_at(self, episodes: npt.ArrayLike) -> FloatArray:
        """The common regret after that many episodes; linear inside a round, where the policy is fixed."""
        points = np.asarray(episodes, dtype=np.float64)
        if points.size and (points.min() < 0 or points.max() > self.episodes_played):
            raise InputError(f"regret is known after 0..{self.episodes_played} episodes only.")
        ends = np.concatenate([[0], self._ends])
        return np.asarray(np.interp(points, ends, np.concatenate([[0.0], self._cumulative_regret])))

    def rounds_at(self, episodes: npt.ArrayLike) -> CountArray:
        """Communication rounds within the first so many episodes."""
        asked = self._ends[self.records["askers"] > 0]
        return np.asarray(np.searchsorted(asked, np.asarray(episodes), side="right"))

    def summary(self) -> dict[str, Any]:
        """The figures of the run, ready for JSON; what is unknown is None."""
        about = self.about
        content = {
            "algorithm": about.algorithm,
            "parameters": dict(about.parameters),
            "env": about.environment.get("name", "custom"),
            "environment": dict(about.environment),
            "agents": about.agents,
            "states": about.states,
            "actions": about.actions,
            "horizon": about.horizon,
            "episodes": about.episodes,
            "episodes_played": self.episodes_played,
            "complete": self.complete,
            "eps_p": about.eps_p,
            "eps_r": about.eps_r,
            "seed": about.seed,
            "driver": about.driver,
            "common_regret": self.common_regret,
            "average_reward": self.average_reward,
            "value": self.value,
            "optimal_value": about.optimal_value,
            "rounds": self.rounds,
            "rules_fired": self.rules_fired,
            "messages_up": int(self.records["messages_up"].sum()),
            "messages_down": int(self.records["messages_down"].sum()),
            "bytes_up": self.bytes_up,
            "bytes_down": self.bytes_down,
            "nu": None,
            **about.facts,
            "warnings": list(about.cautions),
            "wall_seconds": self.wall_seconds,
            "versions": dict(about.versions),
        }
        return {key: _none_for_nan(entry) for key, entry in content.items()}

    def to_frame(self) -> pl.DataFrame:
        """The records as a Polars frame, one row a round, with the rule by name and running totals."""
        import polars as pl

        frame = pl.DataFrame(dict(self.records))
        names = dict(enumerate(self.about.rules))
        return frame.with_columns(
            pl.col("rule").replace_strict(names, default=None, return_dtype=pl.String),
            (pl.col("agent_episodes").cum_sum() / self.about.agents).alias("episodes"),
            pl.col("regret").cum_sum().alias("cumulative_regret"),
            (pl.col("askers") > 0).cum_sum().alias("rounds"),
        )

    def plot(self, path: str | Path | None = None) -> Figure:
        """Regret, round lengths and (on a grid) the learnt policy; written to ``path`` if given."""
        from fed_ucbvi.results.plotting import plot_run

        return plot_run(self, None if path is None else Path(path))

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write the folder ``path``: ``rounds.parquet`` and ``manifest.json``."""
        import polars as pl

        with new_folder(Path(path), FORMAT, overwrite=overwrite) as draft:
            pl.DataFrame(dict(self.records)).write_parquet(draft / ROUNDS)
            write_manifest(
                draft,
                {
                    "format": FORMAT,
                    "format_version": FORMAT_VERSION,
                    "about": _none_for_nan(asdict(self.about)),
                    "summary": self.summary(),
                    "complete": self.complete,
                    "wall_seconds": self.wall_seconds,
                    "value": _none_for_nan(self.value),
                    "policy": self.policy.tolist(),
                    "V": self.V.tolist(),
                    "rounds_sha256": hashlib.sha256((draft / ROUNDS).read_bytes()).hexdigest(),
                },
            )

    @classmethod
    def load(cls, path: str | Path) -> Run:
        """Read back what :meth:`save` wrote; a damaged or foreign folder is refused."""
        import polars as pl

        folder = Path(path)
        if not folder.is_dir():
            raise InputError(f"{folder} is not a folder; a saved run is a folder with {ROUNDS} and manifest.json.")
        manifest = read_manifest(folder, FORMAT)
        if manifest.get("format_version") != FORMAT_VERSION:
            raise InputError(
                f"{folder} has format version {manifest.get('format_version')}; this program reads {FORMAT_VERSION}."
            )
        table = folder / ROUNDS
        if not table.is_file():
            raise InputError(f"{folder} is damaged: {ROUNDS} is missing.")
        if hashlib.sha256(table.read_bytes()).hexdigest() != manifest.get("rounds_sha256"):
            raise InputError(f"{table} is damaged: it is not the file the manifest describes.")
        with reading(folder):
            frame = pl.read_parquet(table)
            about = dict(manifest["about"])
            about["rules"], about["cautions"] = tuple(about["rules"]), tuple(about["cautions"])
            about |= {name: _nan_for_none(about[name]) for name in ("optimal_value", "eps_r")}
            run = cls(
                about=About(**about),
                records={name: frame[name].to_numpy().astype(dtype) for name, dtype in COLUMNS.items()},
                policy=np.array(manifest["policy"], dtype=np.int32),
                V=np.array(manifest["V"], dtype=np.float64),
                value=_nan_for_none(manifest["value"]),
                wall_seconds=float(manifest["wall_seconds"]),
                complete=bool(manifest["complete"]),
            )
            sizes = (run.about.horizon, run.about.states)
            if run.policy.shape != sizes or run.V.shape != (sizes[0] + 1, sizes[1]):
                raise InputError(f"{folder} is damaged: its policy and values are not those of {sizes[1]} states.")
            if math.isnan(run.value) != math.isnan(run.about.optimal_value):
                raise InputError(f"{folder} is damaged: of value and optimal value one is known and the other not.")
            if run.policy.min() < 0 or run.policy.max() >= run.about.actions:
                raise InputError(f"{folder} is damaged: its policy takes actions that do not exist.")
        return run

    def same_outcome(self, other: Run) -> bool:
        """Whether two runs agree in everything but the time they took and what they were made with."""
        mine, theirs = (_none_for_nan({**asdict(run.about), "versions": None}) for run in (self, other))
        return (
            mine == theirs
            and self.complete == other.complete
            and _none_for_nan(self.value) == _none_for_nan(other.value)
            and np.array_equal(self.policy, other.policy)
            and np.array_equal(self.V, other.V)
            and self.records.keys() == other.records.keys()
            and all(np.array_equal(self.records[name], other.records[name], equal_nan=True) for name in self.records)
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Run):
            return NotImplemented
        return (
            self.same_outcome(other)
            and self.wall_seconds == other.wall_seconds
            and self.about.versions == other.about.versions
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        about = self.about
        state = "" if self.complete else f", interrupted after {self.episodes_played:,}"
        return (
            f"<Run {about.algorithm} on {about.environment.get('name', 'custom')}: {about.agents} agents, "
            f"{about.episodes:,} episodes{state}; common regret {self.common_regret:,.1f}, {self.rounds:,} rounds, "
            f"{(self.bytes_up + self.bytes_down) / 1e6:,.1f} MB>"
        )


def _none_for_nan(content: Any) -> Any:
    """The same with None where there is NaN, which JSON cannot write: what is unknown, as regret in a live run."""
    if isinstance(content, Mapping):
        return {key: _none_for_nan(entry) for key, entry in content.items()}
    return None if isinstance(content, float) and math.isnan(content) else content


def _nan_for_none(entry: float | None) -> float:
    return math.nan if entry is None else float(entry)
