"""Pictures of one run, and of several runs of the same thing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fed_ucbvi.errors import InputError
from fed_ucbvi.results.about import About
from fed_ucbvi.results.grid import draw_policy
from fed_ucbvi.results.panels import draw_lengths, draw_means, draw_regret, draw_rounds
from fed_ucbvi.results.run import Run
from fed_ucbvi.results.style import SETTINGS, check_picture, label_of, number, save_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EPS_P = r"$\varepsilon_p$"


def plot_run(run: Run, path: Path | None = None, *, step: int | None = None) -> Figure:
    """Regret, communication, round lengths and (on a grid) the learnt policy of one run.

    Args:
        run: a run, finished or interrupted.
        path: where to write the picture, ``.png`` or ``.pdf``; nowhere if None.
        step: the step (from 0) whose policy is drawn; by default each square shows the first step at which it can
            be reached.

    Returns:
        The figure, which belongs to no global state.
    """
    import matplotlib

    if path is not None:
        check_picture(path)
    layout = run.about.layout
    with matplotlib.rc_context(SETTINGS):
        if layout is None:
            figure = new_figure(10.0, 3.2)
            panels = figure.subplot_mosaic([["regret", "rounds", "lengths"]])
        else:
            figure = new_figure(7.4, 5.6)
            panels = figure.subplot_mosaic([["regret", "policy"], ["rounds", "lengths"]])
            draw_policy(panels["policy"], run, layout, step)
        draw_regret(panels["regret"], run)
        draw_rounds(panels["rounds"], run)
        draw_lengths(panels["lengths"], run)
        state = "" if run.complete else f"\ninterrupted after {run.episodes_played:,} episodes"
        facts = _facts(run.about)
        figure.suptitle(f"{_title(facts)}, seed {run.about.seed}{state}", fontsize=10, x=0.012, ha="left")
    if path is not None:
        save_figure(figure, path)
    return figure


def plot_runs(runs: Sequence[Run], path: Path | None = None) -> Figure:
    """Mean regret and communication rounds over runs that differ by seed alone, with 95 % intervals.

    Runs are put together by all that is on record but seeds and driver; there is one curve for each lot, in its
    algorithm's colour, labelled with what sets it apart. Bands are Student's intervals of the mean.
    """
    import matplotlib

    if path is not None:
        check_picture(path)
    lots = _lots(runs)
    all_facts = [_facts(lot[0].about) for lot in lots]
    shared = {key: text for key, text in all_facts[0].items() if all(f.get(key) == text for f in all_facts)}
    everywhere = set(all_facts[0]).intersection(*all_facts[1:])
    names = [", ".join(facts[key] for key in facts if key in everywhere and key not in shared) for facts in all_facts]
    with matplotlib.rc_context(SETTINGS):
        figure = new_figure(7.4, 3.1)
        left, right = figure.subplots(1, 2)
        left.set_title("Regret")
        left.set_ylabel("Common regret (units of reward)")
        right.set_title("Communication")
        right.set_ylabel("Communication rounds so far")
        draw_means(left, lots, names, lambda run, points: run.regret_at(points))
        draw_means(right, lots, names, lambda run, points: run.rounds_at(points))
        sizes = sorted({len(lot) for lot in lots})
        if sizes == [1]:
            what = "one run each" if len(lots) > 1 else "one run"
        else:
            count = f"{sizes[0]}" if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
            what = f"mean of {count} runs and its 95 % interval"
        figure.suptitle(f"{_title(shared)}\n{what}", fontsize=10, x=0.012, ha="left")
    if path is not None:
        save_figure(figure, path)
    return figure


def new_figure(width: float, height: float) -> Figure:
    """A figure of so many inches that belongs to no global state."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _facts(about: About) -> dict[str, str]:
    """What is on record about a run but seeds and driver, as it is written in titles and labels."""
    environment = {
        key: value
        for key, value in about.environment.items()
        if key not in ("name", "agents", "eps_p", "horizon", "seed")
    }
    return {
        "algorithm": label_of(about.algorithm),
        "environment": label_of(str(about.environment.get("name", "custom"))),
        "agents": f"$M$ = {about.agents:,}",
        "episodes": f"$T$ = {number(about.episodes)}",
        "horizon": f"$H$ = {about.horizon:,}",
        "eps_p": f"{EPS_P} unknown" if math.isnan(about.eps_p) else f"{EPS_P} = {about.eps_p:g}",
        **{f"environment.{key}": f"{key} = {value}" for key, value in environment.items()},
        **{f"algorithm.{key}": f"{key} = {value}" for key, value in about.parameters.items()},
    }


def _title(facts: dict[str, str]) -> str:
    who = " on ".join(facts[key] for key in ("algorithm", "environment") if key in facts)
    numbers = ", ".join(facts[key] for key in ("agents", "episodes", "horizon", "eps_p") if key in facts)
    return ": ".join(part for part in (who, numbers) if part)


def _lots(runs: Sequence[Run]) -> list[list[Run]]:
    """Runs by all but seeds and driver, in the order given."""
    if len(runs) == 0:
        raise InputError("there is nothing to draw: the list of runs is empty.")
    lots: dict[str, list[Run]] = {}
    for run in runs:
        if run.episodes_played == 0:
            raise InputError("cannot draw a run that was interrupted before its first round.")
        lots.setdefault(repr(_facts(run.about)), []).append(run)
    return list(lots.values())
