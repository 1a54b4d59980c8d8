"""Check the built site: local links and anchors lead somewhere, and nothing is loaded from another host."""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src", "video": "src"}
"""Elements that load something by themselves, and where they say what."""
FROM_OUTSIDE = re.compile(r"""(?:@import|url\()\s*['"(]*\s*(?:https?:)?//""")


class Page(HTMLParser):
    """What a page links to, what it loads, and the anchors it has."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note one element."""
        found = {name: value for name, value in attrs if value is not None}
        self.anchors.update(found[name] for name in ("id", "name") if name in found)
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        if tag in LOADED and LOADED[tag] in found:
            self.loaded.append(found[LOADED[tag]])


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
    for style in site.rglob("*.css"):
        if FROM_OUTSIDE.search(style.read_text(encoding="utf-8")):
            found.append(f"{style.relative_to(site)}: loads from another host")
    return found


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
