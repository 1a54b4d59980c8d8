"""A server that does what it likes with real nodes: the attacks of ``docs/trust.md``.

``tests/support/unchecked_nodes.py`` has the nodes' side: processes in which exactly one check is missing.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import shutil
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from msgspec.structs import replace

from fed_ucbvi import FedKLUCBVI, synthetic
from fed_ucbvi.algorithms.base import Message, Setting
from fed_ucbvi.environments.bins import Bins, Edges, Whole
from fed_ucbvi.network.certificates import TLSFiles, make_certificates
from fed_ucbvi.network.failures import ConnectionLostError
from fed_ucbvi.network.members import NodeStream
from fed_ucbvi.network.messages import (
    Decline,
    Hello,
    Query,
    Ready,
    Report,
    Roster,
    RosterEntry,
    Sign,
    Start,
    Stop,
    Welcome,
)
from fed_ucbvi.network.rewards import NUMBERS
from fed_ucbvi.network.roster import Credentials, der_of, fingerprint, make_roster
from fed_ucbvi.network.run_plan import RunPlan, plan_for
from fed_ucbvi.network.secure_sums import masked, pair_key, summed
from fed_ucbvi.network.transport import Listener, WireCount
from fed_ucbvi.results.round_record import INCUMBENT, VERIFYING
from network import first_broadcast, live_plan_of

NAMES = ("node-0", "node-1", "node-2", "node-3")
OTHERS = NAMES[:3]
VICTIM = "node-3"
GHOSTS = ("ghost-1", "ghost-2")
"""They have certificates and no process: the server plays them."""
SIZES: dict[str, Any] = {"states": 3, "actions": 2, "horizon": 3}
STEPS = int(SIZES["horizon"])
PROBLEM = ("--env", "synthetic", *(part for name in SIZES for part in ("--env-option", f"{name}={SIZES[name]}")))
ROOM = ("--live", "gymnasium_problems:thermometer")
T = 200
MANY = 2**36
"""Number of episodes for which rewards have a coarser grid."""
EPISODES = 20
"""Episodes of the round that the server is after."""
LOGGED = 300
"""Episodes in the victim's log."""
WORLD = synthetic(agents=6, eps_p=0.0, seed=0, **SIZES)
PLAN = plan_for(FedKLUCBVI(), WORLD, T, collection="live", secure_sums=True, run="the-run")


def bins_cut_at(temperature: float) -> Bins:
    return Bins((Edges("0", (temperature,)),), (Whole("0", 0, 2),), STEPS, (0.0, 1.0))


ROOM_PLAN = live_plan_of(
    FedKLUCBVI(),
    Setting(states=3, actions=2, horizon=STEPS, agents=6, episodes=T, eps_p=0.0, seed=0, random_rewards=True),
    secure_sums=True,
    bins=bins_cut_at(0.9),
    run="the-run",
)

Said = tuple[str, int, str]
"""A node, a round, and what the node has answered to a roster or to a request to sign."""
Answer = Report | Decline | None
CarryOut = Callable[["Attacker"], Awaitable[Message | None]]
Restart = Callable[[Sequence[str]], None]


def everything(arrays: Message) -> Message:
    return arrays


@dataclass(frozen=True)
class Attack:
    """An attack.

    Attributes:
        carry_out: what the server does; gives what it has read.
        check: the check without which it succeeds; empty: the options are the cure.
        says: what a node then says that has the check, or the server hears.
        options: of all nodes (under the empty name), or of one.
        part: the part of what the victim sends that the server is after.
        tolerance: largest sum of the differences between what was read and what the victim had.
        nodes: the nodes that take part.
        plan: the run.
        problem: what the nodes play in.
        welcome: the welcome of a node.
    """

    carry_out: CarryOut
    check: str
    says: str = ""
    options: Mapping[str, Sequence[str]] = field(default_factory=dict)
    part: Callable[[Message], Message] = everything
    tolerance: float = 0.0
    nodes: Sequence[str] = NAMES
    plan: RunPlan = PLAN
    problem: Sequence[str] = PROBLEM
    welcome: Callable[[RunPlan, str], Welcome] = lambda plan, name: plan.welcome()


ATTACKS: dict[str, Attack] = {}


def attack(check: str, says: str = "", **more: Any) -> Callable[[CarryOut], CarryOut]:
    def listed(carry_out: CarryOut) -> CarryOut:
        ATTACKS[carry_out.__name__] = Attack(carry_out, check, says, **more)
        return carry_out

    return listed


