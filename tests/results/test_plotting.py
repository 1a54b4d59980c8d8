"""Pictures: what is drawn is what was run, and files are whole or absent."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from fed_ucbvi import FedUCBVI, InputError, Run, gridworld, run, synthetic
from fed_ucbvi.charts.panels import Board, Panel, Series, x_scale, y_scale
from fed_ucbvi.charts.picture import FORMATS, POINTS, Picture
from fed_ucbvi.charts.vega import SCHEMA, rows_of
from fed_ucbvi.core.colours import BLUE
from fed_ucbvi.core.types import FloatArray
from fed_ucbvi.results import plotting
from fed_ucbvi.results.grid import first_steps
from fed_ucbvi.results.plotting import LEARNING, LOG_FROM, MAX_CURVES, plot_run, plot_runs
from fed_ucbvi.results.run_data import learning_curve
from fed_ucbvi.results.statistics import INTERVAL_NAME
from sample_report import check_schema
from svg_texts import overlapping, texts_of


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


def curves(picture: Picture) -> list[Panel]:
    return [one for one in picture.panels if isinstance(one, Panel)]


def panel(picture: Picture, title: str) -> Panel:
    (found,) = [one for one in curves(picture) if one.title.startswith(title)]
    return found


def board(picture: Picture) -> Board:
    (found,) = [one for one in picture.panels if isinstance(one, Board)]
    return found


def line(of: Panel, number: int = 0) -> tuple[Any, Any]:
    series = of.series[number]
    return np.asarray(series.x), np.asarray(series.y)


def names(picture: Picture) -> list[str]:
    """Of the curves in the first panel."""
    return [series.name for series in panel(picture, "Re").series]


def twins_of(one: Run, environments: list[dict[str, Any]]) -> list[Run]:
    """The same run with other options of its environment."""
    about = one.about
    options = one.about.environment
    return [replace(one, about=replace(about, environment={**options, **new})) for new in environments]


def test_the_regret_and_the_rounds_drawn_are_those_of_the_run(grid_run: Run) -> None:
    picture = plot_run(grid_run)
    x, y = line(panel(picture, "Regret"))
    assert (x[0], x[-1], y[-1]) == (1, grid_run.episodes_played, grid_run.regret)
    np.testing.assert_array_equal(y, grid_run.regret_at(x))
    assert set(grid_run.records["start"] + grid_run.records["length"]) <= set(x)
    x, y = line(panel(picture, "Communication"))
    np.testing.assert_array_equal(y, grid_run.rounds_at(x))
    assert y[-1] == grid_run.rounds
    assert rows_of(panel(picture, "Communication"))[0]["parts"] == ["steps"]


def test_every_round_is_drawn_with_its_length_under_the_rule_that_ended_it(grid_run: Run) -> None:
    series = panel(plot_run(grid_run), "Round lengths").series
    dots = {re.findall(r"by the (\w+)", one.name)[0]: np.column_stack([one.x, one.y]) for one in series}
    records = grid_run.records
    assert {"local", "global"} <= set(dots)
    for code, rule in enumerate(grid_run.about.rules):
        chosen = (records["requests"] > 0) & (records["rule"] == code)
        expected = np.column_stack([records["start"] + 1, records["length"]])[chosen]
        np.testing.assert_array_equal(dots[rule], expected)
    assert sum(len(places) for places in dots.values()) == len(records["length"])


def test_of_many_rounds_those_in_one_pixel_are_drawn_once(grid_run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    every = panel(plot_run(grid_run), "Round lengths").series[0]
    monkeypatch.setattr(plotting, "MAX_POINTS", 50)
    some = panel(plot_run(grid_run), "Round lengths").series[0]
    assert some.name == every.name
    assert 50 < len(some.x) < len(every.x)

    def places(series: Series) -> set[tuple[int, int]]:
        share = np.log(np.column_stack([series.x, series.y]).astype(float)) / np.log(grid_run.episodes_played)
        return {(round(x), round(y)) for x, y in share * 853}

    assert places(some) == places(every)


def test_axes_have_labels_with_units_and_logarithmic_scales(grid_run: Run, plain_run: Run) -> None:
    picture = plot_run(grid_run)
    wanted = {
        "Regret": ("Episodes per agent", "Common regret (units of reward)", False),
        "Communication": ("Episodes per agent", "Communication rounds so far", False),
        "Round lengths": ("Episodes per agent", "Length of the round (episodes)", True),
    }
    for title, (x, y, log) in wanted.items():
        drawn = panel(picture, title)
        assert (drawn.x_label, drawn.y_label) == (x, y)
        assert (x_scale(drawn).log, y_scale(drawn).log) == (True, log)
        assert (x_scale(drawn).low, x_scale(drawn).high) == (1, grid_run.episodes_played)
    assert [one.title.split(":")[0] for one in plot_run(plain_run).panels] == list(wanted), "without a grid no policy"


def test_few_episodes_are_drawn_on_a_linear_axis() -> None:
    few = run(FedUCBVI(nu=10), synthetic(agents=2), LOG_FROM - 1)
    assert not x_scale(panel(plot_run(few), "Regret")).log
    one = plot_run(run(FedUCBVI(nu=1), synthetic(agents=2), 1))
    assert x_scale(panel(one, "Regret")).low == 1
    assert overlapping(one.svg) == []


def test_the_title_states_algorithm_environment_agents_episodes_and_heterogeneity(grid_run: Run) -> None:
    title = plot_run(grid_run).title
    for part in ("Fed-UCBVI", "GridWorld", "M = 4", "T = 2,000", "εₚ = 0.1", "seed 1"):
        assert part in title
    assert title in [text.text for text in texts_of(plot_run(grid_run).svg)]


def test_arrows_show_the_action_on_first_reaching_each_square(grid_run: Run) -> None:
    layout = grid_run.about.layout
    assert layout is not None
    drawn = board(plot_run(grid_run))
    steps = first_steps(layout)
    # rows from the top: 0 1 2 / 1 wall 3 / 2 3 4
    assert steps == [0, 1, 2, 1, 3, 2, 3, 4]
    squares = {(square.row, square.column): square for square in drawn.squares}
    for state, (row, column) in enumerate(layout["cells"]):
        assert squares[row, column].arrow == tuple(layout["moves"][grid_run.policy[steps[state], state]])
    assert squares[1, 1].arrow is None
    assert sorted(square.text for square in drawn.squares if square.text) == ["goal", "start", "wall"]


def test_arrows_point_where_actions_move(grid_run: Run) -> None:
    spec = plot_run(grid_run).specification()
    (layers,) = [chart["layer"] for chart in spec["vconcat"][-1]["concat"] if "panel" not in json.dumps(chart)]
    rows = layers[-1]["data"]["values"]
    turned = {(0, 1): 0, (1, 0): 90, (0, -1): 180, (-1, 0): -90}  # clockwise from the right
    squares = {(one.row, one.column): one.arrow for one in board(plot_run(grid_run)).squares if one.arrow}
    angles = {(row["y"], row["x"]): row["angle"] for row in rows}
    assert angles == {place: turned[arrow] for place, arrow in squares.items()}


def test_at_a_given_step_only_squares_that_can_be_reached_have_arrows(grid_run: Run) -> None:
    drawn = board(plot_run(grid_run, step=1))
    assert sum(square.arrow is not None for square in drawn.squares) == 3
    assert "step 2 of 10" in drawn.x_label[0]
    with pytest.raises(InputError, match=r"0\.\.9"):
        plot_run(grid_run, step=10)


def test_an_interrupted_run_says_so_even_before_its_first_round(grid_run: Run) -> None:
    records = {name: column[:0] for name, column in grid_run.records.items()}
    empty = replace(grid_run, records=records, complete=False)
    picture = plot_run(empty)
    assert "interrupted after 0 episodes" in [text.text for text in texts_of(picture.svg)]
    assert line(panel(picture, "Regret")) == ([0], [0])
    with pytest.raises(InputError, match="before its first round"):
        plot_runs([empty])


def test_no_texts_overlap_and_every_specification_is_sound(grid_run: Run, plain_run: Run, several: list[Run]) -> None:
    for picture in (plot_run(grid_run), plot_run(plain_run), plot_runs(several), plot_runs([grid_run])):
        assert overlapping(picture.svg) == []
        check_schema(picture.specification(interactive=True))


def test_the_mean_of_several_runs_is_drawn_with_its_interval(several: list[Run]) -> None:
    picture = plot_runs(several)
    assert INTERVAL_NAME in [text.text for text in texts_of(picture.svg)]
    left, right = curves(picture)
    for number, group in enumerate((several[:4], several[4:])):
        x, mean = line(left, number)
        regrets = np.array([one.regret_at(x) for one in group])
        np.testing.assert_allclose(mean, regrets.mean(axis=0))
        np.testing.assert_allclose(line(right, number)[1], np.mean([one.rounds_at(x) for one in group], axis=0))
        factor = np.exp(stats.t.ppf(0.975, 3) * stats.sem(regrets[:, -1]) / mean[-1])
        ends = [end[-1] for end in (left.series[number].low, left.series[number].high) if end is not None]
        np.testing.assert_allclose(ends, [mean[-1] / factor, mean[-1] * factor])
        assert rows_of(left)[number]["parts"] == ["line", "band"]
    assert x_scale(left).log
    assert x_scale(right).log


def test_curves_are_named_by_what_sets_them_apart_in_their_algorithms_colour(several: list[Run]) -> None:
    picture = plot_runs(several)
    left = panel(picture, "Regret")
    assert names(picture) == ["εₚ = 0", "εₚ = 0.2"]
    assert {series.colour for series in left.series} == {BLUE}
    assert len({series.dash for series in left.series}) == 2
    drawn = texts_of(picture.svg)
    assert [text.text for text in drawn].count("εₚ = 0.2") == 1, "in the legend"
    for part in ("Fed-UCBVI on synthetic MDP", "M = 3", "T = 300", "4 runs"):
        assert part in picture.title
    assert "εₚ" not in picture.title


def test_several_runs_of_different_length_are_drawn_as_far_as_all_go(plain_run: Run) -> None:
    records = {name: column[:20] for name, column in plain_run.records.items()}
    shorter = replace(plain_run, records=records, complete=False)
    picture = plot_runs([plain_run, shorter])
    x, _ = line(panel(picture, "Regret"))
    assert x[-1] == shorter.episodes_played < plain_run.episodes_played
    assert x_scale(panel(picture, "Regret")).high == plain_run.episodes_played


def test_one_run_has_no_band_and_no_run_is_refused(plain_run: Run) -> None:
    picture = plot_runs([plain_run])
    assert rows_of(panel(picture, "Regret"))[0]["parts"] == ["line"]
    assert "one run" in picture.title
    with pytest.raises(InputError, match="empty"):
        plot_runs([])


@pytest.mark.parametrize("format_", FORMATS)
def test_every_format_is_written_and_the_same_for_the_same_run(plain_run: Run, tmp_path: Path, format_: str) -> None:
    first = tmp_path / "new" / f"a.{format_}"
    second = tmp_path / "new" / f"b.{format_}"
    plain_run.plot(first)
    plain_run.plot(str(second))
    assert sorted(first.parent.iterdir()) == [first, second]
    assert first.read_bytes() == second.read_bytes()
    ends = {"svg": b"</svg>", "png": b"IEND\xaeB`\x82", "pdf": b"%%EOF", "html": b"</html>"}
    assert first.read_bytes().strip().endswith(ends[format_])


def test_a_page_holds_the_data_and_loads_nothing_from_outside(plain_run: Run, tmp_path: Path) -> None:
    picture = plain_run.plot(tmp_path / "run.html")
    page = (tmp_path / "run.html").read_text(encoding="utf-8")
    (block,) = re.findall(r'<script id="specification" type="application/json">(.*?)</script>', page, flags=re.DOTALL)
    assert not set("<>&") & set(block)
    assert json.loads(block) == picture.specification(interactive=True)
    (library,) = re.findall(r'<script type="module">(.*?)</script>', page, flags=re.DOTALL)[:1]
    rest = page.replace(library, "").replace(SCHEMA, "")
    assert "vegaEmbed" in library
    assert re.findall(r"https?:|//[a-z]|url\(|@import|\bsrc=", rest) == []
    assert "default-src &#x27;none&#x27;" in rest
    assert "unsafe-eval" not in rest


def test_texts_from_data_stay_texts_in_every_format(plain_run: Run) -> None:
    nasty = "<script>$\\bad{$</script>\x1b[31m"
    picture = plot_runs(twins_of(plain_run, [{"map": nasty}, {"map": "b"}]))
    assert len(set(names(picture))) == 2
    page = picture.content("html").decode()
    assert "<script>$" not in page
    for content in (picture.svg, page):
        assert "\x1b" not in content
    assert overlapping(picture.svg) == []


def test_a_picture_that_cannot_be_written_leaves_the_earlier_one(
    plain_run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: Path, content: bytes) -> None:
        path.touch()
        raise OSError(28, "No space left on device")

    picture = tmp_path / "run.svg"
    picture.write_bytes(b"an earlier picture")
    monkeypatch.setattr(Path, "write_bytes", fail)
    with pytest.raises(OSError, match="No space left"):
        plot_run(plain_run, picture)
    assert list(tmp_path.iterdir()) == [picture]
    assert picture.read_text() == "an earlier picture"


@pytest.mark.parametrize("name", ["run.jpg", "run", "run.png.txt", "folder.png"])
def test_folders_and_other_kinds_of_files_are_refused(plain_run: Run, tmp_path: Path, name: str) -> None:
    (tmp_path / "folder.png").mkdir()
    for draw in (plot_run, lambda one, path: plot_runs([one], path)):
        with pytest.raises(InputError, match=r"must end in \.png, \.svg, \.pdf or \.html|it is a folder"):
            draw(plain_run, tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == ["folder.png"]


def test_large_grids_are_marked_by_shapes_and_small_ones_by_names() -> None:
    large = run(FedUCBVI(nu=10), gridworld(agents=2, rows=7, columns=20, horizon=30), 20)
    picture = plot_run(large)
    squares = board(picture).squares
    assert not any(square.text for square in squares)
    assert [square.ring for square in squares if square.ring] == ["circle", "diamond"]
    assert "start" in board(picture).x_label[0]
    assert overlapping(picture.svg) == []


def test_long_and_many_labels_stay_apart_and_leave_room_for_the_curves(plain_run: Run) -> None:
    long = plot_runs(twins_of(plain_run, [{"some_option": f"{'long' * 5}{k}", "another": k} for k in range(3)]))
    assert all(chart["width"] * POINTS / 72 > 1.5 for chart in long.specification()["vconcat"][-1]["concat"])
    many = plot_runs(twins_of(plain_run, [{"k": k} for k in range(MAX_CURVES)]))
    assert overlapping(long.svg) == overlapping(many.svg) == []
    assert sum(text.text.startswith("k = ") for text in texts_of(many.svg)) == MAX_CURVES
    assert len({series.colour for series in panel(many, "Regret").series}) == MAX_CURVES


def test_curves_that_no_picture_could_show_are_refused_with_what_they_differ_in(plain_run: Run) -> None:
    many = twins_of(plain_run, [{"k": k} for k in range(MAX_CURVES + 1)])
    with pytest.raises(InputError, match=r"11 curves are too many for one panel: .* differ in k; draw fewer"):
        plot_runs(many)
    with pytest.raises(InputError, match=r"at most 12 facets with 10 curves each, here are 1 with up to 11"):
        plot_runs(many, facet="agents")


SLIPS = (0, 0.1, 0.2, 0.3, 0.4)


def grid_of_twins(one: Run) -> list[Run]:
    """25 groups: five values of one option times five of another."""
    return twins_of(one, [{"k": k, "slip": slip} for k in range(5) for slip in SLIPS])


def test_many_groups_are_drawn_in_facets_with_a_legend(plain_run: Run) -> None:
    runs = grid_of_twins(plain_run)
    picture = plot_runs(runs)
    assert [one.title for one in picture.panels] == [f"k = {k}" for k in range(5) for _ in "ab"]
    for drawn in curves(picture):
        assert [series.name for series in drawn.series] == [f"slip = {slip:g}" for slip in SLIPS]
        assert len({(series.colour, series.dash) for series in drawn.series}) == 5
    texts = [text.text for text in texts_of(picture.svg)]
    assert texts.count("slip = 0.3") == 1, "the legend names it, once for all panels"
    assert overlapping(picture.svg) == []
    other = plot_runs(runs, facet="slip")
    assert [one.title for one in other.panels][::2] == [f"slip = {slip:g}" for slip in SLIPS]
    few = plot_runs([one for one in runs if one.about.environment["k"] < 2], facet="k")
    wanted = [(f"k = {k}", label) for label in ("Common", "Commun") for k in (0, 1)]
    assert [(one.title, one.y_label[:6]) for one in few.panels] == wanted
    charts = few.specification()["vconcat"][-1]
    assert (len(charts["concat"]), charts["columns"]) == (4, 2)


def test_own_labels_and_colours_are_drawn(several: list[Run]) -> None:
    colours = {"unlike": "#123456", "fed-ucbvi": "#654321"}
    picture = plot_runs(several, labels={"\u03b5\u209a = 0.2": "unlike"}, colours=colours)
    assert names(picture) == ["\u03b5\u209a = 0", "unlike"]
    assert [series.colour for series in panel(picture, "Regret").series] == ["#654321"] * 2
    picture = plot_runs(several, labels={"fed-ucbvi": "ours"}, colours={"\u03b5\u209a = 0.2": "#123456"})
    assert picture.title.startswith("ours on synthetic MDP")
    assert [series.colour for series in panel(picture, "Regret").series] == [BLUE, "#123456"]


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


def test_a_logarithmic_axis_shows_what_is_positive_and_stays_linear_where_nothing_is(several: list[Run]) -> None:
    left, right = curves(plot_runs(several, y_log=True))
    assert (left.y_log, right.y_log) == (True, True)
    assert all(value > 0 for one in (left, right) for series in one.series for value in series.y)
    np.testing.assert_array_equal(left.series[0].y, curves(plot_runs(several))[0].series[0].y)
    silent = [replace(one, records={**one.records, "requests": 0 * one.records["requests"]}) for one in several]
    assert [one.y_log for one in curves(plot_runs(silent, y_log=True))] == [True, False]


@pytest.mark.parametrize("size", [(6.5, 3.0), (10.0, 4.0)])
def test_a_picture_is_about_as_large_as_asked_for(several: list[Run], size: tuple[float, float]) -> None:
    svg = plot_runs(several, size=size).svg
    pixels = [float(side) for side in re.findall(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg)[0]]
    assert [side * POINTS / 72 for side in pixels] == pytest.approx(size, rel=0.1)
    assert overlapping(svg) == []


def test_runs_of_unknown_regret_are_drawn_by_their_reward(plain_run: Run) -> None:
    records = {**plain_run.records, "regret": np.full_like(plain_run.records["regret"], np.nan)}
    unknown = replace(plain_run, records=records)
    for picture in (plot_runs([unknown]), plot_run(unknown)):
        left = panel(picture, "Reward")
        assert "reward" in left.y_label.lower()
    assert line(panel(plot_runs([unknown]), "Reward"))[1][-1] == pytest.approx(plain_run.average_reward)


Observed = tuple[Run, list[FloatArray]]
"""A run as if every episode had been observed, and what each of a round's episodes paid."""


