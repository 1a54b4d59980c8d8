"""A verdict is what most seeds say, by a sequential sign test whose error is kept on every population of runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial
from itertools import product
from math import comb

import numpy as np
import pytest
from scipy import stats

from fed_ucbvi import FedUCBVI, chain, run
from fed_ucbvi.core.types import FloatArray
from fed_ucbvi.paper import reproduction, section5, tuned
from fed_ucbvi.paper.experiment import Experiment, RunScale
from fed_ucbvi.paper.judging import BOUNDS, ERROR, LOOKS, Majority, combine, majority
from fed_ucbvi.paper.report.content import Outcome, Verdict
from fed_ucbvi.paper.report.traces import Group, Traces
from fed_ucbvi.paper.reproduction import ReproductionPlan, Runs
from fed_ucbvi.results.statistics import student_interval
from fed_ucbvi.sweeps.job import Job
from fed_ucbvi.sweeps.specification import Sweep
from made_up_runs import group, known, table, verdict_on


def spent(bounds: Sequence[int]) -> list[Fraction]:
    """The probability that yes has reached a bound by each look, where half of all seeds say yes; exact."""
    going = {0: Fraction(1)}
    seen = 0
    total = Fraction(0)
    found = []
    for look, bound in zip(LOOKS, bounds, strict=True):
        reached: Counter[int] = Counter()
        for yes, chance in going.items():
            for further in range(look - seen + 1):
                reached[yes + further] += chance * comb(look - seen, further) / 2 ** (look - seen)
        total += sum(chance for yes, chance in reached.items() if yes >= bound)
        found.append(total)
        going = {yes: Fraction(chance) for yes, chance in reached.items() if look - bound < yes < bound}
        seen = look
    return found


def test_the_bounds_are_the_least_that_spend_their_error() -> None:
    """Exact in fractions; and for the first two looks by enumeration of all 1 024 sequences of answers."""
    allowed = [Fraction(ERROR).limit_denominator() * eighths / 8 for eighths in (5, 6, 7, 8)]
    assert all(one <= most for one, most in zip(spent(BOUNDS), allowed, strict=True))
    for place in range(len(BOUNDS)):
        lower = [bound - (number == place) for number, bound in enumerate(BOUNDS)]
        assert spent(lower)[place] > allowed[place]
    ended = [majority(answers).answer for answers in product([False, True], repeat=10)]
    assert ended.count(True) == ended.count(False) == 1024 * spent(BOUNDS)[1]


def test_seeds_after_a_look_that_decides_do_not_count() -> None:
    assert majority([True] * 5 + [False] * 95) == Majority(True, 5, 5)


def test_four_seeds_are_too_few_to_decide() -> None:
    assert majority([True] * 4).answer is None


@pytest.mark.parametrize(("look", "bound"), list(zip(LOOKS[1:], BOUNDS[1:], strict=True)))
def test_a_look_decides_exactly_at_its_bound(look: int, bound: int) -> None:
    evenly = [True, False] * (look - bound)
    enough = [*evenly, *[True] * (look - len(evenly))]
    opposite = [not answer for answer in enough]
    assert majority(enough) == Majority(True, bound, look)
    assert majority(opposite) == Majority(False, look - bound, look)
    assert majority([*enough[:-1], False]).answer is None


def failing(rng: np.random.Generator) -> FloatArray:
    """One run in twelve fails and costs forty times as much: its mean is four times its median."""
    return rng.lognormal(0, 0.1, 40) * np.where(rng.random(40) < 1 / 12, 40.0, 1.0)


def heavy(rng: np.random.Generator) -> FloatArray:
    """A tail so heavy that there is no mean."""
    return np.asarray(1 + rng.pareto(0.9, 40))


@pytest.fixture(scope="module")
def real() -> FloatArray:
    """Regrets of 80 real runs, of which one in twenty fails, because the bonus is too small."""
    world = chain(agents=2, seed=1)
    algorithm = FedUCBVI(bonus_scale=0.02)
    return np.array([run(algorithm, world, 500, seed=seed, progress=False).regret for seed in range(80)])


@pytest.mark.parametrize("population", ["failing", "heavy", "real"])
def test_wrong_verdicts_stay_at_their_rate_on_skewed_populations(population: str, real: FloatArray) -> None:
    """2 000 experiments with the limit at the median, where half of all seeds say yes: the worst case of both sides.

    A yes and a no are wrong at most 5 % of the time each; allowed are four standard errors more (p < 1e-4). Student's
    interval of the mean, from five of the same runs, misses the mean far more often than its 5 %.
    """
    rng = np.random.default_rng(11)
    draw: Callable[[np.random.Generator], FloatArray] = {
        "failing": failing,
        "heavy": heavy,
        "real": lambda rng: real[rng.integers(len(real), size=40)] * rng.uniform(0.999, 1.001, 40),
    }[population]
    many = np.concatenate([draw(rng) for _ in range(2_000)])
    limit = np.median(many)
    mean = np.mean(many)
    samples = many.reshape(2_000, 40)
    answers = [majority(flags).answer for flags in (samples <= limit).tolist()]
    _, low, high = student_interval(samples[:, :5].T)
    missed = int(((mean < low) | (mean > high)).sum())
    allowed = 2_000 * ERROR + 4 * np.sqrt(2_000 * ERROR * (1 - ERROR))
    assert answers.count(True) <= allowed
    assert answers.count(False) <= allowed
    assert missed > 2 * allowed


def test_about_so_many_seeds_decide_as_are_said_to_be_needed() -> None:
    """A fixed-sample sign test of that size, at 5 %, has a power of 80 % by the binomial law, give or take steps."""
    for yes in (12, 14, 15, 24, 27):
        found = Majority(None, yes, 20 if yes < 20 else 40)
        needed = found.needed
        assert needed is not None
        if needed > found.seeds * 2:
            critical = stats.binom.isf(ERROR, needed, 0.5) + 1
            assert 0.72 < stats.binom.sf(critical - 1, needed, found.yes / found.seeds) < 0.88
    assert Majority(None, 5, 10).needed is None
    assert Majority(None, 8, 10).needed == 20, "the next look, if fewer would do"


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        (["holds", "holds"], "holds"),
        (["holds", "does not hold"], "holds partly"),
        (["does not hold", "does not hold"], "does not hold"),
        (["holds", "undecided"], "undecided"),
        (["holds partly", "undecided"], "holds partly"),
        (["holds", "does not hold", "undecided"], "holds partly"),
        (["undecided", "undecided"], "undecided"),
    ],
)
def test_an_open_environment_counts_where_the_others_leave_it_room(outcomes: list[Outcome], expected: str) -> None:
    assert combine(outcomes) == expected


def compared(own: Sequence[float], other: Sequence[float]) -> Verdict:
    runs = table(
        group("synthetic", "fed-ucbvi", own),
        group("synthetic", "fedq-bernstein", other),
    )
    return known(section5.below(runs))


def test_a_single_failed_run_of_the_other_does_not_make_fed_ucbvi_the_better_one() -> None:
    """Higher in nine of ten seeds; the mean of the other is carried by one bad run."""
    found = compared(
        [22.0, 24.0, 23.0, 29.0, 19.0] * 2,
        [18.0, 19.0, 18.5, 19.5, 17.0, *[18.0] * 4, 310.0],
    )
    assert found.outcome == "does not hold"
    assert "a few runs carry the means" in found.detail
    assert "1 of 10 seeds are below 1" in found.detail
    assert "(by means 0.49)" in found.measured
    assert not found.open


def test_the_line_of_an_open_claim_names_the_seeds_that_would_decide() -> None:
    found = compared([23.0, 20.0, 38.0, 21.0, 15.0], [20.0, 34.0, 16.0, 37.0, 18.0])
    assert found.outcome == "undecided"
    assert "Open: synthetic MDP, M = 20 and εₚ = 0, 0.83 against 1.00, met by 3 of 5 seeds" in found.summary
    assert found.seeds == "5 seeds; about 153 would decide synthetic MDP"
    assert [cell["algorithm"] for cell, _ in found.open][:2] == [
        "fed-ucbvi",
        "fedq-bernstein",
    ]


def test_an_open_figure_near_its_limit_is_at_the_limit() -> None:
    slopes = [-0.84, -0.95, -0.88, -0.97, -0.91]
    runs = [group("gridworld", "fed-ucbvi", [1000 * m**slope for slope in slopes], agents=m) for m in (2, 8, 32)]
    found = verdict_on(section5.INVERSE_SPEED_UP, table(*runs))
    assert found.outcome == "at the limit"


def test_of_a_seed_that_lacks_runs_only_what_they_could_not_change_counts() -> None:
    """Five seeds divided on M = 2; of five more, which have M = 2 only, those that fail there cannot hold."""
    alike = [group("gridworld", "fed-ucbvi", [100.0] * n, agents=M) for M, n in ((2, 10), (5, 5))]
    runs = table(
        *alike,
        group(
            "gridworld",
            "fed-ucbvi",
            [100.0, *[150.0] * 5, 100.0, *[150.0] * 3],
            agents=2,
            eps_p=0.1,
        ),
        group("gridworld", "fed-ucbvi", [100.0] * 5, agents=5, eps_p=0.1),
    )
    found = verdict_on(section5.HETEROGENEITY_EVERY_M, runs)
    assert found.outcome == "undecided"
    assert found.seeds.startswith("6 seeds"), "of the seventh the answer is not known"
    assert {seeds for _, seeds in found.open} == {(6,)}
    assert {cell["agents"] for cell, _ in found.open} == {2, 5}


def test_comparisons_pair_runs_by_seed() -> None:
    """Instances differ fivefold, the two algorithms by a tenth on each: unpaired noise would hide it."""
    scale = [1.0, 3.0, 5.0, 4.0, 2.0]
    own = group("gridworld", "fed-ucbvi", [100 * s for s in scale], eps_p=0.1)
    turned = Group(own.settings, own.seeds[::-1], own.runs[::-1])
    base = group("gridworld", "fed-ucbvi", [91 * s for s in scale])
    found = verdict_on(section5.HETEROGENEITY, table(turned, base))
    assert found.outcome == "holds"


def test_further_seeds_go_to_open_claims_look_by_look_until_decided_or_spent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A claim on the synthetic MDP that four of five seeds meet, and one on GridWorld that all meet."""
    worlds = ("gridworld", "synthetic")

    def judge(runs: Traces) -> list[Verdict]:
        return [verdict_on(section5.HETEROGENEITY_EVERY_M, runs.having(environment=name)) for name in worlds]

    def grids(scale: RunScale) -> list[dict[str, object]]:
        sizes = {"episodes": [9], "agents": [2], "eps_p": [0.0, 0.1]}
        return [scale.grid(["fed-ucbvi"], environments=[name], **sizes) for name in worlds]

    def made(self: Runs, jobs: Sequence[Job]) -> Traces:
        found: dict[tuple[object, float], list[Job]] = {}
        for job in jobs:
            found.setdefault((job.problem.environment, job.problem.eps_p or 0.0), []).append(job)
        groups = []
        for (name, eps_p), several in found.items():
            bad = [name == "synthetic" and eps_p > 0 and job.seed % 5 == 4 for job in several]
            one = group(
                str(name),
                "fed-ucbvi",
                [200.0 if x else 100.0 for x in bad],
                agents=2,
                eps_p=eps_p,
            )
            groups.append(
                Group(
                    several[0].settings,
                    [(("run", job.seed),) for job in several],
                    one.runs,
                )
            )
        return table(*groups)

    monkeypatch.setattr(reproduction, "EXPERIMENTS", {"x": Experiment(grids, judge, lambda *_: None)})  # type: ignore[arg-type]
    monkeypatch.setattr(Runs, "table", made)
    plan = ReproductionPlan(RunScale(), ("x",))

    def places(most: int) -> dict[str, set[tuple[str, int]]]:
        monkeypatch.setattr(reproduction, "MORE_RUNS", most)
        found: dict[str, set[tuple[str, int]]] = {}

        def make(place: str, grids: list[dict[str, object]]) -> None:
            jobs = Sweep(name="x", grids=grids).jobs()
            assert all(job.problem.env_seed == job.seed for job in jobs)
            found[place] = {(str(job.problem.environment), job.seed) for job in jobs}

        Runs(None).jobs(plan, make)  # type: ignore[arg-type]
        return found

    everything = places(500)
    assert everything.pop("sweeps/main") == {(name, seed) for name in worlds for seed in range(5)}
    assert everything == {
        "sweeps/seeds-10": {("synthetic", seed) for seed in range(5, 10)},
        "sweeps/seeds-20": {("synthetic", seed) for seed in range(10, 20)},
    }, "16 of 20 decide"
    assert set(places(10)) == {"sweeps/main", "sweeps/seeds-10"}
    assert set(places(9)) == {"sweeps/main"}


