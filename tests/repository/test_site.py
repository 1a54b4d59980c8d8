"""The tools of the documentation site: what they run, what they find. ``make docs`` builds the site itself."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from repository import ROOT

DOCS = ROOT / "docs"


def test_dead_links_missing_anchors_and_things_from_outside_are_found(tmp_path: Path) -> None:
    def check() -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, str(DOCS / "check_site.py"), str(tmp_path)], capture_output=True, text=True, check=False
        )
        return done.returncode, done.stdout

    other, index = tmp_path / "other.html", tmp_path / "index.html"
    other.write_text('<h1 id="here">Here</h1>', encoding="utf-8")
    index.write_text('<a href="other.html#here">a</a> <a href="https://example.org/x">b</a>', encoding="utf-8")
    assert check() == (0, "")
    index.write_text('<a href="gone.html">a</a> <a href="other.html#gone">b</a>', encoding="utf-8")
    (tmp_path / "style.css").write_text("@import url('https://example.org/font.css');", encoding="utf-8")
    other.write_text('<script src="https://example.org/x.js"></script>', encoding="utf-8")
    code, said = check()
    assert code == 1
    assert said.splitlines() == [
        "index.html: nothing at gone.html",
        "index.html: no anchor other.html#gone",
        "other.html: loads https://example.org/x.js",
        "style.css: loads from another host",
    ]


def test_every_block_of_commands_is_run_or_says_why_not() -> None:
    tool = runpy.run_path(str(DOCS / "run_commands.py"))
    run = sum(not block.name for page in tool["PAGES"] for block in tool["blocks_of"](page))
    texts = [page.read_text(encoding="utf-8") for page in tool["PAGES"]]
    in_all = sum(len(re.findall(r"^```(?:sh|bash|console)$", text, flags=re.MULTILINE)) for text in texts)
    excused = sum(len(re.findall(r"^<!-- not run: \S.* -->\n+```sh$", text, flags=re.MULTILINE)) for text in texts)
    assert run > 10
    assert run + excused == in_all


@pytest.mark.parametrize("tutorial", sorted((DOCS / "tutorials").glob("*.md")), ids=lambda path: path.stem)
def test_a_tutorial_is_executed_says_what_one_will_see_and_ends_with_something_to_try(tutorial: Path) -> None:
    text = tutorial.read_text(encoding="utf-8")
    assert text.startswith("---\nfile_format: mystnb\n"), "without this line its cells are not executed"
    assert "**What you will see.**" in text
    assert re.findall(r"^## (.*)$", text, flags=re.MULTILINE)[-1] == "Try"
    assert f"tutorials/{tutorial.stem}\n" in (DOCS / "index.md").read_text(encoding="utf-8")
