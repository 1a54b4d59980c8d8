"""A reader of the live page: its state, its events, and what a script makes of increments."""

from __future__ import annotations

import http.client
import json
from collections.abc import Generator, Mapping
from contextlib import closing
from typing import Any
from urllib.parse import urlsplit

from fed_ucbvi.network.dashboard.series import COLUMNS


def new_mirror() -> dict[str, Any]:
    return {"columns": list(COLUMNS), "stride": 1, "points": []}


def apply(mirror: dict[str, Any], increment: Mapping[str, Any]) -> dict[str, Any]:
    """The content after an increment, as the page's script works it out; changes ``mirror``."""
    mirror["points"][increment.get("first", len(mirror["points"])) :] = increment.get("points", ())
    mirror.update({name: part for name, part in increment.items() if name not in ("first", "points")})
    return mirror


def connect(url: str) -> http.client.HTTPConnection:
    return http.client.HTTPConnection("127.0.0.1", urlsplit(url).port or 0, timeout=300)


def follow(url: str) -> Generator[dict[str, Any], None, None]:
    """Everything that the page shows, after each event; ends when the server does."""
    with closing(connect(url)) as connection:
        connection.request("GET", "/events")
        answer = connection.getresponse()
        kind = ""
        mirror = new_mirror()
        assert answer.status == http.client.OK, answer.status
        while line := answer.readline():
            name, _, value = line.decode().rstrip("\n").partition(": ")
            if name == "event":
                kind = value
            elif name == "data":
                mirror = apply(new_mirror() if kind == "everything" else mirror, json.loads(value))
                yield mirror
