"""Secure sums under any schedule: no two sums have the same episode, and none has too few contributors.

The nodes' side of the protocol runs without input or output. A server that may do anything starts rounds with any
numbers, asks for signatures, puts any entries that it has seen into rosters, changes some of them, and invents a
member. Nodes are away, late, started again, and get new certificates.
"""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from fed_ucbvi import InputError
from fed_ucbvi.algorithms.base import Message
from fed_ucbvi.network.certificates import TLSFiles, make_certificates
from fed_ucbvi.network.failures import DeclinedError
from fed_ucbvi.network.messages import RosterEntry, encode
from fed_ucbvi.network.node_memory import NodeMemory
from fed_ucbvi.network.roster import Credentials, SumPolicy, fingerprint, make_roster
from fed_ucbvi.network.secure_sums import summed
from fed_ucbvi.network.sent_sums import SentSums

NODES = ("node-0", "node-1", "node-2", "node-3")
GHOST = "node-4"
"""A member that the server invents: it has a certificate, and signs anything."""
RUN = "the-run"
LEAST = 3
LARGEST = 12
"""Number of episodes of each agent that a round may begin with, at most."""
EXAMPLES = 150


# ---------------------------------------------------------------------------------------------- what a server may do


@dataclass(frozen=True)
class Play:
    """Have a node play a round; the broadcast is one of several."""

    node: int
    round: int
    first: int
    episodes: int
    broadcast: int


@dataclass(frozen=True)
class AskToSign:
    node: int


@dataclass(frozen=True)
class Ask:
    """Send a roster to all its nodes: of each node its newest entry but so many, or none.

    One entry may be changed.
    """

    round: int
    ages: tuple[int | None, ...]
    ghost: bool
    changed: int | None


@dataclass(frozen=True)
class Restart:
    node: int


@dataclass(frozen=True)
class Renew:
    node: int


nodes = st.integers(0, len(NODES) - 1)
rounds = st.integers(0, 4)
STEPS = st.one_of(
    st.builds(Play, nodes, rounds, st.integers(0, LARGEST), st.integers(0, 3), st.integers(0, 1)),
    st.builds(AskToSign, nodes),
    st.builds(
        Ask,
        rounds,
        st.tuples(*[st.sampled_from([0, 0, 0, 1, 2, None])] * len(NODES)),
        st.booleans(),
        st.sampled_from([None, None, None, 0, 1, 2, 3]),
    ),
    st.builds(Restart, nodes),
    st.builds(Renew, nodes),
)


def honest_round(number: int) -> list[Any]:
    """The steps of a round in which everything goes well."""
    plays = [Play(node, number, 3 * number, 2, 0) for node in range(len(NODES))]
    return [*plays, *map(AskToSign, range(len(NODES))), Ask(number, (0,) * len(NODES), ghost=False, changed=None)]


SCHEDULES = st.one_of(
    st.lists(STEPS, max_size=60),
    st.lists(st.one_of(STEPS.map(lambda step: [step]), rounds.map(honest_round)), max_size=20).map(
        lambda parts: [step for part in parts for step in part]
    ),
)


# ------------------------------------------------------------------------------------------------------- the parties


def broadcast_of(number: int, broadcast: int) -> bytes:
    """Digest of a round's broadcast."""
    return bytes([number, broadcast]) * 16


