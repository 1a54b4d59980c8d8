"""``fed-ucbvi run``, ``resume`` and ``counts``: one run of one algorithm on one environment."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fed_ucbvi
from fed_ucbvi.command_line import outputs
from fed_ucbvi.command_line.flags import OUTPUT, PROBLEM, low_and_high
from fed_ucbvi.command_line.options import CODE, JSON, Output, argument, fields, load_code, option
from fed_ucbvi.command_line.outputs import check_kept, finish, finish_trackers, print_result, tracking
from fed_ucbvi.command_line.pages import page_of_run
from fed_ucbvi.command_line.program import interruptible
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.files import MANIFEST, read_manifest
from fed_ucbvi.core.plugins import Registry, is_attribute, load_attribute
from fed_ucbvi.problem.units import Units
from fed_ucbvi.specifications.algorithm import AlgorithmSpec
from fed_ucbvi.specifications.fields import check_field
from fed_ucbvi.specifications.problem import ProblemSpec
from fed_ucbvi.specifications.run import RunOptions

if TYPE_CHECKING:
    from fed_ucbvi.algorithms.count_table import CountTable
    from fed_ucbvi.results.policy import PolicyLike

LOGS = "Logs"
COUNT_READERS = "fed_ucbvi.count_readers"
TABLES = "environment agents eps_p env_seed environment_options"
"""The fields of a problem whose tables are known."""


def run(
    problem: ProblemSpec = fields(f"{TABLES} liars attack"),
    algorithm: AlgorithmSpec = fields("name parameters"),
    options: RunOptions = fields(),
    output: Output = fields("track track_every dashboard as_json quiet"),
) -> None:
    """Run a federated algorithm and print its regret and communication.

    With --fleets ray the agents are on a Ray cluster; the result is that of --driver episodes, bit for bit.
    With --incumbent and --loss 0 the run only watches: it plays the incumbent throughout and bounds its value.
    Ctrl-C ends the run early; with --out the result so far is saved. 'fed-ucbvi algorithms NAME' lists the parameters
    that --option sets, 'fed-ucbvi environments NAME' those of --env-option.
    """
    from fed_ucbvi.results.run_data import CallbackList

    made = algorithm.make()
    check_kept(options, new_checkpoint=True)
    federation = problem.make_federation()
    with (
        interruptible() as interruption,
        outputs.plain_warnings(),
        tracking(output) as trackers,
        page_of_run(output, made, federation, seed=options.seed, driver=options.driver) as page,
    ):
        listeners = CallbackList(*trackers, page)
        try:
            with outputs.others_on_standard_error() if options.fleets == "ray" else nullcontext():
                result = fed_ucbvi.run(
                    made,
                    federation,
                    options.episodes,
                    seed=options.seed,
                    driver=options.driver,
                    fleets=options.fleets,
                    address=options.address,
                    fleet_count=options.fleet_count,
                    warm_start=None if options.warm_start is None else counts_at(options.warm_start),
                    incumbent=None if options.incumbent is None else incumbent_at(options.incumbent),
                    loss=options.loss,
                    until_gap=options.until_gap,
                    return_range=options.return_range,
                    checkpoint=options.checkpoint,
                    checkpoint_every=options.checkpoint_every,
                    progress=not output.quiet,
                    on_round=listeners or None,
                )
        except fed_ucbvi.Interrupted as stop:
            result = stop.partial
        interruption.saving()
        if page is not None:
            page.finish(result)
        try:
            finish(result, options, output)
        finally:
            finish_trackers(trackers, result)


def resume(
    options: RunOptions = fields("out overwrite"),
    output: Output = fields("dashboard as_json quiet"),
    folder: Path = argument("DIR", "A checkpoint of 'run --checkpoint DIR'."),
    episodes: int | None = option(
        None,
        "T",
        "Episodes per agent, if there are to be more than planned.",
        panel=PROBLEM,
    ),
    code: list[str] | None = CODE,
) -> None:
    """Resume an interrupted run; the result equals that of a run that was never interrupted.

    With --episodes it is extended beyond what was planned, also after its end, for algorithms that allow it.
    """
    from fed_ucbvi.engine.checkpoint import open_checkpoint
    from fed_ucbvi.engine.simulation import drive

    load_code(code)
    options = replace(options, checkpoint=folder)
    check_kept(options)
    with interruptible() as interruption:
        planned = None if episodes is None else check_field(RunOptions, "episodes", episodes)
        store, simulation = open_checkpoint(folder, planned)
        assert simulation.known is not None, "live runs are continued in Python"
        shown = page_of_run(output, simulation.requested, simulation.known)
        with closing(simulation), store, shown as page:
            if page is not None:
                page.take_earlier(simulation)
            try:
                result = drive(simulation, not output.quiet, store, page)
            except fed_ucbvi.Interrupted as stop:
                result = stop.partial
            interruption.saving()
            if page is not None:
                page.finish(result)
            finish(result, options, output)


def counts(
    problem: ProblemSpec = fields(
        "sizes random_rewards",
        sizes={"help": "With --from-logs: states, actions and steps.", "panel": LOGS},
        random_rewards={
            "help": "With --from-logs: rewards depend on chance or on the next state, or are fixed.",
            "default": "fixed",
            "panel": LOGS,
        },
    ),
    folder: Path | None = argument(
        "DIR",
        "The checkpoint of a run, a live run, or a server that was sent counts.",
        None,
    ),
    out: Path = option(..., "FILE.npz", "File to write the counts to; it is replaced.", panel=OUTPUT),
    from_logs: Path | None = option(
        None,
        "FILE",
        "Instead of DIR: a log of episodes, .csv or .parquet.",
        panel=LOGS,
    ),
    reward_range: str = option("0,1", "LOW,HIGH", "Between which every logged reward lies.", panel=LOGS),
    over_all_steps: bool = option(False, "", "Count over all steps together, not by step.", panel=LOGS),
    plan: Path | None = option(
        None,
        "FILE",
        "Also the policy with the best guaranteed value, .json; it is replaced.",
        panel=OUTPUT,
    ),
    code: list[str] | None = CODE,
    as_json: bool = JSON,
) -> None:
    """Write what the agents of a run have counted, or what a log holds, to a file for --warm-start.

    A log has the columns episode, step, state, action, reward and next_state. That whoever acted knew more than the
    logged state (confounding) is not detected.
    """
    from fed_ucbvi.results.policy import LearntPolicy

    load_code(code)
    rewards = low_and_high("--reward-range", reward_range)
    if (folder is None) == (from_logs is None):
        raise InputError("pass either DIR, the checkpoint of a run, or --from-logs FILE.")
    if from_logs is None:
        found = counts_at(folder or Path())
    elif problem.sizes is None:
        raise InputError("logs do not say how many states, actions and steps there are: pass --sizes S,A,H.")
    else:
        how = {"stationary": over_all_steps, "random_rewards": bool(problem.random_rewards)}
        found = fed_ucbvi.counts_from_logs(from_logs, problem.sizes, reward_range=rewards, **how)
    planned: dict[str, Any] | None = None
    if plan is not None:
        horizon = None if problem.sizes is None else problem.sizes[2]
        made = fed_ucbvi.plan_from_counts(
            found,
            horizon,
            reward_range=rewards,
            random_rewards=bool(problem.random_rewards),
        )
        about = {"name": "logs", **Units.spanning(*rewards).description()}
        LearntPolicy(made.policy, found.visits.shape[2], about, float("nan")).save(plan)
        planned = made.summary()
    found.save(out)
    steps, S, A = found.visits.shape
    visits = int(found.visits.sum())
    content: dict[str, Any] = {"counts": str(out), "steps": steps, "states": S, "actions": A, "visits": visits}
    content["most_visits"] = found.most
    counted = f"by step, H = {steps}" if steps > 1 else "over all steps together"
    lines = [f"{visits:,} visits, at most {found.most:,} to one cell, S = {S}, A = {A}, counted {counted}: {out}"]
    if planned is not None:
        content["plan"] = {"policy": str(plan), **planned}
        lines += [
            f"a policy worth at least {planned['best_lower_bound']:.4g} from its best first state: {plan}",
            f"the best action is certain at {planned['certain']:,} of {planned['seen']:,} steps and states seen",
        ]
    print_result(as_json, content, *lines)


def incumbent_at(name: str) -> PolicyLike:
    """The policy in a file or a saved run, or what ``module:attribute`` names."""
    if not is_attribute(name) or Path(name).exists():
        return fed_ucbvi.load_policy(name)
    policy: PolicyLike = load_attribute(name)
    return policy


def counts_at(path: Path) -> CountTable:
    """The counts in a file or in any kind of checkpoint.

    Readers of the checkpoints of other packages are entry points of the group :data:`COUNT_READERS`, by the format
    that the manifest names.
    """
    if (path / MANIFEST).is_file():
        format_name = str(read_manifest(path)["format"])
        readers = Registry({}, COUNT_READERS)
        if format_name in readers:
            read: Callable[[Path], CountTable] = readers[format_name]
            return read(path)
    return fed_ucbvi.load_counts(path)
