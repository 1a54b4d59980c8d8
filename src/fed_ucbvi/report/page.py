"""A report as one page that needs nothing but itself: plots, tables, verdicts, provenance.

Text from data is escaped wherever it goes; the page forbids itself every request by its content security policy. The
same report gives the same bytes.
"""

from __future__ import annotations

import json
from collections import Counter
from html import escape
from importlib.resources import files
from typing import Any

from fed_ucbvi.report.content import Cell, Figure, Interval, Report, Section, Table, Verdict
from fed_ucbvi.report.data import cell_text
from fed_ucbvi.report.legend import Entry, legend_of
from fed_ucbvi.report.plots import plots_of

POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
SIGNS = {
    "holds": ("✓", "holds"),
    "holds partly": ("≈", "partly"),
    "undecided": ("?", "undecided"),
    "does not hold": ("✗", "fails"),
}
"""Sign and CSS class of each outcome; the words are always written too."""
FIGURE_FILES = ("png", "pdf", "csv", "parquet")
TABLE_FILES = ("csv", "parquet")
DASHES = {"solid": "", "dashed": "6 3", "dotted": "1.5 3", "dashdot": "6 3 1.5 3"}
MARKS = {
    "cross": '<path d="M11 2l8 8m0-8l-8 8" stroke-width="3"/>',
    "circle": '<circle cx="15" cy="6" r="4"/>',
    "square": '<rect x="11.5" y="2.5" width="7" height="7"/>',
    "diamond": '<path d="M15 1l5 5-5 5-5-5z"/>',
    "triangle": '<path d="M15 1.5l4.5 8h-9z"/>',
    "none": "",
}


def render_page(report: Report) -> str:
    """The page as HTML."""
    from plotly.offline import get_plotlyjs  # type: ignore[import-untyped]

    here = files("fed_ucbvi.report")
    style = here.joinpath("page.css").read_text(encoding="utf-8")
    script = here.joinpath("page.js").read_text(encoding="utf-8")
    judged = [(section, verdict) for section in report.sections for verdict in section.verdicts]
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<title>{escape(report.title)}</title>
<link rel="icon" href="data:,">
<style>
{style}</style>
</head>
<body>
<div class="layout">
<header>
<h1>{escape(report.title)}</h1>
{_paragraphs(report.text)}
</header>
{_contents(report, bool(judged))}
<main>
{_verdicts(judged) if judged else ""}
{"".join(_section(section) for section in report.sections)}
{_provenance(report)}
</main>
</div>
<noscript><p>The plots are drawn by JavaScript; pictures of them lie in the folder figures.</p></noscript>
<script>{_safe_script(get_plotlyjs())}</script>
<script>
{script}</script>
</body>
</html>
"""


def _paragraphs(texts: Any) -> str:
    return "\n".join(f"<p>{escape(text)}</p>" for text in texts)


def _contents(report: Report, judged: bool) -> str:
    entries = [("verdicts", "Verdicts")] if judged else []
    entries += [(f"section-{section.id}", section.title) for section in report.sections]
    entries += [("provenance", "Provenance")] if report.provenance else []
    items = "\n".join(f'<li><a href="#{id_}">{escape(title)}</a></li>' for id_, title in entries)
    return (
        f'<nav aria-label="Contents"><details open><summary>Contents</summary>\n<ol>\n{items}\n</ol></details></nav>'
    )


def _verdicts(judged: list[tuple[Section, Verdict]]) -> str:
    """All verdicts in one table, and how many there are of each outcome."""
    counts: Counter[str] = Counter(verdict.outcome for _, verdict in judged)
    summary = ", ".join(f"{_outcome(outcome)}: {counts[outcome]}" for outcome in SIGNS if counts[outcome])
    columns = ("Claim", "Place", "Measured", "Rule", "Verdict")
    rows = []
    for section, verdict in judged:
        claim = f'<a href="#section-{section.id}">{escape(verdict.claim)}</a>'
        texts = (
            claim,
            escape(verdict.place),
            escape(verdict.measured),
            escape(verdict.rule),
            _outcome(verdict.outcome),
        )
        cells = (f'<td data-column="{name}">{text}</td>' for name, text in zip(columns, texts, strict=True))
        rows.append(f"<tr>{''.join(cells)}</tr>")
    head = "".join(f'<th scope="col">{name}</th>' for name in columns)
    return f"""<section id="verdicts" aria-labelledby="verdicts-title">
