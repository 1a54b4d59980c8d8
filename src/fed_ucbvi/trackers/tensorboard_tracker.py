"""Runs in TensorBoard: figures as scalars, parameters in the tab HPARAMS; without TensorFlow and PyTorch."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.hparams import metadata
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData, SessionStartInfo
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from fed_ucbvi.trackers.tracker import Tracker

SECONDS_TO_DISK = 2
"""How old what is not yet on disk can be."""


class TensorBoardTracker(Tracker):
    """Writes an event file for ``tensorboard --logdir``.

    Args:
        folder: of this run; several runs in folders side by side are compared.
        every: log every n-th round.
    """

    def __init__(self, folder: str | Path, every: int = 1) -> None:
        super().__init__(every)
        self._writer = EventFileWriter(str(folder), flush_secs=SECONDS_TO_DISK)

    def write(self, episodes: int, figures: Mapping[str, float]) -> None:
        """Keep the figures of one round; TensorBoard has single precision."""
        values = [Summary.Value(tag=name, simple_value=value) for name, value in figures.items()]
        self._writer.add_event(Event(wall_time=time.time(), step=episodes, summary=Summary(value=values)))

    def describe(self, parameters: Mapping[str, Any], results: Mapping[str, float], episodes: int) -> None:
        start = SessionStartInfo(start_time_secs=time.time())
        for name, value in parameters.items():
            if isinstance(value, bool):
                start.hparams[name].bool_value = value
            elif isinstance(value, int | float):
                start.hparams[name].number_value = value
            else:
                start.hparams[name].string_value = str(value)
        about = metadata.create_summary_metadata(HParamsPluginData(session_start_info=start))
        session = Summary.Value(tag=metadata.SESSION_START_INFO_TAG, metadata=about, tensor=metadata.NULL_TENSOR)
        self._writer.add_event(Event(wall_time=time.time(), summary=Summary(value=[session])))
        self.write(episodes, results)

    def close(self, *, failed: bool) -> None:
        self._writer.close()
