"""ebp.estimators.folds: which rows, seeds and epochs its numbers are of, against the same networks trained by
hand; and means of what was found."""

import math
import statistics
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import tensorflow as tf

from ebp import EBPNetwork, InputCoding, InputCodingWarning, PackedNetwork, fit_epoch
from ebp.estimators.folds import Networks, Result, Training, Unit, mean_and_error, network_results
from gpflow_deep_base import seeds

Folds = list[tuple[np.ndarray, np.ndarray]]
Data = tuple[np.ndarray, np.ndarray, Folds]


@pytest.fixture
def data(rng: np.random.Generator) -> Data:
    """Labels by one of five inputs, with noise; two folds that are neither equal nor in order."""
    X = rng.normal(2.0, 3.0, size=(60, 5))
    labels = (X[:, 0] + 2.0 * rng.normal(size=60) > 2.0).astype(int)
    order = rng.permutation(60)
    return X, labels, [(order[24:], order[:24]), (order[:24], order[24:])]


def training(
    networks: Networks,
    X: Any,
    labels: np.ndarray,
    folds: Folds,
    *,
    seed: int = 0,
    name: str = "mine",
    export: Path | None = None,
) -> Training:
    names = tuple("abc"[: labels.max() + 1])
    export_to = None if export is None else str(export)
    return Training(networks, X, labels, folds, class_names=names, first_seed=seed, dataset=name, export=export_to)


def whole(trained: Training) -> dict[str, dict[str, Any]]:
    """All units, and their means."""
    for number in range(len(trained.units)):
        trained.run_unit(number)
    return network_results(trained.results, trained.networks.num_votes)


def _order_seed(seed: int, fold: int) -> int:
    return int(seeds.numpy_rng(seed, f"order/{fold}").integers(2**31))


def _wrong(predicted: np.ndarray, labels: np.ndarray) -> float:
    return 100.0 * sum((p > 0) != y for p, y in zip(predicted, labels, strict=True)) / len(labels)


def test_errors_are_of_the_test_rows_after_each_epoch(data: Data) -> None:
    """Each number of a run by hand: coding, start, order of rows, evaluation before the next epoch."""
    X, labels, folds = data
    networks = Networks(weights=("binary", "real"), hidden=(4,), epochs=2, batch_size=3, num_seeds=2, num_votes=3)
    trained = training(networks, X, labels, folds, seed=5)
    scalars: dict[str, float] = {}
    for number, unit in enumerate(trained.units):
        found = trained.run_unit(number)
        assert all(tag.startswith(f"{unit.weights}/seed_{unit.seed}_fold_{unit.fold}/") for tag in found)
        scalars |= {f"{unit.epoch}/{tag}": value for tag, value in found.items()}
    results = network_results(trained.results, 3)
    assert list(results) == ["binary D", "binary P", "binary 3 votes", "real D", "real P", "real 3 votes"]
    num_train_differs = 0
    for kind in ("binary", "real"):
        for s, seed in enumerate((5, 6)):
            for f, (rows, test_rows) in enumerate(folds):
                coding = InputCoding.fit("zscore", X[rows])
                X_train, X_test = coding.transform(X[rows]), coding.transform(X[test_rows])
                network = EBPNetwork((5, 4, 1), kind, seed=seeds.named_seed(seed, f"init/{f}"))
                for epoch in range(2):
                    order = _order_seed(seed, f)
                    Y = 2.0 * labels[rows, None] - 1.0
                    stats = fit_epoch(network, X_train, Y, batch_size=3, seed=order, epoch=epoch)
                    expected = {
                        "D": network.predict_deterministic(X_test),
                        "P": network.predict_probabilistic(X_test),
                        "3 votes": network.decide(network.vote(X_test, 3, order)),
                    }
                    for name, predicted in expected.items():
                        percent = _wrong(predicted, labels[test_rows])
                        assert results[f"{kind} {name}"]["errors_percent"][s][f][epoch] == pytest.approx(percent)
                        tag = f"error_{name.removeprefix('3 ').lower()}_percent"
                        assert scalars[f"{epoch}/{kind}/seed_{seed}_fold_{f}/test/{tag}"] == pytest.approx(percent)
                    prefix = f"{epoch}/{kind}/seed_{seed}_fold_{f}/train"
                    assert scalars[f"{prefix}/log_evidence_nats"] == stats.log_evidence
                    assert scalars[f"{prefix}/damped_percent"] == 100 * stats.damped_steps / stats.num_steps
                    train = _wrong(network.predict_probabilistic(X_train), labels[rows])
                    num_train_differs += train != _wrong(expected["P"], labels[test_rows])
    assert num_train_differs > 8  # so errors of the training rows would have been noticed


