"""Pictures: what is drawn is what was run, and files are whole or absent."""

from __future__ import annotations

import dataclasses
import io
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection, PolyCollection
from matplotlib.figure import Figure
from matplotlib.quiver import Quiver
from matplotlib.text import Annotation
from PIL import Image
from scipy import stats

from fed_ucbvi import FedQHoeffding, FedUCBVI, InputError, Run, gridworld, riverswim, run, synthetic
from fed_ucbvi.algorithms.base import Algorithm
from fed_ucbvi.palette import BLUE, SPARE
from fed_ucbvi.results.grid import first_steps
from fed_ucbvi.results.panels import LABELS_APART, LOG_FROM
from fed_ucbvi.results.plotting import plot_run, plot_runs
from fed_ucbvi.results.statistics import INTERVAL_NAME
from fed_ucbvi.results.style import DPI, colour_of, label_of
from overlaps import overlapping


@pytest.fixture(scope="module")
def grid_run() -> Run:
    return run(FedUCBVI(nu=60), gridworld(agents=4, eps_p=0.1), 2000, seed=1)


@pytest.fixture(scope="module")
def plain_run() -> Run:
    return run(FedUCBVI(nu=100), synthetic(agents=3), 400, seed=2)


@pytest.fixture(scope="module")
def several() -> list[Run]:
    worlds = [synthetic(agents=3, eps_p=eps_p) for eps_p in (0.0, 0.2)]
    return [run(FedUCBVI(nu=100), world, 300, seed=seed) for world in worlds for seed in range(4)]


def panel(figure: Figure, title: str) -> Axes:
    (found,) = [axes for axes in figure.axes if axes.get_title("left").startswith(title)]
    return found


def line(axes: Axes, number: int = 0) -> tuple[Any, Any]:
    drawn = axes.lines[number]
    return np.asarray(drawn.get_xdata()), np.asarray(drawn.get_ydata())


def arrows(axes: Axes) -> list[tuple[Any, ...]]:
    """Column, row, right, down of every arrow."""
    (quiver,) = axes.findobj(Quiver)
    assert isinstance(quiver, Quiver)
    return list(zip(*(np.asarray(part) for part in (quiver.X, quiver.Y, quiver.U, quiver.V)), strict=True))


def test_the_regret_drawn_is_the_regret_of_the_run(grid_run: Run) -> None:
    x, y = line(panel(plot_run(grid_run), "Regret"))
    assert x[0] == 1
    assert x[-1] == grid_run.episodes_played
    np.testing.assert_array_equal(y, grid_run.regret_at(x))
    assert y[-1] == grid_run.common_regret
    ends = grid_run.records["start"] + grid_run.records["length"]
    assert set(ends) <= set(x)


def test_the_rounds_drawn_are_the_rounds_of_the_run(grid_run: Run) -> None:
    x, y = line(panel(plot_run(grid_run), "Communication"))
    np.testing.assert_array_equal(y, grid_run.rounds_at(x))
    assert y[-1] == grid_run.rounds


def test_every_round_is_drawn_with_its_length_under_the_rule_that_ended_it(grid_run: Run) -> None:
    axes = panel(plot_run(grid_run), "Round lengths")
    dots = {dots.get_gid(): np.asarray(dots.get_offsets()) for dots in axes.findobj(PathCollection)}
    records = grid_run.records
    assert {"local", "global"} <= set(dots)
    for code, rule in enumerate(grid_run.about.rules):
        chosen = (records["askers"] > 0) & (records["rule"] == code)
        expected = np.column_stack([records["start"] + 1, records["length"]])[chosen]
        np.testing.assert_array_equal(dots[rule], expected)
    assert sum(len(offsets) for offsets in dots.values()) == len(records["length"])


def test_axes_have_labels_with_units_and_logarithmic_scales(grid_run: Run) -> None:
    figure = plot_run(grid_run)
    wanted = {
        "Regret": ("Episodes per agent", "Common regret (units of reward)", "linear"),
        "Communication": ("Episodes per agent", "Communication rounds so far", "linear"),
        "Round lengths": ("Episodes per agent", "Length of the round (episodes)", "log"),
    }
    for title, (x, y, scale) in wanted.items():
        axes = panel(figure, title)
        assert (axes.get_xlabel(), axes.get_ylabel()) == (x, y)
        assert (axes.get_xscale(), axes.get_yscale()) == ("log", scale)
        assert axes.get_xlim() == (1, grid_run.episodes_played)