def tried(worst: dict[float, float], algorithm: str = "fed-ucbvi", episodes: int = 1000) -> list[Group]:
    """Tuning runs with these largest regrets by factor, and an evaluation with other seeds."""
    made = partial(group, "gridworld", algorithm)
    runs = [made([most / 2, most], label=f"k = {k:g}", first_seed=1000) for k, most in worst.items()]
    return [*runs, made([5.0, 6.0], label=tuned.BEST, episodes=episodes)]


@pytest.mark.parametrize(
    ("regrets", "edge"),
    [((9.0, 4.0, 8.0), None), ((3.0, 4.0, 8.0), "least"), ((9.0, 4.0, 2.0), "largest")],
)
def test_a_best_factor_at_the_edge_of_the_grid_is_told(regrets: tuple[float, ...], edge: str | None) -> None:
    worst = dict(zip((0.25, 0.5, 1.0), regrets, strict=True))
    runs = tried(worst)
    ((factor, found),) = tuned.best_factors(table(*runs)).values()
    assert found == edge
    text = tuned.tuning_text(table(*runs), ["fed-ucbvi"])
    assert "Tuned on 2 instances (seeds 1000 to 1001), evaluated on 2 others (seeds 0 to 1)." in text
    if edge is None:
        assert "No best k is at the edge." in text
    else:
        shown = f"k = {tuned.factor_text(factor)}, the {edge} tried"
        assert f"At the edge of the grid: Fed-UCBVI on GridWorld ({shown})" in text
    both = table(*runs, *tried(worst, "fedq-advantage"))
    verdict = next(one for one in tuned.EXPERIMENT.judge(both) if "FedQ-Advantage" in one.claim)
    assert text.split(" At the edge")[0].split(" No best")[0] in verdict.detail


