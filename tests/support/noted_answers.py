"""A node, as a process, that notes which episodes it puts into which answer."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from fed_ucbvi.algorithms.base import Message
from fed_ucbvi.network.messages import Report, Roster
from fed_ucbvi.network.roster import fingerprint
from fed_ucbvi.network.sent_sums import SentSums


def take_part(arguments: Sequence[str]) -> None:
    """Run a command; the first argument is the file for the notes."""
    from fed_ucbvi.command_line import main

    file, *command = arguments
    answer = SentSums.answer

    def noted(sums: SentSums, roster: Roster, report: Message) -> Report:
        made = answer(sums, roster, report)
        record = sums._memory.sums
        assert record.entry is not None
        episodes = record.entry.ready.episodes
        about = {"roster": fingerprint(roster).hex(), "first": record.end - episodes, "episodes": episodes}
        with Path(file).open("a", encoding="utf-8") as notes:
            notes.write(json.dumps(about) + "\n")
        return made

    SentSums.answer = noted  # type: ignore[method-assign,assignment]
    sys.argv = ["fed-ucbvi", *command]
    main()
