"""The tools of the documentation site: what they run, what they find. ``make docs`` builds the site itself."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fed_ucbvi import FedKLUCBVI, FedUCBVI, gridworld, run
from repository import ROOT

DOCS = ROOT / "docs"


KNOWN = "from fed_ucbvi import run  # here\nfrom fed_ucbvi.charts.figures import Panels\nimport numpy as np"
IMPORTED = "from fed_ucbvi import (\n    gridworld,\n    run,\n)\nfrom fed_ucbvi.engine.simulation import Simulation"
SITES: dict[str, tuple[dict[str, str], dict[str, str], list[str]]] = {
    "dead links, missing anchors, things from outside": (
        {
            "other.html": '<h1 id="here">Here</h1>',
            "index.html": '<a href="other.html#here">a</a> <a href="https://example.org/x">b</a>',
        },
        {
            "index.html": '<a href="gone.html">a</a> <a href="other.html#gone">b</a>',
            "style.css": "@import url('https://example.org/font.css');",
            "other.html": '<script src="https://example.org/x.js"></script>',
        },
        [
            "index.html: nothing at gone.html",
            "index.html: no anchor other.html#gone",
            "other.html: loads https://example.org/x.js",
            "style.css: loads from another host",
        ],
    ),
    "a star that was eaten, a character that the font lacks, a font that is not there, help that is too wide": (
        {
            "index.html": "<p>V<sub>h</sub> <code>V_{h}^*</code></p><math><mi>V</mi></math>",
            "style.css": "@font-face { unicode-range: U+20-7E, U+3B5; src: url(data:x) }",
            "generated/commands.html": f"<p>{'x' * 89}</p><pre>{'x' * 88}</pre>",
        },
        {
            "index.html": "<p>Q^<em>, V^</em>, V_{h+1}</p><math><mi>Ж</mi><mi>ε</mi></math>",
            "style.css": "@font-face { unicode-range: U+20-7E, U+3B5; src: url('fonts/gone.woff2') }",
            "generated/commands.html": f"<pre>short\n{'x' * 89}</pre>",
        },
        [
            f"generated/commands.html: wider than 88 columns: {'x' * 89}",
            "index.html: shows Q^,",
            "index.html: shows V^,",
            "index.html: shows V_{h+1}",
            "formulas: Ж is not in the embedded font",
            "style.css: nothing at fonts/gone.woff2",
        ],
    ),
    "names that no reference has, imported or called; other people's names are their own affair": (
        {
            "generated/api.html": '<dt id="fed_ucbvi.run"></dt><dt id="fed_ucbvi.charts.figures.Panels"></dt>',
            "index.html": f"<pre>{KNOWN}</pre><code>run(1)</code><code>sorted(x)</code>",
        },
        {"index.html": f"<pre>{IMPORTED}</pre><code>plot_inspection(found, path)</code>"},
        [
            "index.html: Simulation is not in generated/api.html",
            "index.html: gridworld is not in generated/api.html",
            "index.html: plot_inspection is not in generated/api.html",
        ],
    ),
}
"""Pages on which nothing is wrong, what is changed in them, and what is then found."""


@pytest.mark.parametrize("wrong", SITES)
def test_what_is_wrong_on_the_site_is_found(wrong: str, tmp_path: Path) -> None:
    good, bad, found = SITES[wrong]
    (tmp_path / "generated").mkdir()
    for pages, code, lines in ((good, 0, []), (bad, 1, found)):
        for name, text in pages.items():
            (tmp_path / name).write_text(text, encoding="utf-8")
        command = [sys.executable, str(DOCS / "check_site.py"), str(tmp_path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == code
        assert done.stdout.splitlines() == lines


@pytest.mark.full
@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("n^i_h(s,a) and V_{h+1}", "$n^{i}_{h}(s,a)$ and $V_{h+1}$"),
        ("2^\u2212f, 2^63, 10^\u22120.5", "$2^{-f}$, $2^{63}$, $10^{-0.5}$"),
        (
            "2THε_r, Σ_s' min_i P̂^c v_k²",
            r"2TH$ε_{r}$, $Σ_{s'}$ $\text{min}_{i}$ $\hat{P}^{c}$ $v_{k}^{2}$",
        ),
        ("V^{i,π_t}(s^i_t) at (1 + p)^H", "$V^{i,π_{t}}(s^{i}_{t})$ at (1 + $p$)[$H$]"),
        (
            "A node's N = S, i.e. P-256; (h,s,a)",
            "A node's $N$ = $S$, i.e. P-256; $(h,s,a)$",
        ),
        (
            "eps_p, own_algorithm, Run.regret_at, x_own_y",
            "eps_p, own_algorithm, Run.regret_at, x_own_y",
        ),
    ],
)
def test_only_mathematical_marks_become_formulas(text: str, shown: str) -> None:
    def drawn(node: Any) -> str:
        inner = "".join(map(drawn, node.children)) or node.astext()
        return {"superscript": f"[{inner}]", "math": f"${inner}$"}.get(type(node).__name__, inner)

    tool = runpy.run_path(str(DOCS / "extensions" / "scripts.py"))
    assert "".join(map(drawn, tool["_joined"](list(tool["pieces"](text))))) == shown


def test_the_landing_page_explains_how_to_install() -> None:
    assert "\npip install " in (DOCS / "index.md").read_text(encoding="utf-8")


def test_the_example_of_the_landing_page_prints_what_it_shows(capsys: pytest.CaptureFixture[str]) -> None:
    text = (DOCS / "index.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    exec(compile(example, "index.md", "exec"), {})
    assert capsys.readouterr().out in text


def test_every_block_of_commands_is_run_or_says_why_not() -> None:
    tool = runpy.run_path(str(DOCS / "run_commands.py"))
    run = sum(not block.name for page in tool["PAGES"] for block in tool["blocks_of"](page))
    texts = [page.read_text(encoding="utf-8") for page in tool["PAGES"]]
    in_all = sum(len(re.findall(r"^```(?:sh|bash|console)$", text, flags=re.MULTILINE)) for text in texts)
    excused = sum(len(re.findall(r"^<!-- not run: \S.* -->\n+```sh$", text, flags=re.MULTILINE)) for text in texts)
    assert run > 10
    assert run + excused == in_all


@pytest.mark.parametrize("tutorial", sorted((DOCS / "tutorials").glob("*.md")), ids=lambda path: path.stem)
def test_the_form_of_a_tutorial(
    tutorial: Path,
) -> None:
    text = tutorial.read_text(encoding="utf-8")
    assert text.startswith("---\nfile_format: mystnb\n"), "without this line its cells are not executed"
    assert "**What you will see.**" in text
    assert re.findall(r"^## (.*)$", text, flags=re.MULTILINE)[-1] == "Try"
    assert f"tutorials/{tutorial.stem}\n" in (DOCS / "index.md").read_text(encoding="utf-8")


@pytest.mark.full  # the documentation's tools are installed for make test-all only
def test_the_reference_shows_bounded_numbers_by_their_plain_types(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Signatures as Sphinx writes them."""
    from sphinx.util.inspect import signature, stringify_signature

    monkeypatch.syspath_prepend(DOCS / "extensions")
    plain_types = runpy.run_path(str(DOCS / "extensions" / "generated_reference.py"))["plain_types"]
    for thing in (FedKLUCBVI, FedUCBVI, gridworld):
        full = stringify_signature(signature(thing))
        assert "Bounds(" in full
        plain = plain_types(full)
        assert not re.search("Annotated|Bounds", plain)
    assert "eps_p: float = 0.0" in plain


def test_the_first_tutorial_names_lines_that_the_table_of_a_run_has() -> None:
    text = (DOCS / "tutorials" / "first_curve.md").read_text(encoding="utf-8")
    named = re.findall(r"\*\*([A-Za-z ]+)\*\* (?:is|counts)", text.split("## The curve")[0])
    table = run(FedKLUCBVI(), gridworld(agents=2), 20, progress=False)._repr_html_()
    assert len(named) == 4
    assert all(f">{name.lower()}<" in table for name in named)