ALL = ""
PINNED = {VICTIM: ("--members", "members.txt")}
SILENT: dict[str, Sequence[str]] = dict.fromkeys(("node-1", "node-2"), ("--no-rewards",))
STATE = dict.fromkeys(NAMES, ("--state", "state"))
LOGS = {VICTIM: ("--logs", "log.csv")}
STAND_OUT = "and 3 are needed, so that no node's numbers stand out"


class Attacker:
    """The server.

    Args:
        folder: with certificates, the authority's key included, in ``certs``.
        attack: the attack that it carries out.
        restart: ends the processes of some nodes and starts them again.
    """

    def __init__(self, folder: Path, attack: Attack, restart: Restart) -> None:
        self.folder = folder
        self.certs = folder / "certs"
        self.plan = attack.plan
        self._attack = attack
        self._restart = restart
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
        await stream.send(self._attack.welcome(self.plan, hello.node))
        await stream.receive()
        stream.limits = dict.fromkeys(("Played", "Report"), 1 << 24)
        self.agents[hello.node] = hello.first_agent, hello.agents
        self.certificates[hello.node] = der_of(stream.connection.certificate)
        self.streams[hello.node] = stream
        await stream.closed.wait()

    async def policy(self, certificate: bytes) -> bytes:
        raise NotImplementedError

    async def meet(self, names: Iterable[str]) -> None:
        """Wait until these nodes are connected."""
        while not self.streams.keys() >= {*names}:
            await asyncio.sleep(0.01)

    async def start_again(self, names: Sequence[str]) -> None:
        """Have the processes of these nodes killed and started again."""
        for name in names:
            del self.streams[name]
        self._restart(names)
        await self.meet(names)

    def only_action(self, action: int) -> Message:
        """The broadcast with a policy that plays one action."""
        policy = np.zeros_like(self.broadcast[0])
        policy[..., action] = True
        return (policy, *self.broadcast[1:])

    # ------------------------------------------------------------------------------------------------------ a round

    async def play(
        self,
        name: str,
        number: int,
        episodes: int,
        *,
        broadcast: Message | None = None,
        base: int | None = None,
        first: int | None = None,
        most: int | None = None,
        playing: int = 0,
        judged: tuple[int, ...] = (),
    ) -> None:
        """Have a node play so many episodes of a round."""
        start = Start(
            round=number,
            base=self.base[name] if base is None else base,
            first=self.played[name] if first is None else first,
            most=episodes if most is None else most,
            chunk=1,
            arrays=self.broadcast if broadcast is None else broadcast,
            playing=playing,
            judged=judged,
        )
        played: Any = await self.streams[name].ask([start])
        assert played.played == episodes
        self.base[name] = number
        self.played[name] = start.first + played.before + episodes
        await self.streams[name].send(Stop(number, episodes))

    async def sign(self, name: str, number: int) -> Ready | None:
        """Take what a node signs; None if it declines."""
        answer = await self.ask(Sign(number), name)
        if not isinstance(answer, Ready):
            return None
        self.signed[name] = RosterEntry(name, *self.agents[name], self.certificates[name], answer)
        return answer

    async def everyone(self, number: int, episodes: int, names: Iterable[str] = NAMES, **rest: Any) -> bool:
        """Have nodes play and sign; False if one of them does not sign."""
        signed = []
        for name in names:
            await self.play(name, number, episodes, **rest)
            signed.append(await self.sign(name, number))
        return None not in signed

    def invent(self, name: str, first_agent: int, number: int = 1, folder: str = "certs") -> Ghost:
        """Be a member oneself: with a certificate, episodes and rewards that nobody has."""
        ghost = Ghost(self, name, first_agent, TLSFiles.of(self.folder / folder, name))
        digest = self.signed[VICTIM].ready.digest
        ghost.entry, ghost.key = ghost.own.sign(number, digest, EPISODES, rewards=True)
        self.signed[name] = ghost.entry
        return ghost

    def roster(self, number: int, names: Iterable[str]) -> Roster:
        return make_roster(number, [self.signed[name] for name in names])

    async def ask(self, message: Roster | Query | Sign, name: str) -> Any:
        """Answer of a node; None if it ends instead."""
        try:
            answer = await self.streams[name].ask([message])
        except ConnectionLostError as lost:
            self.said.append((name, message.round, str(lost)))
            return None
        self.said.append((name, message.round, getattr(answer, "reason", "a report")))
        return answer

    async def sum(self, roster: Roster, *ghosts: Ghost) -> Message | None:
        """The sum, if all nodes of a roster have answered. The server knows the masks of its own members."""
        names = [entry.name for entry in roster.entries if entry.name not in {ghost.name for ghost in ghosts}]
        answers = [await self.ask(roster, name) for name in names]
        reports = [answer.arrays for answer in answers if isinstance(answer, Report)]
        if len(reports) < len(names):
            return None
        nothing = tuple(np.zeros_like(array) for array in reports[0])
        own = [masked(nothing, ghost.name, ghost.pairs(roster), fingerprint(roster)) for ghost in ghosts]
        return summed([*reports, *own])

    async def honest_sum(self, names: Iterable[str] = NAMES) -> Message:
        """The sum of round 1 over nodes that have all played it."""
        assert await self.everyone(1, EPISODES, names)
        total = await self.sum(self.roster(1, names))
        assert total is not None, "an honest sum"
        return total

    async def sum_with_ghosts(self, *names: str) -> Message | None:
        """The sum of round 1 over these nodes and invented members."""
        await self.everyone(1, EPISODES, names)
        ghosts = [self.invent(name, 4 + i) for i, name in enumerate(GHOSTS)]
        return await self.sum(self.roster(1, [*names, *GHOSTS]), *ghosts)


