"""One contract for every registered algorithm, environment and driver."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from fed_ucbvi import Federation, FedKLUCBVI, FedUCBVI, Run, gridworld, resume, run, synthetic
from fed_ucbvi.algorithms import ALGORITHMS, make_algorithm
from fed_ucbvi.algorithms.base import Algorithm, Counting, FleetTables, Setting, exchange_messages
from fed_ucbvi.algorithms.communication import HEADER, REQUEST, Traffic
from fed_ucbvi.engine.drivers import DRIVERS
from fed_ucbvi.engine.simulation import Interrupted, Simulation
from fed_ucbvi.environments import make_environment
from fed_ucbvi.results.recommendations import table_of
from matrices import first_of, in_turn
from problems import SMALL_ENVIRONMENTS
from runs import counted_apart, interrupt_after, without_cautions

EPISODES = 150

PAPER = ("gridworld", "synthetic")
"""Every algorithm is tried on the paper's environments; the others are tried with Fed-UCBVI alone."""

VARIANTS: dict[str, tuple[str, dict[str, object]]] = {
    **{name: (name, {}) for name in ALGORITHMS},
    "fedq-advantage, each agent on its own": ("fedq-advantage", {"forced_synchronisation": False}),
    "fed-kl-ucbvi, stationary": ("fed-kl-ucbvi", {"stationary": True, "min_round_growth": 0.1}),
    "fed-kl-ucbvi-fast, stationary": ("fed-kl-ucbvi-fast", {"stationary": True}),
}


STATIONARY = ("fed-kl-ucbvi, stationary", "fed-kl-ucbvi-fast, stationary")


def written(array: Any) -> int:
    """Bytes of an array on the wire, where truth values are bits."""
    return len(np.packbits(array).tobytes() if array.dtype == np.bool_ else array.tobytes())


pytestmark = without_cautions


def problem(variant: str, environment: str, agents: int = 3) -> tuple[Algorithm[Any, Any], Federation]:
    name, parameters = VARIANTS[variant]
    algorithm = make_algorithm(name, parameters)
    options = {"eps_r": 0.1} if environment == "synthetic" else {}
    small = {**SMALL_ENVIRONMENTS[environment], **options}
    agents = 1 if algorithm.single_agent else agents
    return algorithm, make_environment(environment, agents=agents, eps_p=0.1, seed=3, **small)


PAIRS = [
    (variant, environment)
    for variant in VARIANTS
    for environment in SMALL_ENVIRONMENTS
    if (environment in PAPER or variant == "fed-ucbvi") and (environment == "gridworld" or variant not in STATIONARY)
]
every = pytest.mark.parametrize(("variant", "environment", "driver"), in_turn(PAIRS, list(DRIVERS)))
each = pytest.mark.parametrize(("variant", "environment"), PAIRS)