<h2 id="verdicts-title">Verdicts</h2>
<p>{len(judged)} claims. {summary}.</p>
<div class="scroll">
<table class="verdicts"><thead><tr>{head}</tr></thead>
<tbody>
{chr(10).join(rows)}
</tbody></table>
</div>
</section>"""


def _outcome(outcome: str) -> str:
    """An outcome by sign, word and colour."""
    sign, style = SIGNS[outcome]
    return f'<span class="outcome {style}"><span aria-hidden="true">{sign}</span> {outcome}</span>'


def _section(section: Section) -> str:
    judged = "".join(
        f"<li>{_outcome(verdict.outcome)} {escape(verdict.claim)} ({escape(verdict.place)})</li>\n"
        for verdict in section.verdicts
    )
    parts = [
        f'<section id="section-{section.id}" aria-labelledby="section-{section.id}-title">',
        f'<h2 id="section-{section.id}-title">{escape(section.title)}</h2>',
        f'<ul class="judged">\n{judged}</ul>' if judged else "",
        _paragraphs(section.text),
        *map(_figure, section.figures),
        *map(_table, section.tables),
        "</section>\n",
    ]
    return "\n".join(part for part in parts if part)


def _figure(figure: Figure) -> str:
    """Legend, plots, caption and files of a figure, with its data for the script."""
    panels = []
    for panel in figure.panels:
        described = ". ".join(text for text in (figure.title, panel.title, figure.caption) if text)
        heading = f"<h4>{escape(panel.title)}</h4>" if panel.title else ""
        panels.append(
            f'<div class="panel">{heading}<div class="plot" role="img" aria-label="{escape(described)}"></div></div>'
        )
    return f"""<figure class="chart" id="figure-{figure.id}" aria-labelledby="figure-{figure.id}-title">
<h3 id="figure-{figure.id}-title">{escape(figure.title)}</h3>
{_legend(figure)}
<div class="panels">
{chr(10).join(panels)}
</div>
<figcaption>{escape(figure.caption)}
{_files("figures", figure.id, FIGURE_FILES)}
</figcaption>
<script type="application/json">{_safe_json(plots_of(figure))}</script>
</figure>"""


def _legend(figure: Figure) -> str:
    """A button for each name and each variant, with a piece of its curve."""
    legend = legend_of(figure)
    names = [_button(entry, 0) for entry in legend.names]
    variants = [_button(entry, 1) for entry in legend.variants]
    between = ['<span class="parts"></span>'] if variants else []
    buttons = "\n".join(names + between + variants)
    return f'<div class="legend" role="group" aria-label="Show or hide; twice for one alone">\n{buttons}\n</div>'


def _button(entry: Entry, part: int) -> str:
    line = f'<path d="M0 6h30" stroke-width="2.5" stroke-dasharray="{DASHES[entry.dash]}"/>' if entry.line else ""
    swatch = (
        f'<svg viewBox="0 0 30 12" fill="{entry.colour}" stroke="{entry.colour}" aria-hidden="true">'
        f"{line}{MARKS[entry.marker]}</svg>"
    )
    value = escape(entry.text)
    return (
        f'<button type="button" aria-pressed="true" data-part="{part}" data-value="{value}">{swatch}{value}</button>'
    )


def _table(table: Table) -> str:
    numeric = [
        all(not isinstance(row[place], str) for row in table.rows) and bool(table.rows)
        for place in range(len(table.columns))
    ]

    def cell(kind: str, text: str, place: int) -> str:
        scope = ' scope="col"' if kind == "th" else ""
        style = ' class="figure"' if numeric[place] else ""
        return f"<{kind}{scope}{style}>{text}</{kind}>"

    head = "".join(cell("th", escape(name), place) for place, name in enumerate(table.columns))
    rows = "\n".join(
        f"<tr>{''.join(cell('td', _cell(content), place) for place, content in enumerate(row))}</tr>"
        for row in table.rows
    )
    return f"""<figure class="table" id="table-{table.id}" aria-labelledby="table-{table.id}-title">
<h3 id="table-{table.id}-title">{escape(table.title)}</h3>
<div class="scroll" role="region" tabindex="0" aria-labelledby="table-{table.id}-title">
<table><thead><tr>{head}</tr></thead>
<tbody>
{rows}
</tbody></table>
</div>
<figcaption>{escape(table.caption)}
{_files("tables", table.id, TABLE_FILES)}
</figcaption>
</figure>"""


def _cell(cell: Cell) -> str:
    """A cell; the exact interval is shown on hovering."""
    text = escape(cell_text(cell))
    if isinstance(cell, Interval):
        return f'<span title="{cell.mean!r} [{cell.low!r}, {cell.high!r}]">{text}</span>'
    return text


def _files(folder: str, id_: str, kinds: tuple[str, ...]) -> str:
    links = " · ".join(f'<a href="{folder}/{id_}.{kind}">{kind.upper()}</a>' for kind in kinds)
    return f'<p class="files">Files: {links}</p>'


def _provenance(report: Report) -> str:
    if not report.provenance:
        return ""
    text = json.dumps(report.provenance, indent=2, ensure_ascii=False, allow_nan=False)
    return f"""<section id="provenance" aria-labelledby="provenance-title">
<h2 id="provenance-title">Provenance</h2>
<details><summary>Exact parameters and versions</summary>
<pre>{escape(text)}</pre>
</details>
</section>"""


def _safe_json(content: object) -> str:
    r"""JSON that nothing within can end the script it stands in.

    >>> print(_safe_json("</script>"))
    "\u003c/script\u003e"
    """
    text = json.dumps(content, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _safe_script(text: str) -> str:
    """A script without what would end or comment it out in HTML; inside strings, the only place, nothing changes."""
    return text.replace("</script", "<\\/script").replace("<!--", "<\\!--")
