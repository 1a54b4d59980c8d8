"""Environments on squares: the paper's GridWorld, NRoom of rlberry, WindyCliff and DeepSea."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Annotated

import numpy as np

from fed_ucbvi.core.errors import InputError, check_integer
from fed_ucbvi.core.memory import ProblemSize
from fed_ucbvi.core.parameters import Bounds, Count, Help, Share, Size
from fed_ucbvi.core.types import FloatArray
from fed_ucbvi.environments import family
from fed_ucbvi.environments.family import (
    Agents,
    BernoulliRewards,
    Cell,
    EpsP,
    Family,
    Horizon,
    Seed,
    Spread,
    environment,
    generator,
    grid_layout,
    kernel_of,
)
from fed_ucbvi.problem.kernel import Kernel
from fed_ucbvi.problem.units import Units

MOVES: tuple[Cell, ...] = ((0, -1), (0, 1), (1, 0), (-1, 0))
"""Left, right, down and up."""

ROOMS_IN_A_ROW = 5
FIRST_ROOM_REWARD = 0.1
START_REWARD = 0.01
LAST_ROOM_REWARD = 1.0
"""The rewards in the middle of the first room, of the room where the agent starts and of the last room."""
STEP = -1.0
FALL = -100.0
GOAL = 100.0
"""Published rewards of a step in an ordinary square, in the cliff and in the goal."""
MOVE_COST = 0.01
"""The cost of N moves to the right together."""


def _neighbours_of(cell: Cell, number: dict[Cell, int]) -> list[int | None]:
    """The state each action aims at, or None where that square is a wall or outside."""
    row, column = cell
    return [number.get((row + down, column + right)) for down, right in MOVES]


def _moving_kernel(neighbours: list[list[int | None]], success: float) -> Kernel:
    """A move succeeds with probability ``success`` and otherwise goes to another free neighbour, evenly.

    The square itself and its free neighbours are next states of every move.
    """
    table = []
    for s, aims in enumerate(neighbours):
        near = [n for n in aims if n is not None]
        rows = []
        for aim in aims:
            row = dict.fromkeys((s, *near), 0.0)
            others = [n for n in near if n != aim]
            if aim is None:
                row[s] = 1.0
            elif not others:
                row[aim] = 1.0
            else:
                row[aim] = success
                for other in others:
                    row[other] = (1.0 - success) / len(others)
            rows.append(row)
        table.append(rows)
    return kernel_of(table)


def _random_moving_kernel(common: Kernel, neighbours: list[list[int | None]], rng: np.random.Generator) -> Kernel:
    """An individual kernel: free neighbours with weights uniform on (0,1), normalised."""
    successors = common.successors[0, :, 0].tolist()  # the same for all actions
    is_free = []
    for s, aims in enumerate(neighbours):
        near = [n for n in aims if n is not None] or [s]
        is_free.append([successor in near for successor in successors[s]])
    allowed = family.distinct(common.successors) & np.array(is_free)[None, :, None, :]
    return family.random_kernel(common, rng, allowed)


@environment(
    "GridWorld",
    lambda options: ProblemSize(options["rows"] * options["columns"], len(MOVES), len(MOVES) + 1),
)
def gridworld(
    agents: Agents = 20,
    eps_p: EpsP = 0.0,
    seed: Annotated[
        Count,
        Help("of the individual kernels; agent i's kernel depends on (seed, i) alone, neither on M nor on eps_p."),
    ] = 0,
    *,
    rows: Annotated[Size, Help("height of the grid.")] = 3,
    columns: Annotated[Size, Help("width of the grid.")] = 3,
    walls: Annotated[
        Iterable[Cell] | None,
        Help(
            "squares (row, column) that cannot be entered; by default the centre (1,1) of the 3 x 3 grid, "
            "none for other sizes."
        ),
    ] = None,
    start: Annotated[Cell, Help("where every episode begins.")] = (0, 0),
    goals: Annotated[
        Iterable[Cell] | None,
        Help("squares that pay; by default the last one, (rows-1, columns-1)."),
    ] = None,
    success: Annotated[Share, Help("probability of moving as intended.")] = 0.8,
    horizon: Horizon = 10,
    bernoulli_rewards: BernoulliRewards = False,
) -> Family:
    """GridWorld of the paper's Section 5 with the paper's values as defaults.

    Under the common kernel a move goes to the intended square with probability ``success`` and otherwise to
    another free neighbouring square, evenly; a move into a wall or out of the grid stays put. Agent i's
    individual kernel moves to the free neighbours with weights uniform on (0,1), normalised, drawn independently for
    every (square, action). Every step spent in a goal pays 1; goals are not terminal.
    """
    R = rows
    C = columns
    default_walls: list[Cell] = [(1, 1)] if (R, C) == (3, 3) else []
    blocked = _cells("walls", default_walls if walls is None else walls, R, C)
    paying = _cells("goals", [(R - 1, C - 1)] if goals is None else goals, R, C)
    (first,) = _cells("start", [start], R, C)
    free = [(r, c) for r in range(R) for c in range(C) if (r, c) not in blocked]
    number = {cell: s for s, cell in enumerate(free)}
    for name, cells in (("start", [first]), ("goals", paying)):
        for cell in cells:
            if cell in blocked:
                raise InputError(f"{name} {cell} lies in a wall.")
    neighbours = [_neighbours_of(cell, number) for cell in free]
    rewards = np.zeros((len(free), len(MOVES)))
    rewards[[number[cell] for cell in paying]] = 1.0
    return Family(
        kernel=lambda x: _moving_kernel(neighbours, success),
        rewards=rewards,
        initial=number[first],
        individual=lambda common, i, _: _random_moving_kernel(common, neighbours, generator(seed, i)),
        layout=grid_layout(R, C, free, first, paying, MOVES),
        resolved={
            "walls": [list(cell) for cell in blocked],
            "start": list(first),
            "goals": list(map(list, paying)),
        },
    )


def _cells(name: str, cells: Iterable[Cell], rows: int, columns: int) -> list[Cell]:
    """The squares, checked, sorted and each once."""
    checked = set()
    for cell in cells:
        try:
            pair = tuple(cell)
        except TypeError:
            pair = ()
        if len(pair) != 2:
            raise InputError(f"{name}: {cell!r} is not a (row, column) pair; expected a list such as [(1, 1)].")
        r = check_integer(f"{name}: a coordinate", pair[0], at_least=-(10**9))
        c = check_integer(f"{name}: a coordinate", pair[1], at_least=-(10**9))
        if not (0 <= r < rows and 0 <= c < columns):
            raise InputError(f"{name}: {(r, c)} lies outside the {rows} x {columns} grid.")
        checked.add((r, c))
    return sorted(checked)


@environment(
    "NRoom",
    lambda options: ProblemSize(options["rooms"] * (options["room_size"] ** 2 + 1), len(MOVES), len(MOVES) + 1),
)
def n_room(
    agents: Agents = 20,
    eps_p: Annotated[
        EpsP,
        Help("weight of the individual kernels (Assumption 1), which are those of GridWorld."),
    ] = 0.0,
    seed: Seed = 0,
    *,
    spread: Annotated[
        Spread,
        Help("how far the probability of success differs between agents: its odds are e^x times those of success."),
    ] = 0.0,
    rooms: Annotated[int, Bounds(3), Help("number of rooms, at least 3.")] = 7,
    room_size: Annotated[Size, Help("their width and height.")] = 5,
    success: Annotated[Share, Help("probability of moving as intended.")] = 0.95,
    horizon: Annotated[
        Size,
        Help(
            "H; the walk to the last room takes (rooms - 1 - rooms // 2) * (room_size + 1) moves; "
            "with the other options as they are, the last room is worth more than the first up to H = "
            "40."
        ),
    ] = 25,
    bernoulli_rewards: BernoulliRewards = False,
) -> Family:
    """Square rooms of rlberry's NRoom, five to a row that winds like a snake, each with a door to the next.

    Moves are those of GridWorld. The agent starts in the middle of the middle room, where a step pays 0.01. A step in
    the middle of the first room pays 0.1. One in the middle of the last room pays 1 and ends the episode: the agent
    moves to the last state, which has no square, pays nothing and is never left.
    """
    free, middles = _floor_plan(rooms, room_size)
    first = middles[0]
    start = middles[rooms // 2]
    goal = middles[-1]
    number = {cell: s for s, cell in enumerate(free)}
    end = len(free)
    neighbours = [_neighbours_of(cell, number) for cell in free]
    neighbours[number[goal]] = [end] * len(MOVES)
    neighbours.append([None] * len(MOVES))
    rewards = np.zeros((end + 1, len(MOVES)))
    rewards[number[first]] = FIRST_ROOM_REWARD
    rewards[number[start]] = START_REWARD
    rewards[number[goal]] = LAST_ROOM_REWARD
    height = max(row for row, _ in free) + 1
    width = max(column for _, column in free) + 1
    return Family(
        kernel=lambda x: _moving_kernel(neighbours, family.shifted(success, x)),
        rewards=rewards,
        initial=number[start],
        varies="the probability of success",
        individual=lambda common, _, rng: _random_moving_kernel(common, neighbours, rng),
        layout=grid_layout(height, width, free, start, (first, goal), MOVES),
    )


def _floor_plan(rooms: int, size: int) -> tuple[list[Cell], list[Cell]]:
    """Free squares, row by row, and the middles of the rooms, in their order."""
    pitch = size + 1
    half = size // 2
    corners = []
    for k in range(rooms):
        row, column = divmod(k, ROOMS_IN_A_ROW)
        if row % 2 == 1:
            column = ROOMS_IN_A_ROW - 1 - column
        corners.append((row * pitch, column * pitch))
    squares: set[Cell] = set()
    for top, left in corners:
        for r in range(size):
            squares.update((top + r, left + c) for c in range(size))
    # A door between each room and the next one, which is beside it or below it.
    for (top, left), (next_top, next_left) in pairwise(corners):
        if top == next_top:
            squares.add((top + half, max(left, next_left) - 1))
        else:
            squares.add((next_top - 1, left + half))
    middles = [(top + half, left + half) for top, left in corners]
    return sorted(squares), middles


@environment(
    "WindyCliff",
    lambda options: ProblemSize(options["rows"] * options["columns"], len(MOVES), len(MOVES)),
)
def windy_cliff(
    agents: Agents = 20,
    eps_p: Annotated[
        EpsP,
        Help(
            "weight of the individual kernels (Assumption 1), the paper's kappa: agent i's individual "
            "kernel is a WindyCliff whose wind is drawn uniformly from (0,1)."
        ),
    ] = 0.0,
    seed: Seed = 0,
    *,
    spread: Annotated[
        Spread,
        Help(
            "how far the wind differs between agents: the odds of being blown down are e^x times those of wind / 3."
        ),
    ] = 0.0,
    rows: Annotated[int, Bounds(2), Help("height of the grid, at least 2.")] = 4,
    columns: Annotated[int, Bounds(3), Help("width of the grid, at least 3.")] = 4,
    wind: Annotated[Share, Help("between 0 and 1.")] = 0.5,
    horizon: Horizon = 20,
    bernoulli_rewards: BernoulliRewards = False,
) -> Family:
    """WindyCliffs of Jin, Peng, Yang, Wang and Zhang (2022), with episodes of H steps.

    Episodes begin in the lower left corner. The lower right corner is the goal, and the squares between them are the
    cliff. A move down goes down. Any other move goes as intended with probability 1 - wind/3, and otherwise the wind
    blows the agent one square down. Moves out of the grid stay put. Goal and cliff lead back to the start, whatever
    the action. A step in the goal pays 100, in the cliff -100, elsewhere -1; here that is 1, 0 and 0.495.

    (In the paper an agent goes on for ever and later rewards are discounted by 0.95. H = 20 steps see as far.)
    """
    R = rows
    C = columns
    cells = [(r, c) for r in range(R) for c in range(C)]
    start = (R - 1, 0)
    goal = (R - 1, C - 1)
    units = Units.spanning(FALL, GOAL)
    rewards = np.zeros((R * C, len(MOVES)))
    for s, cell in enumerate(cells):
        published_reward = STEP
        if cell == goal:
            published_reward = GOAL
        elif _ends(cell, R):
            published_reward = FALL
        rewards[s] = units.rescaled(published_reward)
    return Family(
        kernel=lambda x: kernel_of(_moves(R, C, family.shifted(wind / 3, x))),
        varies="the probability of being blown down",
        rewards=rewards,
        initial=cells.index(start),
        individual=lambda common, _, rng: kernel_of(_moves(R, C, rng.random() / 3)),
        layout=grid_layout(R, C, cells, start, [goal], MOVES),
        units=units,
    )


def _ends(cell: Cell, rows: int) -> bool:
    """True for the squares of cliff and goal, which lead back to the start."""
    row, column = cell
    return row == rows - 1 and column > 0


def _moves(rows: int, columns: int, blown: float) -> family.Rows:
    """Next states of every action in every square; squares are numbered row by row."""
    start = (rows - 1) * columns
    as_intended = 1.0 - blown
    table = []
    for r in range(rows):
        for c in range(columns):
            if _ends((r, c), rows):
                table.append([{start: 1.0}] * len(MOVES))
                continue
            below = min(r + 1, rows - 1) * columns + c
            outcomes = []
            for dr, dc in MOVES:
                aim_row = min(max(r + dr, 0), rows - 1)
                aim_column = min(max(c + dc, 0), columns - 1)
                aim = aim_row * columns + aim_column
                if aim == below:
                    outcomes.append({aim: 1.0})
                else:
                    outcomes.append({aim: as_intended, below: 1.0 - as_intended})
            table.append(outcomes)
    return table


@environment("DeepSea", lambda options: ProblemSize(options["size"] ** 2, 2, 3))
def deep_sea(
    agents: Agents = 20,
    eps_p: Annotated[
        EpsP,
        Help("weight of the individual kernels (Assumption 1), which sink to any square that some move reaches."),
    ] = 0.0,
    seed: Annotated[
        Count,
        Help("of the action map and of the differences between agents; those of agent i depend only on (seed, i)."),
    ] = 0,
    *,
    spread: Annotated[
        Spread,
        Help(
            "how far the probability of slipping differs between agents: its odds are e^x times those "
            "of 1/N; needs the stochastic version."
        ),
    ] = 0.0,
    size: Annotated[int, Bounds(2), Help("N, at least 2.")] = 10,
    stochastic: Annotated[bool, Help("whether moves to the right slip.")] = False,
    action_map: Annotated[
        bool,
        Help("whether the actions' meaning is drawn for each square; otherwise 0 is left and 1 right."),
    ] = True,
    bernoulli_rewards: BernoulliRewards = False,
) -> Family:
    """DeepSea (Osband and others, 2019) on N x N squares, with H = N.

    A diver starts in the upper left square and sinks one row a step, one column to the left or to the right (or
    straight down at the border). A move to the right costs 0.01/N; in the last column it finds the treasure, 1. The
    last column can be reached in the last row alone, by moving right all the way. Which action is right in a square
    is drawn once for all agents. In the stochastic version a move to the right goes straight down with probability
    1/N; its noise on the rewards has mean zero and is left out. Rewards are shifted by 0.01/N, so a move to the left
    pays that and one to the right nothing, but for the treasure.

    >>> float(deep_sea(agents=2).common.solve().V[0, 0])
    1.0
    """
    N = size
    slip = 1.0 / size if stochastic else 0.0
    drawn = generator(seed, family.RandomPart.STRUCTURE).integers(0, 2, (N, N))
    right_action = drawn if action_map else np.ones((N, N), dtype=np.int64)
    cells = [(row, column) for row in range(N) for column in range(N)]
    rewards = np.zeros((N * N, 2))
    moves = []
    for s, (row, column) in enumerate(cells):
        right = int(right_action[row, column])
        rewards[s, 1 - right] = MOVE_COST / N
        rewards[s, right] = 1.0 if column == N - 1 else 0.0
        left_move = [1, max(column - 1, 0) - column]
        right_move = [1, min(column + 1, N - 1) - column]
        moves.append([left_move, right_move] if right == 1 else [right_move, left_move])

    def outcomes(s: int, row: int, column: int, p: float) -> list[dict[int, float]]:
        """Next states of both actions in a square, if moves to the right slip with probability p."""
        if row == N - 1:  # the episode ends here
            return [{s: 1.0}, {s: 1.0}]
        below = s + N
        left = below + max(column - 1, 0) - column
        right = below + min(column + 1, N - 1) - column
        leftward = {left: 1.0}
        rightward = {right: 1.0}
        if p > 0 and right != below:
            rightward = {right: 1.0 - p, below: p}
        if right_action[row, column] == 1:
            return [leftward, rightward]
        return [rightward, leftward]

    def kernel(x: FloatArray) -> Kernel:
        p = family.shifted(slip, x)
        return kernel_of([outcomes(s, row, column, p) for s, (row, column) in enumerate(cells)])

    layout = grid_layout(N, N, cells, (0, 0), [(N - 1, N - 1)], [(1, -1), (1, 1)]) | {"moves_by_state": moves}
    units = Units(offset=-MOVE_COST / N)
    return Family(
        kernel,
        rewards,
        varies="the probability of slipping",
        horizon=N,
        layout=layout,
        units=units,
    )
