"""How nodes come in: a stream opens, says which node it is, and is admitted or rejected with a reason.

Whose streams are read at all, and how many at a time, is decided before anything is read.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

from fed_ucbvi.core.errors import InputError
from fed_ucbvi.network import messages
from fed_ucbvi.network.certificates import Certified, check_name
from fed_ucbvi.network.coordinator import Coordinator
from fed_ucbvi.network.failures import ConnectionLostError, RejectedError, ViolationError
from fed_ucbvi.network.members import GONE, HERE, LEFT, NEW, Member, NodeStream, describe_agents
from fed_ucbvi.network.roster import der_of
from fed_ucbvi.network.sources import DIGEST_BYTES, host
from fed_ucbvi.network.transport import Connection
from fed_ucbvi.problem.units import Units

log = logging.getLogger("fed_ucbvi.federation")

HELLO_SECONDS, HANDSHAKE_SECONDS = 10.0, 120.0
"""Time until the hello, and until a node has joined; it may have to build a large problem and compile first."""
MAX_HANDSHAKES, MAX_STREAMS = 64, 8
"""Streams at one time: in the handshake, besides one for each node that is expected, and of one name."""
MAX_NODES_AT_ONCE = 1024
"""Nodes for which there is room in the handshake at one time."""
MAX_ATTEMPTS, ATTEMPTS_SECONDS = 120, 60.0
"""Streams that one name may open in this time; an honest node pauses too long between attempts to reach it."""
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


class Reception:
    """Admits nodes to a run.

    Args:
        coordinator: of the run.
        certified: whether streams bear certificates; otherwise a node is who it says it is.
        revoked: gives the names, and names with a serial number, that are rejected though they have a certificate;
            asked anew for every stream, and again and again while streams are open.
        farewell: what a node is told that has left, once the server has kept that.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        *,
        certified: bool,
        revoked: Callable[[], Iterable[str]] = tuple,
        farewell: Callable[[], messages.End | None] = lambda: None,
    ) -> None:
        self._run, self._plan, self._registry = coordinator, coordinator.plan, coordinator.registry
        self._certified, self._revoked, self._farewell = certified, revoked, farewell
        self._streams: set[NodeStream] = set()
        self._handshakes = 0
        self._attempts: dict[str, deque[float]] = defaultdict(lambda: deque(maxlen=MAX_ATTEMPTS))
        self._end: messages.End | None = None
        self._closed = False

    # ------------------------------------------------------------------------------------------------------ admission

    def authenticate(self, certificate: bytes) -> Certified | None:
        """Whose stream it is, before anything is read from it; raise unless the certificate lets it in."""
        if not self._certified:
            return None
        try:
            certified = Certified.of(certificate)
        except InputError as error:
            raise RejectedError(str(error).rstrip(".")) from error
        self._check_certified(certified)
        return certified

    def _check_certified(self, certified: Certified) -> None:
        """Raise unless it is on the list and has not been revoked."""
        if self._plan.nodes is not None and certified.name not in self._plan.nodes:
            raise RejectedError(f"'{certified.name}' is not on the list of nodes")
        if certified.revocations & set(self._revoked()):
            raise RejectedError(_revoked(certified))

    @asynccontextmanager
    async def _handshake(self, stream: NodeStream) -> AsyncIterator[None]:
        """Hold a handshake, within the limits on its time and on the number of streams."""
        self._check_room(stream.certified)
        self._streams.add(stream)
        self._handshakes += 1
        try:
            async with asyncio.timeout(HANDSHAKE_SECONDS):
                yield
        except TimeoutError:
            raise RejectedError("the handshake took too long", retry=True) from None
        except ViolationError as violation:
            raise RejectedError(str(violation)) from violation
        finally:
            self._handshakes -= 1

    def _check_room(self, certified: Certified | None) -> None:
        """Raise if there are too many streams, of everybody or of one name."""
        own = 0
        if certified is not None:
            attempts, now = self._attempts[certified.name], time.monotonic()
            if len(attempts) == MAX_ATTEMPTS and now - attempts[0] < ATTEMPTS_SECONDS:
                raise RejectedError(f"too many streams in {ATTEMPTS_SECONDS:g} s", retry=True)
            attempts.append(now)
            others = [other.certified for other in self._streams]
            own = sum(other is not None and other.name == certified.name for other in others)
        room = MAX_HANDSHAKES + min(self._plan.most_nodes, MAX_NODES_AT_ONCE)
        if own >= MAX_STREAMS or self._handshakes >= room:
            raise RejectedError("too many streams at one time", retry=True)

    async def watch(self) -> None:
        """While the server listens: end the streams of those whose certificates are revoked."""
        while True:
            await asyncio.sleep(REVOKED_SECONDS)
            with suppress(OSError, ValueError):  # a list that cannot be read lets nobody new in
                revoked = set(self._revoked())
                for stream in self._streams:
                    if stream.certified is not None and stream.certified.revocations & revoked:
                        stream.close(_revoked(stream.certified))

    # ---------------------------------------------------------------------------------------------------- the streams

    async def session(self, connection: Connection) -> None:
        if self._closed:
            return
        peer, stream = connection.peer, NodeStream(connection, self._registry.wire, self._run.transcript)
        member = None
        try:
            stream.certified = self.authenticate(connection.certificate)
            if stream.certified is not None:
                stream.conversation.peer = stream.certified.name
                peer = f"{peer} ({stream.certified.name})"
            async with self._handshake(stream):
                member = await self._admit(stream)
            largest = self._run.report_schema.largest(self._plan.setting.agents)
            stream.most_bytes = max(messages.PART_BYTES, 2 * largest)
            stream.counts.append(member.wire)
            about = {"node": member.name}
            log.info("%s: joined from %s with %s", member.name, peer, describe_agents(member.span), extra=about)
            if self._end is not None:
                await self._tell_end(member, stream)
            await self._registry.notify()
            await stream.closed.wait()
            if stream.farewell:
                await _dismiss(stream, stream.farewell, retry=not member.out)
                await asyncio.sleep(LISTENING_SECONDS)  # ends when the node leaves
        except RejectedError as refused:
            log.warning("%s: rejected: %s", peer, refused)
            await _dismiss(stream, str(refused), retry=refused.retry)
            if stream not in self._streams:  # not a word was read: the node may just be saying hello
                await asyncio.sleep(LISTENING_SECONDS)
        except ConnectionLostError as lost:
            log.warning("%s: %s in the handshake", peer, lost)
        except asyncio.CancelledError:  # the node has gone, or the server is closing down
            pass
        finally:
            stream.close()
            self._streams.discard(stream)
            if member is not None and member.stream is stream:
                await self._lost(member)

    async def _lost(self, member: Member) -> None:
        member.stream = None
        if not self._run.begun or member.status == NEW:
            del self._registry.members[member.name]  # it may come back with other agents
        level = logging.WARNING if self._end is None else logging.DEBUG
        log.log(level, "%s: connection lost", member.name, extra={"node": member.name})
        await self._registry.notify()

    async def tell_end(self, end: messages.End, seconds: float) -> None:
        """Tell all nodes, also those just reconnecting, the result, and wait until they have left."""
        self._end, registry = end, self._registry
        for member in registry.active:
            if member.stream is not None:
                await self._tell_end(member, member.stream)
        present = registry.present
        await registry.wait_until(
            lambda: all(member.heard_end for member in present) and registry.connected == 0, seconds
        )
        for member in present:
            if not member.heard_end:
                log.warning("%s: was not notified of the end", member.name, extra={"node": member.name})

    async def _tell_end(self, member: Member, stream: NodeStream) -> None:
        assert self._end is not None
        try:
            await stream.send(self._end)
        except ConnectionLostError as lost:
            log.warning("%s: was not notified of the end: %s", member.name, lost, extra={"node": member.name})
        else:
            member.heard_end = True

    async def close(self, reason: str = "") -> None:
        self._closed = True
        for stream in tuple(self._streams):
            stream.close(reason)
        await self._registry.notify()

    # -------------------------------------------------------------------------------------------------- the handshake

    async def _admit(self, stream: NodeStream) -> Member:
        async with asyncio.timeout(HELLO_SECONDS):
            hello = await stream.receive()
        if not isinstance(hello, messages.Hello):
            raise RejectedError(f"the first message must be a hello, got {type(hello).__name__}")
        if hello.leaving:
            await self._say_farewell(stream, hello)
        self._check_hello(hello, stream.certified)
        await stream.send(self._plan.welcome())
        joining = await stream.receive()
        if not isinstance(joining, messages.Joining):
            told = f": {joining.reason}" if isinstance(joining, messages.Fault) else ""
            raise RejectedError(f"a joining was expected, got {type(joining).__name__}{told}")
        self._check_hello(hello, stream.certified)  # others may have come in the meantime
        member = self._register(hello, joining)
        await self._catch_up(member, stream, max(number for number in joining.rounds if number <= member.base))
        if self._plan.secure_sums:
            member.certificate = der_of(stream.certificate)
        old, member.stream, member.incarnation = member.stream, stream, hello.incarnation
        if old is not None:
            old.close("the node has opened another stream")
        return member

    async def _say_farewell(self, stream: NodeStream, hello: messages.Hello) -> None:
        """A node leaves for good; it is told so once that is on disk. Its stream ends in any case."""
        self._check_name(hello, stream.certified)
        member = self._registry.members.get(hello.node)
        if member is None or not self._run.begun:
            raise RejectedError(f"'{hello.node}' does not take part in this run; there is nothing to leave")
        if self._run.done and member.status != LEFT:
            raise RejectedError("this run is over; there is nothing to leave")
        if member.status == GONE:
            raise RejectedError(self._run.excluded(member))
        try:
            await self._run.leave(member, messages.has_left(hello.node))
        except InputError as error:
            raise RejectedError(str(error).rstrip(".")) from error
        if not await self._registry.wait_until(lambda: member.kept, LEAVING_SECONDS):
            raise RejectedError("the round without the node is not over yet; ask again", retry=True)
        end = self._farewell()
        if end is not None:
            await stream.send(end)
        raise RejectedError(messages.has_left(hello.node))

    async def _catch_up(self, member: Member, stream: NodeStream, held: int) -> None:
        """Have a node that has lost its state play the rounds that it lacks again, as they were."""
        if held == member.base:
            return
        log.warning(
            "%s: has lost its state after round %d; plays up to round %d again",
            *(member.name, held, member.base),
            extra={"node": member.name},
        )
        for past in self._run.past(member, held) or ():
            left = self._plan.setting.episodes - past.first
            sums = self._plan.algorithm.server_counts
            confirmed = past.confirmed if sums else past.number - 1
            where = past.number, past.number - 1, past.first, left, 0
            what = past.playing, past.judged, past.credited
            start = messages.Start(*where, past.broadcast, confirmed, b"", 0, b"", *what)
            await stream.ask(
                [start, messages.Stop(past.number, past.length), messages.Continue(past.number, past.length)]
            )

    def _check_name(self, hello: messages.Hello, certified: Certified | None) -> None:
        """Raise unless this node is who it says it is, and speaks of this run."""
        plan = self._plan
        if hello.protocol != messages.PROTOCOL:
            raise RejectedError(
                f"the node speaks protocol {hello.protocol} (fed-ucbvi {hello.version or 'unknown'}), this server "
                f"{messages.PROTOCOL}; install the same version on both"
            )
        try:
            check_name(hello.node)
        except InputError as error:
            raise RejectedError(str(error)) from error
        if certified is not None and hello.node != certified.name:
            raise RejectedError(f"the certificate is for {certified.name}, not for '{hello.node}'")
        self._check_certified(certified or Certified(hello.node, ""))
        if hello.run not in ("", plan.run):
            raise RejectedError(f"'{hello.node}' holds the state of run {hello.run}; this is run {plan.run}")

    def _check_hello(self, hello: messages.Hello, certified: Certified | None) -> None:
        plan = self._plan
        self._check_name(hello, certified)
        if len(hello.incarnation) != 16:
            raise RejectedError("an incarnation has 16 bytes")
        if hello.agents < 1 or hello.first_agent + hello.agents > plan.setting.agents:
            last = hello.first_agent + hello.agents - 1
            raise RejectedError(
                f"agents {hello.first_agent} to {last} are not all among this run's 0 to {plan.setting.agents - 1}"
            )
        member = self._registry.members.get(hello.node)
        if member is not None and member.out:
            raise RejectedError(
                messages.has_left(hello.node) if member.status == LEFT else self._run.excluded(member)
            )
        if member is not None and member.stream is not None and member.incarnation != hello.incarnation:
            raise RejectedError(
                f"another process is connected as '{hello.node}'; if it has died, the server will notice soon",
                retry=True,
            )
        own = range(hello.first_agent, hello.first_agent + hello.agents)
        if member is not None and member.span != own:
            raise RejectedError(f"'{hello.node}' came with {describe_agents(member.span)} before")
        for other in self._registry.members.values():
            if other.name != hello.node and other.span[0] < own.stop and own.start < other.span.stop:
                raise RejectedError(f"agents {own.start} to {own.stop - 1} overlap with those of '{other.name}'")

    def _register(self, hello: messages.Hello, joining: messages.Joining) -> Member:
        """The member of a node that has said which rounds it holds; raise unless it can resume from one of them."""
        plan, s = self._plan, self._plan.setting
        if (joining.states, joining.actions, joining.horizon) != (s.states, s.actions, s.horizon):
            raise RejectedError(
                f"the node's problem has (S, A, H) = ({joining.states}, {joining.actions}, {joining.horizon}), this "
                f"run ({s.states}, {s.actions}, {s.horizon})"
            )
        if plan.federation is not None:
            expected = host(plan.federation, hello.first_agent, hello.agents).digest
            if joining.digest != expected:
                raise RejectedError(
                    f"the problem of '{hello.node}' is not the one of this run; check its environment's options (and "
                    "for real environments serve with --sizes S,A,H: nobody knows their kernels)"
                )
        units = _units(joining)
        if units != (self._run.units or units):
            raise RejectedError(
                f"a step of '{hello.node}' pays {units}, one of this run {self._run.units}; start all nodes with the "
                "same --reward-range, or with environments of the same one"
            )
        member = self._registry.members.get(hello.node)
        if member is None:
            if len(joining.digest) != DIGEST_BYTES:
                raise RejectedError(f"a digest has {DIGEST_BYTES} bytes")
            status = NEW if self._run.begun else HERE
            logged = {name: getattr(joining, name) for name in ("logged_episodes", "logged_steps")}
            confirmed = -1 if joining.logged_steps else 0
            member = Member(
                *(hello.node, hello.first_agent, hello.agents, joining.digest, units),
                status=status,
                confirmed=confirmed,
                **logged,
            )
            self._check_logs(member)
        if member.digest != joining.digest:
            raise RejectedError(f"'{hello.node}' came with another problem before")
        if (member.logged_episodes, member.logged_steps) != (joining.logged_episodes, joining.logged_steps):
            raise RejectedError(f"'{hello.node}' came with other logs before")
        held = max((number for number in joining.rounds if number <= member.base), default=-1)
        if held < 0 or (held < member.base and self._run.past(member, held) is None):
            more = "..., " if len(joining.rounds) > MAX_ROUNDS_TOLD else ""
            told = more + ", ".join(map(str, joining.rounds[-MAX_ROUNDS_TOLD:]))
            raise RejectedError(
                f"'{hello.node}' must resume after round {member.base} but holds rounds [{told}], and what it lacks "
                "cannot be played again (simulated agents in lockstep can, if they have missed no round and the "
                "server keeps a checkpoint); start it with the "
                "state folder it had"
            )
        self._registry.members[member.name] = member
        return member

    def _check_logs(self, member: Member) -> None:
        """Raise where a node's logs cannot be counted."""
        plan, setting = self._plan, self._plan.setting
        if not member.logged_steps:
            return
        if not plan.algorithm.server_counts:
            raise RejectedError(f"{plan.algorithm.name} takes no logs of nodes")
        logged = member.logged_steps + sum(other.logged_steps for other in self._registry.members.values())
        room = replace(setting, earlier_visits=setting.earlier_visits + logged)
        wider, grid = plan.algorithm.grid(room), plan.algorithm.grid(setting)
        if wider is not None and grid is not None and wider[:2] != grid[:2]:
            raise RejectedError(
                f"the run's sums have no room for {logged} logged steps; serve it with --warm-start of their counts"
            )


def _units(joining: messages.Joining) -> Units:
    units = Units(joining.reward_offset, joining.reward_scale)
    if not (math.isfinite(units.offset) and 0.0 < units.scale < math.inf):
        raise RejectedError(f"a step cannot pay {units}")
    return units


def _revoked(certified: Certified) -> str:
    return f"the certificate of '{certified.name}' has been revoked"


async def _dismiss(stream: NodeStream, reason: str, *, retry: bool) -> None:
    """Tell a node why its stream ends, if it still listens.

    A message that was just being sent when its sender was cancelled is in the way for a moment; hence several tries.
    """
    refusal = messages.Refusal(reason, retry)
    data = messages.encode(refusal)
    stream.conversation.sent(refusal, data)
    with suppress(TimeoutError):
        async with asyncio.timeout(FAREWELL_SECONDS):
            for _ in range(FAREWELL_TRIES):
                with suppress(ConnectionLostError):
                    await stream.write(data)
                    return
                await asyncio.sleep(FAREWELL_PAUSE)
