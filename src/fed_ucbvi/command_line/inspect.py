"""``fed-ucbvi inspect``: how different the agents of an environment are."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fed_ucbvi.command_line.shared_options import (
    PROBLEM,
    Agents,
    EnvironmentName,
    EnvOption,
    EnvSeed,
    Json,
)
from fed_ucbvi.core import defaults

if TYPE_CHECKING:
    from fed_ucbvi.core.bracket import Bracket

USUAL_EPS_P = 0.1


def inspect(
    env: EnvironmentName = defaults.ENVIRONMENT,
    agents: Agents = None,
    eps_p: Annotated[
        float | None,
        typer.Option(
            metavar="X",
            help="Heterogeneity, from 0 to below 1.",
            show_default=f"{USUAL_EPS_P}, where the environment takes it",
            rich_help_panel=PROBLEM,
        ),
    ] = None,
    env_seed: EnvSeed = 0,
    env_option: EnvOption = None,
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw it: .png, .svg, .pdf or .html; replaced if it exists."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Measure the heterogeneity of an environment's agents and what sharing one policy costs them."""
    from fed_ucbvi.analysis.inspection import inspect_federation
    from fed_ucbvi.charts.picture import check_picture
    from fed_ucbvi.command_line.outputs import print_json, print_rows
    from fed_ucbvi.command_line.parameters import build_environment
    from fed_ucbvi.engine.progress import progress_bar
    from fed_ucbvi.environments import find_environment

    if plot is not None:
        check_picture(plot)
    if eps_p is None:
        eps_p = USUAL_EPS_P if find_environment(env).accepts("eps_p") else 0.0
    federation = build_environment(env, agents, eps_p, env_seed, env_option or ())
    with progress_bar("agents") as report:
        found = inspect_federation(federation, report=report)
    figures = found.summary()
    if plot is not None:
        from fed_ucbvi.analysis.heterogeneity_picture import plot_inspection

        plot_inspection(found, plot)
        figures["picture"] = str(plot)
    if as_json:
        print_json(figures)
        return
    gaps, where = figures["l1_between_agents"], figures["eps_p_least_at"]
    rows = [
        ("eps_p", f"{found.eps_p:.4g} by construction; {found.eps_p_least:.4g} is the least that would do"),
        ("found at", f"step {where['step']}, state {where['state']}, action {where['action']} (from 0)"),
        ("eps_r", f"{found.eps_r:.4g}"),
        ("between agents", f"L1 at most {gaps['worst']:.4g}, on average at most {gaps['largest_mean']:.4g}"),
        ("to the common kernel", f"L1 at most {figures['l1_to_common']:.4g}, total variation half of that"),
        ("own optimum", f"{found.own.mean():.4f}, mean over agents of their own policies' values"),
        ("one shared policy", f"{found.shared.mean():.4f}, mean over agents with the common MDP's optimal policy"),
        ("price of sharing", f"{_price(found.price)}: own optima less the best policy that all can share"),
        *([("picture", str(plot))] if plot is not None else []),
    ]
    sizes = f"S = {figures['states']:,}, A = {figures['actions']:,}, H = {figures['horizon']:,}"
    print_rows(f"{figures['env']}: {figures['agents']:,} agents, {sizes}", rows)


def _price(price: Bracket) -> str:
    return f"{price.lower:.4g} (exact)" if price.exact else f"between {price.lower:.4g} and {price.upper:.4g}"
