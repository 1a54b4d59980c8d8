"""Figures: the style sheet, sizes, legends, files, and matplotlib's settings, which stay the user's."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from PIL import Image

from fed_ucbvi import InputError
from fed_ucbvi.charts.figures import (
    STYLE,
    Panels,
    figure_content,
    figure_legend,
    figure_style,
    given_panels,
    new_panels,
    one_axes,
    save_figure,
    set_heading,
)
from fed_ucbvi.charts.picture_files import FORMATS, PNG_DPI, check_size
from fed_ucbvi.core.colours import PALETTE
from picture_texts import texts_of

ENDS = {"svg": b"</svg>", "png": b"IEND\xaeB`\x82", "pdf": b"%%EOF"}


@pytest.fixture
def panels() -> Panels:
    with figure_style():
        made = new_panels(2, columns=2)
        made[0].plot([1, 2], [3, 4], label="first")
        made[1].plot([1, 2], [4, 3], label="second")
    return made


def test_the_style_sheet_has_the_colours_of_the_palette() -> None:
    with figure_style():
        cycle = [to_hex(colour).upper() for colour in mpl.rcParams["axes.prop_cycle"].by_key()["color"]]
    assert cycle == list(PALETTE)


def test_matplotlib_knows_the_style_sheet_by_its_name() -> None:
    with mpl.style.context(STYLE):
        assert mpl.rcParams["svg.hashsalt"] == "fed-ucbvi"


def test_saving_a_figure_leaves_the_settings_of_the_user(panels: Panels, tmp_path: Path) -> None:
    before = dict(mpl.rcParams)
    panels.save(tmp_path / "picture.svg")
    assert dict(mpl.rcParams) == before


def test_pyplot_is_not_imported() -> None:
    program = (
        "import io, sys; from fed_ucbvi.charts.figures import *; panels = new_panels(1, columns=1);"
        "figure_content(panels.figure, 'png'); sys.exit('matplotlib.pyplot' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@pytest.mark.parametrize("size", [(6.5, 3.0), (10.0, 4.25)])
def test_a_png_has_the_requested_size_in_inches(size: tuple[float, float]) -> None:
    figure = new_panels(1, columns=1, size=size).figure
    with Image.open(io.BytesIO(figure_content(figure, "png"))) as image:
        assert image.size == (round(PNG_DPI * size[0]), round(PNG_DPI * size[1]))
        assert image.info["dpi"] == pytest.approx((PNG_DPI, PNG_DPI), rel=1e-3)


def test_an_svg_has_the_requested_size_in_points() -> None:
    figure = new_panels(1, columns=1, size=(6.5, 3.0)).figure
    svg = figure_content(figure, "svg").decode()
    assert re.findall(r'width="([\d.]+)pt" height="([\d.]+)pt"|height="([\d.]+)pt".*width="([\d.]+)pt"', svg)
    assert 'viewBox="0 0 468 216"' in svg


@pytest.mark.parametrize("format_", FORMATS)
def test_the_same_figure_gives_the_same_bytes(format_: str) -> None:
    contents = set()
    for _ in range(2):
        with figure_style():
            figure = new_panels(1, columns=1).figure
            figure.axes[0].plot(np.arange(5), marker="o")
        contents.add(figure_content(figure, format_))
    assert len(contents) == 1


@pytest.mark.parametrize("format_", FORMATS)
def test_a_file_of_every_format_is_whole(panels: Panels, tmp_path: Path, format_: str) -> None:
    path = tmp_path / "new" / f"picture.{format_}"
    panels.save(path)
    assert path.read_bytes().strip().endswith(ENDS[format_])


def test_a_file_that_cannot_be_written_leaves_the_earlier_one(
    panels: Panels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: Path, content: bytes) -> None:
        path.touch()
        raise OSError(28, "No space left on device")

    picture = tmp_path / "run.svg"
    picture.write_bytes(b"an earlier picture")
    monkeypatch.setattr(Path, "write_bytes", fail)
    with pytest.raises(OSError, match="No space left"):
        save_figure(panels.figure, picture)
    assert list(tmp_path.iterdir()) == [picture]
    assert picture.read_text() == "an earlier picture"


@pytest.mark.parametrize("name", ["run.jpg", "run", "run.png.txt", "run.html"])
def test_other_kinds_of_files_are_refused(panels: Panels, tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match=r"must end in \.png, \.svg or \.pdf"):
        panels.save(tmp_path / name)


def test_a_folder_is_refused(panels: Panels, tmp_path: Path) -> None:
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(InputError, match="it is a folder"):
        panels.save(tmp_path / "folder.png")


@pytest.mark.parametrize("size", [(3,), (0.0, 3.0), (3.0, float("nan"))])
def test_sizes_that_are_not_two_lengths_are_refused(size: tuple[float, float]) -> None:
    with pytest.raises(InputError, match="inches"):
        check_size(size)


def test_given_axes_are_returned_in_reading_order() -> None:
    figure = Figure()
    axes = figure.subplots(2, 2)
    assert given_panels(axes, 4) == tuple(axes.ravel())


def test_too_few_axes_are_refused() -> None:
    axes = Figure().subplots(1, 2)
    with pytest.raises(InputError, match="axes must be 3 matplotlib axes, one for each panel, got 2"):
        given_panels(axes, 3)


def test_one_given_axes_is_used() -> None:
    ax = Figure().add_subplot()
    assert one_axes(ax) is ax


def test_the_legend_of_a_figure_has_the_labels_of_all_panels(panels: Panels) -> None:
    figure_legend(panels)
    (legend,) = panels.figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["first", "second"]


def test_a_label_of_several_panels_is_in_the_legend_once() -> None:
    panels = new_panels(2, columns=2)
    for ax in panels:
        ax.plot([1, 2], label="both")
    figure_legend(panels)
    assert [text.get_text() for text in panels.figure.legends[0].get_texts()] == ["both"]


def test_texts_are_not_read_as_tex(panels: Panels) -> None:
    nasty = "<b>$\\bad{$ and $x$"
    set_heading(panels, nasty)
    assert nasty in texts_of(panels.figure)


def test_control_characters_are_not_drawn(panels: Panels) -> None:
    set_heading(panels, "red \x1b[31m")
    assert b"\x1b" not in figure_content(panels.figure, "svg")


def test_a_notebook_shows_panels_at_their_size(panels: Panels) -> None:
    png, about = panels._repr_png_()
    with Image.open(io.BytesIO(png)) as image:
        assert image.format == "PNG"
    assert about["width"] == round(96 * panels.figure.get_figwidth())


def test_panels_are_named_by_their_titles() -> None:
    panels = new_panels(2, columns=2)
    panels[0].set_title("Regret", loc="left")
    assert repr(panels) == "<Panels: Regret, untitled>"
