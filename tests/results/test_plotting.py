"""The picture of several runs: means with intervals, one curve for each group, in panels and facets."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from scipy import stats

from fed_ucbvi import FedUCBVI, InputError, Run, plot_runs, run, synthetic
from fed_ucbvi.charts.figures import Panels, figure_content
from fed_ucbvi.core.colours import BLUE
from fed_ucbvi.results.plotting import MAX_CURVES
from fed_ucbvi.results.statistics import INTERVAL_NAME
from picture_texts import badly_placed, texts_of

SLIPS = (0, 0.1, 0.2, 0.3, 0.4)


@pytest.fixture(scope="module")
def plain_run() -> Run:
    return run(FedUCBVI(nu=100), synthetic(agents=3), 400, seed=2)


@pytest.fixture(scope="module")
def several() -> list[Run]:
    """Four runs each of two groups."""
    worlds = [synthetic(agents=3, eps_p=eps_p) for eps_p in (0.0, 0.2)]
    return [run(FedUCBVI(nu=100), world, 300, seed=seed) for world in worlds for seed in range(4)]


def twins_of(one: Run, environments: list[dict[str, Any]]) -> list[Run]:
    """Copies of a run with other options of its environment."""
    about = one.about
    options = one.about.environment
    return [replace(one, about=replace(about, environment={**options, **new})) for new in environments]


@pytest.fixture(scope="module")
def grid_of_twins(plain_run: Run) -> list[Run]:
    """25 groups: five values of one option times five of another."""
    return twins_of(plain_run, [{"k": k, "slip": slip} for k in range(5) for slip in SLIPS])


def points(ax: Axes, number: int = 0) -> tuple[Any, Any]:
    line = ax.get_lines()[number]
    return np.asarray(line.get_xdata()), np.asarray(line.get_ydata())


def names(ax: Axes) -> list[str]:
    return ax.get_legend_handles_labels()[1]


def colours(ax: Axes) -> list[str]:
    return [to_hex(line.get_color()).upper() for line in ax.get_lines()]


def titles(panels: Panels) -> list[str]:
    return [ax.get_title("left") for ax in panels]


@pytest.mark.parametrize("group", [0, 1])
def test_a_curve_is_the_mean_regret_of_a_group(several: list[Run], group: int) -> None:
    x, mean = points(plot_runs(several)[0], group)
    members = several[4 * group : 4 * group + 4]
    np.testing.assert_allclose(mean, np.mean([one.regret_at(x) for one in members], axis=0))


@pytest.mark.parametrize("group", [0, 1])
def test_the_second_panel_has_the_mean_number_of_rounds(several: list[Run], group: int) -> None:
    x, mean = points(plot_runs(several)[1], group)
    members = several[4 * group : 4 * group + 4]
    np.testing.assert_allclose(mean, np.mean([one.rounds_at(x) for one in members], axis=0))


def test_a_band_is_the_interval_of_the_mean(several: list[Run]) -> None:
    ax = plot_runs(several[:4])[0]
    x, mean = points(ax)
    regrets = [one.regret_at(x)[-1] for one in several[:4]]
    factor = np.exp(stats.t.ppf(0.975, 3) * stats.sem(regrets) / mean[-1])
    corners = np.asarray(ax.collections[0].get_paths()[0].vertices)
    ends = sorted(set(corners[corners[:, 0] == x[-1], 1]))
    np.testing.assert_allclose([ends[0], ends[-1]], [mean[-1] / factor, mean[-1] * factor])


def test_the_heading_says_what_bands_are(several: list[Run]) -> None:
    assert INTERVAL_NAME in plot_runs(several).figure.get_suptitle()


def test_curves_are_named_by_the_settings_in_which_they_differ(several: list[Run]) -> None:
    assert names(plot_runs(several)[0]) == ["εₚ = 0", "εₚ = 0.2"]


def test_the_legend_has_every_name_once(several: list[Run]) -> None:
    assert texts_of(plot_runs(several).figure).count("εₚ = 0.2") == 1


def test_curves_of_one_algorithm_have_its_colour(several: list[Run]) -> None:
    assert colours(plot_runs(several)[0]) == [BLUE, BLUE]


def test_curves_of_one_algorithm_differ_in_dashes(several: list[Run]) -> None:
    assert [line.get_linestyle() for line in plot_runs(several)[0].get_lines()] == ["-", "--"]


@pytest.mark.parametrize("part", ["Fed-UCBVI on synthetic MDP", "M = 3", "T = 300", "4 runs"])
def test_the_heading_has_the_settings_that_all_runs_share(several: list[Run], part: str) -> None:
    assert part in plot_runs(several).figure.get_suptitle()


def test_the_heading_has_no_setting_in_which_runs_differ(several: list[Run]) -> None:
    assert "εₚ" not in plot_runs(several).figure.get_suptitle()


def test_runs_of_different_length_are_drawn_as_far_as_all_go(plain_run: Run) -> None:
    records = {name: column[:20] for name, column in plain_run.records.items()}
    shorter = replace(plain_run, records=records, complete=False)
    ax = plot_runs([plain_run, shorter])[0]
    assert points(ax)[0][-1] == shorter.episodes_played < plain_run.episodes_played
    assert ax.get_xlim()[1] == plain_run.episodes_played


def test_one_run_has_no_band(plain_run: Run) -> None:
    panels = plot_runs([plain_run])
    assert len(panels[0].collections) == 0
    assert "one run" in panels.figure.get_suptitle()


def test_no_run_is_refused() -> None:
    with pytest.raises(InputError, match="empty"):
        plot_runs([])


def test_a_run_without_a_round_is_refused(plain_run: Run) -> None:
    records = {name: column[:0] for name, column in plain_run.records.items()}
    with pytest.raises(InputError, match="before its first round"):
        plot_runs([replace(plain_run, records=records, complete=False)])


def test_axes_of_the_caller_are_returned(several: list[Run]) -> None:
    axes = Figure().subplots(2, 1)
    assert list(plot_runs(several, axes=axes)) == list(axes)


def test_axes_of_the_caller_get_a_legend(several: list[Run]) -> None:
    axes = Figure().subplots(2, 1)
    plot_runs(several, axes=axes)
    assert axes[0].get_legend() is not None


def test_too_few_axes_are_refused(several: list[Run]) -> None:
    with pytest.raises(InputError, match="axes must be 4 matplotlib axes"):
        plot_runs(several, facet="eps_p", axes=Figure().subplots(1, 2))


def test_texts_from_data_stay_texts(plain_run: Run) -> None:
    nasty = "<script>$\\bad{$</script>\x1b[31m"
    panels = plot_runs(twins_of(plain_run, [{"map": nasty}, {"map": "b"}]))
    svg = figure_content(panels.figure, "svg")
    assert len(set(names(panels[0]))) == 2
    assert b"<script>" not in svg
    assert b"\x1b" not in svg


def test_long_labels_do_not_overlap(plain_run: Run) -> None:
    panels = plot_runs(twins_of(plain_run, [{"some_option": f"{'long' * 5}{k}", "another": k} for k in range(3)]))
    assert badly_placed(panels.figure) == []


def test_long_labels_leave_room_for_the_curves(plain_run: Run) -> None:
    panels = plot_runs(twins_of(plain_run, [{"some_option": f"{'long' * 5}{k}", "another": k} for k in range(3)]))
    panels.figure.draw_without_rendering()
    assert all(ax.get_window_extent().height > 1.5 * panels.figure.dpi for ax in panels)


def test_many_curves_have_different_colours(plain_run: Run) -> None:
    many = plot_runs(twins_of(plain_run, [{"k": k} for k in range(MAX_CURVES)]))
    assert len(set(colours(many[0]))) == MAX_CURVES
    assert badly_placed(many.figure) == []


def test_more_curves_than_a_panel_can_show_are_refused_with_what_they_differ_in(plain_run: Run) -> None:
    many = twins_of(plain_run, [{"k": k} for k in range(MAX_CURVES + 1)])
    with pytest.raises(InputError, match=r"11 curves are too many for one panel: .* differ in k; draw fewer"):
        plot_runs(many)


def test_facets_with_too_many_curves_are_refused(plain_run: Run) -> None:
    many = twins_of(plain_run, [{"k": k} for k in range(MAX_CURVES + 1)])
    with pytest.raises(InputError, match=r"at most 12 facets with 10 curves each, here are 1 with up to 11"):
        plot_runs(many, facet="agents")


def test_many_groups_are_drawn_in_facets(grid_of_twins: list[Run]) -> None:
    panels = plot_runs(grid_of_twins)
    assert titles(panels) == [f"k = {k}" for k in range(5) for _ in ("regret", "rounds")]
    assert names(panels[0]) == [f"slip = {slip:g}" for slip in SLIPS]


def test_curves_in_a_facet_differ_in_colour_or_dash(grid_of_twins: list[Run]) -> None:
    lines = plot_runs(grid_of_twins)[0].get_lines()
    assert len({(line.get_color(), line.get_linestyle()) for line in lines}) == 5


def test_the_legend_of_facets_has_every_name_once(grid_of_twins: list[Run]) -> None:
    figure = plot_runs(grid_of_twins).figure
    assert texts_of(figure).count("slip = 0.3") == 1
    assert badly_placed(figure) == []


def test_facets_are_those_asked_for(grid_of_twins: list[Run]) -> None:
    panels = plot_runs(grid_of_twins, facet="slip")
    assert titles(panels)[::2] == [f"slip = {slip:g}" for slip in SLIPS]


def test_few_facets_have_a_row_for_each_measure(grid_of_twins: list[Run]) -> None:
    few = plot_runs([one for one in grid_of_twins if one.about.environment["k"] < 2], facet="k")
    drawn = [(ax.get_title("left"), ax.get_ylabel()[:6]) for ax in few]
    assert drawn == [(f"k = {k}", label) for label in ("Common", "Commun") for k in (0, 1)]


def test_own_labels_are_drawn(several: list[Run]) -> None:
    panels = plot_runs(several, labels={"\u03b5\u209a = 0.2": "unlike"})
    assert names(panels[0]) == ["\u03b5\u209a = 0", "unlike"]


def test_an_own_label_of_an_algorithm_is_in_the_heading(several: list[Run]) -> None:
    panels = plot_runs(several, labels={"fed-ucbvi": "ours"})
    assert panels.figure.get_suptitle().startswith("ours on synthetic MDP")


def test_own_colours_of_groups_are_drawn(several: list[Run]) -> None:
    panels = plot_runs(several, colours={"\u03b5\u209a = 0.2": "#123456"})
    assert colours(panels[0]) == [BLUE, "#123456"]


def test_own_colours_of_algorithms_are_drawn(several: list[Run]) -> None:
    panels = plot_runs(several, colours={"fed-ucbvi": "#654321"})
    assert colours(panels[0]) == ["#654321"] * 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"labels": {"fedq": "theirs"}}, r"unknown algorithm or group 'fedq'.*fed-ucbvi"),
        ({"colours": {"fedq": "#123456"}}, r"unknown algorithm or group 'fedq'.*fed-ucbvi"),
        ({"labels": {"\u03b5\u209a = 0": "x", "\u03b5\u209a = 0.2": "x"}}, "two of the given labels are the same"),
        ({"colours": {"fed-ucbvi": "red"}}, "must be written #RRGGBB, got 'red'"),
        ({"facet": "kk"}, "unknown setting 'kk'"),
        ({"size": (3,)}, "inches"),
        ({"size": (0.0, 3.0)}, "inches"),
    ],
)
def test_options_that_make_no_sense_are_refused(several: list[Run], options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        plot_runs(several, **options)


def test_a_wrong_suffix_is_refused(several: list[Run], tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"must end in \.png, \.svg or \.pdf"):
        plot_runs(several, tmp_path / "runs.jpg")


def test_a_logarithmic_axis_shows_positive_numbers_only(several: list[Run]) -> None:
    for ax in plot_runs(several, y_log=True):
        assert ax.get_yscale() == "log"
        assert all((np.asarray(line.get_ydata()) > 0).all() for line in ax.get_lines())


def test_an_axis_without_positive_numbers_stays_linear(several: list[Run]) -> None:
    silent = [replace(one, records={**one.records, "requests": 0 * one.records["requests"]}) for one in several]
    assert [ax.get_yscale() for ax in plot_runs(silent, y_log=True)] == ["log", "linear"]


@pytest.mark.parametrize("size", [(6.5, 3.0), (10.0, 4.0), (3.5, 6.0)])
def test_a_picture_is_as_large_as_asked_for(several: list[Run], size: tuple[float, float]) -> None:
    figure = plot_runs(several, size=size).figure
    assert tuple(figure.get_size_inches()) == size
    assert badly_placed(figure) == []


def test_runs_of_unknown_regret_are_drawn_by_their_reward(plain_run: Run) -> None:
    records = {**plain_run.records, "regret": np.full_like(plain_run.records["regret"], np.nan)}
    ax = plot_runs([replace(plain_run, records=records)])[0]
    assert "reward" in ax.get_ylabel().lower()
    assert points(ax)[1][-1] == pytest.approx(plain_run.average_reward)
