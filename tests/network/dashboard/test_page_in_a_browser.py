"""The page in a real browser: on a phone, in the dark, fed fast, with its server gone and back, of a federation."""

from __future__ import annotations

import itertools
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from browser import OpenPage, open_browser
from fed_ucbvi import FedUCBVI, gridworld, run
from fed_ucbvi.network.dashboard.server import SECONDS_BETWEEN, PageServer
from fed_ucbvi.network.dashboard.state import LiveState, Subject
from federation_processes import SERVER, Processes
from rounds import made_up_rounds

SUBJECT = Subject(
    "a run",
    {"name": "fed-ucbvi"},
    {"name": "nowhere"},
    agents=4,
    states=8,
    actions=3,
    horizon=5,
)
LOOPBACK = "127.0.0.1:0"

OVERLAPPING = """[...document.querySelectorAll('#grid text')].flatMap(
    text => [...document.querySelectorAll('#grid .arrow')].map(arrow => [text.getBBox(), arrow.getBBox()])
).filter(([a, b]) => a.x < b.x + b.width && b.x < a.x + a.width
    && a.y < b.y + b.height && b.y < a.y + a.height).length"""
"""Labels on the grid that meet an arrow."""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with open_browser(tmp_path_factory.mktemp("profile")) as driver:
        yield driver


def texts(page: OpenPage, selector: str) -> list[str]:
    found: list[str] = page("[...document.querySelectorAll(arguments[0])].map(e => e.textContent)", selector)
    return found


def tile(page: OpenPage, what: str) -> str:
    script = "[...document.querySelectorAll('.tile')].find(t => t.children[0].textContent === arguments[0])"
    return str(page(f"{script}?.children[1].textContent", what))


def test_a_finished_run_is_drawn_on_every_screen(
    browser: Any,
) -> None:
    world = gridworld(agents=5, eps_p=0.1, seed=0)
    state = LiveState(Subject.of_run(FedUCBVI(), world, seed=0))
    result = run(FedUCBVI(), world, 3_000, on_round=state)
    state.finish(result)
    with PageServer(state, LOOPBACK) as server:
        page = OpenPage(browser, server.url)
        page.wait("document.querySelector('#phase').textContent === 'finished'")
        assert tile(page, "rounds") == f"{len(result.records['start']):,}"
        assert tile(page, "regret") == f"{result.regret:.4g}"
        assert texts(page, "#bar-text") == ["3,000 of 3,000 episodes per agent (100 %)"]
        titles = texts(page, ".card:not([hidden]) h3")
        assert titles[-1] == "Recommended policy"
        assert len(titles) == 6
        page.wait("document.documentElement.dataset.charts === '5'")
        assert (
            page("charts.filter(chart => !chart.card.hidden).map(chart => chart.rows.length)")
            == [len(result.records["start"])] * 5
        )
        assert page("document.querySelectorAll('#grid .arrow[d^=M]').length") == 8, "one for each free square"
        assert page(OVERLAPPING) == 0
        assert texts(page, "#configuration dt") == [
            "Algorithm: fed-ucbvi",
            "Environment: gridworld",
            "Run",
        ]
        assert "nu = " not in texts(page, "#configuration dd")[0], "it is not set"
        first = texts(page, "#rounds tbody tr:nth-child(2) td")
        request = (
            result.records["agent"][-2],
            result.records["step"][-2] + 1,
            result.records["action"][-2],
        )
        assert (first[2].split()[1], first[3], first[5]) == tuple(map(str, request))
        papers = set()
        for width, scheme in itertools.product((1300, 420), ("light", "dark")):
            page.look(width, scheme)
            page.wait("innerWidth === arguments[0]", width)
            assert page("document.documentElement.scrollWidth") <= width, "nothing sticks out"
            papers.add((scheme, page("getComputedStyle(document.body).backgroundColor")))
        assert papers == {("light", "rgb(255, 255, 255)"), ("dark", "rgb(22, 24, 27)")}
        page.look(1300, "light")
        page.point_at(".card:not([hidden]) .plot svg", 0.95, 0.5)
        page.wait("!document.querySelector('#tooltip').hidden")
        assert texts(page, "#tooltip dt") == ["episodes", "each round", "smoothed"]
        browser.execute_script("document.querySelector('[data-log=true]').click()")
        page.wait("document.querySelector('[data-log=true]').ariaPressed === 'true'")
        address = {server.url, f"{server.url}events"}
        assert {url for url in page.requested() if not url.startswith("data:")} <= address
        assert browser.get_log("browser") == []


