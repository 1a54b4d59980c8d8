"""Episodes per agent, against sums of fractions."""

from __future__ import annotations

import itertools
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from fed_ucbvi import FedUCBVI, run, synthetic
from fed_ucbvi.core.types import CountArray
from fed_ucbvi.results.records import episodes_per_agent


def drawn(seed: int, agents: list[int]) -> dict[str, CountArray]:
    rng = np.random.default_rng(seed)
    return {"agents": np.array(agents), "agent_episodes": np.array([rng.integers(0, 10 * m + 1) for m in agents])}


@pytest.mark.parametrize("seed", range(5))
def test_every_round_adds_the_mean_over_its_agents(seed: int) -> None:
    agents = np.repeat(np.random.default_rng(seed).integers(1, 9, size=12), 5).tolist()
    records = drawn(seed, agents)
    parts = [Fraction(int(n), int(m)) for n, m in zip(records["agent_episodes"], records["agents"], strict=True)]
    exact = [float(total) for total in itertools.accumulate(parts)]
    assert episodes_per_agent(records) == pytest.approx(exact, rel=1e-14)


def test_with_one_number_of_agents_nothing_is_rounded_twice() -> None:
    records = drawn(1, [7] * 300)
    exact = np.cumsum(records["agent_episodes"]) / 7
    assert episodes_per_agent(records).tobytes() == exact.tobytes()
    assert len(episodes_per_agent({name: column[:0] for name, column in records.items()})) == 0


def test_a_run_says_in_which_way_it_is_not_complete() -> None:
    whole = run(FedUCBVI(), synthetic(agents=2), 30)
    assert whole.unfinished == ""
    missed = replace(whole, complete=False)
    assert missed.unfinished == "agents have missed episodes"
    first = replace(missed, records={name: column[:3] for name, column in whole.records.items()})
    assert first.unfinished == f"interrupted after {first.episodes_played} episodes"
    assert f"{first.episodes_played} episodes" in repr(first)
