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
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fed_ucbvi.core.errors import InputError
from fed_ucbvi.network import messages
from fed_ucbvi.network.certificates import TLSFiles, check_name, node_name
from fed_ucbvi.network.coordinator import Coordinator
from fed_ucbvi.network.failures import ConnectionLostError, FederationStoppedError, RejectedError, ViolationError
from fed_ucbvi.network.members import GONE, Member, NodeStream, describe_agents
from fed_ucbvi.network.message_sizes import up_limits
from fed_ucbvi.network.registry import OnExchange
from fed_ucbvi.network.roster import Authority, der_of
from fed_ucbvi.network.rounds import played_again
from fed_ucbvi.network.run_plan import RunPlan
from fed_ucbvi.network.server_checkpoint import POLICY_FILE, ServerCheckpoint
from fed_ucbvi.network.sources import host
from fed_ucbvi.network.transport import Connection, Listener, WireCount
from fed_ucbvi.problem.units import Units
from fed_ucbvi.results.policy import LearntPolicy
from fed_ucbvi.results.round_record import OnRound
from fed_ucbvi.results.run import Run

log = logging.getLogger("fed_ucbvi.federation")

HELLO_SECONDS = 10.0
HANDSHAKE_SECONDS = 120.0
"""Time until the hello, and until a node has joined; it may have to build a large problem and compile first."""
MAX_HANDSHAKES = 64
MAX_NODES_AT_ONCE = 1024
MAX_STREAMS = 8
"""Streams at one time: in the handshake, besides one for each node that is expected, so many at most; of one name."""
MAX_ATTEMPTS = 120
ATTEMPTS_SECONDS = 60.0
"""Streams that one name may open in this time; an honest node pauses too long between attempts to reach it."""
DISMISSAL_SECONDS = 5.0
DISMISSAL_TRIES = 5
DISMISSAL_PAUSE = 0.05
"""For telling a node why its stream ends."""
LISTENING_SECONDS = 1.0
"""The stream stays open this long afterwards: a node that is just writing would find it broken and not read why."""
FAREWELL_SECONDS = 10.0
"""Time in which nodes that are just reconnecting hear of the end."""
MAX_ROUNDS_TOLD = 4
"""Number of the rounds announced by a node that are repeated to it and in the log."""


@dataclass(frozen=True)
class Outcome:
    """The result of a run over the network.

    Attributes:
        run: as a simulation gives it; regret and values are NaN where the server does not know the problem. It is
            complete if all agents have played all their episodes.
        wire: messages, and their bytes before compression.
        events: nodes that stayed away or were excluded, when, and what was done.
        ended: whether there is nothing left to play; nodes that were excluded or away may have played less.
    """

    run: Run
    wire: WireCount
    events: list[dict[str, Any]]
    ended: bool = True


