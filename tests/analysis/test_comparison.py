"""Runs as a table, and groups of runs compared in pairs: figures are those of SciPy and of the runs themselves."""

from __future__ import annotations

import dataclasses
import io
import math
from collections.abc import Sequence
from typing import Any, cast
from xml.etree import ElementTree

import numpy as np
import polars as pl
import pytest
from scipy import stats

from fed_ucbvi import (
    MDP,
    Federation,
    FedQHoeffding,
    FedUCBVI,
    InputError,
    Run,
    gridworld,
    hard_instance,
    riverswim,
    run,
    synthetic,
)
from fed_ucbvi.algorithms.base import Algorithm
from fed_ucbvi.analysis.comparison import FIGURES, compare_runs, curves_frame, outcomes, runs_frame
from fed_ucbvi.results.run_table import apart, names_of
from fed_ucbvi.results.statistics import INTERVAL_NAME, seeds_needed
from fed_ucbvi.trackers import results_of

SEEDS = range(5)


def made(algorithm: Algorithm[Any, Any], agents: int = 2, episodes: int = 60, **options: Any) -> list[Run]:
    """One run for each seed, which is the environment's as well."""
    return [
        run(
            algorithm,
            synthetic(agents=agents, seed=seed, **options),
            episodes,
            seed=seed,
        )
        for seed in SEEDS
    ]


@pytest.fixture(scope="module")
def fed() -> list[Run]:
    return made(FedUCBVI(nu=100, bonus_scale=0.1))


@pytest.fixture(scope="module")
def wide() -> list[Run]:
    return made(FedUCBVI(nu=100, bonus_scale=0.2))


@pytest.fixture(scope="module")
def fedq() -> list[Run]:
    return made(FedQHoeffding())


def row(frame: pl.DataFrame, **wanted: object) -> dict[str, Any]:
    chosen = frame.filter(*(pl.col(name) == value for name, value in wanted.items()))
    return chosen.row(0, named=True)


def with_about(one: Run, **changes: Any) -> Run:
    return dataclasses.replace(one, about=dataclasses.replace(one.about, **changes))


def with_options(one: Run, **options: object) -> Run:
    return with_about(one, environment={**one.about.environment, **options})


def of_unknown_regret(one: Run) -> Run:
    return dataclasses.replace(
        one,
        records={
            **one.records,
            "regret": np.full_like(one.records["regret"], math.nan),
        },
    )


# ------------------------------------------------------------------------------------------------ one row a run
def test_runs_frame_has_one_row_per_run(fed: list[Run], fedq: list[Run]) -> None:
    assert runs_frame(fed + fedq).height == len(fed) + len(fedq)


def test_runs_frame_has_the_settings_of_each_run(fed: list[Run], fedq: list[Run]) -> None:
    runs = fed + fedq
    for one, cells in zip(runs, runs_frame(runs).iter_rows(named=True), strict=True):
        settings = {
            "algorithm": one.about.algorithm,
            "environment": "synthetic",
            "agents": 2,
            "episodes": 60,
            "seed": one.about.seed,
            "environment_seed": one.about.environment["seed"],
            **one.about.parameters,
        }
        assert {name: cells[name] for name in settings} == settings


def test_runs_frame_has_the_outcomes_of_each_run(fed: list[Run], fedq: list[Run]) -> None:
    runs = fed + fedq
    for one, cells in zip(runs, runs_frame(runs).iter_rows(named=True), strict=True):
        assert {name: cells[name] for name in outcomes(one)} == outcomes(one)
        assert cells["bytes"] == one.bytes_up + one.bytes_down


def test_a_parameter_that_a_run_does_not_have_is_null(fed: list[Run], fedq: list[Run]) -> None:
    assert runs_frame(fed + fedq)["c"].null_count() == len(fed)


def test_outcomes_have_the_names_of_the_runs_attributes(fed: list[Run]) -> None:
    """Only sums of both ways and figures of the problem have names that a run does not have."""
    other_names = {name for name in outcomes(fed[0]) if not hasattr(fed[0], name)}
    assert other_names == {"bytes", "optimal_value"}


def test_the_regret_is_equal_wherever_it_is_shown(fed: list[Run]) -> None:
    one = fed[0]
    assert outcomes(one)["regret"] == one.regret
    assert one.summary()["regret"] == one.regret
    assert results_of(one)["final_regret"] == one.regret
    assert one.to_frame()["cumulative_regret"][-1] == one.regret


