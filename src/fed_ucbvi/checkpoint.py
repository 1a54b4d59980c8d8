"""Checkpoints: everything needed to go on with a run as if it had never stopped."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from fed_ucbvi.algorithms import make_algorithm, parameters_of
from fed_ucbvi.files import check_version, new_file, new_folder, read_manifest, reading, write_manifest
from fed_ucbvi.problem.federation import Federation
from fed_ucbvi.problem.kernel import Kernel
from fed_ucbvi.problem.liars import Liars
from fed_ucbvi.problem.mdp import MDP
from fed_ucbvi.results.records import COLUMNS
from fed_ucbvi.results.run import Run
from fed_ucbvi.simulation import Progress, Simulation, drive

FORMAT = "fed-ucbvi/checkpoint"
FORMAT_VERSION = 3
FEDERATION, STATE = "federation.npz", "state.npz"


@dataclass(frozen=True)
class Checkpoint:
    """A folder with the problem, written once, and the state, replaced every so many rounds."""

    folder: Path
    every: int

    @classmethod
    def create(cls, folder: Path, simulation: Simulation, every: int) -> Checkpoint:
        """Write the problem and the state before the first round."""
        setting = simulation.setting
        with new_folder(folder, FORMAT) as draft:
            write_federation(draft / FEDERATION, simulation.federation)
            _write_state(draft / STATE, simulation)
            write_manifest(
                draft,
                {
                    "format": FORMAT,
                    "format_version": FORMAT_VERSION,
                    "algorithm": simulation.algorithm.name,
                    "parameters": parameters_of(simulation.algorithm),
                    "episodes": setting.episodes,
                    "seed": setting.seed,
                    "driver": simulation.driver_name,
                    "every": every,
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
        manifest = read_manifest(folder, FORMAT)
        check_version(folder, manifest, FORMAT_VERSION)
        with reading(folder):
            simulation = Simulation(
                make_algorithm(manifest["algorithm"], manifest["parameters"]),
                read_federation(folder / FEDERATION),
                manifest["episodes"],
                manifest["seed"],
                manifest["driver"],
            )
            _read_state(folder / STATE, simulation)
            return cls(folder, int(manifest["every"])), simulation


def resume(folder: str | Path, *, progress: bool | Callable[[Progress], None] = True) -> Run:
    """Go on with the run whose checkpoint is in ``folder``; the result equals that of an uninterrupted run."""
    store, simulation = Checkpoint.open(Path(folder))
    return drive(simulation, progress, store)


def write_federation(path: Path, federation: Federation) -> None:
    """Write a federation to one ``.npz`` file."""
    common = federation.common
    with path.open("wb") as file:
        np.savez_compressed(
            file,
            successors=federation.successors,
            probabilities=federation.probabilities,
            rewards=federation.rewards,
            initial=federation.initial,
            common_successors=common.kernel.successors,
            common_probabilities=common.kernel.probabilities,
            common_rewards=common.rewards,
            common_initial=common.initial,
            numbers=np.array([federation.eps_p, federation.eps_r]),
            horizon=np.array(federation.horizon),
            text=np.array(
                json.dumps(
                    {
                        "description": federation.description,
                        "layout": federation.layout,
                        "liars": None if federation.liars is None else asdict(federation.liars),
                    }
                )
            ),
        )


def read_federation(path: Path) -> Federation:
    """Read back what :func:`write_federation` wrote, to the last bit."""
    with path.open("rb") as file, np.load(file, allow_pickle=False) as data:
        text = json.loads(str(data["text"]))
        tables = {}
        for name in ("successors", "probabilities", "rewards", "initial"):
            tables[name] = data[name]
            tables[name].setflags(write=False)
        common = MDP(
            Kernel(data["common_successors"], data["common_probabilities"]),
            data["common_rewards"],
            data["common_initial"],
            int(data["horizon"]),
        )
        liars = text["liars"]
        eps_p, eps_r = (float(x) for x in data["numbers"])
    return Federation(
        **tables,
        common=common,
        eps_p=eps_p,
        eps_r=eps_r,
        description=text["description"],
        layout=text["layout"],
        liars=None if liars is None else Liars(tuple(liars["agents"]), liars["attack"], liars["seed"]),
    )


def _write_state(path: Path, simulation: Simulation) -> None:
    arrays = {f"server.{name}": array for name, array in simulation.server.arrays().items()}
    arrays |= {f"agents.{name}": array for name, array in simulation.agents.arrays().items()}
    arrays |= {f"records.{name}": array for name, array in simulation.records().items()}
    with path.open("wb") as file:
        np.savez(file, seconds=np.array(simulation.seconds), clock=simulation.clock, **arrays)


def _read_state(path: Path, simulation: Simulation) -> None:
    with path.open("rb") as file, np.load(file, allow_pickle=False) as data:
        for side, state in (("server", simulation.server), ("agents", simulation.agents)):
            for name, array in state.arrays().items():
                np.copyto(array, data[f"{side}.{name}"])
        columns = {name: data[f"records.{name}"] for name in COLUMNS}
        simulation.seconds = float(data["seconds"])
        simulation.set_clock(data["clock"])
    simulation.rows = [tuple(row) for row in zip(*(column.tolist() for column in columns.values()), strict=True)]
    simulation.rounds = int((columns["askers"] > 0).sum())
    simulation.regret = 0.0
    for regret in columns["regret"].tolist():
        simulation.regret += regret