def test_damped_percent_is_of_all_updates(data: Data) -> None:
    """All rows alike and in one batch: the single update of each epoch is damped."""
    _, labels, folds = data
    X = np.tile([3.0, 1.0, 2.0, -1.0, 1.0], (60, 1))
    labels = np.where(np.arange(60) == folds[0][1][0], 0, 1)  # the training rows are all of one class
    networks = Networks(hidden=(), epochs=2, batch_size=60, input_coding="raw", dtype="float64")
    trained = training(networks, X, labels, folds)
    with pytest.warns(InputCodingWarning, match="nearly a constant"):
        found = trained.run_unit(0)
    assert found["binary/seed_0_fold_0/train/damped_percent"] == 100.0


def test_nothing_is_learned_from_test_rows(data: Data) -> None:
    """Other test rows: the same coding and network; other errors."""
    X, labels, folds = data
    networks = Networks(hidden=(3,), epochs=1)
    _, test_rows = folds[0]
    other_X, other_labels = X.copy(), labels.copy()
    other_X[test_rows] = 50.0 - 9.0 * X[test_rows]
    other_labels[test_rows] = 1 - labels[test_rows]
    one, other = (training(networks, *parts, folds[:1]) for parts in ((X, labels), (other_X, other_labels)))
    results = whole(one), whole(other)
    np.testing.assert_array_equal(one.fold(0).X, other.fold(0).X)
    for mine, its in zip(one.network.h, other.network.h, strict=True):
        np.testing.assert_array_equal(mine, its)
    assert results[0]["binary P"]["errors_percent"] != results[1]["binary P"]["errors_percent"]


@pytest.mark.parametrize("stop", [1, 3, 5])
def test_a_restored_training_goes_on_to_the_same_bits(stop: int, data: Data, tmp_path: Path) -> None:
    """Stopped between epochs of either kind of weights, and in the last fold."""
    networks = Networks(weights=("real", "binary"), hidden=(4,), epochs=2)
    uncut, first, second = (training(networks, *data, seed=1) for _ in range(3))
    expected = [uncut.run_unit(number) for number in range(len(uncut.units))]
    for number in range(stop):
        first.run_unit(number)
    path = tf.train.Checkpoint(**first.state()).save(f"{tmp_path}/state")
    tf.train.Checkpoint(**second.state()).restore(path).assert_consumed()
    assert [second.run_unit(number) for number in range(stop, len(uncut.units))] == expected[stop:]
    found = [[replace(result, seconds=0.0) for result in one.results] for one in (second, uncut)]
    assert found[0] == found[1]
    assert int(second.network.step) == int(uncut.network.step)


def test_classes_and_sparse_inputs(rng: np.random.Generator) -> None:
    """Three classes with sign neurons and with a softmax; sparse inputs stay sparse, and are as dense ones."""
    labels = rng.integers(0, 3, 90)
    X = rng.poisson(0.3, size=(90, 8)) + 2.0 * np.eye(8)[labels]
    folds = [(np.arange(60), np.arange(60, 90))]
    for softmax in (False, True):
        networks = Networks(weights=("real",), hidden=(9,), epochs=3, softmax=softmax, dtype="float64")
        sparse = training(networks, scipy.sparse.csr_matrix(X), labels, folds)
        assert sparse.input_coding == "root"
        assert scipy.sparse.issparse(sparse.fold(0).X)
        results = whole(sparse)
        dense = whole(training(replace(networks, input_coding="root"), X, labels, folds))
        assert results["real P"]["errors_percent"] == dense["real P"]["errors_percent"]
        assert results["real P"]["last_percent"] < 30  # chance is 67
        assert sparse.layer_sizes == (8, 9, 3)
        assert type(sparse.network.architecture.head).__name__ == ("SoftmaxHead" if softmax else "SignHead")


def test_codings_of_known_data_sets(data: Data) -> None:
    for name, kind in (("amazon_apparel_books", "raw"), ("mnist", "common"), ("mine", "zscore")):
        trained = training(Networks(), *data, name=name)
        assert trained.input_coding == trained.fold(1).coding.kind == kind


def test_scalars_and_histograms_of_the_first_seed_and_fold(data: Data) -> None:
    trained = training(Networks(hidden=(4,), epochs=1, num_seeds=2), *data)
    assert trained.histograms() == {}
    for number, unit in enumerate(trained.units):
        is_shown = unit == Unit("binary", 0, 0, 0)
        found = trained.run_unit(number)
        assert ("binary/seed_0_fold_0/layer_2/decided_percent" in found) == is_shown
        histograms = trained.histograms()
        tags = [f"binary/seed_0_fold_0/layer_{layer}/h" for layer in (1, 2)] if is_shown else []
        assert list(histograms) == tags
        if is_shown:
            np.testing.assert_array_equal(histograms[tags[0]], trained.network.h[0].numpy().reshape(-1))