@dataclass
class HonestNode:
    """A node with its memory on disk; an agent plays episodes that have numbers."""

    place: int
    folder: Path
    files: Path
    certificate: int = 0
    now: Play | None = None
    signed: bool = False
    sums: SentSums = field(init=False)

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Begin a new process, which knows what is on disk."""
        name = NODES[self.place]
        files = TLSFiles.of(self.files / str(self.certificate), name)
        credentials = Credentials(name, self.place, 1, RUN, files)
        self.sums = SentSums(NodeMemory(self.folder), credentials, SumPolicy(least_members=LEAST), len(NODES) + 1)
        self.now = None
        self.signed = False

    @property
    def episodes(self) -> frozenset[tuple[int, int]]:
        """The episodes of the round, each with its node."""
        now = self.now
        assert now is not None
        if now.round == 0:
            return frozenset({(self.place, -1)})
        return frozenset((self.place, now.first + i) for i in range(now.episodes))

    def sign(self) -> RosterEntry | None:
        now = self.now
        if now is None:
            return None
        digest = broadcast_of(now.round, now.broadcast)
        with suppress(DeclinedError):
            self.sums.sign(now.round, now.first, digest, now.episodes, rewards=True)
            self.signed = True
            return self.sums._memory.sums.entry
        return None

    def report(self) -> Message:
        """A table with a 1 for each of the episodes."""
        table = np.zeros((len(NODES), LARGEST + 10), dtype=np.int64)
        for place, number in self.episodes:
            table[place, number] = 1
        return (table,)


@dataclass
class World:
    """Nodes and what the server has got from them."""

    folder: Path
    files: Path
    entries: dict[int, list[RosterEntry]] = field(default_factory=lambda: defaultdict(list))
    answers: dict[int, dict[bytes, tuple[frozenset[tuple[int, int]], bytes]]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    completed: int = 0

    def __post_init__(self) -> None:
        self.nodes = []
        for place in range(len(NODES)):
            own = self.folder / str(place)
            own.mkdir()
            self.nodes.append(HonestNode(place, own, self.files))
        self.ghost = Credentials(GHOST, len(NODES), 1, RUN, TLSFiles.of(self.files / "0", GHOST))

    def take(self, step: Any) -> None:
        match step:
            case Play():
                self.nodes[step.node].now = step
                self.nodes[step.node].signed = False
            case AskToSign():
                entry = self.nodes[step.node].sign()
                if entry is not None:
                    self.entries[step.node].append(entry)
            case Restart():
                self.nodes[step.node].restart()
            case Renew():
                node = self.nodes[step.node]
                node.certificate = 1 - node.certificate
                node.restart()
            case Ask():
                self.ask(step)

    def ask(self, step: Ask) -> None:
        """Send a roster, and check what is answered."""
        chosen = [
            self.entries[place][-1 - age]
            for place, age in enumerate(step.ages)
            if age is not None and len(self.entries[place]) > age
        ]
        if step.changed is not None and chosen:
            place = step.changed % len(chosen)
            ready = chosen[place].ready
            chosen[place] = replace(chosen[place], ready=replace(ready, episodes=ready.episodes + 1))
        if step.ghost and chosen:
            entry, _ = self.ghost.sign(step.round, chosen[0].ready.digest, 5, rewards=True)
            chosen.append(entry)
        roster = make_roster(step.round, chosen)
        reports = []
        for entry in roster.entries:
            node = next((one for one in self.nodes if NODES[one.place] == entry.name), None)
            if node is None or node.now is None or not node.signed or node.now.round != step.round:
                continue
            with suppress(DeclinedError, InputError):
                answer = node.sums.answer(roster, node.report())
                self.check(node, roster.entries, fingerprint(roster), encode(answer))
                reports.append(answer.arrays)
        if reports and len(reports) == len(roster.entries):
            self.completed += 1
            assert set(np.unique(summed(reports)[0])) <= {0, 1}, "the masks cancel"

    def check(self, node: HonestNode, entries: Sequence[RosterEntry], roster: bytes, answer: bytes) -> None:
        """Check an answer against the rule, and against all earlier answers of the node."""
        (own,) = [entry for entry in entries if entry.name == NODES[node.place]]
        contributors = [one for one in entries if one.ready.episodes >= 1 and one.ready.digest == own.ready.digest]
        assert len(contributors) >= LEAST
        assert len(contributors) == sum(entry.ready.episodes >= 1 for entry in entries)
        known = self.answers[node.place]
        if roster in known:
            assert known[roster][1] == answer, "the same bytes to the same roster"
            return
        for episodes, _ in known.values():
            assert not episodes & node.episodes, "no episode is in two answers"
        known[roster] = node.episodes, answer


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two certificates of each node, of one authority."""
    folder = tmp_path_factory.mktemp("two-certificates")
    make_certificates(folder / "0", nodes=[*NODES, GHOST])
    (folder / "1").mkdir()
    for name in ("ca.crt", "ca.key"):
        (folder / "1" / name).write_bytes((folder / "0" / name).read_bytes())
    make_certificates(folder / "1", nodes=NODES)
    return folder


def carried_out(schedule: Sequence[Any], files: Path) -> World:
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder), files)
        for step in schedule:
            world.take(step)
        return world


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(schedule=SCHEDULES)
def test_no_schedule_puts_an_episode_into_two_sums(schedule: Sequence[Any], files: Path) -> None:
    carried_out(schedule, files)


def test_rounds_in_which_all_goes_well_are_all_summed(files: Path) -> None:
    world = carried_out([step for number in range(1, 4) for step in honest_round(number)], files)
    assert world.completed == 3


def test_a_roster_is_answered_again_after_all_nodes_were_started_again(files: Path) -> None:
    begin = honest_round(1)
    again = [*map(Restart, range(len(NODES))), *begin]
    assert carried_out([*begin, *again], files).completed == 2


FORGETTING = {
    "every episode once": ("until", 0),
    "one answer per round": ("roster", b""),
}


@pytest.mark.parametrize("check", FORGETTING)
def test_the_property_fails_without_a_check(check: str, files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name, forgotten = FORGETTING[check]
    keep = NodeMemory.keep_sums

    def forgetful(memory: NodeMemory, sums: Any) -> None:
        kept = replace(sums, **{name: forgotten})
        keep(memory, replace(kept, key=sums.key or memory.sums.key))

    monkeypatch.setattr(NodeMemory, "keep_sums", forgetful)
    three = Ask(1, (0, 0, 0, None), ghost=False, changed=None)
    again = [Play(node, 2, 3, 2, 0) for node in range(3)]
    schedules = {
        "every episode once": [
            *honest_round(1),
            *again,
            *map(AskToSign, range(3)),
            Ask(2, (0, 0, 0, None), ghost=False, changed=None),
        ],
        "one answer per round": [*honest_round(1), three],
    }
    with pytest.raises(AssertionError, match="no episode is in two answers"):
        carried_out(schedules[check], files)
