"""Attacks on secure sums, carried out: what a curious or a malicious server tried to read stays unread.

Nodes are real; the test is their server and does what it likes. Every attack read a node's counts exactly before the
check that it now meets; without that check its test fails.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from msgspec.structs import replace

from fed_ucbvi import FedKLUCBVI, InputError
from fed_ucbvi.algorithms.base import Message, Setting
from fed_ucbvi.network.certificates import TLSFiles, make_certificates
from fed_ucbvi.network.client import run_node
from fed_ucbvi.network.messages import Continue, Decline, Denial, Ready, Report, Roster, RosterEntry, Start
from fed_ucbvi.network.node import Node
from fed_ucbvi.network.roster import contributions, der_of, fingerprint, make_roster
from fed_ucbvi.network.run_plan import RunPlan
from fed_ucbvi.network.secure_sums import summed
from fed_ucbvi.network.server import FederationServer, Outcome
from fed_ucbvi.network.sources import LiveSource
from network import reach

NAMES = ["node-0", "node-1", "node-2", "node-3"]
T, H = 40, 6
SETTING = Setting(17, 4, H, 4, T, 0.0, 3, eps_p_known=False)
LAKE = LiveSource.of("FrozenLake-v1", reward_range=(0, 1), horizon=H)
TASK = RunPlan(FedKLUCBVI(), SETTING, collection="live", secure_sums=True, run="the-run")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("certs")
    make_certificates(path, server="server", nodes=NAMES)
    return path


class Attacker:
    """A server that does what it likes with four honest nodes, one agent each, with real environments.

    Args:
        folder: certificates.
        options: of the nodes; each may have its own.
    """

    def __init__(self, folder: Path, options: Callable[[str], dict[str, Any]] = lambda name: {}) -> None:
        self.nodes = {name: Node(name, LAKE, i, 1, **options(name)) for i, name in enumerate(NAMES)}
        self.certificates = {name: der_of((folder / f"{name}.crt").read_bytes()) for name in NAMES}
        self.entries: dict[str, RosterEntry] = {}
        self.played = dict.fromkeys(NAMES, 0)
        self.base = dict.fromkeys(NAMES, 0)
        self.broadcast: Message = tuple(
            np.array(array) for array in TASK.algorithm.broadcast(TASK.algorithm.new_server(SETTING))
        )
        self.broadcast[1][...] = 10**6  # so many visits that nobody asks for a synchronisation
        for name, node in self.nodes.items():
            node.identify(TLSFiles.of(folder, name), "127.0.0.1")
            node.enter(TASK.welcome())

    def play(
        self, name: str, number: int, episodes: int, *, confirmed: tuple[int, bytes] = (0, b""), **rest: Any
    ) -> Ready:
        """Have a node play so many episodes of a round, and take what it signs."""
        node, first = self.nodes[name], self.played[name]
        arrays = rest.pop("broadcast", self.broadcast)
        start = Start(number, self.base[name], first, T - first, T, arrays, *confirmed, **rest)
        assert node.answer(start) is None
        for _ in range(episodes):
            assert node.play_on() is None
        said = node.answer(Continue(number, 0))
        assert said.played == episodes  # type: ignore[union-attr]
        self.base[name], self.played[name] = number, first + episodes
        ready: Ready = said.ready  # type: ignore[union-attr,assignment]
        entry = RosterEntry(name, NAMES.index(name), 1, self.certificates[name], replace(ready, denial=b""))
        self.entries[name] = entry
        return ready

    def roster(self, number: int, names: Iterable[str], denials: Sequence[Denial] = ()) -> Roster:
        return make_roster(number, 0, [self.entries[name] for name in names], denials)

    def ask(self, roster: Roster) -> dict[str, Any]:
        """What every node of a roster answers: a report, a decline, or the error with which it ends."""
        answers: dict[str, Any] = {}
        for entry in roster.entries:
            try:
                answers[entry.name] = self.nodes[entry.name].answer(roster)
            except InputError as error:
                answers[entry.name] = error
        return answers

    def counts(self, name: str) -> Message:
        """What the attacker is after: what a node has to report, without masks."""
        return self.nodes[name]._own_report((), 0)


def sum_of(answers: dict[str, Any]) -> Message | None:
    """What a server gets to know: the sum, if all have answered."""
    reports = [answer.arrays for answer in answers.values() if isinstance(answer, Report)]
    return summed(reports) if len(reports) == len(answers) else None


def test_the_harness_reads_an_honest_sum(folder: Path) -> None:
    attacker = Attacker(folder)
    for name in NAMES:
        attacker.play(name, 1, 2)
    total = sum_of(attacker.ask(attacker.roster(1, NAMES)))
    assert total is not None
    assert np.array_equal(total[0], sum(attacker.counts(name)[0] for name in NAMES))


def test_only_the_victim_is_given_episodes_to_play(folder: Path) -> None:
    """Also a victim that joins after the others have finished, or is slower: the sum would be its own."""
    attacker = Attacker(folder)
    for name, episodes in zip(NAMES, (5, 0, 0, 0), strict=True):
        attacker.play(name, 1, episodes)
    assert all(isinstance(one, Decline) for one in attacker.ask(attacker.roster(1, NAMES)).values())
    for name, episodes in zip(NAMES, (2, 1, 0, 0), strict=True):
        attacker.play(name, 2, episodes)
    assert all(isinstance(one, Decline) for one in attacker.ask(attacker.roster(2, NAMES)).values())
    claimed = replace(attacker.entries["node-2"], ready=replace(attacker.entries["node-2"].ready, episodes=3))
    attacker.entries["node-2"] = claimed
    answers = attacker.ask(attacker.roster(2, NAMES))
    assert all("not signed" in str(answers[name]) for name in ("node-0", "node-1"))
    assert "does not have what this node has signed" in str(answers["node-2"])
    assert attacker.counts("node-0")[0].sum() == 7 * H  # it keeps all of it to itself


def test_another_policy_for_the_victim_whose_visits_then_stand_out(folder: Path) -> None:
    attacker = Attacker(folder)
    policy = np.zeros_like(attacker.broadcast[0])
    policy[..., 1] = True
    for name in NAMES:
        other: dict[str, Any] = {"broadcast": (policy, *attacker.broadcast[1:])} if name == "node-0" else {}
        attacker.play(name, 1, 2, **other)
    answers = attacker.ask(attacker.roster(1, NAMES))
    assert all("different broadcasts" in str(answer) for answer in answers.values())
    of_others = attacker.ask(attacker.roster(1, NAMES[1:]))
    assert sum_of(of_others) is not None  # three that were told the same may be added up


def test_a_policy_of_another_round_or_epoch_is_another_policy(folder: Path) -> None:
    attacker = Attacker(folder)
    node = attacker.nodes["node-0"]
    for name in NAMES[1:]:
        attacker.play(name, 1, 2)
    node.enter(replace(TASK.welcome(), epoch=TASK.epoch + 1))
    attacker.play("node-0", 1, 2)
    assert all("different broadcasts" in str(one) for one in attacker.ask(attacker.roster(1, NAMES)).values())


def test_rosters_of_three_out_of_four_give_one_sum_and_not_everybodys_counts(folder: Path) -> None:
    attacker = Attacker(folder)
    for name in NAMES:
        attacker.play(name, 1, 2)
    sums = [sum_of(attacker.ask(attacker.roster(1, three))) for three in itertools.combinations(NAMES, 3)]
    assert [total is not None for total in sums] == [True, False, False, False]
    assert sum_of(attacker.ask(attacker.roster(1, NAMES))) is None
    assert sum_of(attacker.ask(attacker.roster(1, NAMES[:3]))) is not None  # the same sum as before


def test_agent_numbers_and_names_are_signed(folder: Path) -> None:
    attacker = Attacker(folder)
    for name in NAMES:
        attacker.play(name, 1, 2)
    entries = [attacker.entries[name] for name in NAMES]
    two = [*entries[:3], replace(entries[3], first_agent=2)]
    swapped = [entries[0], entries[1], replace(entries[2], first_agent=3), replace(entries[3], first_agent=2)]
    for roster in (two, swapped):
        answers = attacker.ask(make_roster(1, 0, roster))
        assert not any(isinstance(answer, Report) for answer in answers.values())


def test_feigned_failures_run_out(folder: Path) -> None:
    """Each round in other company, never confirmed: a node answers four times, with new episodes in each."""
    attacker = Attacker(folder)
    groups = itertools.cycle(itertools.combinations(NAMES, 3))
    sums = []
    for number in range(1, 12):
        for name in NAMES:
            attacker.play(name, number, 1)
        sums.append(sum_of(attacker.ask(attacker.roster(number, next(groups)))) is not None)
    assert sum(sums) <= 4 * len(NAMES) / 3
    assert not any(sums[5:])


def test_strict_nodes_allow_no_failure_and_denials_are_asked_of_those_who_did_not_answer(folder: Path) -> None:
    attacker = Attacker(folder, lambda name: {"most_failures": 0})
    for name in NAMES:
        attacker.play(name, 1, 2)
    first = attacker.roster(1, NAMES)
    answered = [attacker.nodes[name].answer(first) for name in NAMES[:3]]  # node-3 vanishes
    assert all(isinstance(answer, Report) for answer in answered)
    missed: dict[str, Any] = {"missed": 1, "missed_roster": fingerprint(first)}
    signed = {name: attacker.play(name, 2, 1, **missed).denial for name in NAMES}
    assert [bool(signed[name]) for name in NAMES] == [False, False, False, True]
    refused = attacker.ask(attacker.roster(2, NAMES[:3]))
    assert all("it allows 0" in str(answer) for answer in refused.values())
    denial = Denial("node-3", 1, fingerprint(first), signed["node-3"], attacker.certificates["node-3"])
    assert sum_of(attacker.ask(attacker.roster(2, NAMES, [denial]))) is not None


def test_what_is_confirmed_is_dropped_and_a_confirmation_of_another_roster_ends_the_node(folder: Path) -> None:
    attacker = Attacker(folder)
    for name in NAMES:
        attacker.play(name, 1, 2)
    roster = attacker.roster(1, NAMES)
    attacker.ask(roster)
    confirmed = 1, fingerprint(roster)
    assert attacker.play("node-0", 2, 1, confirmed=confirmed).episodes == 1
    assert attacker.counts("node-0")[0].sum() == H
    assert attacker.play("node-1", 2, 1).episodes == 3
    assert attacker.counts("node-1")[0].sum() == 3 * H
    with pytest.raises(InputError, match="has not answered"):
        attacker.play("node-2", 2, 1, confirmed=(1, b"another"))


def test_rewards_that_two_of_three_keep_back_are_not_the_thirds(folder: Path) -> None:
    for silent, told in ((("node-1", "node-2"), False), ((), True)):
        attacker = Attacker(folder, lambda name, silent=silent: {"rewards": name not in silent})  # type: ignore[misc]
        for name in NAMES[:3]:
            attacker.play(name, 1, 3)
        total = sum_of(attacker.ask(attacker.roster(1, NAMES[:3])))
        assert total is not None
        assert total[-1][0, 0] == 9 * told  # episodes whose rewards are in the sum
        assert total[-1][0, 4:].sum() == 9  # where they began


def test_invented_members_do_not_count_for_a_node_that_pins_its_company(folder: Path) -> None:
    """Whoever has the authority's key can make node-2 and node-3, which may contribute nothing at all."""
    pins = {"members": {"node-0", "node-1"}}
    attacker = Attacker(folder, lambda name: pins if name == "node-0" else {})
    for name in NAMES:
        attacker.play(name, 1, 2)
    answers = attacker.ask(attacker.roster(1, NAMES))
    assert isinstance(answers["node-0"], Decline)
    assert sum_of(answers) is None


