"""Tuning: one number for each algorithm, a factor on its bonus, chosen on separate instances.

*The grid*: each algorithm's bonus is multiplied by each of the same seven factors, 1/64 to 1. Where the best factor
is the least or the largest of the seven, four more are tried beyond it. If the best is still at the edge of what was
tried, :func:`tuning_text` says so.

*The rule*: take the factor whose largest regret over the tuning instances is smallest. With too small a bonus some
runs keep a bad policy for ever. A mean over a few short runs does not show what this costs later; the largest regret
does.

*What is tuned*: FedQ-Bernstein has a second constant, from how many samples on its variance is used; 1000 in the
paper's experiments, it is 10 here for all factors, in its favour. FedQ-Advantage's bonus is proportional to the root
of iota, so a factor k is iota = k^2. In Concurrent UCBVI the factor applies to ``sqrt(1/N)`` but not to ``(H-h)/N``,
which it always has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from fed_ucbvi.paper.scale import Scale
from fed_ucbvi.paper.seed_groups import Key, SeedGroups, environments, having, seed_groups_of
from fed_ucbvi.paper.traces import Pair
from fed_ucbvi.results.style import label_of

EPS_P = (0.0, 0.1)
ALIKE_ONLY = ("concurrent-ucbvi", "fedq-hoeffding")
"""Run only with identical agents; the algorithms of the paper's figures also run with different agents."""
FACTORS = tuple(2.0**power for power in range(-6, 1))
QUICK_FACTORS = (0.25, 1.0)
FURTHER = 4
"""How many more factors are tried beyond an edge of the grid, each twice or half the one before."""
TUNING_SEEDS = tuple(range(1000, 1006))
"""Seeds of runs and instances for tuning alone."""
TUNING_EPISODES = 3_000
"""T of tuning runs, or that of the experiment if it is shorter."""
TUNED: dict[str, tuple[str, Callable[[float], dict[str, Any]]]] = {
    "fed-ucbvi": ("bonus_scale = k", lambda k: {"bonus_scale": k}),
    "concurrent-ucbvi": ("scale = k", lambda k: {"scale": k}),
    "fedq-hoeffding": ("c = 2k", lambda k: {"c": 2 * k}),
    "fedq-bernstein": (
        "c = c_bernstein = 2k, bernstein_after = 10",
        lambda k: {"c": 2 * k, "c_bernstein": 2 * k, "bernstein_after": 10},
    ),
    "fedq-advantage": ("iota = k²", lambda k: {"iota": k * k}),
}
"""What is tuned: the parameters for a factor k, by algorithm."""
RECOMMENDED = "fed-kl-ucbvi"
PAPER, BEST, UNTUNED = "as in the paper", "tuned", "nothing tuned"


def grids(scale: Scale) -> list[dict[str, Any]]:
    """Every factor on the tuning instances, and the constants of the paper's experiments on the others."""
    untuned = [
        scale.grid([{"name": name, "label": PAPER}], eps_p=EPS_P[:1] if name in ALIKE_ONLY else EPS_P)
        for name in TUNED
    ]
    factors = dict.fromkeys(TUNED, QUICK_FACTORS if scale.quick else FACTORS)
    proved = scale.grid([{"name": RECOMMENDED, "label": UNTUNED}], eps_p=EPS_P)
    return [_tuning_grid(scale, list(scale.episodes), factors), *untuned, proved]


