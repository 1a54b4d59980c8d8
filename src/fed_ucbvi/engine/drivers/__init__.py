"""Drivers by name: who collects the data of a round."""

from __future__ import annotations

from collections.abc import Callable

from fed_ucbvi.core.errors import unknown_name
from fed_ucbvi.engine.drivers.auto import AutoDriver
from fed_ucbvi.engine.drivers.base import Fleet, FleetDriver
from fed_ucbvi.engine.drivers.counts import CountsDriver
from fed_ucbvi.engine.drivers.cuda import CUDA
from fed_ucbvi.engine.drivers.episodes import EpisodesDriver

DRIVERS: dict[str, Callable[[Fleet], FleetDriver]] = {
    "auto": AutoDriver,
    "counts": CountsDriver,
    "episodes": EpisodesDriver,
}
NAMES = (*DRIVERS, CUDA)
"""What a run may ask for; :class:`~fed_ucbvi.engine.drivers.cuda.CudaDriver` needs to know the algorithm too."""


def make_driver(name: str, fleet: Fleet) -> FleetDriver:
    if name not in DRIVERS:
        raise unknown_name("driver", name, NAMES)
    return DRIVERS[name](fleet)
