"""Texts for people: safe on a terminal and on a page, cut where they are long, or as a small table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from html import escape
from typing import Any, TypeVar

from fed_ucbvi.core.errors import printable
from fed_ucbvi.core.numbers import number_text

Content = TypeVar("Content")

SPACES = dict.fromkeys(map(ord, "\t\n\v\f\r\u2028\u2029"), " ")


def one_line(text: str) -> str:
    r"""The text, printable, with spaces in place of line ends and tabs.

    >>> print(one_line("a\x1b[31mb\x00"), one_line("two\nlines"))
    a\x1b[31mb\x00 two lines
    """
    return printable(text.translate(SPACES))


def shortened(text: str, longest: int = 60) -> str:
    """A text cut to so many characters.

    >>> shortened("[[0, 0], [0, 1]]", 8)
    '[[0, 0]…'
    """
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def with_printable_texts(content: Content) -> Content:
    """The value with every text in it made printable: in lists, tuples, mappings and dataclasses alike."""
    made: Any = content
    if isinstance(content, str):
        made = one_line(content)
    elif isinstance(content, (list, tuple)):
        make: Any = getattr(content, "_make", type(content))  # a named tuple takes its parts one by one
        made = make(map(with_printable_texts, content))
    elif isinstance(content, Mapping):
        made = {with_printable_texts(key): with_printable_texts(value) for key, value in content.items()}
    elif is_dataclass(content) and not isinstance(content, type):
        parts = [part.name for part in fields(content)]
        made = replace(
            content,
            **{name: with_printable_texts(getattr(content, name)) for name in parts},
        )
    return made  # type: ignore[no-any-return]


def html_table(title: str, rows: Iterable[Sequence[str]], header: Sequence[str] = ()) -> str:
    """A table with a caption, as HTML; texts are escaped.

    >>> html_table("Two & two", [("sum", "4")])
    '<table><caption><b>Two &amp; two</b></caption><tbody><tr><td>sum</td><td>4</td></tr></tbody></table>'
    """
    head = f"<thead><tr>{_cells(header, 'th')}</tr></thead>" if header else ""
    body = "".join(f"<tr>{_cells(row, 'td')}</tr>" for row in rows)
    return f"<table><caption><b>{escape(title)}</b></caption>{head}<tbody>{body}</tbody></table>"


class Tabled:
    """An object that a notebook shows as a table of the numbers in its summary."""

    def summary(self) -> dict[str, Any]:
        """Its figures by name, ready for JSON."""
        raise NotImplementedError

    def _repr_html_(self) -> str:
        numbers = ((name, value) for name, value in self.summary().items() if isinstance(value, int | float))
        return html_table(
            repr(self).strip("<>"),
            [(name.replace("_", " "), number_text(x)) for name, x in numbers],
        )


def _cells(texts: Sequence[str], tag: str) -> str:
    return "".join(f"<{tag}>{escape(text)}</{tag}>" for text in texts)
