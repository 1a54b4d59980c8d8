"""What a node is told through Flower: where the server is, which agents it hosts, and the papers to get in with.

The authority lives as long as it takes to sign; nobody can make certificates for the run afterwards.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

from fed_ucbvi._version import PROGRAM
from fed_ucbvi.deployment.certificates import make_certificates
from fed_ucbvi.deployment.local import split_agents
from fed_ucbvi.deployment.transport import Papers
from fed_ucbvi.errors import InputError

RECORD = PROGRAM
"""The one record of a message, both ways."""
SERVER = "server"
DAYS = 30.0
"""How long a run's certificates are good: a node can come back so long."""

Value = str | bytes | int | float


def node_name(node_id: int) -> str:
    """The name a SuperNode takes part under.

    >>> node_name(17)
    'node-17'
    """
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
    certificate: bytes = field(repr=False)
    key: bytes = field(repr=False)

    def record(self) -> dict[str, Value]:
        """As plain values, which Flower can carry."""
        return asdict(self)

    @classmethod
    def of(cls, record: Mapping[str, object]) -> Invitation:
        """Read back what :meth:`record` gave."""
        kinds = {"str": str, "int": int, "float": float, "bytes": bytes}
        values = {}
        for part in fields(cls):
            value = record.get(part.name)
            if not isinstance(value, kinds[str(part.type)]):
                raise InputError(f"the server's invitation has no {part.name}; install the same version on both.")
            values[part.name] = value
        return cls(**values)  # type: ignore[arg-type]

    def write_papers(self, folder: Path) -> Papers:
        """The certificates as files in ``folder``, readable by their owner alone."""
        papers = Papers(folder / "ca.crt", folder / "node.crt", folder / "node.key")
        contents = (self.authority, self.certificate, self.key)
        for path, content in zip((papers.authority, papers.certificate, papers.key), contents, strict=True):
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(content)
        return papers


def make_papers(folder: Path, host: str, names: Sequence[str]) -> Papers:
    """Certificates for a server at ``host`` and for its nodes; gives the server's."""
    make_certificates(folder, server=SERVER, hosts=[host], nodes=names, days=DAYS)
    (folder / "ca.key").unlink()
    return Papers.of(folder, SERVER)


def write_invitations(
    folder: Path, run: str, address: str, node_ids: Sequence[int], agents: int, patience: float
) -> dict[int, Invitation]:
    """One invitation for every node, with the papers that :func:`make_papers` put into ``folder``."""
    shares = split_agents(agents, len(node_ids))
    invitations = {}
    for node_id, (first, count) in zip(node_ids, shares, strict=True):
        name = node_name(node_id)
        papers = Papers.of(folder, name).read()
        invitations[node_id] = Invitation(run, name, address, first, count, float(patience), *papers)
    return invitations