def test_few_episodes_are_drawn_on_a_linear_axis() -> None:
    few = run(FedUCBVI(nu=10), synthetic(agents=2), LOG_FROM - 1)
    axes = panel(plot_run(few), "Regret")
    assert axes.get_xscale() == "linear"
    assert plot_run(run(FedUCBVI(nu=1), synthetic(agents=2), 1)).axes[0].get_xlim()[0] == 1


def test_the_title_states_algorithm_environment_agents_episodes_and_heterogeneity(grid_run: Run) -> None:
    title = plot_run(grid_run).get_suptitle()
    for part in ("Fed-UCBVI", "GridWorld", "$M$ = 4", "$T$ = 2,000", r"$\varepsilon_p$ = 0.1", "seed 1"):
        assert part in title


def test_arrows_show_the_action_on_first_reaching_each_square(grid_run: Run) -> None:
    layout = grid_run.about.layout
    assert layout is not None
    axes = panel(plot_run(grid_run), "Learnt policy")
    steps = first_steps(layout)
    # rows from the top: 0 1 2 / 1 wall 3 / 2 3 4
    assert steps == [0, 1, 2, 1, 3, 2, 3, 4]
    for state, ((row, column), arrow) in enumerate(zip(layout["cells"], arrows(axes), strict=True)):
        down, right = layout["moves"][grid_run.policy[steps[state], state]]
        assert arrow == (column, row, right, down)
    names = [text.get_text() for text in axes.texts]
    assert sorted(names) == ["goal", "start", "wall"]


def test_at_a_given_step_only_squares_that_can_be_reached_have_arrows(grid_run: Run) -> None:
    axes = panel(plot_run(grid_run, step=1), "Learnt policy")
    assert len(arrows(axes)) == 3
    assert "step 2 of 10" in axes.get_xlabel()
    with pytest.raises(InputError, match=r"0\.\.9"):
        plot_run(grid_run, step=10)


def test_a_run_without_a_grid_has_no_policy_panel(plain_run: Run) -> None:
    assert len(plot_run(plain_run).axes) == 3


def test_an_interrupted_run_says_so_even_before_its_first_round(grid_run: Run) -> None:
    records = {name: column[:0] for name, column in grid_run.records.items()}
    empty = dataclasses.replace(grid_run, records=records, complete=False)
    assert "interrupted after 0 episodes" in plot_run(empty).get_suptitle()
    with pytest.raises(InputError, match="before its first round"):
        plot_runs([empty])


def test_no_texts_overlap(grid_run: Run, plain_run: Run, several: list[Run]) -> None:
    for figure in (plot_run(grid_run), plot_run(plain_run), plot_runs(several), plot_runs([grid_run])):
        assert overlapping(figure) == []


def test_the_mean_of_several_runs_is_drawn_with_its_interval(several: list[Run]) -> None:
    figure = plot_runs(several)
    left, right = figure.axes
    for number, lot in enumerate((several[:4], several[4:])):
        x, mean = line(left, number)
        curves = np.array([one.regret_at(x) for one in lot])
        np.testing.assert_allclose(mean, curves.mean(axis=0))
        np.testing.assert_allclose(line(right, number)[1], np.mean([one.rounds_at(x) for one in lot], axis=0))
        band = left.collections[number]
        assert isinstance(band, PolyCollection)
        heights = band.get_paths()[0].vertices
        low, high = stats.t.interval(0.95, 3, curves[:, -1].mean(), stats.sem(curves[:, -1]))
        at_end = np.asarray(heights)[np.asarray(heights)[:, 0] == x[-1]][:, 1]
        np.testing.assert_allclose([at_end.min(), at_end.max()], [low, high])
    assert left.get_xscale() == right.get_xscale() == "log"


def test_curves_are_named_by_what_sets_them_apart_in_their_algorithms_colour(several: list[Run]) -> None:
    figure = plot_runs(several)
    left = figure.axes[0]
    names = sorted(str(drawn.get_label()) for drawn in left.lines)
    assert names == [r"$\varepsilon_p$ = 0", r"$\varepsilon_p$ = 0.2"]
    assert {drawn.get_color() for drawn in left.lines} == {BLUE}
    assert len({str(drawn.get_linestyle()) for drawn in left.lines}) == 2
    assert left.get_legend() is None
    title = figure.get_suptitle()
    for part in ("Fed-UCBVI on synthetic MDP", "$M$ = 3", "$T$ = 300", "4 runs", "95 %"):
        assert part in title
    assert "varepsilon" not in title