def test_what_there_is_to_say_about_a_coding_is_said_once(data: Data) -> None:
    X, labels, folds = data
    trained = training(Networks(hidden=(), epochs=1, input_coding="raw"), X + 100.0, labels, folds)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        whole(trained)
    assert [warning.category for warning in caught] == [InputCodingWarning]


@pytest.mark.filterwarnings("ignore:the file has:UserWarning")
@pytest.mark.parametrize(("coding", "num_votes"), [("zscore", 0), ("sign", 3)])
def test_the_exported_file_has_the_errors_that_are_reported(
    coding: Any, num_votes: int, data: Data, tmp_path: Path
) -> None:
    """The network of the first seed and fold after its last epoch, though others are trained after it."""
    X, labels, folds = data
    networks = Networks(weights=("binary", "real"), hidden=(5, 4), epochs=2, input_coding=coding, num_votes=num_votes)
    trained = training(networks, X, labels, folds, export=tmp_path / "new" / "net.ebp")
    results = whole(trained)
    packed = PackedNetwork.load(tmp_path / "new" / "net.ebp")
    test_rows = folds[0][1]
    predicted = packed.predict(X[test_rows]) == "b"  # the file holds the coding and the names
    exported = trained.exported
    assert exported is not None
    assert exported.num_votes == num_votes or not num_votes
    assert packed.num_networks == max(1, exported.num_votes)
    wrong = {"file": exported.accuracy, "predict": exported.accuracy_of_predict}
    wrong_percent = {name: 100.0 - 100.0 * right for name, right in wrong.items() if right is not None}
    assert wrong_percent["file"] == pytest.approx(_wrong(predicted, labels[test_rows]))
    assert wrong_percent["predict"] == pytest.approx(results["binary P"]["errors_percent"][0][0][-1])
    output = {0: "binary D", 3: "binary 3 votes"}.get(exported.num_votes)
    if output is not None:
        assert wrong_percent["file"] == pytest.approx(results[output]["errors_percent"][0][0][-1])
    assert exported.num_rows == len(test_rows)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"weights": ("quaternary",)}, "weights may list real, binary, ternary, each once, got quaternary"),
        ({"weights": ()}, "weights may list .* got nothing"),
        ({"weights": ("real", "real")}, "weights may list .* each once, got real, real"),
        ({"hidden": (5, 0)}, "hidden must list positive widths such as 500,500, got 5,0"),
        ({"epochs": 0}, "epochs must be at least 1, got 0"),
        ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
        ({"num_seeds": 0}, "num_seeds must be at least 1, got 0"),
        ({"num_votes": -1}, "num_votes must be at least 0, got -1"),
    ],
)
def test_impossible_networks(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Networks(**fields)


ERRORS = np.array(
    [
        [[20.0, 10.0, 4.0], [30.0, 20.0, 26.0], [40.0, 15.0, 21.0]],
        [[12.0, 20.0, 16.0], [18.0, 12.0, 16.0], [15.0, 31.0, 13.0]],
    ]
)
"""[seeds, folds, epochs]"""


def test_results_of_networks() -> None:
    """In the order in which units are done: seed by seed, fold by fold. Standard errors are over seeds."""
    seconds = np.arange(18.0).reshape(2, 3, 3)
    results = [
        Result(
            "binary",
            seed + 5,
            fold,
            epoch,
            seconds[seed, fold, epoch],
            {name: ERRORS[seed, fold, epoch] + add for add, name in enumerate(("D", "P", "votes"))},
            log_loss_nats=float(epoch * (1 + seed + fold)),
            calibration_error_percent=10.0 * epoch,
        )
        for seed, fold, epoch in np.ndindex(2, 3, 3)
    ]
    found = network_results(results, 7)
    assert list(found) == ["binary D", "binary P", "binary 7 votes"]
    means = [statistics.mean([4, 26, 21]), statistics.mean([16, 16, 13])]
    for offset, (name, result) in enumerate(found.items()):
        extra = {"log_loss_nats": 5.0, "calibration_error_percent": 20.0} if name == "binary P" else {}
        assert result == {
            "last_percent": pytest.approx(statistics.mean(means) + offset, rel=1e-14),
            "last_standard_error": pytest.approx(statistics.stdev(means) / math.sqrt(2), rel=1e-12),
            "errors_percent": (ERRORS + offset).tolist(),
            "seconds_per_epoch": 8.5,
            **extra,
        }


def test_standard_errors_of_one_seed_are_over_folds() -> None:
    mean, error = mean_and_error(ERRORS[:1, :, -1])
    assert mean == pytest.approx(17.0, rel=1e-14)
    assert error == pytest.approx(statistics.stdev([4, 26, 21]) / math.sqrt(3), rel=1e-14)
    assert mean_and_error(ERRORS[:1, :1, -1]) == (4.0, None)
