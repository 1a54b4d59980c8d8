"""Texts that are safe to show: what steers a terminal or reorders a line is replaced by a sign that can be seen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

Content = TypeVar("Content")

UNKNOWN = "\N{REPLACEMENT CHARACTER}"
SIGNS: dict[int, str] = {
    **{code: chr(0x2400 + code) for code in range(0x20)},  # pictures of control characters: NUL, ESC and the rest
    **{ord(space): " " for space in "\t\n\r\v\f\u2028\u2029"},
    0x7F: "\N{SYMBOL FOR DELETE}",
    **dict.fromkeys(range(0x80, 0xA0), UNKNOWN),  # the other control characters
    **dict.fromkeys((*range(0x202A, 0x202F), *range(0x2066, 0x206A)), UNKNOWN),  # these reorder a line
    **dict.fromkeys(range(0xD800, 0xE000), UNKNOWN),  # halves of characters, which no file can hold
    **dict.fromkeys((0xFFFE, 0xFFFF), UNKNOWN),
}


def printable(text: str) -> str:
    r"""The text with every control character replaced by a sign.

    >>> printable("a\x1b[31mb\x00"), printable("two\nlines")
    ('a␛[31mb␀', 'two lines')
    """
    return text.translate(SIGNS)


def with_printable_texts(content: Content) -> Content:
    """The same value with every text in it made printable: in lists, tuples, mappings and dataclasses alike."""
    made: Any = content
    if isinstance(content, str):
        made = printable(content)
    elif isinstance(content, (list, tuple)):
        made = type(content)(map(with_printable_texts, content))
    elif isinstance(content, Mapping):
        made = {with_printable_texts(key): with_printable_texts(value) for key, value in content.items()}
    elif is_dataclass(content) and not isinstance(content, type):
        made = replace(
            content, **{part.name: with_printable_texts(getattr(content, part.name)) for part in fields(content)}
        )
    return made  # type: ignore[no-any-return]
