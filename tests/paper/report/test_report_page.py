"""The page of a report, as text and in a real browser without network.

At the width of a desk and of a phone, light and dark.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import sample_report
from browser import OpenPage, open_browser
from fed_ucbvi.core.colours import DARK_GREY, PALETTE, distinct_colours, on_dark
from fed_ucbvi.paper.report.content import PageContent, Section, Table
from fed_ucbvi.paper.report.files import table_frame
from fed_ucbvi.paper.report.page import render_page
from fed_ucbvi.paper.report.writing import write_report
from fed_ucbvi.results.looks import LOOKS
from sample_report import NASTY


@pytest.fixture(scope="module")
def report() -> PageContent:
    return sample_report.sample_report()


@pytest.fixture(scope="module")
def page(report: PageContent) -> str:
    return render_page(report)


def without_scripts(page: str) -> str:
    return re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)


def test_the_page_loads_nothing(page: str) -> None:
    assert re.findall(r"https?:|//[a-z]|url\((?!#)|@import|\bsrc=", page) == []


def test_links_stay_within_the_report(page: str) -> None:
    links = set(re.findall(r'href="([^"]*)"', page))
    assert all(re.fullmatch(r"data:,|#[\w-]+|(figures|tables)/[\w-]+\.\w+", link) for link in links), links


def test_the_policy_of_the_page_forbids_requests(page: str) -> None:
    assert "default-src &#39;none&#39;" in page


def test_the_policy_of_the_page_forbids_evaluation_of_texts(page: str) -> None:
    assert "unsafe-eval" not in page


def test_everything_from_data_is_escaped(page: str) -> None:
    visible = without_scripts(page)
    assert "window.broken" in visible
    assert "<b>" not in visible
    assert NASTY not in page


def test_ids_on_the_page_are_unique(page: str) -> None:
    ids = re.findall(r' id="([^"]*)"', page)
    assert len(ids) == len(set(ids))


def test_claims_of_the_paper_are_listed_with_their_outcomes(page: str) -> None:
    lines = re.findall(r"<summary><span class=\"claim\">(.*?)</summary>", without_scripts(page))
    texts = [re.sub(r"<[^>]*>", "", line) for line in lines]
    assert texts[:2] == ["Regret is least✓ holds 312 against 4,013", "Rounds grow as log T≈ holds partly"]
    assert "✗ does not hold" in texts[2]
    assert texts[3] == "Agents agree? undecided"


def test_claims_of_the_paper_come_before_our_own_which_come_before_figures(page: str) -> None:
    marks = ('<section id="claims"', "Rounds grow as log T", '<section id="ours"', "Agents agree", "<figure")
    places = [without_scripts(page).index(mark) for mark in marks]
    assert places == sorted(places)


@pytest.mark.parametrize("text", ["20 seeds would decide", ">312 [305, 319]<", ">33,154<"])
def test_the_page_has_the_texts_of_claims_in_full(page: str, text: str) -> None:
    assert text in without_scripts(page)


def grouped_table() -> Table:
    return Table(
        id="groups",
        title="Means",
        caption="",
        columns=["environment", "T", "M", "regret"],
        rows=[["GridWorld", 300, 2, 9.0], ["GridWorld", 300, 5, 4.0], ["DeepSea", 100, 2, 1.0]],
        heading_columns=2,
    )


@pytest.fixture(scope="module")
def page_with_groups() -> str:
    """The page of a report with one table whose rows are in two groups."""
    section = Section(id="all", title="All", tables=[grouped_table()])
    return render_page(PageContent("Groups", [], [section]))


def test_heading_columns_are_the_headings_of_groups_of_rows(page_with_groups: str) -> None:
    headings = re.findall(r'<th scope="rowgroup" colspan="2">(.*?)</th>', page_with_groups)
    assert headings == ["GridWorld, T = 300", "DeepSea, T = 100"]


def test_heading_columns_are_not_columns_of_the_page(page_with_groups: str) -> None:
    assert re.findall(r'<button type="button">(.*?)</button>', page_with_groups) == ["M", "regret"]


def test_heading_columns_are_columns_of_the_files() -> None:
    assert table_frame(grouped_table()).columns == ["environment", "T", "M", "regret"]


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
    "colour", [*PALETTE, *distinct_colours([""] * 9), *(look.colour for look in LOOKS.values()), DARK_GREY]
)
def test_every_colour_has_a_version_with_contrast_on_a_dark_page(colour: str) -> None:
    def luminance(text: str) -> float:
        parts = np.array([int(text[place : place + 2], 16) for place in (1, 3, 5)]) / 255
        linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
        return float(linear @ [0.2126, 0.7152, 0.0722])

    assert (luminance(on_dark(colour)) + 0.05) / (luminance("#16181B") + 0.05) >= 4.5


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Chromium with an empty profile, without network, with a log of messages and requests."""
    with open_browser(tmp_path_factory.mktemp("profile")) as driver:
        yield driver


