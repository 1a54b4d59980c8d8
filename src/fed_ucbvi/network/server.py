"""The server's side of the network: listen, let nodes in, run, return the result.

A stream opens, says which node it is, and is admitted or rejected with a reason. Whose streams are read at all, and
how many at a time, is decided before anything is read.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fed_ucbvi.core.errors import InputError
from fed_ucbvi.network import messages
from fed_ucbvi.network.certificates import Certified, TLSFiles, check_name
from fed_ucbvi.network.coordinator import Coordinator
from fed_ucbvi.network.failures import ConnectionLostError, FederationStoppedError, RejectedError, ViolationError
from fed_ucbvi.network.members import GONE, HERE, LEFT, NEW, Member, NodeStream, Used, describe_agents
from fed_ucbvi.network.registry import OnExchange
from fed_ucbvi.network.roster import Authority, der_of
from fed_ucbvi.network.run_plan import RunPlan
from fed_ucbvi.network.server_checkpoint import POLICY_FILE, ServerCheckpoint, played_again
from fed_ucbvi.network.sources import host
from fed_ucbvi.network.transport import Connection, Listener, WireCount
from fed_ucbvi.problem.units import Units
from fed_ucbvi.results.policy import LearntPolicy
from fed_ucbvi.results.round_record import OnRound
from fed_ucbvi.results.run import Run

log = logging.getLogger("fed_ucbvi.federation")

HELLO_SECONDS, HANDSHAKE_SECONDS = 10.0, 120.0
"""Time until the hello, and until a node has joined; it may have to build a large problem and compile first."""
MAX_HANDSHAKES, MAX_NODES_AT_ONCE, MAX_STREAMS = 64, 1024, 8
"""Streams at one time: in the handshake, besides one for each node that is expected, so many at most; of one name."""
MAX_ATTEMPTS, ATTEMPTS_SECONDS = 120, 60.0
"""Streams that one name may open in this time; an honest node pauses too long between attempts to reach it."""
REVOKED_SECONDS = 1.0
"""Between looks at the list of the revoked, for streams that are open."""
DISMISSAL_SECONDS, DISMISSAL_TRIES, DISMISSAL_PAUSE = 5.0, 5, 0.05
"""For telling a node why its stream ends."""
LISTENING_SECONDS = 1.0
"""The stream stays open this long afterwards: a node that is just writing would find it broken and not read why."""
LEAVING_SECONDS = 60.0
"""A node that leaves for good waits this long until the round without it is kept."""
FAREWELL_SECONDS = 10.0
"""How long the end is told to nodes that are just reconnecting."""
MAX_ROUNDS_TOLD = 4
"""How many of the rounds that a node says it holds are repeated to it and to the log."""


@dataclass(frozen=True)
class Outcome:
    """The result of a run over the network.

    Attributes:
        run: as a simulation gives it; regret and values are NaN where the server does not know the problem. It is
            complete if all agents have played all their episodes.
        wire: what was really sent.
        events: nodes that stayed away or were dropped, when, and what was done.
        ended: whether there is nothing left to play; nodes that were excluded or away may have played less.
        agent_episodes: that agents have played, added up, and that were planned: from when each came until it left.
    """

    run: Run
    wire: WireCount
    events: list[dict[str, Any]]
    ended: bool = True
    agent_episodes: tuple[int, int] = 0, 0


class FederationServer:
    """A server; to be made inside a running event loop.

    Args:
        address: ``HOST:PORT`` to listen on; port 0 is a free one. None: it does not listen.
        tls_files: the server's certificate; none: insecure, on this machine only, and a node is who it says it is.
        checkpoint: the folder in which finished rounds are kept, if anywhere; the plan becomes that of the run in it.
        revoked: gives the names, and names with a serial number, that are rejected though certified; asked anew for
            every stream, and again and again while streams are open.
        report: called after every round.
        on_round: likewise, with the record of the round.
    """

    def __init__(
        self,
        plan: RunPlan,
        address: str | None,
        tls_files: TLSFiles | None,
        *,
        checkpoint: Path | None = None,
        revoked: Callable[[], Iterable[str]] = tuple,
        report: Callable[[Coordinator], None] | None = None,
        on_round: OnRound | None = None,
        on_exchange: OnExchange | None = None,
    ) -> None:
        self._tls_files, self._revoked = tls_files, revoked
        if plan.secure_sums and tls_files is None:
            raise InputError(
                "secure sums need certificates, by which nodes know each other's keys; serve with --certs."
            )
        authority = Authority(tls_files.read()[0]) if plan.secure_sums and tls_files is not None else None
        self._kept = None if checkpoint is None else ServerCheckpoint(checkpoint, plan)
        self.plan = plan if self._kept is None else self._kept.plan
        self.coordinator = Coordinator(self.plan, self._kept, report, on_round, on_exchange, authority)
        self.registry = self.coordinator.registry
        self._streams: set[NodeStream] = set()
        self._handshakes = 0
        self._attempts: dict[str, deque[float]] = defaultdict(lambda: deque(maxlen=MAX_ATTEMPTS))
        self._end: messages.End | None = None
        self._closed = False
        self._told: tuple[int, bytes] = 0, b""
        self._listener = None if address is None else Listener(self, address, tls_files)
        self.port = 0 if self._listener is None else self._listener.port

    async def run(self) -> Outcome:
        if self._listener is not None:
            await self._listener.start()
        watching = asyncio.ensure_future(self._watch())
        try:
            await self.coordinator.run()
            if self._listener is not None:
                await self._listener.end()
            await self._tell_all()
        except FederationStoppedError as stopped:
            await self.close(f"the server has stopped: {str(stopped).rstrip('.')}")
            raise
        finally:
            watching.cancel()
            await self.close()
            if self._listener is not None:
                await self._listener.stop()
            if self._kept is not None:
                self._kept.close()
        return self.outcome()

    def outcome(self) -> Outcome:
        engine = self.coordinator.engine
        agent_episodes = engine.totals.agent_episodes, engine.planned_episodes
        return Outcome(engine.result(), self.registry.wire, engine.events, engine.done, agent_episodes)

    async def close(self, reason: str = "") -> None:
        """End all streams, and let nobody in any more."""
        self._closed = True
        for stream in tuple(self._streams):
            stream.close(reason)
        await self.registry.notify()

    async def _watch(self) -> None:
        """While the server listens: end the streams of those whose certificates are revoked."""
        while True:
            await asyncio.sleep(REVOKED_SECONDS)
            with suppress(OSError, ValueError):  # a list that cannot be read lets nobody new in
                revoked = set(self._revoked())
                for stream in self._streams:
                    if stream.certified is not None and stream.certified.revocations & revoked:
                        stream.close(_revoked(stream.certified))

    # ----------------------------------------------------------------------------------------------------- the policy

    def _last_policy(self, *, final: bool) -> LearntPolicy:
        """The policy recommended last, signed where the server has a certificate."""
        policy = replace(LearntPolicy.of(self.coordinator.engine.result()), run=self.plan.run, final=final)
        return policy if self._tls_files is None else policy.signed(*self._tls_files.read()[1:])

    def _end_with(self, policy: LearntPolicy) -> messages.End:
        return messages.End(self.coordinator.round, self.coordinator.engine.played, policy.to_bytes())

    async def policy(self, certificate: bytes) -> bytes:
        """Answer a node that asks for the policy; it need not take part just now."""
        self._authenticate(certificate)
        planned = len(self.coordinator.engine.recommendations)
        if not planned:
            raise RejectedError("no policy has been recommended yet; the first round is not over", retry=True)
        if self._told[0] != planned:
            self._told = planned, self._last_policy(final=self.coordinator.done).to_bytes()
        return self._told[1]

    async def _tell_all(self) -> None:
        """Keep the policy, for nodes that will not hear of the end here, and tell it to those that do.

        Nodes that are just reconnecting hear of it, too. Wait until all have left.
        """
        registry, policy = self.registry, self._last_policy(final=True)
        if self._kept is not None:
            try:
                policy.save(self._kept.folder / POLICY_FILE)
            except OSError as error:
                log.warning("the policy cannot be kept in %s: %s", self._kept.folder, error)
        self._end = self._end_with(policy)
        for member in registry.active:
            await self._tell_end(member, self._end)
        present = registry.present
        await registry.wait_until(
            lambda: all(member.heard_end for member in present) and registry.connected == 0, FAREWELL_SECONDS
        )
        for member in present:
            if not member.heard_end:
                log.warning("%s: was not notified of the end", member.name, extra=member.about)

    async def _tell_end(self, member: Member, end: messages.End) -> None:
        if member.stream is None:
            return
        try:
            await member.stream.send(end)
        except ConnectionLostError as lost:
            log.warning("%s: was not notified of the end: %s", member.name, lost, extra=member.about)
        else:
            member.heard_end = True

    # ---------------------------------------------------------------------------------------------------- the streams

    async def session(self, connection: Connection) -> None:
        if self._closed:
            return
        peer, stream = connection.peer, NodeStream(connection, self.registry.wire, self.registry.transcript)
        member = None
        try:
            stream.certified = self._authenticate(connection.certificate)
            if stream.certified is not None:
                stream.conversation.peer = stream.certified.name
                peer = f"{peer} ({stream.certified.name})"
            member = await self._let_in(stream)
            largest = self.registry.report_schema.largest(self.plan.setting.agents)
            stream.most_bytes = max(messages.PART_BYTES, 2 * largest)
            stream.counts.append(member.wire)
            agents = describe_agents(member.span)
            log.info("%s: joined from %s with %s", member.name, peer, agents, extra=member.about)
            if self._end is not None:
                await self._tell_end(member, self._end)
            await self.registry.notify()
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
                member.stream = None
                if not self.coordinator.begun or member.status == NEW:
                    del self.registry.members[member.name]  # it may come back with other agents
                level = logging.WARNING if self._end is None else logging.DEBUG
                log.log(level, "%s: connection lost", member.name, extra=member.about)
                await self.registry.notify()

    def _authenticate(self, certificate: bytes) -> Certified | None:
        """Whose stream it is, before anything is read from it; raise unless the certificate lets it in."""
        if self._tls_files is None:
            return None
        with _rejecting():
            certified = Certified.of(certificate)
        self._check_certified(certified)
        return certified

    def _check_certified(self, certified: Certified) -> None:
        """Raise unless it is on the list and has not been revoked."""
        if self.plan.nodes is not None and certified.name not in self.plan.nodes:
            raise RejectedError(f"'{certified.name}' is not on the list of nodes")
        try:
            revoked = set(self._revoked())
        except (OSError, ValueError) as error:
            log.error("the list of revoked certificates cannot be read, so nobody is let in: %s", error)
            raise RejectedError("the server cannot read its list of revoked certificates", retry=True) from error
        if certified.revocations & revoked:
            raise RejectedError(_revoked(certified))

    async def _let_in(self, stream: NodeStream) -> Member:
        """Hold the handshake, within the limits on its time and on the number of streams."""
        self._check_room(stream.certified)
        self._streams.add(stream)
        self._handshakes += 1
        try:
            async with asyncio.timeout(HANDSHAKE_SECONDS):
                return await self._admit(stream)
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
            own = [other.certified and other.certified.name for other in self._streams].count(certified.name)
        room = MAX_HANDSHAKES + min(self.plan.most_nodes, MAX_NODES_AT_ONCE)
        if own >= MAX_STREAMS or self._handshakes >= room:
            raise RejectedError("too many streams at one time", retry=True)

    # -------------------------------------------------------------------------------------------------- the handshake

    async def _admit(self, stream: NodeStream) -> Member:
        async with asyncio.timeout(HELLO_SECONDS):
            hello = await stream.receive()
        if not isinstance(hello, messages.Hello):
            raise RejectedError(f"the first message must be a hello, got {type(hello).__name__}")
        if hello.leaving:
            await self._say_farewell(stream, hello)
        self._check_hello(hello, stream.certified)
        await stream.send(self.plan.welcome())
        joining = await stream.receive()
        if not isinstance(joining, messages.Joining):
            told = f": {joining.reason}" if isinstance(joining, messages.Fault) else ""
            raise RejectedError(f"a joining was expected, got {type(joining).__name__}{told}")
        self._check_hello(hello, stream.certified)  # others may have come in the meantime
        member, held = self._register(hello, joining)
        if held < member.base:
            what = "has lost its state after round %d; plays up to round %d again"
            log.warning(f"%s: {what}", member.name, held, member.base, extra=member.about)
            for past in self.coordinator.past(member, held) or ():
                await stream.ask(played_again(past, self.plan))
        if self.plan.secure_sums:
            member.certificate = der_of(stream.connection.certificate)
        old, member.stream, member.incarnation = member.stream, stream, hello.incarnation
        if old is not None:
            old.close("the node has opened another stream")
        return member

    async def _say_farewell(self, stream: NodeStream, hello: messages.Hello) -> None:
        """A node leaves for good; it is told so once that is on disk. Its stream ends in any case."""
        self._check_name(hello, stream.certified)
        run, member = self.coordinator, self.registry.members.get(hello.node)
        if member is None or not run.begun:
            raise RejectedError(f"'{hello.node}' does not take part in this run; there is nothing to leave")
        if run.done and member.status != LEFT:
            raise RejectedError("this run is over; there is nothing to leave")
        if member.status == GONE:
            raise RejectedError(run.excluded(member))
        if member.status != LEFT:
            with _rejecting():
                run.leave(member)
            member.kept = False
            await self.registry.part_with(member, LEFT, messages.has_left(hello.node))
        if not await self.registry.wait_until(lambda: member.kept, LEAVING_SECONDS):
            raise RejectedError("the round without the node is not over yet; ask again", retry=True)
        if run.engine.recommended is not None:
            await stream.send(self._end_with(self._last_policy(final=run.done)))
        raise RejectedError(messages.has_left(hello.node))

    def _check_name(self, hello: messages.Hello, certified: Certified | None) -> None:
        """Raise unless this node is who it says it is, and speaks of this run."""
        if hello.protocol != messages.PROTOCOL:
            raise RejectedError(
                f"the node speaks protocol {hello.protocol} (fed-ucbvi {hello.version or 'unknown'}), this server "
                f"{messages.PROTOCOL}; install the same version on both"
            )
        with _rejecting():
            check_name(hello.node)
        if certified is not None and hello.node != certified.name:
            raise RejectedError(f"the certificate is for {certified.name}, not for '{hello.node}'")
        self._check_certified(certified or Certified(hello.node, ""))
        if hello.run not in ("", self.plan.run):
            raise RejectedError(f"'{hello.node}' holds the state of run {hello.run}; this is run {self.plan.run}")

    def _check_hello(self, hello: messages.Hello, certified: Certified | None) -> None:
        self._check_name(hello, certified)
        M, own = self.plan.setting.agents, range(hello.first_agent, hello.first_agent + hello.agents)
        if not own or own.stop > M:
            raise RejectedError(f"agents {own.start} to {own.stop - 1} are not all among this run's 0 to {M - 1}")
        member = self.registry.members.get(hello.node)
        if member is not None and member.out:
            left = messages.has_left(hello.node)
            raise RejectedError(left if member.status == LEFT else self.coordinator.excluded(member))
        if member is not None and member.stream is not None and member.incarnation != hello.incarnation:
            raise RejectedError(
                f"another process is connected as '{hello.node}'; if it has died, the server will notice soon",
                retry=True,
            )
        if member is not None and member.span != own:
            raise RejectedError(f"'{hello.node}' came with {describe_agents(member.span)} before")
        for other in self.registry.members.values():
            if other.name != hello.node and other.span[0] < own.stop and own.start < other.span.stop:
                raise RejectedError(f"agents {own.start} to {own.stop - 1} overlap with those of '{other.name}'")

    def _register(self, hello: messages.Hello, joining: messages.Joining) -> tuple[Member, int]:
        """The member of a node, and the last of the rounds it holds; raise unless it can resume from there."""
        plan, run, s = self.plan, self.coordinator, self.plan.setting
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
        units = Units(joining.reward_offset, joining.reward_scale)
        if not (math.isfinite(units.offset) and 0.0 < units.scale < math.inf):
            raise RejectedError(f"a step cannot pay {units}")
        if units != (run.units or units):
            raise RejectedError(
                f"a step of '{hello.node}' pays {units}, one of this run {run.units}; start all nodes with the "
                "same --reward-range, or with environments of the same one"
            )
        logged = joining.logged_episodes, joining.logged_steps
        member = self.registry.members.get(hello.node)
        if member is None:
            about = hello.node, hello.first_agent, hello.agents, joining.digest, units
            member = Member(*about, status=NEW if run.begun else HERE)
            member.logged_episodes, member.logged_steps = logged
            if joining.logged_steps:
                member.used[messages.COUNTS] = Used(-1)
                self._check_logs(joining.logged_steps)
        if member.digest != joining.digest:
            raise RejectedError(f"'{hello.node}' came with another problem before")
        if (member.logged_episodes, member.logged_steps) != logged:
            raise RejectedError(f"'{hello.node}' came with other logs before")
        held = max((number for number in joining.rounds if number <= member.base), default=-1)
        if held < 0 or (held < member.base and run.past(member, held) is None):
            more = "..., " if len(joining.rounds) > MAX_ROUNDS_TOLD else ""
            told = more + ", ".join(map(str, joining.rounds[-MAX_ROUNDS_TOLD:]))
            raise RejectedError(
                f"'{hello.node}' must resume after round {member.base} but holds rounds [{told}], and what it lacks "
                "cannot be played again (simulated agents in lockstep can, if they have missed no round and the "
                "server keeps a checkpoint); start it with the state folder it had"
            )
        self.registry.members[member.name] = member
        return member, held

    def _check_logs(self, steps: int) -> None:
        algorithm, setting = self.plan.algorithm, self.plan.setting
        if not algorithm.server_counts:
            raise RejectedError(f"{algorithm.name} takes no logs of nodes")
        logged = steps + sum(other.logged_steps for other in self.registry.members.values())
        room = replace(setting, earlier_visits=setting.earlier_visits + logged)
        wider, grid = algorithm.grid(room), algorithm.grid(setting)
        if wider is not None and grid is not None and wider[:2] != grid[:2]:
            raise RejectedError(
                f"the run's sums have no room for {logged} logged steps; serve it with --warm-start of their counts"
            )


@contextmanager
def _rejecting() -> Iterator[None]:
    """What is wrong with a node's input is why it is not let in."""
    try:
        yield
    except InputError as error:
        raise RejectedError(str(error).rstrip(".")) from error


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
        async with asyncio.timeout(DISMISSAL_SECONDS):
            for _ in range(DISMISSAL_TRIES):
                with suppress(ConnectionLostError):
                    await stream.write(data)
                    return
                await asyncio.sleep(DISMISSAL_PAUSE)
