"""The ClientApp: ``clientapp = "fed_ucbvi.flower.client_app:app"`` in an app's ``pyproject.toml``."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import asdict
from typing import Any

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp

from fed_ucbvi.flower.accepting import accept
from fed_ucbvi.flower.invitation import RECORD, Invitation
from fed_ucbvi.flower.settings import NodeSettings


def train(message: Any, context: Any) -> Any:
    """Take part in a run from its beginning to its end, over a stream of our own."""
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    settings = NodeSettings.of(context.node_config)
    figures = asyncio.run(accept(Invitation.of(message.content[RECORD]), settings))
    return Message(RecordDict({RECORD: ConfigRecord(asdict(figures))}), reply_to=message)


app = ClientApp()
app.train()(train)
