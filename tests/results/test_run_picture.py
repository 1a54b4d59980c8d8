"""The picture of one run: its curves, rounds and policy are those of the run."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.quiver import Quiver

from fed_ucbvi import Caution, FedUCBVI, InputError, Run, gridworld, run, synthetic
from fed_ucbvi.charts.figures import Panels
from fed_ucbvi.results import run_picture
from fed_ucbvi.results.grid import first_steps, policy_arrows
from fed_ucbvi.results.grid_picture import plot_policy
from fed_ucbvi.results.picture_texts import LOG_FROM
from fed_ucbvi.results.run_data import learning_curve
from fed_ucbvi.results.run_picture import LEARNING, plot_run
from fed_ucbvi.results.statistics import INTERVAL_NAME
from picture_texts import badly_placed, texts_of


@pytest.fixture(scope="module")
def grid_run() -> Run:
    return run(FedUCBVI(nu=60), gridworld(agents=4, eps_p=0.1), 2000, seed=1)


@pytest.fixture(scope="module")
def plain_run() -> Run:
    return run(FedUCBVI(nu=100), synthetic(agents=3), 400, seed=2)


@pytest.fixture(scope="module")
def large_run() -> Run:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Caution)
        return run(FedUCBVI(nu=10), gridworld(agents=2, rows=7, columns=20, horizon=30), 20)


@pytest.fixture(scope="module")
def picture(grid_run: Run) -> Panels:
    return plot_run(grid_run)


def panel(panels: Panels, title: str) -> Axes:
    (found,) = [ax for ax in panels if ax.get_title("left").startswith(title)]
    return found


def points(ax: Axes, number: int = 0) -> tuple[Any, Any]:
    line = ax.get_lines()[number]
    return np.asarray(line.get_xdata()), np.asarray(line.get_ydata())


def test_the_regret_drawn_is_that_of_the_run(grid_run: Run, picture: Panels) -> None:
    x, y = points(panel(picture, "Regret"))
    np.testing.assert_array_equal(y, grid_run.regret_at(x))


def test_the_curve_of_regret_goes_from_the_first_episode_to_the_last(grid_run: Run, picture: Panels) -> None:
    x, y = points(panel(picture, "Regret"))
    assert (x[0], x[-1], y[-1]) == (1, grid_run.episodes_played, grid_run.regret)


def test_the_curve_of_regret_has_a_point_at_the_end_of_every_round(grid_run: Run, picture: Panels) -> None:
    x, _ = points(panel(picture, "Regret"))
    assert set(grid_run.records["start"] + grid_run.records["length"]) <= set(x)


def test_the_rounds_drawn_are_those_of_the_run(grid_run: Run, picture: Panels) -> None:
    x, y = points(panel(picture, "Communication"))
    np.testing.assert_array_equal(y, grid_run.rounds_at(x))
    assert y[-1] == grid_run.rounds


def test_rounds_are_drawn_as_steps(picture: Panels) -> None:
    (line,) = panel(picture, "Communication").get_lines()
    assert line.get_drawstyle() == "steps-post"


@pytest.mark.parametrize("code", [0, 1])
def test_every_round_is_drawn_with_its_length_under_the_rule_that_ended_it(
    grid_run: Run, picture: Panels, code: int
) -> None:
    rule = grid_run.about.rules[code]
    lines = panel(picture, "Round lengths").get_lines()
    (drawn,) = [line for line in lines if str(line.get_label()).startswith(rule)]
    records = grid_run.records
    chosen = (records["requests"] > 0) & (records["rule"] == code)
    np.testing.assert_array_equal(drawn.get_xdata(), records["start"][chosen] + 1)
    np.testing.assert_array_equal(drawn.get_ydata(), records["length"][chosen])


def test_all_rounds_are_drawn(grid_run: Run, picture: Panels) -> None:
    lines = panel(picture, "Round lengths").get_lines()
    assert sum(len(np.asarray(line.get_xdata())) for line in lines) == len(grid_run.records["length"])


def test_the_legend_has_the_number_of_rounds_of_each_rule(grid_run: Run, picture: Panels) -> None:
    legend = panel(picture, "Round lengths").get_legend()
    assert legend is not None
    requested = grid_run.records["requests"] > 0
    first = int((requested & (grid_run.records["rule"] == 0)).sum())
    assert legend.get_texts()[0].get_text() == f"{grid_run.about.rules[0]} rule ({first:,})"


def places(ax: Axes, played: int) -> set[tuple[int, int]]:
    """Cells of a fine raster with a point of the first curve."""
    share = np.log(np.column_stack(points(ax)).astype(float)) / np.log(played)
    return {(round(x), round(y)) for x, y in share * run_picture.DOTS_ACROSS}


def test_of_many_rounds_those_at_one_place_are_drawn_once(grid_run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    every = panel(plot_run(grid_run), "Round lengths")
    monkeypatch.setattr(run_picture, "MAX_POINTS", 50)
    some = panel(plot_run(grid_run), "Round lengths")
    assert 50 < len(points(some)[0]) < len(points(every)[0])
    assert places(some, grid_run.episodes_played) == places(every, grid_run.episodes_played)


@pytest.mark.parametrize(
    ("title", "y_label", "y_scale"),
    [
        ("Regret", "Common regret\n(units of reward)", "linear"),
        ("Communication", "Communication rounds", "linear"),
        ("Round lengths", "Length (episodes)", "log"),
    ],
)
def test_axes_have_labels_with_units(picture: Panels, title: str, y_label: str, y_scale: str) -> None:
    ax = panel(picture, title)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("Episodes per agent", y_label)
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", y_scale)


def test_the_axis_of_episodes_ends_with_the_run(grid_run: Run, picture: Panels) -> None:
    assert panel(picture, "Regret").get_xlim() == (1, grid_run.episodes_played)


def test_a_run_without_a_grid_has_no_picture_of_its_policy(plain_run: Run) -> None:
    titles = [ax.get_title("left").split(":")[0] for ax in plot_run(plain_run)]
    assert titles == ["Regret", "Communication", "Round lengths"]


def test_few_episodes_are_drawn_on_a_linear_axis() -> None:
    few = run(FedUCBVI(nu=10), synthetic(agents=2), LOG_FROM - 1)
    assert panel(plot_run(few), "Regret").get_xscale() == "linear"


def test_a_run_of_one_episode_is_drawn() -> None:
    one = plot_run(run(FedUCBVI(nu=1), synthetic(agents=2), 1))
    assert panel(one, "Regret").get_xlim()[0] == 1
    assert badly_placed(one.figure) == []


@pytest.mark.parametrize("part", ["Fed-UCBVI", "GridWorld", "M = 4", "T = 2,000", "εₚ = 0.1", "seed 1"])
def test_the_heading_names_the_setting(picture: Panels, part: str) -> None:
    assert part in picture.figure.get_suptitle()


@pytest.fixture
def picture_without_rounds(grid_run: Run) -> Panels:
    """The picture of a run that was interrupted before its first round."""
    records = {name: column[:0] for name, column in grid_run.records.items()}
    return plot_run(replace(grid_run, records=records, complete=False))


def test_the_heading_of_an_interrupted_run_has_its_number_of_episodes(picture_without_rounds: Panels) -> None:
    assert "interrupted after 0 episodes" in picture_without_rounds.figure.get_suptitle()


def test_the_regret_of_a_run_without_rounds_is_one_point(picture_without_rounds: Panels) -> None:
    x, y = points(panel(picture_without_rounds, "Regret"))
    assert list(x) == [0]
    assert list(y) == [0]


@pytest.mark.parametrize("name", ["grid_run", "plain_run", "large_run"])
def test_no_texts_overlap(name: str, request: pytest.FixtureRequest) -> None:
    assert badly_placed(plot_run(request.getfixturevalue(name)).figure) == []


def test_axes_of_the_caller_are_returned(plain_run: Run) -> None:
    axes = Figure().subplots(1, 3)
    assert list(plain_run.plot(axes=axes)) == list(axes)


def test_axes_of_the_caller_are_drawn_on(plain_run: Run) -> None:
    axes = Figure().subplots(1, 3)
    plain_run.plot(axes=axes)
    assert axes[0].get_title("left").startswith("Regret")


def test_a_new_figure_has_the_requested_size(plain_run: Run) -> None:
    figure = plain_run.plot(size=(9.0, 3.0)).figure
    assert tuple(figure.get_size_inches()) == (9.0, 3.0)


@pytest.mark.parametrize("format_", ["svg", "png", "pdf"])
def test_the_same_run_gives_the_same_file(plain_run: Run, tmp_path: Path, format_: str) -> None:
    first = tmp_path / f"a.{format_}"
    second = tmp_path / f"b.{format_}"
    plain_run.plot(first)
    plain_run.plot(str(second))
    assert first.read_bytes() == second.read_bytes()


def test_a_wrong_suffix_is_refused_before_anything_is_drawn(plain_run: Run, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"must end in \.png, \.svg or \.pdf"):
        plot_run(plain_run, tmp_path / "run.html")
    assert list(tmp_path.iterdir()) == []


# --------------------------------------------------------------------------------------------- the policy on a grid
def arrows_of(ax: Axes) -> dict[tuple[int, int], tuple[int, int]]:
    """Rows and columns by which arrows point, by the row and column of their squares."""
    (arrows,) = [part for part in ax.collections if isinstance(part, Quiver)]
    down = np.sign(np.asarray(arrows.V)).astype(int)
    right = np.sign(np.asarray(arrows.U)).astype(int)
    squares = np.asarray(arrows.XY).astype(int)
    drawn = zip(squares, down, right, strict=True)
    return {(int(row), int(column)): (int(v), int(u)) for (column, row), v, u in drawn}


def test_squares_are_first_reached_along_the_shortest_way(grid_run: Run) -> None:
    layout = grid_run.about.layout
    assert layout is not None
    # rows from the top: 0 1 2 / 1 wall 3 / 2 3 4
    assert first_steps(layout) == [0, 1, 2, 1, 3, 2, 3, 4]


def test_arrows_show_the_action_on_first_reaching_each_square(grid_run: Run) -> None:
    layout = grid_run.about.layout
    assert layout is not None
    arrows = arrows_of(plot_policy(grid_run))
    for state, (cell, step) in enumerate(zip(layout["cells"], first_steps(layout), strict=True)):
        assert arrows[tuple(cell)] == tuple(layout["moves"][grid_run.policy[step, state]])


def test_arrows_are_those_of_the_policy(large_run: Run) -> None:
    layout = large_run.about.layout
    assert layout is not None
    wanted = {cell: move for cell, move in policy_arrows(layout, large_run.policy).items() if any(move)}
    assert arrows_of(plot_policy(large_run)) == wanted


def test_the_first_row_of_a_grid_is_on_top(grid_run: Run) -> None:
    low, high = plot_policy(grid_run).get_ylim()
    assert low > high


def test_squares_of_a_small_grid_are_named(grid_run: Run) -> None:
    texts = [text.get_text() for text in plot_policy(grid_run).texts]
    assert sorted(texts) == ["goal", "start", "wall"]


def test_squares_of_a_large_grid_are_marked_by_shapes(large_run: Run) -> None:
    ax = plot_policy(large_run)
    assert [line.get_marker() for line in ax.get_lines()] == ["o", "D"]


def test_squares_of_a_large_grid_are_not_named(large_run: Run) -> None:
    assert list(plot_policy(large_run).texts) == []


def test_at_a_given_step_only_squares_that_can_be_reached_have_arrows(grid_run: Run) -> None:
    ax = plot_policy(grid_run, step=1)
    assert len(arrows_of(ax)) == 3
    assert "step 2 of 10" in ax.get_xlabel()


def test_a_step_beyond_the_horizon_is_refused(grid_run: Run) -> None:
    with pytest.raises(InputError, match=r"0\.\.9"):
        plot_run(grid_run, step=10)


def test_a_policy_without_a_grid_cannot_be_drawn(plain_run: Run) -> None:
    with pytest.raises(InputError, match="do not lie on a grid"):
        plot_policy(plain_run)


def test_a_policy_is_drawn_on_given_axes(grid_run: Run) -> None:
    ax = Figure().add_subplot()
    assert plot_policy(grid_run, ax=ax) is ax


# ------------------------------------------------------------------------------------------------ unknown regret
@pytest.fixture(scope="module")
def unknown(plain_run: Run) -> Run:
    """A run whose regret is unknown, and whose rewards were observed episode by episode."""
    count = len(plain_run.records["length"])
    records = {"regret": np.full(count, np.nan), "reward_sd": np.full(count, 1.0)}
    return replace(plain_run, records={**plain_run.records, **records})


def test_rewards_are_drawn_where_regret_is_unknown(unknown: Run) -> None:
    ax = panel(plot_run(unknown), "Reward")
    curve = learning_curve(unknown)
    np.testing.assert_array_equal(points(ax)[1], curve.mean)
    assert ax.get_ylabel() == LEARNING


def test_observed_rewards_have_a_band(unknown: Run) -> None:
    ax = panel(plot_run(unknown), "Reward")
    assert len(ax.collections) == 1
    assert any(INTERVAL_NAME in text for text in texts_of(plot_run(unknown).figure))


def test_rewards_of_which_only_sums_are_known_have_no_band(plain_run: Run) -> None:
    count = len(plain_run.records["length"])
    records = {"regret": np.full(count, np.nan), "reward_sd": np.full(count, np.nan)}
    sums = replace(plain_run, records={**plain_run.records, **records})
    assert len(panel(plot_run(sums), "Reward").collections) == 0
