"""Made-up runs, as analyses see them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from fed_ucbvi.core.types import FloatArray
from fed_ucbvi.paper import section5
from fed_ucbvi.paper.judging import Claim
from fed_ucbvi.paper.report.content import Verdict
from fed_ucbvi.paper.report.traces import Group, Trace, Traces
from fed_ucbvi.results.about import About, label_of

T = 1000


def trace(
    algorithm: str,
    agents: int,
    eps_p: float,
    regret: float,
    rounds: int,
    *,
    seed: int = 0,
    fired: int = 0,
    curve: Callable[[FloatArray], FloatArray] | None = None,
) -> Trace:
    """A run that ends with this regret after this many rounds; its regret grows like a root unless said."""
    points = np.linspace(0, T, 101)
    shape = np.sqrt(points / T) if curve is None else curve(points / T)
    about = About(
        algorithm=algorithm, parameters={"delta": 0.05}, rules=("local", "global"), environment={"name": "gridworld"},
        agents=agents, states=8, actions=4, horizon=10, episodes=T, eps_p=eps_p, eps_r=0.0, seed=seed, driver="auto",
        facts={}, cautions=(), optimal_value=4.0, versions={},
    )  # fmt: skip
    ends = (regret * shape, rounds * points / T, points)
    return Trace(about, regret, rounds, 8, 8, {"global": fired}, points, *ends, f"{regret}")


def group(
    environment: str,
    algorithm: str,
    regrets: Sequence[float],
    *,
    agents: int = 20,
    eps_p: float = 0.0,
    rounds: int = 9,
    label: str = "",
    first_seed: int = 0,
    fired: int = 0,
    episodes: int = T,
    curve: Callable[[FloatArray], FloatArray] | None = None,
) -> Group:
    """Runs with these regrets, seeds from ``first_seed`` on."""
    settings = {
        "environment": environment,
        "algorithm": algorithm,
        "label": label or label_of(algorithm),
    }
    settings |= {"agents": agents, "eps_p": eps_p, "episodes": episodes}  # type: ignore[dict-item]
    seeds = range(first_seed, first_seed + len(regrets))
    runs = [
        trace(
            algorithm,
            agents,
            eps_p,
            regret,
            rounds,
            seed=seed,
            fired=fired,
            curve=curve,
        )
        for seed, regret in zip(seeds, regrets, strict=True)
    ]
    return Group(settings, [(("run", seed),) for seed in seeds], runs)


def table(*groups: Group) -> Traces:
    return Traces(groups, {})


def known(verdict: Verdict | None) -> Verdict:
    assert verdict is not None
    return verdict


def verdict_on(claim: Claim, runs: Traces) -> Verdict:
    """The verdict on one of the claims of Section 5."""
    (found,) = [verdict for verdict in section5.EXPERIMENT.judge(runs) if verdict.name == claim.name]
    return found
