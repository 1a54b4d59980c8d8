"""Specifications of runs: their checks, their plain data and what they make."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fed_ucbvi import AlgorithmSpec, FedUCBVI, InputError, ProblemSpec, RunOptions, RunSpec, gridworld
from fed_ucbvi.core.limits import MAX_COUNT
from fed_ucbvi.network.federation_spec import FederationRules, FederationSpec
from fed_ucbvi.network.node_terms import NodeTerms

PROBLEM = ProblemSpec(
    environment="gridworld",
    environment_options={"rows": 5, "walls": [[1, 1]]},
    agents=2,
    eps_p=0.1,
)
ALGORITHM = AlgorithmSpec(name="fed-ucbvi", parameters={"bonus": "theory", "nu": None})
SPEC = RunSpec(
    problem=PROBLEM,
    algorithm=ALGORITHM,
    options=RunOptions(episodes=10_000, checkpoint=Path("kept"), return_range=(0.0, 2.5)),
)


def test_run_is_read_from_its_json() -> None:
    assert RunSpec.from_data(json.loads(SPEC.to_json())) == SPEC


def test_data_of_a_run_is_one_flat_table() -> None:
    data = SPEC.to_data()
    assert data["environment"] == "gridworld"
    assert data["algorithm"] == "fed-ucbvi"
    assert data["episodes"] == 10_000


def test_federation_is_read_from_its_json() -> None:
    spec = FederationSpec(run=SPEC, rules=FederationRules(nodes=("a", "b"), quorum=2))
    assert FederationSpec.from_data(json.loads(json.dumps(spec.to_data()))) == spec


def test_problem_makes_its_federation() -> None:
    federation = PROBLEM.make_federation()
    expected = gridworld(rows=5, walls=[(1, 1)], agents=2, eps_p=0.1)
    assert federation.fingerprint == expected.fingerprint


def test_algorithm_is_made_with_its_parameters() -> None:
    assert ALGORITHM.make() == FedUCBVI(bonus="theory")


def test_numbers_are_stored_in_the_types_of_their_fields() -> None:
    options = RunOptions(episodes=1e4, until_gap=1)  # type: ignore[arg-type]
    assert (repr(options.episodes), repr(options.until_gap)) == ("10000", "1.0")


def test_paths_may_be_given_as_text() -> None:
    assert RunOptions(out="my-run").out == Path("my-run")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "fields", "message"),
    [
        (ProblemSpec, {"agents": 0}, "agents must be at least 1, got 0"),
        (ProblemSpec, {"agents": "2"}, "agents must be a whole number, got '2'"),
        (ProblemSpec, {"eps_p": 1}, r"eps_p must be a number in \[0, 1\)"),
        (ProblemSpec, {"sizes": [8, 4]}, r"sizes must be a list of 3 values, got \[8, 4\]"),
        (ProblemSpec, {"sizes": [8, 4, 0]}, "sizes must be at least 1, got 0"),
        (ProblemSpec, {"environment_options": {"agents": 3}}, "agents is not an option of the environment"),
        (
            AlgorithmSpec,
            {"parameters": ["bonus"]},
            r"parameters must be a table of names and values, got \['bonus'\]",
        ),
        (RunOptions, {"episodes": "many"}, "episodes must be a whole number, got 'many'"),
        (RunOptions, {"seed": -1}, "seed must be at least 0"),
        (RunOptions, {"return_range": "0,1"}, "return_range must be a list of 2 values, got '0,1'"),
        (RunOptions, {"driver": "fast"}, "unknown driver 'fast'. Known: auto, counts, cuda, episodes"),
        (FederationRules, {"nodes": [1]}, "nodes must be text, got 1"),
        (FederationRules, {"collection": "hope"}, "unknown collection 'hope'. Known: live, lockstep"),
        (FederationRules, {"deadline": 0}, r"deadline must be a number in \(0"),
        (FederationRules, {"secure_sums": "maybe"}, "secure_sums must be true or false"),
        (NodeTerms, {"least_members": 2}, "least_members must be at least 3, got 2"),
    ],
)
def test_invalid_value_is_an_error_that_names_the_field(kind: Any, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        kind(**fields)


def test_too_many_episodes_of_all_agents_are_refused() -> None:
    with pytest.raises(InputError, match=r"agents x episodes is 2 x 9007199254740992 = .* up to 2\^53"):
        RunSpec(problem=ProblemSpec(agents=2), options=RunOptions(episodes=MAX_COUNT))


def test_unknown_field_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(InputError, match="unknown field of a run 'episode'; did you mean 'episodes'"):
        RunSpec.from_data({"episode": 3})


class TestSetting:
    """The setting of a run over the network, where the server knows sizes alone."""

    def test_sizes_of_the_problem_are_used(self) -> None:
        setting = _setting(ProblemSpec(sizes=(8, 4, 10)))
        assert (setting.states, setting.actions, setting.horizon) == (8, 4, 10)

    def test_default_number_of_agents_is_four(self) -> None:
        assert _setting(ProblemSpec(sizes=(8, 4, 10))).agents == 4

    def test_eps_p_is_unknown_if_it_is_not_given(self) -> None:
        assert not _setting(ProblemSpec(sizes=(8, 4, 10))).eps_p_known

    def test_eps_p_is_known_if_it_is_given(self) -> None:
        assert _setting(ProblemSpec(sizes=(8, 4, 10), eps_p=0.2)).eps_p_known

    def test_problem_without_sizes_is_refused(self) -> None:
        with pytest.raises(InputError, match="give its sizes"):
            _setting(ProblemSpec())


def _setting(problem: ProblemSpec) -> Any:
    return FederationSpec(run=RunSpec(problem=problem)).setting()


class TestId:
    """Identifiers of simulated runs, by which stored sweeps are resumed."""

    def test_id_of_a_run_is_that_of_earlier_versions(self) -> None:
        assert SPEC.complete().id == "0b9ba95976ce7c78"

    def test_equal_runs_have_equal_ids(self) -> None:
        other = RunSpec.from_data({**SPEC.to_data(), "label": "ours", "checkpoint": None})
        assert other.complete().id == SPEC.complete().id
