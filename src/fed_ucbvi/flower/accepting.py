"""A node that has been invited: join the run with its own environment and take part until it is over."""

from __future__ import annotations

import tempfile
from collections.abc import MutableMapping
from dataclasses import dataclass
from pathlib import Path

from fed_ucbvi.flower.invitation import Invitation
from fed_ucbvi.flower.settings import NodeSettings
from fed_ucbvi.network.certificates import new_request
from fed_ucbvi.network.client import take_part
from fed_ucbvi.network.node import Node

JOIN_SECONDS = 60.0
"""Seconds to reach the server for the first time; it listens before it invites."""


@dataclass(frozen=True)
class Figures:
    """All that a node says through Flower when it is done."""

    run: str
    name: str
    first_agent: int
    agents: int
    rounds: int


async def answer(invitation: Invitation, settings: NodeSettings, keys: MutableMapping[str, bytes]) -> Figures | bytes:
    """Take part in the run of an invitation until it is over; where it has no certificate yet, ask for one.

    ``keys`` is what the node keeps to itself: its private key, by run.
    """
    key = keys.get(invitation.run)
    if key is not None and invitation.is_for(key):
        return await _accept(invitation, settings, key)
    keys.clear()
    keys[invitation.run], request = new_request(invitation.name)
    return request


async def _accept(invitation: Invitation, settings: NodeSettings, key: bytes) -> Figures:
    first, agents = settings.share(invitation.first_agent, invitation.agents)
    state = None if settings.state is None else settings.state / invitation.run
    node = Node(
        invitation.name,
        settings.source(first + agents),
        first,
        agents,
        state,
        trajectories=settings.send_trajectories,
        algorithm=settings.algorithm,
    )
    with tempfile.TemporaryDirectory(prefix="fed-ucbvi-") as folder:
        tls_files = invitation.write_tls_files(Path(folder), key)
        await take_part(
            node,
            invitation.address,
            tls_files,
            patience=invitation.patience,
            first_patience=JOIN_SECONDS,
            only_run=True,
        )
    return Figures(node.run, node.name, first, agents, node.rounds)
