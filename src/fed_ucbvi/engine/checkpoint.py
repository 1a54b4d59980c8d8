"""Checkpoints: everything needed to go on with a run as if it had never stopped."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from fed_ucbvi.algorithms import algorithm_name, make_algorithm, parameters_of
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.files import check_version, new_file, new_folder, read_manifest, reading, write_manifest
from fed_ucbvi.engine.simulation import Simulation
from fed_ucbvi.environments import current_name
from fed_ucbvi.problem.federation import Federation
from fed_ucbvi.results.recommendations import COLUMNS as RECOMMENDATIONS
from fed_ucbvi.results.recommendations import table_of
from fed_ucbvi.results.records import COLUMNS, rows_of

FORMAT = "fed-ucbvi/checkpoint"
FORMAT_VERSION = 4
FEDERATION, STATE = "federation.npz", "state.npz"

LiveT = TypeVar("LiveT", bound=Simulation)


@dataclass(frozen=True)
class Checkpoint:
    """A folder with the problem, written once, and the state, replaced every so many rounds.

    The problem of a live run is out there and cannot be written; what identifies it is in the manifest instead.
    """

    folder: Path
    every: int

    @classmethod
    def create(cls, folder: Path, simulation: Simulation, every: int) -> Checkpoint:
        """Write the problem and the state before the first round."""
        setting, live = simulation.setting, simulation.identity()
        with new_folder(folder, FORMAT) as draft:
            if live is None:
                simulation.federation.save(draft / FEDERATION)
            _write_state(draft / STATE, simulation)
            write_manifest(
                draft,
                {
                    "format": FORMAT,
                    "format_version": FORMAT_VERSION,
                    "algorithm": algorithm_name(simulation.requested),
                    "parameters": parameters_of(simulation.requested),
                    "episodes": setting.episodes,
                    "seed": setting.seed,
                    "driver": simulation.driver_name,
                    "every": every,
                    **({} if live is None else {"live": live}),
                },
            )
        return cls(folder, every)

    def write(self, simulation: Simulation) -> None:
        """Replace the state."""
        with new_file(self.folder / STATE) as draft:
            _write_state(draft, simulation)

    @classmethod
    def open(cls, folder: Path) -> tuple[Checkpoint, Simulation]:
        """Read a checkpoint back into a simulation."""
        manifest = cls._manifest(folder, live=False)
        with reading(folder):
            simulation = Simulation(
                make_algorithm(manifest["algorithm"], manifest["parameters"]),
                Federation.load(folder / FEDERATION),
                manifest["episodes"],
                manifest["seed"],
                manifest["driver"],
            )
            return cls._go_on(folder, manifest, simulation)

    @classmethod
    def open_live(cls, folder: Path, simulate: Callable[..., LiveT]) -> tuple[Checkpoint, LiveT]:
        """Read a checkpoint back into the live run that ``simulate(algorithm, episodes, seed)`` gives."""
        manifest = cls._manifest(folder, live=True)
        with reading(folder):
            algorithm = make_algorithm(manifest["algorithm"], manifest["parameters"])
            simulation = simulate(algorithm, manifest["episodes"], manifest["seed"])
            was = {**manifest["live"], "name": current_name(manifest["live"]["name"])}
            _check_same(folder, was, simulation.identity() or {})
            return cls._go_on(folder, manifest, simulation)

    @staticmethod
    def _manifest(folder: Path, *, live: bool) -> dict[str, Any]:
        manifest = read_manifest(folder, FORMAT)
        check_version(folder, manifest, FORMAT_VERSION)
        if live and "live" not in manifest:
            raise InputError(f"{folder} is the checkpoint of a simulation; go on with it by resume({str(folder)!r}).")
        if not live and "live" in manifest:
            raise InputError(
                f"{folder} is the checkpoint of a live run, which needs its environments: go on with it in Python by "
                f"resume_live({str(folder)!r}, environments)."
            )
        return manifest

    @classmethod
    def _go_on(cls, folder: Path, manifest: dict[str, Any], simulation: LiveT) -> tuple[Checkpoint, LiveT]:
        _read_state(folder / STATE, simulation)
        return cls(folder, int(manifest["every"])), simulation


def _check_same(folder: Path, was: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Raise unless two live problems are told apart by nothing."""
    for key in (*was, *now):
        if was.get(key) != now.get(key):
            raise InputError(
                f"{folder} holds a run on other environments: {key} was {was.get(key)}, and is {now.get(key)} now."
            )


def _write_state(path: Path, simulation: Simulation) -> None:
    arrays = {f"server.{name}": array for name, array in simulation.server.arrays().items()}
    arrays |= {f"agents.{name}": array for name, array in simulation.agents.arrays().items()}
    arrays |= {f"records.{name}": array for name, array in simulation.records().items()}
    arrays |= {f"recommendations.{name}": array for name, array in table_of(simulation.recommendations).items()}
    arrays |= {f"more.{name}": array for name, array in simulation.more_arrays().items()}
    with path.open("wb") as file:
        np.savez(file, seconds=np.array(simulation.seconds), clock=simulation.clock, **arrays)


def _read_state(path: Path, simulation: Simulation) -> None:
    with path.open("rb") as file, np.load(file, allow_pickle=False) as data:
        more = {name.removeprefix("more."): data[name] for name in data.files if name.startswith("more.")}
        simulation.restore_more(more)
        for side, state in (("server", simulation.server), ("agents", simulation.agents)):
            for name, array in state.arrays().items():
                np.copyto(array, data[f"{side}.{name}"])
        columns = {name: data[f"records.{name}"] for name in COLUMNS}
        recommended = {name: data[f"recommendations.{name}"] for name in RECOMMENDATIONS}
        simulation.seconds = float(data["seconds"])
        simulation.set_clock(data["clock"])
    simulation.restore_rows(rows_of(columns), rows_of(recommended))