def test_a_question_in_the_open_ends_the_node(folder: Path) -> None:
    from fed_ucbvi.network.messages import REWARDS_ALONE, Query

    attacker = Attacker(folder)
    attacker.play("node-0", 1, 2)
    for query in (Query(1, 0, (np.zeros(1, dtype=np.int64),)), Query(1, REWARDS_ALONE, (), rewards=True)):
        with pytest.raises(InputError, match="in the open"):
            attacker.nodes["node-0"].answer(query)


# ------------------------------------------------------------------------------------------------ honest servers


class Slow(Node):
    """It plays an episode every fourth time that it is asked to."""

    turns = 0

    def play_on(self) -> Any:
        self.turns += 1
        return None if self.turns % 4 else super().play_on()


def test_a_slower_node_that_is_left_alone_keeps_its_episodes_to_itself(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An honest but curious server remembers every sum; and another node subtracts its own counts from N.

    Without the rule of three all sums after the others have finished would be the slower node's own.
    """
    nodes = [Node(name, LAKE, i, 1) for i, name in enumerate(NAMES[:3])]
    slow = Slow("node-3", LAKE, 3, 1)
    rosters: dict[int, Roster] = {}
    answer = Node.answer

    def noted(node: Node, message: Any) -> Any:
        if isinstance(message, Roster):
            rosters[message.round] = message
        return answer(node, message)

    monkeypatch.setattr(Node, "answer", noted)

    async def story() -> Outcome:
        task = RunPlan(FedKLUCBVI(min_round_growth=0.2), SETTING, collection="live", secure_sums=True)
        service = FederationServer(task, None, TLSFiles.of(folder, "server"))
        taking = [run_node(node, reach(service, TLSFiles.of(folder, node.name))) for node in (*nodes, slow)]
        tasks = [asyncio.ensure_future(one) for one in taking]
        outcome = await service.run()
        await asyncio.gather(*tasks)
        return outcome

    outcome = asyncio.run(asyncio.wait_for(story(), 300))
    assert outcome.run.complete
    assert len(rosters) > 3
    for roster in rosters.values():
        assert sum(one.episodes >= 1 for one in contributions(roster)) >= 3
    kept = sum(int(node._own_report((), 0)[0][0, 0].sum()) for node in (*nodes, slow))
    assert int(slow._own_report((), 0)[0][0, 0].sum()) > 0
    assert slow.own_counts(0).visits[0].sum() == T  # from which it can plan by itself
    reported = 4 * T - kept
    assert 0 < reported < 4 * T


class Patient(gymnasium.Env[Any, Any]):
    """An environment whose errors say what no server should know."""

    observation_space, action_space = gymnasium.spaces.Discrete(16), gymnasium.spaces.Discrete(4)

    def reset(self, **options: Any) -> Any:
        return 0, {}

    def step(self, action: int) -> Any:
        raise ValueError("patient 4711 has no value here")


@pytest.mark.parametrize("secure", [True, False])
def test_under_secure_sums_an_environments_error_reaches_the_server_by_its_kind_only(
    secure: bool, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ill = LiveSource(lambda i: Patient(), reward_range=(0, 1), horizon=H)
    plan = RunPlan(FedKLUCBVI(), SETTING, collection="live", secure_sums=secure)
    nodes = [Node(name, ill if i == 0 else LAKE, i, 1) for i, name in enumerate(NAMES)]
    told: list[str] = []

    async def story() -> None:
        service = FederationServer(plan, None, TLSFiles.of(folder, "server"))
        serving = asyncio.ensure_future(service.run())
        taking = [run_node(node, reach(service, TLSFiles.of(folder, node.name))) for node in nodes]
        tasks = [asyncio.ensure_future(one) for one in taking]
        with pytest.raises(InputError, match="4711"):  # its owner may know
            await tasks[0]
        while not told:
            told.extend(line for line in caplog.messages if "the node cannot continue" in line)
            await asyncio.sleep(0.01)
        for task in (*tasks, serving):
            task.cancel()
        await asyncio.gather(*tasks, serving, return_exceptions=True)

    with caplog.at_level(logging.INFO):
        asyncio.run(asyncio.wait_for(story(), 300))
    assert ("4711" in told[0]) is not secure
    if secure:
        assert told[0].endswith("the node cannot continue: ValueError")
