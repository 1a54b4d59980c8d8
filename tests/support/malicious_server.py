"""A server that does what it likes with real nodes; and nodes, as processes, without exactly one check.

``tests/support/warm_start.py`` starts them. They leave in files what they sent before it was masked; tests compare.
"""

from __future__ import annotations

import ast
import asyncio
import importlib
import inspect
import itertools
import shutil
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from msgspec.structs import replace

from fed_ucbvi import FedKLUCBVI, synthetic
from fed_ucbvi.algorithms.base import Message
from fed_ucbvi.network.certificates import TLSFiles, make_certificates
from fed_ucbvi.network.failures import ConnectionLostError
from fed_ucbvi.network.members import NodeStream
from fed_ucbvi.network.messages import Decline, Denial, Hello, Query, Ready, Report, Roster, RosterEntry, Start
from fed_ucbvi.network.roster import Company, Credentials, der_of, fingerprint, make_roster
from fed_ucbvi.network.run_plan import plan_for
from fed_ucbvi.network.secure_sums import masked, pair_key, summed
from fed_ucbvi.network.transport import Listener, WireCount
from network import first_broadcast

NAMES = ("node-0", "node-1", "node-2", "node-3")
VICTIM = "node-3"
GHOSTS = ("ghost-1", "ghost-2")
"""They have certificates and no process: whoever is the server, is they."""
SIZES: dict[str, Any] = {"states": 3, "actions": 2, "horizon": 3}
PROBLEM = (
    "--env",
    "synthetic",
    *(part for name in SIZES for part in ("--env-option", f"{name}={SIZES[name]}")),
)
T = 200
EPISODES = 20
"""In a run, and in the round that the server is after."""
Said = tuple[str, int, str]
"""A node, a round, and what the node has answered to a roster."""
Answer = Report | Decline | None
CarryOut = Callable[["Attacker"], Awaitable[Message | None]]


class Attack(NamedTuple):
    """An attack.

    Attributes:
        carry_out: what the server does; gives what it has read.
        check: without which it succeeds.
        says: what a node then says that has the check, or the server hears.
        options: of all nodes, or of one.
        up_to: of the numbers that it reads so many episodes are of others.
        nodes: that take part.
    """

    carry_out: CarryOut
    check: str
    says: str
    options: Mapping[str, Sequence[str]] = MappingProxyType({})
    up_to: int = 0
    nodes: Sequence[str] = NAMES


ATTACKS: dict[str, Attack] = {}


def attack(*about: Any, **more: Any) -> Callable[[CarryOut], CarryOut]:
    def listed(carry_out: CarryOut) -> CarryOut:
        ATTACKS[carry_out.__name__] = Attack(carry_out, *about, **more)
        return carry_out

    return listed


ALL = ""
STRICT = {ALL: ("--most-failures", "0")}
PINNED = {VICTIM: ("--members", "members.txt")}
SILENT: dict[str, Sequence[str]] = dict.fromkeys(("node-1", "node-2"), ("--no-rewards",))
STAND_OUT = "and 3 are needed, so that no node's numbers stand out"


