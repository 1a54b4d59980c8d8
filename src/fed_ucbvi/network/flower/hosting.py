"""The server of a run whose nodes come by invitation: gather, invite, serve, invite again those that were lost."""

from __future__ import annotations

import asyncio
import logging
import math
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from fed_ucbvi.core.errors import InputError
from fed_ucbvi.network.flower.invitation import ERROR, LOST, REQUEST, Invitation, Record, RunAuthority, node_name
from fed_ucbvi.network.flower.settings import RunSettings
from fed_ucbvi.network.members import GONE
from fed_ucbvi.network.registry import NodeRegistry
from fed_ucbvi.network.run_plan import plan_of
from fed_ucbvi.network.server import FederationServer, Outcome

log = logging.getLogger("fed_ucbvi.federation")

LOOK_SECONDS = 1.0
"""Seconds between checks of which nodes are online and which have answered."""
AGAIN_SECONDS = 60.0
"""After this time without a stream a node is invited again: a restarted SuperNode has lost invitation and key."""
FAREWELL_SECONDS = 30.0
"""Seconds for nodes to say that they are done; the result does not wait for it."""
STOPPED = "the run has been stopped"


class MessageChannel(Protocol):
    """Channel for invitations; calls may block.

    ``answers`` gives those of the messages that were answered since the last call. An answer is figures when the run
    is over, a signing request, or why it is neither.
    """

    def online(self) -> Iterable[int]: ...

    def invite(self, node_id: int, invitation: Invitation) -> str: ...

    def answers(self, messages: Sequence[str]) -> Iterable[tuple[str, Record]]: ...


