"""The bytes of a run with secure sums that are announced before its first round."""

from __future__ import annotations

import logging
from collections import defaultdict
from typing import Any

import pytest

from fed_ucbvi import FedKLUCBVI, synthetic
from fed_ucbvi.algorithms.base import Algorithm
from fed_ucbvi.algorithms.communication import size
from fed_ucbvi.network.messages import Report, Roster, Start
from fed_ucbvi.network.run_plan import plan_for
from fed_ucbvi.network.traffic import TrafficEstimate
from network import Served, Tap, TLSByName, make_nodes

WORLD = synthetic(agents=4, eps_p=0.2, seed=2, states=6, actions=3, horizon=4)
SPLIT = [1, 2, 1]
T = 20


async def estimated_and_finished(
    algorithm: Algorithm[Any, Any], tls_files: TLSByName
) -> tuple[TrafficEstimate, Served]:
    """The estimate before the first round of a run, and the server after its end."""
    served = Served(plan_for(algorithm, WORLD, T, seed=3, secure_sums=True), tls_files=tls_files)
    served.join(*make_nodes(WORLD, SPLIT))
    await served.meet(len(SPLIT))
    estimate = TrafficEstimate.of(served.registry)
    await served.finish()
    return estimate, served


async def test_a_masked_report_has_the_estimated_size(tls_files: TLSByName, monkeypatch: pytest.MonkeyPatch) -> None:
    tap = Tap(monkeypatch)
    estimate, _ = await estimated_and_finished(FedKLUCBVI(), tls_files)
    reports = [one for _, one, _ in tap.messages() if isinstance(one, Report) and one.exchange == 0]
    with_rewards = [size(one.arrays) for one in reports if len(one.arrays) == len(reports[0].arrays)]
    assert set(with_rewards) == {estimate.report}


async def test_a_round_with_a_synchronisation_has_the_estimated_bytes(
    tls_files: TLSByName, monkeypatch: pytest.MonkeyPatch
) -> None:
    tap = Tap(monkeypatch)
    estimate, served = await estimated_and_finished(FedKLUCBVI(), tls_files)
    up = defaultdict[int, int](int)
    down = defaultdict[int, int](int)
    for _, message, data in tap.messages():
        if isinstance(message, Report):
            up[message.round] += len(data)
    for _, message, data in tap.messages(up=False):
        if isinstance(message, Start | Roster):
            down[message.round] += len(data)
    assert served.coordinator.engine.rows[0].requests > 0
    assert up[1] == pytest.approx(estimate.up, rel=0.05)
    assert down[1] == pytest.approx(estimate.down, rel=0.1)


async def test_a_run_sends_no_more_reports_than_estimated(tls_files: TLSByName) -> None:
    estimate, served = await estimated_and_finished(FedKLUCBVI(), tls_files)
    rounds = served.coordinator.round
    assert rounds <= estimate.rounds == T
    assert estimate.total == estimate.rounds * (estimate.up + estimate.down)
    assert served.registry.wire.bytes_up >= 0.5 * rounds * estimate.up, "the estimate is no idle bound"


async def test_rounds_that_must_grow_are_estimated_to_be_fewer(tls_files: TLSByName) -> None:
    estimate, served = await estimated_and_finished(FedKLUCBVI(min_round_growth=1.0), tls_files)
    assert estimate.rounds == 6, "2 + log2(20)"
    assert served.coordinator.round <= estimate.rounds


@pytest.mark.parametrize("secure", [True, False])
async def test_bytes_are_announced_before_the_first_round_of_secure_sums(
    secure: bool, tls_files: TLSByName, caplog: pytest.LogCaptureFixture
) -> None:
    begun: list[int] = []
    plan = plan_for(FedKLUCBVI(), WORLD, T, seed=3, secure_sums=secure)
    served = Served(plan, tls_files=tls_files, report=lambda run: begun.append(len(caplog.records)))
    served.join(*make_nodes(WORLD, SPLIT))
    with caplog.at_level(logging.INFO, "fed_ucbvi.federation"):
        await served.finish()
    before = [record.getMessage() for record in caplog.records[: begun[0]]]
    announced = [text for text in before if text.startswith("secure sums: a masked report has")]
    assert len(announced) == secure
