"""`gpflow_deep_runs.data.table.survey`: what is counted, at once or block by block."""

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from gpflow_deep_runs.data.table import survey as survey_module
from gpflow_deep_runs.data.table.columns import Column
from gpflow_deep_runs.data.table.spec import TableSpec
from gpflow_deep_runs.data.table.survey import Facts, Survey, features_of, labels, look, merged, parsed

COLUMNS = {
    column.name: column
    for column in (
        Column("size", "number"),
        Column("kind", "category"),
        Column("sold", "date", date_format="%Y-%m-%d %H:%M"),
        Column("label", "number"),
        Column("id", "ignored"),
    )
}


def table(rng: np.random.Generator, num_rows: int = 60) -> pa.Table:
    """Cells as a text file has them; a tenth of them is empty."""
    days = np.datetime64("2019-12-20") + rng.integers(0, 30, num_rows)
    columns = {
        "size": rng.normal(size=num_rows).astype(str),
        "kind": rng.choice(["ape", "bee"], num_rows),
        "sold": np.char.add(days.astype(str), " 10:00"),
        "label": rng.integers(3, 6, num_rows).astype(str),
        "id": np.arange(num_rows).astype(str),
    }
    is_missing = rng.random((num_rows, 5)) < 0.1
    return pa.table({name: np.where(is_missing[:, i], "", cells) for i, (name, cells) in enumerate(columns.items())})


def surveyed(rows: pa.Table) -> Survey:
    return look(parsed(COLUMNS, rows, where="here"), COLUMNS.values(), targets=("label",))


def test_blocks_together_are_the_whole(rng: np.random.Generator) -> None:
    rows = table(rng)
    whole = surveyed(rows)
    first, *others = (surveyed(rows.slice(start, 15)) for start in range(0, 60, 15))
    for other in others:
        first = merged(first, other)
    assert first == whole
    kinds = rows["kind"].to_pylist()
    assert whole["kind"].counts == {kind: kinds.count(kind) for kind in ("ape", "bee")}
    assert whole["kind"].num_missing == kinds.count("")
    assert set(whole["label"].counts) == {"3", "4", "5"}
    assert whole["size"].counts == {}
    assert "id" not in whole


def test_a_block_without_values(rng: np.random.Generator) -> None:
    rows = table(rng)
    whole, nothing = surveyed(rows), surveyed(rows.slice(0, 0))
    assert merged(whole, nothing) == merged(nothing, whole) == whole


@pytest.mark.parametrize(
    ("values", "is_whole", "counts"),
    [
        ([1.0, 2.0, 1.0, np.nan], True, {"1": 2, "2": 1}),
        ([1.0, 2.5], False, {}),
        ([1.0, np.inf], False, {}),
        (list(np.arange(1000.0)), True, {str(i): 1 for i in range(1000)}),
        (list(np.arange(1001.0)), False, {}),
    ],
)
def test_numbers_of_a_target(values: list[float], is_whole: bool, counts: dict[str, int]) -> None:
    facts = look({"t": np.array(values)}, [Column("t", "number")], targets=("t",))["t"]
    assert (facts.is_whole, facts.counts) == (is_whole, counts)


def test_labels_are_texts() -> None:
    numbers = labels(np.array([3.0, np.nan, 2.5, -1.0]), Column("t", "number"))
    assert (numbers.dropna().tolist(), numbers.isna().tolist()) == (["3", "2.5", "-1"], [False, True, False, False])
    truths: Any = {"true": ("ja", "Ja"), "false": ("nein",)}
    assert labels(np.array([1.0, 0.0]), Column("t", "boolean", **truths)).tolist() == ["ja", "nein"]
    assert labels(np.array([1.0, 0.0]), Column("t", "boolean", true=("TRUE",), false=("FALSE",))).tolist() == [
        "True",
        "False",
    ]


def test_too_many_texts_to_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey_module, "MAX_COUNTED", 5)
    found = {"name": pd.Categorical(list("abcde"))}
    survey = look(found, [Column("name", "text")])
    with pytest.raises(ValueError, match="'name' has more than 5 different texts; leave it out with --ignore=name"):
        merged(survey, look({"name": pd.Categorical(["f"])}, [Column("name", "text")]))


@pytest.mark.parametrize(
    ("low", "high", "wanted", "parts"),
    [
        ((17900, 5, 0, 0), (18400, 300, 6, 23), (), ("day", "day_of_year", "weekday", "hour")),
        ((17900, 5, 0, 0), (18200, 300, 6, 0), (), ("day", "weekday")),
        ((17900, 5, 3, 8), (17900, 5, 3, 17), (), ("hour",)),
        ((17900, 5, 3, 8), (17900, 5, 3, 8), (), ("day",)),
        ((16000, 1, 0, 0), (18000, 1, 6, 0), (), ("day", "weekday")),
        ((17900, 5, 0, 0), (18200, 300, 6, 0), ("hour", "day_of_year"), ("day_of_year",)),
        ((17900, 5, 0, 0), (18400, 300, 6, 23), ("hour", "day"), ("day", "hour")),
        ((17900, 5, 0, 0), (18200, 300, 6, 0), ("hour",), ("day",)),
    ],
)
def test_parts_of_dates_that_vary(
    low: tuple[float, ...], high: tuple[float, ...], wanted: tuple[str, ...], parts: tuple[str, ...]
) -> None:
    """Within a year the day of the year is the day but for a constant."""
    survey = {"d": Facts(low=low, high=high)}
    (feature,) = features_of([Column("d", "date")], survey, TableSpec(date_parts=wanted), "here")
    assert feature.parts == parts


@pytest.mark.parametrize(
    ("form", "parts"), [("%Y-%m", ("day",)), ("%d %b %Y", ("day", "weekday")), ("", ("day", "weekday"))]
)
def test_dates_without_a_day_have_no_weekday(form: str, parts: tuple[str, ...]) -> None:
    survey = {"d": Facts(low=(17900, 5, 0, 0), high=(18200, 300, 6, 0))}
    (feature,) = features_of([Column("d", "date", date_format=form)], survey, TableSpec(), "here")
    assert feature.parts == parts


def test_inputs_have_different_names() -> None:
    kinds = [Column("a", "category"), Column("a=b", "category")]
    facts = {"a": Facts(counts={"b=c": 3, "missing": 2}, num_missing=4), "a=b": Facts(counts={"d": 9})}
    first, second = features_of(kinds, facts, TableSpec(), "here")
    assert (*first.names, *second.names) == ("a=b=c", "a=missing", "a=(missing)", "a=b=d")
    facts["a=b"] = Facts(counts={"c": 9})
    with pytest.raises(
        ValueError, match=r"two inputs of here would be called 'a=b=c', .*; rename the column, or .*--ignore"
    ):
        features_of(kinds, facts, TableSpec(), "here")
