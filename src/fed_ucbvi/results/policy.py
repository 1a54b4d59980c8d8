"""A recommended policy as a file: its actions, the environment where it was learnt, and the units of rewards."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.files import new_file, reading
from fed_ucbvi.core.types import IndexArray
from fed_ucbvi.problem.units import Units
from fed_ucbvi.results.run_data import RunData

FORMAT = "fed-ucbvi/policy"
FORMAT_VERSION = 1


@dataclass(frozen=True, eq=False)
class LearntPolicy:
    """A deterministic policy ``(H, S)`` and everything that is needed to play it.

    Attributes:
        table: the action of every step and state.
        actions: A.
        environment: the description of the environment.
        value: what it is worth in the common MDP; NaN where that is unknown.
    """

    table: IndexArray
    actions: int
    environment: Mapping[str, Any]
    value: float

    @property
    def horizon(self) -> int:
        """H."""
        return int(self.table.shape[0])

    @property
    def states(self) -> int:
        """S."""
        return int(self.table.shape[1])

    @property
    def units(self) -> Units:
        """The units of rewards."""
        return Units.of(self.environment)

    @classmethod
    def of(cls, run: RunData) -> LearntPolicy:
        """The recommended policy of a run."""
        return cls(run.policy, run.about.actions, dict(run.about.environment), run.value)

    def action(self, step: int, state: int) -> int:
        """What to do; steps and states count from 0."""
        return int(self.table[step, state])

    def save(self, path: Path) -> None:
        """Write a ``.json`` or ``.npz`` file; one that exists is replaced."""
        _check_suffix(path)
        about = {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "horizon": self.horizon,
            "states": self.states,
            "actions": self.actions,
            "environment": dict(self.environment),
            "units": asdict(self.units),
            "value": None if np.isnan(self.value) else self.value,
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        with new_file(path) as draft:
            if path.suffix == ".json":
                content = {**about, "policy": self.table.tolist()}
                draft.write_text(json.dumps(content, allow_nan=False) + "\n", encoding="utf-8")
            else:
                with draft.open("wb") as file:
                    np.savez_compressed(file, policy=self.table, about=np.array(json.dumps(about, allow_nan=False)))


def load_policy(path: str | Path) -> LearntPolicy:
    """Read back what :meth:`Run.export_policy` wrote; a damaged or foreign file is refused."""
    file = Path(path)
    _check_suffix(file)
    if not file.is_file():
        raise InputError(f"there is no file {file}.")
    with reading(file):
        if file.suffix == ".json":
            about = json.loads(file.read_text(encoding="utf-8"))
            table = about.get("policy") if isinstance(about, dict) else None
        else:
            with file.open("rb") as opened, np.load(opened, allow_pickle=False) as data:
                about, table = json.loads(str(data["about"])), data["policy"]
        if not isinstance(about, dict) or about.get("format") != FORMAT:
            raise InputError(f"{file} is not a policy that fed-ucbvi saved.")
        if about.get("format_version") != FORMAT_VERSION:
            raise InputError(
                f"{file} has format version {about.get('format_version')}; this program reads {FORMAT_VERSION}."
            )
        policy = np.array(table, dtype=np.int32)
        actions, value = int(about["actions"]), about["value"]
        if policy.shape != (about["horizon"], about["states"]) or policy.min() < 0 or policy.max() >= actions:
            raise InputError(f"{file} is damaged: its policy is not one of the sizes it names.")
        return LearntPolicy(policy, actions, about["environment"], float("nan") if value is None else float(value))


def _check_suffix(path: Path) -> None:
    if path.suffix not in (".json", ".npz"):
        raise InputError(f"a policy is kept in a .json or .npz file; {path} is neither.")