class FederationServer:
    """A server; to be made inside a running event loop.

    Args:
        address: ``HOST:PORT`` to listen on; port 0 is a free one. None: it does not listen.
        tls_files: the server's certificate; none: insecure, on this machine only, and a node is who it says it is.
        checkpoint: the folder in which finished rounds are kept, if anywhere; the plan becomes that of the run in it.
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
        report: Callable[[Coordinator], None] | None = None,
        on_round: OnRound | None = None,
        on_exchange: OnExchange | None = None,
    ) -> None:
        self._tls_files = tls_files
        if plan.rules.secure_sums and tls_files is None:
            raise InputError(
                "secure sums need certificates, by which nodes know each other's keys; serve with --certs."
            )
        authority = Authority(tls_files.read()[0]) if plan.rules.secure_sums and tls_files is not None else None
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
        try:
            await self.coordinator.run()
            if self._listener is not None:
                await self._listener.end()
            await self._tell_all()
        except FederationStoppedError as stopped:
            await self.close(f"the server has stopped: {str(stopped).rstrip('.')}")
            raise
        finally:
            await self.close()
            if self._listener is not None:
                await self._listener.stop()
            if self._kept is not None:
                self._kept.close()
        return self.outcome()

    def outcome(self) -> Outcome:
        engine = self.coordinator.engine
        return Outcome(engine.result(), self.registry.wire, engine.events, engine.done)

    async def close(self, reason: str = "") -> None:
        """End all streams, and let nobody in any more."""
        self._closed = True
        for stream in tuple(self._streams):
            stream.close(reason)
        await self.registry.notify()

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
        registry = self.registry
        policy = self._last_policy(final=True)
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
        peer = connection.peer
        stream = NodeStream(connection, self.registry.wire)
        member = None
        try:
            stream.certified = self._authenticate(connection.certificate)
            if stream.certified is not None:
                peer = f"{peer} ({stream.certified})"
            member = await self._let_in(stream)
            stream.counts.append(member.wire)
            agents = describe_agents(member.span)
            log.info("%s: joined from %s with %s", member.name, peer, agents, extra=member.about)
            if self._end is not None:
                await self._tell_end(member, self._end)
            await self.registry.notify()
            await stream.closed.wait()
            if stream.farewell:
                await _dismiss(stream, stream.farewell, retry=member.status != GONE)
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
                if not self.coordinator.begun:
                    del self.registry.members[member.name]  # it may come back with other agents
                level = logging.WARNING if self._end is None else logging.DEBUG
                log.log(level, "%s: connection lost", member.name, extra=member.about)
                await self.registry.notify()

    def _authenticate(self, certificate: bytes) -> str | None:
        """Return the name in a stream's certificate, before anything is read from it; None without certificates.

        Raises:
            RejectedError: if the certificate does not let it in.
        """
        if self._tls_files is None:
            return None
        with _rejecting():
            name = node_name(certificate)
        self._check_listed(name)
        return name

    def _check_listed(self, name: str) -> None:
        """Raise unless the node is on the list of nodes, if there is one."""
        if self.plan.rules.nodes is not None and name not in self.plan.rules.nodes:
            raise RejectedError(f"'{name}' is not on the list of nodes")

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

    def _check_room(self, certified: str | None) -> None:
        """Raise if there are too many streams, of everybody or of one name."""
        own = 0
        if certified is not None:
            attempts = self._attempts[certified]
            now = time.monotonic()
            if len(attempts) == MAX_ATTEMPTS and now - attempts[0] < ATTEMPTS_SECONDS:
                raise RejectedError(f"too many streams in {ATTEMPTS_SECONDS:g} s", retry=True)
            attempts.append(now)
            own = [other.certified for other in self._streams].count(certified)
        room = MAX_HANDSHAKES + min(self.plan.most_nodes, MAX_NODES_AT_ONCE)
        if own >= MAX_STREAMS or self._handshakes >= room:
            raise RejectedError("too many streams at one time", retry=True)

    # -------------------------------------------------------------------------------------------------- the handshake

    async def _admit(self, stream: NodeStream) -> Member:
        async with asyncio.timeout(HELLO_SECONDS):
            hello = await stream.receive()
        if not isinstance(hello, messages.Hello):
            raise RejectedError(f"the first message must be a hello, got {type(hello).__name__}")
        self._check_hello(hello, stream.certified)
        await stream.send(self.plan.welcome())
        joining = await stream.receive()
        if not isinstance(joining, messages.Joining):
            told = f": {joining.reason}" if isinstance(joining, messages.Fault) else ""
            raise RejectedError(f"a joining was expected, got {type(joining).__name__}{told}")
        self._check_hello(hello, stream.certified)  # others may have come in the meantime
        member, held = self._register(hello, joining)
        stream.limits = up_limits(self.registry.report_schema, member.agents)
        if held < member.base:
            what = "has lost its state after round %d; plays up to round %d again"
            log.warning(f"%s: {what}", member.name, held, member.base, extra=member.about)
            for past in self.coordinator.past(member, held) or ():
                await stream.ask(played_again(past, self.plan.setting.episodes))
        if self.plan.rules.secure_sums:
            member.certificate = der_of(stream.connection.certificate)
        old = member.stream
        member.stream = stream
        member.incarnation = hello.incarnation
        if old is not None:
            old.close("the node has opened another stream")
        return member

    def _check_name(self, hello: messages.Hello, certified: str | None) -> None:
        """Raise unless this node is who it says it is, and speaks of this run."""
        if hello.protocol != messages.PROTOCOL:
            raise RejectedError(
                f"the node speaks protocol {hello.protocol} (fed-ucbvi {hello.version or 'unknown'}), this server "
                f"{messages.PROTOCOL}; install the same version on both"
            )
        with _rejecting():
            check_name(hello.node)
        if certified is not None and hello.node != certified:
            raise RejectedError(f"the certificate is for {certified}, not for '{hello.node}'")
        self._check_listed(hello.node)
        if hello.run not in ("", self.plan.run):
            raise RejectedError(f"'{hello.node}' holds the state of run {hello.run}; this is run {self.plan.run}")

    def _check_hello(self, hello: messages.Hello, certified: str | None) -> None:
        self._check_name(hello, certified)
        M = self.plan.setting.agents
        own = range(hello.first_agent, hello.first_agent + hello.agents)
        if not own or own.stop > M:
            raise RejectedError(f"agents {own.start} to {own.stop - 1} are not all among this run's 0 to {M - 1}")
        member = self.registry.members.get(hello.node)
        if member is not None and member.status == GONE:
            raise RejectedError(self.coordinator.excluded(member))
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
        plan = self.plan
        run = self.coordinator
        s = self.plan.setting
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
            member = Member(hello.node, hello.first_agent, hello.agents, joining.digest, units)
            member.logged_episodes, member.logged_steps = logged
            if joining.logged_steps:
                member.reported_round = -1
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
                "server keeps a checkpoint); start it with the state folder it had, or, if that is lost, "
                "begin a new run, with 'serve --warm-start CHECKPOINT' where this one has a checkpoint"
            )
        self.registry.members[member.name] = member
        return member, held

    def _check_logs(self, steps: int) -> None:
        algorithm = self.plan.algorithm
        setting = self.plan.setting
        if not self.plan.reports_counts:
            raise RejectedError(f"{algorithm.name} takes no logs of nodes")
        logged = steps + sum(other.logged_steps for other in self.registry.members.values())
        room = replace(setting, earlier_visits=setting.earlier_visits + logged)
        wider = algorithm.grid(room)
        grid = algorithm.grid(setting)
        if wider is not None and grid is not None and wider[:2] != grid[:2]:
            raise RejectedError(
                f"the run's sums have no room for {logged} logged steps; serve it with --warm-start of their counts"
            )


@contextmanager
def _rejecting() -> Iterator[None]:
    """Reject a node with the reason of an error in its input."""
    try:
        yield
    except InputError as error:
        raise RejectedError(str(error).rstrip(".")) from error


async def _dismiss(stream: NodeStream, reason: str, *, retry: bool) -> None:
    """Tell a node why its stream ends, if it still listens.

    A message that was just being sent when its sender was cancelled is in the way for a moment; hence several tries.
    """
    data = messages.encode(messages.Refusal(reason, retry))
    with suppress(TimeoutError):
        async with asyncio.timeout(DISMISSAL_SECONDS):
            for _ in range(DISMISSAL_TRIES):
                with suppress(ConnectionLostError):
                    await stream.connection.write(data)
                    return
                await asyncio.sleep(DISMISSAL_PAUSE)