@pytest.fixture(scope="module")
def short() -> Run:
    return run(FedUCBVI(), gridworld(agents=2), 40, progress=False)


@pytest.fixture(scope="module")
def observed(short: Run) -> Observed:
    rng = np.random.default_rng(1)
    episodes = [rng.normal(5.0, 2.0, size=n) for n in short.records["agent_episodes"]]
    reward, spread = np.array([(paid.sum() / 2, paid.std(ddof=1)) for paid in episodes]).T
    told = {"regret": np.full(len(episodes), np.nan), "reward": reward, "reward_sd": spread}
    return replace(short, records={**short.records, **told}), episodes


@pytest.mark.parametrize("bins", [1, 2, 5, 60])
def test_a_point_is_the_mean_of_its_episodes_and_its_error(observed: Observed, bins: int) -> None:
    result, episodes = observed
    curve = learning_curve(result, bins)
    assert curve.episodes[-1] == 40
    assert 0 < len(curve.mean) <= bins
    ends = np.cumsum(result.records["length"])
    first = 0
    for end, mean, error in zip(*curve, strict=True):
        last = int(np.searchsorted(ends, end)) + 1
        paid = np.concatenate(episodes[first:last])
        assert mean == pytest.approx(paid.mean())
        assert error == pytest.approx(paid.std(ddof=1) / math.sqrt(len(paid)))
        first = last
    assert first == len(episodes)


def test_the_curve_is_drawn_where_regret_is_unknown(observed: Observed, short: Run) -> None:
    result, _ = observed
    simulated = replace(short, records={**short.records, "regret": result.records["regret"]})
    (drawn,), (plain,) = (
        [one.series[0] for one in curves(plot_run(made)) if one.y_label == LEARNING] for made in (result, simulated)
    )
    assert (drawn.band, plain.low) == (INTERVAL_NAME, None)
    empty = replace(short, records={name: column[:0] for name, column in short.records.items()})
    assert len(learning_curve(empty).mean) == 0
