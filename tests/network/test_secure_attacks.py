"""Attacks on secure sums, carried out on real nodes: what a server tried to read stays unread.

A malicious server, or an honest but curious one. Every attack is carried out twice: against nodes as they are, and
against nodes in which exactly one check is taken out. Then the server reads the victim's numbers, so the check is
what keeps them secret.
"""

from __future__ import annotations

import ast
import asyncio
import importlib
import inspect
import itertools
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from msgspec.structs import replace

from fed_ucbvi import FedKLUCBVI, InputError, synthetic
from fed_ucbvi.algorithms.base import Message, Setting
from fed_ucbvi.network import client, sent_sums
from fed_ucbvi.network.certificates import TLSFiles, make_certificates
from fed_ucbvi.network.messages import Denial, Query, Ready, Report, Roster, RosterEntry, Start
from fed_ucbvi.network.node import Node
from fed_ucbvi.network.roster import Authority, Company, Credentials, der_of, fingerprint, make_roster
from fed_ucbvi.network.run_plan import RunPlan, plan_for
from fed_ucbvi.network.secure_sums import masked, pair_key, summed
from fed_ucbvi.network.sent_sums import SentSums
from fed_ucbvi.network.sources import LiveSource
from gymnasium_problems import clinic
from network import Served, TLSByName, federate, first_broadcast

NAMES = ("node-0", "node-1", "node-2", "node-3")
VICTIM = "node-3"
GHOSTS = ("ghost-1", "ghost-2")
"""They have certificates and no process: whoever is the server, is they."""
WORLD = synthetic(agents=6, eps_p=0.0, seed=0, states=3, actions=2, horizon=3)
T, EPISODES = 200, 20
"""In a run, and in the round that the server is after."""
CarryOut = Callable[["Attacker"], Message | None]
Options = Mapping[str, Mapping[str, Any]]
TakeOut = Callable[[pytest.MonkeyPatch], None]


def replaced(place: Any, name: str, value: Any) -> TakeOut:
    return lambda patch: patch.setattr(place, name, value)


def without(module: str, text: str) -> TakeOut:
    """Take out the one statement ``if`` of a module whose source has this text, and nothing else."""
    place = importlib.import_module(f"fed_ucbvi.network.{module}")
    tree = ast.parse(inspect.getsource(place))
    found = [node for node in ast.walk(tree) if isinstance(node, ast.If) and text in ast.unparse(node)]
    (check,) = [node for node in found if not any(other in ast.walk(node) for other in found if other is not node)]
    check.test, check.body = ast.Constant(value=False), [ast.Pass()]
    owners = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    ((owner, method),) = [(one, each) for one in owners for each in one.body if check in ast.walk(each)]
    assert isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef)
    made: dict[str, Any] = {}
    exec(compile(ast.fix_missing_locations(ast.Module([method], [])), "<without>", "exec"), vars(place), made)
    return replaced(getattr(place, owner.name), method.name, made[method.name])


class Attack(NamedTuple):
    """An attack.

    Attributes:
        carry_out: what the server does; gives what it has read.
        take_out: removes the check without which it succeeds; without one, an option is the cure.
        says: what a node then says that has the check, or the server hears.
        options: of all nodes, or of one.
        up_to: of the numbers that it reads so many episodes are of others.
        nodes: that take part.
    """

    carry_out: CarryOut
    take_out: TakeOut | None
    says: str
    options: Options = MappingProxyType({})
    up_to: int = 0
    nodes: Sequence[str] = NAMES


ATTACKS: dict[str, Attack] = {}


def attack(*about: Any, **more: Any) -> Callable[[CarryOut], CarryOut]:
    def listed(carry_out: CarryOut) -> CarryOut:
        ATTACKS[carry_out.__name__] = Attack(carry_out, *about, **more)
        return carry_out

    return listed


ALL = ""
STRICT: Options = {ALL: {"most_failures": 0}}
PINNED: Options = {VICTIM: {"members": frozenset(NAMES)}}
SILENT: Options = {"node-1": {"rewards": False}, "node-2": {"rewards": False}}
STAND_OUT = "and 3 are needed, so that no node's numbers stand out"
THREE_CONTRIBUTORS = without("roster", "so that no node's numbers stand out")
RULE_OF_THREE = without("rounds", "plan.least_episodes")
"""An honest server's."""