class Ghost:
    """A member that the server invents."""

    entry: RosterEntry
    key: bytes

    def __init__(self, server: Attacker, name: str, first_agent: int, files: TLSFiles) -> None:
        self.name = name
        self.own = Credentials(name, first_agent, 1, server.plan.run, files)

    def pairs(self, roster: Roster) -> dict[str, bytes]:
        return self.own.pairs(roster, self.entry, self.key, 6)


def less(one: Message | None, other: Message | None) -> Message | None:
    """Difference of two sums."""
    return None if one is None or other is None else tuple(a - b for a, b in zip(one, other, strict=True))


def if_any(arrays: Message) -> Message | None:
    """These numbers, unless all are 0 or some are negative."""
    return arrays if arrays[0].any() and not (arrays[0] < 0).any() else None


ACTIONS = np.array([PLAN.support.place(number)[2] for number in range(PLAN.support.numbers)])


def counts_of_action_0(arrays: Message) -> Message:
    """Transitions after action 0 alone."""
    counts = arrays[0].copy()
    counts[:, ACTIONS != 0] = 0
    return (counts,)


def counts_alone(arrays: Message) -> Message:
    return arrays[:1]


def rewards_alone(arrays: Message) -> Message:
    return (arrays[-1][:, :NUMBERS],)


def total_reward(arrays: Message) -> Message:
    """The sum of rewards, read on the finer of two grids."""
    return (arrays[-1][:, 1:2] / 2.0**40,)


def returns_of_policy_1(arrays: Message) -> Message:
    """The histogram of the returns of the policy with number 1."""
    first = NUMBERS + SIZES["states"] + 1
    bins = (arrays[-1].shape[1] - first) // 2
    return (arrays[-1][:, first : first + bins],)


# ------------------------------------------------------------------------------------------- this round, and no other


@attack("this round only", part=counts_of_action_0)
async def a_round_that_the_victim_plays_alone(server: Attacker) -> Message | None:
    """Round 1 goes to the victim alone, with another policy than round 2, which goes to everybody."""
    await server.play(VICTIM, 1, EPISODES, broadcast=server.only_action(0))
    await server.everyone(2, EPISODES, broadcast=server.only_action(1))
    total = await server.sum(server.roster(2, NAMES))
    return None if total is None else if_any(counts_of_action_0(total))


@attack("this round only", part=counts_of_action_0)
async def a_round_that_closes_without_the_victim(server: Attacker) -> Message | None:
    """Round 1 is summed without the victim, which was late; in round 2 everybody plays another policy."""
    await server.everyone(1, EPISODES, broadcast=server.only_action(0))
    first = await server.sum(server.roster(1, OTHERS))
    await server.everyone(2, EPISODES, broadcast=server.only_action(1))
    second = await server.sum(server.roster(2, NAMES))
    if first is None or second is None:
        return None
    (difference,) = less(counts_of_action_0(second), counts_of_action_0(first)) or ()
    return if_any((difference,))


@attack("this round only", tolerance=3 * STEPS, part=counts_alone)
async def a_sum_that_is_said_to_have_failed(server: Attacker) -> Message | None:
    """Another sum, of one more episode of each node, over three of the four."""
    first = await server.honest_sum()
    await server.everyone(2, 1)
    second = await server.sum(server.roster(2, OTHERS))
    if second is None or second[0].sum() <= len(OTHERS) * STEPS:
        return None
    return (first[0] - second[0],)


