import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from absl import logging
from sklearn import datasets as scikit

from gpflow_deep_base.seeds import numpy_rng
from gpflow_deep_runs.data import tables, views
from gpflow_deep_runs.data.views import Source, TableSpec


@pytest.fixture
def digits() -> tuple[np.ndarray, np.ndarray]:
    """Pixels from 0 to 16 [1797, 64] and labels [1797, 1]."""
    X, y = scikit.load_digits(return_X_y=True)
    return X, y[:, None]


def test_supervised_rows_are_divided_by_split_and_seed() -> None:
    X, Y = scikit.load_breast_cancer(return_X_y=True)
    data = views.load(Source(dataset="breast_cancer"), "supervised", split=2, valid_fraction=0.2, seed=5)
    assert data.sizes == {"train": 410, "valid": 102, "test": 57}
    order = numpy_rng(0, "split/2").permutation(569)
    test, rest = np.sort(order[512:]), np.sort(order[:512])
    chosen = np.zeros(512, bool)
    chosen[numpy_rng(5, "valid/2").choice(512, 102, replace=False)] = True
    for part, rows in {"train": rest[~chosen], "valid": rest[chosen], "test": test}.items():
        np.testing.assert_array_equal(data.parts[part].X, X[rows])
        np.testing.assert_array_equal(data.parts[part].Y[:, 0], Y[rows])
    assert (data.name, data.task, data.class_names) == ("breast_cancer", "binary", ("malignant", "benign"))


def test_all_views_of_the_digits_have_the_same_test_rows(digits: tuple[np.ndarray, np.ndarray]) -> None:
    X, Y = digits
    test = np.sort(numpy_rng(0, "binary_data/digits").permutation(1797)[1497:])
    supervised = views.load(Source(), "supervised").test
    np.testing.assert_array_equal(supervised.X, X[test])
    np.testing.assert_array_equal(supervised.Y, Y[test])
    np.testing.assert_array_equal(views.load(Source(), "images").test.X.reshape(300, 64), X[test] / 8 - 1)
    bits, grey = (views.load(Source(), view).test.X for view in ("binary", "grey"))
    assert sorted(map(bytes, bits)) == sorted(map(bytes, (X[test] >= 8).astype(np.uint8)))
    assert sorted(map(bytes, grey)) == sorted(map(bytes, (X[test] / 16).astype(np.float32)))
    ((train_rows, test_rows),) = views.load(Source(), "supervised", split=None).folds(8)
    np.testing.assert_array_equal(test_rows, test)
    np.testing.assert_array_equal(np.sort(np.concatenate([train_rows, test_rows])), np.arange(1797))


def test_binary_rows_and_intensities_are_of_the_same_images(digits: tuple[np.ndarray, np.ndarray]) -> None:
    X, Y = digits
    bits, grey = (views.load(Source(), view) for view in ("binary", "grey"))
    order = numpy_rng(0, "binary_data/digits").permutation(1797)
    assert bits.sizes == grey.sizes == {"train": 1297, "valid": 200, "test": 300}
    assert bits.image_shape == grey.image_shape == (8, 8)
    assert bits.test.X.dtype == np.uint8
    assert grey.test.X.dtype == np.float32
    np.testing.assert_array_equal(np.concatenate([part.X for part in bits.parts.values()]), X[order] >= 8)
    np.testing.assert_array_equal(np.concatenate([part.X for part in grey.parts.values()]), X[order] / 16)
    np.testing.assert_array_equal(np.concatenate([part.Y for part in bits.parts.values()]), Y[order])
    assert all(part.Y is None for part in grey.parts.values())


