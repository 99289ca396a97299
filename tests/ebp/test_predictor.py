"""`ebp.Predictor`: raw rows to probabilities, and files that hold no more than numbers."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

import ebp
from ebp.estimators.calibration import Calibration
from ebp.estimators.predictor import Predictor
from gpflow_deep_base.storage.container import load_container, save_container


def trained(
    num_classes: int, rng: np.random.Generator, head: str = "", weights: str = "binary"
) -> tuple[Predictor, Any]:
    X = 3 + 2 * rng.normal(size=(80, 5))
    numbers = np.digitize(X[:, 0], [2.5, 3.5][: num_classes - 1])
    Y, _ = ebp.encode_labels(numbers, np.arange(num_classes))
    coding = ebp.InputCoding.fit("zscore", X)
    head = head or ("binary" if num_classes == 2 else "multiclass")
    network = ebp.EBPNetwork((5, 8, Y.shape[1]), weights, head=head, seed=1)
    ebp.fit(network, coding.transform(X), Y, epochs=2, batch_size=10)
    return Predictor(network, coding, tuple("abc"[:num_classes])), X


@pytest.mark.parametrize(("num_classes", "head"), [(2, ""), (3, ""), (3, "softmax")])
def test_probabilities(num_classes: int, head: str, rng: np.random.Generator) -> None:
    """Those of Eq. (4.7), or of the softmax head; the label is the most probable one."""
    predictor, X = trained(num_classes, rng, head)
    predicted = predictor.predict(X)
    np.testing.assert_allclose(np.exp(predicted.log_p).sum(axis=1), 1, rtol=1e-12)
    np.testing.assert_array_equal(predicted.numbers, predicted.log_p.argmax(axis=1))
    network, coded = predictor.network, predictor.coding.transform(X)
    decided = network.predict_probabilistic(coded)
    np.testing.assert_array_equal(predicted.numbers, (decided > 0) if num_classes == 2 else decided)
    if head == "softmax":
        np.testing.assert_allclose(np.exp(predicted.log_p), network.predict_scores(coded, dtype=np.float64), rtol=1e-9)
    columns = predictor.columns(predicted, predicted.numbers)
    assert list(columns) == ["label", *(f"probability_{name}" for name in "abc"[:num_classes]), "log_density"]
    np.testing.assert_array_equal(columns["log_density"], predicted.log_p.max(axis=1))


@pytest.mark.parametrize("weights", ["binary", "real", "ternary"])
@pytest.mark.parametrize("is_calibrated", [False, True])
def test_what_is_read_predicts_the_same(
    weights: str, is_calibrated: bool, tmp_path: Path, rng: np.random.Generator
) -> None:
    predictor, X = trained(2, rng, weights=weights)
    if is_calibrated:
        predictor = predictor.calibrated(X, X[:, 0] > 3)
        assert predictor.calibration is not None
        assert predictor.calibration.scale != Calibration().scale
    predictor.save(tmp_path / "model.npz")
    again = Predictor.load(tmp_path / "model.npz")
    np.testing.assert_array_equal(again.predict(X).log_p, predictor.predict(X).log_p)
    sparse = scipy.sparse.csr_matrix(X)
    np.testing.assert_array_equal(again.predict(sparse).log_p, predictor.predict(X).log_p)


def test_calibration_needs_the_numbers_of_the_classes(rng: np.random.Generator) -> None:
    predictor, X = trained(2, rng)
    for numbers in (np.ones(3), np.full(80, 2), np.full(80, -1), np.resize(["a", "b"], 80)):
        with pytest.raises(ValueError, match="numbers must be one from 0 to 1 for each of 80 rows"):
            predictor.calibrated(X, numbers)


KIND = "a trained network of EBP"

BAD: list[tuple[dict[str, Any], str]] = [
    ({"layer_sizes": [5, 8, 2]}, "h_2 must be"),
    ({"layer_sizes": [2**40, 2**40, 1]}, "h_1 must be"),
    ({"layer_sizes": [5]}, "at least two positive numbers"),
    ({"layer_sizes": "x"}, "at least two positive numbers"),
    ({"weights": "quaternary"}, "weights must be real, binary or ternary"),
    ({"head": "regression"}, ""),
    ({"head": 3}, ""),
    ({"dtype": "float16"}, "dtype must be"),
    ({"class_names": ["a"]}, "class_names must be 2 different names"),
    ({"class_names": ["a", "a"]}, "class_names must be 2 different names"),
    ({"coding": "log"}, "coding is damaged"),
    ({"calibration": [-1, 0]}, "calibration must be"),
    ({"calibration": [1]}, ""),
]


@pytest.mark.parametrize(("changed", "message"), BAD, ids=str)
def test_files_that_do_not_fit(changed: dict[str, Any], message: str, tmp_path: Path, rng: np.random.Generator) -> None:
    predictor, _ = trained(2, rng)
    predictor.save(tmp_path / "model.npz")
    version, header, arrays = load_container(tmp_path / "model.npz", kind=KIND, versions=(1,))
    save_container(tmp_path / "model.npz", kind=KIND, version=version, header=header | changed, arrays=arrays)
    with pytest.raises(ValueError, match=f"model.npz cannot be read as a trained network .*{re.escape(message)}"):
        Predictor.load(tmp_path / "model.npz")


def test_other_bad_files(tmp_path: Path, rng: np.random.Generator) -> None:
    predictor, _ = trained(2, rng)
    path = tmp_path / "model.npz"
    predictor.save(path)
    path.write_bytes(path.read_bytes()[:200])
    for name in ("model.npz", "none.npz"):
        with pytest.raises(ValueError, match=f"{name} cannot be read as a trained network"):
            Predictor.load(tmp_path / name)


def test_what_cannot_be_saved(tmp_path: Path) -> None:
    network = ebp.EBPNetwork((3, 1), "real", head="regression")
    predictor = Predictor(network, ebp.InputCoding.fit("raw", np.eye(3)), ("a", "b"))
    with pytest.raises(ValueError, match="only networks with real, binary or ternary weights and a head for classes"):
        predictor.save(tmp_path / "model.npz")
    assert not list(tmp_path.iterdir())