class Attacker:
    """The server.

    Args:
        folder: with certificates, the authority's key included, in ``certs``.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.certs = folder / "certs"
        world = synthetic(agents=6, eps_p=0.0, seed=0, **SIZES)
        self.plan = plan_for(FedKLUCBVI(), world, T, collection="live", secure_sums=True, run="the-run")
        self.streams: dict[str, NodeStream] = {}
        self.agents: dict[str, tuple[int, int]] = {}
        self.certificates: dict[str, bytes] = {}
        self.signed: dict[str, RosterEntry] = {}
        self.base = dict.fromkeys(NAMES, 0)
        self.played = dict.fromkeys(NAMES, 0)
        self.said: list[Said] = []
        self.broadcast = first_broadcast(self.plan)
        self.broadcast[1][...] = 10**6  # so many visits that nobody asks for a synchronisation

    async def session(self, connection: Any) -> None:
        stream = NodeStream(connection, WireCount())
        hello = await stream.receive()
        assert isinstance(hello, Hello)
        await stream.send(self.plan.welcome())
        await stream.receive()
        stream.limits = dict.fromkeys(("Played", "Report"), 1 << 24)
        self.agents[hello.node] = hello.first_agent, hello.agents
        self.certificates[hello.node] = der_of(stream.connection.certificate)
        self.streams[hello.node] = stream
        await stream.closed.wait()

    async def policy(self, certificate: bytes) -> bytes:
        raise NotImplementedError

    def entry(self, name: str, ready: Ready) -> RosterEntry:
        return RosterEntry(
            name,
            *self.agents[name],
            self.certificates[name],
            replace(ready, denial=b""),
        )

    async def play(
        self,
        name: str,
        number: int,
        episodes: int,
        confirmed: tuple[int, bytes] = (0, b""),
        **rest: Any,
    ) -> Ready:
        """Have a node play so many episodes of a round, and take what it signs."""
        arrays = rest.pop("broadcast", self.broadcast)
        base = rest.pop("base", self.base[name])
        used = dict(zip(("credited", "credited_roster"), confirmed, strict=True))
        start = Start(
            number,
            base,
            self.played[name],
            episodes,
            1,
            arrays,
            *confirmed,
            **{**used, **rest},
        )
        said: Any = await self.streams[name].ask([start])
        assert said.played == episodes
        self.base[name], self.played[name] = number, self.played[name] + episodes
        self.signed[name] = self.entry(name, said.ready)
        ready: Ready = said.ready
        return ready

    async def everyone(self, number: int, episodes: int, names: Iterable[str] = NAMES, **rest: Any) -> None:
        for name in names:
            await self.play(name, number, episodes, **rest)

    def invent(
        self,
        name: str,
        first_agent: int,
        binding: bytes,
        number: int = 1,
        folder: str = "certs",
    ) -> Ghost:
        """Be a member oneself: with a certificate, new episodes and rewards that nobody has."""
        ghost = Ghost(self, name, first_agent, TLSFiles.of(self.folder / folder, name))
        ready = ghost.own.ready(number, binding, (EPISODES, EPISODES), (0, 0), rewards=True)
        ghost.entry = self.signed[name] = RosterEntry(name, first_agent, 1, ghost.certificate, ready)
        return ghost

    def roster(self, number: int, names: Iterable[str], denials: Sequence[Denial] = ()) -> Roster:
        return make_roster(number, 0, [self.signed[name] for name in names], denials)

    async def ask(self, message: Roster | Query, name: str) -> Answer:
        """What a node answers; None if it ends instead."""
        try:
            answer: Any = await self.streams[name].ask([message])
        except ConnectionLostError as lost:
            self.said.append((name, message.round, str(lost)))
            return None
        self.said.append((name, message.round, getattr(answer, "reason", "a report")))
        return answer  # type: ignore[no-any-return]

    async def sum(self, roster: Roster, *ghosts: Ghost) -> Message | None:
        """What one gets to know: the sum, if all have answered. One knows one's own masks."""
        names = [entry.name for entry in roster.entries if entry.name not in {ghost.name for ghost in ghosts}]
        answers = [await self.ask(roster, name) for name in names]
        reports = [answer.arrays for answer in answers if isinstance(answer, Report)]
        if len(reports) < len(names):
            return None
        nothing = tuple(np.zeros_like(array) for array in reports[0])
        own = [masked(nothing, ghost.name, ghost.own.pairs(roster, 6), fingerprint(roster)) for ghost in ghosts]
        return summed([*reports, *own])

    async def honest_sum(self, names: Iterable[str] = NAMES, **parts: bool) -> tuple[bytes, Message]:
        """What is new in round 1, of nodes that have all played it, with the digest of the roster."""
        await self.everyone(1, EPISODES, names)
        roster = replace(self.roster(1, names), **parts)
        total = await self.sum(roster)
        assert total is not None, "an honest sum"
        return fingerprint(roster), total

    async def sum_with_ghosts(self, *names: str) -> Message | None:
        """What is new in round 1 of these nodes and of invented members."""
        await self.everyone(1, EPISODES, names)
        binding = self.signed[VICTIM].ready.binding
        ghosts = [self.invent(name, 4 + i, binding) for i, name in enumerate(GHOSTS)]
        return await self.sum(self.roster(1, [*names, *GHOSTS]), *ghosts)


class Ghost:
    entry: RosterEntry

    def __init__(self, server: Attacker, name: str, first_agent: int, files: TLSFiles) -> None:
        self.name = name
        self.certificate = der_of(files.read()[1])
        self.own = Credentials(name, first_agent, 1, server.plan.run, files)


