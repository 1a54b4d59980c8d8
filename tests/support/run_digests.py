"""Digests of reference runs: every algorithm on several federations with every driver, liars, and live environments.

Network, Ray and GPU runs are compared with simulations by tests of their own, bit for bit. So these digests tell
whether a change of the package has changed the result of any kind of run. ::

    python tests/support/run_digests.py check          # compare with run_digests.json
    python tests/support/run_digests.py check fed-ucbvi  # only runs whose name contains the word
    python tests/support/run_digests.py write fed-kl     # store anew, where a change is meant

Tables that are drawn at random, and some live runs, differ in the last bit from one kind of processor to another. So
if runs of ``synthetic`` or ``live`` differ, write the digests with the version to compare with, on the same machine.
"""

from __future__ import annotations

import hashlib
import json
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fed_ucbvi import Federation, LiveFederation, Run, make_environment, run
from fed_ucbvi.algorithms import ALGORITHMS, make_algorithm

STORED = Path(__file__).with_suffix(".json")
DRIVERS = ("episodes", "counts", "auto")
SEED = 3

VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, {}) for name in ALGORITHMS},
    "fed-ucbvi theory": ("fed-ucbvi", {"bonus": "theory"}),
    "fed-ucbvi local": ("fed-ucbvi", {"synchronisation": "local"}),
    "fed-ucbvi global": ("fed-ucbvi", {"synchronisation": "global"}),
    "fedq-advantage apart": ("fedq-advantage", {"forced_synchronisation": False}),
    "fed-kl-ucbvi stationary": (
        "fed-kl-ucbvi",
        {"stationary": True, "min_round_growth": 0.1},
    ),
    "fed-kl-ucbvi-fast stationary": ("fed-kl-ucbvi-fast", {"stationary": True}),
}
FEDERATIONS: dict[str, tuple[str, dict[str, Any], int]] = {
    "gridworld": ("gridworld", {}, 300),
    "synthetic, agents that differ": ("synthetic", {"eps_p": 0.2}, 300),
    "riverswim, random rewards": (
        "riverswim",
        {"states": 4, "horizon": 6, "bernoulli_rewards": True},
        200,
    ),
}
LONG = ("fed-ucbvi", "fed-kl-ucbvi", "fed-kl-ucbvi-fast", "fedq-hoeffding")
"""Also in a long run."""


def cases() -> Iterator[tuple[str, Callable[[], Run]]]:
    for variant, (name, parameters) in VARIANTS.items():
        algorithm = make_algorithm(name, parameters)
        agents = 1 if algorithm.single_agent else 5
        for world, (environment, options, episodes) in FEDERATIONS.items():
            if environment == "synthetic" and "stationary" in variant:
                continue  # its tables depend on the step
            federation = make_environment(environment, **options, agents=agents)
            for driver in DRIVERS:
                name = f"{variant} | {world} | {driver}"
                yield (
                    name,
                    partial(
                        run,
                        algorithm,
                        federation,
                        episodes,
                        seed=SEED,
                        driver=driver,
                        progress=False,
                    ),
                )
        if not algorithm.single_agent:
            yield f"{variant} | riverswim | live", partial(_live, algorithm)
    for variant in LONG:
        algorithm = make_algorithm(variant, {})
        federation = make_environment("gridworld", agents=20)
        name = f"{variant} | gridworld, M = 20, long | auto"
        yield name, partial(run, algorithm, federation, 20_000, seed=SEED, progress=False)
    for variant in ("fedq-hoeffding", "byzan-ucbvi"):
        for attack in ("flip", "silent"):
            yield (
                f"{variant} | liars, {attack} | auto",
                partial(_with_liars, variant, attack),
            )


def _live(algorithm: Any) -> Run:
    from fed_ucbvi.gymnasium_environments import TabularEnv

    sizes: dict[str, Any] = {"agents": 3, "states": 4, "horizon": 6}
    live = LiveFederation(
        lambda agent: TabularEnv("riverswim", agent, **sizes),
        3,
        6,
        (0.0, 1.0),
        random_rewards=False,
    )
    return run(algorithm, live, 60, seed=SEED, progress=False)


def _with_liars(variant: str, attack: str) -> Run:
    federation: Federation = make_environment("gridworld", agents=8).with_liars(0.25, attack)
    return run(make_algorithm(variant, {}), federation, 200, seed=SEED, progress=False)


def digest(result: Run) -> str:
    """Digest of all records, policies and values, whatever the names of their columns."""
    promised = ("playing", "cost", "allowed")  # what only runs with an incumbent have
    arrays = [column for name, column in result.records.items() if name not in promised]
    arrays += result.recommendations.values()
    arrays += [result.policy, result.exploring_policy, result.V, result.by_agent]
    sums = hashlib.sha256()
    for array in arrays:
        fixed = np.asarray(array, dtype=np.float64)
        sums.update(repr(fixed.shape).encode() + fixed.tobytes())
    return sums.hexdigest()[:24]


def main() -> None:
    action = sys.argv[1]
    word = sys.argv[2] if len(sys.argv) > 2 else ""
    stored: dict[str, str] = json.loads(STORED.read_text()) if STORED.exists() else {}
    differing = []
    compared = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, make in cases():
            if word in name:
                now = digest(make())
                compared = compared + 1
                if stored.get(name) != now:
                    differing.append(name)
                    stored[name] = now
    if action == "write":
        STORED.write_text(json.dumps(stored, indent=0, sort_keys=True) + "\n")
    shown = differing if action == "check" else []
    sys.stdout.write("\n  ".join([f"{compared} runs, {len(differing)} differ", *shown]) + "\n")
    sys.exit(1 if differing and action == "check" else 0)


if __name__ == "__main__":
    main()
