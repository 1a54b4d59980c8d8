"""The terms on which a node takes part in a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fed_ucbvi.core.parameters import Bounds, Help, Size
from fed_ucbvi.network.federation_spec import MIN_NODES
from fed_ucbvi.specifications.fields import check_fields


@dataclass(frozen=True, kw_only=True)
class NodeTerms:
    """The terms on which a node takes part in a run."""

    algorithm: Annotated[
        str | None,
        Help("Take part in runs of this algorithm only; one that is not registered must be named."),
    ] = None
    send_trajectories: Annotated[bool, Help("Agree to algorithms that send trajectories.")] = False
    require_secure_sums: Annotated[bool, Help("Take part only where the server learns sums over nodes.")] = False
    least_episodes: Annotated[
        Size,
        Help("With secure sums: only if nodes with fewer episodes of a round do not count as contributors."),
    ] = 1
    least_members: Annotated[
        int,
        Bounds(MIN_NODES),
        Help("With secure sums: only in sums of so many contributors; 3 and those that may be the server's."),
    ] = MIN_NODES
    no_rewards: Annotated[
        bool,
        Help("Do not report the rewards of every round; where episodes began is reported in any case."),
    ] = False

    def __post_init__(self) -> None:
        check_fields(self)
