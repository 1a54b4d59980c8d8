"""Flags of the rules of a federation and of the terms of a node."""

from __future__ import annotations

from fed_ucbvi.command_line.flags import (
    ALGORITHM,
    ALGORITHM_METAVAR,
    OUTPUT,
    Flag,
    FlagTable,
    algorithm_names,
    names_in,
)

NETWORK = "The network"
FAULTS = "When things go wrong"

RULE_FLAGS: FlagTable = {
    "collection": Flag(metavar="HOW", panel=NETWORK),
    "nodes": Flag(metavar="A,B,...", panel=NETWORK, read=names_in),
    "secure_sums": Flag(panel=NETWORK),
    "least_episodes": Flag(metavar="N", panel=NETWORK),
    "least_members": Flag(metavar="N", panel=NETWORK),
    "deadline": Flag(metavar="SECONDS", panel=FAULTS),
    "patience": Flag(metavar="SECONDS", panel=FAULTS),
    "gathering": Flag(metavar="SECONDS", panel=FAULTS),
    "quorum": Flag(metavar="K", panel=FAULTS, default="all nodes, and a violation stops the run"),
    "wait": Flag(metavar="SECONDS", panel=FAULTS),
}
"""Flags of :class:`~fed_ucbvi.network.federation_spec.FederationRules`."""

TERM_FLAGS: FlagTable = {
    "algorithm": Flag(
        metavar=ALGORITHM_METAVAR,
        panel=ALGORITHM,
        default="any that is registered",
        names=algorithm_names,
    ),
    "send_trajectories": Flag(panel=OUTPUT),
    "require_secure_sums": Flag(panel=OUTPUT),
    "least_episodes": Flag(metavar="N", panel=OUTPUT),
    "least_members": Flag(metavar="N", panel=OUTPUT),
    "no_rewards": Flag(panel=OUTPUT),
}
"""Flags of :class:`~fed_ucbvi.network.node_terms.NodeTerms`."""
