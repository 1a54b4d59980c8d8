"""Invitations to nodes through Flower: address of the server, agents that the node hosts, and its certificate.

A node makes its own key. The first invitation has no certificate, and the node answers it by a signing request; the
second one has. The authority is the run's own: its key is in the server's memory alone, and ends with the run.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple

from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.version import PROGRAM
from fed_ucbvi.engine.parts import split_agents
from fed_ucbvi.network import certificates
from fed_ucbvi.network.certificates import TLSFiles
from fed_ucbvi.network.client import run_node
from fed_ucbvi.network.flower.settings import NodeSettings
from fed_ucbvi.network.node import Node
from fed_ucbvi.network.node_terms import NodeTerms
from fed_ucbvi.network.sources import simulated_source
from fed_ucbvi.network.transport import RemoteServer

RECORD = PROGRAM
"""The one record of a message, both ways."""
REQUEST = "request"
ERROR = "error"
LOST = "lost"
"""In an answer: a signing request, where a node has no certificate; why it cannot take part; why it was lost with the
invitation, and may be invited again."""
Record = Mapping[str, Any]
"""Plain values, which Flower can carry."""
SERVER = "server"
DAYS = 30.0
"""How long a run's certificates are valid, and so how long a node can reconnect."""

JOIN_SECONDS = 60.0
"""Seconds to reach the server for the first time; it listens before it invites."""


def node_name(node_id: int) -> str:
    """The name a SuperNode takes part under."""
    return f"node-{node_id}"


@dataclass(frozen=True)
class Invitation:
    """One node's invitation to one run."""

    run: str
    name: str
    address: str
    first_agent: int
    agents: int
    patience: float
    authority: bytes = field(repr=False)
    certificate: bytes = field(default=b"", repr=False)

    @classmethod
    def of(cls, record: Record) -> Invitation:
        for part in fields(cls):
            if type(record.get(part.name)).__name__ != part.type:
                raise InputError(f"the server's invitation has no {part.name}; install the same version on both.")
        return cls(**record)

    def is_for(self, key: bytes) -> bool:
        """True if the certificate is that of a key."""
        try:
            certificates.check_pair(self.certificate, key)
        except InputError:
            return False
        return True

    def write_tls_files(self, folder: Path, key: bytes) -> TLSFiles:
        """The certificates and the node's key as files in ``folder``, readable by their owner alone."""
        tls_files = TLSFiles.of(folder, "node")
        paths = (tls_files.authority, tls_files.certificate, tls_files.key)
        for path, content in zip(paths, (self.authority, self.certificate, key), strict=True):
            path.touch(0o600, exist_ok=False)
            path.write_bytes(content)
        return tls_files


class RunAuthority(NamedTuple):
    """The certificate authority of one run, and the server's files."""

    issued: certificates.Issued
    server: TLSFiles

    @classmethod
    def make(cls, folder: Path, host: str) -> RunAuthority:
        """A new one, with a certificate for a server at ``host``; the authority's key is not kept on disk."""
        certificates.make_certificates(folder, server=SERVER, hosts=[host], days=DAYS)
        issued = certificates.read_authority(folder)
        (folder / f"{certificates.AUTHORITY}.key").unlink()
        return cls(issued, TLSFiles.of(folder, SERVER))

    def invitations(
        self, run: str, address: str, node_ids: Sequence[int], agents: int, patience: float
    ) -> dict[int, Invitation]:
        """One for every node, as yet without certificate."""
        authority = self.server.read()[0]
        return {
            node_id: Invitation(run, node_name(node_id), address, first, count, float(patience), authority)
            for node_id, (first, count) in zip(node_ids, split_agents(agents, len(node_ids)), strict=True)
        }

    def sign(self, request: bytes, name: str) -> bytes:
        """The certificate for a node's signing request, which must be for its own name."""
        asked = certificates.read_request(request)
        if asked.name != name:
            raise InputError(f"it asks for a certificate for '{asked.name}'.")
        return certificates.sign(self.issued, asked, days=DAYS)


async def answer(invitation: Invitation, settings: NodeSettings, keys: MutableMapping[str, bytes]) -> dict[str, Any]:
    """Take part in the run of an invitation until it is over; where it has no certificate yet, ask for one.

    ``keys`` is what the node keeps to itself: its private key, by run. The answer is all that it says through Flower.
    A run has one key: a slow node is invited twice, and with a new key for each neither certificate would ever fit.
    """
    key = keys.get(invitation.run)
    if key is not None and invitation.is_for(key):
        return await _accept(invitation, settings, key)
    keys.clear()
    keys[invitation.run], request = certificates.new_request(invitation.name, key)
    return {REQUEST: request}


async def _accept(invitation: Invitation, settings: NodeSettings, key: bytes) -> dict[str, Any]:
    first, agents = settings.share(invitation.first_agent, invitation.agents)
    node = Node(
        invitation.name,
        simulated_source(settings.problem, first + agents),
        first,
        agents,
        None if settings.state is None else Path(settings.state) / invitation.run,
        terms=NodeTerms(algorithm=settings.algorithm, send_trajectories=settings.send_trajectories),
    )
    with tempfile.TemporaryDirectory(prefix="fed-ucbvi-") as folder:
        tls_files = invitation.write_tls_files(Path(folder), key)
        await run_node(
            node,
            RemoteServer(invitation.address, tls_files),
            patience=invitation.patience,
            first_patience=JOIN_SECONDS,
            only_run=True,
        )
    return {"run": node.run, "first_agent": first, "agents": agents, "rounds": node.rounds}
