"""The page of a report, as text and in a real browser without network: drawn, answering, asking for nothing.

At the width of a desk and of a phone, light and dark.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sample_report
from browser import OpenPage, open_browser
from fed_ucbvi.algorithms import ALGORITHMS
from fed_ucbvi.charts.panels import Board
from fed_ucbvi.charts.picture import Picture
from fed_ucbvi.charts.vega import DASHES, SCHEMA
from fed_ucbvi.core.colours import DARK_GREY, PALETTE, distinct_colours, on_dark
from fed_ucbvi.paper.report.content import PageContent
from fed_ucbvi.paper.report.writing import render_page, write_report
from matrices import in_turn
from sample_report import NASTY


@pytest.fixture(scope="module")
def report() -> PageContent:
    return sample_report.sample_report()


@pytest.fixture(scope="module")
def page(report: PageContent) -> str:
    return render_page(report)


def without_scripts(page: str) -> str:
    return re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)


def test_the_page_refers_to_nothing_outside_but_the_files_beside_it(page: str) -> None:
    scripts = re.findall(r"<script[^>]*>(.*?)</script>", page, flags=re.DOTALL)
    (library,) = [script for script in scripts if "window.vegaEmbed=" in script]
    rest = page.replace(library, "").replace(SCHEMA, "")
    assert 5e5 < len(library) < 1.5e6
    assert re.findall(r"https?:|//[a-z]|url\(|@import|\bsrc=", rest.replace("// ", "")) == []
    links = set(re.findall(r'href="([^"]*)"', rest))
    assert all(re.fullmatch(r"data:,|#[\w-]+|(figures|tables)/[\w-]+\.\w+", link) for link in links), links
    assert "default-src &#39;none&#39;" in rest
    assert "unsafe-eval" not in page.replace(library, "")


def test_everything_from_data_is_escaped(page: str) -> None:
    visible = without_scripts(page)
    assert "window.broken" in visible
    assert "<b>" not in visible
    assert NASTY not in page
    for block in re.findall(r'<script[^>]* type="application/json">(.*?)</script>', page, flags=re.DOTALL):
        assert not set("<>&") & set(block)
        json.loads(block)


def test_the_page_leads_with_what_the_paper_says_and_what_we_find_and_our_own_claims_apart(page: str) -> None:
    visible = without_scripts(page)
    lines = re.findall(r"<summary><span class=\"claim\">(.*?)</summary>", visible)
    texts = [re.sub(r"<[^>]*>", "", line) for line in lines]
    assert texts[:2] == ["Regret is least✓ holds 312 against 4,013", "Rounds grow as log T≈ holds partly"]
    assert "✗ does not hold" in texts[2]
    assert texts[3] == "Agents agree? undecided"
    marks = ('<section id="claims"', "Rounds grow as log T", '<section id="ours"', "Agents agree", "<figure")
    places = [visible.index(mark) for mark in marks]
    assert places == sorted(places)
    assert visible.index("The paper says") > places[0]
    assert all(text in visible for text in ("20 seeds would decide", ">312 [305, 319]<", ">33,154<"))


def test_a_report_without_verdicts_begins_with_its_figures(report: PageContent) -> None:
    sections = [replace(section, verdicts=()) for section in report.sections]
    visible = without_scripts(render_page(replace(report, sections=sections)))
    assert "claims" not in visible.split("<body>")[1].split("<figure")[0].lower()
    assert 'class="outcome' not in visible
    assert visible.count('<figure class="chart"') == 4


def test_of_a_long_paragraph_at_the_top_all_but_the_first_sentence_unfolds(report: PageContent) -> None:
    text = ["Short.", "Incomplete. " + "Missing: a; " * 99]
    visible = without_scripts(render_page(replace(report, text=text)))
    assert "<p>Short.</p>" in visible
    assert "<summary>Incomplete.</summary><p>Missing: a; Missing" in visible


@pytest.mark.parametrize(
    "colour", [*PALETTE, *distinct_colours([""] * 9), *(kind.colour for kind in ALGORITHMS.values()), DARK_GREY]
)
def test_every_colour_has_a_like_that_can_be_seen_on_dark_paper(colour: str) -> None:
    def luminance(text: str) -> float:
        parts = np.array([int(text[place : place + 2], 16) for place in (1, 3, 5)]) / 255
        linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
        return float(linear @ [0.2126, 0.7152, 0.0722])

    assert (luminance(on_dark(colour)) + 0.05) / (luminance("#16181B") + 0.05) >= 4.5


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Chromium with an empty profile, without network, telling all it logs and all it requests."""
    with open_browser(tmp_path_factory.mktemp("profile")) as driver:
        yield driver


