"""gpflow_deep_runs.data.density.continuous: columns of numbers, standardised by the training rows."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from gpflow_deep_runs.data import views
from gpflow_deep_runs.data.density.bits import categories


@pytest.fixture
def table(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(5, 3, 60), "b": rng.integers(0, 3, 60), "c": rng.exponential(size=60)})
    frame["colour"] = rng.choice(["red", "green", "blue"], 60)
    frame.to_csv(tmp_path / "table.csv", index=False)
    return tmp_path / "table.csv"


def test_numbers_are_standardised_by_the_training_rows(table: Path) -> None:
    data = views.load(views.Source(data=str(table)), "continuous")
    assert data.feature_names == ("a", "c")  # b has three values, colour is no number
    assert data.train.X.dtype == np.float32
    np.testing.assert_allclose(data.train.X.mean(axis=0), 0.0, atol=1e-6)
    np.testing.assert_allclose(data.train.X.std(axis=0), 1.0, atol=1e-5)
    assert sum(data.sizes.values()) == 60
    assert set(data.parts) == {"train", "valid", "test"}
    raw = pd.read_csv(table)["a"].to_numpy()
    values = np.concatenate([part.X[:, 0] for part in data.parts.values()])
    assert np.corrcoef(np.sort(values), np.sort(raw))[0, 1] == pytest.approx(1.0)


def test_known_sets_give_their_inputs() -> None:
    data = views.load(views.Source(dataset="wine"), "continuous")
    assert data.train.X.shape[1] == 13
    assert data.task == "density"


def test_a_table_without_numbers_is_refused(tmp_path: Path) -> None:
    pd.DataFrame({"a": [0, 1] * 20, "b": ["x", "y"] * 20}).to_csv(tmp_path / "few.csv", index=False)
    with pytest.raises(ValueError, match=r"no column of at least 10 different numbers|no column"):
        views.load(views.Source(data=str(tmp_path / "few.csv")), "continuous")


def test_levels_of_a_category_are_a_group_of_bits(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"flag": rng.integers(0, 2, 60), "colour": rng.choice(["red", "green", "blue"], 60)})
    frame["size"] = rng.choice(["small", "large"], 60)
    frame.to_csv(tmp_path / "table.csv", index=False)
    data = views.load(views.Source(data=str(tmp_path / "table.csv")), "binary")
    for group in categories(data):
        assert len({data.feature_names[column].split("=")[0] for column in group}) == 1
        assert all((part.X[:, group].sum(axis=1) == 1).all() for part in data.parts.values())
    assert sum(map(len, categories(data))) >= 3