def test_names_that_collide_get_their_owner_as_a_prefix(fed: list[Run]) -> None:
    cells = row(runs_frame([with_options(fed[0], delta=0.5, regret="low", states=7)]))
    assert cells["algorithm_delta"] == fed[0].about.parameters["delta"]
    assert cells["environment_delta"] == 0.5
    assert cells["environment_regret"] == "low"
    assert cells["states"] == 5
    assert cells["environment_states"] == 7


def test_options_equal_to_a_size_have_no_column(fed: list[Run]) -> None:
    frame = runs_frame([with_options(fed[0], delta=0.5)])
    assert "environment_agents" not in frame.columns
    assert "environment_horizon" not in frame.columns


def test_unknown_figures_are_null(fed: list[Run]) -> None:
    grid = run(FedUCBVI(nu=10), gridworld(agents=2), 20)
    frame = runs_frame([of_unknown_regret(fed[0]), grid])
    assert frame["regret"].to_list() == [None, grid.regret]


def test_lists_are_written_as_texts(fed: list[Run]) -> None:
    grid = run(FedUCBVI(nu=10), gridworld(agents=2), 20)
    assert runs_frame([fed[0], grid])["walls"].to_list() == [None, "[[1, 1]]"]


def test_values_of_several_kinds_are_written_as_texts(fed: list[Run]) -> None:
    frame = runs_frame([with_options(fed[0], vary="reward"), with_options(fed[0], vary=0.5)])
    assert frame["vary"].to_list() == ["reward", "0.5"]


def test_the_table_survives_csv(fed: list[Run], fedq: list[Run]) -> None:
    frame = runs_frame(fed + fedq)
    text = frame.write_csv()
    header = text.splitlines()[0].split(",")
    assert header == frame.columns
    assert all(name.replace("_", "").isalnum() and name == name.lower() for name in header)
    assert pl.read_csv(io.StringIO(text))["regret"].to_list() == frame["regret"].to_list()


@pytest.mark.full
def test_the_table_survives_pandas(fed: list[Run], fedq: list[Run]) -> None:
    pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    frame = runs_frame(fed + fedq)
    assert frame.to_pandas()["regret"].tolist() == frame["regret"].to_list()


def test_what_is_no_run_is_refused_with_a_hint(fed: list[Run]) -> None:
    for wrong, message in (
        ([], "empty"),
        ([("job", fed[0])], "load_runs gives pairs"),
        (["run"], "holds a str"),
    ):
        for use in (runs_frame, compare_runs):
            with pytest.raises(InputError, match=message):
                use(cast(list[Run], wrong))


# ------------------------------------------------------------------------------------------------------- labels
def test_labels_say_exactly_what_sets_groups_apart() -> None:
    both: list[dict[str, object]] = [{"algorithm": "a", "algorithm.scale": scale} for scale in (1, 2)]
    groups = [{**one, "agents": 2, "algorithm.ties": "first"} for one in both]
    groups.append({"algorithm": "b", "agents": 2, "algorithm.scale": 3})
    assert apart(groups) == [*both, {"algorithm": "b"}]
    worlds = [{"environment": name, "horizon": horizon} for name, horizon in (("x", 5), ("y", 9), ("y", 8))]
    assert list(names_of(worlds, "").values()) == ["x", "y, H = 9", "y, H = 8"]
    assert "\x1b" not in "".join(names_of([{"environment.map": text} for text in ("\x1b[31m", "\n")], "").values())
    long = [{"algorithm": "a", "environment.map": "x" * 50 + end} for end in "yz"]
    assert len(set(names_of(long, "").values())) == 2


