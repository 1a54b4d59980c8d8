"""The counts of an earlier run, from the file that holds them or from the run's checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fed_ucbvi.algorithms import make_algorithm
from fed_ucbvi.algorithms.base import Setting
from fed_ucbvi.algorithms.counts import Counts
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.files import manifest_digest, read_manifest, reading
from fed_ucbvi.engine.checkpoint import FORMAT, Checkpoint
from fed_ucbvi.engine.drivers.live import LiveTables
from fed_ucbvi.engine.going_on import counts_of_run, planned_in
from fed_ucbvi.engine.log import Log
from fed_ucbvi.engine.saved_state import SavedState, named, restore


def counts_from(source: Counts | str | Path | None) -> Counts | None:
    """Counts as a caller may give them."""
    return load_counts(source) if isinstance(source, str | Path) else source


def load_counts(path: str | Path) -> Counts:
    """The counts in a file that :meth:`Counts.save` wrote, or in the checkpoint of a simulation or a live run.

    Counts of a checkpoint are those of its run alone, without those that the run itself was started from; where the
    server keeps one table of all counts, as Fed-KL-UCBVI's does, they are part of it.

    Raises:
        InputError: if there are none, or the run's algorithm keeps none.
    """
    path = Path(path)
    if not path.is_dir():
        return Counts.load(path)
    manifest = read_manifest(path)
    if manifest["format"] != FORMAT:
        raise InputError(
            f"{path} is not the checkpoint of a simulation or a live run. Counts of a server's checkpoint come from "
            "'fed-ucbvi counts DIR --out FILE', if its run exchanged counts (--exchange model)."
        )
    if "live" in manifest:
        with reading(path):
            return _live_counts(manifest, Log(path, manifest_digest(path), durable=False).read())
    store, simulation = Checkpoint.open(path)
    with store:
        return counts_of_run(simulation.algorithm, simulation.setting, simulation.server, simulation.agents)


def _live_counts(manifest: Mapping[str, Any], saved: SavedState) -> Counts:
    """Those of a live run, whose environments are not needed for it."""
    about, algorithm = manifest["live"], make_algorithm(manifest["algorithm"], manifest["parameters"])
    M, S, A, H = (int(about[name]) for name in ("agents", "states", "actions", "horizon"))
    plan = planned_in(saved.about)
    setting = Setting(
        S,
        A,
        H,
        M,
        plan["episodes"],
        about["eps_p"] or 0.0,
        manifest["seed"],
        random_rewards=bool(about.get("random_rewards")),
        grid_bits=plan["grid_bits"],
    )
    server = algorithm.new_server(setting)
    restore(server, saved.arrays, "server.")
    tables = LiveTables(M, H, S, A, counting=algorithm.counting, grid=algorithm.reward_grid(setting))
    if algorithm.keeps_experience:
        tables.remember_all()
    tables.restore(named("seen.", saved.arrays))
    agents = algorithm.new_agents(setting, tables.for_agents())
    restore(agents, saved.arrays, "agents.")
    return counts_of_run(algorithm, setting, server, agents)
