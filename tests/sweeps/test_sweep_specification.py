"""What a sweep says: which runs, in which order, under which names; and what it refuses to say."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fed_ucbvi import FedUCBVI, InputError, RunSpec, Sweep, gridworld, run
from fed_ucbvi.environments import ENVIRONMENTS
from fed_ucbvi.sweeps.job import Job
from repository import ROOT

GRID: dict[str, Any] = {"algorithms": ["fed-ucbvi"], "environments": ["gridworld"], "episodes": [100]}


PLAIN: dict[str, Any] = {
    "algorithm": "fed-ucbvi",
    "agents": 3,
    "eps_p": 0.1,
    "env_seed": 4,
    "episodes": 60,
    "seed": 5,
}


def job(environment: str = "synthetic", **changes: Any) -> Job:
    data = {"environment": environment, **PLAIN, **changes}
    spec = RunSpec.from_data(data).complete()
    options = spec.options
    return Job(
        problem=spec.problem,
        algorithm=spec.algorithm,
        episodes=options.episodes,
        seed=options.seed,
        driver=options.driver,
    )


def test_the_id_is_the_digest_of_everything_written_out() -> None:
    parameters = json.dumps(dataclasses.asdict(FedUCBVI()), sort_keys=True)
    text = (
        '{"agents": 3, "algorithm": "fed-ucbvi", "driver": "auto", "env_seed": 4, "environment": "synthetic", '
        '"environment_options": {"actions": 5, "eps_r": 0.0, "horizon": 5, "states": 5}, "episodes": 60, '
        '"eps_p": 0.1, "meaning": 1, "parameters": ' + parameters + ', "seed": 5}'
    )
    assert job().id == hashlib.sha256(text.encode()).hexdigest()[:16]


def test_another_way_of_writing_the_same_run_gives_the_same_id() -> None:
    assert job(episodes=1e5).id == job(episodes=100000).id
    assert job(label="ours").id == job().id
    for parameters in ({"bonus": "practical"}, {"bonus_scale": 1}):
        assert job(parameters=parameters).id == job().id
    for options in ({"states": 5.0}, {"eps_r": 0}):
        assert job(environment_options=options).id == job().id
    assert job(parameters={"nu": 100}).id == job(parameters={"nu": 100.0}).id
    assert job("gridworld").id == job("gridworld", environment_options={"walls": [(1, 1)], "goals": [[2, 2]]}).id


def test_every_change_of_a_run_changes_its_id() -> None:
    other: dict[str, Any] = {"agents": 4, "eps_p": 0.0, "env_seed": 5, "episodes": 61, "seed": 4, "driver": "counts"}
    other |= {"algorithm": "byzan-ucbvi", "parameters": {"bonus": "theory"}}
    other |= {"environment": "gridworld", "environment_options": {"states": 6}}
    assert len({job().id, *(job(**{name: value}).id for name, value in other.items())}) == len(other) + 1


@pytest.mark.filterwarnings("ignore::fed_ucbvi.engine.simulation.Caution")
def test_a_job_makes_the_run_it_describes() -> None:
    parameters = {"nu": 9, "bonus": "theory"}
    options = {"rows": 2, "columns": 4}
    described = job("gridworld", environment_options=options, parameters=parameters, driver="counts")
    world = gridworld(agents=3, eps_p=0.1, seed=4, rows=2, columns=4)
    direct = run(FedUCBVI(nu=9.0, bonus="theory"), world, 60, seed=5, driver="counts")
    made = described.run()
    assert made.same_outcome(direct)
    assert described.made(made)
    others: dict[str, Any] = {"seed": 6, "env_seed": 5, "agents": 2, "parameters": {}, "environment_options": {}}
    for name, other in others.items():
        assert not job(**{**described.content(), name: other}).made(made)


def test_jobs_come_once_in_the_documented_order() -> None:
    numbers = {"eps_p": [0.2, 0.1], "agents": [2, 1], "episodes": [20, 10], "seeds": [3, 1]}
    grid = {
        "algorithms": ["fed-ucbvi", {"name": "fedq-hoeffding", "label": "rival"}],
        "environments": ["gridworld", {"name": "synthetic", "states": 3}],
        **numbers,
    }
    expected: list[Any] = [*itertools.product(("gridworld", "synthetic"), ("fed-ucbvi", "rival"), *numbers.values())]
    for grids in ([grid], [grid, {**grid, "agents": [1]}, grid]):
        jobs = Sweep(name="order", grids=grids).jobs()
        found = [
            (
                one.problem.environment,
                one.algorithm.label,
                one.problem.eps_p,
                one.problem.agents,
                one.episodes,
                one.seed,
            )
            for one in jobs
        ]
        assert found == expected
        assert len({one.id for one in jobs}) == len(jobs)


def test_a_single_number_stands_for_a_list_of_one() -> None:
    single = Sweep(name="x", grids=[{**GRID, "episodes": 2_000, "agents": 5, "eps_p": 0.1}])
    listed = Sweep(name="x", grids=[{**GRID, "episodes": [2_000], "agents": [5], "eps_p": [0.1]}])
    assert single.jobs() == listed.jobs()


def test_episodes_may_differ_by_environment() -> None:
    both = {**GRID, "environments": ["gridworld", "synthetic"], "seeds": 1}
    jobs = Sweep(name="x", grids=[{**both, "episodes": {"gridworld": 7, "synthetic": 9}}]).jobs()
    assert [(one.problem.environment, one.episodes) for one in jobs] == [("gridworld", 7), ("synthetic", 9)]


def test_number_of_seeds_stands_for_seeds_from_0() -> None:
    jobs = Sweep(name="x", grids=[{**GRID, "seeds": 2}]).jobs()
    assert [one.seed for one in jobs] == [0, 1]


def test_environments_have_one_seed_by_default() -> None:
    jobs = Sweep(name="x", grids=[{**GRID, "seeds": [4, 8]}]).jobs()
    assert [one.problem.env_seed for one in jobs] == [0, 0]


def test_environments_may_be_drawn_from_the_seed_of_each_run() -> None:
    jobs = Sweep(name="x", grids=[{**GRID, "seeds": [4, 8], "env_seed": "seed"}]).jobs()
    assert [one.problem.env_seed for one in jobs] == [4, 8]


def test_sweep_is_read_from_the_json_of_its_content() -> None:
    sweep = Sweep(name="x", grids=[GRID, {**GRID, "agents": [1, 2]}])
    again = Sweep(**json.loads(json.dumps(sweep.content())))
    assert (again.jobs(), again.digest, again.content()) == (sweep.jobs(), sweep.digest, sweep.content())


EXPLICIT = {
    **GRID,
    "agents": [20],
    "eps_p": [0],
    "seeds": 5,
    "env_seed": 0,
    "driver": "auto",
    "episodes": [1e2],
}


def test_defaults_that_are_written_out_leave_the_digest_as_it_is() -> None:
    assert Sweep(name="x", grids=[EXPLICIT]).digest == Sweep(name="x", grids=[GRID]).digest


@pytest.mark.parametrize(
    "changes",
    [
        {"agents": [2]},
        {"algorithms": [{"name": "fed-ucbvi", "label": "ours"}]},
    ],
)
def test_digest_is_that_of_the_runs(changes: dict[str, Any]) -> None:
    assert Sweep(name="x", grids=[{**GRID, **changes}]).digest != Sweep(name="x", grids=[GRID]).digest


def test_digest_is_that_of_the_name() -> None:
    assert Sweep(name="y", grids=[GRID]).digest != Sweep(name="x", grids=[GRID]).digest


class Counted:
    """Counts calls of a function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.calls = 0

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        self.calls += 1
        return self.function(*arguments, **named)


