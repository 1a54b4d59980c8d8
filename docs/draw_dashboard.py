"""Draw docs/dashboard.png: the live page of a federation of five processes, one of which has failed and is back.

``python docs/draw_dashboard.py [FOLDER]`` needs Chromium with its driver, and takes half a minute. With a folder it
writes the page there instead, at 1300 and 420 pixels, light and dark.
"""

from __future__ import annotations

import base64
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from selenium import webdriver

PROGRAM = (sys.executable, "-m", "fed_ucbvi")
PROBLEM = ("--env", "gridworld", "--eps-p", "0.1", "--env-option", "rows=4", "--env-option", "columns=5")
PROBLEM += ("--env-option", "walls=[[1,1],[1,2],[2,3]]", "--env-option", "horizon=20")
ALGORITHM = ("--algorithm", "fed-kl-ucbvi", "--episodes", "4000")
NODES = {"berlin": (0, 4), "lyon": (4, 4), "oslo": (8, 6), "porto": (14, 2), "turin": (16, 4)}
"""First agent and number of agents."""
FAILS, FAILS_AFTER, SHOWN_AFTER = "oslo", 0.08, 0.3
"""Which node fails, and the shares of all episodes after which it does and the picture is taken."""
FLAGS = (
    "--headless",
    "--hide-scrollbars",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
)


def draw(folder: Path | None) -> None:
    agents = str(sum(number for _, number in NODES.values()))
    with tempfile.TemporaryDirectory() as scratch:
        files = ("--port-file", f"{scratch}/port", "--checkpoint", f"{scratch}/checkpoint")
        places = ("--listen", "127.0.0.1:0", "--dashboard", "127.0.0.1:0", "--insecure", "--quiet")
        task = (*PROBLEM, *ALGORITHM, "--agents", agents, "--nodes", ",".join(NODES))
        server = subprocess.Popen(
            (*PROGRAM, "serve", *task, *files, *places),
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
        )
        assert server.stderr is not None
        url = next(found[1] for line in server.stderr if (found := re.search(r"page: (\S+)", line)))
        while not Path(scratch, "port").exists():
            time.sleep(0.1)
        port = Path(scratch, "port").read_text(encoding="utf-8").strip()

        def join(name: str) -> subprocess.Popen[bytes]:
            first, number = NODES[name]
            where = ("join", f"127.0.0.1:{port}", "--insecure", "--name", name, "--state", f"{scratch}/{name}")
            return subprocess.Popen(
                (*PROGRAM, *where, *PROBLEM, "--first-agent", str(first), "--agents", str(number)),
                stderr=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )

        browser, parties = _browser(scratch), {}
        try:
            browser.get(url)
            parties = {name: join(name) for name in NODES}
            _wait_for(browser, FAILS_AFTER)
            parties[FAILS].kill()
            time.sleep(1)
            parties[FAILS] = join(FAILS)
            _wait_for(browser, SHOWN_AFTER)
            if folder is None:
                _shoot(browser, Path(__file__).parent / "dashboard.png", 1300, "light")
            else:
                for width, scheme in ((1300, "light"), (1300, "dark"), (420, "light"), (420, "dark")):
                    _shoot(browser, folder / f"dashboard-{width}-{scheme}.png", width, scheme)
        finally:
            browser.quit()
            for party in (server, *parties.values()):
                party.kill()
                party.wait()


def _browser(profile: str) -> Any:
    options = webdriver.ChromeOptions()
    for flag in (*FLAGS, f"--user-data-dir={profile}/browser"):
        options.add_argument(flag)
    options.binary_location = shutil.which("chromium") or ""
    return webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))


def _wait_for(browser: Any, share: float) -> None:
    """Wait until that share of all episodes has been played."""
    while not browser.execute_script(
        f"return state.now && state.now.episodes > {share} * state.now.planned_episodes"
    ):
        time.sleep(0.05)


def _shoot(browser: Any, file: Path, width: int, scheme: str) -> None:
    """Save the whole page as a picture."""
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    height = 900
    for _ in range(2):  # the height follows from the width
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        time.sleep(0.5)
        height = browser.execute_script("return document.documentElement.scrollHeight")
    picture = browser.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})
    file.write_bytes(base64.b64decode(picture["data"]))


if __name__ == "__main__":
    draw(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
