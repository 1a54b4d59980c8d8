"""The ServerApp: ``serverapp = "fed_ucbvi.network.flower.server_app:app"`` in an app's ``pyproject.toml``."""

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
from fed_ucbvi.command_line.outputs import check_kept
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.network.commands.outputs import finish_federation
from fed_ucbvi.network.flower.hosting import hold
from fed_ucbvi.network.flower.invitation import DAYS, ERROR, LOST, RECORD, Invitation, Record
from fed_ucbvi.network.flower.settings import RunSettings
from fed_ucbvi.network.server import Outcome

log = logging.getLogger("fed_ucbvi.federation")

T = TypeVar("T")

DIED = (
    ErrorCode.MESSAGE_UNAVAILABLE,
    ErrorCode.REPLY_MESSAGE_UNAVAILABLE,
    ErrorCode.NODE_UNAVAILABLE,
    ErrorCode.CLIENT_APP_CRASHED,
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
        content = RecordDict({RECORD: ConfigRecord(vars(invitation))})
        message = Message(content, node_id, MessageType.TRAIN, ttl=DAYS * 24 * 3600)
        (sent,) = self._grid.push_messages([message])
        if sent is None:
            raise InputError(f"the SuperLink did not accept the invitation for SuperNode {node_id}.")
        return str(sent)

    def answers(self, messages: Sequence[str]) -> Iterable[tuple[str, Record]]:
        for reply in self._grid.pull_messages(messages) if messages else ():
            if reply.has_error():
                answer: Record = {LOST if reply.error.code in DIED else ERROR: str(reply.error.reason)}
            else:
                answer = dict(reply.content[RECORD])
            yield reply.metadata.reply_to_message_id, answer


def run_until_signalled(work: Coroutine[Any, Any, T]) -> T:
    """Run ``work``; a signal cancels it, so that it ends in good order, and is then passed to Flower's own handler.

    Flower's handler would end all tasks at once, and nodes would not hear that the run is over.
    """
    earlier = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    came: list[int] = []

    async def cancellable() -> T:
        task = asyncio.ensure_future(work)

        def stop(number: int) -> None:
            came.append(number)
            task.cancel()

        for number in earlier:
            asyncio.get_running_loop().add_signal_handler(number, stop, number)
        return await task

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
    check_kept(settings.run)
    if not settings.superlink_tls:
        log.warning("superlink-tls is false: certificates are handed out on this machine only")

    def done(outcome: Outcome, failure: InputError | None) -> None:
        output = Output(as_json=True)
        finish_federation(outcome, settings.run, output, secure_sums=False, failure=failure)

    run = f"flower-{context.run_id}"
    figures = run_until_signalled(hold(FlowerChannel(grid), settings, run, done=done))
    for name, own in sorted(figures.items()):
        first, agents, rounds = (own[key] for key in ("first_agent", "agents", "rounds"))
        log.info("%s: agents %d to %d took part to the end, %d rounds", name, first, first + agents - 1, rounds)


app = ServerApp()
app.main()(main)
