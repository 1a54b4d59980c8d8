"""The curve of rewards: means over neighbouring rounds, with the standard errors of all their episodes."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from fed_ucbvi import FedUCBVI, Run, gridworld, run
from fed_ucbvi.core.types import FloatArray
from fed_ucbvi.results.run_data import learning_curve

Observed = tuple[Run, list[FloatArray]]
"""A run as if every episode had been observed, and the rewards of each round's episodes."""


@pytest.fixture(scope="module")
def observed() -> Observed:
    short = run(FedUCBVI(), gridworld(agents=2), 40, progress=False)
    rng = np.random.default_rng(1)
    episodes = [rng.normal(5.0, 2.0, size=n) for n in short.records["agent_episodes"]]
    rewards = {
        "regret": np.full(len(episodes), np.nan),
        "reward": np.array([paid.sum() / 2 for paid in episodes]),
        "reward_sd": np.array([paid.std(ddof=1) for paid in episodes]),
    }
    return replace(short, records={**short.records, **rewards}), episodes


@pytest.mark.parametrize("bins", [1, 2, 5, 60])
def test_a_point_is_the_mean_of_its_episodes_with_its_standard_error(observed: Observed, bins: int) -> None:
    result, episodes = observed
    curve = learning_curve(result, bins)
    ends = np.cumsum(result.records["length"])
    first = 0
    for end, mean, error in zip(*curve, strict=True):
        last = int(np.searchsorted(ends, end)) + 1
        paid = np.concatenate(episodes[first:last])
        assert mean == pytest.approx(paid.mean())
        assert error == pytest.approx(paid.std(ddof=1) / math.sqrt(len(paid)))
        first = last
    assert first == len(episodes), "every round belongs to a point"


@pytest.mark.parametrize("bins", [1, 2, 5, 60])
def test_there_are_at_most_the_requested_number_of_points(observed: Observed, bins: int) -> None:
    curve = learning_curve(observed[0], bins)
    assert 0 < len(curve.mean) <= bins
    assert curve.episodes[-1] == 40


def test_a_run_without_rounds_has_no_points(observed: Observed) -> None:
    records = {name: column[:0] for name, column in observed[0].records.items()}
    assert len(learning_curve(replace(observed[0], records=records)).mean) == 0
