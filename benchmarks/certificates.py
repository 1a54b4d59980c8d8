"""Promises and their costs: exploring against an incumbent, and certified gaps.

::

    python benchmarks/certificates.py harm --seeds 200         # GridWorld and shops, a few minutes of one core
    python benchmarks/certificates.py thermostats --seeds 200  # real environments, five minutes
    python benchmarks/certificates.py gaps --seeds 500
    python benchmarks/certificates.py shops --seeds 20         # months until shops are certified
    python benchmarks/certificates.py range --seeds 20         # shops whose owner states what a month can bring
    python benchmarks/certificates.py sepsis --seeds 200 --episodes 500       # needs the package icu-sepsis
    python benchmarks/certificates.py promotion --seeds 5 --episodes 24000    # likewise; half a minute a seed

``docs/certificates.md`` has the tables. Of harm, range, thermostats and sepsis ``--compared`` seeds are also run
without an incumbent, in ``--jobs`` processes; ``--episodes`` are the patients of each hospital.
"""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Callable
from contextlib import closing
from functools import cache, partial, reduce
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np

from fed_ucbvi import (
    CountTable,
    Federation,
    FedKLUCBVI,
    InputError,
    LiveFederation,
    Run,
    best_common_policy,
    counts_from_logs,
    evaluate,
    gridworld,
    make_finite,
    run,
)
from fed_ucbvi.core.types import FloatArray, PolicyArray
from fed_ucbvi.engine.promises import Promises
from fed_ucbvi.engine.regret import Score
from fed_ucbvi.engine.rounds import PlayedRound
from fed_ucbvi.engine.simulation import Simulation
from fed_ucbvi.problem.policies import by_action
from fed_ucbvi.problem.units import Units
from fed_ucbvi.results.policy import as_policy
from fed_ucbvi.results.recommendations import PROMOTION, values_by_agent
from fed_ucbvi.results.round_record import INCUMBENT
from measuring import print_head, print_row, read_options

EXAMPLES = Path(__file__).parent.parent / "examples"
sys.path += [str(EXAMPLES / name) for name in ("five_shops", "thermostats", "sepsis")]
LOSS = 0.05
LOGGED = 500
MONTH = (-300.0, 300.0)
"""Range of a shop's monthly profit, in euro, as its owner would state it."""


class Case(NamedTuple):
    """A problem, what is played today, what that and the best policy are worth in own units, and how to run it."""

    name: str
    incumbent: PolicyArray
    worth: float
    best: float
    units: Units
    stated: tuple[float, float] | None
    horizon: int
    start: Callable[[int, Promises | None, CountTable | None], Simulation]
    value: Callable[[PolicyArray], float]
    """Value of a policy, in own units."""

    def play(
        self, seed: int, policy: PolicyArray | None, counts: CountTable | None = None
    ) -> tuple[Run, list[PolicyArray]]:
        """A run, perhaps from counts of logs, and the incumbent in force in each of its rounds."""
        wanted = None if policy is None else Promises(policy, LOSS, None, return_range=self.stated)
        in_force = []
        with closing(self.start(seed, wanted, counts)) as simulation:
            while not simulation.done:
                assurance = simulation.assurance
                if assurance is not None and assurance.incumbent is not None:
                    in_force.append(assurance.incumbent.policy)
                simulation.advance()
            return simulation.result(), in_force


class PaidOnly(Simulation):
    """A simulation whose rounds are not evaluated exactly: of a round it is known what it paid, as in the real world.

    For sepsis patients that is two thirds of the time.
    """

    def _score(self, policy: PolicyArray, played: PlayedRound, episodes: int, agents: int, playing: int) -> Score:
        visits = played.visits
        assert self.known is not None
        assert visits is not None
        rewards = self.known.rewards
        by_pair = visits if visits.ndim == 4 else visits[..., None] * by_action(policy, self.setting.actions)
        paid = float((by_pair * rewards).sum()) / agents
        return Score(regret=float("nan"), reward=paid, value=float("nan"))


def simulated(
    name: str,
    world: Federation,
    incumbent: PolicyArray,
    episodes: int,
    stated: tuple[float, float] | None = None,
    growth: float = 0.0,
) -> Case:
    """A case whose tables are known."""
    units = Units.of(world.description)
    H = world.horizon

    def value(policy: PolicyArray) -> float:
        return units.original_return(float(values_by_agent(world, policy).mean()), H)

    def start(seed: int, promises: Promises | None, counts: CountTable | None) -> Simulation:
        algorithm = FedKLUCBVI(stationary=True, min_round_growth=growth)
        return PaidOnly(algorithm, world, episodes, seed, "auto", promises=promises, counts=counts)

    best = best_common_policy(world).value.lower
    return Case(name, incumbent, value(incumbent), best, units, stated, H, start, value)


