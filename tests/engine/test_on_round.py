"""Callbacks after every round: their records agree with what the run says in the end."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from fed_ucbvi import FedUCBVI, Interrupted, RoundRecord, resume, run, synthetic
from fed_ucbvi.core.types import IndexArray
from fed_ucbvi.results.run_data import Subscriber

ALGORITHM, EPISODES = FedUCBVI(nu=100), 200


def test_there_is_one_record_a_round_and_they_add_up_to_the_runs_own() -> None:
    seen: list[RoundRecord] = []
    result = run(ALGORITHM, synthetic(agents=3), EPISODES, on_round=seen.append)
    records, told = result.records, result.recommendations
    assert [one.round for one in seen] == list(range(1, len(records["start"]) + 1))
    assert [one.episodes for one in seen] == (records["start"] + records["length"]).tolist()
    for name, column in {"length": "length", "requests": "requests", "state": "state", "action": "action"}.items():
        assert [getattr(one, name) for one in seen] == records[column].tolist()
    np.testing.assert_allclose([one.regret for one in seen], np.cumsum(records["regret"]), rtol=1e-12)
    np.testing.assert_allclose([one.reward for one in seen], records["reward"] / records["length"], rtol=1e-12)
    assert [one.bytes_up for one in seen] == np.cumsum(records["bytes_up"]).tolist()
    assert [one.synchronisations for one in seen] == np.cumsum(records["requests"] > 0).tolist()
    assert {one.rule for one in seen if one.requests} == {name for name, n in result.rules_fired.items() if n}
    assert seen[-1].planned_episodes == EPISODES
    assert seen[-1].gap == told["optimistic"][-1] - told["estimated"][-1]
    assert not math.isnan(seen[0].gap), "a policy is recommended after the first round"
    assert seen[-1].seconds == pytest.approx(result.wall_seconds)


def test_a_run_that_is_resumed_goes_on_with_the_totals_it_had(tmp_path: Path) -> None:
    whole: list[RoundRecord] = []
    run(ALGORITHM, synthetic(agents=3), EPISODES, on_round=whole.append)
    first: list[RoundRecord] = []

    def stop(record: RoundRecord) -> None:
        first.append(record)
        if record.round == 5:
            raise KeyboardInterrupt

    with pytest.raises(Interrupted):
        run(ALGORITHM, synthetic(agents=3), EPISODES, checkpoint=tmp_path / "c", checkpoint_every=1, on_round=stop)
    rest: list[RoundRecord] = []
    resume(tmp_path / "c", on_round=rest.append)
    timeless = [one._replace(seconds=0.0) for one in (*first, *rest)]
    assert timeless == [one._replace(seconds=0.0) for one in whole]


def test_a_subscriber_is_given_every_policy_that_is_recommended() -> None:
    class Watching(Subscriber):
        def __init__(self) -> None:
            self.rounds, self.policies = 0, list[tuple[int, IndexArray]]()

        def __call__(self, record: RoundRecord) -> None:
            self.rounds = record.round

        def take_policy(self, policy: IndexArray) -> None:
            self.policies.append((self.rounds, policy))

    watching = Watching()
    result = run(ALGORITHM, synthetic(agents=3), EPISODES, on_round=watching)
    assert [at for at, _ in watching.policies] == result.recommendations["round"].tolist()
    assert np.array_equal(watching.policies[-1][1], result.policy)
    assert not np.array_equal(watching.policies[0][1], result.policy), "they are not one and the same array"


def test_what_a_callback_raises_ends_the_run() -> None:
    def fail(record: RoundRecord) -> None:
        raise ValueError(f"round {record.round}")

    with pytest.raises(ValueError, match="round 1"):
        run(ALGORITHM, synthetic(agents=2), 50, on_round=fail)
