"""The page in a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from fed_ucbvi.core.numbers import byte_count, number_text

STYLES = {"present": "green", "away": "yellow", "excluded": "red", "expected": "dim", "running": "green"}
STYLES |= {"finished": "green", "left": "dim", "over": "green", "stopped": "red"}
ROWS = 8
"""Rounds, events and runs that are listed."""
BLOCKS = "▁▂▃▄▅▆▇█"


def text_view(content: Mapping[str, Any]) -> RenderableType:
    """What the page shows, for Rich to print."""
    subject, status = content["subject"], content["status"]
    phase = Text(status["phase"], style=f"bold {STYLES.get(status['phase'], '')}")
    parts: list[RenderableType] = [Text.assemble((subject["title"], "bold"), "  ", phase)]
    parts += [Text(status["text"], style="yellow")] if status["text"] else []
    if "now" in content:
        parts += _run(content)
    if "network" in content:
        parts += _federation(content)
    if "recent" in content:
        parts.append(_rounds(content))
    if "sweep" in content:
        parts += _sweep(content["sweep"])
    return Group(*parts)


def _run(content: Mapping[str, Any]) -> list[RenderableType]:
    now, points, columns = content["now"], content["points"], content["columns"]
    done, planned = now["episodes"], now["planned_episodes"]
    grid = _grid()
    grid.add_row("episodes", f"{done:,} of {planned:,}", ProgressBar(planned, done, width=30))
    grid.add_row("rounds", f"{now['round']:,}", f"{now['synchronisations']:,} synchronisations")
    for name, words in (("reward", "reward of an episode"), ("regret", "regret so far")):
        values = [point[columns.index(name)] for point in points]
        if any(value is not None for value in values):
            grid.add_row(words, _number(now[name]), sparkline(values))
    if now["gap"] is not None:
        both = f"optimistic {_number(now['optimistic_value'])}, recommended {_number(now['recommended_value'])}"
        grid.add_row("gap", _number(now["gap"]), both)
    lengths = [point[columns.index("length")] for point in points]
    grid.add_row("length of a round", f"{now['length']:,}", sparkline(lengths))
    grid.add_row("bytes", byte_count(now["bytes_up"]) + " up", byte_count(now["bytes_down"]) + " down")
    if now["seconds"] is not None:
        grid.add_row("time", f"{now['seconds']:,.1f} s", "")
    return [grid]


def _federation(content: Mapping[str, Any]) -> list[RenderableType]:
    network, secure = content["network"], content["network"]["secure_sums"]
    grid = _grid()
    up, down = byte_count(network["bytes_up"]), byte_count(network["bytes_down"])
    latency = "" if network["latency"] is None else f"latency {1000 * network['latency']:,.1f} ms"
    grid.add_row("on the wire", f"{up} up, {down} down", latency)
    grid.add_row("violations", f"{network['violations']:,}", "secure sums" if secure else "")
    nodes = Table(box=None, pad_edge=False, header_style="dim")
    for head in ("node", "state", *(() if secure else ("agents", "episodes", "latency", "up", "down"))):
        nodes.add_column(head, justify="left" if head in ("node", "state", "agents") else "right")
    for node in content["nodes"]:
        row = [Text(node["name"]), Text(node["state"], style=STYLES[node["state"]])]
        if not secure and "agents" in node:
            last = node["first_agent"] + node["agents"] - 1
            span = f"{last}" if node["agents"] == 1 else f"{node['first_agent']}-{last}"
            latency = "" if node["latency"] is None else f"{1000 * node['latency']:,.1f} ms"
            sent = (byte_count(node["bytes_up"]), byte_count(node["bytes_down"]))
            row += [Text(text) for text in (span, f"{node['episodes']:,}", latency, *sent)]
        nodes.add_row(*row)
    events = [
        Text(f"round {event['round']}, {event['node']}: {event['what']} -> {event['done']}", style="yellow")
        for event in content["events"][-ROWS:]
    ]
    return [grid, nodes, *events]


def _rounds(content: Mapping[str, Any]) -> RenderableType:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for head in ("round", "length", "who asked", "step", "state", "action", "rule"):
        table.add_column(head, justify="right" if head in ("round", "length") else "left")
    for one in content["recent"][:ROWS]:
        asked = f"agent {one['agent']}" if one["agent"] >= 0 else "secret" if one["requests"] else "nobody"
        places = (one["step"] + 1 if one["step"] >= 0 else "", one["state"], one["action"])
        where = ["" if place == -1 else str(place) for place in places]
        table.add_row(f"{one['round']:,}", f"{one['length']:,}", asked, *where, one["rule"])
    return table


def _sweep(sweep: Mapping[str, Any]) -> list[RenderableType]:
    grid = _grid()
    done = sweep["done"] + sweep["failed"]
    counted = f"{sweep['done']:,} done, {sweep['failed']:,} failed of {sweep['runs']:,}"
    grid.add_row("runs", counted, ProgressBar(max(1, sweep["runs"]), done, width=30))
    table = Table(box=None, pad_edge=False, header_style="dim")
    for head in ("run", "group", "seed", "value", "regret", "rounds"):
        table.add_column(head, justify="left" if head in ("run", "group") else "right")
    for row in sweep["rows"][:ROWS]:
        if "error" in row:
            figures = [Text(row["error"], style="red", overflow="ellipsis"), Text(), Text()]
        else:
            figures = [Text(text) for text in (_number(row["value"]), _number(row["regret"]), f"{row['rounds']:,}")]
        table.add_row(row["id"], Text(row["group"]), row["seed"], *figures)
    return [grid, *([Text(sweep["shared"])] if sweep["shared"] else []), table]


def sparkline(values: list[float | None], width: int = 30) -> str:
    """A curve in one line of characters.

    >>> sparkline([0, 1, 2, None, 7])
    '▁▂▃▁█'
    """
    step = max(1, len(values) / width)
    chosen = [values[int(place * step)] for place in range(min(width, len(values)))]
    known = [value for value in chosen if value is not None]
    low, high = min(known, default=0.0), max(known, default=0.0)
    share = [0.0 if value is None or high == low else (value - low) / (high - low) for value in chosen]
    return "".join(BLOCKS[round(part * (len(BLOCKS) - 1))] for part in share)


def _grid() -> Table:
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="dim", no_wrap=True)
    return grid


def _number(value: float | None) -> str:
    return number_text(float("nan") if value is None else float(f"{value:.4g}"))