def shop_cases(suffix: str = "", stated: tuple[float, float] | None = None) -> list[Case]:
    """Five shops; ``stated`` is what their owner says that a month can bring, whatever is ordered."""
    import compare_shops
    from shops import shops

    rules = ("the best rule", compare_shops.rule(3, 5)), ("the rule 'order 3 at 3'", compare_shops.rule(3, 3))
    return [simulated(f"five shops, {name}{suffix}", shops(), rule, 1000, stated) for name, rule in rules]


def cases() -> list[Case]:
    grid = gridworld(agents=20)
    best = grid.common.solve().policy
    rng = np.random.default_rng(0)
    bad = np.where(rng.random(best.shape) < 0.3, rng.integers(0, 4, best.shape), best).astype(np.int32)
    policies = ("the best policy", best), ("a bad policy", bad)
    return [*(simulated(f"GridWorld, {name}", grid, policy, 1000) for name, policy in policies), *shop_cases()]


def thermostats() -> list[Case]:
    """Four houses; what they do today is a thermostat, as a table over the bins."""
    from compare_thermostats import bins_of, usual
    from houses import HOUSES, make

    bins = bins_of()
    sizes = bins.horizon, bins.states + 1, bins.number_of_actions  # one state more, for what terminates
    table = as_policy(usual(bins), *sizes, ends=True)
    fleet = LiveFederation(lambda i: make_finite(make(i), bins), len(HOUSES), bins.horizon, bins.reward_range)

    def value(policy: PolicyArray) -> float:
        return evaluate(policy, fleet, 1000, seed=12345).mean

    def start(seed: int, promises: Promises | None, counts: CountTable | None) -> Simulation:
        return Simulation(FedKLUCBVI(), fleet, 400, seed, counts=counts, promises=promises)

    about = fleet.units, None, bins.horizon, start, value
    return [Case("thermostats", table, value(table), float("nan"), *about)]


def sepsis(patients: int) -> list[Case]:
    """Ten hospitals that are alike, without logs; today is the clinicians' policy. A patient pays 0 or 1."""
    from fed_ucbvi import clinicians_policy, icu_sepsis

    name = f"ICU-Sepsis, clinicians, {patients:,} patients a hospital"
    world = icu_sepsis(agents=10)
    today = as_policy(clinicians_policy, world.horizon, world.states, world.actions, name="clinicians")
    return [simulated(name, world, today, patients, (0.0, 1.0), growth=0.1)]


def shares(case: Case, result: Run, in_force: list[PolicyArray]) -> tuple[FloatArray, float]:
    """Cost of exploring after each round, as a share of the incumbents' values; and the share of exploring.

    An episode is compared with the incumbent of its round, by its true value; a promoted policy is one.
    """
    records = result.records
    known = {policy.tobytes(): policy for policy in in_force}
    values = {case.incumbent.tobytes(): case.worth}
    values |= {name: case.value(policy) for name, policy in known.items() if name not in values}
    worth = np.array([values[policy.tobytes()] for policy in in_force])
    exploring = records["playing"] != INCUMBENT
    n = records["agent_episodes"]
    own = records["reward"] * records["agents"]
    cost = np.cumsum(np.where(exploring, n * worth - own, 0.0)) / np.cumsum(n * np.abs(worth))
    return cost, float(n[exploring].sum() / n.sum())


class Outcome(NamedTuple):
    """Measurements of one seed of a case; ``paid`` is empty for seeds that are not compared."""

    largest_cost: float
    explored: float
    explores_after: float
    promoted: bool
    paid: tuple[float, ...]


@cache
def made(what: str, episodes: int) -> list[Case]:
    """The cases of a table; every process makes them once."""
    logging.getLogger("fed_ucbvi.environments").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    return sepsis(episodes) if what == "sepsis" else HARM[what]()


def outcome(what: str, episodes: int, number: int, compared: int, seed: int) -> Outcome:
    """One seed of a case, with and without its incumbent."""
    case = made(what, episodes)[number]
    result, in_force = case.play(seed, case.incumbent)
    cost, share = shares(case, result, in_force)
    begins = result.records["start"][result.records["playing"] != INCUMBENT]
    promoted = any(one.kind == PROMOTION for one in result.certificates)
    paid = (*earned(case, result), *earned(case, case.play(seed, None)[0])) if seed < compared else ()
    print(f"{case.name}, seed {seed}: largest cost {cost.max():.4f}", file=sys.stderr, flush=True)
    return Outcome(float(cost.max()), share, begins[0] if len(begins) else np.inf, promoted, paid)


def harm(what: str, episodes: int, seeds: int, compared: int, jobs: int) -> None:
    """The table of what exploring costs; so many seeds are also run without an incumbent."""
    heads = ["incumbent", "worth", "best", "broken", "largest cost", "explored", "promoted", "paid", "without"]
    print_head(*heads, "first tenth", "without", "explores after")
    with get_context("spawn").Pool(jobs) as processes:
        for number, case in enumerate(made(what, episodes)):
            found = processes.map(partial(outcome, what, episodes, number, compared), range(seeds), chunksize=1)
            costs, shares, after, promoted, paid = zip(*found, strict=True)
            own, early, without, early_without = np.array([one for one in paid if one]).mean(axis=0)
            row = [f"{case.worth:.4g}", f"{case.best:.4g}", f"{sum(cost > LOSS for cost in costs)} of {seeds}"]
            row += [f"{max(costs):.3f}", f"{np.mean(shares):.2f}", f"{sum(promoted)} of {seeds}"]
            row += [f"{money:.4g}" for money in (own, without, early, early_without)]
            print_row(case.name, *row, f"{np.median(after):.0f}")


