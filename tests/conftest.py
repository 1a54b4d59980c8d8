"""Settings shared by all tests: the same examples on every machine, and runs held to what the theory promises."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import settings

from fed_ucbvi.engine.simulation import Simulation
from fed_ucbvi.results.run import Run
from promises import check_promises

settings.register_profile("repeatable", derandomize=True, deadline=None, max_examples=50, database=None)
settings.load_profile("repeatable")


@pytest.fixture(scope="session", autouse=True)
def _runs_keep_the_theorys_promises() -> Iterator[None]:
    """Every run in the suite that the paper's theorems are about is checked against them when it gives its result."""
    plain_result = Simulation.result

    def checked_result(self: Simulation) -> Run:
        check_promises(self)
        return plain_result(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Simulation, "result", checked_result)
        yield