class Opened(OpenPage):
    """The page in the browser, with all figures unfolded."""

    def __init__(self, browser: Any, path: Path) -> None:
        super().__init__(browser, path.as_uri())
        self.wait("document.readyState === 'complete'")
        self.open_at_first = self("[...document.querySelectorAll('figure.chart details')].map(one => one.open)")
        self("document.querySelectorAll('figure.chart details').forEach(one => { one.open = true; })")

    def expect_no_request_and_no_error(self) -> None:
        requested = [url for url in self.requested() if not url.startswith(("data:", "blob:"))]
        assert requested == [self.browser.current_url]
        assert self.browser.get_log("browser") == []

    @contextmanager
    def at(self, width: int, scheme: str) -> Iterator[None]:
        """The window in this width, light or dark."""
        self.look(width, scheme)
        try:
            yield
        finally:
            self.look(1300, "light")

    def scroll_to(self, element: Any, block: str = "center") -> None:
        """Scroll, and wait until the page has handled the event."""
        script = """const [element, block, done] = arguments; element.scrollIntoView({block});
            requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done)));"""
        self.browser.execute_async_script(script, element, block)


@pytest.fixture(scope="module")
def opened(browser: Any, report: PageContent, tmp_path_factory: pytest.TempPathFactory) -> Opened:
    folder = tmp_path_factory.mktemp("report")
    write_report(report, folder)
    return Opened(browser, folder / "index.html")


def test_a_page_opened_from_a_file_needs_no_network(opened: Opened) -> None:
    opened.expect_no_request_and_no_error()


def test_every_panel_is_drawn_with_its_labels(opened: Opened, report: PageContent) -> None:
    script = """[...document.querySelectorAll(`#figure-${arguments[0]} .plot svg`)].map(plot => ({
        width: plot.getBoundingClientRect().width,
        texts: [...plot.querySelectorAll('text')].map(text => text.textContent)}))"""
    for figure in report.figures:
        for plot, panel in zip(opened(script, figure.id), figure.panels, strict=True):
            assert plot["width"] > 200
            assert panel.x_label in plot["texts"]


TEXT_ALTERNATIVES = "[...document.querySelectorAll(`#figure-${arguments[0]} svg[role=img]`)].map(e => e.ariaLabel)"


def test_the_text_alternative_of_a_panel_has_the_title(opened: Opened, report: PageContent) -> None:
    for figure in report.figures:
        for text in opened(TEXT_ALTERNATIVES, figure.id):
            assert figure.title in text


def test_the_text_alternative_of_a_panel_has_the_caption(opened: Opened, report: PageContent) -> None:
    for figure in report.figures:
        for text in opened(TEXT_ALTERNATIVES, figure.id):
            assert figure.caption in text


def test_only_the_first_figure_of_each_section_is_shown_at_first(opened: Opened, report: PageContent) -> None:
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
    texts = opened(
        "[...document.querySelectorAll('h4, td, #figure-environments .legend span')].map(e => e.textContent)"
    )
    assert texts.count(NASTY) == 3
    provenance = opened("document.querySelector('#provenance pre').textContent")
    assert json.loads(provenance) == report.provenance


TEXTS = "[...document.querySelectorAll('.plot text, h1, h2, h3, summary, figcaption, .legend button')]"


