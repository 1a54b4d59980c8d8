"""``fed-ucbvi inspect``: how the agents of an environment differ, and what that costs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import fed_ucbvi
from fed_ucbvi.command_line.flags import OUTPUT
from fed_ucbvi.command_line.options import JSON, fields, option
from fed_ucbvi.command_line.outputs import print_table
from fed_ucbvi.core import defaults
from fed_ucbvi.specifications.problem import ProblemSpec

DEFAULT_EPS_P = 0.1


def inspect(
    problem: ProblemSpec = fields(
        "environment agents eps_p env_seed environment_options",
        eps_p={"default": f"{DEFAULT_EPS_P}, where the environment has it"},
    ),
    plot: Path | None = option(
        None,
        "FILE",
        "Draw it: .png, .svg or .pdf; replaced if it exists.",
        panel=OUTPUT,
    ),
    as_json: bool = JSON,
) -> None:
    """Measure the heterogeneity of an environment's agents and what sharing one policy costs them."""
    from fed_ucbvi.charts.picture_files import check_picture
    from fed_ucbvi.engine.progress import progress_bar
    from fed_ucbvi.environments import find_environment

    if plot is not None:
        check_picture(plot)
    if problem.eps_p is None and find_environment(problem.environment or defaults.ENVIRONMENT).accepts("eps_p"):
        problem = replace(problem, eps_p=DEFAULT_EPS_P)
    federation = problem.make_federation()
    with progress_bar("agents") as report:
        found = fed_ucbvi.inspect_federation(federation, report=report)
    figures = found.summary()
    if plot is not None:
        from fed_ucbvi.paper.inspection_picture import plot_inspection

        plot_inspection(found, plot)
        figures["picture"] = str(plot)
    gaps = figures["l1_between_agents"]
    where = figures["eps_p_least_at"]
    price = found.price
    cost = f"{price.lower:.4g} (exact)" if price.exact else f"between {price.lower:.4g} and {price.upper:.4g}"
    rows = [
        ("eps_p", f"{found.eps_p:.4g} by construction; {found.eps_p_least:.4g} is the least that would do"),
        ("found at", f"step {where['step']}, state {where['state']}, action {where['action']} (from 0)"),
        ("eps_r", f"{found.eps_r:.4g} of the range of a reward"),
        ("between agents", f"L1 at most {gaps['worst']:.4g}, on average at most {gaps['largest_mean']:.4g}"),
        ("to the common kernel", f"L1 at most {figures['l1_to_common']:.4g}, total variation half of that"),
        ("own optimum", f"{found.own.mean():.4f}, mean over agents of their own policies' values"),
        ("one shared policy", f"{found.shared.mean():.4f}, mean over agents with the common MDP's optimal policy"),
        ("price of sharing", f"{cost}: own optima less the best policy that all can share"),
    ]
    if plot is not None:
        rows.append(("picture", str(plot)))
    sizes = "S = {states:,}, A = {actions:,}, H = {horizon:,}".format_map(figures)
    print_table(as_json, figures, f"{figures['env']}: {figures['agents']:,} agents, {sizes}", rows)