class Opened(OpenPage):
    """The page in the browser, drawn, with what was logged and requested until then."""

    def __init__(self, browser: Any, path: Path) -> None:
        super().__init__(browser, path.as_uri())
        self.wait("document.documentElement.dataset.plots === 'drawn'")
        self.open_at_first = self("[...document.querySelectorAll('figure.chart details')].map(one => one.open)")
        self("document.querySelectorAll('figure.chart details').forEach(one => { one.open = true; })")
        self.wait("[...document.querySelectorAll('figure.chart')].every(one => one.dataset.drawn === 'yes')")

    def strokes(self, figure: str) -> list[list[str]]:
        """By panel, the colours and dashes of the curves that are drawn, in order."""
        script = """[...document.querySelectorAll(`#figure-${arguments[0]} .plot`)].map(plot =>
            [...plot.querySelectorAll('.mark-line path')].filter(path => (path.getAttribute('d') || '').length > 9)
            .map(path => path.getAttribute('stroke') + ' ' + (path.getAttribute('stroke-dasharray') || '')).sort())"""
        found: list[list[str]] = self(script, figure)
        return found

    def expect_strokes(self, figure: str, wanted: list[list[str]]) -> None:
        """Wait until just these curves are drawn."""
        deadline = time.monotonic() + 10
        while self.strokes(figure) != wanted and time.monotonic() < deadline:
            time.sleep(0.02)
        assert self.strokes(figure) == wanted

    def expect_no_request_and_no_error(self) -> None:
        requested = [url for url in self.requested() if not url.startswith(("data:", "blob:"))]
        assert requested == [self.browser.current_url]
        assert self.browser.get_log("browser") == []

    def button(self, figure: str, text: str) -> Any:
        buttons = self.browser.find_elements("css selector", f"#figure-{figure} .legend button")
        (found,) = [button for button in buttons if button.text == text]
        self.scroll_to(found)
        return found

    @contextmanager
    def at(self, width: int, scheme: str) -> Iterator[None]:
        """The window in this width, light or dark."""
        self.look(width, scheme)
        try:
            yield
        finally:
            self.look(1300, "light")

    def scroll_to(self, element: Any, block: str = "center") -> None:
        """Scroll, and wait until the browser has told the page of it."""
        script = """const [element, block, done] = arguments; element.scrollIntoView({block});
            requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done)));"""
        self.browser.execute_async_script(script, element, block)


@pytest.fixture(scope="module")
def opened(browser: Any, report: PageContent, tmp_path_factory: pytest.TempPathFactory) -> Opened:
    folder = tmp_path_factory.mktemp("report")
    write_report(report, folder)
    return Opened(browser, folder / "index.html")


def test_opened_from_a_file_without_network_it_logs_no_error_and_requests_nothing_else(opened: Opened) -> None:
    opened.expect_no_request_and_no_error()


