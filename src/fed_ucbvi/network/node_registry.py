"""All nodes: a stream comes in, says which node it is, and is admitted or turned away with a reason."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

from fed_ucbvi.algorithms.base import Message
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.engine.hosted_problem import DIGEST_BYTES, host
from fed_ucbvi.network.certificate_checks import Certified
from fed_ucbvi.network.door import Door, TurnedAwayError
from fed_ucbvi.network.members import GONE, HERE, LEFT, NEW, Member
from fed_ucbvi.network.messages import (
    PART_BYTES,
    PROTOCOL,
    Continue,
    End,
    Fault,
    Hello,
    Ready,
    Refusal,
    Seat,
    Start,
    Stop,
    encode,
)
from fed_ucbvi.network.names import check_name, has_left
from fed_ucbvi.network.node_stream import BROKEN, NodeStream, StreamLostError
from fed_ucbvi.network.roster import Authority
from fed_ucbvi.network.run_plan import RunPlan
from fed_ucbvi.network.wire_count import WireCount
from fed_ucbvi.problem.units import Units

log = logging.getLogger("fed_ucbvi.federation")

HELLO_SECONDS = 10.0
"""Time until the hello."""
REVOKED_SECONDS = 1.0
"""Between looks at the list of the revoked, for streams that are open."""
FAREWELL_SECONDS = 5.0
"""For telling a node why its stream ends."""
FAREWELL_TRIES, FAREWELL_PAUSE = 5, 0.05
LISTENING_SECONDS = 1.0
"""The stream stays open this long afterwards: a node that is just writing would find it broken and not read why."""
LEAVING_SECONDS = 60.0
"""A node that leaves for good waits this long until the round without it is kept."""
MAX_ROUNDS_TOLD = 4
"""How many of the rounds that a node says it holds are repeated to it and to the log."""


class PastRound(NamedTuple):
    """What began a round that is over, and its episodes: the number of the first, and how many there were."""

    number: int
    first: int
    length: int
    broadcast: Message


class NodeRegistry:
    """All members and their streams.

    Args:
        plan: the run.
        certified: whether streams bear certificates; otherwise a node is who it says it is.
        revoked: names, and names with a serial number, that are turned away though certified; asked anew for every
            stream, and again and again while streams are open.
        authority: by which keys for secure sums must be signed.
    """

    def __init__(
        self,
        plan: RunPlan,
        *,
        certified: bool,
        revoked: Callable[[], Iterable[str]] = tuple,
        authority: Authority | None = None,
    ) -> None:
        self.plan, self._authority = plan, authority
        self.wire = WireCount()
        self.members: dict[str, Member] = {}
        self.changed = asyncio.Condition()
        self._door = Door(plan.names, revoked, certified=certified)
        self._welcome = plan.welcome()
        self.most_bytes = PART_BYTES
        self.begun = False
        self.end: End | None = None
        """What nodes are told once the run is over, also those that come late."""
        self.told: set[str] = set()
        """Who has been told that."""
        self.past: Callable[[Member, int], Iterator[PastRound] | None] = lambda member, held: None
        """The rounds that a member has played after one; None where they are not known or cannot be played again."""
        self.let_go: Callable[[Member], None] = lambda member: None
        """Do without a member for good, from now on; raises :class:`InputError` where that cannot be."""
        self.farewell: Callable[[], End | None] = lambda: None
        """What a node is told that has left, once the server has kept that."""

    # ------------------------------------------------------------------------------------------------- who is here

    @property
    def everyone(self) -> list[Member]:
        """All members, in the order of their agents."""
        return sorted(self.members.values(), key=lambda member: member.first_agent)

    @property
    def seated(self) -> list[Member]:
        """Members that are neither excluded nor have left, in the order of their agents."""
        return [member for member in self.everyone if not member.out]

    @property
    def present(self) -> list[Member]:
        """Members that take part, in the order of their agents."""
        return [member for member in self.everyone if member.status == HERE]

    @property
    def connected(self) -> int:
        """Nodes with an open stream."""
        return sum(member.stream is not None for member in self.members.values())

    @property
    def complete(self) -> bool:
        """Whether all M agents have joined, except those of nodes that the others do without."""
        come = sum(member.agents for member in self.members.values())
        absent = any(member.stream is None for member in self.present)
        return come == self.plan.setting.agents and self.connected > 0 and not absent

    @property
    def units(self) -> Units | None:
        """Those of the run's rewards; None where the first node is to say."""
        return self.plan.units or next((member.units for member in self.members.values()), None)

    async def wait_until(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Wait for nodes to come or go until ``condition`` holds; False if it does not in time."""
        try:
            async with asyncio.timeout(seconds), self.changed:
                await self.changed.wait_for(condition)
        except TimeoutError:
            return False
        return True

    async def give_up(self, member: Member, stream: NodeStream, reason: str) -> None:
        """Close a stream that is of no use any more."""
        stream.close(reason)
        if member.stream is stream:
            member.stream = None
            log.warning("%s: stream given up: %s", member.name, reason, extra={"node": member.name})
            await self._tell()

    async def exclude(self, member: Member, reason: str) -> None:
        """Continue without a node for good."""
        member.status = GONE
        if member.stream is not None:
            await self.give_up(member, member.stream, reason)

    async def leave(self, member: Member, reason: str) -> None:
        """A node leaves for good."""
        if member.status != LEFT:
            self.let_go(member)
            member.status, member.kept = LEFT, False
            if member.stream is not None:
                await self.give_up(member, member.stream, reason)
            await self._tell()

    async def keep(self) -> None:
        """What has become of the members is on disk."""
        left = [member for member in self.members.values() if not member.kept]
        for member in left:
            member.kept = True
        if left:
            await self._tell()

    async def tell_end(self, end: End, seconds: float) -> None:
        """Tell all nodes, also those just reconnecting, the result, and wait until they have left."""
        self.end = end
        for member in self.seated:
            if member.stream is not None:
                await self._tell_end(member, member.stream)
        everyone = [member.name for member in self.present]
        done = await self.wait_until(lambda: self.told.issuperset(everyone) and self.connected == 0, seconds)
        for name in () if done else sorted(set(everyone) - self.told):
            log.warning("%s: has not heard of the end", name, extra={"node": name})

    async def _tell_end(self, member: Member, stream: NodeStream) -> None:
        assert self.end is not None
        try:
            await stream.send(self.end)
        except StreamLostError as lost:
            log.warning("%s: did not hear of the end: %s", member.name, lost, extra={"node": member.name})
        else:
            self.told.add(member.name)

    async def watch(self) -> None:
        """While the server listens: end the streams of those whose certificates are revoked."""
        while True:
            await asyncio.sleep(REVOKED_SECONDS)
            with suppress(OSError, ValueError):  # a list that cannot be read lets nobody new in
                self._door.close_revoked()

    async def close(self) -> None:
        """Close all streams."""
        for stream in tuple(self._door.streams):
            stream.close()
        await self._tell()

    async def _tell(self) -> None:
        async with self.changed:
            self.changed.notify_all()

    # ------------------------------------------------------------------------------------------------- the handshake

    def check_holder(self, context: Any) -> None:
        """Raise :class:`TurnedAwayError` unless who calls has a certificate that lets a node in."""
        self._door.holder(context)

    async def session(self, _: Any, context: Any) -> None:
        """Handle one stream from its first message to its end."""
        peer, stream = context.peer(), NodeStream(context, self.wire)
        member = None
        try:
            certified = self._door.holder(context)
            peer = peer if certified is None else f"{peer} ({certified.name})"
            async with self._door.handshake(stream, certified):
                member = await self._admit(stream, certified)
            stream.most_bytes = self.most_bytes
            stream.counts.append(member.wire)
            about = {"node": member.name}
            log.info("%s: joined from %s with agents %s", member.name, peer, _agents(member), extra=about)
            if self.end is not None:
                await self._tell_end(member, stream)
            await self._tell()
            await stream.closed.wait()
            if stream.farewell:
                await _dismiss(context, stream.farewell, retry=not member.out)
                await asyncio.sleep(LISTENING_SECONDS)  # ends when the node leaves
        except TurnedAwayError as refused:
            log.warning("%s: turned away: %s", peer, refused)
            await _dismiss(context, str(refused), retry=refused.retry)
            if stream not in self._door.streams:  # not a word was read: the node may just be saying hello
                await asyncio.sleep(LISTENING_SECONDS)
        except StreamLostError as lost:
            log.warning("%s: %s in the handshake", peer, lost)
        except asyncio.CancelledError:  # the node has gone, or the server is closing down
            pass
        finally:
            stream.close()
            self._door.streams.pop(stream, None)
            if member is not None and member.stream is stream:
                member.stream = None
                if not self.begun or member.status == NEW:
                    del self.members[member.name]  # it may come back with other agents
                level = logging.WARNING if self.end is None else logging.DEBUG
                log.log(level, "%s: connection lost", member.name, extra={"node": member.name})
                await self._tell()

    async def _admit(self, stream: NodeStream, certified: Certified | None) -> Member:
        async with asyncio.timeout(HELLO_SECONDS):
            hello = await stream.receive()
        if not isinstance(hello, Hello):
            raise TurnedAwayError(f"the first message must be a hello, got {type(hello).__name__}")
        if hello.leaving:
            await self._say_farewell(stream, hello, certified)
        self._check_hello(hello, certified)
        await stream.send(self._welcome)
        ready = await stream.receive()
        if not isinstance(ready, Ready):
            told = f": {ready.reason}" if isinstance(ready, Fault) else ""
            raise TurnedAwayError(f"a ready was expected, got {type(ready).__name__}{told}")
        member = self._seat(hello, ready, certified)
        await self._catch_up(member, stream, max(number for number in ready.rounds if number <= member.base))
        old, member.stream, member.incarnation = member.stream, stream, hello.incarnation
        if old is not None:
            old.close("the node has opened another stream")
        return member

    async def _say_farewell(self, stream: NodeStream, hello: Hello, certified: Certified | None) -> None:
        """A node leaves for good; it is told so once that is on disk. Its stream ends in any case."""
        self._check_name(hello, certified)
        member = self.members.get(hello.node)
        if member is None or not self.begun:
            raise TurnedAwayError(f"'{hello.node}' does not take part in this run; there is nothing to leave")
        if member.status == GONE:
            raise TurnedAwayError(f"'{hello.node}' has been excluded from this run")
        try:
            await self.leave(member, has_left(hello.node))
        except InputError as error:
            raise TurnedAwayError(str(error).rstrip(".")) from error
        if not await self.wait_until(lambda: member.kept, LEAVING_SECONDS):
            raise TurnedAwayError("the round without the node is not over yet; ask again", retry=True)
        end = self.farewell()
        if end is not None:
            await stream.send(end)
        raise TurnedAwayError(has_left(hello.node))

    async def _catch_up(self, member: Member, stream: NodeStream, held: int) -> None:
        """Have a node that has lost its state play the rounds that it lacks again, as they were."""
        if held == member.base:
            return
        log.warning(
            "%s: has lost its state after round %d; plays up to round %d again",
            *(member.name, held, member.base),
            extra={"node": member.name},
        )
        for past in self.past(member, held) or ():
            left = self.plan.setting.episodes - past.first
            await stream.send(Start(past.number, past.number - 1, past.first, left, 0, past.broadcast))
            await stream.expect_played(past.number)
            await stream.send(Stop(past.number, past.length))
            await stream.send(Continue(past.number, past.length))
            await stream.expect_played(past.number)

    def _check_name(self, hello: Hello, certified: Certified | None) -> None:
        """Raise unless this node is who it says it is, and speaks of this run."""
        plan = self.plan
        if hello.protocol != PROTOCOL:
            raise TurnedAwayError(
                f"the node speaks protocol {hello.protocol} (fed-ucbvi {hello.version or 'unknown'}), this server "
                f"{PROTOCOL}; install the same version on both"
            )
        try:
            check_name(hello.node)
        except InputError as error:
            raise TurnedAwayError(str(error)) from error
        if certified is not None and hello.node != certified.name:
            raise TurnedAwayError(f"the certificate is for {certified.name}, not for '{hello.node}'")
        self._door.check(certified or Certified(hello.node, ""))
        if hello.run not in ("", plan.run):
            raise TurnedAwayError(f"'{hello.node}' holds the state of run {hello.run}; this is run {plan.run}")

    def _check_hello(self, hello: Hello, certified: Certified | None) -> None:
        """Raise unless this node may take part."""
        plan = self.plan
        self._check_name(hello, certified)
        if len(hello.incarnation) != 16:
            raise TurnedAwayError("an incarnation has 16 bytes")
        if hello.agents < 1 or hello.first_agent + hello.agents > plan.setting.agents:
            last = hello.first_agent + hello.agents - 1
            raise TurnedAwayError(
                f"agents {hello.first_agent} to {last} are not all among this run's 0 to {plan.setting.agents - 1}"
            )
        member = self.members.get(hello.node)
        if member is not None and member.out:
            excluded = f"'{hello.node}' has been excluded from this run"
            raise TurnedAwayError(has_left(hello.node) if member.status == LEFT else excluded)
        if member is not None and member.stream is not None and member.incarnation != hello.incarnation:
            raise TurnedAwayError(
                f"another process is connected as '{hello.node}'; if it has died, the server will notice soon",
                retry=True,
            )
        own = range(hello.first_agent, hello.first_agent + hello.agents)
        if member is not None and member.span != own:
            raise TurnedAwayError(f"'{hello.node}' came with agents {_agents(member)} before")
        for other in self.members.values():
            if other.name != hello.node and other.span[0] < own.stop and own.start < other.span.stop:
                raise TurnedAwayError(f"agents {own.start} to {own.stop - 1} overlap with those of '{other.name}'")

    def _seat(self, hello: Hello, ready: Ready, certified: Certified | None) -> Member:
        """The member of a node that has said which rounds it holds; raise unless it can resume from one of them."""
        plan, s = self.plan, self.plan.setting
        self._check_hello(hello, certified)  # others may have come in the meantime
        if (ready.states, ready.actions, ready.horizon) != (s.states, s.actions, s.horizon):
            raise TurnedAwayError(
                f"the node's problem has (S, A, H) = ({ready.states}, {ready.actions}, {ready.horizon}), this run "
                f"({s.states}, {s.actions}, {s.horizon})"
            )
        if plan.federation is not None:
            expected = host(plan.federation, hello.first_agent, hello.agents).digest()
            if ready.digest != expected:
                raise TurnedAwayError(
                    f"the problem of '{hello.node}' is not the one of this run; check its environment's options (and "
                    "for real environments serve with --sizes S,A,H: nobody knows their kernels)"
                )
        units = _units(ready)
        if units != (self.units or units):
            raise TurnedAwayError(
                f"a step of '{hello.node}' pays {units}, one of this run {self.units}; start all nodes with the same "
                "--reward-range, or with environments of the same one"
            )
        member = self.members.get(hello.node)
        if member is None:
            if len(ready.digest) != DIGEST_BYTES:
                raise TurnedAwayError(f"a digest has {DIGEST_BYTES} bytes")
            status = NEW if self.begun else HERE
            member = Member(hello.node, hello.first_agent, hello.agents, ready.digest, units, status=status)
        if member.digest != ready.digest:
            raise TurnedAwayError(f"'{hello.node}' came with another problem before")
        held = max((number for number in ready.rounds if number <= member.base), default=-1)
        if held < 0 or (held < member.base and self.past(member, held) is None):
            more = "..., " if len(ready.rounds) > MAX_ROUNDS_TOLD else ""
            told = more + ", ".join(map(str, ready.rounds[-MAX_ROUNDS_TOLD:]))
            raise TurnedAwayError(
                f"'{hello.node}' must go on after round {member.base} but holds rounds [{told}], and what it lacks "
                "cannot be played again (simulated agents in lockstep can, if they have missed no round and the "
                "server keeps a checkpoint); start it with the "
                "state folder it had"
            )
        member.seat = self._signed(hello, ready)
        self.members[member.name] = member
        return member

    def _signed(self, hello: Hello, ready: Ready) -> Seat | None:
        """The node's key for secure sums; the other nodes would not take one that is not signed."""
        if not self.plan.secure_sums or self._authority is None:
            return None
        seat = Seat(hello.node, hello.first_agent, hello.agents, ready.key, ready.signature, ready.certificate)
        try:
            self._authority.check(seat, self.plan.run)
        except InputError as error:
            raise TurnedAwayError(str(error)) from error
        return seat


def _units(ready: Ready) -> Units:
    """Those of a node's rewards."""
    units = Units(ready.reward_offset, ready.reward_scale)
    if not (math.isfinite(units.offset) and 0.0 < units.scale < math.inf):
        raise TurnedAwayError(f"a step cannot pay {units}")
    return units


async def _dismiss(context: Any, reason: str, *, retry: bool) -> None:
    """Tell a node why its stream ends, if it still listens.

    A message that was just being sent when its sender was cancelled is in the way for a moment; hence several tries.
    """
    with suppress(TimeoutError):
        async with asyncio.timeout(FAREWELL_SECONDS):
            for _ in range(FAREWELL_TRIES):
                with suppress(*BROKEN):
                    await context.write(encode(Refusal(reason, retry)))
                    return
                await asyncio.sleep(FAREWELL_PAUSE)


def _agents(member: Member) -> str:
    return f"{member.span[0]}" if member.agents == 1 else f"{member.span[0]}-{member.span[-1]}"
