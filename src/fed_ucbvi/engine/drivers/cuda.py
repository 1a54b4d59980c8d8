"""The cuda driver: the episodes driver's trajectories on a GPU, bit for bit.

Everything that each agent knows for itself stays on the GPU: its visits in the round and, where the local rule reads
them, its visits so far. So budgets are computed there, at the visit. Only the policy, one row of budgets, and sums of
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
THREADS = 256
"""Threads that run together, and those of a block."""
STEPS_PER_LAUNCH = 1 << 35
STEPS_PER_THREAD = 1 << 17
"""Limits of a launch, a few tenths of a second, so that Ctrl-C and the progress bar are served in between."""
SHARED_BYTES = 48 << 10
"""What a block can have on every GPU."""
GROWTH = 8
"""A round is prolonged by one part in this many at a time, so agents that run ahead play little in vain."""
ROWS = 8
"""Blocks that share the places of the same agents when a round ends."""
SHARE_OF_MEMORY = 0.95
"""The largest share of the free memory that is used."""


class LevelDraws(NamedTuple):
    """How agents draw levels in a round.

    Attributes:
        several: True if the policy has several levels.
        first: number of the round's first episode.
    """

    several: bool
    first: int


NO_STARTS = -1
"""Place of the counts of initial states where none are counted."""
MAX_VISITS = 2**31 - 1
"""An agent's counters have 32 bits."""


def on_gpu(fleet: Fleet, algorithm: Algorithm[Any, Any], federation: Federation, setting: Setting) -> CudaDriver:
    """The driver for all agents of a federation, or an error that says what works."""
    steps = setting.horizon if algorithm.counting is Counting.STATIONARY else 1
    rule = algorithm.synchronisation_rule(setting)
    known = rule is None or rule.shared or isinstance(rule, DoublingRule)
    reasons = {
        "here some agents lie": federation.liars is not None,
        "here agents have rewards of their own": federation.rewards.shape[0] > 1 or not federation.pay_alike,
        "here a rule of one's own reads each agent's visits": not known,
        f"an agent can come {setting.episodes * steps:,} times to one place": setting.episodes * steps > MAX_VISITS,
    }
    reason = next((reason for reason, applies in reasons.items() if applies), None)
    if rule is not None and reason is None:
        return CudaDriver(fleet, rule, setting.agents)
    raise InputError(
        "the driver cuda plays fed-kl-ucbvi and fed-ucbvi, for honest agents that share their rewards, with "
        f"up to {MAX_VISITS:,} visits of one agent to one place; "
        f"{f'{algorithm.name} is another algorithm' if rule is None else reason}. Use the driver episodes or auto."
    )


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


def _agents_last(tables: FloatArray) -> tuple[FloatArray, np.uint64]:
    """Distribution functions, flat with the agent axis last, and the stride; one for all if they are the same."""
    alike = tables.strides[0] == 0 or bool((tables == tables[:1]).all())
    rows = cumulative(tables[:1] if alike else tables)
    return np.ascontiguousarray(rows.reshape((len(rows), -1)).T).reshape(-1), np.uint64(len(rows))