def _tells_without_pins(company: Company, roster: Roster) -> bool:
    return _TELLS_REWARDS(company._replace(members=None), roster)


_TELLS_REWARDS = Company.tells_rewards


class Ghost(NamedTuple):
    """A member that the server has invented."""

    name: str
    certificate: bytes
    own: Credentials


class Attacker:
    """The server, with nodes; in the folder ``certs`` are certificates, the authority's key included."""

    def __init__(self, certs: Path, names: Iterable[str], options: Options) -> None:
        self.certs, self.nodes = certs, dict[str, Node]()
        self.plan = plan_for(FedKLUCBVI(), WORLD, T, collection="live", secure_sums=True, run="the-run")
        for name in names:
            own = {**options.get(ALL, {}), **options.get(name, {})}
            self.nodes[name] = Node(name, lambda M: WORLD, int(name[-1]), 1, **own)
            self.nodes[name].identify(TLSFiles.of(certs, name), "localhost")
            self.nodes[name].enter(self.plan.welcome())
        self.signed: dict[str, RosterEntry] = {}
        self.base, self.played = dict.fromkeys(NAMES, 0), dict.fromkeys(NAMES, 0)
        self.said: list[str] = []
        """What nodes have answered to rosters."""
        self.broadcast = first_broadcast(self.plan)
        self.broadcast[1][...] = 10**6  # so many visits that nobody asks for a synchronisation

    def certificate(self, name: str) -> bytes:
        return der_of(TLSFiles.of(self.certs, name).certificate.read_bytes())

    def play(
        self, name: str, number: int, episodes: int, confirmed: tuple[int, bytes] = (0, b""), **rest: Any
    ) -> Ready:
        """Have a node play so many episodes of a round, and take what it signs."""
        arrays, base = rest.pop("broadcast", self.broadcast), rest.pop("base", self.base[name])
        used = dict(zip(("credited", "credited_roster"), confirmed, strict=True))
        start = Start(number, base, self.played[name], episodes, 1, arrays, *confirmed, **{**used, **rest})
        node = self.nodes[name]
        said: Any = node.answer(start)
        while said is None:
            said = node.play_on()
        assert said.played == episodes
        self.base[name], self.played[name] = number, self.played[name] + episodes
        ready: Ready = said.ready
        self.signed[name] = RosterEntry(name, node.first_agent, 1, self.certificate(name), replace(ready, denial=b""))
        return ready

    def everyone(self, number: int, episodes: int, names: Iterable[str] = NAMES, **rest: Any) -> None:
        for name in names:
            self.play(name, number, episodes, **rest)

    def invent(
        self, name: str, first_agent: int, binding: bytes, number: int = 1, certs: Path | None = None
    ) -> Ghost:
        """Be a member oneself: with a certificate, new episodes and rewards that nobody has."""
        files = TLSFiles.of(certs or self.certs, name)
        own = Credentials(name, first_agent, 1, self.plan.run, files)
        ready = own.ready(number, binding, (EPISODES, EPISODES), (0, 0), rewards=True)
        certificate = der_of(files.certificate.read_bytes())
        self.signed[name] = RosterEntry(name, first_agent, 1, certificate, ready)
        return Ghost(name, certificate, own)

    def roster(self, number: int, names: Iterable[str], denials: Sequence[Denial] = ()) -> Roster:
        return make_roster(number, 0, [self.signed[name] for name in names], denials)

    def ask(self, message: Roster | Query, name: str) -> Report | None:
        """A node's report, if it gives one."""
        answer: Any = self.nodes[name].answer(message)
        self.said.append(getattr(answer, "reason", "a report"))
        return answer if isinstance(answer, Report) else None

    def sum(self, roster: Roster, *ghosts: Ghost) -> Message | None:
        """What one gets to know: the sum, if all have answered. One knows one's own masks."""
        names = [entry.name for entry in roster.entries if entry.name not in {ghost.name for ghost in ghosts}]
        reports = [answer.arrays for name in names if (answer := self.ask(roster, name)) is not None]
        if len(reports) < len(names):
            return None
        nothing = tuple(np.zeros_like(array) for array in reports[0])
        own = [masked(nothing, ghost.name, ghost.own.pairs(roster, 6), fingerprint(roster)) for ghost in ghosts]
        return summed([*reports, *own])

    def honest_sum(self, names: Iterable[str] = NAMES, **parts: bool) -> tuple[bytes, Message]:
        """What is new in round 1, of nodes that have all played it, with the digest of the roster."""
        self.everyone(1, EPISODES, names)
        roster = replace(self.roster(1, names), **parts)
        total = self.sum(roster)
        assert total is not None, "an honest sum"
        return fingerprint(roster), total

    def sum_with_ghosts(self, *names: str) -> Message | None:
        """What is new in round 1 of these nodes and of invented members."""
        self.everyone(1, EPISODES, names)
        binding = self.signed[VICTIM].ready.binding
        ghosts = [self.invent(name, 4 + i, binding) for i, name in enumerate(GHOSTS)]
        return self.sum(self.roster(1, [*names, *GHOSTS]), *ghosts)