def test_labels_of_curves_that_end_together_are_pushed_apart(plain_run: Run) -> None:
    twin = dataclasses.replace(plain_run, about=dataclasses.replace(plain_run.about, eps_p=0.3))
    left = plot_runs([plain_run, twin]).axes[0]
    heights = sorted(note.xy[1] for note in left.texts if isinstance(note, Annotation))
    assert heights[1] - heights[0] >= 0.99 * LABELS_APART


def test_several_runs_of_different_length_are_drawn_as_far_as_all_go(plain_run: Run) -> None:
    records = {name: column[:20] for name, column in plain_run.records.items()}
    shorter = dataclasses.replace(plain_run, records=records, complete=False)
    x, _ = line(plot_runs([plain_run, shorter]).axes[0])
    assert x[-1] == shorter.episodes_played < plain_run.episodes_played


def test_one_run_has_no_band_and_no_run_is_refused(plain_run: Run) -> None:
    figure = plot_runs([plain_run])
    assert len(figure.axes[0].collections) == 0
    assert "one run" in figure.get_suptitle()
    with pytest.raises(InputError, match="empty"):
        plot_runs([])


def test_a_png_is_valid_and_has_200_dots_per_inch(grid_run: Run, tmp_path: Path) -> None:
    figure = plot_run(grid_run, tmp_path / "new" / "run.png")
    with Image.open(tmp_path / "new" / "run.png") as image:
        image.load()
        width, height = figure.get_size_inches()
        assert image.format == "PNG"
        assert image.size == (round(width * DPI), round(height * DPI))
    assert len(list((tmp_path / "new").iterdir())) == 1


def test_a_pdf_is_valid(several: list[Run], tmp_path: Path) -> None:
    plot_runs(several, tmp_path / "runs.pdf")
    content = (tmp_path / "runs.pdf").read_bytes()
    assert content.startswith(b"%PDF-")
    assert content.rstrip().endswith(b"%%EOF")


@pytest.mark.parametrize("suffix", ["png", "pdf"])
def test_the_same_run_gives_the_same_file(plain_run: Run, tmp_path: Path, suffix: str) -> None:
    first, second = tmp_path / f"a.{suffix}", tmp_path / f"b.{suffix}"
    plain_run.plot(first)
    plain_run.plot(second)
    assert first.read_bytes() == second.read_bytes()