@every
def test_every_step_counts_the_t_episodes_of_every_agent(variant: str, environment: str, driver: str) -> None:
    algorithm, federation = problem(variant, environment)
    simulation = Simulation(algorithm, federation, EPISODES, 7, driver)
    M = federation.agents
    H = federation.horizon
    steps = 1 if algorithm.counting is Counting.STATIONARY else H
    seen = np.zeros((M, steps), dtype=np.int64)
    while not simulation.done:
        simulation.advance()
        seen += simulation.driver.visits.reshape((M, steps, -1)).sum(axis=2)
        moves = simulation.driver.transitions.sum(axis=-1)
        visits = simulation.driver.visits
        assert np.array_equal(moves, visits if len(moves) == len(visits) else visits.sum(axis=0, keepdims=True))
        for array in simulation.server.arrays().values():
            assert np.isfinite(array).all()
    assert (seen == EPISODES * H // steps).all()
    assert (simulation.clock == EPISODES).all()
    result = simulation.result()
    assert result.complete
    assert result.episodes_played == EPISODES
    assert int(result.records["agent_episodes"].sum()) == federation.agents * EPISODES
    assert 0 <= result.policy.min() <= result.policy.max() < federation.actions
    assert result.regret >= -1e-9


@every
def test_the_seed_decides_everything(variant: str, environment: str, driver: str) -> None:
    algorithm, federation = problem(variant, environment)
    first, again = (run(algorithm, federation, EPISODES, seed=5, driver=driver) for _ in range(2))
    other = run(algorithm, federation, EPISODES, seed=6, driver=driver)
    assert first.same_outcome(again)
    assert not np.array_equal(first.records["reward"], other.records["reward"])


@every
def test_a_resumed_run_equals_a_whole_one(variant: str, environment: str, driver: str, tmp_path: Path) -> None:
    algorithm, federation = problem(variant, environment)
    options: dict[str, Any] = {"seed": 2, "driver": driver}
    whole = run(algorithm, federation, EPISODES, **options)
    starts = whole.records["start"]
    half = interrupt_after(episodes=int(starts[len(starts) // 2]))
    kept: dict[str, Any] = {"checkpoint": tmp_path / "state", "checkpoint_every": 3}
    with pytest.raises(Interrupted):
        run(algorithm, federation, EPISODES, on_round=half, **options, **kept)
    assert resume(tmp_path / "state").same_outcome(whole)


@each
def test_a_saved_run_loads_back_equal(variant: str, environment: str, tmp_path: Path) -> None:
    algorithm, federation = problem(variant, environment)
    result = run(algorithm, federation, EPISODES, seed=1)
    result.save(tmp_path / "run")
    assert Run.load(tmp_path / "run") == result


@each
def test_one_agent_is_enough(variant: str, environment: str) -> None:
    algorithm, federation = problem(variant, environment, agents=1)
    assert run(algorithm, federation, EPISODES).episodes_played == EPISODES


@each
def test_the_fused_synchronisation_equals_that_by_messages(variant: str, environment: str) -> None:
    """Two simulations in step: one fused and, where the algorithm allows it, with one table for all agents; the other
    message by message and agent by agent, with every array that crosses weighed. So it is after every round.
    """
    algorithm, federation = problem(variant, environment)
    fused = Simulation(algorithm, federation, EPISODES, 4, "episodes")
    spelt_out = Simulation(algorithm, counted_apart(federation), EPISODES, 4)
    weighed = {"up": 0, "down": 0, "messages_up": 0, "messages_down": 0}
    M = federation.agents
    sizes = algorithm.message_sizes(fused.setting)
    takes_sums = algorithm.grid(fused.setting) is not None
    sparse = bool(sizes.listed)
    entries: list[int] = []

    class Recorder:
        """The algorithm, with its messages weighed."""

        def __getattr__(self, name: str) -> Any:
            return getattr(algorithm, name)

        def broadcast(self, server: Any) -> Any:
            message = algorithm.broadcast(server)
            weighed["down"] += M * (sum(written(array) for array in message) + HEADER.nbytes)
            weighed["messages_down"] += M
            return message

        def query(self, server: Any, exchange: int) -> Any:
            message = algorithm.query(server, exchange)
            weighed["down"] += M * sum(array.nbytes for array in message)
            weighed["messages_down"] += M if message else 0
            return message

        def report(self, agents: Any, query: Any, exchange: int) -> Any:
            message = algorithm.report(agents, query, exchange)
            assert all(len(array) == (1 if takes_sums else M) for array in message)
            entries.append(sum(int(np.count_nonzero(array)) for array in message))
            if takes_sums:  # the paper's message, one for each agent
                weighed["up"] += M * sizes.reports // sizes.exchanges
            else:
                weighed["up"] += sum(array.nbytes for array in message)
            weighed["messages_up"] += M
            return message

        def synchronise(self, server: Any, agents: Any, setting: Setting) -> None:
            exchange_messages(self, server, agents, setting)  # type: ignore[arg-type]

    spelt_out.algorithm = spelt_out.party.algorithm = Recorder()  # type: ignore[assignment]
    while not fused.done:
        fused.advance()
        spelt_out.advance()
        for side in ("server",) if takes_sums else ("server", "agents"):
            mine = getattr(fused, side).arrays()
            theirs = getattr(spelt_out, side).arrays()
            for name, array in mine.items():
                assert np.array_equal(array, theirs[name]), name
        over = bool((fused.clock == EPISODES).all())
        if sparse and not over:
            continue
        records = fused.records()
        more = table_of(fused.recommendations)
        sent = {name: int(records[name].sum() + more[name].sum()) for name in Traffic._fields}
        requesters = int(records["requests"].sum())
        rounds = int((records["requests"] > 0).sum())
        if sparse:  # a number and a count for each entry that is not zero, at most
            lengths = [*records["length"][records["requests"] > 0].tolist(), int(records["length"][-1])]
            most = [sizes.reports_after(length * federation.horizon) for length in lengths[: len(entries)]]
            assert all(16 * number <= M * least for number, least in zip(entries, most, strict=True))
            weighed["up"] = M * sum(most)
        assert sent["bytes_up"] == weighed["up"] + requesters * REQUEST.nbytes
        assert sent["messages_up"] == weighed["messages_up"] + requesters
        signals = M * (rounds + over)
        policies = 0
        if over:
            assert fused.recommended is not None
            policies = M * fused.recommended.policy.nbytes  # with the end signal
        assert sent["bytes_down"] == weighed["down"] + signals * HEADER.nbytes + policies
        assert sent["messages_down"] == weighed["messages_down"] + signals


@each
@pytest.mark.parametrize("random_rewards", [False, True])
def test_declared_message_sizes_are_those_of_the_arrays(variant: str, environment: str, random_rewards: bool) -> None:
    """Of a server, its broadcast and queries, and the reports of an agent on its own; lists are as long as tables."""
    algorithm, federation = problem(variant, environment)
    setting = Setting.of(federation, EPISODES, 4, random_rewards=random_rewards)
    sizes = algorithm.message_sizes(setting)
    server = algorithm.new_server(setting)
    agent = algorithm.new_agents(setting, FleetTables.placeholder(setting))
    queries = [algorithm.query(server, exchange) for exchange in range(sizes.exchanges)]
    assert sizes.broadcast == sum(written(array) for array in algorithm.broadcast(server))
    assert {sizes.query} == {sum(written(array) for array in query) for query in queries}
    if sizes.listed:
        assert sizes.reports == 0
        assert sizes.listed == (server.table.visits.size * federation.states, server.table.visits.size)
    elif algorithm.grid(setting) is not None:  # four tables of the paper, whatever words the exact sums take
        assert sizes.reports == federation.horizon * 4 * 8 * federation.states * federation.actions
    else:
        reports = [algorithm.report(agent, query, exchange) for exchange, query in enumerate(queries)]
        assert sizes.reports == sum(written(array) for report in reports for array in report)


@pytest.mark.parametrize(("M", "episodes"), [(6, 300), (1, 1), (1, 151), (2, 152)])
def test_the_totals_are_those_of_the_message_formats(M: int, episodes: int) -> None:
    """In closed form: policies are 4-byte, counts and values 8-byte numbers; up go n, P V, P V^2 and Q."""
    S = 5
    A = 4
    H = 3
    federation = synthetic(agents=M, states=S, actions=A, horizon=H)
    result = run(FedUCBVI(synchronisation="local"), federation, episodes, seed=2)
    rounds = result.rounds
    records = result.records
    requests = int(records["requests"].sum())
    start = 16 + 4 * H * S + 8 * H * S * A
    played = len(records["start"])
    assert result.bytes_down == M * (played * start + rounds * (16 + H * 8 * S) + 16)
    assert result.bytes_up == requests * 48 + rounds * M * H * 4 * 8 * S * A
    assert records["messages_down"].sum() == M * (played + rounds * (1 + H) + 1)
    assert records["messages_up"].sum() == requests + rounds * M * H
    summary = result.summary()
    assert summary["bytes_up"] == result.bytes_up == records["bytes_up"].sum()
    assert summary["bytes_down"] == result.bytes_down == records["bytes_down"].sum()
    assert summary["messages_up"] == records["messages_up"].sum()
    assert summary["messages_down"] == records["messages_down"].sum()


@pytest.mark.parametrize("stationary", [False, True])
def test_the_totals_of_an_algorithm_that_reports_counts_are_those_of_the_message_formats(stationary: bool) -> None:
    """Down go sets as bits, N and a number. Up go a place and a number for each transition and reward that a round
    of L episodes can have: at most L H, and at most as many as there are.
    """
    federation = gridworld(agents=4, eps_p=0.1)
    S = federation.states
    A = federation.actions
    H = federation.horizon
    M = federation.agents
    algorithm = FedKLUCBVI(stationary=stationary, min_round_growth=0.2)
    result = run(algorithm, federation, 1000, seed=2)
    records = result.records
    steps = 1 if stationary else H
    requests = int(records["requests"].sum())
    rounds = result.rounds
    played = len(records["start"])
    asked = records["requests"] > 0
    assert rounds == asked.sum()
    assert not asked[-1]
    start = 16 + -(-H * S * A // 8) + 8 * steps * S * A + 8
    assert result.bytes_down == M * (played * start + rounds * (16 + 8) + 16)
    visits = records["length"][asked] * H
    up = 16 * (np.minimum(visits, steps * S * A * S) + np.minimum(visits, steps * S * A))
    assert (visits > steps * S * A).any()
    assert result.bytes_up == requests * 48 + M * up.sum()
    assert records["messages_down"].sum() == M * (played + 2 * rounds + 1)
    assert records["messages_up"].sum() == requests + rounds * M


def test_a_round_cut_short_sends_nothing_up() -> None:
    federation = gridworld(agents=2)
    whole = run(FedUCBVI(synchronisation="local"), federation, 400, seed=5, driver="episodes")
    long = int(np.argmax(whole.records["length"]))
    T = int(whole.records["start"][long]) + int(whole.records["length"][long]) - 1
    cut = run(FedUCBVI(synchronisation="local"), federation, T, seed=5, driver="episodes")
    assert cut.records["requests"][-1] == 0
    assert cut.records["bytes_up"][-1] == cut.records["messages_up"][-1] == 0
    assert cut.records["messages_down"][-1] == 2 * 2  # start and end, to each of two agents


LAW_SEEDS = 60
LAW_ALARM = 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("variant", first_of(list(VARIANTS)))
def test_the_drivers_agree_in_law(variant: str) -> None:
    """H0: regret and rounds have the same law under ``episodes`` and ``counts``.

    Kolmogorov-Smirnov (asymptotic, conservative for ties) on 60 seeds each, false-alarm rate 1e-5 a test; different
    seeds, so the samples are independent.
    """
    algorithm, federation = problem(variant, "gridworld" if variant in STATIONARY else "synthetic")
    samples = []
    for driver, first in (("episodes", 0), ("counts", 1000)):
        runs = [run(algorithm, federation, 400, seed=first + k, driver=driver) for k in range(LAW_SEEDS)]
        samples.append(([r.regret for r in runs], [float(r.rounds) for r in runs]))
    for played, drawn in zip(*samples, strict=True):
        assert stats.ks_2samp(played, drawn, method="asymp").pvalue > LAW_ALARM


@pytest.mark.slow
@pytest.mark.parametrize("variant", first_of(list(VARIANTS), 6))
def test_a_billion_episodes_are_no_harder_for_counts(variant: str) -> None:
    """Where rounds grow with T, ten million episodes must work too; those that sync every episode are left out."""
    algorithm, federation = problem(variant, "gridworld" if variant in STATIONARY else "synthetic")
    short = run(algorithm, federation, 2000, driver="counts")
    if short.rounds >= 2000:
        pytest.skip(f"{variant} synchronises after every episode, so T rounds are played whatever the driver")
    long = run(algorithm, federation, 10**7, driver="counts")
    assert long.episodes_played == 10**7
    assert np.isfinite(long.regret)
    assert long.rounds < 10**6