# -------------------------------------------------------------------------------------------------- comparisons
def test_a_comparison_has_scipys_intervals_over_the_seeds_in_common(fed: list[Run], fedq: list[Run]) -> None:
    found = row(compare_runs(fedq + fed[:4], baseline="fedq-hoeffding").frame, group="Fed-UCBVI")
    x, y = ([one.regret for one in lot[:4]] for lot in (fed, fedq))
    ends = stats.ttest_rel(x, y).confidence_interval(0.95)
    assert (found["seeds"], found["pairs"]) == (4, 4)
    assert (found["difference_low"], found["difference_high"]) == pytest.approx((ends.low, ends.high))
    assert found["difference"] == pytest.approx(np.mean(x) - np.mean(y))
    assert found["ratio"] == pytest.approx(np.mean(x) / np.mean(y))
    assert found["ratio_of_medians"] == pytest.approx(np.median(x) / np.median(y))
    factor = np.exp(stats.t.ppf(0.975, 3) * stats.sem(x) / np.mean(x))
    assert (found["mean_low"], found["mean_high"]) == pytest.approx((np.mean(x) / factor, np.mean(x) * factor))
    assert found["deviation"] == pytest.approx(np.std(x, ddof=1))
    assert (found["failing"], found["failing_low"]) == (0, 0.0)
    assert found["failing_high"] == pytest.approx(stats.binomtest(0, 4).proportion_ci(0.95, "exact").high)
    assert found["lower_in"] == sum(a < b for a, b in zip(x, y, strict=True))
    assert found["seeds_needed"] == seeds_needed(found["difference"], float(np.std(np.subtract(x, y), ddof=1)))


def test_where_runs_fail_the_seeds_decide(fed: list[Run], fedq: list[Run], monkeypatch: pytest.MonkeyPatch) -> None:
    """Four seeds are far lower and one fails: Student's interval excludes 0, a sign test never does with five."""
    regrets = dict(
        zip(
            map(id, fed + fedq),
            [1.0, 1.0, 1.0, 1.0, 4.0, 50.0, 51.0, 52.0, 50.0, 51.0],
            strict=True,
        )
    )
    monkeypatch.setattr("fed_ucbvi.analysis.comparison._measure", lambda run, _: regrets[id(run)])
    comparison = compare_runs(fedq + fed, baseline="fedq-hoeffding")
    found = row(comparison.frame, group="Fed-UCBVI")
    assert found["difference_high"] < 0
    assert found["failing"] == 1
    assert found["outcome"] == "undecided"
    assert "Few runs carry the mean of Fed-UCBVI: compare the medians." in comparison.to_markdown()
    assert "1 of 5 [0.5, 72 %]" in comparison.to_markdown()
    assert row(compare_runs(fedq + fed, metric="value").frame, group="Fed-UCBVI")["failing"] is None


def test_pairs_do_not_depend_on_the_order_of_runs(fed: list[Run], fedq: list[Run]) -> None:
    one = compare_runs(fedq + fed).frame
    other = compare_runs(fedq[::-1] + fed).frame
    assert row(one, group="Fed-UCBVI") == pytest.approx(row(other, group="Fed-UCBVI"))


def test_runs_with_other_environment_seeds_form_no_pairs(fed: list[Run], fedq: list[Run]) -> None:
    elsewhere = [with_options(one, seed=77) for one in fed]
    found = row(compare_runs(fedq + elsewhere).frame, group="Fed-UCBVI")
    assert found["seeds"] == 5
    assert found["pairs"] is None
    assert found["difference"] is None
    assert found["outcome"] is None


def test_each_problem_is_compared_apart(fed: list[Run], fedq: list[Run]) -> None:
    more = [run(one, synthetic(agents=5), 60, seed=1) for one in (FedUCBVI(nu=100, bonus_scale=0.1), FedQHoeffding())]
    frame = compare_runs(fedq + fed + more, baseline="fedq-hoeffding").frame
    assert frame["problem"].to_list() == ["M = 2", "M = 2", "M = 5", "M = 5"]
    assert frame["group"].to_list() == [
        "FedQ-Hoeffding",
        "Fed-UCBVI",
        "Fed-UCBVI",
        "FedQ-Hoeffding",
    ]
    assert frame["pairs"].to_list() == [None, 5, 1, None]
    last = row(frame, problem="M = 5", group="Fed-UCBVI")
    assert last["outcome"] == "undecided"
    assert last["difference_low"] is last["mean_low"] is last["seeds_needed"] is None


@pytest.mark.parametrize("by", ["agents", "bonus_scale", "environment"])
def test_runs_can_be_compared_by_size_parameter_or_environment(by: str, fed: list[Run], wide: list[Run]) -> None:
    others = {
        "agents": lambda: made(FedUCBVI(nu=100, bonus_scale=0.1), agents=4),
        "bonus_scale": lambda: wide,
        "environment": lambda: made(FedUCBVI(nu=100, bonus_scale=0.1), states=6),
    }
    frame = compare_runs(fed + others[by](), by=by, metric="rounds").frame
    assert frame["group"].n_unique() == 2
    assert frame["pairs"].to_list() == [None, 5]
    assert frame["mean"][0] == np.mean([one.rounds for one in fed])