def test_images_are_scaled_and_some_are_set_aside(digits: tuple[np.ndarray, np.ndarray]) -> None:
    X, Y = digits
    data = views.load(Source(), "images", num_valid=100)
    assert data.sizes == {"train": 1397, "valid": 100, "test": 300}
    assert data.train.X.shape[1:] == (8, 8, 1)
    order = numpy_rng(0, "binary_data/digits").permutation(1797)
    rest, test = np.sort(order[:1497]), np.sort(order[1497:])
    drawn = numpy_rng(0, "images/digits").permutation(1497)
    for part, rows in {"train": rest[np.sort(drawn[100:])], "valid": rest[np.sort(drawn[:100])], "test": test}.items():
        np.testing.assert_array_equal(data.parts[part].X.reshape(-1, 64), (X[rows] / 8 - 1).astype(np.float32))
        np.testing.assert_array_equal(data.parts[part].Y, Y[rows])


def test_at_most_a_tenth_of_the_images_is_set_aside() -> None:
    assert views.load(Source(), "images").sizes == {"train": 1348, "valid": 149, "test": 300}
    assert views.load(Source(), "images", max_images=50).sizes == {"train": 45, "valid": 5, "test": 50}


def test_some_images_are_drawn_from_all_as_files_may_be_sorted_by_label(tmp_path: Path) -> None:
    labels = np.repeat(np.arange(10), 40)
    X = np.arange(400, dtype=np.uint16).view(np.uint8).reshape(400, 1, 2, 1)
    np.savez(tmp_path / "sorted.npz", X=X, labels=labels, X_test=X, labels_test=labels)
    source = Source(data=str(tmp_path / "sorted.npz"))
    some, again = (views.load(source, "images", max_images=100) for _ in range(2))
    assert some.sizes == {"train": 90, "valid": 10, "test": 100}
    np.testing.assert_allclose(views.load(source, "images", max_images=400).test.X, X / 127.5 - 1, atol=1e-7)
    drawn = [set(map(bytes, some.parts[part].X)) for part in ("train", "valid", "test")]
    assert list(map(len, drawn)) == [90, 10, 100]
    assert not drawn[0] & drawn[1]
    for part, rows in some.parts.items():
        np.testing.assert_array_equal(rows.X, again.parts[part].X)
        if part != "valid":
            counts = np.bincount(rows.Y[:, 0], minlength=10)
            assert counts.min() >= 1  # of 9 or 10: a label is missing with a probability of 2e-4
    np.testing.assert_array_equal(
        views.load(source, "images", max_images=400).test.X, views.load(source, "images").test.X
    )


def test_a_table_has_its_schema_and_the_names_of_its_targets(tmp_path: Path) -> None:
    frame = pd.DataFrame({"size": np.arange(20.0), "kind": ["hut", "flat"] * 10, "price": np.arange(20.0) ** 2})
    frame.to_csv(tmp_path / "houses.csv", index=False)
    source, table = Source(data=str(tmp_path / "houses.csv")), TableSpec(target=("price",))
    data = views.load(source, "supervised", table=table, valid_fraction=0)
    assert list(data.parts) == ["train", "test"]
    assert (data.target_names, data.feature_names) == (("price",), ("size", "kind=flat", "kind=hut"))
    assert tables.schema_of(data) is data.schema
    np.testing.assert_array_equal(data.train.Y, data.train.X[:, :1] ** 2)


def test_a_known_set_reads_new_rows_by_the_names_of_its_features() -> None:
    schema = tables.schema_of(views.load(Source(dataset="wine"), "supervised"))
    assert schema.target_names == ("class",)
    assert schema.fills is not None
    assert schema.feature_names[:2] == ("alcohol", "malic_acid")


def test_a_view_that_a_set_lacks_is_refused_with_those_that_have_it() -> None:
    with pytest.raises(ValueError, match="view 'grey' here, as digits, mnist; 'boston' has supervised only"):
        views.load(Source(dataset="boston"), "grey")
    with pytest.raises(ValueError, match=r"must be one of .*reuters_i6.*, got 'bosten'; for own data use --data"):
        views.load(Source(dataset="bosten"), "text")
    with pytest.raises(ValueError, match=r"--data=own.npz cannot be read as 'text'; give --dataset, one of amazon"):
        views.load(Source(data="own.npz"), "text")


