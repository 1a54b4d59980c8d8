"""Ten hospitals, patients with sepsis: logs, a plan from logs, then learning that does no harm. See docs/sepsis.md.

    python examples/sepsis/hospitals.py             # in one process: about a minute and a half of processor time
    python examples/sepsis/hospitals.py --network   # ten hospitals as processes: logs stay with them, sums are masked

A benchmark (ICU-Sepsis, package icu-sepsis), and no medical advice.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import polars as pl

from fed_ucbvi import (
    MDP,
    CountTable,
    FedKLUCBVI,
    FloatArray,
    IndexArray,
    Run,
    clinicians_policy,
    counts_from_logs,
    icu_sepsis,
    load_counts,
    plan_from_counts,
    run,
)
from fed_ucbvi.environments.sepsis import sepsis_tables

COLUMNS = ("episode", "step", "state", "action", "reward", "next_state")
NEXT_STATES = 213
"""No pair of the benchmark has more."""


def write_logs(folder: Path, mdp: MDP, hospitals: int, patients: int, seed: int = 0) -> list[Path]:
    """One Parquet file for each hospital: patients under the clinicians' rule, up to the end of their stay."""
    start = np.cumsum(mdp.initial)
    rule = np.cumsum(sepsis_tables().clinicians, axis=1)
    successors = mdp.kernel.successors[0]
    chances = np.cumsum(mdp.kernel.probabilities[0], axis=2)
    S = mdp.states
    H = mdp.horizon
    files = []

    def draw(cumulated: FloatArray) -> int:
        return int(min(np.searchsorted(cumulated, rng.random() * cumulated[-1], side="right"), len(cumulated) - 1))

    for hospital in range(hospitals):
        rng = np.random.default_rng((seed, hospital))
        rows = []
        for patient in range(patients):
            state = draw(start)
            for step in range(H):
                action = draw(rule[state])
                after = int(successors[state, action, draw(chances[state, action])])
                rows.append((f"patient {patient}", step, state, action, mdp.rewards[0, state, action], after))
                state = after
                if state == S - 1:
                    break
        files.append(folder / f"hospital-{hospital}.parquet")
        pl.DataFrame(rows, schema=COLUMNS, orient="row").write_parquet(files[-1])
    return files


def over_the_network(folder: Path, hospitals: int, patients: int, loss: float) -> Run:
    """A server and the hospitals, each a process with its own log; the server learns sums over all hospitals."""
    sizes = ("--agents", str(hospitals), "--nodes", str(hospitals), "--episodes", str(patients))
    algorithm = ("--algorithm", "fed-kl-ucbvi", "--option", "stationary=true", "--option", "min_round_growth=0.1")
    today = ("--incumbent", "fed_ucbvi:clinicians_policy", "--loss", str(loss), "--return-range", "0,1")
    files = ("--logs", str(folder / "hospital-{}.parquet"), "--out", str(folder / "run"), "--overwrite")
    command = ["federate", "--env", "icu_sepsis", *sizes, *algorithm, *today, "--secure-sums", *files]
    subprocess.run([sys.executable, "-m", "fed_ucbvi", *command], check=True)
    return Run.load(folder / "run")


def tell(what: str, learnt: Run, today: float) -> None:
    """What was played, what exploring has cost in patients, and what was certified."""
    frame = learnt.to_frame()
    played = frame.group_by("playing", maintain_order=True).agg(pl.col("length").sum()).rows()
    print(f"{what}, patients of each hospital: {played}; {learnt.certificates or 'nothing was promoted'}")
    tried = frame.filter(pl.col("playing") != "incumbent")
    M = learnt.about.agents
    cost = M * (int(tried["length"].sum()) * today - float(tried["reward"].sum()))
    bounds = f"at most {frame['cost'][-1]:.1f} was known, {frame['allowed'][-1]:.1f} allowed"
    print(f"  exploring cost {cost:.1f} patients ({bounds}); {learnt.rounds} rounds")


def main() -> None:
    """Write logs, plan from them, learn online with and without them, and say what each policy is really worth."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hospitals", type=int, default=10)
    parser.add_argument("--logged", type=int, default=500, help="patients in each hospital's log")
    parser.add_argument("--online", type=int, default=2000, help="patients of each hospital afterwards")
    parser.add_argument(
        "--loss", type=float, default=0.05, help="what exploring may cost, of what clinicians achieve"
    )
    parser.add_argument("--network", action="store_true", help="hospitals are processes, with secure sums")
    parser.add_argument("--folder", type=Path, default=Path("sepsis"))
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    world = icu_sepsis(agents=options.hospitals)
    mdp = world.common
    clinicians = np.broadcast_to(sepsis_tables().clinicians, (mdp.horizon, mdp.states, mdp.actions))
    sizes = (mdp.states, mdp.actions, mdp.horizon)

    def told(what: str, policy: IndexArray | FloatArray) -> float:
        worth = float(mdp.initial @ mdp.evaluate(policy)[0])
        print(f"{what}: worth {worth:.4f}", flush=True)
        return worth

    print(f"best policy: worth {float(mdp.initial @ mdp.solve().V[0]):.4f}")
    today = told("clinicians", clinicians)
    began = time.process_time()
    pooled = CountTable.empty(1, mdp.states, mdp.actions)
    files = write_logs(options.folder, mdp, options.hospitals, options.logged)
    if options.network:
        made = over_the_network(options.folder, options.hospitals, options.online, options.loss)
        print(f"{made.rounds} rounds, {(made.bytes_up + made.bytes_down) / 1e6:,.0f} MB, {made.wall_seconds:.0f} s")
        tell("with secure sums and logs", made, today)
        told("recommended by a federation with secure sums and logs", made.policy)
        return
    for file in files:
        pooled = pooled.merge(counts_from_logs(file, sizes, stationary=True))  # what a hospital would send: integers
    pooled.save(options.folder / "logs.npz")
    plan = plan_from_counts(pooled, mdp.horizon, support=NEXT_STATES)
    lower, upper = plan.bounds(mdp.initial)
    print(
        f"logs: {int(pooled.visits.sum()):,} visits; they guarantee {lower:.2g}, and the best has at most {upper:.4g}"
    )
    told("plan from logs alone", plan.policy)
    algorithm = FedKLUCBVI(stationary=True, min_round_growth=0.1)
    for what, start in (("without logs", None), ("with logs", pooled)):
        kept = options.folder / what.replace(" ", "-")
        learnt = run(
            algorithm,
            world,
            options.online,
            incumbent=clinicians_policy,
            loss=options.loss,
            return_range=(0, 1),
            warm_start=start,
            checkpoint=kept,
        )
        tell(what, learnt, today)
        told(f"  recommended {what}", learnt.policy)
        everything = plan_from_counts(load_counts(kept), mdp.horizon, support=NEXT_STATES)
        told(f"  plan from all counts {what}", everything.policy)
    print(f"{time.process_time() - began:.0f} s of processor time")


if __name__ == "__main__":
    main()