def test_a_group_equal_in_every_seed_is_called_equal(fed: list[Run]) -> None:
    same = [with_about(one, parameters={**one.about.parameters, "ties": "x"}) for one in fed]
    found = row(compare_runs(fed + same).frame, group="ties = x")
    assert found["outcome"] == "equal"
    assert found["difference"] == 0.0
    assert found["seeds_needed"] is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"by": "agent"}, "did you mean 'agents'"),
        ({"metric": "regrets"}, "did you mean 'regret'"),
        ({"metric": "complete"}, "unknown metric"),
        ({"baseline": "ucbvi"}, "unknown baseline"),
        ({"baseline": "first"}, "several groups fit"),
    ],
)
def test_unknown_names_are_refused(fed: list[Run], wide: list[Run], options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        compare_runs(fed + wide, **options)


def test_a_seed_that_a_group_has_twice_is_refused(fed: list[Run]) -> None:
    with pytest.raises(InputError, match="same seeds"):
        compare_runs([*fed, fed[0]])


def test_an_interrupted_run_is_not_compared(fed: list[Run]) -> None:
    with pytest.raises(InputError, match="interrupted"):
        compare_runs([dataclasses.replace(fed[0], complete=False)])


def test_a_run_of_unknown_regret_is_not_compared(fed: list[Run]) -> None:
    with pytest.raises(InputError, match="unknown"):
        compare_runs([of_unknown_regret(fed[0])])


def test_seeds_make_groups_also_where_eps_p_is_an_outcome() -> None:
    worlds = [riverswim(agents=2, spread=0.5, horizon=6, seed=seed) for seed in (1, 2)]
    runs = [run(FedUCBVI(nu=50), world, 60, seed=seed) for seed, world in enumerate(worlds, 1)]
    assert compare_runs(runs).frame["seeds"].to_list() == [2]


def two_machines(seed: int) -> list[MDP]:
    """An own problem, whose eps_p depends on the seed."""
    chances = np.random.default_rng(seed).uniform(0.3, 0.7, 2)
    rewards = [[0.0, 0.0], [1.0, 0.8]]
    return [MDP([[[1, 0], [0, 1]], [[p, 1 - p], [0, 1]]], rewards, initial=0, horizon=4) for p in chances]


def runs_on_own_problems(seeds: Sequence[int], algorithm: Algorithm[Any, Any]) -> list[Run]:
    return [run(algorithm, two_machines(seed), 30, seed=seed) for seed in seeds]


def test_ten_seeds_of_an_own_environment_are_one_comparison_of_ten_seeds() -> None:
    narrow = FedUCBVI(nu=50, bonus_scale=0.1)
    wide = FedUCBVI(nu=50)
    runs = [one for algorithm in (narrow, wide) for one in runs_on_own_problems(range(10), algorithm)]
    found = compare_runs(runs).frame
    assert found.select("seeds", "pairs").rows() == [(10, None), (10, 10)]


def test_computed_eps_p_separates_groups_where_by_names_it() -> None:
    runs = runs_on_own_problems(range(3), FedUCBVI(nu=50))
    assert compare_runs(runs, by="eps_p").frame["seeds"].to_list() == [1, 1, 1]


def test_chosen_eps_p_separates_groups_of_the_same_seeds() -> None:
    kernel = [[[0.9, 0.1]], [[0.0, 1.0]]]
    other = [[[0.5, 0.5]], [[0.5, 0.5]]]
    worlds = [
        Federation.mixture(kernel, [other], eps_p, rewards=[[1.0], [0.0]], initial=0, horizon=3)
        for eps_p in (0.1, 0.2)
    ]
    runs = [run(FedUCBVI(nu=50), world, 60, seed=seed) for world in worlds for seed in (1, 2)]
    assert compare_runs(runs).frame["seeds"].to_list() == [2, 2]


def test_place_drawn_by_a_hard_instance_separates_no_groups() -> None:
    runs = [run(FedUCBVI(nu=50), hard_instance(agents=2, seed=seed), 30, seed=seed) for seed in (1, 2)]
    assert compare_runs(runs).frame["seeds"].to_list() == [2]


# ------------------------------------------------------------------------------------------------------ exports
def test_a_markdown_table_has_all_rows(fed: list[Run], wide: list[Run], fedq: list[Run]) -> None:
    found = compare_runs(fedq + fed + wide)
    markdown = found.to_markdown()
    table = [line for line in markdown.splitlines() if line.startswith("|")]
    assert len(table) == 2 + found.frame.height
    assert len({line.count("|") for line in table}) == 1
    assert INTERVAL_NAME in markdown


def test_a_latex_table_escapes_signs(fed: list[Run], wide: list[Run], fedq: list[Run]) -> None:
    latex = compare_runs(fedq + fed + wide).to_latex()
    assert INTERVAL_NAME.replace("%", r"\%") in latex
    assert r"bonus\_scale = 0.1" in latex


def test_a_latex_table_has_as_many_cells_in_each_row_as_columns(
    fed: list[Run], wide: list[Run], fedq: list[Run]
) -> None:
    latex = compare_runs(fedq + fed + wide).to_latex()
    body = latex.split(r"\begin{tabular}{")[1].split(r"\end{tabular}")[0]
    columns, rows = body.split("}\n", 1)
    for line in rows.splitlines():
        if not line.endswith("rule"):
            assert line.count(" & ") == len(columns) - 1


def test_a_latex_table_has_the_rules_of_booktabs(fed: list[Run], fedq: list[Run]) -> None:
    lines = compare_runs(fedq + fed).to_latex().splitlines()
    rules = [line for line in lines if line.endswith("rule")]
    assert rules == [r"\toprule", r"\midrule", r"\bottomrule"]


def test_a_latex_table_has_its_label_after_its_caption(fed: list[Run], fedq: list[Run]) -> None:
    latex = compare_runs(fedq + fed).to_latex()
    assert 0 < latex.index(r"\caption") < latex.index(r"\label{tab:regret}")


def test_the_repr_of_a_comparison_is_short(fed: list[Run], fedq: list[Run]) -> None:
    found = compare_runs(fedq + fed)
    assert len(repr(found)) < 120
    assert "baseline FedQ-Hoeffding" in repr(found)


def test_a_comparison_is_a_table_in_html(fed: list[Run], fedq: list[Run]) -> None:
    table = ElementTree.fromstring(compare_runs(fedq + fed)._repr_html_())
    assert len(list(table.iter("td"))) == 2 * 10
    assert INTERVAL_NAME in "".join(table.itertext())


# -------------------------------------------------------------------------------------- chosen columns, own labels
def test_tables_have_the_columns_that_are_chosen_in_every_format(fed: list[Run], fedq: list[Run]) -> None:
    found = compare_runs(fed + fedq, labels={"fed-ucbvi": "ours_1"}, baseline="FedQ-Hoeffding")
    chosen = ["group", "mean", "deviation", "ratio_of_medians", "lower_in"]
    ours = row(found.frame, group="ours_1")
    lines = found.to_markdown(chosen).splitlines()
    assert lines[0] == "| group | mean regret | deviation | ratio of medians | lower in |"
    cells = [cell.strip() for cell in lines[2].strip("|").split("|")]
    assert cells[0] == "ours_1"
    assert float(cells[2].replace(",", "")) == pytest.approx(ours["deviation"], rel=1e-3)
    assert float(cells[3]) == pytest.approx(ours["ratio_of_medians"], rel=1e-3)
    assert cells[4] == f"{ours['lower_in']} of 5"
    latex = found.to_latex(chosen)
    assert r"\begin{tabular}{lrrrr}" in latex
    assert r"ours\_1 & " in latex
    assert "group & mean regret & deviation & ratio of medians & lower in" in latex
    written = pl.read_csv(io.StringIO(found.to_csv(chosen)))
    assert written.columns == [
        "group",
        "mean",
        "mean_low",
        "mean_high",
        "deviation",
        "ratio_of_medians",
        "lower_in",
    ]
    assert written["mean"].to_list() == found.frame["mean"].to_list()
    for text in (
        found.to_markdown(["group", "seeds"]),
        found.to_latex(["group", "seeds"]),
    ):
        assert "undecided" not in text
        assert "interval" not in text, "the caption speaks of what is there"
    with pytest.raises(InputError, match="unknown column 'means'"):
        found.to_latex(["means"])
    with pytest.raises(InputError, match="at least one column"):
        found.to_markdown([])


def test_a_group_is_called_by_its_label(fed: list[Run], wide: list[Run], fedq: list[Run]) -> None:
    def labelled(runs: list[Run], label: str) -> list[Run]:
        return [with_about(one, label=label) for one in runs]

    found = compare_runs([*fed, *labelled(wide, "wide"), *fedq])
    assert found.frame["group"].to_list() == ["Fed-UCBVI", "wide", "FedQ-Hoeffding"]
    found = compare_runs([*labelled(fed, "both"), *labelled(wide, "both"), *fedq])
    assert found.frame["group"].to_list()[:2] == [
        "both, bonus_scale = 0.1",
        "both, bonus_scale = 0.2",
    ]
    found = compare_runs(fed + wide, labels={"bonus_scale = 0.2": "more", "fed-ucbvi": "ours"})
    assert found.frame["group"].to_list() == ["bonus_scale = 0.1", "more"]
    assert found.title.startswith("ours on synthetic MDP")
    with pytest.raises(InputError, match="unknown algorithm or group 'less'"):
        compare_runs(fed + wide, labels={"less": "more"})


# ------------------------------------------------------------------------------------------------- curves as a table
def test_curves_have_one_row_per_group_and_number_of_episodes(fed: list[Run], wide: list[Run]) -> None:
    frame = curves_frame(fed + wide, [1, 20, 60])
    assert frame["group"].to_list() == ["bonus_scale = 0.1"] * 3 + ["bonus_scale = 0.2"] * 3
    assert frame["bonus_scale"].to_list() == [0.1] * 3 + [0.2] * 3
    assert frame["episodes"].to_list() == [1, 20, 60] * 2


@pytest.mark.parametrize("point", [1, 20, 60])
def test_the_figures_of_a_curve_are_those_of_numpy(fed: list[Run], wide: list[Run], point: int) -> None:
    frame = curves_frame(fed + wide, [1, 20, 60])
    for runs, scale in ((fed, 0.1), (wide, 0.2)):
        cells = row(frame, bonus_scale=scale, episodes=point)
        values = np.array([float(one.regret_at(point)) for one in runs])
        mean = values.mean()
        factor = np.exp(stats.t.ppf(0.975, 4) * stats.sem(values) / mean)
        quartiles = np.percentile(values, [25, 50, 75])
        expected = [mean, mean / factor, mean * factor, *quartiles]
        assert [cells[name] for name in FIGURES] == pytest.approx(expected)
        assert cells["runs"] == 5


def test_a_curve_ends_where_a_run_of_its_group_ends(fed: list[Run]) -> None:
    longer = made(FedUCBVI(nu=100, bonus_scale=0.1), episodes=90)[:1]
    frame = curves_frame(fed + longer, [60, 90], metric="rounds", labels={"T = 90": "long"})
    cells = frame.select("group", "planned_episodes", "episodes").rows()
    assert cells == [("T = 60", 60, 60), ("long", 90, 60), ("long", 90, 90)]


def test_the_curve_of_a_single_run_has_no_interval() -> None:
    (single,) = made(FedUCBVI(nu=100, bonus_scale=0.1), episodes=90)[:1]
    frame = curves_frame([single], [90], metric="rounds")
    assert frame["mean_low"].to_list() == [None]
    assert frame["mean"].to_list() == [single.rounds]


def test_the_default_curve_ends_at_the_last_episode(fed: list[Run]) -> None:
    usual = curves_frame(fed, metric="reward")
    assert usual["episodes"].to_list()[-1] == 60
    assert usual["mean"].to_list()[-1] == pytest.approx(np.mean([one.average_reward for one in fed]))


@pytest.mark.parametrize(
    ("points", "metric", "message"),
    [
        ([61], "regret", "no group of runs has played that many"),
        (None, "bytes", "unknown metric 'bytes'"),
        ([0], "regret", "a number of episodes"),
    ],
)
def test_curves_that_cannot_be_drawn_are_refused(
    fed: list[Run], points: list[int] | None, metric: str, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        curves_frame(fed, points, metric=metric)