def test_every_plot_is_drawn_with_all_its_curves_and_titles(opened: Opened, report: PageContent) -> None:
    for figure in report.figures:
        drawn = opened(
            """[...document.querySelectorAll(`#figure-${arguments[0]} .plot`)].map(plot => ({
                curves: [...plot.querySelectorAll('.mark-line path, .mark-symbol path')]
                    .filter(path => (path.getAttribute('d') || '').length > 9).length,
                width: plot.querySelector('svg').getBoundingClientRect().width,
                titles: [...plot.querySelectorAll('.role-axis-title')].map(e => e.textContent),
                described: plot.getAttribute('aria-label'),
            }))""",
            figure.id,
        )
        for plot, panel in zip(drawn, figure.panels, strict=True):
            assert plot["curves"] >= len(panel.series)
            assert plot["width"] > 200
            assert {panel.x_label, panel.y_label} <= set(plot["titles"])
            assert figure.title in plot["described"]
            assert figure.caption in plot["described"]


def test_of_each_section_the_first_figure_is_shown_and_the_others_unfold(opened: Opened, report: PageContent) -> None:
    first = [one is section.figures[0] for section in report.sections for one in section.figures]
    assert opened.open_at_first == first


@pytest.mark.parametrize("width", [1300, 420])
def test_the_contents_stay_in_sight(opened: Opened, width: int) -> None:
    with opened.at(width, "light"):
        opened.scroll_to(opened("document.querySelector('#provenance')"))
        box = opened("document.querySelector('nav').getBoundingClientRect().toJSON()")
        assert -1 <= box["top"] < 60
        links = opened("[...document.querySelectorAll('nav a')].map(one => one.textContent)")
        assert links[:3] == ["The paper's claims", "Our own claims", "Regret and rounds"]


def test_nothing_from_data_became_part_of_the_page(opened: Opened, report: PageContent) -> None:
    assert opened("window.broken") is None
    assert opened("document.querySelectorAll('main b, header b').length") == 0
    texts = opened("[...document.querySelectorAll('h4, td, #figure-environments button')].map(e => e.textContent)")
    assert texts.count(NASTY) == 3
    provenance = opened("document.querySelector('#provenance pre').textContent")
    assert json.loads(provenance) == report.provenance
    labels = "[...document.querySelectorAll('#figure-environments .role-axis-label text')]"
    ticks = opened(f"{labels}.map(e => e.textContent)")
    assert any(NASTY.startswith(tick.rstrip("…")) and len(tick) > 10 for tick in ticks)


TOOLTIP = "document.getElementById('tooltip')"
AXES = ("Agents M", "Common regret")
TEXTS = "[...document.querySelectorAll('.plot text, h1, h2, h3, summary, figcaption, .legend button')]"


@pytest.mark.parametrize(("figure", "width"), in_turn([["regret"], ["environments"], ["speed-up"]], [1300, 420]))
def test_the_nearest_point_is_ringed_and_tells_its_figures_in_sight(opened: Opened, width: int, figure: str) -> None:
    rings = "[...[...arguments[0].closest('svg').querySelectorAll('.mark-symbol')].at(-1).children]"
    with opened.at(width, "light"):
        plot = opened("document.querySelector(`#figure-${arguments[0]} .plot svg .background`)", figure)
        for block in ("start", "center", "end"):
            opened.scroll_to(plot, block)
            for place in ((0.01, 0.5), (0.4, 0.2), (0.8, 0.6), (0.99, 0.99)):
                opened.point_at(opened("document.documentElement"), 0, 0)
                opened.wait(f"{TOOLTIP}.hidden")
                opened.point_at(plot, *place)
                opened.wait(f"!{TOOLTIP}.hidden")
                box = opened(f"{TOOLTIP}.getBoundingClientRect().toJSON()")
                assert 0 <= box["left"] < box["right"] <= width
                assert 0 <= box["top"] < box["top"] + 30 < box["bottom"] <= 900
                opened.wait(f"{rings}.filter(ring => ring.getAttribute('opacity') === '1').length === 1", plot)
                if figure == "speed-up":
                    check_figures(opened(f"{TOOLTIP}.innerText"))


