"""What a node is told through Flower: where the server is, which agents it hosts, and the TLS files to get in with.

The authority lives as long as it takes to sign; nobody can make certificates for the run afterwards.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.version import PROGRAM
from fed_ucbvi.network.certificates import make_certificates
from fed_ucbvi.network.local import split_agents
from fed_ucbvi.network.transport import TLSFiles

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

    def write_tls_files(self, folder: Path) -> TLSFiles:
        """The certificates as files in ``folder``, readable by their owner alone."""
        tls_files = TLSFiles(folder / "ca.crt", folder / "node.crt", folder / "node.key")
        contents = (self.authority, self.certificate, self.key)
        for path, content in zip((tls_files.authority, tls_files.certificate, tls_files.key), contents, strict=True):
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(content)
        return tls_files


def make_tls_files(folder: Path, host: str, names: Sequence[str]) -> TLSFiles:
    """Certificates for a server at ``host`` and for its nodes; gives the server's."""
    make_certificates(folder, server=SERVER, hosts=[host], nodes=names, days=DAYS)
    (folder / "ca.key").unlink()
    return TLSFiles.of(folder, SERVER)


def write_invitations(
    folder: Path, run: str, address: str, node_ids: Sequence[int], agents: int, patience: float
) -> dict[int, Invitation]:
    """One invitation for every node, with the TLS files that :func:`make_tls_files` put into ``folder``."""
    shares = split_agents(agents, len(node_ids))
    invitations = {}
    for node_id, (first, count) in zip(node_ids, shares, strict=True):
        name = node_name(node_id)
        tls_files = TLSFiles.of(folder, name).read()
        invitations[node_id] = Invitation(run, name, address, first, count, float(patience), *tls_files)
    return invitations
