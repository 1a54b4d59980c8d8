"""Alone or together: what a node's agents should use, at the end of ``fed-ucbvi join --advice DIR``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.files import new_file

if TYPE_CHECKING:
    from fed_ucbvi.network.node import Node

FILE = "advice.json"


def advise_node(node: Node, folder: Path) -> dict[str, Any]:
    """Write ``advice.json`` and, for each agent, the policy that it should use; the figures, in the agents' units."""
    from fed_ucbvi.analysis.alone_or_together import TOGETHER, advise

    if node.policy is None:
        raise InputError("the server has sent no policy, so there is nothing to compare with.")
    folder.mkdir(parents=True, exist_ok=True)
    units, shared = node.units, node.policy
    agents = []
    for i in range(node.agents):
        number = node.first_agent + i
        advice = advise(node.own_counts(i), shared.table, agent=number)
        file = folder / f"agent-{number}.json"
        own = replace(shared, table=advice.policy, value=float("nan"), signature="", certificate="")
        (shared if advice.use == TOGETHER else own).save(file)
        agents.append({**advice.in_units(units), "file": str(file)})
    found = {"units": {"offset": units.offset, "scale": units.scale}, "agents": agents}
    with new_file(folder / FILE) as draft:
        draft.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return found


def advice_lines(found: dict[str, Any]) -> Iterator[str]:
    """The advice in words, a line for each agent."""
    for one in found["agents"]:
        shared = one["together"]
        gains = ", ".join(
            f"{name} {one[name]['gain']:+.4g} ({one[name]['low']:+.4g} to {one[name]['high']:+.4g})"
            for name in ("alone", "blend")
        )
        yield (
            f"agent {one['agent']}: use {one['use']} ({one['file']}); the shared policy pays "
            f"{shared['value']:.4g} \u00b1 {shared['standard_error']:.2g} an episode, {gains}"
        )