def test_environment_is_made_once_however_many_runs_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Counted(ENVIRONMENTS["gridworld"])
    monkeypatch.setitem(ENVIRONMENTS, "gridworld", made)
    options = {"name": "gridworld", "rows": 7, "success": 0.77}  # no other test describes this one
    Sweep(name="x", grids=[{**GRID, "environments": [options], "seeds": 4}])
    assert made.calls == 1


def test_server_is_made_once_for_all_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Counted(FedUCBVI.new_server)
    monkeypatch.setattr(FedUCBVI, "new_server", lambda *arguments: made(*arguments))
    Sweep(name="x", grids=[{**GRID, "seeds": 4}])
    assert made.calls == 1


EXAMPLE = ROOT / "examples" / "sweep.toml"


def test_example_of_the_documentation_is_the_example_file() -> None:
    text = (ROOT / "docs" / "sweeps.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```toml\n(.*?)```", text, flags=re.DOTALL)
    assert example == EXAMPLE.read_text(encoding="utf-8")


def test_example_file_has_the_documented_number_of_runs() -> None:
    assert len(Sweep.from_toml(EXAMPLE).jobs()) == 3 * 2 * 2 * 2 * 5 + 5


LABELS = ["fed-ucbvi", "theory's bonus", "fedq-bernstein", "ucbvi"]