def less(one: Message | None, other: Message | None) -> Message | None:
    """What one sum has more than another."""
    if one is None or other is None:
        return None
    return tuple(a - b for a, b in zip(one, other, strict=True))


# ------------------------------------------------------------------------------------------------------- attacks


@attack("three contributors", STAND_OUT)
async def a_node_that_joins_late_or_plays_alone(server: Attacker) -> Message | None:
    digest, _ = await server.honest_sum(NAMES[:3])
    await server.everyone(2, 0, NAMES[:3], confirmed=(1, digest))
    await server.play(VICTIM, 2, EPISODES)
    return await server.sum(server.roster(2, NAMES))


@attack("one broadcast for all", "has sent different broadcasts to different nodes")
async def another_policy_for_the_victim(server: Attacker) -> Message | None:
    policy = server.broadcast[0].copy()
    policy[...] = False
    policies = [policy.copy(), policy.copy()]
    for action in (0, 1):
        policies[action][..., action] = True
    for name in NAMES:
        broadcast = policies[name == VICTIM], *server.broadcast[1:]
        await server.play(name, 1, EPISODES, broadcast=broadcast)
    total = await server.sum(server.roster(1, NAMES))
    if total is None:
        return None
    actions = np.array([server.plan.support.place(number)[2] for number in range(total[0].shape[1])])
    total[0][:, actions == 0] = 0  # what others have done
    return total[:1]


@attack("signatures", "of 'node-0' what it has not signed for this round")
async def keys_of_its_own_in_the_place_of_others(server: Attacker) -> Message | None:
    await server.everyone(1, EPISODES)
    keys = {name: X25519PrivateKey.generate() for name in NAMES[:3]}
    entries = [server.signed[VICTIM]]
    for name, key in keys.items():
        mine = key.public_key().public_bytes_raw()
        theirs = server.signed[name]
        entries.append(replace(theirs, ready=replace(theirs.ready, key=mine)))
    roster = make_roster(1, 0, entries)
    answer = await server.ask(roster, VICTIM)
    if not isinstance(answer, Report):
        return None
    digest = fingerprint(roster)
    nothing = tuple(np.zeros_like(array) for array in answer.arrays)
    masks = []
    for name, key in keys.items():
        pair = pair_key(
            key,
            server.signed[VICTIM].ready.key,
            server.plan.run,
            digest,
            (name, VICTIM),
        )
        masks.append(masked(nothing, name, {VICTIM: pair}, digest))
    return summed([answer.arrays, *masks])


