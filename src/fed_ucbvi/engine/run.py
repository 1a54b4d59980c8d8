"""Running an algorithm on a federation, here or on a cluster, or on live environments; resuming a run.

And playing a policy alone, to say what it is worth with a guarantee that needs no model.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from pathlib import Path

from fed_ucbvi.algorithms import AlgorithmLike, as_algorithm
from fed_ucbvi.algorithms.count_table import CountTable
from fed_ucbvi.algorithms.return_bounds import Interval, interval_of
from fed_ucbvi.core.errors import InputError, check_choice, check_integer, check_number, check_positive_integer
from fed_ucbvi.core.limits import MAX_COUNT, MAX_SEED
from fed_ucbvi.engine.checkpoint import create_checkpoint, load_counts, open_checkpoint
from fed_ucbvi.engine.live import LiveFederation
from fed_ucbvi.engine.problems import Problem, as_problem
from fed_ucbvi.engine.progress import announce_compilation
from fed_ucbvi.engine.promises import Promises, checked_range, stated_range
from fed_ucbvi.engine.simulation import Caution, Simulation, drive
from fed_ucbvi.engine.state_store import StateStore
from fed_ucbvi.environments import FederationLike, as_federation
from fed_ucbvi.results.policy import PolicyLike, as_policy
from fed_ucbvi.results.round_record import OnRound
from fed_ucbvi.results.run import Run

FLEETS = ("local", "ray")
"""Where the agents of a run may be."""


def run(
    algorithm: AlgorithmLike,
    federation: FederationLike | LiveFederation,
    episodes: int,
    *,
    seed: int = 0,
    score_with: FederationLike | None = None,
    driver: str = "auto",
    fleets: str = "local",
    address: str | None = None,
    fleet_count: int | None = None,
    progress: bool | OnRound = True,
    on_round: OnRound | None = None,
    checkpoint: str | Path | None = None,
    checkpoint_every: int = 100,
    warm_start: CountTable | str | Path | None = None,
    incumbent: PolicyLike | None = None,
    loss: float | None = None,
    until_gap: float | None = None,
    return_range: Sequence[float] | None = None,
) -> Run:
    """Run ``algorithm`` on ``federation`` for exactly ``episodes`` episodes per agent.

    Args:
        algorithm: parameters, e.g. ``FedUCBVI(bonus="theory")``; a class or a name stands for the defaults.
        federation: e.g. ``gridworld(agents=20, eps_p=0.1)``; an environment's name, an MDP or a list of MDPs will do.
            Or live environments, a :class:`~fed_ucbvi.engine.live.LiveFederation`: regret and values are then unknown
            (NaN, ``null`` in JSON) unless ``score_with`` is given.
        episodes: T.
        seed: of trajectories, the initial policy and ties; the same seed gives the same result. Live environments are
            seeded from ``(seed, agent)``, once, at their first reset.
        score_with: for live environments, the same problem as a table, as :func:`from_gymnasium` makes it, to compute
            regret with; agents never see it. A table of one's own need not have the state that is added to the
            environments' states for what terminates.
        driver: ``episodes`` (trajectory by trajectory), ``counts`` (exact in law, logarithmic in the length of a
            round), ``auto`` (each where it is faster) or ``cuda`` (the trajectories of ``episodes`` on a GPU, bit for
            bit, for Fed-UCBVI and its variants).
        fleets: where the agents are: ``local``, in this process, or ``ray``, in fleets that are Ray actors, for
            agents that do not fit one machine. Fleets play trajectory by trajectory; the result is that of
            ``driver="episodes"`` in one process, bit for bit, also if nodes of the cluster die in the middle.
        address: of a Ray cluster; by default Ray is started on this machine.
        fleet_count: how many fleets; by default one for each core of the cluster.
        progress: show a bar on a terminal once the run has taken two seconds; or a function to call instead.
        on_round: called after every round with a :class:`~fed_ucbvi.results.round_record.RoundRecord`; what it raises
            ends the run.
        checkpoint: folder to keep the state in, for :func:`resume`.
        checkpoint_every: rounds between two checkpoints; what real environments have played since the last one is
            lost when a run is killed.
        warm_start: the counts of an earlier run to start from, the file that holds them, or the checkpoint of that
            run; see :func:`~fed_ucbvi.engine.checkpoint.load_counts`.
        incumbent: the policy that is played today: actions, integers ``(S,)`` or ``(H, S)``; probabilities of
            actions, floats ``(S, A)`` or ``(H, S, A)``; sets of equally good actions, truth values of these shapes; a
            learnt policy; or a function of step and state that gives an action or a row of a table. What exploring
            costs against it stays below ``loss``, with probability 0.95, and a policy that is better is promoted with
            a certificate; see docs/certificates.md.
        loss: what exploring may cost, as a share of what the incumbent earns (or costs); 0.05 by default. With 0 the
            run never explores: it plays the incumbent only, and certifies the interval of its value.
        until_gap: end once the recommended policy is certified to be worth no less than the best minus this, in the
            environment's own units; at the latest after ``episodes``.
        return_range: between which the return of every episode lies, whatever is played, in the environment's own
            units. A narrower range than rewards allow makes intervals narrower and exploring cheaper to promise; an
            episode outside ends the run with an error.

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
    algorithm = as_algorithm(algorithm)
    announce_compilation()
    check_choice("place of the fleets", fleets, FLEETS)
    every = check_positive_integer("checkpoint_every", checkpoint_every)
    problem = _chosen_problem(federation, driver, fleets, score_with, address=address, fleet_count=fleet_count)
    sizes = problem.sizes if problem.horizon else None
    counts = load_counts(warm_start, sizes) if isinstance(warm_start, str | Path) else warm_start
    promises = Promises.of(
        incumbent,
        loss,
        until_gap,
        (problem.horizon, problem.states, problem.actions),
        terminates=problem.terminates,
        return_range=return_range,
    )
    if counts is not None or promises is not None:
        problem.check_policies_change()
    if checkpoint is not None:
        problem.check_checkpoint()
    simulation = Simulation(algorithm, problem, episodes, seed, counts=counts, promises=promises)
    with closing(simulation), _checkpoint_of(simulation, checkpoint, every) as store:
        for text in algorithm.cautions(simulation.setting):
            warnings.warn(text, Caution, stacklevel=2)
        return drive(simulation, progress, store, on_round)


