"""Texts that are safe to show: what steers a terminal or reorders a line is written out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

Content = TypeVar("Content")

SPACES = "\t\n\v\f\r\u2028\u2029"
UNSAFE = (
    *range(0x20),  # control characters: NUL, ESC and the rest
    *range(0x7F, 0xA0),
    *range(0x202A, 0x202F),  # these reorder a line
    *range(0x2066, 0x206A),
    *range(0xD800, 0xE000),  # halves of characters, which no file can hold
    *(0xFFFE, 0xFFFF),
)
SIGNS: dict[int, str] = {code: f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" for code in UNSAFE}
SIGNS |= {ord(space): " " for space in SPACES}


def printable(text: str) -> str:
    r"""The text with every control character written out, as Python would; line ends and tabs become spaces.

    >>> print(printable("a\x1b[31mb\x00"), printable("two\nlines"))
    a\x1b[31mb\x00 two lines
    """
    return text.translate(SIGNS)


def shortened(text: str, longest: int = 60) -> str:
    """A text cut to so many characters.

    >>> shortened("[[0, 0], [0, 1]]", 8)
    '[[0, 0]…'
    """
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def with_printable_texts(content: Content) -> Content:
    """The same value with every text in it made printable: in lists, tuples, mappings and dataclasses alike."""
    made: Any = content
    if isinstance(content, str):
        made = printable(content)
    elif isinstance(content, (list, tuple)):
        make: Any = getattr(content, "_make", type(content))  # a named tuple takes its parts one by one
        made = make(map(with_printable_texts, content))
    elif isinstance(content, Mapping):
        made = {with_printable_texts(key): with_printable_texts(value) for key, value in content.items()}
    elif is_dataclass(content) and not isinstance(content, type):
        made = replace(
            content, **{part.name: with_printable_texts(getattr(content, part.name)) for part in fields(content)}
        )
    return made  # type: ignore[no-any-return]
