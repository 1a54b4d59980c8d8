"""Nodes and servers, as processes, in which exactly one check is missing.

``tests/support/warm_start.py`` starts them. They leave in files what they sent before it was masked; tests compare.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import itertools
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from fed_ucbvi.algorithms.base import Message
from fed_ucbvi.network.messages import Roster, RosterEntry
from fed_ucbvi.network.node_memory import NodeMemory, SumRecord
from fed_ucbvi.network.node_reports import NodeReports, OpenReports
from fed_ucbvi.network.rewards import paid_of
from fed_ucbvi.network.secure_sums import masked, summed

AS_IT_IS = "nothing"


def without(module: str, text: str) -> None:
    """Take out the one statement ``if`` of a module's methods whose source has this text, and nothing else."""
    place = importlib.import_module(f"fed_ucbvi.network.{module}")
    tree = ast.parse(inspect.getsource(place))
    found = [node for node in ast.walk(tree) if isinstance(node, ast.If) and text in ast.unparse(node)]
    (check,) = [node for node in found if not any(other in ast.walk(node) for other in found if other is not node)]
    check.test = ast.Constant(value=False)
    check.body = [ast.Pass()]
    owners = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    ((owner, method),) = [(one, each) for one in owners for each in one.body if check in ast.walk(each)]
    assert isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef)
    made: dict[str, Any] = {}
    exec(compile(ast.fix_missing_locations(ast.Module([method], [])), "<without>", "exec"), vars(place), made)
    setattr(getattr(place, owner.name), method.name, made[method.name])


def replaced(module: str, name: str, value: Any) -> None:
    """Put something else in the place of what a module calls by this name; ``Class.method`` is possible."""
    place: Any = importlib.import_module(f"fed_ucbvi.network.{module}")
    *owner, last = name.split(".")
    setattr(getattr(place, owner[0]) if owner else place, last, value)


def _payments_of_earlier_rounds(reports: NodeReports, note: Mapping[str, Any]) -> Any:
    return paid_of(note["owed"]) if "owed" in note else reports.nothing_paid()


_COUNTS = NodeReports.counts


def _counts_with_logs(reports: NodeReports, *, with_logs: bool) -> Message:
    return _COUNTS(reports, with_logs=True)


_KEEP_SUMS = NodeMemory.keep_sums


def _keep_signatures_alone(memory: NodeMemory, sums: SumRecord) -> None:
    if not sums.answer:
        _KEEP_SUMS(memory, sums)


_WRITE = NodeMemory._write


def _write_no_sums(memory: NodeMemory, content: Any) -> None:
    _WRITE(memory, msgspec.structs.replace(content, sums=SumRecord()))
    memory._content = content


def _all_entries(roster: Roster) -> tuple[RosterEntry, ...]:
    return roster.entries


def _answer_in_the_open() -> None:
    for name in ("answer_query", "_report"):
        replaced("node_reports", f"MaskedReports.{name}", getattr(OpenReports, name))


SWITCHES: dict[str, Callable[[], None]] = {
    AS_IT_IS: lambda: None,
    "this round only": partial(replaced, "node_reports", "MaskedReports.is_settled", lambda *_, **__: False),
    "payments of this round only": partial(
        replaced, "node_reports", "MaskedReports.unreported", _payments_of_earlier_rounds
    ),
    "logs in round 0 only": partial(replaced, "node_reports", "MaskedReports.counts", _counts_with_logs),
    "one answer per round": partial(replaced, "node_memory", "NodeMemory.keep_sums", _keep_signatures_alone),
    "memory on disk": partial(replaced, "node_memory", "NodeMemory._write", _write_no_sums),
    "every episode once": partial(without, "sent_sums", "record.until"),
    "three contributors": partial(without, "roster", "so that no node's numbers stand out"),
    "one broadcast for all": partial(without, "roster", "different broadcasts"),
    "the whole welcome": partial(replaced, "node", "welcome_digest", lambda _: b""),
    "signatures": partial(replaced, "roster", "Authority.check", lambda *_: None),
    "three that report rewards": partial(replaced, "roster", "_with_rewards", _all_entries),
    "pins for rewards": partial(without, "roster", "self.sums_rewards(roster)"),
    "no question in the open": _answer_in_the_open,
    "the kind of errors alone": partial(replaced, "node", "Node.secret", property(lambda _: False, lambda *_: None)),
    "a server's rule of three": partial(replaced, "summing", "SecureSum._may_be_enough", lambda _: True),
}
"""Checks by name, each with what takes it out."""


def take_part(arguments: Sequence[str]) -> None:
    """The process of a node, or of an honest server, without one check.

    It is told which, where to note what it sends or adds up, how long an episode takes, and then the command.
    """
    from fed_ucbvi.command_line import main
    from fed_ucbvi.network import node

    switch, folder, seconds, *command = arguments
    SWITCHES[switch]()
    numbers = itertools.count()
    play_on = node.Node.play_on
    report = node.Node._report

    def note(name: str, arrays: Message) -> None:
        np.savez(Path(folder) / f"{name}.{next(numbers)}.npz", *arrays)

    def noted(own: Message, name: str, *rest: Any) -> Message:
        note(name, own)
        return masked(own, name, *rest)

    due = time.monotonic()

    def slow(self: node.Node) -> Any:
        nonlocal due
        if time.monotonic() < due:
            time.sleep(0.005)
            return None
        due = time.monotonic() + float(seconds)
        return play_on(self)

    def told(self: node.Node, query: Any) -> Any:
        answer = report(self, query)
        note(self.name, answer.arrays)
        return answer

    def remembered(reports: Iterable[Message]) -> Message:
        total = summed(reports)
        note("sum", total)
        return total

    replaced("sent_sums", "masked", noted)
    replaced("summing", "summed", remembered)
    replaced("node", "Node.play_on", slow)
    replaced("node", "Node._report", told)
    sys.argv = ["fed-ucbvi", *command]
    main()