@attack("payments of this round only", part=returns_of_policy_1)
async def returns_of_a_policy_that_only_the_victim_played(server: Attacker) -> Message | None:
    """The victim counts round 1 alone; in round 2 everybody plays policy 2, and policy 1 is judged, too."""
    await server.play(VICTIM, 1, EPISODES, playing=INCUMBENT, judged=(1, 0))
    judging: dict[str, Any] = {"playing": VERIFYING, "judged": (1, 2)}
    await server.play(VICTIM, 2, EPISODES, base=0, first=0, most=2 * EPISODES, **judging)
    await server.sign(VICTIM, 2)
    await server.everyone(2, EPISODES, OTHERS, **judging)
    total = await server.sum(server.roster(2, NAMES))
    return None if total is None else if_any(returns_of_policy_1(total))


@attack("logs in round 0 only", tolerance=(3 * EPISODES + EPISODES) * STEPS, options=LOGS, part=counts_alone)
async def logs_in_the_sum_of_round_1(server: Attacker) -> Message | None:
    """An honest server of version 0.3.0 did this: the logs of one node were in its first report."""
    total = await server.honest_sum()
    return (total[0],) if total[0].sum() > LOGGED else None


# ---------------------------------------------------------------------------------------------- once, and no more


@attack("one answer per round", "has answered another roster in round 1", part=counts_alone)
async def rosters_of_three_out_of_four(server: Attacker) -> Message | None:
    await server.everyone(1, EPISODES)
    sums = [await server.sum(server.roster(1, three)) for three in itertools.combinations(NAMES, 3)]
    known = [total for total in sums if total is not None]
    if len(known) < len(NAMES):
        return None
    counts = [total[0] for total in known]
    return (sum(counts) // 3 - counts[0],)


@attack("memory on disk", "has answered another roster in round 1", options=STATE, part=counts_alone)
async def another_roster_after_nodes_were_started_again(server: Attacker) -> Message | None:
    first = await server.honest_sum()
    await server.start_again(OTHERS)
    for name in OTHERS:
        await server.play(name, 1, EPISODES, base=0, first=0)
        await server.sign(name, 1)
    second = await server.sum(server.roster(1, OTHERS))
    return None if second is None else (first[0] - second[0],)


@attack("one answer per round", "has answered another roster in round 1", part=counts_alone)
async def another_certificate_for_the_victims_name(server: Attacker) -> Message | None:
    first = await server.honest_sum()
    twin = server.folder / "twin"
    twin.mkdir()
    for file in ("ca.crt", "ca.key"):
        shutil.copy(server.certs / file, twin)
    make_certificates(twin, nodes=[VICTIM])
    ghost = server.invent(VICTIM, 3, folder="twin")
    second = await server.sum(server.roster(1, NAMES), ghost)
    return None if second is None else (first[0] - second[0],)


@attack("every episode once", "have been in a sum or missed it", part=counts_alone)
async def the_same_episodes_in_another_round(server: Attacker) -> Message | None:
    """Simulated agents can play an episode again; the second sum is without the victim."""
    first = await server.honest_sum()
    if not await server.everyone(2, EPISODES, OTHERS, first=0):
        return None
    second = await server.sum(server.roster(2, OTHERS))
    return None if second is None else (first[0] - second[0],)


# ----------------------------------------------------------------------------------- together, and with the same


@attack("three contributors", STAND_OUT)
async def a_node_that_joins_late_or_plays_alone(server: Attacker) -> Message | None:
    await server.honest_sum(OTHERS)
    await server.everyone(2, 0, OTHERS)
    await server.play(VICTIM, 2, EPISODES)
    await server.sign(VICTIM, 2)
    return await server.sum(server.roster(2, NAMES))


@attack("three contributors", STAND_OUT, options=LOGS, part=counts_alone)
async def logs_of_the_victim_alone(server: Attacker) -> Message | None:
    await server.everyone(0, 0)
    total = await server.sum(server.roster(0, NAMES))
    return None if total is None else total[:1]


@attack("one broadcast for all", "has sent different broadcasts to different nodes", part=counts_of_action_0)
async def another_policy_for_the_victim(server: Attacker) -> Message | None:
    for name in NAMES:
        await server.play(name, 1, EPISODES, broadcast=server.only_action(0 if name == VICTIM else 1))
        await server.sign(name, 1)
    total = await server.sum(server.roster(1, NAMES))
    return None if total is None else counts_of_action_0(total)


@attack(
    "the whole welcome",
    "has sent different broadcasts to different nodes",
    part=counts_alone,
    plan=ROOM_PLAN,
    problem=ROOM,
    welcome=lambda plan, name: (
        replace(plan.welcome(), bins=bins_cut_at(0.1).text.encode()) if name == VICTIM else plan.welcome()
    ),
)
async def other_bins_for_the_victim(server: Attacker) -> Message | None:
    """The others count state 0, and the victim state 1."""
    await server.everyone(1, EPISODES)
    total = await server.sum(server.roster(1, NAMES))
    if total is None:
        return None
    counts = total[0].copy()
    for number in range(counts.shape[1]):
        if server.plan.support.place(number)[1] != 1:
            counts[:, number] = 0
    return (counts,)


def welcome_with_many_episodes(plan: RunPlan, name: str) -> Welcome:
    """A welcome that says to all but the victim that the run is longer."""
    honest = plan.welcome()
    if name == VICTIM:
        return honest
    spec = {**json.loads(honest.spec), "episodes": MANY}
    return replace(honest, spec=json.dumps(spec, sort_keys=True).encode())


@attack(
    "the whole welcome",
    "has sent different broadcasts to different nodes",
    part=total_reward,
    tolerance=1e-3,
    welcome=welcome_with_many_episodes,
)
async def another_number_of_episodes_for_the_victim(server: Attacker) -> Message | None:
    """The others report rewards on a coarser grid, so that theirs vanish beside the victim's."""
    await server.everyone(1, EPISODES)
    total = await server.sum(server.roster(1, NAMES))
    return None if total is None else total_reward(total)


@attack("signatures", "of 'node-0' what it has not signed for this round")
async def keys_of_its_own_in_the_place_of_others(server: Attacker) -> Message | None:
    await server.everyone(1, EPISODES)
    keys = {name: X25519PrivateKey.generate() for name in OTHERS}
    entries = [server.signed[VICTIM]]
    for name, key in keys.items():
        mine = key.public_key().public_bytes_raw()
        theirs = server.signed[name]
        entries.append(replace(theirs, ready=replace(theirs.ready, key=mine)))
    roster = make_roster(1, entries)
    answer = await server.ask(roster, VICTIM)
    if not isinstance(answer, Report):
        return None
    digest = fingerprint(roster)
    nothing = tuple(np.zeros_like(array) for array in answer.arrays)
    masks = []
    for name, key in keys.items():
        pair = pair_key(key, server.signed[VICTIM].ready.key, server.plan.run, digest, (name, VICTIM))
        masks.append(masked(nothing, name, {VICTIM: pair}, digest))
    return summed([answer.arrays, *masks])


def rewards_in(total: Message | None) -> Message | None:
    return None if total is None or not total[-1][0, 0] else rewards_alone(total)


@attack("three that report rewards", options=SILENT, nodes=NAMES[1:], part=rewards_alone)
async def rewards_that_the_others_keep_back(server: Attacker) -> Message | None:
    await server.everyone(1, EPISODES, NAMES[1:])
    return rewards_in(await server.sum(server.roster(1, NAMES[1:])))


@attack("pins for rewards", options={**SILENT, **PINNED}, nodes=NAMES[1:], part=rewards_alone)
async def rewards_in_invented_company(server: Attacker) -> Message | None:
    return rewards_in(await server.sum_with_ghosts(*NAMES[1:]))


@attack("no question in the open", "numbers in the open", nodes=(VICTIM,), part=counts_alone)
async def a_question_in_the_open(server: Attacker) -> Message | None:
    await server.play(VICTIM, 1, EPISODES)
    answer = await server.ask(Query(1, 0, (np.zeros(1, dtype=np.int64),)), VICTIM)
    return answer.arrays if isinstance(answer, Report) else None


@attack("", STAND_OUT, options=PINNED, nodes=(VICTIM,))
async def invented_members(server: Attacker) -> Message | None:
    return await server.sum_with_ghosts(VICTIM)


async def carry_out(
    attack: Attack, folder: Path, begin: Callable[[int], None], restart: Restart
) -> tuple[Message | None, list[Said]]:
    """Messages of the nodes that ``begin(port)`` starts, as the server reads them, and their output."""
    server = Attacker(folder, attack, restart)
    listener = Listener(server, "127.0.0.1:0", TLSFiles.of(server.certs, "server"))
    await listener.start()
    begin(listener.port)
    await server.meet(attack.nodes)
    read = await attack.carry_out(server)
    for stream in server.streams.values():
        stream.close()
    await listener.stop()
    return read, server.said