def check_figures(shown: str) -> None:
    """The tooltip names a curve, and the figures are those of one of its points."""
    assert re.search(r"Fed-UCBVI|FedQ-Bernstein|1/√M", shown)
    agents, regret = (float(re.findall(rf"{name}\s+([\d,.]+)", shown)[0].replace(",", "")) for name in AXES)
    curves = sample_report.speed_up().panels[0].series
    place = sample_report.AGENTS.index(int(agents))
    points = [series.y[place] for series in curves]
    assert min(abs(regret / value - 1) for value in points) < 1e-5


def test_a_tooltip_shows_texts_from_data_as_they_are(opened: Opened) -> None:
    plot = opened("document.querySelector('#figure-environments .plot svg .background')")
    opened.scroll_to(plot)
    opened.point_at(plot, 0.85, 0.5)
    opened.wait(f"!{TOOLTIP}.hidden")
    assert NASTY in opened(f"{TOOLTIP}.innerText")
    assert opened(f"{TOOLTIP}.querySelectorAll('b, script').length") == 0


def strokes(without: str = "") -> list[list[str]]:
    """What is drawn of the figure with many curves if one name or variant is hidden."""
    return [
        sorted(
            f"var(--colour-{one.colour[1:].upper()}) {','.join(f'{part:g}' for part in DASHES[one.dash])}"
            for one in panel.series
            if without not in (one.name, one.variant)
        )
        for panel in sample_report.many_curves().panels
    ]


@pytest.mark.parametrize("text", ["FedQ-Bernstein", "εₚ = 0.1"])
def test_a_click_in_the_legend_hides_a_name_or_variant_in_all_panels_and_shows_it(opened: Opened, text: str) -> None:
    button = opened.button("regret", text)
    opened.expect_strokes("regret", strokes())
    button.click()
    opened.expect_strokes("regret", strokes(without=text))
    assert button.get_attribute("aria-pressed") == "false"
    button.click()
    opened.expect_strokes("regret", strokes())


def test_pointing_at_a_name_in_the_legend_makes_the_other_curves_faint(opened: Opened) -> None:
    button = opened.button("regret", "Fed-UCBVI")
    opened.point_at(button, 0.5, 0.5)
    lines = "[...document.querySelectorAll('#figure-regret .mark-line path')]"
    faint = f"{lines}.filter(line => line.getAttribute('opacity') < 1)"
    opened.wait(f"{faint}.length === 16")
    assert not [colour for colour in opened(f"{faint}.map(p => p.getAttribute('stroke'))") if "0072B2" in colour]
    opened.point_at(opened("document.querySelector('#figure-regret h3')"), 0.5, 0.5)
    opened.wait(f"{faint}.length === 0")


def test_in_the_dark_page_and_figures_are_dark_with_light_texts_and_curves(opened: Opened) -> None:
    def looks() -> tuple[list[float], float, float, float]:
        rgb = "(e, what) => getComputedStyle(e)[what].match(/[0-9.]+/g).map(Number)"
        mean = f"(e, what) => ({rgb})(e, what).slice(0, 3).reduce((a, b) => a + b) / 3"
        paper = opened(f"({mean})(document.body, 'backgroundColor')")
        texts = opened(f"{TEXTS}.map(e => ({mean})(e, e.closest('svg') ? 'fill' : 'color'))")
        lines = ("#figure-speed-up .mark-line path:last-child", "#figure-regret .role-axis-grid line")
        reference, grid = (opened(f"({mean})(document.querySelector('{line}'), 'stroke')") for line in lines)
        return texts, paper, reference, grid

    texts, paper, _, grid = looks()
    assert paper == 255
    assert max(texts) < 130 < 200 < grid
    with opened.at(1300, "dark"):
        texts, paper, reference, grid = looks()
        assert paper < 40
        assert min(texts) > 140
        assert reference > 90
        assert grid < 80
        figures = "[...document.querySelectorAll('.plot svg, figure.chart')]"
        backgrounds = opened(f"{figures}.map(e => getComputedStyle(e).backgroundColor)")
        assert set(backgrounds) == {"rgba(0, 0, 0, 0)"}
        assert opened("document.querySelectorAll('.plot svg rect[fill=white]').length") == 0