@attack("one answer a round", "sent in other company only after new episodes")
async def rosters_of_three_out_of_four(server: Attacker) -> Message | None:
    await server.everyone(1, EPISODES)
    sums = [await server.sum(server.roster(1, three)) for three in itertools.combinations(NAMES, 3)]
    known = [total for total in sums if total is not None]
    if len(known) < len(NAMES):
        return None
    return less(tuple(sum(arrays) // 3 for arrays in zip(*known, strict=True)), known[0])


def rewards_in(total: Message | None) -> Message | None:
    return None if total is None or not total[-1][0, 0] else (total[-1][:, :4],)


@attack("three that tell rewards", "", SILENT, nodes=NAMES[1:])
async def rewards_that_the_others_keep_back(server: Attacker) -> Message | None:
    await server.everyone(1, EPISODES, NAMES[1:])
    return rewards_in(await server.sum(server.roster(1, NAMES[1:])))


@attack("pins for rewards", "", {**SILENT, **PINNED}, nodes=NAMES[1:])
async def rewards_in_invented_company(server: Attacker) -> Message | None:
    return rewards_in(await server.sum_with_ghosts(*NAMES[1:]))


@attack("no question in the open", "numbers in the open", nodes=(VICTIM,))
async def a_question_in_the_open(server: Attacker) -> Message | None:
    await server.play(VICTIM, 1, EPISODES)
    answer = await server.ask(Query(1, 0, (np.zeros(1, dtype=np.int64),)), VICTIM)
    return answer.arrays if isinstance(answer, Report) else None


@attack("the limit of failures", "have failed after this node had answered", STRICT, 3)
async def a_feigned_failure(server: Attacker) -> Message | None:
    _, first = await server.honest_sum()
    await server.everyone(2, 1)
    return less(first, await server.sum(server.roster(2, NAMES[:3])))


@attack("what is confirmed stays so", "takes back that it has used", STRICT)
async def a_confirmation_that_is_taken_back(server: Attacker) -> Message | None:
    digest, first = await server.honest_sum()
    await server.everyone(2, 0, NAMES[:3], confirmed=(1, digest))
    try:
        await server.everyone(3, 0, NAMES[:3], base=1)
    except ConnectionLostError as lost:
        server.said.append((NAMES[0], 3, str(lost)))
        return None
    return less(first, await server.sum(server.roster(3, NAMES[:3])))


@attack("no denial after an answer", "only after new episodes", STRICT)
async def a_denial_by_one_who_has_answered(server: Attacker) -> Message | None:
    digest, first = await server.honest_sum()
    signature = (await server.play(VICTIM, 2, 0, missed=1, missed_roster=digest)).denial
    await server.everyone(2, 0, NAMES[:3])
    denial = Denial(VICTIM, 1, digest, signature, server.certificates[VICTIM])
    return less(
        first,
        await server.sum(server.roster(2, NAMES[:3], [denial] if signature else [])),
    )


@attack("no harm by false denials", "only after new episodes", STRICT)
async def a_false_denial_by_one_that_colludes(server: Attacker) -> Message | None:
    await server.everyone(1, EPISODES)
    ghost = server.invent(GHOSTS[0], 4, server.signed[VICTIM].ready.binding)
    roster = server.roster(1, [*NAMES, ghost.name])
    first = await server.sum(roster, ghost)
    assert first is not None
    await server.everyone(2, 0, NAMES[:3])
    ghost = server.invent(GHOSTS[0], 4, server.signed[NAMES[0]].ready.binding, 2)
    digest = fingerprint(roster)
    denial = Denial(ghost.name, 1, digest, ghost.own.denial(1, digest), ghost.certificate)
    return less(
        first,
        await server.sum(server.roster(2, [*NAMES[:3], ghost.name], [denial]), ghost),
    )


@attack("counts of what was credited", "have failed after this node had answered", STRICT)
async def where_a_node_began_from_counts_without_it(server: Attacker) -> Message | None:
    """Rewards of all, and then counts of all others: the initial states that are in one sum only are the victim's."""
    digest, rewards = await server.honest_sum(counts=False)
    await server.everyone(2, 0, NAMES[:3], credited=1, credited_roster=digest)
    counts = await server.sum(replace(server.roster(2, NAMES[:3]), rewards=False))
    if counts is None:
        return None
    began = rewards[0][:, 4:].copy()
    for number, count in enumerate(counts[0][0]):
        step, state, *_ = server.plan.support.place(number)
        began[0, state] -= count * (step == 0)
    return (began,)


@attack("", STAND_OUT, PINNED, nodes=(VICTIM,))
async def invented_members(server: Attacker) -> Message | None:
    return await server.sum_with_ghosts(VICTIM)


@attack("certificates in the company", "only after new episodes", STRICT)
async def another_certificate_for_the_victims_name(server: Attacker) -> Message | None:
    _, first = await server.honest_sum()
    twin = server.folder / "twin"
    twin.mkdir()
    for file in ("ca.crt", "ca.key"):
        shutil.copy(server.certs / file, twin)
    make_certificates(twin, nodes=[VICTIM])
    ghost = server.invent(VICTIM, 3, server.signed[VICTIM].ready.binding, folder="twin")
    return less(first, await server.sum(server.roster(1, NAMES), ghost))


async def carry_out(attack: Attack, folder: Path, begin: Callable[[int], None]) -> tuple[Message | None, list[Said]]:
    """What the server reads of the nodes that ``begin(port)`` starts, and what they say to rosters."""
    server = Attacker(folder)
    listener = Listener(server, "127.0.0.1:0", TLSFiles.of(server.certs, "server"))
    await listener.start()
    begin(listener.port)
    while len(server.streams) < len(attack.nodes):
        await asyncio.sleep(0.01)
    read = await attack.carry_out(server)
    for stream in server.streams.values():
        stream.close()
    await listener.stop()
    return read, server.said


# ------------------------------------------------------------------------------------------- nodes without a check


def without(module: str, text: str) -> None:
    """Take out the one statement ``if`` of a module's methods whose source has this text, and nothing else."""
    place = importlib.import_module(f"fed_ucbvi.network.{module}")
    tree = ast.parse(inspect.getsource(place))
    found = [node for node in ast.walk(tree) if isinstance(node, ast.If) and text in ast.unparse(node)]
    (check,) = [node for node in found if not any(other in ast.walk(node) for other in found if other is not node)]
    check.test = ast.Constant(value=False)
    check.body = [ast.Pass()]
    owners = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    ((owner, method),) = [(one, each) for one in owners for each in one.body if check in ast.walk(each)]
    assert isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef)
    made: dict[str, Any] = {}
    exec(
        compile(ast.fix_missing_locations(ast.Module([method], [])), "<without>", "exec"),
        vars(place),
        made,
    )
    setattr(getattr(place, owner.name), method.name, made[method.name])


def replaced(module: str, name: str, value: Any) -> None:
    """Put something else in the place of what a module calls by this name; ``Class.method`` is possible."""
    place: Any = importlib.import_module(f"fed_ucbvi.network.{module}")
    *owner, last = name.split(".")
    setattr(getattr(place, owner[0]) if owner else place, last, value)


def _tells_without_pins(company: Company, roster: Roster) -> bool:
    return _TELLS_REWARDS(company._replace(members=None), roster)


_TELLS_REWARDS = Company.tells_rewards
SWITCHES: dict[str, Callable[[], None]] = {
    "nothing": lambda: None,
    "three contributors": partial(without, "roster", "so that no node's numbers stand out"),
    "one broadcast for all": partial(without, "roster", "different broadcasts"),
    "signatures": partial(replaced, "roster", "Authority.check", lambda *_: None),
    "one answer a round": partial(without, "sent_sums", "only after new episodes"),
    "three that tell rewards": partial(replaced, "roster", "Company.tells_rewards", lambda *_: True),
    "pins for rewards": partial(replaced, "roster", "Company.tells_rewards", _tells_without_pins),
    "no question in the open": partial(without, "node", "in the open"),
    "the limit of failures": partial(without, "sent_sums", "--most-failures"),
    "what is confirmed stays so": partial(without, "sent_sums", "takes back"),
    "no denial after an answer": partial(replaced, "sent_sums", "SentSums.may_deny", lambda *_: True),
    "no harm by false denials": partial(replaced, "sent_sums", "SentSums._denied", lambda *_: True),
    "counts of what was credited": partial(replaced, "sent_sums", "SentSums._is_of_the_same", lambda *_: True),
    "certificates in the company": partial(replaced, "sent_sums", "certificate_fingerprint", lambda _: ""),
    "the kind of errors alone": partial(replaced, "node", "Node.secret", property(lambda _: False, lambda *_: None)),
    "a server's rule of three": partial(without, "rounds", "plan.rules.least_episodes"),
}


def take_part(arguments: Sequence[str]) -> None:
    """The process of a node, or of an honest server, without one check.

    It is told which, where to note what it sends or adds up, how long an episode takes, and then the command.
    """
    from fed_ucbvi.command_line import main
    from fed_ucbvi.network import node

    switch, folder, seconds, *command = arguments
    SWITCHES[switch]()
    numbers = itertools.count()
    play_on = node.Node.play_on
    report = node.Node._report

    def note(name: str, arrays: Message) -> None:
        np.savez(Path(folder) / f"{name}.{next(numbers)}.npz", *arrays)

    def noted(own: Message, name: str, *rest: Any) -> Message:
        note(name, own)
        return masked(own, name, *rest)

    due = time.monotonic()

    def slow(self: node.Node) -> Any:
        nonlocal due
        if time.monotonic() < due:
            time.sleep(0.005)
            return None
        due = time.monotonic() + float(seconds)
        return play_on(self)

    def told(self: node.Node, query: Any) -> Any:
        answer = report(self, query)
        note(self.name, answer.arrays)
        return answer

    def remembered(reports: Iterable[Message]) -> Message:
        total = summed(reports)
        note("sum", total)
        return total

    replaced("node", "masked", noted)
    replaced("rounds", "summed", remembered)
    replaced("node", "Node.play_on", slow)
    replaced("node", "Node._report", told)
    sys.argv = ["fed-ucbvi", *command]
    main()
