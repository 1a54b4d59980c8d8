"""Output of a notebook, found by executing one: short texts, small tables, pictures, and one bar a run."""

from __future__ import annotations

import base64
import dataclasses
import io
import math
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fed_ucbvi import MDP, Federation, FedUCBVI, gridworld, run

CELLS = {
    "imports": """
from fed_ucbvi import FedQHoeffding, FedUCBVI, compare_runs, gridworld, inspect_federation, plan, plot_runs, run
import fed_ucbvi.engine.progress, fed_ucbvi.engine.simulation
world = gridworld(agents=20, eps_p=0.1)
_ = run(FedUCBVI(nu=60), world, 50, progress=False)  # compiles
fed_ucbvi.engine.progress.SECONDS_BEFORE_BAR = 3600.0""",
    "short run": "result = run(FedUCBVI(nu=60), world, 50, seed=1)",
    "impatience": """
fed_ucbvi.engine.progress.SECONDS_BEFORE_BAR = fed_ucbvi.engine.progress.SECONDS_BETWEEN_UPDATES = 0.0
fed_ucbvi.engine.simulation.SECONDS_BETWEEN_REPORTS = 0.0""",
    "run": "result = run(FedUCBVI(nu=60), world, 300, seed=1)",
    "many": "with fed_ucbvi.engine.progress.progress_bar('runs') as report:\\n    report(1, 3)\\n    report(2, 3, 1)",
    "silence": """
runs = [run(algorithm, world, 300, seed=seed, progress=False)
        for algorithm in (FedUCBVI(nu=60), FedQHoeffding()) for seed in (1, 2)]""",
    "Run": "result",
    "Federation": "world",
    "MDP": "world.common",
    "Inspection": "inspect_federation(world)",
    "Forecast": "plan(states=8, actions=4, horizon=10, agents=20, episodes=30_000, eps_p=0.1)",
    "Comparison": "compare_runs(runs)",
    "plot": "result.plot()",
    "plot_runs": "plot_runs(runs)",
}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning"),
]


@pytest.fixture(scope="module")
def outputs() -> dict[str, list[Any]]:
    """The outputs of each cell."""
    import nbformat
    from nbclient import NotebookClient

    cells = [nbformat.v4.new_code_cell(source.strip().replace("\\n", "\n")) for source in CELLS.values()]
    notebook = nbformat.v4.new_notebook(cells=cells)
    NotebookClient(notebook, timeout=240, kernel_name="python3").execute()
    return {name: cell["outputs"] for name, cell in zip(CELLS, notebook["cells"], strict=True)}


@pytest.mark.parametrize("name", ["Run", "Federation", "MDP", "Inspection", "Forecast", "Comparison"])
def test_a_notebook_shows_values_briefly(outputs: dict[str, list[Any]], name: str) -> None:
    (shown,) = outputs[name]
    text = shown["data"]["text/plain"]
    table = shown["data"]["text/html"]
    assert text.startswith(f"<{name} ") or text.startswith(f"<{name}:")
    assert len(text) < 200
    assert "\n" not in text
    assert table.startswith("<table>")
    assert len(table) < 3000
    assert "array(" not in text + table


@pytest.fixture
def with_a_liar() -> Federation:
    return gridworld(agents=5).with_liars(0.2, "random")


def test_the_repr_of_a_federation_counts_liars(with_a_liar: Federation) -> None:
    assert "1 of them lie" in repr(with_a_liar)
    assert "<td>lying</td><td>1</td>" in with_a_liar._repr_html_()


def test_the_repr_of_an_unknown_federation_says_unknown(with_a_liar: Federation) -> None:
    unknown = dataclasses.replace(with_a_liar, common=MDP.unknown(8, 4, 10), eps_p=math.nan)
    assert "eps_p = unknown" in repr(unknown)


def test_the_repr_of_a_run_of_unknown_regret_says_unknown() -> None:
    result = run(FedUCBVI(nu=10), gridworld(agents=5), 30)
    unknown = np.full_like(result.records["regret"], math.nan)
    records = {**result.records, "regret": unknown}
    assert "regret unknown" in repr(dataclasses.replace(result, records=records))


def test_no_repr_has_an_array(with_a_liar: Federation) -> None:
    result = run(FedUCBVI(nu=10), gridworld(agents=5), 30)
    for value in (with_a_liar, with_a_liar.common, with_a_liar.common.kernel, result):
        assert len(repr(value)) < 200
        assert "array" not in repr(value)


def test_a_table_escapes_what_it_is_given() -> None:
    world = dataclasses.replace(gridworld(agents=2), description={"name": "<script>", "map": "<b>" + "x" * 99})
    assert "<script>" not in world._repr_html_()
    assert "<b>x" not in world._repr_html_()


@pytest.mark.parametrize("name", ["plot", "plot_runs"])
def test_a_figure_shows_itself(outputs: dict[str, list[Any]], name: str) -> None:
    (shown,) = outputs[name]
    with Image.open(io.BytesIO(base64.b64decode(shown["data"]["image/png"]))) as image:
        assert image.format == "PNG"


def test_a_run_has_one_bar_that_is_full_in_the_end(
    outputs: dict[str, list[Any]],
) -> None:
    (bar,) = outputs["run"]
    assert '<progress value="300" max="300">' in bar["data"]["text/html"]
    assert bar["data"]["text/plain"].startswith("100% of 300 episodes, ")


def test_many_things_have_one_bar_with_their_failures(
    outputs: dict[str, list[Any]],
) -> None:
    (bar,) = outputs["many"]
    assert bar["data"]["text/plain"] == "2/3 runs, 1 failed"


@pytest.mark.parametrize("name", ["short run", "silence"])
def test_a_short_run_or_one_without_progress_shows_nothing(outputs: dict[str, list[Any]], name: str) -> None:
    assert outputs[name] == []
