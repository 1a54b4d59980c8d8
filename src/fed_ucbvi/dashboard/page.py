"""The page: one document without anything outside it, and the policy that forbids everything else."""

from __future__ import annotations

import base64
import hashlib
import json
from functools import cache
from importlib.resources import files

from fed_ucbvi.core.colours import BLUE, GREEN, ORANGE, PURPLE, VERMILLION, on_dark
from fed_ucbvi.dashboard.series import COLUMNS

COLOURS = {"blue": BLUE, "vermillion": VERMILLION, "green": GREEN, "orange": ORANGE, "purple": PURPLE}


@cache
def page() -> tuple[str, str]:
    """The document, and its content security policy: the script and the style in it, and calls to its own server."""
    style, script = (
        _colours() + _asset("page.css"),
        _asset("page.js").replace("/* columns */ []", json.dumps(COLUMNS)),
    )
    html = _asset("page.html").replace("/* style */", style).replace("/* script */", script)
    policy = (
        f"default-src 'none'; script-src 'sha256-{_digest(script)}'; style-src 'sha256-{_digest(style)}'; "
        "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return html, policy


def _colours() -> str:
    """The colours of curves, which everyone can tell apart, as variables; lighter ones on a dark page."""
    light, dark = (
        " ".join(f"--{name}: {change(colour)};" for name, colour in COLOURS.items()) for change in (str, on_dark)
    )
    return f":root {{ {light} }}\n@media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}\n"


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _asset(name: str) -> str:
    return files("fed_ucbvi.dashboard").joinpath(name).read_text(encoding="utf-8")
