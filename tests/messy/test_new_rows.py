"""New rows are read as the table that the model learned from, or refused: never with another meaning."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from gpflow_deep_runs.data.rows import divide
from gpflow_deep_runs.data.table.schema import Schema
from gpflow_deep_runs.data.table.spec import TableSpec
from gpflow_deep_runs.data.tables import apply_schema, read_table, schema_of
from tests.messy.reading import days, write
from tests.messy.writing import text

N = 60


def columns(count: int = N) -> dict[str, Any]:
    i = np.arange(count)
    return {
        "size": [f"{k / 4:.2f}".replace(".", ",") for k in i],
        "cost": [f"{1000 * k + 0.5:,.2f} €".replace(",", "x").replace(".", ",").replace("x", ".") for k in i],
        "when": [f"{1 + k % 28:02d}/{1 + k % 12:02d}/2020" for k in i],
        "clock": [f"{k % 24}:30" for k in i],
        "colour": [["red", "blue", "green", None][k % 4] for k in i],
        "open": [["yes", "no"][k % 2] for k in i],
        "y": [str(k * k) for k in i],
    }


@pytest.fixture
def schema(tmp_path: Path) -> Schema:
    """Stored and loaded."""
    path = write(tmp_path, "learned.csv", text(columns(), ";").encode())
    rows = divide(read_table(path, TableSpec(target=("y",), missing="impute")))
    return Schema.from_json(schema_of(rows).to_json())


def new(folder: Path, delimiter: str = ";", **changes: Any) -> Path:
    table = {**columns(5), **changes}
    return write(folder, "new.csv", text({name: cells for name, cells in table.items() if cells}, delimiter).encode())


def test_the_same_values(schema: Schema, tmp_path: Path) -> None:
    X, Y = apply_schema(schema, new(tmp_path))
    found = dict(zip(schema.feature_names, X.T.tolist(), strict=True))
    assert found["size"] == [0, 0.25, 0.5, 0.75, 1]
    assert found["cost"] == [0.5, 1000.5, 2000.5, 3000.5, 4000.5]
    assert found["clock"] == [0.5, 1.5, 2.5, 3.5, 4.5]
    assert found["open"] == [1, 0, 1, 0, 1]
    assert found["when.day"] == days("2020-01-01", "2020-02-02", "2020-03-03", "2020-04-04", "2020-05-05")
    assert found["colour=missing"] == [0, 0, 0, 1, 0]
    assert [found[f"colour={c}"][3] for c in ("blue", "green", "red")].count(1) == 1  # the most frequent in training
    assert Y is not None
    assert Y[:, 0].tolist() == [0, 1, 4, 9, 16]


def test_other_columns_order_and_no_target(schema: Schema, tmp_path: Path) -> None:
    X, _ = apply_schema(schema, new(tmp_path))
    table = columns(5)
    turned = {"more": ["?"] * 5, **{name: table[name] for name in reversed(table) if name != "y"}}
    path = write(tmp_path, "turned.csv", text(turned, "\t").encode("utf-16"))
    again, Y = apply_schema(schema, path)
    assert Y is None
    np.testing.assert_array_equal(again, X)


def test_typed_columns_of_the_same_meaning(schema: Schema, tmp_path: Path) -> None:
    X, _ = apply_schema(schema, new(tmp_path))
    typed = pa.table(
        {
            "size": np.arange(5) / 4,
            "cost": 1000.0 * np.arange(5) + 0.5,
            "when": np.array(["2020-01-01", "2020-02-02", "2020-03-03", "2020-04-04", "2020-05-05"], "datetime64[s]"),
            "clock": [f"{k}:30" for k in range(5)],
            "colour": pa.array(columns(5)["colour"]).dictionary_encode(),
            "open": [True, False, True, False, True],
        }
    )
    np.testing.assert_array_equal(apply_schema(schema, typed)[0], X)
    np.testing.assert_array_equal(apply_schema(schema, typed.to_pandas())[0], X)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"size": ["0.25", "1.5", "2", "3", "4"]}, r"'size'.*0\.25.*row 0"),
        ({"cost": ["1.5 €", "1.000,50 €", "2", "3", "4"]}, r"'cost'.*1\.5 €.*row 0"),
        ({"cost": ["1.000,50 €", "$2", "3 €", "4 €", "5 €"]}, r"'cost'.*\$2.*row 1"),
        ({"cost": ["1.000,50 €", "1,000.50 €", "3 €", "4 €", "5 €"]}, r"'cost'.*1,000\.50 €.*row 1"),
        ({"when": ["01/13/2020"] * 5}, r"'when'.*01/13/2020.*row 0"),
        ({"when": ["31/12/2020", "soon", "1/1/2020", "1/1/2020", "1/1/2020"]}, r"'when'.*soon.*row 1"),
        ({"colour": ["red", "pink", "red", "red", "red"]}, r"'colour'.*'pink'.*row 1.*--unknown"),
        ({"open": ["yes", "closed", "no", "no", "no"]}, r"'open'.*closed.*row 1"),
        ({"size": None}, r"lacks 'size'"),
        ({"size": None, "colour": None}, r"lacks 'size', 'colour'"),
    ],
)
def test_another_meaning_is_refused(schema: Schema, tmp_path: Path, changes: dict[str, Any], match: str) -> None:
    with pytest.raises(ValueError, match=match) as caught:
        apply_schema(schema, new(tmp_path, **changes))
    assert "new.csv" in str(caught.value)
    assert "\n" not in str(caught.value)
