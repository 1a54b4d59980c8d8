"""The page of a report, as text and in a real browser without network: drawn, answering, asking for nothing."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import sample_report
from fed_ucbvi.report.content import Figure, Report
from fed_ucbvi.report.page import render_page
from fed_ucbvi.report.plots import plots_of
from fed_ucbvi.report.writing import write_report
from sample_report import NASTY

CHROMIUM, DRIVER = (shutil.which(name) for name in ("chromium", "chromedriver"))
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--host-resolver-rules=MAP * ~NOTFOUND",  # no network: no name leads anywhere
)
PATIENCE = 60
"""Seconds a browser on a busy machine may take to draw the page."""


@pytest.fixture(scope="module")
def report() -> Report:
    return sample_report.sample_report()


@pytest.fixture(scope="module")
def page(report: Report) -> str:
    return render_page(report)


def figures(report: Report) -> list[Figure]:
    return [figure for section in report.sections for figure in section.figures]


def without_scripts(page: str) -> str:
    return re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)


def test_the_page_refers_to_nothing_outside_but_the_files_beside_it(page: str) -> None:
    scripts = re.findall(r"<script[^>]*>(.*?)</script>", page, flags=re.DOTALL)
    (library,) = [script for script in scripts if "plotly.js v" in script[:100]]
    rest = page.replace(library, "")
    assert len(library) > 1e6
    assert re.findall(r"https?:|//[a-z]|url\(|@import|\bsrc=", rest.replace("// ", "")) == []
    links = set(re.findall(r'href="([^"]*)"', rest))
    assert all(re.fullmatch(r"data:,|#[\w-]+|(figures|tables)/[\w-]+\.\w+", link) for link in links), links
    assert "default-src 'none'" in rest


def test_the_same_report_gives_the_same_page(report: Report, page: str) -> None:
    assert render_page(sample_report.sample_report()) == page


def test_everything_from_data_is_escaped(page: str) -> None:
    visible = without_scripts(page)
    assert "window.broken" in visible
    assert "<b>" not in visible
    assert NASTY not in page
    for block in re.findall(r'<script type="application/json">(.*?)</script>', page, flags=re.DOTALL):
        assert not set("<>&") & set(block)
        json.loads(block)


def test_verdicts_have_a_sign_and_a_word_and_tables_their_intervals(page: str) -> None:
    visible = without_scripts(page)
    for sign, words in (("✓", "holds"), ("≈", "holds partly"), ("✗", "does not hold")):
        assert f"{sign}</span> {words}</span></td>" in visible
    assert ">312 [305, 319]<" in visible
    assert ">33,154<" in visible


def test_plotly_knows_every_word_it_is_given(report: Report) -> None:
    from plotly import graph_objects  # type: ignore[import-untyped]

    for figure in figures(report):
        for plot in plots_of(figure):
            graph_objects.Figure(data=plot["traces"], layout=plot["layout"])


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Chromium with an empty profile, without network, telling all it logs and all it requests."""
    if CHROMIUM is None or DRIVER is None:
        pytest.skip("no browser: install chromium and chromium-driver to test the page in one")
    webdriver = pytest.importorskip("selenium.webdriver")
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    try:
        driver.set_script_timeout(PATIENCE)
        yield driver
    finally:
        driver.quit()


class Opened:
    """The page in the browser, drawn, with what was logged and requested until then."""

    def __init__(self, browser: Any, path: Path) -> None:
        self.browser = browser
        browser.get("about:blank")
        self.resize(1200)
        browser.get_log("performance")
        browser.get_log("browser")
        browser.get(path.as_uri())
        self.wait("document.documentElement.dataset.plots === 'drawn'")

    def __call__(self, script: str, *arguments: Any) -> Any:
        return self.browser.execute_script(f"return {script}", *arguments)

    def wait(self, condition: str) -> None:
        script = f"const done = arguments[0], look = () => {condition} ? done() : setTimeout(look, 20); look();"
        self.browser.execute_async_script(script)

    def resize(self, width: int) -> None:
        metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def off(self, figure: str) -> list[set[str]]:
        """By panel, the full names of the curves that are switched off."""
        script = """[...document.querySelectorAll(`#figure-${arguments[0]} .plot`)].map(plot => plot.data
            .filter((trace, k) => trace.hovertemplate && !plot._fullData[k].visible).map(trace => trace.name))"""
        return [set(names) for names in self(script, figure)]

    def expect_off(self, figure: str, names: set[str]) -> None:
        """Wait until just these curves of a figure are off in every panel: plotly.js takes its time."""
        deadline = time.monotonic() + 10
        while any(off != names for off in self.off(figure)) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert self.off(figure) == [names] * len(self.off(figure))

    def button(self, figure: str, text: str) -> Any:
        buttons = self.browser.find_elements("css selector", f"#figure-{figure} .legend button")
        (found,) = [button for button in buttons if button.text == text]
        return found


@pytest.fixture(scope="module")
def opened(browser: Any, report: Report, tmp_path_factory: pytest.TempPathFactory) -> Opened:
    folder = tmp_path_factory.mktemp("report")
    write_report(report, folder)
    return Opened(browser, folder / "index.html")


def test_opened_from_a_file_without_network_it_logs_no_error_and_requests_nothing_else(opened: Opened) -> None:
    messages = [json.loads(entry["message"])["message"] for entry in opened.browser.get_log("performance")]
    sent = [message["params"] for message in messages if message["method"] == "Network.requestWillBeSent"]
    requested = [call["request"]["url"] for call in sent if not call["documentURL"].startswith("chrome")]
    assert [url for url in requested if not url.startswith(("data:", "blob:"))] == [opened.browser.current_url]
    assert opened.browser.get_log("browser") == []


