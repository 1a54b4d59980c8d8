"""Attacks on secure sums, carried out on real nodes: what a server tried to read stays unread.

A malicious server (``tests/support/malicious_server.py``), or an honest but curious one. Every attack is carried out
twice: against nodes as they are, and against nodes in which exactly one check is taken out. Then the server reads the
victim's numbers, so the check is what keeps them secret.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fed_ucbvi import FedKLUCBVI, InputError, synthetic
from fed_ucbvi.algorithms.base import Message, Setting
from fed_ucbvi.network import client
from fed_ucbvi.network.certificates import make_certificates
from fed_ucbvi.network.node import Node
from fed_ucbvi.network.run_plan import RunPlan, plan_for
from fed_ucbvi.network.secure_sums import masked, summed
from fed_ucbvi.network.sources import LiveSource
from gymnasium_problems import clinic
from malicious_server import (
    ATTACKS,
    EPISODES,
    GHOSTS,
    NAMES,
    RULE_OF_THREE,
    THREE_CONTRIBUTORS,
    VICTIM,
    WORLD,
    carry_out,
)
from network import Served, TLSByName, federate

with_and_without = pytest.mark.parametrize("cured", [True, False], ids=["as it is", "without it"])


@pytest.fixture
def authority(tmp_path: Path) -> Path:
    make_certificates(tmp_path / "certs", server="server", nodes=[*NAMES, *GHOSTS])
    return tmp_path / "certs"


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Message]]:
    """What nodes send, by name and in order, before it is masked; and the sums that an honest server makes of it."""
    noted = defaultdict[str, list[Message]](list)

    def note(own: Message, name: str, *rest: Any) -> Message:
        noted[name].append(own)
        return masked(own, name, *rest)

    def add_up(reports: Iterable[Message]) -> Message:
        noted["sum"].append(summed(reports))
        return noted["sum"][-1]

    monkeypatch.setattr("fed_ucbvi.network.node.masked", note)
    monkeypatch.setattr("fed_ucbvi.network.rounds.summed", add_up)
    return noted


@with_and_without
@pytest.mark.parametrize("name", ATTACKS)
def test_a_node_is_read_only_if_a_check_is_missing(
    name: str, cured: bool, authority: Path, sent: dict[str, list[Message]], monkeypatch: pytest.MonkeyPatch
) -> None:
    case = ATTACKS[name]
    if not cured and case.take_out:
        case.take_out(monkeypatch)
    elif not cured:
        case = case._replace(options={})
    read, said = carry_out(case, authority)
    if cured:
        assert read is None
        assert case.says in said
        return
    assert read is not None, said
    truth = sent.get(VICTIM, [read])[0]  # in the open it is not masked
    if "rewards" in name:
        truth = (truth[-1][:, :4],)
        assert truth[0][0, 0] == EPISODES
    elif "began" in name:
        truth = (truth[-1][:, 4:],)
        assert truth[0].sum() == EPISODES
    else:
        assert truth[0].sum() == EPISODES * WORLD.horizon
    for numbers, true in zip(read, truth[:1] if case.up_to else truth, strict=False):
        assert np.abs(numbers - true).sum() <= case.up_to * WORLD.horizon


class Paced(Node):
    """Plays one episode in ``pace`` turns."""

    pace = turns = 1

    def play_on(self) -> Any:
        self.turns += 1
        return None if self.turns % self.pace else super().play_on()


@with_and_without
def test_slower_nodes_stay_unread_by_server_and_nodes(
    cured: bool, tls_files: TLSByName, sent: dict[str, list[Message]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server remembers every sum. Nodes are told N, which grows by the sum, and know their own part of it.

    Sums would be of the two fast nodes while the others take their time, and of the slowest in the end.
    """
    if not cured:
        RULE_OF_THREE(monkeypatch)
        THREE_CONTRIBUTORS(monkeypatch)
    world = synthetic(agents=4, eps_p=0.2, seed=2, states=8, actions=5, horizon=3)
    nodes = [Paced(name, lambda M: world, i, 1) for i, name in enumerate(NAMES)]
    reader, victim = nodes[2:]
    reader.pace, victim.pace = 20, 40
    plan = plan_for(FedKLUCBVI(), world, 24, collection="live", secure_sums=True)
    assert federate(plan, nodes, tls_files).run.complete
    sums = [total[0] for total in sent["sum"] if len(total) > 1]
    assert len(sums) > 5
    told = {name: [report[0] for report in sent[name] if len(report) > 1 and report[0].any()] for name in NAMES}
    single = {name: {report.tobytes() for report in reports} for name, reports in told.items()}
    by_server = sum(total.tobytes() in single[VICTIM] for total in sums)
    by_node = sum(
        (total - own).tobytes() in single[other]
        for one, other in (NAMES[:2], NAMES[2:])
        for total, own in itertools.product(sums, told[one])
    )
    assert (by_server > 0, by_node > 0) == (not cured, not cured), (by_server, by_node)


@with_and_without
async def test_an_environments_error_reaches_the_server_by_kind_only(
    cured: bool, tls_files: TLSByName, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    if not cured:
        monkeypatch.setattr(Node, "secret", property(lambda _: False, lambda *_: None), raising=False)
    monkeypatch.setattr(client, "FAREWELL_SECONDS", 0.01)
    plan = RunPlan(FedKLUCBVI(), Setting(4, 2, 3, 4, 9, 0.0, 0), collection="live", secure_sums=True)
    nodes = [Node(name, LiveSource(clinic, (-1, 3), 3), i, 1) for i, name in enumerate(NAMES)]
    async with Served(plan, None, tls_files) as served:
        *_, victim = served.join(*nodes)
        with pytest.raises(InputError, match="patient 4711"):  # its owner may know
            await victim
        heard = ""
        while "the node cannot continue" not in heard:
            await asyncio.sleep(0.01)
            heard = " ".join(caplog.messages)
    assert ("4711" in heard) is not cured
    assert "the node cannot continue: ValueError" in heard or not cured
