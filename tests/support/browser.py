"""A real browser without network, for tests of pages: Chromium with an empty profile that tells all it does."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

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
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",  # no network: no name leads anywhere
)
PATIENCE = 60
"""Seconds a browser on a busy machine may take to draw the page."""


@contextmanager
def open_browser(profile: Path) -> Iterator[Any]:
    """A browser that logs all it is told and all it requests."""
    if CHROMIUM is None or DRIVER is None:
        pytest.skip("no browser: install chromium and chromium-driver to test the page in one")
    webdriver = pytest.importorskip("selenium.webdriver")
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    try:
        driver.set_script_timeout(PATIENCE)
        yield driver
    finally:
        driver.quit()


class OpenPage:
    def __init__(self, browser: Any, url: str) -> None:
        self.browser = browser
        browser.get("about:blank")
        self.look(1300, "light")
        browser.get_log("performance")
        browser.get_log("browser")
        browser.get(url)

    def __call__(self, script: str, *arguments: Any) -> Any:
        return self.browser.execute_script(f"return {script}", *arguments)

    def wait(self, condition: str, *arguments: Any) -> None:
        """Wait until something is so; ``arguments`` are those given."""
        script = f"""const done = [...arguments].at(-1), so = function () {{ return {condition}; }},
            look = () => so.apply(null, arguments) ? done() : setTimeout(look, 20);
            look();"""
        self.browser.execute_async_script(script, *arguments)

    def look(self, width: int, scheme: str) -> None:
        """Have a window of that width and a user who likes it light or dark."""
        metrics = {
            "width": width,
            "height": 900,
            "deviceScaleFactor": 1,
            "mobile": False,
        }
        self.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        self.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)

    def point_at(self, selector: str, x: float, y: float) -> None:
        """Move the pointer to a place in the first element of a selector, in shares of its width and height.

        The page may draw the element anew at any time, so it is looked up here.
        """
        box = self("document.querySelector(arguments[0]).getBoundingClientRect().toJSON()", selector)
        self.browser.execute_cdp_cmd(
            "Input.dispatchMouseEvent",
            {
                "type": "mouseMoved",
                "x": box["x"] + x * box["width"],
                "y": box["y"] + y * box["height"],
            },
        )

    def requested(self) -> list[str]:
        """Addresses that the page has requested since it was opened, or since the last call."""
        messages = [json.loads(entry["message"])["message"] for entry in self.browser.get_log("performance")]
        sent = [message["params"] for message in messages if message["method"] == "Network.requestWillBeSent"]
        return [call["request"]["url"] for call in sent if not call["documentURL"].startswith("chrome")]