def test_example_file_has_the_documented_labels() -> None:
    jobs = Sweep.from_toml(EXAMPLE).jobs()
    assert list(dict.fromkeys(one.algorithm.label for one in jobs)) == LABELS


@pytest.mark.parametrize("label", LABELS)
def test_runs_of_the_example_file_can_be_made(label: str) -> None:
    """At a small size."""
    chosen = next(one for one in Sweep.from_toml(EXAMPLE).jobs() if one.algorithm.label == label)
    assert dataclasses.replace(chosen, episodes=20).run().episodes_played == 20


def test_the_error_in_the_documentation_is_what_the_program_says(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "sweeps.md").read_text(encoding="utf-8")
    (quoted,) = re.findall(r"^    error: (sweep\.toml: .*\n    .*)$", text, flags=re.MULTILINE)
    example = (ROOT / "examples" / "sweep.toml").read_text(encoding="utf-8")
    path = tmp_path / "sweep.toml"
    path.write_text(example.replace("agents = [1]", "agents = [20]"), encoding="utf-8")
    with pytest.raises(InputError) as refused:
        Sweep.from_toml(path)
    assert str(refused.value).replace(str(path), path.name) == " ".join(quoted.split())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ('algorithms = ["fed-ucb"]', r"grid\[1\]\.algorithms\[0\]: unknown algorithm .* did you mean 'fed-ucbvi'"),
        ('algorithms = ["fed-ucbvi", 3]', r"grid\[1\]\.algorithms\[1\]: must be a name or a table"),
        ("algorithms = [{bonus = 'theory'}]", r"grid\[1\]\.algorithms\[0\]: .* name = "),
        ("algorithms = [{name = 'fed-ucbvi', bonus = 'x'}]", r"algorithms\[0\]: unknown bonus 'x'.*practical"),
        ("algorithms = [{name = 'fed-ucbvi', bonsu = 'theory'}]", r"algorithms\[0\]: .*did you mean 'bonus'"),
        ("algorithms = [{name = 'fed-ucbvi', delta = 2}]", r"algorithms\[0\]: delta must be a number in \(0, 1\)"),
        (
            "algorithms = [{name = 'fed-ucbvi', strict = 'maybe'}]",
            r"algorithms\[0\]: strict must be true or false",
        ),
        ("algorithms = [{name = 'fed-ucbvi', label = 3}]", r"algorithms\[0\]: the label must be text"),
        ("algorithms = []", r"grid\[1\]\.algorithms: is empty; give at least one"),
        ('environments = ["gridwrld"]', r"environments\[0\]: unknown environment .* did you mean 'gridworld'"),
        ("environments = [{name = 'gridworld', rowz = 4}]", r"environments\[0\]: .*did you mean 'rows'"),
        ("environments = [{name = 'gridworld', rows = 0}]", r"environments\[0\]: rows must be at least 1, got 0"),
        ("environments = [{name = 'gridworld', agents = 4}]", r"environments\[0\]: agents is not an option"),
        ("environments = 'gridworld'", r"grid\[1\]\.environments: must be a list in square brackets"),
        ("eps_p = [0.1, 1.0]", r"grid\[1\]\.eps_p\[1\]: eps_p must be a number in \[0, 1\)"),
        ("eps_p = ['much']", r"grid\[1\]\.eps_p\[0\]: eps_p must be a finite number"),
        ("agents = [5, 0]", r"grid\[1\]\.agents\[1\]: agents must be at least 1, got 0"),
        ("agents = {gridworld = 5}", r"grid\[1\]\.agents: must be a list in square brackets, got \{'gridworld': 5\}"),
        ("agents = 0", r"grid\[1\]\.agents\[0\]: agents must be at least 1"),
        ("agents = [1.5]", r"grid\[1\]\.agents\[0\]: agents must be a whole number"),
        ("episodes = [true]", r"grid\[1\]\.episodes\[0\]: episodes must be a whole number"),
        ("episodes = []", r"grid\[1\]\.episodes: is empty"),
        ("episodes = 0", r"grid\[1\]\.episodes\[0\]: episodes must be at least 1"),
        ("episodes = true", r"grid\[1\]\.episodes\[0\]: episodes must be a whole number"),
        ("episodes = {synthetic = 5}", r"grid\[1\]\.episodes: .* give gridworld a value"),
        ("episodes = {gridworld = 5, synthetic = 5}", r"grid\[1\]\.episodes: .* remove synthetic"),
        ("episodes = {gridworld = 0}", r"grid\[1\]\.episodes\.gridworld: episodes must be at least 1"),
        ("seeds = 0", r"grid\[1\]\.seeds: seeds must be at least 1"),
        ("seeds = []", r"grid\[1\]\.seeds: is empty"),
        ("seeds = [1, -1]", r"grid\[1\]\.seeds\[1\]: seed must be at least 0"),
        ("env_seed = 'sed'", r"grid\[1\]\.env_seed: must be a whole number, or 'seed'"),
        ("driver = 'slow'", r"grid\[1\]\.driver: unknown driver 'slow'. Known: auto, counts, cuda, episodes"),
        ("eps = [0.1]", r"grid\[1\]\.eps: unknown key 'eps'; did you mean 'eps_p'"),
        ('algorithms = ["ucbvi"]', r"grid\[1\]\.agents\[0\].*a single agent.*grid of its own with agents = \[1\]"),
        ("agents = [1000000]\nepisodes = [1e15]", r"grid\[1\]\.agents\[0\].*agents x episodes"),
        (
            "algorithms = ['fedq-hoeffding', {name = 'fedq-advantage', constants = 'published', beta = 11}]",
            r"grid\[1\]\.agents\[0\] with algorithms\[1\].*beta must be at most the horizon, 10",
        ),
    ],
)
def test_mistake_is_named_by_its_place_with_a_remedy(changes: str, message: str, tmp_path: Path) -> None:
    good = {"algorithms": '["fed-ucbvi"]', "environments": '["gridworld"]', "episodes": "[100]"}
    kept = [f"{key} = {value}" for key, value in good.items() if not re.search(rf"^{key} =", changes, re.MULTILINE)]
    first = "\n".join(f"{key} = {value}" for key, value in good.items())
    path = tmp_path / "my sweep.toml"
    path.write_text('name = "x"\n[[grid]]\n' + first + "\n[[grid]]\n" + "\n".join([*kept, changes]))
    with pytest.raises(InputError) as caught:
        Sweep.from_toml(path)
    text = str(caught.value)
    assert text.startswith(f"{path}: ")
    assert re.search(message, text)
    assert "\n" not in text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "name: is missing; add it. grid: is missing; add it"),
        ('name = "x"', "grid: is missing"),
        ('name = "x"\ngrid = []', "grid: is empty"),
        ('name = "x"\ngrid = [3]', r"grid\[0\]: must be a table"),
        ('name = "x"\n[grid]\nseeds = 3', r"grid: .* begin each with \[\[grid\]\]"),
        ('name = "x"\n[[gird]]', "unknown key 'gird'; did you mean 'grid'"),
        ('name = "x"\n[[grid]]', r"grid\[0\]\.algorithms: is missing; add it. grid\[0\]\.environments: is missing"),
        ('name = ""\n[[grid]]', "name: is empty"),
        ("name = 3\n[[grid]]", "name: must be text"),
        ("name = \n", "is not a TOML file: .*line 1"),
    ],
)
def test_files_that_are_no_sweep_are_refused(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "sweep.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=message) as caught:
        Sweep.from_toml(path)
    assert str(path) in str(caught.value)


def test_files_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"absent\.toml cannot be read: No such file"):
        Sweep.from_toml(tmp_path / "absent.toml")
    with pytest.raises(InputError, match="cannot be read: Is a directory"):
        Sweep.from_toml(tmp_path)
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="binary is not a TOML file"):
        Sweep.from_toml(tmp_path / "binary")
