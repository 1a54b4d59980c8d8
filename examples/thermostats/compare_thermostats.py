"""What four houses pay for heat and discomfort with what they learn together, beside the best thermostat.

    python examples/thermostats/compare_thermostats.py --seeds 3 --out docs/thermostats.png
    python examples/thermostats/compare_thermostats.py --keep-the-rule   # what learning costs, with a promise
    python examples/thermostats/compare_thermostats.py --judge houses-run --bins bins.json   # a run over the network

The houses learn with bins. Every policy is then played in the true, continuous houses, on the same days.
"""

from __future__ import annotations

import argparse
import itertools
import json
import logging
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from houses import HOUSES, STEPS, BangBang, House, hour_of, is_day, make

from fed_ucbvi import Bins, Caution, FedKLUCBVI, LiveFederation, Run, learn_bins, make_finite, run
from fed_ucbvi.charts.axes import draw_curve, set_scales, set_texts
from fed_ucbvi.charts.figures import Panels, figure_style, new_panels, set_heading
from fed_ucbvi.core.colours import BLACK, BLUE
from fed_ucbvi.core.types import FloatArray, IndexArray
from fed_ucbvi.environments.bins import Edges

LENGTHS = (50, 100, 200, 400, 800)
JUDGED = 10_000
TUNED = 20_000
"""Seeds of the first day on which policies are compared, and on which the rule's settings are chosen."""


def bins_of(house: int = 1) -> Bins:
    """Learnt from twenty days in one house, with random heating."""
    counts = {"inside": 10, "outside": 2}
    return learn_bins(make(house), bins_per_dimension=counts, actions_per_dimension=3, horizon=STEPS, margin=0.5)


def cost_of_rule(rule: BangBang, days: int, first: int) -> FloatArray:
    """Euro for each house and day."""
    costs = np.zeros((len(HOUSES), days))
    for house, day in np.ndindex(*costs.shape):
        env: House = make(house)
        env.reset(seed=first + day)
        rule.heating = False
        costs[house, day] = -sum(env.step(rule.act(env))[1] for _ in range(STEPS))
    return costs


def cost_of_policy(policy: IndexArray, bins: Bins, days: int, first: int) -> FloatArray:
    """The same for a policy ``(H, S)``."""
    costs = np.zeros((len(HOUSES), days))
    for house, day in np.ndindex(*costs.shape):
        true = make(house)
        env = make_finite(true, bins)
        state, _ = env.reset(seed=first + day)
        for h in range(STEPS):
            state = env.step(int(policy[h, state]))[0]
        costs[house, day] = true.spent  # what was really paid; rewards in bins may be clipped
    return costs


def best_rule(days: int) -> BangBang:
    """The best settings of a thermostat for all houses, tried one by one on other days than those it is judged on."""
    settings = itertools.product(np.arange(19.5, 21.6, 0.5), np.arange(17.0, 23.1, 1.0), (0.1, 0.25, 0.5))
    rules = [BangBang(float(day), float(night), band) for day, night, band in settings]
    return min(rules, key=lambda rule: float(cost_of_rule(rule, days, TUNED).mean()))


def usual(bins: Bins, day: float = 20.5, night: float = 20.5) -> Callable[[int, int], int]:
    """An ordinary thermostat as a function of step and state: full heat where the middle of the bin is too cold."""
    inside, outside = bins.observations
    assert isinstance(inside, Edges)
    cuts = np.array(inside.cuts)
    middles = np.concatenate([cuts[:1] - 0.5, 0.5 * (cuts[1:] + cuts[:-1]), cuts[-1:] + 0.5])

    def act(step: int, state: int) -> int:
        setting = day if is_day(hour_of(step)) else night
        return bins.number_of_actions - 1 if middles[state // outside.count] < setting else 0

    return act


def learn(bins: Bins, days: int, seed: int) -> IndexArray:
    """The policy that the houses are recommended."""
    fleet = LiveFederation(lambda agent: make_finite(make(agent), bins), len(HOUSES), bins.horizon, bins.reward_range)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Caution)
        return run(FedKLUCBVI(), fleet, days, seed=seed, progress=False).policy


