"""What five shops earn that learn together, beside a simple rule, each alone, and the best shared policy.

    python examples/five_shops/compare_shops.py --months 1000 --seeds 3 --out docs/shops.png
    python examples/five_shops/compare_shops.py --keep-the-rule --months 1000   # what learning costs, with a promise
    python examples/five_shops/compare_shops.py --judge shops-run     # the policy of a run over the network

The shops learn live: they see stock and money and know no table. The tables serve to say afterwards what a policy
earns, exactly, in euro a month and on average over the shops.
"""

from __future__ import annotations

import argparse
import json
import warnings
from pathlib import Path
from typing import Any

import live_shops
import numpy as np
from shops import DAYS, HIGH, LOW, MOST, ORDERS, euro, shops

from fed_ucbvi import Caution, Federation, FedKLUCBVI, LiveFederation, Run, best_common_policy, run
from fed_ucbvi.charts.axes import draw_curve, set_scales, set_texts
from fed_ucbvi.charts.figures import Panels, figure_style, new_panels, set_heading
from fed_ucbvi.core.colours import BLACK, BLUE, GREEN, ORANGE, VERMILLION
from fed_ucbvi.core.types import FloatArray, IndexArray
from fed_ucbvi.results.round_record import PLAYING

Curve = dict[int, float]
"""Euro a month by months played."""


def worth(policy: IndexArray | FloatArray, fleet: Federation) -> float:
    """What a policy earns, ``(H, S)`` or by action; the terminal state, which tables do not have, is left out."""
    agents = [fleet.agent(i) for i in range(fleet.agents)]
    return euro(float(np.mean([one.initial @ one.evaluate(policy[:, : MOST + 1])[0] for one in agents])))


def rule(most: int, order: int) -> IndexArray:
    """Order ``order`` units if the stock is at most ``most``."""
    policy = np.zeros((DAYS, MOST + 1), dtype=np.int32)
    policy[:, : most + 1] = order
    return policy


def best_rule(fleet: Federation) -> tuple[float, int, int]:
    """The best of these rules that all shops can share, tried one by one."""
    return max((worth(rule(s, q), fleet), s, q) for s in range(MOST + 1) for q in range(1, ORDERS + 1))


def learn(members: list[int], months: int, seed: int, *, stationary: bool) -> Curve:
    """Live shops, one or several: the value of what is recommended after 1, 2, 4, ... months and at the end.

    Recommendations are made at the ends of rounds; the value after so many months is that of the last one by then.
    """
    fleet = LiveFederation(lambda agent: live_shops.make(members[agent]), len(members), DAYS, (LOW, HIGH))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Caution)
        result = run(
            FedKLUCBVI(stationary=stationary), fleet, months, seed=seed, score_with=shops(members), progress=False
        )
    told = result.recommendations
    made = np.asarray(told["episodes"])
    values = np.asarray(told["value"])
    at = [2**k for k in range(months.bit_length()) if 2**k < months] + [months]
    return {month: float(values[made <= month][-1]) for month in at}


def together(months: int, seeds: int, *, stationary: bool) -> list[Curve]:
    """All shops share one policy."""
    return [learn([0, 1, 2, 3, 4], months, seed, stationary=stationary) for seed in range(seeds)]


def alone(months: int, seeds: int, *, stationary: bool) -> list[Curve]:
    """Every shop learns by itself; the mean over the shops."""
    curves = []
    for seed in range(seeds):
        each = [learn([i], months, seed, stationary=stationary) for i in range(5)]
        curves.append({month: float(np.mean([one[month] for one in each])) for month in each[0]})
    return curves


