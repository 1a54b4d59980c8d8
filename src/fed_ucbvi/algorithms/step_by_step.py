"""The frame of algorithms whose agents keep their counts and are asked about one step in each exchange."""

from __future__ import annotations

from typing import Any, ClassVar, Generic

from fed_ucbvi.algorithms.base import Algorithm, Message, SentValues, ServerT


class StepByStep(Algorithm[ServerT, Any], Generic[ServerT]):
    """An algorithm whose agents keep their counts, and whose exchange number e is about step ``h = H-1-e``."""

    asks_to_plan: ClassVar[bool] = True

    def query(self, server: ServerT, exchange: int) -> Message:
        """``V_{h+1}[S]`` for ``h = H-1-exchange``, multiples of ``2^-f`` where reports are sums."""
        return (server.V[len(server.policy) - exchange],)

    @property
    def sent_values(self) -> SentValues:
        return SentValues(query=0)