def test_every_plot_is_drawn_with_all_its_traces(opened: Opened, report: Report) -> None:
    for figure in figures(report):
        expected = plots_of(figure)
        drawn = opened(
            """[...document.querySelectorAll(`#figure-${arguments[0]} .plot`)].map(plot => ({
                traces: plot.querySelectorAll('.scatterlayer .trace').length,
                curves: [...plot.querySelectorAll('.scatterlayer path.js-line, .scatterlayer path.point')]
                    .filter(path => (path.getAttribute('d') || '').length > 5).length,
                width: plot.querySelector('.main-svg').getBoundingClientRect().width,
                x: plot.querySelector('.xtitle').textContent,
                y: plot.querySelector('.ytitle').textContent,
                described: plot.getAttribute('aria-label'),
            }))""",
            figure.id,
        )
        assert [plot["traces"] for plot in drawn] == [len(plot["traces"]) for plot in expected]
        for plot, panel in zip(drawn, figure.panels, strict=True):
            assert plot["curves"] >= len(panel.series)
            assert plot["width"] > 200
            assert (plot["x"], plot["y"]) == (panel.x_label, panel.y_label)
            assert figure.title in plot["described"]
            assert figure.caption in plot["described"]


def test_plots_have_buttons_for_pictures_and_zoom_and_none_that_sends_data_away(opened: Opened) -> None:
    titles = opened("[...document.querySelectorAll('.modebar-btn')].map(button => button.dataset.title)")
    assert set(titles) == {"Download plot as a PNG", "Zoom", "Pan", "Reset axes"}


def test_nothing_from_data_became_part_of_the_page(opened: Opened) -> None:
    assert opened("window.broken") is None
    assert opened("document.querySelectorAll('main b, header b').length") == 0
    texts = opened(
        "[...document.querySelectorAll('h4, td, pre, #figure-environments button')].map(e => e.textContent)"
    )
    assert texts.count(NASTY) == 5
    provenance = opened("document.querySelector('#provenance pre').textContent")
    assert json.loads(provenance) == sample_report.sample_report().provenance
    ticks = opened("[...document.querySelectorAll('#figure-environments .xtick')].map(tick => tick.textContent)")
    assert NASTY.startswith(ticks[2].rstrip("…"))


def test_hovering_shows_name_and_exact_figures(opened: Opened) -> None:
    hover = """(() => { const plot = document.querySelectorAll(`#figure-${arguments[0]} .plot`)[0];
        plot.scrollIntoView();
        Plotly.Fx.hover(plot, [{curveNumber: arguments[1], pointNumber: arguments[2]}]);
        return plot.querySelector('.hoverlayer .nums').textContent; })()"""
    figure = sample_report.speed_up()
    bands = 2
    shown = opened(hover, figure.id, bands, 4)
    regret = f"{4000 * 20**-0.5:,.7f}".rstrip("0")
    assert "Fed-UCBVI" in shown
    assert "Agents M: 20" in shown
    assert f"Common regret: {regret[:9]}" in shown
    assert "[294.4271" in shown
    assert NASTY in opened(hover, "environments", 3, 0)
    assert "Environment: GridWorld" in opened(hover, "environments", 0, 0)


CURVES = {series.full_name for series in sample_report.many_curves().panels[0].series}


def curves(part: str) -> set[str]:
    return {name for name in CURVES if part in name.split(", ")}


@pytest.mark.parametrize("text", ["FedQ-Bernstein", "εₚ = 0.1"])
def test_a_click_in_the_legend_switches_a_name_or_a_variant_off_in_all_panels_and_on_again(
    opened: Opened, text: str
) -> None:
    button = opened.button("regret", text)
    opened.expect_off("regret", set())
    button.click()
    opened.expect_off("regret", curves(text))
    assert button.get_attribute("aria-pressed") == "false"
    drawn = "[...document.querySelectorAll('#figure-regret .plot')].map(p => p.querySelectorAll('.trace').length)"
    assert opened(drawn) == [2 * (len(CURVES) - len(curves(text)))] * 2
    assert opened.off("panels") == [set()] * 5
    button.click()
    opened.expect_off("regret", set())
    assert opened(drawn) == [2 * len(CURVES)] * 2


def test_a_double_click_leaves_one_name_alone_and_another_brings_all_back(opened: Opened) -> None:
    chains = pytest.importorskip("selenium.webdriver").ActionChains(opened.browser)
    button = opened.button("regret", "Fed-UCBVI")
    opened("arguments[0].scrollIntoView({block: 'center'})", button)
    for expected in (CURVES - curves("Fed-UCBVI"), set()):
        chains.double_click(button).perform()
        opened.expect_off("regret", expected)


def test_on_a_phone_panels_stand_below_each_other_and_nothing_sticks_out(opened: Opened) -> None:
    opened.resize(360)
    try:
        opened.wait(
            "[...document.querySelectorAll('.plot .main-svg')].every(e => e.getBoundingClientRect().right <= 360)"
        )
        assert opened("document.documentElement.scrollWidth <= window.innerWidth")
        tops = opened(
            "[...document.querySelectorAll('#figure-regret .panel')].map(p => p.getBoundingClientRect().top)"
        )
        assert tops[1] > tops[0] + 100
    finally:
        opened.resize(1200)


def test_after_all_this_still_no_error_is_logged(opened: Opened) -> None:
    assert opened.browser.get_log("browser") == []
