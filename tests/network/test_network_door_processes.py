"""Doors of a real server: what a revoked or vague certificate can do to its memory, and that it opens nothing."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

from enemies import SECONDS, outcome_of
from fed_ucbvi.network.certificates import TLSFiles, make_certificates, revoke
from fed_ucbvi.network.messages import PART_BYTES, Part, encode
from fed_ucbvi.network.transport import RemoteServer
from federation_processes import SERVER, Party, Processes
from vague_certificates import without_usage

LARGE = ("--sizes", "500,6,10", "--agents", "200")
"""A run whose reports may be large: 200 agents' are 38 MB."""
ENDLESS = [encode(Part(b"x" * PART_BYTES, more=True))] * 200
"""13 MB that seem to be the beginning of one message."""
MOST_MEGABYTES = 60
"""By which the server may grow: of 16 streams at most 1 MiB each waits unread, and gRPC takes some for itself."""


def megabytes(party: Party) -> int:
    """The most memory that a process has had."""
    status = Path(f"/proc/{party.process.pid}/status").read_text(encoding="ascii")
    found = re.search(r"VmHWM:\s+([0-9]+) kB", status)
    assert found
    return int(found[1]) // 1024


def test_revoked_and_vague_certificates_open_nothing_and_fill_no_memory(tmp_path: Path) -> None:
    """Eight streams of a revoked certificate, and eight of a good one that never says hello, send all they can."""
    certs, vague = tmp_path / "certs", tmp_path / "vague"
    make_certificates(certs, server=SERVER, nodes=["node-0", "node-1"])
    revoke(certs, ["node-1"])
    vague.mkdir()
    without_usage(certs, "vague", "node-0")
    for own, theirs in (("ca.crt", "ca.crt"), ("vague.crt", "node-0.crt"), ("vague.key", "node-0.key")):
        (vague / theirs).write_bytes((certs / own).read_bytes())

    async def flood(address: str, name: str) -> list[str]:
        streams = (outcome_of(RemoteServer(address, TLSFiles.of(certs, name)), ENDLESS) for _ in range(8))
        return await asyncio.wait_for(asyncio.gather(*streams), SECONDS)

    with Processes(tmp_path, certs=certs, problem=LARGE) as processes:
        processes.start(SERVER)
        server, address = processes.parties[SERVER], f"127.0.0.1:{processes.port}"
        refused = Party("join", address, "--certs", str(vague), "--name", "node-0", "--patience", "5")
        before = megabytes(server)
        asyncio.run(flood(address, "node-1"))
        asyncio.run(flood(address, "node-0"))
        assert megabytes(server) - before < MOST_MEGABYTES
        processes.hear(SERVER, "rejected: the certificate of 'node-1' has been revoked")
        processes.hear(SERVER, "rejected: it sent a message of [0-9]+ bytes or more, above the limit of 65536")
        assert refused.end() == 2
        told = "the certificate is not one for nodes (its extended key usage lacks clientAuth)"
        assert told in refused.words()
        assert "joined" not in server.words()
        assert server.process.poll() is None