@pytest.mark.parametrize("width", [1300, 700, 420])
def test_at_every_width_the_page_does_not_scroll_sideways_and_no_text_is_cut(opened: Opened, width: int) -> None:
    with opened.at(width, "light"):
        plots = "[...document.querySelectorAll('.plot')]"
        opened.wait(f"{plots}.every(e => e.querySelector('svg').clientWidth <= e.clientWidth)")
        cut = """[...document.querySelectorAll('.plot svg')].flatMap(svg => {
            const frame = svg.getBoundingClientRect();
            return [...svg.querySelectorAll('text')].filter(text => {
                const box = text.getBoundingClientRect();
                return text.getAttribute('opacity') !== '0' && (
                    box.left < frame.left - 1 || box.right > frame.right + 1
                    || box.top < frame.top - 1 || box.bottom > frame.bottom + 1);
            }).map(text => text.textContent);
        })"""
        opened.wait(f"{cut}.length === 0")
        assert opened("document.documentElement.scrollWidth <= window.innerWidth")
        panels = "[...document.querySelectorAll('#figure-regret .panel')]"
        tops = opened(f"{panels}.map(panel => panel.getBoundingClientRect().top)")
        assert (tops[1] > tops[0] + 100) == (width == 420)


def test_details_of_a_claim_unfold(opened: Opened) -> None:
    summary, *_ = opened.browser.find_elements("css selector", "#claims summary")
    shown = "document.querySelector('#claims dl').checkVisibility()"
    assert not opened(shown)
    opened.scroll_to(summary)
    summary.click()
    assert opened(shown)


def test_a_click_on_a_column_sorts_the_table_by_its_numbers_and_another_backwards(opened: Opened) -> None:
    opened("document.querySelector('#table-final details').open = true")
    column = "[...document.querySelectorAll('#table-final tbody tr')].map(row => row.cells[2].textContent)"
    assert opened(column) == ["62", "33,154", "750"]
    head = opened("document.querySelectorAll('#table-final th button')[2]")
    opened.scroll_to(head)
    head.click()
    assert opened(column) == ["62", "750", "33,154"]
    head.click()
    assert opened(column) == ["33,154", "750", "62"]


def test_after_all_this_still_no_error_is_logged(opened: Opened) -> None:
    assert opened.browser.get_log("browser") == []


def test_the_page_of_a_picture_is_drawn_and_answers_a_pointer_without_network(browser: Any, tmp_path: Path) -> None:
    squares = Board("Squares", ["below"], "", 1, 2, [[0.25, 0.75]])
    Picture([*sample_report.speed_up().panels, squares], f"Title {NASTY}").save(tmp_path / "picture.html")
    page = Opened(browser, tmp_path / "picture.html")
    page.expect_no_request_and_no_error()
    assert page("window.broken") is None
    assert f"Title {NASTY}" in page("[...document.querySelectorAll('svg text')].map(text => text.textContent)")
    told = "document.querySelector('#vg-tooltip-element.visible')"
    shade = "[...document.querySelectorAll('.mark-rect path')].find(one => /^rgb/.test(one.getAttribute('fill')))"
    for element, text in (
        ("[...document.querySelectorAll('.mark-symbol path')].at(-1)", r"Agents M"),
        (shade, r"row 0, column 0: 0\.25"),
    ):
        page.point_at(page("document.documentElement"), 0, 0)
        page.wait(f"!{told}")
        page.point_at(page(element), 0.5, 0.5)
        page.wait(told)
        assert re.search(text, page(f"{told}.innerText"))