def test_flags_that_do_not_go_together_are_refused() -> None:
    with pytest.raises(ValueError, match=r"give --dataset or --data, not both, got 'digits' and 'own.csv'"):
        Source(dataset="digits", data="own.csv")
    known, images = Source(dataset="digits"), Source(data="own.npz")
    pairs: list[tuple[Source, views.View]] = [(known, "supervised"), (known, "binary"), (images, "images")]
    for source, view in pairs:
        for wrong in (TableSpec(target=("price",)), TableSpec(missing="impute"), TableSpec(rare=10)):
            message = f"--{wrong.given()[0]} describes your own table; give it with --data"
            with pytest.raises(ValueError, match=message):
                views.load(source, view, table=wrong)


WITHOUT_TENSORFLOW = """
import importlib.abc, sys

class Blocked(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("tensorflow", "keras", "tf_keras", "gpflow"):
            raise ImportError(f"{name} is imported")

sys.meta_path.insert(0, Blocked())
from gpflow_deep_runs.data import rows, supply, tables, views
from gpflow_deep_runs.data.density import bits
from gpflow_deep_runs.data.streams.convert import convert
from gpflow_deep_runs.data.streams.scan import StreamSpec

path, spec, known = sys.argv[1], tables.TableSpec(target=("price",), missing="impute"), views.Source(dataset="wine")
data = rows.divide(tables.read_table(path, spec))
tables.apply_schema(tables.schema_of(data), path)
views.load(views.Source(data=path), "supervised", table=spec)
bits.read_bits(sys.argv[2])
for view in ("supervised", "binary", "grey", "images"):
    views.load(views.Source(dataset="digits"), view)
supply.load(views.Source(data=path), supply.Division(), StreamSpec(), table=spec, seed=0)
supply.load(known, supply.Division(), StreamSpec(), seed=0)
convert(path, sys.argv[3])
stream = supply.load(views.Source(data=sys.argv[3]), supply.Division(), StreamSpec(stream=True), table=spec, seed=0)
print(sum(stream.stream.counts.values()), *stream.rows.feature_names)
print(data.sizes)
"""


def test_reading_data_does_not_import_tensorflow(tmp_path: Path) -> None:
    frame = pd.DataFrame({"size": [1.5, None] * 100, "kind": ["hut", "flat"] * 100, "price": np.arange(200.0) / 3})
    frame.to_csv(tmp_path / "houses.csv", index=False)
    pd.DataFrame({"a": [0, 1] * 10, "b": [1, 1, 0, 1] * 5}).to_csv(tmp_path / "bits.csv", index=False)
    files = [str(tmp_path / name) for name in ("houses.csv", "bits.csv", "stream")]
    program = [sys.executable, "-c", WITHOUT_TENSORFLOW, *files]
    done = subprocess.run(program, cwd=Path(__file__).parents[3], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "200 size size=missing kind=flat kind=hut\n" in done.stdout
    assert "'train': 162" in done.stdout


@pytest.mark.parametrize("view", ["supervised", "binary"])
@pytest.mark.parametrize(("rows", "count"), [(80, 8), (100, None)])
def test_few_test_rows_are_warned_of(
    view: views.View, rows: int, count: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    monkeypatch.setattr(logging, "warning", lambda text, *values: told.append(text % values))
    bits = np.arange(4 * rows).reshape(rows, 4) // 3 % 2
    pd.DataFrame(bits, columns=list("abcd")).to_csv(tmp_path / "t.csv", index=False)
    table = TableSpec(target=("d",)) if view == "supervised" else TableSpec()
    views.load(Source(data=str(tmp_path / "t.csv")), view, table=table)
    expected = [] if count is None else [f"t has {count} test rows, and scores of so few say little; give more rows"]
    assert [line.split(",", 2)[0] for line in told] == [line.split(",")[0] for line in expected]
