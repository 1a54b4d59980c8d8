"""What twelve batteries cost while they learn with known dynamics, and when a better policy is certified by watching.

    python examples/batteries/compare_batteries.py --days 400 --seed 0
    python examples/batteries/compare_batteries.py --watch --seeds 20

All values are exact, in euro a day, mean over the sites. With ``--watch`` the rule of today is played, and a policy
that is planned from what was seen is compared with it in hindsight.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

import numpy as np
from battery_sites import FIRST, HOURS, SITES, batteries, dynamics, rule

from fed_ucbvi import Federation, FedKLUCBVI, Hindsight, RecordedEpisodes, run
from fed_ucbvi.algorithms.known_dynamics import plan_from_outcomes
from fed_ucbvi.core.types import FloatArray, IndexArray


def worth(policy: IndexArray, fleet: Federation) -> float:
    """Euro a day."""
    values = [float(fleet.agent(site).evaluate(policy)[0, FIRST]) for site in range(SITES)]
    return dynamics().units.original_return(float(np.mean(values)), HOURS)


def learn(fleet: Federation, days: int, seed: int, optimism: Any) -> dict[str, Any]:
    """Values of what is recommended and of what is paid."""
    result = run(FedKLUCBVI(optimism=optimism), fleet, days, seed=seed, progress=False)
    told = result.recommendations
    at = [day for day in (1, 2, 4, 8, 10, 100, 400) if day <= days]
    values = [float(told["value"][told["episodes"] <= day][-1]) for day in at]
    return {
        "recommended": {day: round(value, 3) for day, value in zip(at, values, strict=True)},
        "paid": round(float(result.records["reward"].sum()) / days, 3),
        "rounds": len(result.records["reward"]),
    }


def lived_day(rng: np.random.Generator, law: FloatArray) -> RecordedEpisodes:
    """The prices and loads of one day at a site, which do not depend on what the battery does."""
    known = dynamics()
    outcomes: IndexArray = np.zeros((1, HOURS), dtype=np.int32)
    state = FIRST
    for hour in range(HOURS):
        chances = law[known.laws_at(hour)[state, 0]]
        outcomes[0, hour] = rng.choice(len(chances), p=chances)
        state = int(known.next_states_at(hour)[state, 0, outcomes[0, hour]])
    return RecordedEpisodes(np.array([FIRST], dtype=np.int32), outcomes)


def watch(fleet: Federation, seed: int, most: int = 60) -> dict[str, Any]:
    """Days of watching until a policy is certified to be better than the rule."""
    assert fleet.laws is not None
    rng = np.random.default_rng(seed)
    watched = Hindsight(dynamics(), rule(), agents=SITES, initial=fleet.initial[0])
    for day in range(1, most + 1):
        watched.add([lived_day(rng, law) for law in fleet.laws])
        if watched.candidates and watched.bounds().best > 0:
            gain = worth(watched.candidates[0], fleet) - worth(rule(), fleet)
            return {"seed": seed, "days": day, "gain": round(gain, 3)}
        if watched.is_due:
            watched.propose(plan_from_outcomes(watched.dynamics, watched.counts.sum(axis=0)))
    return {"seed": seed, "days": None}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--days", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--watch", action="store_true", help="watch only; nothing is explored")
    parser.add_argument("--seeds", type=int, default=5, help="with --watch")
    options = parser.parse_args()
    fleet = batteries()
    if options.watch:
        print(json.dumps([watch(fleet, seed) for seed in range(options.seeds)], indent=1))
        return
    report = {
        "rule": round(worth(rule(), fleet), 3),
        "best for the mean tables": round(worth(fleet.common.solve().policy, fleet), 3),
        "certain": learn(fleet, options.days, options.seed, "certain"),
        "drawn": learn(fleet, options.days, options.seed, "drawn"),
    }
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
