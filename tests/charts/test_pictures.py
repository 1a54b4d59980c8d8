"""Pictures of reports: sound files of every format, in which every text can be read."""

from __future__ import annotations

import io
import itertools
import re
from collections.abc import Sequence

import pytest
from PIL import Image

import sample_report
from fed_ucbvi.charts.panels import Panel, Series
from fed_ucbvi.charts.picture import FORMATS, POINTS, Picture
from fed_ucbvi.charts.vega import WIDTH
from fed_ucbvi.core.colours import BLUE
from fed_ucbvi.report.content import Figure
from figures import SAMPLES, one_panel
from matrices import in_turn
from svg_texts import overlapping, texts_of


def picture(figure: Figure) -> str:
    return Picture(figure.panels).svg


def words(svg: str) -> str:
    return " ".join(text.text for text in texts_of(svg))


def size(svg: str) -> tuple[float, float]:
    ((width, height),) = re.findall(r'<svg [^>]*viewBox="0 0 ([\d.]+) ([\d.]+)"', svg)
    return float(width), float(height)


@pytest.mark.parametrize("name", SAMPLES)
def test_a_picture_has_the_titles_of_panels_and_axes_but_not_the_claim(name: str) -> None:
    figure = SAMPLES[name]
    drawn = words(picture(figure))
    for panel in figure.panels:
        for text in (panel.title, panel.x_label, panel.y_label):
            assert text in drawn
    assert figure.title not in drawn


@pytest.mark.parametrize("name", SAMPLES)
def test_no_texts_overlap_or_leave_the_picture(name: str) -> None:
    assert overlapping(picture(SAMPLES[name])) == []


@pytest.mark.parametrize("panels", [1, 2, 3, 6])
def test_a_legend_of_many_long_names_takes_more_lines(panels: int) -> None:
    series = [Series(f"FedQ-EarlySettled number {k}", BLUE, [0, 1], [0.0, 1.0 + k]) for k in range(20)]
    panel = one_panel(series).panels[0]
    svg = picture(Figure("many", "Names", "", [panel] * panels))
    assert overlapping(svg) == []
    assert words(svg).count("FedQ-EarlySettled") == 20, "once for all panels"
    assert len({text.corners[0, 1] for text in texts_of(svg) if "FedQ" in text.text}) > 3


@pytest.mark.parametrize("count", [2, 4, 8, 20, 40])
def test_categories_with_long_names_do_not_overlap(count: int) -> None:
    names = [f"FedQ-EarlySettled number {k}" for k in range(count)]
    series = [Series("points", BLUE, names, [float(k) for k in range(count)], marker="circle", line=False)]
    svg = picture(one_panel(series))
    assert words(svg).count("FedQ-EarlySettled") == count
    assert overlapping(svg) == []


@pytest.mark.parametrize(
    ("x", "log", "panels"),
    in_turn(
        itertools.product(
            [
                [1, 2, 5, 10, 20, 50, 100, 200],
                range(1, 301),
                range(100, 3000),
                [20_000, 25_000, 1e6],
                range(0, 900_001, 30_000),
            ],
            [False, True],
        ),
        [1, 3, 4],
    ),
)
def test_numbers_along_an_axis_do_not_overlap_nor_are_they_cut(panels: int, x: Sequence[float], log: bool) -> None:
    x = [value for value in x if value > 0 or not log]
    series = [Series("A", BLUE, x, [float(k) for k in range(1, len(x) + 1)], marker="circle")]
    panel = Panel("", "along", "up, and a title that is long", series, x_log=log, y_log=log)
    svg = picture(Figure("numbers", "Numbers", "", [panel] * panels))
    assert overlapping(svg) == []


def test_the_legend_names_colours_then_dashes_then_bands_once_for_all_panels() -> None:
    drawn = [text.text for text in texts_of(picture(sample_report.many_curves()))]
    names, variants = ["Fed-UCBVI", "FedQ-Bernstein", "FedQ-Advantage"], [f"εₚ = {k}" for k in (0, 0.1, 0.2, 0.3)]
    assert drawn[:8] == [*names, *variants, "95 % interval of the mean"]
    assert drawn.count("Fed-UCBVI") == 1
    alone = Picture(one_panel([Series("", BLUE, [1, 2], [1, 2])]).panels).specification()
    assert len(alone["vconcat"]) == 1, "a series without a name has no legend"


@pytest.mark.parametrize("name", SAMPLES)
def test_files_of_every_format_are_sound_and_about_as_wide_as_a_page(name: str) -> None:
    picture = Picture(SAMPLES[name].panels)
    files = {format_: picture.content(format_) for format_ in ("svg", "png", "pdf")}
    width, height = size(files["svg"].decode())
    assert width == pytest.approx(WIDTH, rel=0.08)
    with Image.open(io.BytesIO(files["png"])) as image:
        image.load()
        assert image.size == pytest.approx((width * POINTS * 200 / 72, height * POINTS * 200 / 72), abs=2)
        colours = image.convert("RGB").getcolors(1 << 24)
    drawn = {series.colour for panel in SAMPLES[name].panels for series in panel.series}
    found = {"#{:02X}{:02X}{:02X}".format(*colour) for _, colour in colours or ()}  # type: ignore[misc]
    assert drawn <= found
    assert files["pdf"].startswith(b"%PDF-")
    (box,) = re.findall(rb"/MediaBox \[0 0 ([\d.]+) ([\d.]+)\]", files["pdf"])
    assert (float(box[0]), float(box[1])) == pytest.approx((width * POINTS, height * POINTS), abs=1)


@pytest.mark.slow
def test_the_same_figure_gives_the_same_files() -> None:
    one, other = (Picture(sample_report.many_curves().panels) for _ in range(2))
    assert all(one.content(format_) == other.content(format_) for format_ in FORMATS)