class CudaDriver(FleetDriver):
    """Plays every trajectory on a GPU; see the module's text.

    To the simulation it is a fleet of one row: sums over all agents, in ``transitions``, ``starts`` and ``touched``.
    """

    def __init__(self, fleet: Fleet, rule: SynchronisationRule, agents: int) -> None:
        self._kernels = kernels = _kernels()
        from numba import cuda

        super().__init__(replace(fleet, probabilities=fleet.probabilities[:1], initial=fleet.initial[:1]))
        m, (S, A, K) = len(fleet.probabilities), fleet.successors.shape[1:]
        self._sizes = fleet.sizes
        self._shared = rule.shared
        self._rule = (rule if isinstance(rule, DoublingRule) else DoublingRule()).numbers(agents)
        sets = fleet.counting is not Counting.POLICY
        cells = int(np.prod(fleet.shape))
        pairs = 0 if rule.shared else cells * (1 if sets else A)
        kernel, kernel_stride = _agents_last(fleet.probabilities)
        initial, initial_stride = _agents_last(fleet.initial)
        own = kernel.nbytes * (kernel_stride > 1) + initial.nbytes * (initial_stride > 1)
        _check_memory(m, int(own) // m + 4 * (cells + pairs + 1), cuda.current_context())
        levels = fleet.levels.number
        self._counts_starts = self._sizes.stationary or levels > 1
        self._size = cells * K + (levels * S if self._counts_starts else 0)
        """Of what is counted."""
        decisions = levels * fleet.horizon * S
        parts = (kernels.FIRST + 1, cells, decisions * (A if sets else 1), decisions, self._size)
        ends = np.cumsum(parts).tolist()
        self._fresh = np.zeros(ends[-1], dtype=np.int64)
        """What a round begins with: signals, budgets, the policy, how many actions it has where, and no counts."""
        self._fresh[[kernels.EARLIEST, kernels.FIRST]] = kernels.NOBODY
        self._due_now, self._policy_now, self._ties_now = np.split(self._fresh, ends[:-1])[1:4]
        self._now, self._board = self._fresh.copy(), cuda.to_device(self._fresh)
        self._signals, self._due, self._policy, self._ties, self._counts = (
            self._board[end - size : end] for size, end in zip(parts, ends, strict=True)
        )
        if sets:
            self._policy = self._policy.reshape((-1, A))
        self._equally_likely = cuda.device_array(0, dtype=np.float64)
        self._probabilities = cuda.device_array(decisions * A if sets else 0, dtype=np.float64)
        self._thresholds = self._equally_likely
        """Distribution functions of the policy's actions; empty where they are equally likely."""
        self._own_visits = _zeros(cuda, (pairs, m))
        self._visits = _zeros(cuda, (cells, m))
        self._reached = cuda.device_array(m, dtype=np.int32)
        tables = fleet.successors.reshape(-1), kernel, initial
        successors, kernel, initial = (cuda.to_device(table) for table in tables)
        self._world = successors, kernel, kernel_stride, initial, initial_stride
        width = min(THREADS, -(-m // WARP) * WARP)
        self._blocks = -(-m // width)
        self._width = width
        self._most = max(1, min(STEPS_PER_LAUNCH // (m * fleet.horizon), STEPS_PER_THREAD // fleet.horizon))

    def begin(self, policy: PolicyArray, budgets: Budgets, first: int) -> None:
        self.fleet.begin_round(policy, first)
        self._level_draws = LevelDraws(several=policy.ndim == 4, first=first)
        limits = budgets.limits[0].copy()
        if not self._shared:
            limits[budgets.rule == 0] = self._kernels.OWN
        actions = policy
        self._thresholds = self._equally_likely
        if policy.ndim > 2:
            rows = policy.reshape((-1, *policy.shape[-2:]))
            listed = PossibleActions.of(rows)
            actions = listed.actions
            self._ties_now[: listed.numbers.size] = listed.numbers.reshape(-1)
            if listed.probabilities.size:
                self._thresholds = self._probabilities
                thresholds = cumulative(listed.probabilities).reshape(-1)
                self._thresholds[: thresholds.size].copy_to_device(thresholds)
            played = (policy.reshape((-1, *policy.shape[-3:])) != 0).any(axis=0)
            if self._sizes.stationary:
                played = played.any(axis=0, keepdims=True)
            limits[~played] = self._kernels.NOT_PLAYED
        self._due_now[:] = limits.reshape(-1)
        self._policy_now[: actions.size] = actions.reshape(-1)
        self._board.copy_to_device(self._fresh)

    def stopped(self, policy: PolicyArray, budgets: Budgets, first: int, length: int) -> RoundEnd:
        """Finish the round, if that was not done yet, and read its counts."""
        kernels = self._kernels
        if not self._now[kernels.REQUESTERS]:
            self._look(kernels.FINISH, length >= budgets.min_length(first))
            self._board.copy_to_host(self._now)
        self._read()
        agent, cell = divmod(int(self._now[kernels.FIRST]), self.visits.size)
        return self.end(length, (int(self._now[kernels.REQUESTERS]), agent, cell), policy, budgets)

    def extend(self, policy: PolicyArray, limits: CountArray, first: int, most: int, asking: bool = True) -> Played:
        """Where agents may make requests, the round is finished in the same go."""
        played = 0
        kernels = self._kernels
        while played < most:
            now = min(max(1, played // GROWTH), self._most, most - played)
            begin = first + played
            end = first + played + now
            self._play(1, begin, end, asking)
            if now > 1:
                self._play(-1, begin, end, asking)
            if asking:
                self._look(kernels.FINISH_IF_ASKED, True)
            self._board.copy_to_host(self._now)
            earliest = int(self._now[kernels.EARLIEST])
            if earliest != kernels.NOBODY:
                return earliest - first, True
            played += now
        return played, False

    def _play(self, sign: int, first: int, last: int, asking: bool) -> None:
        shared = 4 * self._size <= SHARED_BYTES
        launch = (self._blocks, self._width, 0, 4 * self._size if shared else 0)
        actions = self._policy, self._ties, self._thresholds
        given = (self._sizes, self._level_draws, self._rule, *actions, self._due, *self._world)
        starts = self.transitions.size if self._counts_starts else NO_STARTS
        counted = (self._own_visits, self._visits, self._counts, starts, shared, self._reached, self._signals)
        self._kernels.play[launch](sign, first, last, asking, *given, *counted)

    def _look(self, what: int, asking: bool) -> None:
        given = (self._sizes, self._rule, self._policy, self._due, self._own_visits, self._visits)
        launch = ((self._blocks, min(ROWS, self.visits.size)), self._width)
        self._kernels.look[launch](what, asking, *given, self._reached, self._signals)

    def anyone(self, limits: CountArray) -> bool:
        self._look(self._kernels.LOOK, True)
        asked = bool(self._signals.copy_to_host()[self._kernels.REQUESTERS] > 0)
        if asked:  # the end of the round counts them again
            self._signals.copy_to_device(self._fresh[: len(self._signals)])
        return asked

    def _read(self) -> None:
        """Write the round's counts to where the simulation reads them."""
        counts = self._now[-self._size :]
        touched = self.fleet.touched
        self.transitions.reshape(-1)[:] = counts[: self.transitions.size]
        touched.all_visits[...] = self.transitions.sum(axis=-1)
        cells = np.flatnonzero(touched.all_visits)
        touched.all_cells[: len(cells)] = cells
        touched.number[0] = len(cells)
        if self._counts_starts:
            starts = counts[self.transitions.size :]
            self.fleet.counted_starts[0] = starts.reshape(self.fleet.counted_starts.shape[1:])


def _zeros(cuda: Any, shape: tuple[int, int]) -> Any:
    table = cuda.device_array(shape, dtype=np.int32)
    if table.size:
        table[:] = 0
    return table


def _check_memory(agents: int, bytes_each: int, context: Any) -> None:
    """Raise unless the agents' tables fit, with the number of agents that would."""
    free = context.get_memory_info().free * SHARE_OF_MEMORY
    if agents * bytes_each > free:
        raise InputError(
            f"{agents:,} agents need {agents * bytes_each / 2**30:.3g} GiB on the GPU, {bytes_each:,} bytes each, "
            f"and it has {free / 2**30:.3g} GiB to spare: {int(free // bytes_each):,} agents would fit. Use at most "
            "that many, or the driver auto."
        )