def test_tuning_with_a_shorter_t_than_the_evaluation_is_said_beside_the_verdict() -> None:
    worst = {0.25: 9.0, 0.5: 4.0, 1.0: 8.0}
    assert "tuned with T" not in tuned.tuning_text(table(*tried(worst)), ["fed-ucbvi"])
    longer = table(*tried(worst, episodes=9000))
    assert "GridWorld: tuned with T = 1,000, evaluated with T = 9,000." in tuned.tuning_text(longer, ["fed-ucbvi"])


def all_tried(best: dict[tuple[str, str], float]) -> Traces:
    """Tuning runs of all, with the least regret at these factors, and at 1/8 for the rest."""
    runs = []
    for environment, name, k in product(("gridworld", "synthetic"), tuned.TUNED, tuned.FACTORS):
        regret = float(1 + abs(np.log2(k / best.get((environment, name), 0.125))))
        runs.append(group(environment, name, [regret] * 6, label=f"k = {k:g}", first_seed=1000))
    return table(*runs)


def test_the_grid_is_widened_beyond_an_edge_for_those_whose_best_factor_is_there() -> None:
    ends = {
        ("gridworld", "fedq-advantage"): 1.0,
        ("synthetic", "concurrent-ucbvi"): 1 / 64,
    }
    grids = tuned.wider_grids(all_tried(ends), RunScale())
    jobs = [job for grid in grids for job in Sweep(name="t", grids=[grid]).jobs()]
    assert {(job.problem.environment, job.algorithm.name, job.algorithm.label) for job in jobs} == {
        *(("gridworld", "fedq-advantage", f"k = {k:g}") for k in (2, 4, 8, 16)),
        *(("synthetic", "concurrent-ucbvi", f"k = {1 / k:g}") for k in (128, 256, 512, 1024)),
    }
    assert {job.seed for job in jobs} == set(tuned.TUNING_SEEDS)
    assert {job.algorithm.parameters["iota"] for job in jobs if job.algorithm.name == "fedq-advantage"} == {
        4.0,
        16.0,
        64.0,
        256.0,
    }
    assert tuned.wider_grids(all_tried({}), RunScale()) == []
