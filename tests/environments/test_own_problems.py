"""Own environments and own algorithms: named everywhere in one way, saved by name, read in a new process."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from commands import anew, call, executed, refusal
from fed_ucbvi import (
    MDP,
    Federation,
    FedQHoeffding,
    FedUCBVI,
    InputError,
    Run,
    Sweep,
    from_gymnasium,
    load_runs,
    run,
    run_sweep,
)
from fed_ucbvi.algorithms import algorithm_name, make_algorithm
from fed_ucbvi.core.plugins import Registry, registered
from fed_ucbvi.engine.run import resume
from fed_ucbvi.environments import ENVIRONMENTS, find_environment, make_environment, recorded_options
from fed_ucbvi.environments.chains import riverswim
from fed_ucbvi.environments.random_problems import synthetic
from fed_ucbvi.network.node import Node
from fed_ucbvi.network.node_terms import NodeTerms
from fed_ucbvi.network.run_plan import plan_for
from fed_ucbvi.results.about import label_of
from fed_ucbvi.results.looks import LOOKS, look_of, register_look
from fed_ucbvi.specifications.problem import ProblemSpec, describe_environment
from fed_ucbvi.sweeps.job import Job
from fed_ucbvi.sweeps.store import Store
from repository import ROOT
from runs import without_cautions
from sweeps import made_sweep

pytestmark = pytest.mark.slow

PLUGIN = ROOT / "examples" / "plugin"
MODULE = '''
from dataclasses import dataclass
from typing import ClassVar

from fed_ucbvi import FedUCBVI, register_look, synthetic
from fed_ucbvi.algorithms.base import Algorithm

FIXED = synthetic(agents=3, eps_p=0.1, seed=5, states=3, actions=2, horizon=3)

def three():
    return [FIXED.agent(i) for i in range(3)]

def many(agents, seed=0, *, states=3, names=("a", "b")):
    return synthetic(agents=agents, seed=seed, eps_p=0.2, states=states, actions=2, horizon=3)

def needy(agents, rent, *, rule=len):
    return many(agents)

def pair(agents=2, seed=0):
    return many(agents, seed)

def any_options(**options):
    return many(options.get("agents", 4))

def broken():
    raise ZeroDivisionError("no shops")

def nonsense():
    return "no problem"

@dataclass(frozen=True)
class Bold(FedUCBVI):
    """Its name is inherited, so it is known by where it is."""

    bonus_scale: float = 0.5
    courage: int = 1

BOLDER = Bold(bonus_scale=0.25)

@dataclass(frozen=True)
class Poor(Algorithm):
    bonus: str = "none"

@dataclass(frozen=True)
class Stranger:
    bonus: str = "none"

@dataclass(frozen=True)
class Brisk(FedUCBVI):
    """It has a name of its own, and looks."""

    name: ClassVar[str] = "brisk"
    label: ClassVar[str] = "Brisk!"

register_look("shops_of_ours:Brisk", "#123456", "square")

@dataclass(frozen=True)
class Plain(FedUCBVI):
    """It has a name of its own and says nothing of its looks."""

    name: ClassVar[str] = "plain"
'''


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a module, the current one; what it imports is forgotten afterwards."""
    (tmp_path / "shops_of_ours.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr("fed_ucbvi.results.looks.LOOKS", dict(LOOKS))
    yield tmp_path
    sys.modules.pop("shops_of_ours", None)


def done(*arguments: str, cwd: Path, paths: tuple[Path, ...] = ()) -> str:
    """Output of the program in a new process, which ends well."""
    made = anew(*arguments, cwd=cwd, paths=paths)
    assert made.returncode == 0, made.stdout + made.stderr
    return made.stdout


def grid(**changes: Any) -> dict[str, Any]:
    """A small grid of a sweep."""
    plain = {
        "algorithms": ["fed-ucbvi"],
        "environments": ["synthetic"],
        "agents": [2],
        "episodes": [30],
        "seeds": 2,
    }
    return {**plain, **changes}


# ----------------------------------------------------------------------------------------- federations as files
@pytest.fixture
def lake() -> Federation:
    return from_gymnasium("FrozenLake-v1", agents=2, horizon=5, vary={"success_rate": [0.6, 0.9]})


def saved_and_loaded(federation: Federation, folder: Path) -> Federation:
    federation.save(folder / "deep" / "f.npz")
    assert [path.name for path in (folder / "deep").iterdir()] == ["f.npz"]
    return Federation.load(folder / "deep" / "f.npz")


def test_a_saved_federation_loads_back_equal(lake: Federation, tmp_path: Path) -> None:
    for federation in (synthetic(agents=2, eps_p=0.2), lake, lake.with_liars(0.5, "flip")):
        back = saved_and_loaded(federation, tmp_path)
        assert back.digest == federation.digest
        assert back.description == json.loads(json.dumps(federation.description))
        assert back.layout == federation.layout
        assert back.liars == federation.liars
        assert not back.probabilities.flags.writeable


@without_cautions
def test_runs_on_a_loaded_federation_are_those_on_the_saved_one(lake: Federation, tmp_path: Path) -> None:
    for federation in (synthetic(agents=2, eps_p=0.2), lake, lake.with_liars(0.5, "flip")):
        back = saved_and_loaded(federation, tmp_path)
        algorithm = FedQHoeffding()
        assert run(algorithm, back, 20).same_outcome(run(algorithm, federation, 20))


def test_federations_of_other_seeds_have_other_digests() -> None:
    one = synthetic(agents=2, eps_p=0.2)
    other = synthetic(agents=2, eps_p=0.2, seed=1)
    assert one.digest != other.digest


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"probabilities": None}, "is damaged"),
        ({"about": None}, "is not a federation that fed-ucbvi saved"),
        (
            {"about": np.array('{"format": "fed-ucbvi/federation", "format_version": 99}')},
            "has format version 99",
        ),
        (
            {"rewards": np.zeros((2, 1, 3, 2), dtype=np.float32)},
            "rewards is a float32 table",
        ),
        ({"rewards": np.full((2, 1, 3, 2), 7.0)}, r"rewards must lie in \[0, 1\]"),
        ({"rewards": np.zeros((4, 1, 3, 2))}, "rewards is a float64 table of shape"),
        ({"initial": np.ones((2, 3))}, "initial distribution sums to 3"),
        ({"probabilities": np.zeros((2, 3, 3, 2, 3))}, "sums to 0, not to 1"),
        (
            {"successors": np.full((3, 3, 2, 3), 5, dtype=np.int32)},
            "successors must be states",
        ),
        ({"common_initial": np.ones(4) / 4}, "common_initial is a float64 table"),
        ({"initial": np.array([{"a": 1}], dtype=object)}, "is damaged"),
    ],
)
def test_a_damaged_federation_is_refused(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    """One or more of its arrays are replaced; None leaves one out."""
    path = tmp_path / "f.npz"
    synthetic(agents=2, states=3, actions=2, horizon=3).save(path)
    with np.load(path) as data:
        arrays = {**data, **changes}
    np.savez(path, **{name: array for name, array in arrays.items() if array is not None})
    with pytest.raises(InputError, match=message):
        Federation.load(path)


def test_a_federation_is_saved_in_npz_files_only(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"does not end in .npz"):
        synthetic(agents=2).save(tmp_path / "f.pickle")
    assert list(tmp_path.iterdir()) == []


def test_a_description_that_json_cannot_hold_is_not_saved(tmp_path: Path) -> None:
    federation = replace(synthetic(agents=2), description={"name": object()})
    with pytest.raises(InputError, match="cannot be saved"):
        federation.save(tmp_path / "f.npz")
    assert list(tmp_path.iterdir()) == []


def test_a_missing_federation_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not a file"):
        Federation.load(tmp_path / "f.npz")


# ----------------------------------------------------------------------------------------------------- one resolver
def test_an_environment_is_a_name_a_file_or_an_attribute(here: Path) -> None:
    fixed = make_environment("shops_of_ours:FIXED")
    fixed.save(here / "shops.npz")
    assert make_environment("shops.npz", agents=3).digest == fixed.digest
    three = make_environment("shops_of_ours:three")
    assert np.array_equal(three.probabilities, fixed.probabilities)
    assert three.description == {"name": "shops_of_ours:three", "agents": 3}
    many = make_environment("shops_of_ours:many", agents=4, seed=2, states=4)
    assert many.description.items() >= {"name": "shops_of_ours:many", "agents": 4, "seed": 2, "states": 4}.items()
    assert np.array_equal(
        many.probabilities,
        synthetic(4, 0.2, 2, states=4, actions=2, horizon=3).probabilities,
    )
    needy = make_environment("shops_of_ours:needy", agents=2, rent=7)
    assert needy.description["rent"] == 7
    assert "rule" not in needy.description
    name, options = recorded_options(needy.description, "shops_of_ours:needy")
    assert make_environment(name, **options).digest == needy.digest
    described = make_environment("shops.npz").description
    assert described.items() >= {"name": "shops.npz", "digest": fixed.digest, "agents": 3}.items()
    assert not {"eps_p", "seed"} & set(described)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("shops_of_ours:three", {"agents": 4}, "has 3 agents, not 4; pass agents = 3"),
        ("shops_of_ours:three", {"eps_p": 0.1}, "does not take eps_p, got 0.1"),
        ("shops_of_ours:FIXED", {"seed": 1}, "does not take seed, got 1"),
        ("shops_of_ours:FIXED", {"digest": "0" * 16}, "holds another federation"),
        (
            "shops_of_ours:FIXED",
            {"rows": 3},
            "unknown option of shops_of_ours:FIXED 'rows'",
        ),
        ("shops_of_ours:many", {"agents": 2, "stats": 3}, "did you mean 'states'"),
        (
            "shops_of_ours:needy",
            {"agents": 2},
            "missing a required argument: 'rent'; it may take agents, eps_p, seed",
        ),
        ("shops_of_ours:broken", {}, "failed: ZeroDivisionError: no shops"),
        (
            "shops_of_ours:nonsense",
            {},
            "must give a Federation or a list of MDPs, got str",
        ),
        ("shops_of_ours:nothing", {}, "has no attribute 'nothing'"),
        (
            "shops_of_theirs:nothing",
            {},
            "No module named 'shops_of_theirs'.*folder that holds shops_of_theirs.py",
        ),
        ("shops_of_ours:", {}, "not of the form module:attribute"),
        ("nowhere.npz", {}, "is not a file"),
        ("gridwrld", {}, "did you mean 'gridworld'"),
    ],
)
def test_what_cannot_be_used_is_told(here: Path, name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make_environment(name, **options)


def test_an_algorithm_is_a_name_a_class_or_a_value(here: Path) -> None:
    bold = make_algorithm("shops_of_ours:Bold", {"courage": 2})
    assert (bold.bonus_scale, bold.courage) == (0.5, 2)  # type: ignore[attr-defined]
    bolder = make_algorithm("shops_of_ours:BOLDER", {"courage": 3})
    assert (bolder.bonus_scale, bolder.courage) == (0.25, 3)  # type: ignore[attr-defined]
    assert algorithm_name(bold) == algorithm_name(bolder) == "shops_of_ours:Bold"
    assert algorithm_name(make_algorithm("fed_ucbvi:FedUCBVI", {})) == "fed-ucbvi"
    for name, message in (
        ("shops_of_ours:three", "no algorithm: a frozen dataclass"),
        (
            "shops_of_ours:Stranger",
            "inherits from .* or a value of one, not the class Stranger",
        ),
        ("shops_of_ours:Poor", "it lacks absorb, aggregate, .*, report, name"),
        ("fed-ucbv", "did you mean 'fed-ucbvi'"),
        ("__main__:Bold", "was defined in a script"),
    ):
        with pytest.raises(InputError, match=message):
            make_algorithm(name, {})
    with pytest.raises(
        InputError,
        match="parameter of shops_of_ours:BOLDER 'corage'; did you mean 'courage'",
    ):
        make_algorithm("shops_of_ours:BOLDER", {"corage": 3})


@pytest.fixture
def bad_entry_points(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Two packages that register one name, and a package that cannot be loaded."""
    entries = [
        EntryPoint("shops", "one:shops", "g"),
        EntryPoint("shops", "two:shops", "g"),
        EntryPoint("gone", "no_such_package:thing", "g"),
    ]
    monkeypatch.setattr("fed_ucbvi.core.plugins.entry_points", lambda group: entries)
    registered.cache_clear()
    yield
    registered.cache_clear()


@pytest.mark.usefixtures("bad_entry_points")
def test_a_name_that_two_packages_register_is_refused() -> None:
    with pytest.raises(InputError, match="registered by two packages"):
        Registry({}, "g")["shops"]


@pytest.mark.usefixtures("bad_entry_points")
def test_a_registered_package_that_cannot_be_loaded_is_refused() -> None:
    with pytest.raises(InputError, match="cannot be loaded: ModuleNotFoundError"):
        Registry({}, "g")["gone"]


@pytest.mark.usefixtures("bad_entry_points")
@pytest.mark.parametrize(("command", "known"), [("environments", "gridworld"), ("algorithms", "fed-ucbvi")])
def test_lists_warn_of_packages_that_cannot_be_used(command: str, known: str) -> None:
    listed = call(command, "--json")
    warnings = re.findall("^warning: '(shops|gone)' is registered", listed.stderr, flags=re.MULTILINE)
    assert known in json.loads(listed.stdout)
    assert len(warnings) == 2


@pytest.mark.parametrize(
    ("function", "agents"),
    [("pair", 2), ("any_options", 4), ("three", 3), ("many", 20)],
)
def test_own_function_chooses_its_number_of_agents_where_none_is_given(
    here: Path, function: str, agents: int
) -> None:
    spec = ProblemSpec(environment=f"shops_of_ours:{function}")
    assert spec.make_federation().agents == agents


def test_given_number_of_agents_replaces_the_default_of_an_own_function(
    here: Path,
) -> None:
    assert ProblemSpec(environment="shops_of_ours:pair", agents=5).make_federation().agents == 5


# ------------------------------------------------------------------------------------------------------ the commands
def test_commands_take_plugins_by_module_name(here: Path) -> None:
    make_environment("shops_of_ours:FIXED").save("shops.npz")
    for env in ("shops.npz", "shops_of_ours:three", "shops_of_ours:FIXED"):
        words = (
            "--env",
            env,
            "--algorithm",
            "shops_of_ours:BOLDER",
            "--episodes",
            "20",
            "--json",
        )
        made = json.loads(call("run", *words).stdout)
        assert made["env"] == env
        assert made["algorithm"] == "shops_of_ours:Bold"
        assert made["agents"] == 3
        assert made["parameters"]["bonus_scale"] == 0.25
        assert json.loads(call("inspect", "--env", env, "--json").stdout)["agents"] == 3
        assert json.loads(call("plan", "--env", env, "--json").stdout)["agents"] == 3
    many = (
        "--env",
        "shops_of_ours:many",
        "--env-option",
        "states=4",
        "--env-seed",
        "3",
    )
    assert json.loads(call("run", *many, "--episodes", "5", "--json").stdout)["agents"] == 20
    assert "has 3 agents, not 4" in refusal("run", "--env", "shops.npz", "--agents", "4")
    few = ("--episodes", "20", "--seeds", "1", "--json")
    table = call("compare", "--env", "shops.npz", "--algorithm", "shops_of_ours:Bold", *few)
    assert [row["algorithm"] for row in json.loads(table.stdout)["tables"]["shops.npz"]] == ["shops_of_ours:Bold"]
    assert "named twice" in refusal(
        "compare",
        "--algorithm",
        "shops_of_ours:Bold",
        "--algorithm",
        "shops_of_ours:BOLDER",
    )
    assert "need --env" in refusal("compare", "--episodes", "20")


@pytest.mark.full
def test_a_federation_over_the_network_takes_plugins_by_module_name(
    here: Path,
) -> None:
    pytest.importorskip("grpc")
    make_environment("shops_of_ours:FIXED").save("shops.npz")
    own = (
        "--env",
        "shops.npz",
        "--algorithm",
        "shops_of_ours:Bold",
        "--episodes",
        "30",
        "--seed",
        "2",
        "--json",
    )
    first = json.loads(done("run", *own, "--driver", "episodes", cwd=here))
    second = json.loads(done("federate", "--nodes", "2", *own, cwd=here))
    for key in ("algorithm", "environment", "agents", "rounds", "value", "regret"):
        assert first[key] == second[key]


def test_a_node_runs_unregistered_code_only_if_it_was_told_to(here: Path) -> None:
    federation = make_environment("shops_of_ours:FIXED")
    welcome = plan_for(make_algorithm("shops_of_ours:Bold", {}), federation, 10).welcome()
    assert json.loads(welcome.spec)["algorithm"] == "shops_of_ours:Bold"
    with pytest.raises(InputError, match=r"which is not registered here.*--algorithm"):
        Node("a", lambda M: federation, 0, 3).enter(welcome)
    with pytest.raises(InputError, match="takes part in fed-ucbvi only"):
        Node("a", lambda M: federation, 0, 3, terms=NodeTerms(algorithm="fed-ucbvi")).enter(welcome)
    Node("a", lambda M: federation, 0, 3, terms=NodeTerms(algorithm="shops_of_ours:BOLDER")).enter(welcome)


def test_code_is_not_run_because_a_file_names_it(here: Path) -> None:
    with pytest.raises(InputError, match="is not run because a file names it"):
        recorded_options({"name": "os:system", "command": "touch owned"})
    assert not (here / "owned").exists()
    call(
        "run",
        "--env",
        "shops_of_ours:many",
        "--agents",
        "2",
        "--episodes",
        "5",
        "--out",
        "made",
    )
    assert "name it yourself (--env shops_of_ours:many)" in refusal("play", "made")
    played = json.loads(call("play", "made", "--env", "shops_of_ours:many", "--episodes", "3", "--json").stdout)
    assert played["episodes"] == 3


# ------------------------------------------------------------------------------------------------- in a new process
@pytest.mark.full
def test_saved_results_of_plugins_work_in_a_new_process(
    here: Path,
) -> None:
    own = (
        "--env",
        "shops_of_ours:many",
        "--agents",
        "2",
        "--algorithm",
        "shops_of_ours:BOLDER",
        "--episodes",
        "40",
    )
    done("run", *own, "--out", "whole", "--checkpoint", "kept", cwd=here)
    elsewhere = here / "elsewhere"
    elsewhere.mkdir()
    shown = done("show", str(here / "whole"), "--out", "picture.png", "--json", cwd=elsewhere)
    assert json.loads(shown)["algorithm"] == "shops_of_ours:Bold"
    assert Run.load(here / "whole").about.environment["name"] == "shops_of_ours:many"
    done(
        "resume",
        str(here / "kept"),
        "--out",
        "again",
        "--code",
        "shops_of_ours:Bold",
        cwd=here,
    )
    assert Run.load(here / "again").same_outcome(Run.load(here / "whole"))
    lost = anew("resume", str(here / "kept"), "--code", "shops_of_ours:Bold", cwd=elsewhere)
    assert lost.returncode == 2
    assert "cannot load shops_of_ours:Bold: No module named 'shops_of_ours'. Install it, or start" in lost.stderr
    assert make_algorithm("shops_of_ours:Bold", {}).name
    assert resume(here / "kept", progress=False).same_outcome(Run.load(here / "whole"))


TOML = """
name = "ours"
[[grid]]
algorithms = ["shops_of_ours:Bold", { name = "shops_of_ours:BOLDER", label = "bolder" }, "fed-ucbvi"]
environments = ["shops_of_ours:three", "shops.npz", { name = "shops_of_ours:many", states = 4 }]
agents = [3]
episodes = [30]
seeds = 1
"""


NAMES = ("Bold", "BOLDER", "three", "many")
CODE = [word for name in NAMES for word in ("--code", f"shops_of_ours:{name}")]
SWEEP = ("sweep", "ours.toml", "--out", "out", *CODE)


@pytest.mark.full
def test_a_sweep_over_ones_own_is_read_where_the_code_is_not(here: Path) -> None:
    make_environment("shops_of_ours:FIXED").save("shops.npz")
    (here / "ours.toml").write_text(TOML, encoding="utf-8")
    assert "not run because a file names it" in anew(*SWEEP[:-2], cwd=here).stderr
    assert json.loads(done(*SWEEP, "--json", cwd=here))["done"] == 9
    elsewhere = here / "elsewhere"
    elsewhere.mkdir()
    done("report", str(here / "out"), "--out", "report", "--json", cwd=elsewhere)
    assert (elsewhere / "report" / "index.html").is_file()
    program = "from fed_ucbvi import load_runs; import sys; print(len(load_runs(sys.argv[1])))"
    alone = {"PYTHONPATH": str(ROOT / "src"), "PYTHONSAFEPATH": "1"}
    counted = executed(program, here / "out", cwd=elsewhere, env=alone)
    assert counted.stdout == "9\n", counted.stderr
    assert json.loads(done(*SWEEP, "--resume", "--json", cwd=here))["skipped"] == 9
    jobs = [job for job, _ in load_runs(here / "out")]
    assert {job.algorithm.name for job in jobs} == {"shops_of_ours:Bold", "fed-ucbvi"}
    assert jobs[0] == Job.from_content(jobs[0].content())
    make_environment("shops_of_ours:many", agents=3).save("shops.npz")
    changed = anew(*SWEEP, "--resume", cwd=here)
    assert changed.returncode == 2
    assert "holds another sweep" in changed.stderr


@pytest.mark.full
def test_a_package_registers_plugins_by_entry_points(
    tmp_path: Path,
) -> None:
    """The example package is installed as pip does it, then runs, sweeps and reports in new processes."""
    pytest.importorskip("hatchling")
    place = tmp_path / "site"
    options = "--quiet --disable-pip-version-check --no-deps --no-index"
    pip = [sys.executable, "-m", "pip", "install", *options.split()]
    subprocess.run(
        [*pip, "--no-build-isolation", "--no-compile", "--target", place, PLUGIN],
        check=True,
        timeout=300,
    )
    for what, name in (("environments", "shops"), ("algorithms", "bold-fed-ucbvi")):
        assert name in json.loads(done(what, "--json", cwd=tmp_path, paths=(place,)))
    both = ("--env", "shops", "--algorithm", "bold-fed-ucbvi")
    few = ("--episodes", "30", "--env-option", "capacity=3", "--json")
    figures = json.loads(done("run", *both, *few, cwd=tmp_path, paths=(place,)))
    assert figures["env"] == "shops"
    assert figures["algorithm"] == "bold-fed-ucbvi"
    assert figures["states"] == 4
    (tmp_path / "s.toml").write_text(
        'name = "s"\n[[grid]]\nalgorithms = ["bold-fed-ucbvi", "fed-ucbvi"]\n'
        'environments = [{ name = "shops", capacity = 2 }]\nagents = [2]\nepisodes = [20]\nseeds = 2\n',
        encoding="utf-8",
    )
    swept = done("sweep", "s.toml", "--out", "out", "--json", cwd=tmp_path, paths=(place,))
    assert json.loads(swept)["done"] == 4
    for paths in ((place,), ()):
        done("report", "out", "--out", f"report-{len(paths)}", cwd=tmp_path, paths=paths)
        page = (tmp_path / f"report-{len(paths)}" / "index.html").read_text(encoding="utf-8")
        for label in ("Bold Fed-UCBVI", "small shops"):
            assert label in page, "the runs have it on record"
    missing = anew("run", *both, cwd=tmp_path)
    assert missing.returncode == 2
    assert "unknown algorithm 'bold-fed-ucbvi'" in missing.stderr


def looks(name: str) -> tuple[str, str, str]:
    look = look_of(name)
    return label_of(name), look.colour, look.marker


def test_an_algorithm_of_ones_own_has_the_looks_it_gives_itself_or_plain_ones(
    here: Path,
) -> None:
    unknown = {name: looks(f"shops_of_ours:{name}") for name in ("Bold", "Brisk", "Plain")}
    for name, looked in unknown.items():
        assert looked == (f"shops_of_ours:{name}", "", "none")
    assert "shops_of_ours" not in sys.modules, "code is not run because somebody writes its name"
    make_algorithm("shops_of_ours:Bold", {})
    assert looks("shops_of_ours:Brisk") == ("Brisk!", "#123456", "square")
    assert looks("shops_of_ours:Plain") == ("plain", "", "none"), "looks are not inherited"
    assert looks("shops_of_ours:Bold") == unknown["Bold"], "it has no look of its own"
    assert looks("brisk") == ("brisk", "", "none"), "not registered"


@pytest.mark.full
def test_looks_of_plugins_are_used_where_their_code_is_missing(
    here: Path,
) -> None:
    algorithms = [
        {"name": "shops_of_ours:Brisk"},
        {"name": "shops_of_ours:Plain", "bonus_scale": 0.5},
        {"name": "shops_of_ours:Bold"},
        {"name": "shops_of_ours:Bold", "label": "at 5 % of it", "courage": 2},
    ]
    assert run_sweep(Sweep(name="ours", grids=[grid(algorithms=algorithms)]), here / "looks", jobs=1).complete
    elsewhere = here / "elsewhere"
    elsewhere.mkdir()
    labels = ["Brisk!", "plain", "shops_of_ours:Bold", "at 5 % of it"]
    for format_, written in (
        ("markdown", labels),
        ("latex", [*labels[:2], r"shops\_of\_ours:Bold", r"at 5 \% of it"]),
    ):
        shown = done(
            "show",
            str(here / "looks"),
            "--format",
            format_,
            "--out",
            "looks.svg",
            cwd=elsewhere,
        )
        sign = " | " if format_ == "markdown" else " & "
        rows = [line.strip("| ").partition(sign)[0] for line in shown.splitlines() if sign in line]
        assert rows[-4:] == written
    svg = (elsewhere / "looks.svg").read_text(encoding="utf-8")
    assert set(labels) <= set(re.findall(r"<!-- (.+?) -->", svg)), "matplotlib writes texts as paths with a comment"
    assert "#123456" in svg
    done("report", str(here / "looks"), "--out", "report", cwd=elsewhere)
    page = (elsewhere / "report" / "index.html").read_text(encoding="utf-8")
    assert all(label in page for label in labels)


@pytest.mark.parametrize(
    ("look", "message"),
    [
        ({"colour": "red"}, "the colour of wrong must be written #RRGGBB, got 'red'"),
        ({"marker": "star"}, "unknown marker of wrong 'star'"),
    ],
)
def test_a_look_that_cannot_be_drawn_is_refused(look: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        register_look("wrong", **look)


# -------------------------------------------------------------------------------------------- the identity of a run
LAKE = {"name": "from_gymnasium", "id": "FrozenLake-v1", "horizon": 12}


@pytest.mark.parametrize(
    ("environment", "agents"),
    [
        ({"name": "riverswim", "spread": 0.5}, 3),
        pytest.param({**LAKE, "vary": {"success_rate": [0.6, 0.9]}}, 3, marks=pytest.mark.full),
        pytest.param(
            {**LAKE, "kwargs": [{"success_rate": 0.6}, {"success_rate": 0.9}]},
            2,
            marks=pytest.mark.full,
        ),
    ],
)
def test_sweeps_whose_eps_p_is_computed_are_kept(environment: dict[str, Any], agents: int, tmp_path: Path) -> None:
    pytest.importorskip("gymnasium")
    sweep = Sweep(name="different", grids=[grid(environments=[environment], agents=[agents])])
    pairs = load_runs(made_sweep(tmp_path / "out", sweep))
    assert [(job.problem.eps_p, made.about.eps_p > 0) for job, made in pairs] == [(0.0, True)] * 2
    again = run_sweep(sweep, tmp_path / "out", resume=True)
    assert again.done == 0
    assert again.skipped == 2
    assert again.damaged == ()
    assert "saved in" in call("report", str(tmp_path / "out")).stdout


def test_a_sweep_in_which_nothing_can_be_lost_is_reported(tmp_path: Path) -> None:
    """With one action regret is 0, which no logarithmic axis can hold."""
    only = MDP([[[0.5, 0.5]], [[0.2, 0.8]]], rewards=[[0.0], [1.0]], initial=0, horizon=3)
    Federation.from_mdps([only, only]).save(tmp_path / "one.npz")
    only_one = grid(environments=[str(tmp_path / "one.npz")], eps_p=[0.0])
    folder = made_sweep(tmp_path / "out", Sweep(name="nothing", grids=[only_one]))
    assert "saved in" in call("report", folder).stdout


def test_a_file_under_another_runs_name_is_still_noticed(tmp_path: Path) -> None:
    def sweep(spread: float) -> Sweep:
        return Sweep(
            name="x",
            grids=[grid(environments=[{"name": "riverswim", "spread": spread}], seeds=1)],
        )

    store, (job,) = Store.create(tmp_path / "out", sweep(0.5)), sweep(0.5).jobs()
    (other,) = sweep(0.4).jobs()
    store.write(job, other.run().to_bytes(), 0.0)
    with pytest.raises(InputError, match="holds another run than its name"):
        load_runs(tmp_path / "out")


def test_a_job_refuses_what_its_environment_would_ignore(here: Path) -> None:
    def described(**changes: Any) -> Sweep:
        grid = {"algorithms": ["fed-ucbvi"], "environments": ["shops_of_ours:three"], "agents": [3], "episodes": [10]}
        return Sweep(name="shops", grids=[{**grid, **changes}])

    described()
    with pytest.raises(InputError, match="does not take eps_p"):
        described(eps_p=[0.1])
    with pytest.raises(InputError, match="does not take seed"):
        described(env_seed=1)
    with pytest.raises(InputError, match="has 3 agents, not 4"):
        described(agents=[4])
    assert describe_environment("shops_of_ours:many", {}).options == {
        "states": 3,
        "names": ["a", "b"],
    }
    assert find_environment("riverswim").made is ENVIRONMENTS["riverswim"] is riverswim


@dataclass(frozen=True)
class Local(FedUCBVI):
    name: ClassVar[str] = "fed-ucbvi"


def test_a_class_that_only_borrows_a_registered_name_is_recorded_by_its_own(
    tmp_path: Path,
) -> None:
    made = run(Local(nu=9), synthetic(agents=2), 10, progress=False)
    assert made.about.algorithm == f"{__name__}:Local"
    made.save(tmp_path / "run")
    assert Run.load(tmp_path / "run") == made


# ------------------------------------------------------------------------------------------------ control characters
@pytest.mark.parametrize("character", ["\x00", "\x1b", "\n", "\x9b", "\u202e", "\ud800", "\u2028"])
def test_control_characters_in_a_sweep_never_reach_a_terminal(character: str, tmp_path: Path) -> None:
    bad = f"a{character}[31mb"
    for key, content in (
        ("name", {"name": bad, "grids": [grid()]}),
        (
            r"algorithms\[0\].label",
            {
                "name": "x",
                "grids": [grid(algorithms=[{"name": "ucbvi", "label": bad}])],
            },
        ),
        (r"algorithms\[0\]", {"name": "x", "grids": [grid(algorithms=[bad])]}),
        (
            r"environments\[0\].name",
            {"name": "x", "grids": [grid(environments=[{"name": bad}])]},
        ),
        (r"grids\[0\]", {"name": "x", "grids": [grid(**{bad: 1})]}),
    ):
        with pytest.raises(InputError, match=f"{key} must be plain text without control characters") as refused:
            Sweep(**content)
        assert character not in str(refused.value)
    if character == "\x1b":
        (tmp_path / "s.toml").write_text('name = "a\\u001B[31mb"\n', encoding="utf-8")
        assert "\\x1b[31m" in refusal("sweep", str(tmp_path / "s.toml"), "--out", str(tmp_path / "out"))


def test_plain_text_in_any_language_is_a_label() -> None:
    label = "β ≤ ½, 商店 👩‍🔬"
    algorithm = {"name": "fed-ucbvi", "label": label}
    assert Sweep(name="x", grids=[grid(algorithms=[algorithm])]).jobs()[0].algorithm.label == label


def test_a_file_that_is_no_federation_is_refused(tmp_path: Path) -> None:
    (tmp_path / "f.npz").write_text("no tables at all", encoding="utf-8")
    with pytest.raises(InputError, match="is not a federation that fed-ucbvi saved"):
        Federation.load(tmp_path / "f.npz")
