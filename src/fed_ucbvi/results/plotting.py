"""Pictures of one run, and of several runs of the same thing."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fed_ucbvi.errors import InputError
from fed_ucbvi.results.grid import draw_policy
from fed_ucbvi.results.panels import draw_lengths, draw_means, draw_regret, draw_rounds, mean_reward
from fed_ucbvi.results.run import Run
from fed_ucbvi.results.settings import LETTERS, Settings, group_runs, label, labels, setting_text, settings_of, shared
from fed_ucbvi.results.statistics import INTERVAL_NAME
from fed_ucbvi.results.style import SETTINGS, check_picture, number, save_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LETTER = 0.057
"""Width of a letter of a label, in inches, about."""
LINE = 0.16
"""Height of a label, in inches."""
SHORT_NAME = 14
"""Letters of a label that fit beside a panel without making it narrow."""
EPS_P = r"$\varepsilon_p$"


def plot_run(run: Run, path: str | Path | None = None, *, step: int | None = None) -> Figure:
    """Regret, communication, round lengths and (on a grid) the recommended policy of one run.

    Args:
        run: a run, finished or interrupted.
        path: where to write the picture, ``.png`` or ``.pdf``; nowhere if None.
        step: the step (from 0) whose policy is drawn; by default each square shows the first step at which it can
            be reached.

    Returns:
        The figure, which belongs to no global state.
    """
    import matplotlib

    from fed_ucbvi.results.picture import Picture

    if path is not None:
        check_picture(path)
    layout = run.about.layout
    with matplotlib.rc_context(SETTINGS):
        if layout is None:
            figure = Picture(10.0, 3.2)
            panels = figure.subplot_mosaic([["regret", "rounds", "lengths"]])
        else:
            figure = Picture(7.4, 5.6)
            panels = figure.subplot_mosaic([["regret", "policy"], ["rounds", "lengths"]])
            draw_policy(panels["policy"], run, layout, step)
        draw_regret(panels["regret"], run)
        draw_rounds(panels["rounds"], run)
        draw_lengths(panels["lengths"], run)
        state = "" if run.complete else f"\ninterrupted after {run.episodes_played:,} episodes"
        settings = settings_of(run.about) | {"eps_p": run.about.eps_p}
        figure.suptitle(f"{_title(settings)}, seed {run.about.seed}{state}", fontsize=10, x=0.012, ha="left")
    if path is not None:
        save_figure(figure, path)
    return figure


def plot_runs(runs: Iterable[Run], path: str | Path | None = None) -> Figure:
    """Mean regret and communication rounds over runs that differ by seeds alone, with 95 % intervals of the mean.

    Runs are put together by all that is on record but seeds and driver. There is one curve for each group, in its
    algorithm's colour, labelled with what sets it apart. Where regret is unknown, the reward is drawn.

    Args:
        runs: runs with at least one round each.
        path: where to write the picture, ``.png`` or ``.pdf``; nowhere if None.
    """
    import matplotlib

    from fed_ucbvi.results.picture import Picture

    if path is not None:
        check_picture(path)
    groups = group_runs(runs)
    if any(run.episodes_played == 0 for group in groups for run in group):
        raise InputError("cannot draw a run that was interrupted before its first round.")
    settings = [settings_of(group[0].about) for group in groups]
    names = labels(settings, _written)
    known = not any(math.isnan(run.common_regret) for group in groups for run in group)
    with matplotlib.rc_context(SETTINGS):
        width = 7.4 + 2 * LETTER * max(0, max(map(len, names)) - SHORT_NAME)
        figure = Picture(width, max(3.1, 0.9 + LINE * len(groups)))
        left, right = figure.subplots(1, 2)
        left.set_title("Regret" if known else "Reward (regret unknown)")
        left.set_ylabel("Common regret (units of reward)" if known else "Mean reward an episode so far")
        right.set_title("Communication")
        right.set_ylabel("Communication rounds so far")
        draw_means(left, groups, names, (lambda run, points: run.regret_at(points)) if known else mean_reward)
        draw_means(right, groups, names, lambda run, points: run.rounds_at(points))
        sizes = sorted({len(group) for group in groups})
        if sizes == [1]:
            what = "one run each" if len(groups) > 1 else "one run"
        else:
            count = f"{sizes[0]}" if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
            what = f"mean of {count} runs; band: {INTERVAL_NAME}"
        figure.suptitle(f"{_title(shared(settings))}\n{what}".strip(), fontsize=10, x=0.012, ha="left")
    if path is not None:
        save_figure(figure, path)
    return figure


def _written(name: str, value: Any) -> str:
    """One setting as pictures write it."""
    if name == "episodes":
        return f"$T$ = {number(value)}"
    text = setting_text(name, value).replace("$", r"\$")
    symbol, _, rest = text.partition(" = ")
    return f"{EPS_P if name == 'eps_p' else f'${symbol}$' if name in LETTERS else symbol} = {rest}"


def _title(settings: Settings) -> str:
    who = label({name: settings[name] for name in ("algorithm", "environment") if name in settings})
    sizes = ("agents", "episodes", "horizon", "eps_p")
    numbers = label({name: settings[name] for name in sizes if name in settings}, _written)
    return ": ".join(part for part in (who, numbers) if part)
