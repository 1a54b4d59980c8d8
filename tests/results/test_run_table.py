"""Runs by setting and seed: groups, parts of a table, pairs by seed, and labels."""

from __future__ import annotations

import numpy as np
import pytest

from fed_ucbvi import InputError
from fed_ucbvi.results.run_table import RunTable


def table_of(seeds: dict[str, range], labels: dict[str, str] | None = None) -> RunTable[float]:
    """Runs of algorithms with M = 2 and 5; a run is a number that says whose it is."""
    rows = [
        (
            {"algorithm": name, "label": name.upper(), "algorithm.scale": len(name), "environment": "e", "agents": M},
            (("run", seed), ("seed", seed)),
            100.0 * len(name) + 10 * M + seed,
        )
        for M in (2, 5)
        for name, known in seeds.items()
        for seed in known
    ]
    return RunTable.of_rows(rows, labels)


def test_runs_that_differ_in_seeds_alone_are_one_group_whatever_their_order() -> None:
    table = table_of({"a": range(3), "bb": range(4)})
    assert [(group["algorithm"], group["agents"], len(group)) for group in table] == [
        ("a", 2, 3), ("bb", 2, 4), ("a", 5, 3), ("bb", 5, 4),
    ]  # fmt: skip
    assert table.values("agents") == [2, 5]
    assert table.having(agents=5, algorithm="bb").runs == [250.0, 251.0, 252.0, 253.0]
    assert table.where(lambda group: len(group) == 3).values("algorithm") == ["a"]


def test_a_table_is_split_into_groups_that_differ_in_some_settings_alone() -> None:
    table = table_of({"a": range(2), "bb": range(2)})
    assert [part.values("algorithm") for part in table.split_rest("agents")] == [["a"], ["bb"]]
    assert [part.values("agents") for part in table.split_rest("algorithm")] == [[2], [5]]
    assert [len(part) for part in table.split_rest(["algorithm", "agents"])] == [4]
    assert table.having(agents=3).split_rest("algorithm") == []
    with pytest.raises(InputError, match="unknown setting 'agent'"):
        table.split_rest("agent")


def test_pairs_have_equal_seeds_and_counterparts_differ_in_one_thing() -> None:
    table = table_of({"a": range(1, 4), "bb": range(2, 9)})
    mine = table.having(algorithm="a", agents=5).groups[0]
    (other,) = table.having(algorithm="bb").counterparts(mine)
    assert (other["algorithm"], other["agents"]) == ("bb", 5)
    assert mine.paired(other, float)[3:] == ([152.0, 153.0], [252.0, 253.0])
    np.testing.assert_array_equal(table.having(agents=5).in_common(float), [[152, 153], [252, 253]])
    assert table.having(algorithm="none").in_common(float).size == 0
    assert mine.summary(float).mean == 152.0


def test_groups_are_called_by_what_sets_them_apart_or_as_they_are_asked_to() -> None:
    table = table_of({"a": range(2), "bb": range(2)}, {"bb": "ours", "M = 5": "many"})
    assert [(named.name, named.rest_name) for named in table.divide("algorithm")] == [
        ("A", "M = 2"), ("ours", "M = 2"), ("A", "many"), ("ours", "many"),
    ]  # fmt: skip
    with pytest.raises(InputError, match="unknown algorithm or group 'c'"):
        table_of({"a": range(2)}, {"c": "ours"}).divide("algorithm")
    with pytest.raises(InputError, match="two of the given labels are the same"):
        table_of({"a": range(2)}, {"a": "x", "b": "x"})
