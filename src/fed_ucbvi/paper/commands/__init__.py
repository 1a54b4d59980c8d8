"""Commands of the paper: its experiments, its theory, and reports on runs.

Each of them is registered as an entry point of the group ``fed_ucbvi.commands`` in ``pyproject.toml``.
"""

from __future__ import annotations

from fed_ucbvi.command_line.commands import PAPER, Command

COMPARE = Command(
    name="compare",
    summary=(
        "Run every algorithm at the paper's settings, or in an environment, and tabulate regret, rounds and bytes."
    ),
    module="fed_ucbvi.paper.commands.comparing",
    function="compare",
    heading=PAPER,
    examples=("compare --seeds 3 --out comparison.md",),
)
REPRODUCE = Command(
    name="reproduce",
    summary="Run the paper's experiments and what they left open, judge the paper's claims, write a report.",
    module="fed_ucbvi.paper.commands.reproducing",
    function="reproduce",
    heading=PAPER,
    examples=(
        "reproduce --out results",
        "reproduce --quick --out quick",
    ),
)
REPORT = Command(
    name="report",
    summary="Write figures, tables and verdicts of a sweep or a reproduction as one page and as files.",
    module="fed_ucbvi.paper.commands.reporting",
    function="report",
    heading=PAPER,
    examples=("report sweep",),
)
LEADERBOARD = Command(
    name="leaderboard",
    summary=(
        "Every algorithm on every environment: regret, rounds, bytes and what was learnt, from a table of "
        "stored runs."
    ),
    module="fed_ucbvi.paper.commands.comparing",
    function="leaderboard",
    heading=PAPER,
    examples=(
        "leaderboard",
        "leaderboard --algorithm mine:Mine --store my-runs --out my-board",
        "leaderboard --again --store runs --out board",
    ),
)
PLAN = Command(
    name="plan",
    summary="Print what the theory guarantees at a setting: rounds, bytes, regret, and whether to federate.",
    module="fed_ucbvi.paper.commands.planning",
    function="plan",
    heading=PAPER,
    examples=("plan --env gridworld --eps-p 0.001",),
)
INSPECT = Command(
    name="inspect",
    summary="Measure the heterogeneity of an environment's agents and what sharing one policy costs them.",
    module="fed_ucbvi.paper.commands.inspecting",
    function="inspect",
    heading=PAPER,
    examples=("inspect --env riverswim --agents 5 --eps-p 0.1 --plot agents.png",),
)