@pytest.mark.full
def test_a_thousand_rounds_per_second_are_a_few_drawings(
    browser: Any,
) -> None:
    state = LiveState(SUBJECT)
    stop = threading.Event()
    rounds = made_up_rounds(1)

    def feed() -> None:
        while not stop.wait(0.01):
            for record in itertools.islice(rounds, 15):
                state(record)

    feeding = threading.Thread(target=feed)
    with PageServer(state, LOOPBACK) as server:
        page = OpenPage(browser, server.url)
        page.wait("document.querySelector('#link').textContent.includes('connected')")
        browser.execute_script("window.seen = 0; (function see() { seen++; requestAnimationFrame(see); })()")
        began = time.monotonic()
        before = int(page("document.documentElement.dataset.draws"))
        feeding.start()
        try:
            page.wait("Number(document.querySelector('.tile .figure')?.textContent.replace(',', '')) > 1500")
            browser.execute_script("document.querySelector('[data-x=round]').click()")
            page.wait("charts.some(chart => chart.axis === 'round')")
        finally:
            stop.set()
            feeding.join()
        drawn = int(page("document.documentElement.dataset.draws")) - before
        most = (time.monotonic() - began) / SECONDS_BETWEEN + 3
        assert 2 <= drawn <= most, "as many drawings as events, and one for the click"
        assert page("seen") > drawn, "there are frames in which nothing is drawn"
        total = state.snapshot()["now"]["round"]
        page.wait(
            "document.querySelector('.tile .figure')?.textContent === arguments[0]",
            f"{total:,}",
        )
        assert page("state.points") == state.snapshot()["points"]


def test_the_page_reconnects_to_its_server(browser: Any) -> None:
    state = LiveState(SUBJECT)
    rounds = made_up_rounds(1)
    state(next(rounds))
    server = PageServer(state, LOOPBACK)
    page = OpenPage(browser, server.url)
    port = urlsplit(server.url).port
    page.wait("document.documentElement.dataset.link === 'live'")
    assert page("document.querySelector('#notice').hidden")
    server.close()  # without a word on the run
    page.wait("document.documentElement.dataset.link === 'lost'")
    assert "Connection to the server lost" in texts(page, "#notice")[0]
    state(next(rounds))
    with PageServer(state, f"127.0.0.1:{port}"):
        page.wait("document.documentElement.dataset.link === 'live'")
        page.wait("document.querySelector('.tile .figure')?.textContent === '2'")
        assert page("document.querySelector('#notice').hidden")
        state.end("All is played.")
    page.wait("document.documentElement.dataset.link === 'ended'")
    assert texts(page, "#phase") == ["finished"]
    assert "All is played." in texts(page, "#notice")[0]


def test_texts_from_elsewhere_are_never_markup(browser: Any) -> None:
    nasty = "<img src=x onerror='window.broken=1'><b>&amp;"
    state = LiveState(SUBJECT._replace(title=nasty, nodes=(nasty,)))
    state.end(nasty, complete=False)
    with PageServer(state, LOOPBACK) as server:
        page = OpenPage(browser, server.url)
        page.wait("document.querySelector('h1').textContent === arguments[0]", nasty)
        assert texts(page, "#notice") == [nasty]
        assert page("document.querySelectorAll('main img, main b, header img, header b').length") == 0
        assert page("window.broken") is None


@pytest.mark.slow
@pytest.mark.network
@pytest.mark.full
def test_the_page_shows_a_node_that_reconnects(browser: Any, tmp_path: Path) -> None:
    rows = "[...document.querySelectorAll('#nodes tbody tr')]"

    def wait_for(name: str, state: str) -> None:
        page.wait(
            f"{rows}.some(row => row.textContent.startsWith(arguments[0] + arguments[1]))",
            name,
            state,
        )

    with Processes(tmp_path, "--dashboard", "127.0.0.1:0", "--episodes", "300") as federation:
        federation.start(SERVER)
        federation.hear(SERVER, "page: http")
        found = re.search(r"page: (\S+)", federation.parties[SERVER].words())
        assert found is not None
        page = OpenPage(browser, found[1])
        wait_for("node-0", "… expected")
        federation.start("node-0", "node-1")
        wait_for("node-1", "● present")
        federation.reach(3)
        federation.kill("node-1")
        wait_for("node-1", "○ away")
        wait_for("node-0", "● present")
        page.wait("document.querySelector('.tile .figure').textContent === '1 of 2'")
        page.wait("document.querySelectorAll('#rounds tbody tr').length >= 3")
        federation.start("node-1")
        wait_for("node-1", "● present")
        events = page(
            "[...document.querySelectorAll('#events tbody tr')].map(row => [...row.cells].map(c => c.textContent))"
        )
        assert [row[3] for row in events if row[2] == "node-1"] == [
            "connected again",
            "disconnected",
            "connected",
        ]
        assert all(re.fullmatch(r"\d\d:\d\d:\d\d", row[0]) for row in events)
        result, _ = federation.finish()
        page.wait("document.documentElement.dataset.link === 'ended'")
        assert texts(page, "#phase") == ["finished"]
        assert page("document.querySelector('#phase').className") == "pill good"
        assert tile(page, "nodes finished") == "2 of 2"
        wait_for("node-0", "✓ finished")
        assert tile(page, "rounds") == f"{len(result.records['start']):,}"
        assert tile(page, "regret") == f"{result.regret:.4g}"