def less(one: Message | None, other: Message | None) -> Message | None:
    """What one sum has more than another."""
    return None if one is None or other is None else tuple(a - b for a, b in zip(one, other, strict=True))


# ------------------------------------------------------------------------------------------------------- attacks


@attack(THREE_CONTRIBUTORS, STAND_OUT)
def a_node_that_joins_late_or_plays_alone(server: Attacker) -> Message | None:
    digest, _ = server.honest_sum(NAMES[:3])
    server.everyone(2, 0, NAMES[:3], confirmed=(1, digest))
    server.play(VICTIM, 2, EPISODES)
    return server.sum(server.roster(2, NAMES))


@attack(without("roster", "different broadcasts"), "has sent different broadcasts to different nodes")
def another_policy_for_the_victim(server: Attacker) -> Message | None:
    policy = server.broadcast[0].copy()
    policy[...] = False
    policies = [policy.copy(), policy.copy()]
    for action in (0, 1):
        policies[action][..., action] = True
    for name in NAMES:
        broadcast = policies[name == VICTIM], *server.broadcast[1:]
        server.play(name, 1, EPISODES, broadcast=broadcast)
    total = server.sum(server.roster(1, NAMES))
    if total is None:
        return None
    actions = np.array([server.plan.support.place(number)[2] for number in range(total[0].shape[1])])
    total[0][:, actions == 0] = 0  # what others have done
    return total[:1]


@attack(replaced(Authority, "check", lambda *_: None), "of 'node-0' what it has not signed for this round")
def keys_of_its_own_in_the_place_of_others(server: Attacker) -> Message | None:
    server.everyone(1, EPISODES)
    keys = {name: X25519PrivateKey.generate() for name in NAMES[:3]}
    entries = [server.signed[VICTIM]]
    for name, key in keys.items():
        mine, theirs = key.public_key().public_bytes_raw(), server.signed[name]
        entries.append(replace(theirs, ready=replace(theirs.ready, key=mine)))
    roster = make_roster(1, 0, entries)
    answer = server.ask(roster, VICTIM)
    if answer is None:
        return None
    digest, nothing = fingerprint(roster), tuple(np.zeros_like(array) for array in answer.arrays)
    masks = []
    for name, key in keys.items():
        pair = pair_key(key, server.signed[VICTIM].ready.key, server.plan.run, digest, (name, VICTIM))
        masks.append(masked(nothing, name, {VICTIM: pair}, digest))
    return summed([answer.arrays, *masks])


