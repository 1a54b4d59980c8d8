"""The tools of the documentation site: what they run, what they find. ``make docs`` builds the site itself."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from repository import ROOT

DOCS = ROOT / "docs"


@pytest.fixture
def check(tmp_path: Path) -> Callable[[], tuple[int, str]]:
    """Exit code and words of the check of the site in this folder."""

    def checked() -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, str(DOCS / "check_site.py"), str(tmp_path)], capture_output=True, text=True, check=False
        )
        return done.returncode, done.stdout

    return checked


def test_dead_links_missing_anchors_and_things_from_outside_are_found(
    check: Callable[[], tuple[int, str]], tmp_path: Path
) -> None:
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


def test_what_cannot_be_read_is_found(check: Callable[[], tuple[int, str]], tmp_path: Path) -> None:
    """A star that was eaten, a character that the font lacks, a font that is not there, help that is too wide."""
    index, style = tmp_path / "index.html", tmp_path / "style.css"
    commands = tmp_path / "generated" / "commands.html"
    commands.parent.mkdir()
    index.write_text("<p>V<sub>h</sub> <code>V_{h}^*</code></p><math><mi>V</mi></math>", encoding="utf-8")
    style.write_text("@font-face { unicode-range: U+20-7E, U+3B5; src: url(data:x) }", encoding="utf-8")
    commands.write_text(f"<p>{'x' * 89}</p><pre>{'x' * 88}</pre>", encoding="utf-8")
    assert check() == (0, "")
    index.write_text("<p>Q^<em>, V^</em>, V_{h+1}</p><math><mi>Ж</mi><mi>ε</mi></math>", encoding="utf-8")
    style.write_text("@font-face { unicode-range: U+20-7E, U+3B5; src: url('fonts/gone.woff2') }", encoding="utf-8")
    commands.write_text(f"<pre>short\n{'x' * 89}</pre>", encoding="utf-8")
    code, said = check()
    assert code == 1
    assert said.splitlines() == [
        f"generated/commands.html: wider than 88 columns: {'x' * 89}",
        "index.html: shows Q^,",
        "index.html: shows V^,",
        "index.html: shows V_{h+1}",
        "formulas: Ж is not in the embedded font",
        "style.css: nothing at fonts/gone.woff2",
    ]


def test_names_that_no_reference_has_are_found(check: Callable[[], tuple[int, str]], tmp_path: Path) -> None:
    """What the Python of a page imports, or what its text calls; other people's names are their own affair."""
    reference = tmp_path / "generated" / "api.html"
    reference.parent.mkdir()
    reference.write_text(
        '<dt id="fed_ucbvi.run"></dt><dt id="fed_ucbvi.charts.picture.Picture"></dt>', encoding="utf-8"
    )
    known = "from fed_ucbvi import run  # here\nfrom fed_ucbvi.charts.picture import Picture\nimport numpy as np"
    index = tmp_path / "index.html"
    index.write_text(f"<pre>{known}</pre><code>run(1)</code><code>sorted(x)</code>", encoding="utf-8")
    assert check() == (0, "")
    imported = (
        "from fed_ucbvi import (\n    gridworld,\n    run,\n)\nfrom fed_ucbvi.engine.simulation import Simulation"
    )
    index.write_text(f"<pre>{imported}</pre><code>plot_inspection(found, path)</code>", encoding="utf-8")
    assert check() == (
        1,
        "index.html: Simulation is not in generated/api.html\n"
        "index.html: gridworld is not in generated/api.html\n"
        "index.html: plot_inspection is not in generated/api.html\n",
    )


@pytest.mark.full
@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("n^i_h(s,a) and V_{h+1}", "$n^{i}_{h}(s,a)$ and $V_{h+1}$"),
        ("2^\u2212f, 2^63, 10^\u22120.5", "$2^{-f}$, $2^{63}$, $10^{-0.5}$"),
        ("2THε_r, Σ_s' min_i P̂^c v_k²", r"2TH$ε_{r}$, $Σ_{s'}$ $\text{min}_{i}$ $\hat{P}^{c}$ $v_{k}^{2}$"),
        ("V^{i,π_t}(s^i_t) at (1 + p)^H", "$V^{i,π_{t}}(s^{i}_{t})$ at (1 + $p$)[$H$]"),
        ("A node's N = S, i.e. P-256; (h,s,a)", "A node's $N$ = $S$, i.e. P-256; $(h,s,a)$"),
        ("eps_p, own_algorithm, Run.regret_at, x_own_y", "eps_p, own_algorithm, Run.regret_at, x_own_y"),
    ],
)
def test_marks_become_formulas_and_names_stay(text: str, shown: str) -> None:
    def drawn(node: Any) -> str:
        inner = "".join(map(drawn, node.children)) or node.astext()
        return {"superscript": f"[{inner}]", "math": f"${inner}$"}.get(type(node).__name__, inner)

    tool = runpy.run_path(str(DOCS / "extensions" / "scripts.py"))
    assert "".join(map(drawn, tool["_joined"](list(tool["pieces"](text))))) == shown


def test_the_landing_page_says_how_to_install_and_has_a_run_that_works(capsys: pytest.CaptureFixture[str]) -> None:
    text = (DOCS / "index.md").read_text(encoding="utf-8")
    assert "\npip install " in text
    (example,) = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    exec(compile(example, "index.md", "exec"), {})
    assert capsys.readouterr().out in text, "it prints what the page shows"


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
