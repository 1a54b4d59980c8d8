"""The cuda driver: the episodes driver's trajectories on a GPU, bit for bit.

Everything that only one agent needs stays on the GPU: its visits in the round and, where the local rule reads them,
its visits so far. So budgets are computed there, at the visit. Only the policy, one row of budgets, and sums of
integers over all agents are copied between GPU and processor.

A short round is two launches. In the first every agent plays until it requests a synchronisation, or has reached the
earliest request that is known by then. Agents that went past the earliest request take episodes back, by replaying
them, in one more launch. The last launch counts the requests, adds the round's visits to the agents' own and empties
them.
"""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from fed_ucbvi.algorithms.base import Algorithm, Budgets, Counting, Setting
from fed_ucbvi.algorithms.synchronisation_rules import DoublingRule, SynchronisationRule
from fed_ucbvi.core.errors import InputError, missing_package
from fed_ucbvi.core.sampling.distributions import cumulative
from fed_ucbvi.core.types import CountArray, FloatArray, PolicyArray
from fed_ucbvi.engine.drivers.base import Fleet, FleetDriver, Played, RoundEnd
from fed_ucbvi.engine.drivers.played_actions import PossibleActions
from fed_ucbvi.problem.federation import Federation

CUDA = "cuda"
WARP = 32
"""Threads that run together."""
THREADS = 256
"""Threads of a block."""
STEPS_PER_LAUNCH = 1 << 35
STEPS_PER_THREAD = 1 << 17
"""Limits of a launch, a few tenths of a second, so that Ctrl-C and the progress bar are served in between."""
SHARED_BYTES = 48 << 10
"""Shared memory that a block has on every GPU."""
COUNTER_BYTES = 4
GROWTH = 8
"""A round is prolonged by one part in this many at a time, so that few episodes are taken back."""
ROWS = 8
"""Blocks that share the cells of the same agents when a round ends."""
SHARE_OF_MEMORY = 0.95
"""The largest share of the free memory that is used."""
NO_STARTS = -1
"""Place of the counts of initial states where none are counted."""
MAX_VISITS = 2**31 - 1
"""The largest number in a counter of an agent, which has 32 bits."""


def on_gpu(fleet: Fleet, algorithm: Algorithm[Any, Any], federation: Federation, setting: Setting) -> CudaDriver:
    """The driver for all agents of a federation; raise with the reason where it cannot play."""
    rule = algorithm.synchronisation_rule(setting)
    reason = _obstacle(rule, algorithm, federation, setting)
    if rule is None or reason:
        raise InputError(
            "the driver cuda plays fed-kl-ucbvi and fed-ucbvi, for honest agents that share their rewards, with up "
            f"to {MAX_VISITS:,} visits of one agent to one place; {reason}. Use the driver episodes or auto."
        )
    return CudaDriver(fleet, rule, setting.agents)


def _obstacle(
    rule: SynchronisationRule | None,
    algorithm: Algorithm[Any, Any],
    federation: Federation,
    setting: Setting,
) -> str:
    """The reason why a run cannot be played on a GPU; empty if it can."""
    if rule is None:
        return f"{algorithm.name} is another algorithm"
    if federation.liars is not None:
        return "here some agents lie"
    if federation.rewards.shape[0] > 1 or not federation.pay_alike:
        return "here agents have rewards of their own"
    if not rule.shared and not isinstance(rule, DoublingRule):
        return "here a rule of one's own reads each agent's visits"
    steps = setting.horizon if algorithm.counting is Counting.STATIONARY else 1
    visits = setting.episodes * steps
    if visits > MAX_VISITS:
        return f"an agent can come {visits:,} times to one place"
    return ""