@attack(without("sent_sums", "only after new episodes"), "sent in other company only after new episodes")
def rosters_of_three_out_of_four(server: Attacker) -> Message | None:
    server.everyone(1, EPISODES)
    sums = [server.sum(server.roster(1, three)) for three in itertools.combinations(NAMES, 3)]
    known = [total for total in sums if total is not None]
    if len(known) < len(NAMES):
        return None
    return less(tuple(sum(arrays) // 3 for arrays in zip(*known, strict=True)), known[0])


def rewards_in(total: Message | None) -> Message | None:
    return None if total is None or not total[-1][0, 0] else (total[-1][:, :4],)


@attack(replaced(Company, "tells_rewards", lambda *_: True), "", SILENT, nodes=NAMES[1:])
def rewards_that_the_others_keep_back(server: Attacker) -> Message | None:
    server.everyone(1, EPISODES, NAMES[1:])
    return rewards_in(server.sum(server.roster(1, NAMES[1:])))


@attack(replaced(Company, "tells_rewards", _tells_without_pins), "", {**SILENT, **PINNED}, nodes=NAMES[1:])
def rewards_in_invented_company(server: Attacker) -> Message | None:
    return rewards_in(server.sum_with_ghosts(*NAMES[1:]))


@attack(without("node", "in the open"), "numbers in the open", nodes=(VICTIM,))
def a_question_in_the_open(server: Attacker) -> Message | None:
    server.play(VICTIM, 1, EPISODES)
    answer = server.ask(Query(1, 0, (np.zeros(1, dtype=np.int64),)), VICTIM)
    return None if answer is None else answer.arrays


@attack(without("sent_sums", "--most-failures"), "have failed after this node had answered", STRICT, 3)
def a_feigned_failure(server: Attacker) -> Message | None:
    _, first = server.honest_sum()
    server.everyone(2, 1)
    return less(first, server.sum(server.roster(2, NAMES[:3])))


@attack(without("sent_sums", "takes back"), "takes back that it has used", STRICT)
def a_confirmation_that_is_taken_back(server: Attacker) -> Message | None:
    digest, first = server.honest_sum()
    server.everyone(2, 0, NAMES[:3], confirmed=(1, digest))
    server.everyone(3, 0, NAMES[:3], base=1)
    return less(first, server.sum(server.roster(3, NAMES[:3])))


@attack(replaced(SentSums, "may_deny", lambda *_: True), "only after new episodes", STRICT)
def a_denial_by_one_who_has_answered(server: Attacker) -> Message | None:
    digest, first = server.honest_sum()
    signature = (server.play(VICTIM, 2, 0, missed=1, missed_roster=digest)).denial
    server.everyone(2, 0, NAMES[:3])
    denial = Denial(VICTIM, 1, digest, signature, server.certificate(VICTIM))
    return less(first, server.sum(server.roster(2, NAMES[:3], [denial] if signature else [])))


@attack(replaced(SentSums, "_denied", lambda *_: True), "only after new episodes", STRICT)
def a_false_denial_by_one_that_colludes(server: Attacker) -> Message | None:
    server.everyone(1, EPISODES)
    ghost = server.invent(GHOSTS[0], 4, server.signed[VICTIM].ready.binding)
    roster = server.roster(1, [*NAMES, ghost.name])
    first = server.sum(roster, ghost)
    assert first is not None
    server.everyone(2, 0, NAMES[:3])
    ghost = server.invent(GHOSTS[0], 4, server.signed[NAMES[0]].ready.binding, 2)
    digest = fingerprint(roster)
    denial = Denial(ghost.name, 1, digest, ghost.own.denial(1, digest), ghost.certificate)
    return less(first, server.sum(server.roster(2, [*NAMES[:3], ghost.name], [denial]), ghost))


@attack(replaced(SentSums, "_is_of_the_same", lambda *_: True), "have failed after this node had answered", STRICT)
def where_a_node_began_from_counts_without_it(server: Attacker) -> Message | None:
    """Rewards of all, and then counts of all others: the initial states that are in one sum only are the victim's."""
    digest, rewards = server.honest_sum(counts=False)
    server.everyone(2, 0, NAMES[:3], credited=1, credited_roster=digest)
    counts = server.sum(replace(server.roster(2, NAMES[:3]), rewards=False))
    if counts is None:
        return None
    began = rewards[0][:, 4:].copy()
    for number, count in enumerate(counts[0][0]):
        step, state, *_ = server.plan.support.place(number)
        began[0, state] -= count * (step == 0)
    return (began,)


@attack(None, STAND_OUT, PINNED, nodes=(VICTIM,))
def invented_members(server: Attacker) -> Message | None:
    return server.sum_with_ghosts(VICTIM)


@attack(replaced(sent_sums, "certificate_fingerprint", lambda _: ""), "only after new episodes", STRICT)
def another_certificate_for_the_victims_name(server: Attacker) -> Message | None:
    _, first = server.honest_sum()
    twin = server.certs.with_name("twin")
    twin.mkdir()
    for file in ("ca.crt", "ca.key"):
        shutil.copy(server.certs / file, twin)
    make_certificates(twin, nodes=[VICTIM])
    ghost = server.invent(VICTIM, 3, server.signed[VICTIM].ready.binding, certs=twin)
    return less(first, server.sum(server.roster(1, NAMES), ghost))


# ------------------------------------------------------------------------------------------------------ tests

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
    server, read = Attacker(authority, case.nodes, case.options), None
    try:
        read, said = case.carry_out(server), server.said[-1]
    except InputError as error:
        said = str(error)
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