def earned(case: Case, result: Run) -> tuple[float, float]:
    """Mean reward of an episode, in own units: over all episodes, and over the first tenth."""
    ends = result.round_ends
    paid = np.cumsum(result.records["reward"])
    tenth = 0.1 * ends[-1]
    first = float(np.interp(tenth, np.append(0, ends), np.append(0, paid))) / tenth
    return float(paid[-1] / ends[-1]), first


def gaps(seeds: int) -> None:
    print_head("", "certified", "of them true", "worst true gap", "episodes, median")
    grid = gridworld(agents=20)
    best = float(grid.common.initial @ grid.common.solve().V[0])
    for name, stationary, gap, most in (
        ("GridWorld, gap 0.4, stationary", True, 0.4, 3000),
        ("GridWorld, gap 1, by step", False, 1.0, 6000),
    ):
        true = 0
        worst = 0.0
        lengths = []
        for seed in range(seeds):
            result = run(FedKLUCBVI(stationary=stationary), grid, most, seed=seed, until_gap=gap, progress=False)
            one = result.certificate
            if one is not None and one.gap <= gap:
                worst = max(worst, best - result.value)
                held = best - result.value <= one.gap and one.at_least <= result.value and best <= one.compared_with
                true += bool(held)
                lengths.append(result.episodes_played)
        print_row(name, f"{len(lengths)} of {seeds}", true, f"{worst:.3f}", f"{np.median(lengths):,.0f}")


def months(seeds: int) -> None:
    """Months until shops are certified within 5 % of the best shared policy."""
    import compare_shops
    from shops import shops

    fleet = shops()
    best = best_common_policy(fleet).value.lower
    print_head("seed", "months", "at least", "best at most", "true", "by the model at least")
    for seed in range(seeds):
        result = run(FedKLUCBVI(stationary=True), fleet, 20_000, seed=seed, until_gap=0.05 * best, progress=False)
        one = result.certificate
        bounds = () if one is None else (one.at_least, one.compared_with, one.model_at_least)
        least, most, model = [f"{bound:.1f}" for bound in bounds] or "---"
        true = compare_shops.worth(result.policy, fleet)
        print_row(seed, f"{result.episodes_played:,}", least, most, f"{true:.1f}", model)


HARM: dict[str, Callable[[], list[Case]]] = {
    "harm": cases,
    "range": partial(shop_cases, f", {MONTH}", MONTH),
    "thermostats": thermostats,
}


def promotion(seeds: int, patients: int) -> None:
    """Patients per hospital until a policy is certified better than the clinicians' own."""
    from hospitals import write_logs

    from fed_ucbvi import icu_sepsis

    (case,), world = sepsis(patients), icu_sepsis(agents=10)
    sizes = world.states, world.actions, world.horizon
    with TemporaryDirectory() as folder:
        files = write_logs(Path(folder), world.common, world.agents, LOGGED)
        logs = reduce(CountTable.merge, (counts_from_logs(file, sizes, stationary=True) for file in files))
    heads = ("at least", "clinicians at most", "worth")
    print_head("logs", "seed", "patients a hospital", "episodes of the policy", *heads)
    for name, counts in (("yes", logs), ("no", None)):
        for seed in range(seeds):
            result, in_force = case.play(seed, case.incumbent, counts)
            found = [one for one in result.certificates if one.kind == PROMOTION]
            figures = [f"none in {patients:,}", "", "", "", ""]
            if found:
                one = found[0]
                after = next(p for p in in_force if not np.array_equal(p, case.incumbent))
                figures = [f"{one.played:,}", f"{one.episodes:,}"]
                figures += [f"{value:.4f}" for value in (one.at_least, one.compared_with, case.value(after))]
            print_row(name, seed, *figures)


def main() -> None:
    whats = [*HARM, "sepsis", "promotion", "gaps", "shops"]
    options = read_options(__doc__, whats, seeds=20, compared=20, episodes=500, jobs=1)
    logging.getLogger("fed_ucbvi.environments").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    if min(options.seeds, options.compared, options.jobs) < 1:
        raise InputError("at least one seed and one process are needed.")
    if options.what == "gaps":
        gaps(options.seeds)
    elif options.what == "shops":
        months(options.seeds)
    elif options.what == "promotion":
        promotion(options.seeds, options.episodes)
    else:
        harm(options.what, options.episodes, options.seeds, options.compared, options.jobs)


if __name__ == "__main__":
    main()
