"""Signatures of nodes for secure sums, made without any run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from fed_ucbvi.network.certificates import TLSFiles
from fed_ucbvi.network.messages import RosterEntry
from fed_ucbvi.network.roster import Credentials

NAMES = ("node-0", "node-1", "node-2")
DIGEST = b"d" * 32
"""Digest of a welcome and a broadcast."""
RUN = "the-run"
AGENTS = 4


class SignedEntry(NamedTuple):
    """Signed part of a node, and the private part of its one-time key."""

    credentials: Credentials
    entry: RosterEntry
    key: bytes


def credentials_of(folder: Path, name: str, first_agent: int, agents: int = 1, run: str = RUN) -> Credentials:
    """Credentials of a node whose certificate is in a folder."""
    return Credentials(name, first_agent, agents, run, TLSFiles.of(folder, name))


def sign_all(
    folder: Path,
    *,
    run: str = RUN,
    number: int = 5,
    digest: bytes = DIGEST,
    episodes: Sequence[int] = (2, 2, 2),
    rewards: Sequence[bool] = (True, True, True),
) -> list[SignedEntry]:
    """Three nodes, of four agents, and what they have signed for a round."""
    made = []
    for name, first, agents, played, tells in zip(NAMES, (0, 1, 3), (1, 2, 1), episodes, rewards, strict=True):
        own = credentials_of(folder, name, first, agents, run)
        entry, key = own.sign(number, digest, played, rewards=tells)
        made.append(SignedEntry(own, entry, key))
    return made