def test_nothing_is_left_behind_and_nothing_lost_if_writing_fails(
    plain_run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(figure: Figure, path: Path, **options: Any) -> None:
        path.write_bytes(b"half a picture")
        raise OSError(28, "No space left on device")

    picture = tmp_path / "run.png"
    picture.write_bytes(b"an earlier picture")
    monkeypatch.setattr(Figure, "savefig", fail)
    with pytest.raises(OSError, match="No space left"):
        plot_run(plain_run, picture)
    assert list(tmp_path.iterdir()) == [picture]
    assert picture.read_bytes() == b"an earlier picture"


@pytest.mark.parametrize("name", ["run.jpg", "run", "run.png.txt"])
def test_other_kinds_of_files_are_refused(plain_run: Run, tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match=r"\.png or \.pdf"):
        plot_run(plain_run, tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_not_taken_for_a_picture(plain_run: Run, tmp_path: Path) -> None:
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(InputError, match="it is a folder"):
        plot_runs([plain_run], tmp_path / "folder.png")


def test_matplotlibs_settings_are_as_before(grid_run: Run, tmp_path: Path) -> None:
    before = dict(matplotlib.rcParams)
    plot_run(grid_run, tmp_path / "run.png")
    assert dict(matplotlib.rcParams) == before


def test_large_grids_are_marked_by_shapes_and_small_ones_by_names() -> None:
    large = run(FedUCBVI(nu=10), gridworld(agents=2, rows=7, columns=20, horizon=30), 20)
    axes = panel(plot_run(large), "Learnt policy")
    assert [text.get_text() for text in axes.texts] == []
    assert len(axes.patches) == 2
    assert "start" in axes.get_xlabel()


def test_algorithms_have_fixed_colours_and_written_names() -> None:
    assert colour_of("fed-ucbvi") == BLUE
    assert colour_of("something new") in SPARE
    assert label_of("something new") == "something new"


def test_a_picture_can_be_named_by_a_text(several: list[Run], tmp_path: Path) -> None:
    plot_runs(several, str(tmp_path / "runs.png"))
    assert (tmp_path / "runs.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(InputError, match=r"\.png or \.pdf"):
        plot_runs(several, "runs.jpg")


def test_every_curve_has_a_label_of_its_own_though_only_some_algorithms_have_the_parameter() -> None:
    world = synthetic(agents=2)
    scales = [FedUCBVI(nu=100, bonus_scale=scale) for scale in (0.1, 0.2)]
    algorithms: list[Algorithm[Any, Any]] = [*scales, FedQHoeffding()]
    figure = plot_runs([run(algorithm, world, 60, seed=seed) for algorithm in algorithms for seed in (1, 2)])
    names = [str(drawn.get_label()) for drawn in figure.axes[0].lines]
    assert names == ["Fed-UCBVI, bonus_scale = 0.1", "Fed-UCBVI, bonus_scale = 0.2", "FedQ-Hoeffding"]


def test_runs_whose_agents_differ_by_a_spread_are_one_curve_though_eps_p_changes_with_the_seed() -> None:
    worlds = [riverswim(agents=2, spread=0.5, horizon=6, seed=seed) for seed in (1, 2)]
    assert worlds[0].eps_p != worlds[1].eps_p
    figure = plot_runs([run(FedUCBVI(nu=50), world, 60, seed=seed) for seed, world in enumerate(worlds, 1)])
    assert len(figure.axes[0].lines) == 1
    assert "varepsilon" not in figure.get_suptitle()


def test_a_dollar_sign_in_a_setting_is_drawn_as_it_is(plain_run: Run) -> None:
    twins = [
        dataclasses.replace(
            plain_run,
            about=dataclasses.replace(plain_run.about, environment={**plain_run.about.environment, "map": text}),
        )
        for text in ("$\\bad{$", "b")
    ]
    figure = plot_runs(twins)
    figure.draw_without_rendering()
    assert len({str(drawn.get_label()) for drawn in figure.axes[0].lines}) == 2


def test_long_labels_leave_room_for_the_curves(plain_run: Run) -> None:
    worlds = [{**plain_run.about.environment, "some_option": f"{'long' * 5}{k}", "another": k} for k in range(3)]
    twins = [
        dataclasses.replace(plain_run, about=dataclasses.replace(plain_run.about, environment=world))
        for world in worlds
    ]
    figure = plot_runs(twins)
    figure.draw_without_rendering()
    for axes in figure.axes:
        assert axes.get_position().width * figure.get_size_inches()[0] > 1.5


def test_many_labels_stay_in_the_picture_and_apart(plain_run: Run) -> None:
    twins = [
        dataclasses.replace(
            plain_run, about=dataclasses.replace(plain_run.about, environment={**plain_run.about.environment, "k": k})
        )
        for k in range(25)
    ]
    figure = plot_runs(twins)
    figure.draw_without_rendering()
    for axes in figure.axes:
        boxes = [note.get_window_extent() for note in axes.texts if isinstance(note, Annotation)]
        assert len(boxes) == 25
        assert min(box.y0 for box in boxes) > 0
        assert max(box.y1 for box in boxes) < figure.bbox.height
        tops = sorted(box.y0 for box in boxes)
        assert min(np.diff(tops)) > 0.9 * boxes[0].height


def test_the_band_is_named_as_in_tables(several: list[Run]) -> None:
    assert INTERVAL_NAME in plot_runs(several).get_suptitle()


def test_runs_of_unknown_regret_are_drawn_by_their_reward(plain_run: Run) -> None:
    records = {**plain_run.records, "regret": np.full_like(plain_run.records["regret"], np.nan)}
    left = plot_runs([dataclasses.replace(plain_run, records=records)]).axes[0]
    assert "reward" in left.get_ylabel()
    assert line(left)[1][-1] == pytest.approx(plain_run.average_reward)


def test_a_figure_shows_itself_as_a_png(several: list[Run]) -> None:
    figure = plot_runs(several)
    content = figure._repr_png_()  # type: ignore[attr-defined]
    with Image.open(io.BytesIO(content)) as image:
        assert image.format == "PNG"
        assert image.size[0] < 1000
