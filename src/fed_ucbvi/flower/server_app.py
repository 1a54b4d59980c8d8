"""The ServerApp: ``serverapp = "fed_ucbvi.flower.server_app:app"`` in an app's ``pyproject.toml``."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Coroutine, Iterable, Sequence
from typing import Any, TypeVar

from flwr.app import ConfigRecord, Message, MessageType, RecordDict
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid, ServerApp

from fed_ucbvi.command_line.options import Output
from fed_ucbvi.command_line.outputs import check_kept, finish
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.flower.hosting import Answer, hold
from fed_ucbvi.flower.invitation import DAYS, RECORD, REQUEST, Figures, Invitation
from fed_ucbvi.flower.settings import RunSettings
from fed_ucbvi.network.server import Outcome

log = logging.getLogger("fed_ucbvi.federation")

Figured = TypeVar("Figured")

LOST = (
    *(ErrorCode.MESSAGE_UNAVAILABLE, ErrorCode.REPLY_MESSAGE_UNAVAILABLE),
    *(ErrorCode.NODE_UNAVAILABLE, ErrorCode.CLIENT_APP_CRASHED),
)
"""What Flower says about a SuperNode or ClientApp that has died with the message; it may be invited again."""


class FlowerChannel:
    """Invitations by way of Flower's grid."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid

    def online(self) -> Iterable[int]:
        return [int(node_id) for node_id in self._grid.get_node_ids()]

    def invite(self, node_id: int, invitation: Invitation) -> str:
        """Send an invitation; the answer may take as long as the certificates are good."""
        content = RecordDict({RECORD: ConfigRecord(invitation.record())})
        message = Message(content, node_id, MessageType.TRAIN, ttl=DAYS * 24 * 3600)
        (sent,) = self._grid.push_messages([message])
        if sent is None:
            raise InputError(f"the SuperLink did not accept the invitation for SuperNode {node_id}.")
        return str(sent)

    def answers(self, messages: Sequence[str]) -> Iterable[Answer]:
        """Answers that have come since the last call."""
        if not messages:
            return []
        return [_answer(reply) for reply in self._grid.pull_messages(messages)]


def _answer(reply: Any) -> Answer:
    to = reply.metadata.reply_to_message_id
    if reply.has_error():
        return Answer(to, error=str(reply.error.reason), lost=reply.error.code in LOST)
    record = reply.content[RECORD]
    return Answer(to, request=record[REQUEST]) if REQUEST in record else Answer(to, Figures(**record))


def run_until_signalled(work: Coroutine[Any, Any, Figured]) -> Figured:
    """Run ``work``; a signal cancels it, so that it ends in good order, and is then passed to Flower's own handler.

    Flower's handler would end all tasks at once, and nodes would not hear that the run is over.
    """
    signals = (signal.SIGINT, signal.SIGTERM)
    earlier = {number: signal.getsignal(number) for number in signals}
    came: list[int] = []

    async def cancellable() -> Figured:
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        assert task is not None

        def stop(number: int) -> None:
            came.append(number)
            task.cancel()

        for number in signals:
            loop.add_signal_handler(number, stop, number)
        return await work

    try:
        return asyncio.run(cancellable())
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)
        if came:
            signal.raise_signal(came[0])


def main(grid: Any, context: Any) -> None:
    """Hold the run that the run configuration describes."""
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    log.setLevel(logging.INFO)
    settings = RunSettings.of(context.run_config)
    check_kept(settings.spec)
    if not settings.superlink_tls:
        log.warning("superlink-tls is false: certificates are handed out on this machine only")

    def done(outcome: Outcome, failure: InputError | None) -> None:
        finish(outcome.run, settings.spec, Output(as_json=True), outcome, failure)

    run = f"flower-{context.run_id}"
    figures = run_until_signalled(hold(FlowerChannel(grid), settings, run, done=done))
    for name, own in sorted(figures.items()):
        last = own.first_agent + own.agents - 1
        log.info("%s: agents %d to %d took part to the end, %d rounds", name, own.first_agent, last, own.rounds)


app = ServerApp()
app.main()(main)
