"""Checkpoints: everything needed to resume a run as if it had never stopped."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from fed_ucbvi.algorithms import algorithm_name, make_algorithm, parameters_of
from fed_ucbvi.algorithms.base import Algorithm
from fed_ucbvi.algorithms.counts import Counts
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.files import check_version, manifest_digest, new_folder, read_manifest, reading, write_manifest
from fed_ucbvi.core.version import __version__
from fed_ucbvi.engine.going_on import grown, planned_in
from fed_ucbvi.engine.lock import FolderLock
from fed_ucbvi.engine.log import Log
from fed_ucbvi.engine.simulation import Simulation
from fed_ucbvi.environments import current_name
from fed_ucbvi.problem.federation import Federation

FORMAT = "fed-ucbvi/checkpoint"
FORMAT_VERSION = 6
FEDERATION = "federation.npz"
COUNTS = "counts.npz"
"""The counts of an earlier run from which this one was started, if it was."""

SimulationT = TypeVar("SimulationT", bound=Simulation)


class Checkpoint:
    """A folder with the problem, written once, and the log of the state, which grows every few rounds.

    The environments of a live run cannot be written to a file. The manifest has what identifies them instead. No
    other process can use the folder until the checkpoint is closed.
    """

    def __init__(self, folder: Path, *, live: bool) -> None:
        self.folder, self.manifest = folder, _manifest(folder, live=live)
        with reading(folder):
            self.every = int(self.manifest["every"])
        self._lock = FolderLock(folder)
        try:
            self._log = Log(folder, manifest_digest(folder), durable=False)
        except BaseException:
            self.close()
            raise

    @classmethod
    def create(cls, folder: Path, simulation: Simulation, every: int) -> Checkpoint:
        """Write the problem and the state before the first round."""
        setting, live = simulation.setting, simulation.identity()
        problem: dict[str, Any] = {"live": live}
        with new_folder(folder, FORMAT) as draft:
            if live is None:
                simulation.federation.save(draft / FEDERATION)
                problem = {"federation": _digest(draft / FEDERATION)}
            if simulation.earlier is not None:
                simulation.earlier.counts.save(draft / COUNTS)
                problem["counts"] = _digest(draft / COUNTS)
            write_manifest(
                draft,
                {
                    "format": FORMAT,
                    "format_version": FORMAT_VERSION,
                    "version": __version__,
                    "run": secrets.token_hex(8),
                    "algorithm": algorithm_name(simulation.requested),
                    "parameters": parameters_of(simulation.requested),
                    "episodes": setting.episodes,
                    "seed": setting.seed,
                    "driver": simulation.driver_name,
                    "every": every,
                    **problem,
                },
            )
            Log(draft, manifest_digest(draft), durable=False).write(simulation.saved())
        return cls(folder, live=live is not None)

    def write(self, simulation: Simulation) -> None:
        """Add the state to the log."""
        self._log.write(simulation.saved())

    def close(self) -> None:
        """Release the folder."""
        self._lock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @classmethod
    def open(cls, folder: Path, episodes: int | None = None) -> tuple[Checkpoint, Simulation]:
        """Read a checkpoint back into a simulation, of more ``episodes`` than before if they are given."""

        def simulate(algorithm: Algorithm[Any, Any], manifest: Mapping[str, Any], **rest: Any) -> Simulation:
            _check_digest(folder / FEDERATION, manifest["federation"])
            federation = Federation.load(folder / FEDERATION)
            return Simulation(algorithm, federation, seed=manifest["seed"], driver=manifest["driver"], **rest)

        return cls._go_on(folder, simulate, episodes, live=False)

    @classmethod
    def open_live(
        cls, folder: Path, make: Callable[..., SimulationT], episodes: int | None = None
    ) -> tuple[Checkpoint, SimulationT]:
        """Read a checkpoint back into the live run that ``make(algorithm, episodes=, seed=, ...)`` gives."""

        def simulate(algorithm: Algorithm[Any, Any], manifest: Mapping[str, Any], **rest: Any) -> SimulationT:
            simulation = make(algorithm, seed=manifest["seed"], **rest)
            was = {**manifest["live"], "name": current_name(manifest["live"]["name"])}
            _check_same(folder, was, simulation.identity() or {})
            return simulation

        return cls._go_on(folder, simulate, episodes, live=True)

    @classmethod
    def _go_on(
        cls, folder: Path, simulate: Callable[..., SimulationT], episodes: int | None, *, live: bool
    ) -> tuple[Checkpoint, SimulationT]:
        """The simulation as it was saved; one that is to have more episodes is saved again, with their number."""
        store = cls(folder, live=live)
        try:
            with reading(folder):
                manifest, saved = store.manifest, store._log.read()
                algorithm = make_algorithm(manifest["algorithm"], manifest["parameters"])
                plan = planned_in(saved.about)
                rest = {"grid_bits": plan["grid_bits"], "counts": _counts_in(folder, manifest)}
                simulation = simulate(algorithm, manifest, episodes=plan["episodes"], **rest)
                setting = grown(simulation.algorithm, simulation.setting, episodes=episodes)
                longer = setting != simulation.setting
                if longer:
                    simulation.close()
                    rest["grid_bits"] = setting.grid_bits
                    simulation = simulate(algorithm, manifest, episodes=setting.episodes, **rest)
                simulation.restore(saved)
            if longer:
                store.write(simulation)
        except BaseException:
            store.close()
            raise
        return store, simulation


def _manifest(folder: Path, *, live: bool) -> dict[str, Any]:
    """The manifest of a checkpoint of this kind."""
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


def _counts_in(folder: Path, manifest: Mapping[str, Any]) -> Counts | None:
    """The counts that a run was started from, if it was."""
    if "counts" not in manifest:
        return None
    _check_digest(folder / COUNTS, manifest["counts"])
    return Counts.load(folder / COUNTS)


def _check_digest(path: Path, expected: str) -> None:
    if _digest(path) != expected:
        raise InputError(f"{path} is damaged: it is not what was written.")


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _check_same(folder: Path, was: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Raise if two live problems differ in anything that identifies them."""
    for key in (*was, *now):
        if was.get(key) != now.get(key):
            raise InputError(
                f"{folder} holds a run on other environments: {key} was {was.get(key)}, and is {now.get(key)} now."
            )
