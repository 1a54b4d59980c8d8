"""Files of reports: all of them are written or none, others stay, and the data are those of the figures."""

from __future__ import annotations

import json
import os
import re
import sys
from dataclasses import asdict, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import sample_report
from commands import executed
from fed_ucbvi import InputError
from fed_ucbvi.core.colours import BLUE
from fed_ucbvi.paper.report import files, writing
from fed_ucbvi.paper.report.content import Cell, Figure, Outcome, PageContent, Section, Table, Verdict
from fed_ucbvi.paper.report.files import figure_frame, table_frame
from fed_ucbvi.paper.report.page import cell_text
from fed_ucbvi.paper.report.panels import Panel, Series
from fed_ucbvi.paper.report.writing import FORMAT, write_report
from fed_ucbvi.results.statistics import Estimate

VERDICT = Verdict("It grows", "Figure 1", "1 to 2", "holds if it grows", "holds")


def small(*ids: str, tables: tuple[str, ...] = ()) -> PageContent:
    panels = [Panel("", "x", "y", [Series("A", BLUE, [1, 2], [1, 2])])]
    rows = [[1]]
    figures = [Figure(id_, "Up", "", panels) for id_ in ids]
    columns = [Table(id_, "Table", "", ["a"], rows) for id_ in tables]
    return PageContent("Small", [], [Section("all", "All", [], [VERDICT], figures, columns)])