def keep_the_rule(bins: Bins, days: int, seed: int, *, loss: float | None = 0.05) -> dict[str, Any]:
    """Houses that go on with an ordinary thermostat while they learn; without a ``loss`` they just learn.

    Gives euro a day in the first tenth and in all days, and what is certified.
    """
    fleet = LiveFederation(lambda agent: make_finite(make(agent), bins), len(HOUSES), bins.horizon, bins.reward_range)
    today = None if loss is None else usual(bins)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Caution)
        result = run(FedKLUCBVI(), fleet, days, seed=seed, incumbent=today, loss=loss, progress=False)
    ends = np.append(0, result.round_ends)
    money = np.append(0, np.cumsum(result.records["reward"]))
    first = float(np.interp(0.1 * days, ends, money)) / (0.1 * days)
    certified = [f"after {one.played} days: {one}" for one in result.certificates]
    return {"first_tenth": -first, "all": -float(money[-1]) / days, "certificates": certified}


def difference(one: FloatArray, other: FloatArray) -> tuple[float, float]:
    """Mean over houses and days of what ``one`` costs more, and its standard error; days are independent."""
    by_day = (one - other).mean(axis=0)
    return float(by_day.mean()), float(by_day.std(ddof=1) / np.sqrt(len(by_day)))


def compare(lengths: tuple[int, ...], seeds: int, days: int, tuning: int = 30) -> dict[str, Any]:
    bins = bins_of()
    rule = best_rule(tuning)
    usual = cost_of_rule(rule, days, JUDGED)
    learnt = {}
    for length in lengths:
        costs = [cost_of_policy(learn(bins, length, seed), bins, days, JUDGED) for seed in range(seeds)]
        apart = [difference(one, usual) for one in costs]
        learnt[length] = {"euro": [float(one.mean()) for one in costs], "less_than_rule": [-d for d, _ in apart]}
        learnt[length]["standard_error"] = [error for _, error in apart]
    return {
        "states": bins.states,
        "rule": {"day": rule.day, "night": rule.night, "band": rule.band, "euro": float(usual.mean())},
        "learnt": learnt,
    }


def picture(figures: dict[str, Any]) -> Panels:
    """The learning curve, with the rule as a line."""
    at = list(figures["learnt"])
    values = np.array([figures["learnt"][days]["euro"] for days in at])
    with figure_style():
        panels = new_panels(1, columns=1, size=(7.0, 4.0))
        ax = panels[0]
        set_scales(ax, x_log=True, y_log=False)
        draw_curve(
            ax,
            at,
            values.mean(axis=1),
            colour=BLUE,
            label="four houses together",
            marker="circle",
            low=values.min(axis=1),
            high=values.max(axis=1),
        )
        ax.axhline(figures["rule"]["euro"], color=BLACK, linestyle="dotted", label="best thermostat with hysteresis")
        ax.legend(loc="upper right")
        x_label = "days played by each house (band: all seeds)"
        set_texts(ax, title="", x_label=x_label, y_label="euro a day, mean of the houses")
        set_heading(panels, "What heat and discomfort cost four houses that learn live")
    return panels


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--days", type=int, default=200, help="days on which policies are compared")
    parser.add_argument("--out", type=Path, help="a picture")
    parser.add_argument(
        "--keep-the-rule", action="store_true", help="what learning costs, with and without a promise"
    )
    parser.add_argument("--judge", type=Path, help="the folder of a saved run")
    parser.add_argument("--bins", type=Path, help="its bins")
    options = parser.parse_args()
    logging.getLogger("fed_ucbvi.environments").setLevel(logging.ERROR)  # what lies outside the range is no news here
    if options.judge is not None:
        usual = cost_of_rule(best_rule(30), options.days, JUDGED)
        learnt = cost_of_policy(Run.load(options.judge).policy, Bins.load(options.bins), options.days, JUDGED)
        less, error = difference(usual, learnt)
        print(
            f"{learnt.mean():.2f} euro a day; the thermostat pays {less:.2f} +- {error:.2f} more ({usual.mean():.2f})"
        )
        return
    if options.keep_the_rule:
        bins = bins_of()
        for loss in (0.05, None):
            told = [keep_the_rule(bins, LENGTHS[-2], seed, loss=loss) for seed in range(options.seeds)]
            print(json.dumps({"loss": loss, "runs": told}))
        return
    figures = compare(LENGTHS, options.seeds, options.days)
    if options.out is not None:
        picture(figures).save(options.out)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
