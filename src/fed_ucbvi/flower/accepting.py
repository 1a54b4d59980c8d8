"""A node that has been invited: join the run with its own environment and take part until it is over."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from fed_ucbvi.flower.invitation import Invitation
from fed_ucbvi.flower.settings import NodeSettings
from fed_ucbvi.network.client import take_part
from fed_ucbvi.network.node import Node


@dataclass(frozen=True)
class Figures:
    """All that a node says through Flower when it is done."""

    run: str
    name: str
    first_agent: int
    agents: int
    rounds: int


async def accept(invitation: Invitation, settings: NodeSettings) -> Figures:
    """Take part in the run of an invitation until it is over."""
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
        tls_files = invitation.write_tls_files(Path(folder))
        await take_part(node, invitation.address, tls_files, patience=invitation.patience)
    return Figures(node.run, node.name, first, agents, node.rounds)
