"""Check the built site: links lead somewhere, nothing comes from another host, and everything can be read.

Formulas use only characters of the embedded font, no text shows raw marks of formulas, help fits into its column, and
what the documents import or call has an entry in the reference.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

PACKAGE = Path(__file__).parent.parent / "src" / "fed_ucbvi"
LOADED = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src", "video": "src"}
"""Elements that load something by themselves, and where they say what."""
FROM_OUTSIDE = re.compile(r"""(?:@import|url\()\s*['"(]*\s*(?:https?:)?//""")
LOCAL = re.compile(r"""url\(\s*['"]?([\w./-]+)['"]?\s*\)""")
VERBATIM = ("script", "style", "svg", "math", "pre", "code", "title", "dt")
"""Elements whose text is not prose; the last has the signatures of the reference."""
VOID = ("area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr")
RAW = re.compile(r"\S*(?:\^|_\{)\S*")
"""Marks of formulas that readers should not see: extensions/scripts.py knows them; a star is written ``\\*``."""
REFERENCE, COMMANDS, COLUMNS = Path("generated/api.html"), Path("generated/commands.html"), 88
IMPORT = re.compile(r"^from fed_ucbvi[\w.]* import (\([^)]*\)|.*)$", flags=re.MULTILINE)
CALL = re.compile(r"(?:fed_ucbvi\.)?(\w+)\(.*\)", flags=re.DOTALL)
YOURS = {"make"}
"""Functions of readers that have the names of some of ours."""


class Page(HTMLParser):
    """What a page links to, what it loads, the anchors it has, and its texts by the elements that hold them."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = set()
        self.prose = ""
        self.texts: dict[str, list[str]] = {"math": [], "pre": [], "code": []}
        self._open: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note one element."""
        found = {name: value for name, value in attrs if value is not None}
        self.anchors.update(found[name] for name in ("id", "name") if name in found)
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        if tag in LOADED and LOADED[tag] in found:
            self.loaded.append(found[LOADED[tag]])
        if tag not in VOID:
            self._open.append(tag)
        if tag in self.texts:
            self.texts[tag].append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """An element without an end."""
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        """Leave an element, and those in it whose end is not written."""
        if tag in self._open:
            while self._open.pop() != tag:
                pass

    def handle_data(self, data: str) -> None:
        """Note a text."""
        for tag in {*self._open} & {*self.texts}:
            self.texts[tag][-1] += data
        if not {*self._open} & {*VERBATIM}:
            self.prose += data


def troubles(site: Path) -> list[str]:
    """What is wrong, one line each."""
    pages = {path: Page(path) for path in sorted(site.rglob("*.html"))}
    found = []
    for path, page in pages.items():
        name = path.relative_to(site)
        found += [f"{name}: loads {what}" for what in page.loaded if urlsplit(what).netloc]
        for link in (*page.links, *page.loaded):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.exists():
                found.append(f"{name}: nothing at {link}")
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors:
                found.append(f"{name}: no anchor {link}")
        found += [f"{name}: shows {raw}" for raw in RAW.findall(page.prose)]
        if name == COMMANDS:
            lines = [line for text in page.texts["pre"] for line in text.splitlines()]
            found += [f"{name}: wider than {COLUMNS} columns: {line}" for line in lines if len(line) > COLUMNS]
    drawn = {char for page in pages.values() for text in page.texts["math"] for char in text if not char.isspace()}
    styles = {path: path.read_text(encoding="utf-8") for path in site.rglob("*.css")}
    if drawn:
        known = set(_ranges("\n".join(styles.values())))
        found += [f"formulas: {char} is not in the embedded font" for char in sorted(drawn) if ord(char) not in known]
    for path, style in styles.items():
        name = path.relative_to(site)
        if FROM_OUTSIDE.search(style):
            found.append(f"{name}: loads from another host")
        files = [link for link in LOCAL.findall(style) if not (path.parent / link).exists()]
        found += [f"{name}: nothing at {link}" for link in files]
    if site / REFERENCE in pages:
        anchors = {anchor.rpartition(".")[2] for anchor in pages[site / REFERENCE].anchors}
        ours = _ours()
        for path, page in pages.items():
            missing = sorted((_used(page) & ours) - anchors) if path != site / REFERENCE else []
            found += [f"{path.relative_to(site)}: {name} is not in {REFERENCE}" for name in missing]
    return found


def _ranges(style: str) -> Iterator[int]:
    """The characters that embedded fonts say they have."""
    for listed in re.findall(r"unicode-range:([^;}]*)", style):
        for first, last in re.findall(r"U\+([0-9A-F]+)(?:-([0-9A-F]+))?", listed):
            yield from range(int(first, 16), int(last or first, 16) + 1)


def _ours() -> set[str]:
    """Every public class, function and value of the package."""
    names: set[str] = set()
    for path in PACKAGE.rglob("*.py"):
        for line in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(line, ast.ClassDef | ast.FunctionDef):
                names.add(line.name)
            elif isinstance(line, ast.Assign | ast.AnnAssign):
                targets = line.targets if isinstance(line, ast.Assign) else [line.target]
                names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return names - YOURS


def _used(page: Page) -> set[str]:
    """What the Python of a page imports from the package, and what its text calls."""
    imported = {
        part.split()[0]
        for text in page.texts["pre"]
        for names in IMPORT.findall(text)
        for part in names.strip("()").partition("#")[0].split(",")
        if part.strip()
    }
    return imported | {called[1] for text in page.texts["code"] if (called := CALL.fullmatch(text))}


def main() -> None:
    """Check the site in the folder that is named."""
    site = Path(sys.argv[1]).resolve()
    if not (site / "index.html").is_file():
        sys.exit(f"no site in {site}: 'make docs' builds it.")
    wrong = troubles(site)
    sys.stdout.write("".join(f"{line}\n" for line in wrong))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
