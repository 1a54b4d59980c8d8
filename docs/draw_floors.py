"""Draw docs/floors.svg and the table of docs/architecture.md from the contracts and the imports that there are.

    make architecture

The floors are those of ``[tool.importlinter]`` in pyproject.toml, which ``make lint`` checks; what a package holds is
the first sentence of its docstring; what it imports is read from its source.
"""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "fed_ucbvi"
PAGE, PICTURE = ROOT / "docs" / "architecture.md", ROOT / "docs" / "floors.svg"
BEGIN, END = "<!-- floors: made by draw_floors.py -->", "<!-- end of floors -->"
WIDTH, FLOOR, GAP, MARGIN = 760, 50, 12, 16


def floors() -> list[list[str]]:
    """The packages, and modules that have a floor to themselves, floor by floor, from the top."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    layers = next(c["layers"] for c in project["tool"]["importlinter"]["contracts"] if c["type"] == "layers")
    names = [[name.strip() for name in layer.split("|")] for layer in layers]
    below_the_doors = [level for level in names if "__main__" not in level]
    return [[name for name in level if (SOURCE / name).is_dir()] or level for level in below_the_doors]


def sources(package: str) -> list[Path]:
    """The modules of a package."""
    return sorted((SOURCE / package).rglob("*.py")) or [SOURCE / f"{package}.py"]


def holds(package: str) -> str:
    """The first sentence of a package's docstring."""
    text = ast.get_docstring(ast.parse(sources(package)[0].read_text(encoding="utf-8"))) or ""
    return " ".join(text.split("\n\n")[0].split()).rstrip(".")


def imports(package: str) -> set[str]:
    """The other packages that it imports, at the top of a module or within a function."""
    found = set()
    for path in sources(package):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom):
                found |= set(re.findall(r"^fed_ucbvi\.(\w+)", node.module or ""))
    return found - {package}


def picture() -> str:
    """The floors, one box a package."""
    levels = floors()
    height = 2 * MARGIN + len(levels) * FLOOR + (len(levels) - 1) * GAP
    shapes = []
    for level, packages in enumerate(levels):
        y, wide = MARGIN + level * (FLOOR + GAP), (WIDTH - 2 * MARGIN + GAP) / len(packages)
        for place, package in enumerate(packages):
            lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in sources(package))
            x, middle = MARGIN + place * wide, MARGIN + place * wide + (wide - GAP) / 2
            shapes += [
                f'<rect x="{x:g}" y="{y}" width="{wide - GAP:g}" height="{FLOOR}" rx="6" fill="#E8F1F8" '
                'stroke="#0072B2"/>',
                f'<text x="{middle:g}" y="{y + 22}" font-weight="bold">{escape(package)}</text>',
                f'<text x="{middle:g}" y="{y + 39}" font-size="12">{round(lines, -2):,} lines</text>',
            ]
    body = "\n".join(shapes)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" font-family="sans-serif" '
        f'font-size="15" text-anchor="middle">\n<title>The floors of the package: imports go down</title>\n'
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>\n{body}\n</svg>\n'
    )


def table() -> str:
    """What each package holds and imports."""
    rows = ["| package | what it holds | imports |", "|---|---|---|"]
    order = [package for level in floors() for package in level]
    for package in order:
        imported = imports(package)
        below = [name for name in order if name in imported]
        rows.append(f"| `{package}` | {holds(package)} | {', '.join(below) or 'nothing of ours'} |")
    return "\n".join(rows)


def page(text: str) -> str:
    """The page with the table made anew."""
    before, rest = text.split(BEGIN)
    return f"{before}{BEGIN}\n{table()}\n{END}{rest.split(END)[1]}"


if __name__ == "__main__":
    PICTURE.write_text(picture(), encoding="utf-8")
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
