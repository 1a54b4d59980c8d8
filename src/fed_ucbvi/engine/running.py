"""Running an algorithm on a federation, here or on a cluster, and resuming a run from its checkpoint."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from fed_ucbvi.algorithms import AlgorithmLike, as_algorithm
from fed_ucbvi.algorithms.counts import Counts
from fed_ucbvi.core.errors import InputError, check_choice, check_positive_integer
from fed_ucbvi.core.sampling.distributions import MAX_COUNT
from fed_ucbvi.engine.checkpoint import Checkpoint
from fed_ucbvi.engine.drivers.cuda import CUDA
from fed_ucbvi.engine.fleets.simulation import on_ray
from fed_ucbvi.engine.progress import Progress, announce_compilation
from fed_ucbvi.engine.simulation import Caution, Simulation, drive
from fed_ucbvi.engine.warm_start import counts_from
from fed_ucbvi.environments import FederationLike, as_federation
from fed_ucbvi.results.round_record import OnRound
from fed_ucbvi.results.run import Run

FLEETS = ("local", "ray")
"""Where the agents of a run may be."""


def run(
    algorithm: AlgorithmLike,
    federation: FederationLike,
    episodes: int,
    *,
    seed: int = 0,
    driver: str = "auto",
    fleets: str = "local",
    address: str | None = None,
    fleet_count: int | None = None,
    progress: bool | Callable[[Progress], None] = True,
    on_round: OnRound | None = None,
    checkpoint: str | Path | None = None,
    checkpoint_every: int = 100,
    warm_start: Counts | str | Path | None = None,
) -> Run:
    """Run ``algorithm`` on ``federation`` for exactly ``episodes`` episodes per agent.

    Args:
        algorithm: parameters, e.g. ``FedUCBVI(bonus="theory")``; a class or a name stands for the defaults.
        federation: e.g. ``gridworld(agents=20, eps_p=0.1)``; an environment's name, an MDP or a list of MDPs will do.
        episodes: T.
        seed: of trajectories, the initial policy and ties; the same seed gives the same result.
        driver: ``episodes`` (trajectory by trajectory), ``counts`` (exact in law, logarithmic in the length of a
            round), ``auto`` (each where it is faster) or ``cuda`` (the trajectories of ``episodes`` on a GPU, bit for
            bit, for Fed-UCBVI and its kin).
        fleets: where the agents are: ``local``, in this process, or ``ray``, in fleets that are Ray actors, for
            agents that do not fit one machine. Fleets play trajectory by trajectory; the result is that of
            ``driver="episodes"`` in one process, bit for bit, also if nodes of the cluster die in the middle.
        address: of a Ray cluster; by default Ray is started on this machine.
        fleet_count: how many fleets; by default one for each core of the cluster.
        progress: show a bar on a terminal once the run has taken two seconds; or a function to call instead.
        on_round: called after every round with a :class:`~fed_ucbvi.results.round_record.RoundRecord`; what it raises
            ends the run.
        checkpoint: folder to keep the state in, for :func:`resume`.
        checkpoint_every: rounds between two checkpoints.
        warm_start: the counts of an earlier run to start from, the file that holds them, or the checkpoint of that
            run; see :func:`~fed_ucbvi.engine.warm_start.load_counts`.

    Returns:
        The :class:`~fed_ucbvi.results.run.Run`.

    Raises:
        InputError: if something cannot be used.
        Interrupted: on Ctrl-C; carries the partial result.

    >>> from fed_ucbvi import FedUCBVI, run, synthetic
    >>> result = run(FedUCBVI(nu=100), synthetic(agents=2), episodes=50, seed=1)
    >>> result.episodes_played
    50
    """
    algorithm, federation = as_algorithm(algorithm), as_federation(federation)
    announce_compilation()
    every = check_positive_integer("checkpoint_every", checkpoint_every)
    check_choice("place of the fleets", fleets, FLEETS)
    counts = counts_from(warm_start)
    if counts is not None and (fleets == "ray" or driver == CUDA):
        raise InputError(
            "a warm start is for agents in this process; take fleets='local' and another driver than cuda."
        )
    begun: AbstractContextManager[Simulation]
    if fleets == "ray":
        if checkpoint is not None:
            raise InputError("a run whose fleets are on Ray has no checkpoint: its agents are not in one place.")
        begun = on_ray(algorithm, federation, episodes, seed, driver, address=address, count=fleet_count)
    else:
        if address is not None or fleet_count is not None:
            raise InputError("an address and a fleet_count are for fleets on Ray; say fleets='ray' (--fleets ray).")
        if driver == CUDA and checkpoint is not None:
            raise InputError("a run with the driver cuda has no checkpoint: what agents know stays on the GPU.")
        begun = nullcontext(Simulation(algorithm, federation, episodes, seed, driver, counts=counts))
    with begun as simulation:
        store = nullcontext() if checkpoint is None else Checkpoint.create(Path(checkpoint), simulation, every)
        with store as kept:
            for text in algorithm.cautions(simulation.setting):
                warnings.warn(text, Caution, stacklevel=2)
            return drive(simulation, progress, kept, on_round)


def resume(
    folder: str | Path,
    *,
    episodes: int | None = None,
    progress: bool | Callable[[Progress], None] = True,
    on_round: OnRound | None = None,
) -> Run:
    """Resume the run whose checkpoint is in ``folder``; the result equals that of an uninterrupted run.

    Args:
        folder: what ``run(..., checkpoint=folder)`` wrote.
        episodes: T, if there are to be more than planned, also after the end of the run. From here on everything that
            depends on T is computed with the new one. Algorithms for which that is not sound refuse.
        progress: as for :func:`run`.
        on_round: as for :func:`run`.

    Raises:
        InputError: if something cannot be used.
        Interrupted: on Ctrl-C; carries the partial result.
    """
    store, simulation = Checkpoint.open(Path(folder), _more(episodes))
    with store:
        return drive(simulation, progress, store, on_round)


def _more(episodes: int | None) -> int | None:
    return None if episodes is None else check_positive_integer("episodes", episodes, at_most=MAX_COUNT)
