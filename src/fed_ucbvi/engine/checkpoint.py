"""Checkpoints: everything needed to resume a run as if it had never stopped, or to start another from its counts."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from fed_ucbvi.algorithms import algorithm_name, parameters_of, recorded_algorithm
from fed_ucbvi.algorithms.base import Setting
from fed_ucbvi.algorithms.count_table import CountTable
from fed_ucbvi.core.errors import (
    InputError,
    check_flag,
    check_integer,
    check_number,
    check_positive_integer,
)
from fed_ucbvi.core.files import file_digest, manifest_digest, new_folder, read_manifest, reading, write_manifest
from fed_ucbvi.core.version import __version__
from fed_ucbvi.engine.extension import extended_setting
from fed_ucbvi.engine.live_party import LiveParty
from fed_ucbvi.engine.problems import Problem, SimulatedProblem
from fed_ucbvi.engine.promises import Promises
from fed_ucbvi.engine.simulation import Simulation
from fed_ucbvi.engine.state_arrays import restore
from fed_ucbvi.engine.state_store import StateStore
from fed_ucbvi.problem.units import Units

FORMAT = "fed-ucbvi/checkpoint"
FORMAT_VERSION = 10
COUNTS = "counts.npz"
"""The counts of an earlier run from which this one was started, if it was."""


def create_checkpoint(folder: Path, simulation: Simulation, every: int) -> StateStore:
    """A folder with the problem and the state before the first round; the state is kept every so many rounds."""
    with new_folder(folder, FORMAT) as draft:
        manifest: dict[str, Any] = {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "version": __version__,
            "run": secrets.token_hex(8),
            "algorithm": algorithm_name(simulation.requested),
            "parameters": parameters_of(simulation.requested),
            "driver": simulation.driver_name,
            "every": every,
        }
        manifest.update(simulation.problem.save(draft))
        if simulation.earlier is not None:
            simulation.earlier.save(draft / COUNTS)
            manifest["counts"] = file_digest(draft / COUNTS)
        if simulation.assurance is not None:
            manifest["promises"] = simulation.assurance.promises.to_data()
        write_manifest(draft, manifest)
        StateStore(draft, manifest_digest(draft)).write(simulation.saved())
    return StateStore.open(folder, FORMAT, FORMAT_VERSION)


def open_checkpoint(
    folder: Path, episodes: int | None = None, live: Problem | None = None
) -> tuple[StateStore, Simulation]:
    """A simulation as it was saved, with more ``episodes`` if they are given; nobody else can use the folder then.

    ``live`` are the environments of a live run.
    """
    first_manifest = read_manifest(folder, FORMAT)
    problem: Problem
    if live is None:
        with reading(folder):
            problem = SimulatedProblem.load(folder, first_manifest)
    else:
        problem = live
        problem.check_saved(folder, first_manifest)
    store = StateStore.open(folder, FORMAT, FORMAT_VERSION)
    try:
        with reading(folder):
            manifest = store.manifest
            saved = store.read()
            before = saved_setting(saved.about["setting"])
            algorithm = recorded_algorithm(manifest["algorithm"], manifest["parameters"])
            counts = None
            if "counts" in manifest:
                counts = CountTable.load(_checked(folder / COUNTS, manifest["counts"]))
            promises = Promises.from_data(manifest["promises"]) if "promises" in manifest else None
            begun = partial(Simulation, algorithm, problem, seed=before.seed, counts=counts, promises=promises)
            simulation = begun(episodes=before.episodes, grid_bits=before.grid_bits)
            setting = extended_setting(simulation.algorithm, simulation.setting, episodes or before.episodes)
            longer = setting != simulation.setting
            if longer:
                simulation.close()
                simulation = begun(episodes=setting.episodes, grid_bits=setting.grid_bits)
            simulation.restore(saved)
        if longer:  # saved again, with their number
            store.write(simulation.saved())
    except BaseException:
        store.close()
        raise
    return store, simulation


MAX_NUMBER = (1 << 64) - 1
"""The largest whole number of a setting."""


def saved_setting(data: Mapping[str, Any]) -> Setting:
    """A setting that was saved, checked."""
    setting = Setting(**data)
    for name in ("states", "actions", "horizon", "agents", "episodes"):
        check_positive_integer(name, getattr(setting, name), at_most=MAX_NUMBER)
    for name in ("seed", "grid_bits", "earlier_visits"):
        check_integer(name, getattr(setting, name), at_most=MAX_NUMBER)
    check_number("eps_p", setting.eps_p, at_least=0, at_most=1)
    for name in ("eps_p_known", "random_rewards", "starts_known"):
        check_flag(name, getattr(setting, name))
    return setting


def _checked(path: Path, expected: str) -> Path:
    """A file that has this digest."""
    if file_digest(path) != expected:
        raise InputError(f"{path} is damaged: it is not what was written.")
    return path


def load_counts(path: str | Path, sizes: tuple[int, int, int] | None = None) -> CountTable:
    """The counts in a file that :meth:`CountTable.save` wrote, or in the checkpoint of a simulation or a live run.

    Counts of a checkpoint are those of its run alone, without those that the run itself was started from; where the
    server keeps one table of all counts, as Fed-KL-UCBVI's does, they are part of it. With ``sizes`` (S, A, H), a
    file of counts of another problem is refused before it is unpacked.

    Raises:
        InputError: if there are none, or the run's algorithm keeps none.
    """
    path = Path(path)
    if not path.is_dir():
        return CountTable.load(path, sizes)
    manifest = read_manifest(path)
    if manifest["format"] != FORMAT:
        raise InputError(
            f"{path} is not the checkpoint of a simulation or a live run. Counts of a server's checkpoint come from "
            "'fed-ucbvi counts DIR --out FILE', if its nodes reported counts."
        )
    if "live" in manifest:
        with reading(path):
            saved = StateStore(path, manifest_digest(path)).read()
            algorithm = recorded_algorithm(manifest["algorithm"], manifest["parameters"])
            setting = saved_setting(saved.about["setting"])
            server = algorithm.new_server(setting)
            agents = range(setting.agents)
            restore(server, saved.arrays, "server.")
            party = LiveParty(algorithm, setting, agents, lambda agent: None, Units())  # nothing is played
            party.restore(saved.arrays)
            return algorithm.counts_of(server, party.agents)
    store, simulation = open_checkpoint(path)
    with store:
        return simulation.algorithm.counts_of(simulation.server, simulation.agents)