class Look(NamedTuple):
    """Mean brightness, from 0 to 255, of parts of the page."""

    paper: float
    texts: list[float]
    curve: float
    grid: float


def look_of(opened: Opened) -> Look:
    rgb = "(e, what) => getComputedStyle(e)[what].match(/[0-9.]+/g).map(Number)"
    mean = f"(e, what) => ({rgb})(e, what).slice(0, 3).reduce((a, b) => a + b) / 3"
    black = "[style*='--colour-000000']"
    grid = "[style*='--rule']"
    stroke = f"({mean})(document.querySelector(arguments[0]), 'stroke')"
    return Look(
        paper=opened(f"({mean})(document.body, 'backgroundColor')"),
        texts=opened(f"{TEXTS}.map(e => ({mean})(e, e.closest('svg') ? 'fill' : 'color'))"),
        curve=opened(stroke, f"#figure-speed-up .plot {black}"),
        grid=opened(stroke, f"#figure-regret .plot {grid}"),
    )


def test_the_page_is_dark_on_white_in_the_light_scheme(opened: Opened) -> None:
    look = look_of(opened)
    assert look.paper == 255
    assert max(look.texts) < 130 < 200 < look.grid
    assert look.curve == 0


def test_the_page_is_light_on_dark_in_the_dark_scheme(opened: Opened) -> None:
    with opened.at(1300, "dark"):
        look = look_of(opened)
    assert look.paper < 40
    assert min(look.texts) > 140
    assert look.curve > 90
    assert look.grid < 80


CUT_TEXTS = """[...document.querySelectorAll('.plot svg')].flatMap(svg => {
    const frame = svg.getBoundingClientRect();
    return [...svg.querySelectorAll('text')].filter(text => {
        const box = text.getBoundingClientRect();
        return (
            box.left < frame.left - 1 || box.right > frame.right + 1
            || box.top < frame.top - 1 || box.bottom > frame.bottom + 1);
    }).map(text => text.textContent);
})"""


@pytest.mark.parametrize("width", [1300, 700, 420])
def test_no_text_of_a_figure_is_cut(opened: Opened, width: int) -> None:
    with opened.at(width, "light"):
        opened.wait(f"{CUT_TEXTS}.length === 0")


@pytest.mark.parametrize("width", [1300, 700, 420])
def test_the_page_does_not_scroll_sideways(opened: Opened, width: int) -> None:
    with opened.at(width, "light"):
        assert opened("document.documentElement.scrollWidth <= window.innerWidth")


@pytest.mark.parametrize("width", [1300, 700, 420])
def test_panels_stand_side_by_side_where_there_is_room(opened: Opened, width: int) -> None:
    panels = "[...document.querySelectorAll('#figure-regret .panel')]"
    with opened.at(width, "light"):
        tops = opened(f"{panels}.map(panel => panel.getBoundingClientRect().top)")
    assert (tops[1] > tops[0] + 100) == (width == 420)


def test_details_of_a_claim_unfold(opened: Opened) -> None:
    summary, *_ = opened.browser.find_elements("css selector", "#claims summary")
    shown = "document.querySelector('#claims dl').checkVisibility()"
    assert not opened(shown)
    opened.scroll_to(summary)
    summary.click()
    assert opened(shown)


ROUNDS = "[...document.querySelectorAll('#table-final tbody tr')].map(row => row.cells[2].textContent)"


def click_on_rounds(opened: Opened) -> None:
    opened("document.querySelector('#table-final details').open = true")
    head = opened("document.querySelectorAll('#table-final th button')[2]")
    opened.scroll_to(head)
    head.click()


@pytest.mark.parametrize(("clicks", "rounds"), [(1, ["62", "750", "33,154"]), (2, ["33,154", "750", "62"])])
def test_clicks_on_a_column_sort_the_table_up_then_down(opened: Opened, clicks: int, rounds: list[str]) -> None:
    opened("[...document.querySelectorAll('#table-final th')].forEach(th => { th.ariaSort = 'none'; })")
    for _ in range(clicks):
        click_on_rounds(opened)
    assert opened(ROUNDS) == rounds


def test_clicks_log_no_error(opened: Opened) -> None:
    assert opened.browser.get_log("browser") == []