class InvitedNodes:
    """Which nodes were invited, are connected, have answered; ``sign`` gives the certificate for a node's request."""

    def __init__(
        self,
        post: MessageChannel,
        registry: NodeRegistry,
        invitations: dict[int, Invitation],
        sign: Callable[[bytes, str], bytes],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._post = post
        self._registry = registry
        self._invitations = invitations
        self._sign = sign
        self._clock = clock
        self._sent: dict[str, int] = {}
        self._seen: dict[int, float] = {}
        self.figures: dict[str, Record] = {}

    async def invite(self, node_id: int, certificate: bytes = b"") -> None:
        invitation = replace(self._invitations[node_id], certificate=certificate)
        message = await asyncio.to_thread(self._post.invite, node_id, invitation)
        self._sent[message] = node_id
        self._seen[node_id] = self._clock()

    async def watch(self) -> None:
        """Invite, sign and invite again while the run lasts.

        Raises if a node that has not joined yet cannot join, as the run would wait for it; later the rules for nodes
        that are away apply.
        """
        while True:
            for node_id, error in (await self.take_answers()).items():
                if node_name(node_id) not in self._registry.members:
                    raise InputError(f"{node_name(node_id)} cannot take part: {error}.")
                log.warning("%s: has stopped: %s", node_name(node_id), error)
            await self.invite_lost()
            await asyncio.sleep(LOOK_SECONDS)

    async def take_answers(self) -> dict[int, str]:
        """Read the nodes' answers and sign their requests; gives the errors that they report."""
        complaints = {}
        for message, answer in await asyncio.to_thread(lambda: list(self._post.answers(tuple(self._sent)))):
            node_id = self._sent.pop(message)
            name = node_name(node_id)
            if REQUEST in answer:
                try:
                    await self.invite(node_id, self._sign(answer[REQUEST], name))
                except InputError as error:
                    complaints[node_id] = str(error).rstrip(".")
            elif LOST in answer:
                log.warning("%s: lost with its invitation: %s", name, answer[LOST])
                self._seen[node_id] = -math.inf
            elif ERROR in answer:
                complaints[node_id] = answer[ERROR].rstrip(".")
            else:
                self.figures[name] = answer
        return complaints

    async def invite_lost(self) -> None:
        """Invite again nodes that have had no stream for long and are there."""
        now = self._clock()
        for node_id in self._invitations:
            member = self._registry.members.get(node_name(node_id))
            if member is not None and (member.stream is not None or member.status == GONE):
                self._seen[node_id] = now
        lost = {node_id for node_id, seen in self._seen.items() if now - seen > AGAIN_SECONDS}
        for node_id in lost.intersection(await asyncio.to_thread(self._post.online) if lost else ()):
            log.warning("%s: invited again", node_name(node_id))
            await self.invite(node_id)

    async def see_off(self) -> None:
        """Wait for nodes to say that they are done."""
        end = self._clock() + FAREWELL_SECONDS
        while len(self.figures) < len(self._invitations) and self._clock() < end:
            await self.take_answers()
            await asyncio.sleep(LOOK_SECONDS)


async def gather(post: MessageChannel, settings: RunSettings) -> tuple[int, ...]:
    """Wait for the SuperNodes to be there; gives them in the order of their agents."""
    wanted = settings.wanted()
    end = time.monotonic() + settings.rules.gathering
    while True:
        online = sorted(await asyncio.to_thread(post.online))
        found = tuple(node_id for node_id in wanted or online if node_id in online)
        if len(found) == settings.nodes:
            return found
        if len(found) > settings.nodes:
            there = f"{len(found)} SuperNodes are there for a run of {settings.nodes}"
            raise InputError(f"{there}; name by node-ids which are meant: {', '.join(map(str, found))}.")
        if time.monotonic() > end:
            there = f"{len(found)} of {settings.nodes} SuperNodes connected within {settings.rules.gathering:g} s"
            missing = ", ".join(map(str, sorted(set(wanted) - set(found))))
            raise InputError(f"{there}; missing: {missing}." if wanted else f"{there}.")
        await asyncio.sleep(LOOK_SECONDS)


async def hold(
    post: MessageChannel, settings: RunSettings, run: str, *, done: Callable[[Outcome, InputError | None], None]
) -> dict[str, Record]:
    """Hold a run called ``run``, unless the checkpoint has a name, from waiting for nodes to their last answers.

    ``done`` takes the outcome as soon as it is there, and what stopped the run if it is not complete. Gives what
    nodes said when they were done, by name; raises if the run cannot begin, or was stopped.
    """
    host, _, port = settings.meeting_point().rpartition(":")
    plan_of(settings.spec)  # what is wrong with it is told before anybody is called
    node_ids = await gather(post, settings)
    rules = replace(settings.rules, nodes=tuple(node_name(node_id) for node_id in node_ids))
    plan = replace(plan_of(replace(settings.spec, rules=rules)), run=run)
    with tempfile.TemporaryDirectory(prefix="fed-ucbvi-") as folder:
        authority = RunAuthority.make(Path(folder), host.strip("[]"))
        service = FederationServer(plan, settings.listen, authority.server, checkpoint=settings.run.checkpoint)
        plan = service.plan
        address = f"{host}:{int(port) or service.port}"
        log.info("run %s: listening on port %d, nodes connect to %s", plan.run, service.port, address)
        invitations = authority.invitations(plan.run, address, node_ids, plan.setting.agents, settings.rules.patience)
        invited_nodes = InvitedNodes(post, service.registry, invitations, authority.sign)
        for node_id in node_ids:
            await invited_nodes.invite(node_id)
        failure = await _serve(service, invited_nodes)
        done(service.outcome(), failure)
        if failure is not None:
            raise failure
        await invited_nodes.see_off()
    return invited_nodes.figures


async def _serve(service: FederationServer, invited_nodes: InvitedNodes) -> InputError | None:
    """Run to the end, or until an invited node cannot join or the run is stopped; gives what stopped it."""
    running = asyncio.ensure_future(service.run())
    watching = asyncio.ensure_future(invited_nodes.watch())
    try:
        await asyncio.wait((running, watching), return_when=asyncio.FIRST_COMPLETED)
        await (running if running.done() else watching)
    except InputError as error:
        return error
    except asyncio.CancelledError:
        return InputError(STOPPED)
    finally:
        for member in () if running.done() else service.registry.active:
            member.status = GONE  # nodes do not reconnect; whoever resumes the run invites them again
            if member.stream is not None:
                member.stream.close(STOPPED)
        for task in (watching, running):
            task.cancel()
        await asyncio.gather(running, watching, return_exceptions=True)
    return None