def _chosen_problem(
    given: FederationLike | LiveFederation,
    driver: str,
    fleets: str,
    score_with: FederationLike | None,
    *,
    address: str | None,
    fleet_count: int | None,
) -> Problem:
    """The problem of a run, with its agents in this process or in fleets on Ray."""
    if fleets == "local":
        if address is not None or fleet_count is not None:
            raise InputError("an address and a fleet_count are for fleets on Ray; pass fleets='ray' (--fleets ray).")
        return as_problem(given, driver, score_with)
    if isinstance(given, LiveFederation):
        raise InputError("live environments are played in this process, by a driver of their own; name no other.")
    from fed_ucbvi.engine.ray_fleets import RayProblem

    return RayProblem(as_federation(given), driver, address=address, fleet_count=fleet_count)


def _checkpoint_of(
    simulation: Simulation, folder: str | Path | None, every: int
) -> AbstractContextManager[StateStore | None]:
    """The checkpoint that a run keeps; a context without one if no folder is given."""
    if folder is None:
        return nullcontext()
    return create_checkpoint(Path(folder), simulation, every)


def resume(
    folder: str | Path,
    live: LiveFederation | None = None,
    *,
    episodes: int | None = None,
    score_with: FederationLike | None = None,
    progress: bool | OnRound = True,
    on_round: OnRound | None = None,
) -> Run:
    """Resume the run whose checkpoint is in ``folder``; the result equals that of an uninterrupted run.

    Live environments are not in a checkpoint. They are made anew, and each is seeded at its first reset from (seed,
    agent, number of the episode), so that it does not show again what has been seen. Where an episode depends on
    nothing but its number, the result is that of an uninterrupted run; elsewhere it is another run of the same law.

    Args:
        folder: what ``run(..., checkpoint=folder)`` wrote.
        live: the environments of a live run: same sizes, description, reward_range and eps_p as then.
        episodes: T, if there are to be more than planned, also after the end of the run. From here on everything that
            depends on T is computed with the new one. Algorithms for which that is not sound refuse.
        score_with: the table of a live run, if there was one.
        progress: as for :func:`run`.
        on_round: as for :func:`run`.

    Raises:
        InputError: if something cannot be used, such as environments other than those of the checkpoint.
        Interrupted: on Ctrl-C; carries the partial result.
    """
    T = None if episodes is None else check_positive_integer("episodes", episodes, at_most=MAX_COUNT)
    problem = None if live is None else as_problem(live, score_with=score_with)
    store, simulation = open_checkpoint(Path(folder), T, problem)
    with closing(simulation), store:
        return drive(simulation, progress, store, on_round)


def evaluate(
    policy: PolicyLike,
    where: FederationLike | LiveFederation,
    episodes: int,
    *,
    delta: float = 0.05,
    seed: int = 0,
    return_range: Sequence[float] | None = None,
) -> Interval:
    """Let every agent play ``policy`` for some episodes; the interval of its value, in the environment's own units.

    The value is the mean over agents, each in its own environment. The interval holds with probability ``1 - delta``,
    also if one goes on until one likes what one sees. Nothing is assumed but that episodes are drawn alike: the
    states need not be enough to tell the future. A run with this policy as its ``incumbent`` and ``loss=0`` gives the
    same interval for ``delta=0.05``. It can have a checkpoint, and over the network the data stay with the nodes.

    Args:
        policy: in any of the forms that :func:`run` takes an incumbent in; a learnt policy is a
            :class:`~fed_ucbvi.results.policy.LearntPolicy`.
        where: a federation, or whatever :func:`fed_ucbvi.run` takes for one; or live environments.
        episodes: how many each agent plays.
        delta: the probability that the value lies outside.
        return_range: between which the return of every episode lies, in own units, if that is narrower than what
            rewards allow; a return outside is an error.
        seed: of the episodes. Those that a policy was learnt from are not to be used again: take another seed.

    >>> from fed_ucbvi import evaluate, gridworld
    >>> interval = evaluate(lambda step, state: 1, gridworld(agents=4), episodes=500)
    >>> interval.lower <= interval.mean <= interval.upper
    True
    """
    n = check_positive_integer("episodes", episodes)
    root = check_integer("seed", seed, at_most=MAX_SEED)
    delta = check_number("delta", delta, above=0, below=1)
    stated = checked_range(return_range)
    problem = as_problem(where)
    units = problem.units
    H = problem.horizon
    limits = None if stated is None else stated_range(stated, units, H)
    played = as_policy(policy, H, problem.states, problem.actions, name="the policy", ends=problem.terminates)
    histogram = problem.returns(played, n, root, limits)
    low = 0.0 if limits is None else limits[0]
    high = float(H) if limits is None else limits[1]
    interval = interval_of(histogram, high, delta, low)
    return interval._replace(
        lower=units.original_return(interval.lower, H),
        upper=units.original_return(interval.upper, H),
        mean=units.original_return(interval.mean, H),
    )