def with_table(columns: list[str], rows: list[list[Cell]]) -> PageContent:
    return PageContent("r", [], [Section("s", "S", tables=[Table("t", "", "", columns, rows)])])


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a report with two figures and a table."""
    write_report(small("a", "b", tables=("t",)), tmp_path / "new" / "report")
    return tmp_path / "new" / "report"


def test_a_report_consists_of_a_page_with_verdicts_figures_tables(folder: Path) -> None:
    names = {"index.html", "verdicts.json", "tables/t.csv", "tables/t.parquet", "manifest.json"}
    names |= {f"figures/{id_}.{kind}" for id_ in "ab" for kind in ("svg", "png", "pdf", "parquet")}
    assert set(contents(folder)) == names


def test_the_files_of_a_report_are_returned(tmp_path: Path) -> None:
    written = write_report(small("a"), tmp_path)
    assert {str(path.relative_to(tmp_path)) for path in written} == set(contents(tmp_path)) - {"manifest.json"}


def test_progress_counts_the_figures(tmp_path: Path) -> None:
    done: list[tuple[int, int]] = []
    write_report(small("a", "b"), tmp_path, lambda *count: done.append(count))
    assert done == [(1, 2), (2, 2)]


def test_the_manifest_names_the_format(folder: Path) -> None:
    assert json.loads((folder / "manifest.json").read_text())["format"] == FORMAT


def test_verdicts_are_written_as_json(folder: Path) -> None:
    (verdict,) = json.loads((folder / "verdicts.json").read_text())
    assert verdict == {"section": "all", **asdict(VERDICT), "open": []}


@pytest.mark.parametrize(("name", "start"), [("a.png", b"\x89PNG"), ("a.pdf", b"%PDF-"), ("a.svg", b"<?xml")])
def test_figures_are_files_of_their_format(folder: Path, name: str, start: bytes) -> None:
    assert (folder / "figures" / name).read_bytes().startswith(start)


def test_headings_count_verdicts_with_the_verb_in_the_plural(tmp_path: Path) -> None:
    outcomes: list[Outcome] = ["holds", "holds", "holds partly", "holds partly", "does not hold"]
    verdicts = [replace(VERDICT, outcome=outcome) for outcome in outcomes]
    write_report(PageContent("Claims", [], [Section("all", "All", [], verdicts)]), tmp_path / "report")
    page = (tmp_path / "report" / "index.html").read_text(encoding="utf-8")
    (heading,) = re.findall(r'<h2 id="claims-title">(.*?)</h2>', page)
    assert re.sub(r"<[^>]*>", "", heading).endswith(": 2 hold, 2 hold partly, 1 does not hold")


def one_figure() -> PageContent:
    """A section of the sample report, with a small figure in place of its own."""
    report = sample_report.sample_report()
    return replace(report, sections=[replace(report.sections[1], figures=small("a").figures)])


@pytest.mark.full
def test_the_same_report_gives_the_same_bytes_in_another_process(tmp_path: Path) -> None:
    write_report(one_figure(), tmp_path / "here")
    code = "import sys, pathlib, test_report_writing as t\nt.write_report(t.one_figure(), pathlib.Path(sys.argv[1]))"
    paths = os.pathsep.join(filter(None, sys.path))
    ended = executed(code, tmp_path / "there", cwd=tmp_path, env={"PYTHONHASHSEED": "7", "PYTHONPATH": paths})
    assert ended.returncode == 0, ended.stderr
    assert contents(tmp_path / "here") == contents(tmp_path / "there")


@pytest.fixture
def replaced(tmp_path: Path) -> Path:
    """The folder of a report that replaced another one, beside files of somebody else."""
    write_report(small("old", "both", tables=("gone",)), tmp_path)
    (tmp_path / "figures" / "mine.png").write_bytes(b"mine")
    (tmp_path / "notes.txt").write_text("mine")
    write_report(small("both", "new"), tmp_path)
    return tmp_path


def test_files_of_an_earlier_report_are_replaced(replaced: Path) -> None:
    names = set(contents(replaced))
    assert {"figures/both.png", "figures/new.pdf", "manifest.json"} <= names
    assert not any("old" in name or "gone" in name or "partial" in name for name in names)


def test_files_of_somebody_else_are_not_touched(replaced: Path) -> None:
    assert (replaced / "figures" / "mine.png").read_bytes() == b"mine"
    assert (replaced / "notes.txt").read_text() == "mine"


def test_the_manifest_lists_the_files_of_the_report_only(replaced: Path) -> None:
    listed = set(json.loads((replaced / "manifest.json").read_text())["files"])
    assert listed == set(contents(replaced)) - {"figures/mine.png", "notes.txt", "manifest.json"}


@pytest.mark.parametrize(
    ("file", "text", "folder", "message"),
    [
        ("index.html", "my own page", "", r"index\.html exists and is not an earlier report's"),
        ("manifest.json", '{"format": "fed-ucbvi/run"}', "", "fed-ucbvi/run"),
        ("file", "", "file", "not a folder"),
    ],
)
def test_only_reports_are_overwritten(tmp_path: Path, file: str, text: str, folder: str, message: str) -> None:
    (tmp_path / file).write_text(text)
    with pytest.raises(InputError, match=message):
        write_report(small("a"), tmp_path / folder)
    assert contents(tmp_path) == {file: text.encode()}


def test_a_manifest_cannot_make_files_elsewhere_vanish(tmp_path: Path) -> None:
    folder = tmp_path / "report"
    folder.mkdir()
    (tmp_path / "precious.csv").write_text("1")
    (folder / "precious.csv").write_text("2")
    listed = ["../precious.csv", "precious.csv", str(tmp_path / "precious.csv"), "figures/../../precious.csv", 7]
    (folder / "manifest.json").write_text(json.dumps({"format": FORMAT, "files": listed}))
    write_report(small("a"), folder)
    assert (tmp_path / "precious.csv").read_text() == "1"
    assert (folder / "precious.csv").read_text() == "2"


@pytest.mark.parametrize(
    ("module", "fails"),
    [
        (writing, "render_page"),
        (writing, "FigureFiles"),
        (files, "figure_frame"),
    ],
)
def test_a_report_that_fails_leaves_the_earlier(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: ModuleType, fails: str
) -> None:
    def fail(*arguments: Any) -> None:
        raise OSError(28, "No space left on device")

    write_report(small("a"), tmp_path)
    before = contents(tmp_path)
    monkeypatch.setattr(module, fails, fail)
    with pytest.raises(OSError, match="No space left"):
        write_report(small("a", "b"), tmp_path)
    assert contents(tmp_path) == before


def test_an_interrupted_report_is_completed_by_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_report(small("old"), tmp_path)
    move = Path.replace

    def fail(path: Path, target: Path) -> Path:
        if target.name == "new.parquet":
            raise OSError(5, "Input/output error")
        return move(path, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", fail)
        with pytest.raises(OSError, match="Input/output"):
            write_report(small("new"), tmp_path)
    write_report(small("new"), tmp_path)
    assert not any("old" in name or "partial" in name for name in contents(tmp_path))


@pytest.mark.parametrize(
    ("report", "message"),
    [
        (small("a", "a"), "two figures have the id 'a'"),
        (small("a", "A"), "two figures have the id 'A'"),
        (small("a", tables=("t", "t")), "two tables have the id 't'"),
        (PageContent("r", [], [Section("s", "S"), Section("s", "S")]), "two sections have the id 's'"),
        (small("../a"), "cannot name a file"),
        (small(""), "cannot name a file"),
        (
            PageContent("r", [], [Section("s", "S", [], [Verdict("c", "p", "m", "r", "true")])]),  # type: ignore[arg-type]
            "unknown outcome 'true'",
        ),
        (replace(small("a"), provenance={"x": float("nan")}), "provenance"),
        (replace(small("a"), provenance={"x": object()}), "provenance"),
        (with_table([], []), "table 't' has no columns"),
        (with_table(["a", "a"], []), "two columns of one name"),
        (with_table(["a", "b"], [[1]]), "row 0: 1 cells for 2 columns"),
        (with_table(["a"], [[float("nan")]]), "row 0, column 'a': nan is not finite"),
        (with_table(["a"], [[Estimate(1.0, float("-inf"), 2.0)]]), "-inf is not finite"),
        (with_table(["a", "a low"], [[Estimate(1.0, 0.0, 2.0), 1]]), "column 'a low'"),
    ],
)
def test_a_report_that_cannot_be_written_is_refused_before(tmp_path: Path, report: PageContent, message: str) -> None:
    with pytest.raises(InputError, match=message):
        write_report(report, tmp_path / "report")
    assert list(tmp_path.iterdir()) == []


def test_control_characters_from_data_reach_no_file_raw(tmp_path: Path) -> None:
    bad = "a\x00b\x1b[31mc\x07\x7f\x9b\u202e\ud800"
    shown = r"a\x00b\x1b[31mc\x07\x7f\x9b\u202e\ud800"
    series = Series(bad, BLUE, [bad, "plain"], [1, 2], [0, 1], [2, 3], variant=bad, band=bad, marker="cross")
    verdict = Verdict(bad, bad, bad, bad, "holds", bad, bad, bad)
    drawn = Panel(bad, bad, bad, [series])
    tables = [Table("t", bad, bad, [bad], [[bad]])]
    section = Section("s", bad, [bad], [verdict], [Figure("f", bad, bad, [drawn])], tables)
    write_report(PageContent(bad, [bad], [section], {bad: [bad]}), tmp_path)
    for name in ("index.html", "verdicts.json", "tables/t.csv"):
        text = (tmp_path / name).read_text(encoding="utf-8")
        assert (json.dumps(shown)[1:-1] if name.endswith("json") else shown) in text
        assert not set("\x00\x1b\x07\x7f\x9b\u202e") & set(text)


def test_packages_for_drawing_are_imported_only_when_a_report_is_written() -> None:
    code = (
        "import sys, fed_ucbvi, fed_ucbvi.paper.report.writing\n"
        "sys.exit(str(sorted({'matplotlib', 'jinja2', 'polars'} & set(sys.modules))))"
    )
    assert executed(code, env={"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}).stderr.strip() == "[]"


@pytest.mark.parametrize(
    "figure", [sample_report.many_curves(), sample_report.speed_up(), sample_report.by_environment()]
)
def test_the_data_of_a_figure_are_its_points(figure: Figure) -> None:
    frame = figure_frame(figure)
    expected = []
    for panel in figure.panels:
        for series in panel.series:
            unknown: Any = [None] * len(series.x)
            points = zip(series.x, series.y, series.low or unknown, series.high or unknown, strict=True)
            expected += [(panel.title, series.name, series.variant or None, *point) for point in points]
    assert frame.columns == ["panel", "series", "variant", "x", "y", "low", "high"]
    assert frame.rows() == expected


def frame_of_series(series: Series) -> pl.DataFrame:
    panel = Panel("", "", "", [series])
    return figure_frame(Figure("f", "", "", [panel]))


def test_a_series_can_have_numpy_arrays() -> None:
    lists = Series(name="A", colour=BLUE, x=[1, 2], y=[0.5, 0.25], low=[0.1, 0.2], high=[0.6, 0.3])
    arrays: dict[str, Any] = {name: np.array(getattr(lists, name)) for name in ("x", "y", "low", "high")}
    assert_frame_equal(frame_of_series(lists), frame_of_series(replace(lists, **arrays)))


@pytest.fixture
def frame() -> pl.DataFrame:
    """The data of a table with intervals, numbers, texts, and a column of both."""
    columns = ["name", "regret", "rounds", "slope", "mixed"]
    rows: list[list[Cell]] = [
        ["a", Estimate(1.5, 1.0, 2.0), 3, 0.5, 7],
        ["b", 2.5, None, 2, "none"],
    ]
    return table_frame(Table("t", "", "", columns, rows))


def test_a_column_with_intervals_is_followed_by_their_ends(frame: pl.DataFrame) -> None:
    assert frame.columns == ["name", "regret", "regret low", "regret high", "rounds", "slope", "mixed"]
    assert frame.select("regret", "regret low", "regret high").rows() == [(1.5, 1.0, 2.0), (2.5, None, None)]


def test_a_column_of_whole_numbers_has_integers(frame: pl.DataFrame) -> None:
    assert frame.schema["rounds"] == pl.Int64
    assert frame["rounds"].to_list() == [3, None]


def test_a_column_of_whole_numbers_with_decimals_has_floats(frame: pl.DataFrame) -> None:
    assert frame["slope"].to_list() == [0.5, 2.0]


def test_a_column_of_texts_with_numbers_has_texts(frame: pl.DataFrame) -> None:
    assert frame["mixed"].to_list() == ["7", "none"]


def test_a_table_without_rows_has_its_columns() -> None:
    assert table_frame(Table("t", "", "", ["name"], [])).shape == (0, 1)


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        (Estimate(312.04, 304.9, 319.2), "312 [305, 319]"),
        (Estimate(0.001234, 0.001194, 0.001274), "0.001234 [0.001194, 0.001274]"),
        (Estimate(123456.7, 120000.0, 126913.4), "123,457 [120,000, 126,913]"),
        (Estimate(5.0, 5.0, 5.0), "5.000"),
        (Estimate(15.72, 15.7199999999, 15.7200000001), "15.7200"),
        (Estimate(-1.0, -3.0, 1.0), "-1.0 [-3.0, 1.0]"),
        (0.0, "0"),
        (0.5, "0.5"),
        (1e-9, "1e-09"),
        (123456.7, "123,457"),
        (np.int64(1234), "1,234"),
        (True, "yes"),
    ],
)
def test_cells_have_the_digits_of_their_intervals(cell: Cell, text: str) -> None:
    assert cell_text(cell) == text