def _kernels() -> Any:
    """The module of kernels, which needs numba-cuda and a GPU."""
    if importlib.util.find_spec("numba_cuda") is None:
        raise missing_package("the driver cuda needs", "numba-cuda", "gpu")
    from numba import cuda

    if not cuda.is_available():
        raise InputError(
            "the driver cuda needs an NVIDIA GPU with a CUDA driver, and numba-cuda finds none; 'nvidia-smi' lists "
            "those there are. Use the driver episodes, which gives the same result, or auto."
        )
    from fed_ucbvi.engine.drivers import cuda_kernels

    return cuda_kernels


class LevelDraws(NamedTuple):
    """The draws of levels in a round.

    Attributes:
        several: True if the policy has several levels.
        first: number of the round's first episode.
    """

    several: bool
    first: int


class AgentsTable(NamedTuple):
    """A table of all agents, flat with the agent axis last, and the stride of that axis; 1 if all have the same."""

    values: FloatArray
    stride: np.uint64

    @classmethod
    def of(cls, tables: FloatArray) -> AgentsTable:
        """Distribution functions of probabilities ``(m, ..., K)``."""
        same = tables.strides[0] == 0 or bool((tables == tables[:1]).all())
        rows = cumulative(tables[:1] if same else tables)
        agents_last = rows.reshape((len(rows), -1)).T
        values = np.ascontiguousarray(agents_last).reshape(-1)
        return cls(values, np.uint64(len(rows)))

    @property
    def bytes_of_agents(self) -> int:
        """Bytes that grow with the number of agents."""
        return self.values.nbytes if self.stride > 1 else 0


class BoardSizes(NamedTuple):
    """Lengths of the parts of a board; see :class:`Board`."""

    signals: int
    limits: int
    policy: int
    ties: int
    counts: int


class Board(NamedTuple):
    """Everything that is copied between processor and GPU in a round: views of one array of 64-bit integers.

    Attributes:
        whole: the array.
        signals: requests, see :mod:`~fed_ucbvi.engine.drivers.cuda_kernels`.
        limits: visits at which an agent makes a request, by cell.
        policy: actions of the policy, by level, step and state.
        ties: their numbers, where the policy has several.
        counts: transitions, and initial states where these are counted.
    """

    whole: Any
    signals: Any
    limits: Any
    policy: Any
    ties: Any
    counts: Any

    @classmethod
    def of(cls, whole: Any, sizes: BoardSizes) -> Board:
        parts = []
        begin = 0
        for size in sizes:
            parts.append(whole[begin : begin + size])
            begin += size
        return cls(whole, *parts)


