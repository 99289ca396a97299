"""`TableEncoder`: frames in a pipeline are read as the scripts read tables."""

import importlib
import pickle
from typing import Any

import numpy as np
import pandas as pd
import polars
import pytest
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.linear_model import Ridge
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from gpflow_deep_runs.data.table.spec import TableSpec
from gpflow_deep_runs.data.tables import read_table
from gpflow_deep_runs.data.values.encoder import TableEncoder


def frame(num_rows: int = 120, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    days = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 700, num_rows), unit="D")
    age = rng.uniform(18, 80, num_rows).round(1)
    age[3] = np.nan
    return pd.DataFrame(
        {
            "colour": pd.Categorical(rng.choice(["red", "green", "blue"], num_rows)),
            "price": [f"${value:,.2f}" for value in rng.uniform(900, 4000, num_rows)],
            "age": age,
            "member": rng.choice([True, False], num_rows),
            "since": days.strftime("%d.%m.%Y"),
        }
    )


def test_a_frame_becomes_what_a_file_becomes() -> None:
    table = frame()
    encoder = TableEncoder().fit(table)
    target = np.arange(len(table)) / 7
    rows = read_table(table.assign(y=target), TableSpec(target=("y",), missing="impute", unknown="level"))
    expected = rows.schema.learned(rows.parts["all"].X).filled(rows.parts["all"].X)  # type: ignore[union-attr]
    np.testing.assert_array_equal(encoder.transform(table), expected)
    assert list(encoder.get_feature_names_out()) == list(rows.feature_names)
    assert {"colour=red", "price", "age", "age=missing", "member", "since.day"} <= set(rows.feature_names)
    assert [row[:2] for row in encoder.columns_][:3] == [
        ["column", "read as"],
        ["colour", "category"],
        ["price", "number"],
    ]


def test_other_frames_and_orders_and_rows_that_are_new() -> None:
    table = frame()
    encoder = TableEncoder().fit(table)
    X = encoder.transform(table)
    np.testing.assert_array_equal(encoder.transform(polars.from_pandas(table)), X)
    np.testing.assert_array_equal(encoder.transform(table[list(table)[::-1]]), X)
    new = table.iloc[:2].assign(colour="purple", age=np.nan)
    found = dict(zip(encoder.get_feature_names_out(), encoder.transform(new).T, strict=True))
    assert not any(found[f"colour={name}"].any() for name in ("red", "green", "blue"))
    np.testing.assert_allclose(found["age"], table["age"].mean())
    np.testing.assert_array_equal(found["age=missing"], [1.0, 1.0])
    with pytest.raises(ValueError, match="'purple'"):
        TableEncoder(unknown="error").fit(table).transform(new.assign(age=1.0))
    with pytest.raises(ValueError, match="lacks 'price'"):
        encoder.transform(table.drop(columns="price"))


def test_in_a_pipeline() -> None:
    """Of a model that knows what makes y, in folds, after a copy and a pickle."""
    table = frame(400)
    y = 3.0 * (table["colour"] == "red") + pd.to_numeric(table["price"].str.replace("[$,]", "", regex=True)) / 1000
    model = make_pipeline(TableEncoder(), StandardScaler(), TransformedTargetRegressor(Ridge(1e-3)))
    assert cross_val_score(model, table, y, cv=4).min() > 0.999
    fitted = clone(model).fit(table, y)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(fitted)).predict(table), fitted.predict(table))
    assert fitted[0].set_output(transform="pandas").transform(table)["member"].isin([0.0, 1.0]).all()


def test_arrays_have_numbers_for_names() -> None:
    X = np.random.default_rng(0).normal(size=(30, 2))
    encoder = TableEncoder().fit(X)
    np.testing.assert_array_equal(encoder.transform(X), X)
    assert list(encoder.feature_names_in_) == ["0", "1"]
    masked = TableEncoder(missing="keep").fit_transform(np.ma.masked_array(X, mask=X > 2))
    np.testing.assert_array_equal(masked, np.where(X > 2, np.nan, X))
    with pytest.raises(ValueError, match="must be finite, but column '1' has 1 NaN or infinite"):
        TableEncoder().fit(np.where(X[3, 1] == X, np.inf, X))
    with pytest.raises(ValueError, match=r"must be a path, a pandas or polars data frame .* got Series"):
        TableEncoder().fit(pd.Series(X[:, 0]))


def test_two_readings_are_a_question() -> None:
    table = pd.DataFrame({"when": ["03/04/2024", "05/06/2024"] * 20, "x": np.arange(40.0) ** 1.5})
    with pytest.raises(ValueError, match="when"):
        TableEncoder().fit(table)
    assert "when.day" in TableEncoder(dates=["when:dmy"]).fit(table).get_feature_names_out()


def test_values_that_are_missing_may_stay_so() -> None:
    table = pd.DataFrame({"x": [1.0, np.nan, 3.0, 4.0], "c": ["a", None, "b", "a"]})
    encoder = TableEncoder(missing="keep").fit(table)
    nan = np.nan
    assert list(encoder.get_feature_names_out()) == ["x", "c=a", "c=b"]
    expected = np.array([[1, 1, 0], [nan, nan, nan], [3, 0, 1], [4, 1, 0]])
    np.testing.assert_array_equal(encoder.transform(table), expected)


BITS = pd.DataFrame({"colour": ["red", "blue", "blue", None] * 10, "big": [True, False, True, True] * 10})

ESTIMATORS = [
    ("gpflow_deep", "DeepGPRegressor", {"num_layers": 1, "num_inducing": 5, "max_iter": 3}),
    ("ebp", "EBPRegressor", {"hidden": (4,), "epochs": 2}),
    ("ebp", "EBPClassifier", {"hidden": (4,), "epochs": 2}),
    ("darn", "DARNDensity", {"architecture": "chain"}),
    ("rbm_tracking", "TrackedRBM", {"n_components": 2, "max_updates": 3, "random_state": 0, "visible": "bernoulli"}),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("package", "name", "options"), ESTIMATORS)
def test_estimators_take_frames(package: str, name: str, options: dict[str, Any]) -> None:
    """As they take the matrix that the frame becomes, if they know which of its columns are one variable."""
    kind = getattr(importlib.import_module(package), name)
    is_density = package in ("darn", "rbm_tracking")
    table, y = (BITS, None) if is_density else (frame(40), np.arange(40) % 2)
    model = kind(**options).fit(table, y)
    matrix = TableEncoder(missing="keep" if is_density else "impute").fit_transform(table)
    groups = {"categories": model.variables_.groups} if package == "darn" else {}
    other = kind(**options, **groups).fit(matrix, y)
    score = "score_samples" if is_density else "predict"
    known = table.dropna().iloc[:5]
    np.testing.assert_array_equal(
        getattr(model, score)(known), getattr(other, score)(model.table_encoder_.transform(known))
    )
    assert model.fit(matrix, y).n_features_in_ == matrix.shape[1]
    assert not hasattr(model, "table_encoder_")
