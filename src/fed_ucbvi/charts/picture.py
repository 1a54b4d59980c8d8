"""A picture as a value: panels and boards under a title, to be saved in any format or shown by a notebook."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any

from fed_ucbvi.charts.panels import Board, Panel, check_panels
from fed_ucbvi.charts.vega import WIDTH, Spec, vega_lite
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.files import new_file
from fed_ucbvi.core.text import with_printable_texts

FORMATS = ("svg", "png", "pdf", "html")
POINTS = 0.625
"""The size of a layout pixel on paper, in points."""
PIXELS_PER_INCH = 72 / POINTS
"""Pixels of the layout to an inch of paper."""
PRINT = 200 / PIXELS_PER_INCH
"""Pixels for each pixel of the layout, in PNG: 200 to an inch."""
POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
"""What a page may load: nothing from outside. Nor may it evaluate texts as programs."""
PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<title>{title}</title>
<link rel="icon" href="data:,">
<style>body {{ margin: 12px; background: white; }}</style>
</head>
<body>
<div id="picture"></div>
<script id="specification" type="application/json">{specification}</script>
<script type="module">{library}</script>
<script type="module">
const specification = JSON.parse(document.getElementById("specification").textContent);
await vegaEmbed("#picture", specification, {{ actions: false, ast: true, renderer: "svg" }});
document.documentElement.dataset.plots = "drawn";
</script>
</body>
</html>
"""


@dataclass(frozen=True)
class Picture:
    """Panels side by side, drawn from one description in every format.

    A notebook shows it by itself, interactive where it can.

    Panels and boards come from left to right, then from top to bottom, under a title, which may have several lines.
    Width and height are in pixels of a screen, about. By default panels get the height that they need, and there are
    as many columns of them as there is room for.
    """

    panels: Sequence[Panel | Board]
    title: str = ""
    width: float = WIDTH
    height: float | None = None
    columns: int | None = None

    def specification(self, *, interactive: bool = False) -> Spec:
        """The Vega-Lite specification, with its data; if ``interactive``, pointing at a point shows its figures."""
        panels = with_printable_texts(list(self.panels))
        check_panels([panel for panel in panels if isinstance(panel, Panel)], "the picture")
        title = "\n".join(with_printable_texts(self.title.splitlines()))
        return vega_lite(panels, title, self.width, self.height, self.columns, interactive)

    @cached_property
    def svg(self) -> str:
        import vl_convert

        _register_font()
        return vl_convert.vegalite_to_svg(self.specification(), allowed_base_urls=[])

    def content(self, format_: str) -> bytes:
        """The content of a file of that format; equal pictures give equal bytes if the font has all characters."""
        import vl_convert

        if format_ == "html":
            return self._page().encode()
        if format_ == "png":
            return vl_convert.svg_to_png(self.svg, scale=PRINT)
        return _in_order(vl_convert.svg_to_pdf(_on_paper(self.svg))) if format_ == "pdf" else self.svg.encode()

    def save(self, path: str | Path) -> None:
        """Write ``.png``, ``.svg``, ``.pdf`` or, interactive, ``.html``, wholly or not at all."""
        format_ = check_picture(path)
        path = Path(path)
        content = self.content(format_)
        path.parent.mkdir(parents=True, exist_ok=True)
        with new_file(path) as draft:
            draft.write_bytes(content)

    def _page(self) -> str:
        specification = json.dumps(self.specification(interactive=True), separators=(",", ":"), allow_nan=False)
        for sign in "<>&":
            specification = specification.replace(sign, f"\\u{ord(sign):04x}")
        title = html.escape(self.title.splitlines()[0] if self.title else "Picture")
        policy = html.escape(POLICY)
        return PAGE.format(policy=policy, title=title, specification=specification, library=javascript_library())

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        """An interactive page in a frame, and a PNG for programs that show no pages."""
        width, height = (float(size) for size in re.findall(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', self.svg)[0])
        frame = (
            f'<iframe srcdoc="{html.escape(self._page())}" sandbox="allow-scripts" '
            f'style="width: {width + 32:.0f}px; height: {height + 32:.0f}px; border: 0"></iframe>'
        )
        return {"text/plain": repr(self), "text/html": frame, "image/png": self.content("png")}

    def __repr__(self) -> str:
        shown = ", ".join(panel.title or "untitled" for panel in self.panels)
        return f"<Picture {self.title.splitlines()[0] if self.title else ''}: {shown}>"


def check_picture(path: str | Path) -> str:
    """The format that the suffix of ``path`` says, or raise unless a picture can be written there."""
    path = Path(path)
    format_ = path.suffix.lower().removeprefix(".")
    if format_ not in FORMATS:
        raise InputError(f"cannot write a picture to {path}: its name must end in .png, .svg, .pdf or .html.")
    if path.is_dir():
        raise InputError(f"cannot write a picture to {path}: it is a folder.")
    return format_


@cache
def javascript_library() -> str:
    """The script that draws Vega-Lite in a page, as ``vegaEmbed``, safe to embed in HTML.

    Sequences that would end the script element or begin a comment are escaped. They occur only inside strings, where
    this changes nothing.
    """
    import vl_convert

    library = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return library.replace("</script", "<\\/script").replace("<!--", "<\\!--")


@cache
def _register_font() -> None:
    """Make the font known that comes with the package, so that it is the same on every machine."""
    import vl_convert

    vl_convert.register_font_directory(str(files("fed_ucbvi.charts").joinpath("fonts")))


def _on_paper(svg: str) -> str:
    def smaller(found: re.Match[str]) -> str:
        width, height = (float(size) * POINTS for size in found.groups())
        return f'width="{width:g}" height="{height:g}"'

    return re.sub(r'width="([\d.]+)" height="([\d.]+)"', smaller, svg, count=1)


def _in_order(pdf: bytes) -> bytes:
    """The document with the names of its parts sorted, because the library writes them in a random order.

    Nothing changes length, so the positions of objects that are listed at the end of the document stay valid.
    """
    return re.sub(rb"(?: +/\w+ \d+ 0 R\n){2,}", lambda found: b"".join(sorted(found[0].splitlines(True))), pdf)