class CudaDriver(FleetDriver):
    """Plays every trajectory on a GPU; see the module's text.

    For the simulation it is a fleet of one row: sums over all agents, in ``transitions``, ``starts`` and ``touched``.
    """

    def __init__(self, fleet: Fleet, rule: SynchronisationRule, agents: int) -> None:
        self._kernels = _kernels()
        from numba import cuda

        super().__init__(replace(fleet, probabilities=fleet.probabilities[:1], initial=fleet.initial[:1]))
        m = len(fleet.probabilities)
        S, A, K = fleet.successors.shape[1:]
        levels = fleet.levels.number
        several_actions = fleet.counting is not Counting.POLICY
        cells = int(np.prod(fleet.shape))
        self._sizes = fleet.sizes
        self._counts_starts = self._sizes.stationary or levels > 1
        self._shared_limits = rule.shared
        doubling = rule if isinstance(rule, DoublingRule) else DoublingRule()
        self._rule = doubling.numbers(agents)

        # sizes of the agents' tables, which must fit into memory
        pairs = 0  # number of an agent's visits so far that its own limits depend on
        if not rule.shared:
            pairs = cells if several_actions else cells * A
        kernel = AgentsTable.of(fleet.probabilities)
        initial = AgentsTable.of(fleet.initial)
        table_bytes = kernel.bytes_of_agents + initial.bytes_of_agents
        counter_bytes = COUNTER_BYTES * (cells + pairs + 1)
        _check_memory(m, table_bytes // m + counter_bytes, cuda.current_context())

        # the board: as a round begins, as it was read last, and on the GPU
        decisions = levels * fleet.horizon * S
        starts = levels * S if self._counts_starts else 0
        sizes = BoardSizes(
            signals=self._kernels.FIRST + 1,
            limits=cells,
            policy=decisions * A if several_actions else decisions,
            ties=decisions,
            counts=cells * K + starts,
        )
        self._begin = Board.of(np.zeros(sum(sizes), dtype=np.int64), sizes)
        self._begin.signals[self._kernels.EARLIEST] = self._kernels.NOBODY
        self._begin.signals[self._kernels.FIRST] = self._kernels.NOBODY
        self._now = Board.of(self._begin.whole.copy(), sizes)
        self._board = Board.of(cuda.to_device(self._begin.whole), sizes)
        self._policy = self._board.policy.reshape((-1, A)) if several_actions else self._board.policy

        # distribution functions of the policy's actions; empty where they are equally likely
        self._equally_likely = cuda.device_array(0, dtype=np.float64)
        self._probabilities = cuda.device_array(decisions * A if several_actions else 0, dtype=np.float64)
        self._thresholds = self._equally_likely

        # the agents' tables
        self._own_visits = _zeros(cuda, (pairs, m))
        self._visits = _zeros(cuda, (cells, m))
        self._reached = cuda.device_array(m, dtype=np.int32)
        self._world = (
            cuda.to_device(fleet.successors.reshape(-1)),
            cuda.to_device(kernel.values),
            kernel.stride,
            cuda.to_device(initial.values),
            initial.stride,
        )

        # sizes of a launch
        warps = -(-m // WARP)
        self._width = min(THREADS, warps * WARP)
        self._blocks = -(-m // self._width)
        steps = min(STEPS_PER_LAUNCH // (m * fleet.horizon), STEPS_PER_THREAD // fleet.horizon)
        self._most_per_launch = max(1, steps)

    def begin(self, policy: PolicyArray, budgets: Budgets, first: int) -> None:
        self.fleet.begin_round(policy, first)
        self._level_draws = LevelDraws(several=policy.ndim == 4, first=first)
        limits = budgets.limits[0].copy()
        if not self._shared_limits:
            limits[budgets.rule == 0] = self._kernels.OWN
        actions = policy
        self._thresholds = self._equally_likely
        if policy.ndim > 2:
            rows = policy.reshape((-1, *policy.shape[-2:]))
            possible = PossibleActions.of(rows)
            actions = possible.actions
            self._begin.ties[: possible.numbers.size] = possible.numbers.reshape(-1)
            if possible.probabilities.size:
                self._thresholds = self._probabilities
                thresholds = cumulative(possible.probabilities).reshape(-1)
                self._thresholds[: thresholds.size].copy_to_device(thresholds)
            by_level = policy.reshape((-1, *policy.shape[-3:]))
            played = (by_level != 0).any(axis=0)
            if self._sizes.stationary:
                played = played.any(axis=0, keepdims=True)
            limits[~played] = self._kernels.NOT_PLAYED
        self._begin.limits[:] = limits.reshape(-1)
        self._begin.policy[: actions.size] = actions.reshape(-1)
        self._board.whole.copy_to_device(self._begin.whole)

    def stopped(self, policy: PolicyArray, budgets: Budgets, first: int, length: int) -> RoundEnd:
        """Finish the round, if that was not done yet, and read its counts."""
        kernels = self._kernels
        if not self._now.signals[kernels.REQUESTERS]:
            self._look(kernels.FINISH, length >= budgets.min_length(first))
            self._read_board()
        self._read_counts()
        requesters = int(self._now.signals[kernels.REQUESTERS])
        agent, cell = divmod(int(self._now.signals[kernels.FIRST]), self.visits.size)
        return self.end(length, (requesters, agent, cell), policy, budgets)

    def extend(self, policy: PolicyArray, limits: CountArray, first: int, most: int, asking: bool = True) -> Played:
        """Continue the round; if agents may make requests, the launch that finds one finishes the round as well."""
        kernels = self._kernels
        played = 0
        while played < most:
            now = min(max(1, played // GROWTH), self._most_per_launch, most - played)
            begin = first + played
            end = begin + now
            self._play(1, begin, end, asking)
            if now > 1:
                self._play(-1, begin, end, asking)
            if asking:
                self._look(kernels.FINISH_IF_ASKED, True)
            self._read_board()
            earliest = int(self._now.signals[kernels.EARLIEST])
            if earliest != kernels.NOBODY:
                return earliest - first, True
            played += now
        return played, False

    def _play(self, sign: int, first: int, last: int, asking: bool) -> None:
        """Launch the kernel that plays episodes, or takes them back; see its docstring."""
        counts = self._board.counts
        bytes_of_counts = COUNTER_BYTES * counts.size
        shared = bytes_of_counts <= SHARED_BYTES
        stream = 0
        launch = (self._blocks, self._width, stream, bytes_of_counts if shared else 0)
        successors, kernel, kernel_stride, initial, initial_stride = self._world
        first_start = self.transitions.size if self._counts_starts else NO_STARTS
        self._kernels.play[launch](
            sign,
            first,
            last,
            asking,
            self._sizes,
            self._level_draws,
            self._rule,
            self._policy,
            self._board.ties,
            self._thresholds,
            self._board.limits,
            successors,
            kernel,
            kernel_stride,
            initial,
            initial_stride,
            self._own_visits,
            self._visits,
            counts,
            first_start,
            shared,
            self._reached,
            self._board.signals,
        )

    def _look(self, what: int, asking: bool) -> None:
        """Launch the kernel that looks for requests; see its docstring."""
        rows = min(ROWS, self.visits.size)
        launch = ((self._blocks, rows), self._width)
        self._kernels.look[launch](
            what,
            asking,
            self._sizes,
            self._rule,
            self._policy,
            self._board.limits,
            self._own_visits,
            self._visits,
            self._reached,
            self._board.signals,
        )

    def anyone(self, limits: CountArray) -> bool:
        self._look(self._kernels.LOOK, True)
        signals = self._board.signals.copy_to_host()
        asked = bool(signals[self._kernels.REQUESTERS] > 0)
        if asked:  # the end of the round counts them again
            self._board.signals.copy_to_device(self._begin.signals)
        return asked

    def _read_board(self) -> None:
        self._board.whole.copy_to_host(self._now.whole)

    def _read_counts(self) -> None:
        """Write the round's counts to the buffers from which the simulation reads them."""
        counts = self._now.counts
        size = self.transitions.size
        self.transitions.reshape(-1)[:] = counts[:size]
        touched = self.fleet.touched
        touched.all_visits[...] = self.transitions.sum(axis=-1)
        cells = np.flatnonzero(touched.all_visits)
        touched.all_cells[: len(cells)] = cells
        touched.number[0] = len(cells)
        if self._counts_starts:
            starts = self.fleet.counted_starts
            starts[0] = counts[size:].reshape(starts.shape[1:])


def _zeros(cuda: Any, shape: tuple[int, int]) -> Any:
    """A table of counters on the GPU."""
    table = cuda.device_array(shape, dtype=np.int32)
    if table.size:
        table[:] = 0
    return table


def _check_memory(agents: int, bytes_each: int, context: Any) -> None:
    """Raise unless the agents' tables fit, with the number of agents that would."""
    free = context.get_memory_info().free * SHARE_OF_MEMORY
    needed = agents * bytes_each
    if needed > free:
        fitting = int(free // bytes_each)
        raise InputError(
            f"{agents:,} agents need {needed / 2**30:.3g} GiB on the GPU, {bytes_each:,} bytes each, and it has "
            f"{free / 2**30:.3g} GiB to spare: {fitting:,} agents would fit. Use at most that many, or the driver "
            "auto."
        )