def _tuning_grid(scale: Scale, environments: Sequence[str], factors: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """Each algorithm with each of its factors on the tuning instances."""
    tried = [
        {"name": name, "label": _trial(factor), **TUNED[name][1](factor)}
        for name, several in factors.items()
        for factor in several
    ]
    shorter = {name: min(scale.episodes[name], TUNING_EPISODES) for name in environments}
    seeds = list(TUNING_SEEDS[: 2 if scale.quick else None])
    return scale.grid(tried, seeds=seeds, environments=list(environments), episodes=shorter)


def wider_grids(pairs: Sequence[Pair], scale: Scale) -> list[dict[str, Any]]:
    """More factors beyond the edge of the grid, for algorithms whose best is at the edge; none if ``quick``."""
    if scale.quick:
        return []
    found = []
    for (environment, name), (factor, edge) in best_factors(seed_groups_of(pairs)).items():
        if edge is not None:
            step = 0.5 if edge == "least" else 2.0
            beyond = [factor * step**k for k in range(1, FURTHER + 1)]
            found.append(_tuning_grid(scale, [environment], {name: beyond}))
    return found


def tuned_grids(pairs: Sequence[Pair], scale: Scale) -> list[dict[str, Any]]:
    """Runs with the best factor of each algorithm on the instances of the other experiments."""
    found = []
    for (environment, name), (factor, _) in best_factors(seed_groups_of(pairs)).items():
        _, parameters = TUNED[name]
        best = {"name": name, "label": BEST, **parameters(factor)}
        episodes = {environment: scale.episodes[environment]}
        eps_p = EPS_P[:1] if name in ALIKE_ONLY else EPS_P
        found.append(scale.grid([best], environments=[environment], episodes=episodes, eps_p=eps_p))
    return found


def _trial(factor: float) -> str:
    return f"k = {factor:g}"


def trials(seed_groups: SeedGroups, environment: str, algorithm: str) -> SeedGroups:
    """The groups of an algorithm's tuning runs by label, in ascending order of the factor."""
    group = having(seed_groups, environment=environment, algorithm=algorithm)
    chosen = {key: replicates for key, replicates in group.items() if _is_trial(key)}
    return dict(sorted(chosen.items(), key=lambda item: factor_of(item[0])))


def _is_trial(key: Key) -> bool:
    return key.label.startswith("k = ")


def factor_of(key: Key) -> float:
    """The factor of a group of tuning runs."""
    return float(key.label.removeprefix("k = "))


class Best(NamedTuple):
    """A factor, and whether it is the ``least`` or the ``largest`` that was tried (None if neither)."""

    factor: float
    edge: str | None


def best_factors(seed_groups: SeedGroups) -> dict[tuple[str, str], Best]:
    """The factor whose largest regret on the tuning instances is smallest, by environment and algorithm.

    Of factors that do equally well the largest is taken.
    """
    best = {}
    for environment in environments(seed_groups):
        for name in TUNED:
            worst = {
                factor_of(key): max(run.regret for run in replicates)
                for key, replicates in trials(seed_groups, environment, name).items()
            }
            if worst:
                factor = min(worst, key=lambda factor: (worst[factor], -factor))
                edge = "least" if factor == min(worst) else "largest" if factor == max(worst) else None
                best[environment, name] = Best(factor, edge if len(worst) > 1 else None)
    return best


def tuning_text(seed_groups: SeedGroups, algorithms: Sequence[str]) -> str:
    """How these algorithms were tuned, for a verdict: on which instances, and whether a best factor is at an edge."""
    tuning = {run.about.seed for key, replicates in seed_groups.items() if _is_trial(key) for run in replicates}
    evaluation = {
        run.about.seed for key, replicates in seed_groups.items() if key.label == BEST for run in replicates
    }
    if not tuning or not evaluation:
        return ""
    text = (
        f"Tuned on {len(tuning)} instances (seeds {min(tuning)} to {max(tuning)}), evaluated on {len(evaluation)} "
        f"{'others' if tuning.isdisjoint(evaluation) else 'that are not all others'} (seeds {min(evaluation)} to "
        f"{max(evaluation)})."
    )
    for environment in environments(seed_groups):
        group = having(seed_groups, environment=environment)
        short = max((key.episodes for key in group if _is_trial(key)), default=0)
        long = max((key.episodes for key in group if key.label == BEST), default=0)
        if 0 < short < long:
            text += f" {label_of(environment)}: tuned with T = {short:,}, evaluated with T = {long:,}."
    best = {key: one for key, one in best_factors(seed_groups).items() if key[1] in algorithms}
    edges = [
        f"{label_of(name)} on {label_of(environment)} (k = {factor_text(factor)}, the {edge} tried)"
        for (environment, name), (factor, edge) in best.items()
        if edge is not None
    ]
    return text + (f" At the edge of the grid: {', '.join(edges)}." if edges else " No best k is at the edge.")


def factor_text(factor: float) -> str:
    """A factor, as a fraction where it is below one.

    >>> factor_text(0.25), factor_text(2.0)
    ('1/4', '2')
    """
    return f"1/{1 / factor:g}" if factor < 1 else f"{factor:g}"