def keep_the_rule(months: int, seed: int, *, loss: float | None = 0.05) -> dict[str, Any]:
    """Shops that go on with their rule while they learn; without a ``loss`` they just learn.

    Gives the most that exploring has cost after any round, as a share of the rule's exact worth, and what was really
    earned in the first tenth and in all months.
    """
    fleet = LiveFederation(live_shops.make, 5, DAYS, (LOW, HIGH))
    today = None if loss is None else rule(3, 5)
    result = run(FedKLUCBVI(stationary=True), fleet, months, seed=seed, incumbent=today, loss=loss, progress=False)
    records = result.records
    worst = 0.0
    exploring = records["playing"] != PLAYING.index("incumbent")
    paid = np.cumsum(np.where(exploring, records["reward"] * 5, 0.0))
    E = np.cumsum(np.where(exploring, records["agent_episodes"], 0))
    t = np.cumsum(records["agent_episodes"])
    if loss is not None:
        earns = worth(rule(3, 5), shops())
        worst = float(((E * earns - paid) / (t * earns)).max())
    ends = np.append(0, result.round_ends)
    money = np.append(0, np.cumsum(records["reward"]))
    first = float(np.interp(0.1 * months, ends, money)) / (0.1 * months)
    return {
        "largest_cost": worst,
        "explored": float(E[-1] / t[-1]),
        "first_tenth": first,
        "all": float(money[-1]) / months,
        "recommended": worth(result.policy, shops()),
        "certificates": [str(one) for one in result.certificates],
    }


def compare(months: int, seeds: int) -> dict[str, Any]:
    fleet = shops()
    shared = best_common_policy(fleet)
    money, s, q = best_rule(fleet)
    return {
        "random": worth(np.full((DAYS, MOST + 1, ORDERS + 1), 1 / (ORDERS + 1)), fleet),
        "rule": {"euro": money, "at_most": s, "order": q},
        "best_shared": list(shared.value),
        "own_optimum": shared.own,
        "together": together(months, seeds, stationary=False),
        "together, stationary": together(months, seeds, stationary=True),
        "alone, stationary": alone(months, seeds, stationary=True),
    }


def picture(figures: dict[str, Any], months: int) -> Panels:
    """Learning curves, with the rule and the best shared policy as lines."""
    learnt = [
        ("together, stationary", BLUE, "five shops together, stationary"),
        ("together", VERMILLION, "five shops together, defaults"),
        ("alone, stationary", ORANGE, "each shop alone, stationary"),
    ]
    with figure_style():
        panels = new_panels(1, columns=1, size=(7.0, 4.0))
        ax = panels[0]
        set_scales(ax, x_log=True, y_log=False)
        for name, colour, text in learnt:
            curves = figures[name]
            at = list(curves[0])
            values = np.array([[curve[month] for month in at] for curve in curves])
            draw_curve(
                ax,
                at,
                values.mean(axis=0),
                colour=colour,
                label=text,
                marker="circle",
                low=values.min(axis=0),
                high=values.max(axis=0),
            )
        ax.axhline(figures["best_shared"][0], color=GREEN, linestyle="dashed", label="best shared policy")
        ax.axhline(figures["rule"]["euro"], color=BLACK, linestyle="dotted", label="best rule")
        ax.set_xlim(1, months)
        ax.legend(loc="lower right")
        x_label = "months played by each shop (bands: all seeds)"
        set_texts(ax, title="", x_label=x_label, y_label="euro a month, mean of the shops")
        set_heading(panels, "What is recommended to five shops that learn live")
    return panels


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--months", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, help="a picture")
    parser.add_argument(
        "--keep-the-rule", action="store_true", help="what learning costs, with and without a promise"
    )
    parser.add_argument("--judge", type=Path, nargs="+", help="folders of saved runs: what do their policies earn?")
    options = parser.parse_args()
    if options.judge:
        fleet = shops()
        best = best_common_policy(fleet).value.lower
        for folder in options.judge:
            money = worth(Run.load(folder).policy, fleet)
            print(f"{folder}: {money:.1f} euro a month, {money / best:.3f} of the best shared policy ({best:.1f})")
        return
    if options.keep_the_rule:
        for loss in (0.05, None):
            told = [keep_the_rule(options.months, seed, loss=loss) for seed in range(options.seeds)]
            print(json.dumps({"loss": loss, "runs": told}))
        return
    figures = compare(options.months, options.seeds)
    if options.out is not None:
        picture(figures, options.months).save(options.out)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
