"""`gpflow_deep_runs.data.table.targets`: tasks, names of classes, and Y; `test_tables` has what they do with files."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from gpflow_deep_runs.data.table.columns import Column
from gpflow_deep_runs.data.table.survey import Facts, Survey, look
from gpflow_deep_runs.data.table.targets import class_names_of, encoded, task_of

TRUTHS: dict[str, Any] = {"true": ("ja",), "false": ("nein",)}


def facts_of(values: list[Any], column: Column) -> Survey:
    cells = pd.Categorical(values) if column.kind in ("category", "text") else np.array(values, float)
    return look({column.name: cells}, [column], targets=(column.name,))


def test_names_of_classes_are_in_the_order_of_labels() -> None:
    """Numbers by size, texts by their letters; of a boolean what is true comes last."""
    for column, values, names in (
        (Column("t", "number"), [10.0, 9.0, -1.0], ("-1", "9", "10")),
        (Column("t", "category"), ["b", "a", "10", "9"], ("10", "9", "a", "b")),
        (Column("t", "boolean", **TRUTHS), [1.0, 0.0], ("nein", "ja")),
    ):
        assert class_names_of(column, facts_of(values, column)["t"]) == names


@pytest.mark.parametrize(
    ("kind", "values", "task"),
    [
        ("time", [10.5, 11.0] * 50, "regression"),
        ("boolean", [1.0, 0.0, np.nan], "binary"),
        ("number", [1.0, 2.0, 3.0] * 20 + [np.nan] * 40, "multiclass"),  # 3 are 5 % of those that are known
        ("number", [1.0, 2.0, 3.0] * 19 + [np.nan] * 43, "regression"),
        ("text", [f"n{i}" for i in range(60)] * 20, "multiclass"),
    ],
)
def test_task_that_a_target_allows(kind: Any, values: list[Any], task: str) -> None:
    column = Column("t", kind, **(TRUTHS if kind == "boolean" else {}))
    assert task_of([column], facts_of(values, column), None, "here") == task


def test_several_targets_are_numbers() -> None:
    columns = [Column("a", "number"), Column("b", "time"), Column("c", "boolean", **TRUTHS)]
    facts = {name: Facts(is_whole=False) for name in "abc"}
    assert task_of(columns, facts, None, "here") == "regression"
    with pytest.raises(
        ValueError, match="--task=multiclass needs one target, got several columns, 'a', 'b', 'c' of here"
    ):
        task_of(columns, facts, "multiclass", "here")


def test_labels_and_targets() -> None:
    column = Column("t", "category")
    found = {"t": pd.Categorical(["b", None, "a"]), "y": np.array([1.5, np.nan, 2.0])}
    np.testing.assert_array_equal(encoded([column], found, "binary", ("a", "b"), where="here"), [[1], [-1], [0]])
    with pytest.raises(
        ValueError, match=r"column 't' of here has the value 'b' in row 7 \(from 0\), no class .*'a', 'c'"
    ):
        encoded([column], found, "binary", ("a", "c"), where="here", first_row=7)
    numbers = encoded([Column("y", "number")], found, "regression", (), where="here")
    np.testing.assert_array_equal(numbers, found["y"][:, None])
    found["t"] = np.array([1.0, 0.0, np.nan])
    truth = Column("t", "boolean", **TRUTHS)
    np.testing.assert_array_equal(encoded([truth], found, "binary", ("nein", "ja"), where="here"), [[1], [0], [-1]])
