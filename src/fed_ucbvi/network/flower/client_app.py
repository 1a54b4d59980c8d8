"""The ClientApp: ``clientapp = "fed_ucbvi.network.flower.client_app:app"`` in an app's ``pyproject.toml``."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp

from fed_ucbvi.network.flower.invitation import RECORD, Invitation, answer
from fed_ucbvi.network.flower.settings import NodeSettings


def train(message: Any, context: Any) -> Any:
    """Take part in a run from its beginning to its end, over a stream of our own.

    The first message is answered by a signing request; the key to it stays in the node's own memory of the run.
    """
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    settings = NodeSettings.of(context.node_config)
    keys = dict(context.state.get(RECORD, {}))
    given = asyncio.run(answer(Invitation.of(message.content[RECORD]), settings, keys))
    context.state[RECORD] = ConfigRecord(keys)
    return Message(RecordDict({RECORD: ConfigRecord(given)}), reply_to=message)


app = ClientApp()
app.train()(train)
