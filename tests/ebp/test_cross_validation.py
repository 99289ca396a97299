"""`ebp.estimators.cross_validation`: which rows, seeds and epochs its numbers are of, against the same networks trained
by hand; and what is said of a posterior, against NumPy."""

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import tensorflow as tf

from ebp import (
    CrossValidation,
    CrossValidationConfig,
    EBPNetwork,
    InputCoding,
    InputCodingWarning,
    PackedNetwork,
    fit_epoch,
)
from ebp.estimators.baselines import tuned_rival
from ebp.estimators.cross_validation import Unit, checked_folds, posterior_scalars, posterior_shapes
from gpflow_deep_base import seeds

Folds = list[tuple[np.ndarray, np.ndarray]]


@pytest.fixture
def data(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, Folds]:
    """Labels by one of five inputs, with noise; two folds that are neither equal nor in order."""
    X = rng.normal(2.0, 3.0, size=(60, 5))
    Y = np.where(X[:, 0] + 2.0 * rng.normal(size=60) > 2.0, 1.0, -1.0)[:, None]
    order = rng.permutation(60)
    return X, Y, [(order[24:], order[:24]), (order[:24], order[24:])]


def _order_seed(seed: int, fold: int) -> int:
    return int(seeds.numpy_rng(seed, f"order/{fold}").integers(2**31))


def _wrong(predicted: np.ndarray, Y: np.ndarray) -> float:
    return 100.0 * sum(p != y for p, y in zip(predicted, Y[:, 0], strict=True)) / len(Y)


def test_errors_are_of_the_test_rows_after_each_epoch(data: Any) -> None:
    """Each number of a run by hand: coding, start, order of rows, evaluation before the next epoch."""
    X, Y, folds = data
    config = CrossValidationConfig(
        weights=("binary", "real"), hidden=(4,), epochs=2, batch_size=3, num_seeds=2, num_votes=3
    )
    validation = CrossValidation(config, X, Y, folds, seed=5)
    scalars: dict[str, float] = {}
    for number, unit in enumerate(validation.units):
        found = validation.run_unit(number)
        assert all(tag.startswith(f"{unit.method}/seed_{unit.seed}_fold_{unit.fold}/") for tag in found)
        scalars |= {f"{unit.epoch}/{tag}": value for tag, value in found.items()}
    results = validation.results()
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
                    stats = fit_epoch(network, X_train, Y[rows], batch_size=3, seed=order, epoch=epoch)
                    expected = {
                        "D": network.predict_deterministic(X_test),
                        "P": network.predict_probabilistic(X_test),
                        "3 votes": network.decide(network.vote(X_test, 3, order)),
                    }
                    for name, predicted in expected.items():
                        percent = _wrong(predicted, Y[test_rows])
                        assert results[f"{kind} {name}"]["errors_percent"][s][f][epoch] == pytest.approx(percent)
                        tag = f"error_{name.removeprefix('3 ').lower()}_percent"
                        assert scalars[f"{epoch}/{kind}/seed_{seed}_fold_{f}/test/{tag}"] == pytest.approx(percent)
                    prefix = f"{epoch}/{kind}/seed_{seed}_fold_{f}/train"
                    assert scalars[f"{prefix}/log_evidence_nats"] == stats.log_evidence
                    assert scalars[f"{prefix}/damped_percent"] == 100 * stats.damped_steps / stats.num_steps
                    train = _wrong(network.predict_probabilistic(X_train), Y[rows])
                    num_train_differs += train != _wrong(expected["P"], Y[test_rows])
    assert num_train_differs > 8  # so errors of the training rows would have been noticed


def test_damped_percent_is_of_all_updates(data: Any) -> None:
    """All rows alike and in one batch: the single update of each epoch is damped."""
    X, Y, folds = data
    X = np.tile([3.0, 1.0, 2.0, -1.0, 1.0], (60, 1))
    config = CrossValidationConfig(hidden=(), epochs=2, batch_size=60, input_coding="raw", dtype="float64")
    validation = CrossValidation(config, X, np.ones_like(Y), folds)
    with pytest.warns(InputCodingWarning, match="nearly a constant"):
        found = validation.run_unit(0)
    assert found["binary/seed_0_fold_0/train/damped_percent"] == 100.0


def test_units_are_in_order() -> None:
    """Seed by seed, fold by fold, the networks before the rivals; rivals with the first seeds only."""
    config = CrossValidationConfig(
        weights=("real", "binary"), methods=("arow", "ebp", "bp_ce"), epochs=2, num_seeds=2, num_rival_seeds=1
    )
    folds = [(np.arange(0, 8), np.arange(8, 10)), (np.arange(2, 10), np.arange(2))]
    validation = CrossValidation(config, np.eye(10), np.resize([-1.0, 1.0], 10), folds, seed=3)
    networks = [[(kind, fold, epoch) for kind in ("real", "binary") for epoch in (0, 1)] for fold in (0, 1)]
    rivals = [[(method, fold, 0) for method in ("arow", "bp_ce")] for fold in (0, 1)]
    expected = [(m, 3, f, e) for f in (0, 1) for m, f, e in [*networks[f], *rivals[f]]]
    expected += [(m, 4, f, e) for f in (0, 1) for m, f, e in networks[f]]
    assert validation.units == [Unit(*unit) for unit in expected]
    with pytest.raises(ValueError, match="units are done in their order, and the next one is 0, got 2"):
        validation.run_unit(2)
    with pytest.raises(ValueError, match="results need all 20 units, and 0 are done; call run"):
        validation.results()


def test_rivals_get_the_coded_rows_of_the_fold(data: Any) -> None:
    X, Y, folds = data
    config = CrossValidationConfig(
        methods=("bp_mse", "arow"), hidden=(3,), epochs=2, batch_size=7, input_coding="scaled"
    )
    results = CrossValidation(config, X, Y, folds, seed=2).run()
    assert list(results) == ["bp_mse", "arow"]
    for method, result in results.items():
        for f, (rows, test_rows) in enumerate(folds):
            coding = InputCoding.fit("scaled", X[rows])
            train, test = ((coding.transform(X[part]), Y[part]) for part in (rows, test_rows))
            tuned = tuned_rival(
                method,
                (5, 3, 1),
                train,
                test,
                epochs=2,
                batch_size=7,
                init_seed=seeds.named_seed(2, f"init/{f}"),
                seed=_order_seed(2, f),
            )
            assert result["errors_percent"][0][f] == list(tuned.test_errors)
            assert result["tuned_values"][0][f] == tuned.value


def test_nothing_is_learned_from_test_rows(data: Any) -> None:
    """Other test rows: the same coding, network and tuned values; other errors."""
    X, Y, folds = data
    config = CrossValidationConfig(methods=("ebp", "arow"), hidden=(3,), epochs=1)
    _, test_rows = folds[0]
    other_X, other_Y = X.copy(), Y.copy()
    other_X[test_rows] = 50.0 - 9.0 * X[test_rows]
    other_Y[test_rows] = -Y[test_rows]
    one, other = (CrossValidation(config, *parts, folds[:1]) for parts in ((X, Y), (other_X, other_Y)))
    results = one.run(), other.run()
    np.testing.assert_array_equal(one.fold(0).X, other.fold(0).X)
    for mine, its in zip(one.network.h, other.network.h, strict=True):
        np.testing.assert_array_equal(mine, its)
    assert results[0]["arow"]["tuned_values"] == results[1]["arow"]["tuned_values"]
    assert results[0]["binary P"]["errors_percent"] != results[1]["binary P"]["errors_percent"]


def test_raw_inputs_are_prepared_by_the_training_rows_of_each_fold(data: Any) -> None:
    """Here missing values; the coding sees what is put in."""
    X, Y, folds = data
    X = np.where(np.arange(300).reshape(60, 5) % 7 == 0, np.nan, X)

    def filled(train: np.ndarray, test: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        mean = np.nanmean(train, axis=0)
        return np.where(np.isnan(train), mean, train), np.where(np.isnan(test), mean, test)

    validation = CrossValidation(CrossValidationConfig(hidden=(4,), epochs=1), X, Y, folds, prepare=filled)
    for number, (rows, test_rows) in enumerate(folds):
        train, test = filled(X[rows], X[test_rows])
        coding, fold = InputCoding.fit("zscore", train), validation.fold(number)
        np.testing.assert_array_equal(fold.X, coding.transform(train))
        np.testing.assert_array_equal(fold.X_test, coding.transform(test))
    assert all(np.isfinite(model["last_percent"]) for model in validation.run().values())


@pytest.mark.parametrize("stop", [1, 3, 4, 8])
def test_a_restored_validation_goes_on_to_the_same_bits(stop: int, data: Any, tmp_path: Path) -> None:
    """Stopped between epochs of either kind of weights, before a rival, and in the last fold."""
    X, Y, folds = data
    config = CrossValidationConfig(weights=("real", "binary"), methods=("ebp", "arow"), hidden=(4,), epochs=2)
    whole, first, second = (CrossValidation(config, X, Y, folds, seed=1) for _ in range(3))
    expected = [whole.run_unit(number) for number in range(len(whole.units))]
    for number in range(stop):
        first.run_unit(number)
    path = tf.train.Checkpoint(**first.state()).save(f"{tmp_path}/state")
    tf.train.Checkpoint(**second.state()).restore(path).assert_consumed()
    assert second.num_done == stop
    assert [second.run_unit(number) for number in range(stop, len(whole.units))] == expected[stop:]
    found = [[replace(result, seconds=0.0) for result in one.found] for one in (second, whole)]
    assert found[0] == found[1]
    assert int(second.network.step) == int(whole.network.step)


def test_classes_and_sparse_inputs(rng: np.random.Generator) -> None:
    """Three classes with sign neurons and with a softmax; sparse inputs stay sparse, and are as dense ones."""
    labels = rng.integers(0, 3, 90)
    X = rng.poisson(0.3, size=(90, 8)) + 2.0 * np.eye(8)[labels]
    Y = 2.0 * np.eye(3)[labels] - 1.0
    folds = [(np.arange(60), np.arange(60, 90))]
    for softmax in (False, True):
        config = CrossValidationConfig(weights=("real",), hidden=(9,), epochs=3, softmax=softmax, dtype="float64")
        sparse = CrossValidation(config, scipy.sparse.coo_matrix(X), Y, folds)
        assert sparse.input_coding == "root"
        assert scipy.sparse.issparse(sparse.fold(0).X)
        results = sparse.run()
        dense = CrossValidation(CrossValidationConfig(**{**vars(config), "input_coding": "root"}), X, Y, folds).run()
        assert results["real P"]["errors_percent"] == dense["real P"]["errors_percent"]
        assert results["real P"]["last_percent"] < 30  # chance is 67
        assert sparse.layer_sizes == (8, 9, 3)
        assert type(sparse.network.architecture.head).__name__ == ("SoftmaxHead" if softmax else "SignHead")


def test_codings_of_known_data_sets(data: Any) -> None:
    X, Y, folds = data
    for dataset, kind in (("amazon_apparel_books", "raw"), ("mnist", "common"), ("mine", "zscore")):
        validation = CrossValidation(CrossValidationConfig(), X, Y, folds, dataset=dataset)
        assert validation.input_coding == validation.fold(1).coding.kind == kind


def test_scalars_and_histograms_of_the_first_seed_and_fold(data: Any) -> None:
    X, Y, folds = data
    validation = CrossValidation(
        CrossValidationConfig(methods=("ebp", "arow"), hidden=(4,), epochs=1, num_seeds=2), X, Y, folds
    )
    assert validation.histograms() == {}
    for number, unit in enumerate(validation.units):
        is_shown = unit == Unit("binary", 0, 0, 0)
        found = validation.run_unit(number)
        assert ("binary/seed_0_fold_0/layer_2/decided_percent" in found) == is_shown
        histograms = validation.histograms()
        tags = [f"binary/seed_0_fold_0/layer_{layer}/h" for layer in (1, 2)] if is_shown else []
        assert list(histograms) == tags
        if is_shown:
            np.testing.assert_array_equal(histograms[tags[0]], validation.network.h[0].numpy().reshape(-1))


def test_what_there_is_to_say_about_a_coding_is_said_once(data: Any) -> None:
    X, Y, folds = data
    X = X + 100.0
    validation = CrossValidation(CrossValidationConfig(hidden=(), epochs=1, input_coding="raw"), X, Y, folds)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        validation.run()
    assert [warning.category for warning in caught] == [InputCodingWarning]


@pytest.mark.filterwarnings("ignore:the file has:UserWarning")
@pytest.mark.parametrize(("coding", "num_votes"), [("zscore", 0), ("sign", 3)])
def test_the_exported_file_has_the_errors_that_are_reported(
    coding: Any, num_votes: int, data: Any, tmp_path: Path
) -> None:
    """The network of the first seed and fold after its last epoch, though others are trained after it."""
    X, Y, folds = data
    config = CrossValidationConfig(
        weights=("binary", "real"), hidden=(5, 4), epochs=2, input_coding=coding, num_votes=num_votes
    )
    validation = CrossValidation(config, X, Y, folds, export=tmp_path / "new" / "net.ebp")
    results = validation.run()
    packed = PackedNetwork.load(tmp_path / "new" / "net.ebp")
    test_rows = folds[0][1]
    predicted = packed.predict(X[test_rows])  # the file holds the coding
    exported = validation.exported
    assert exported is not None
    assert exported.num_votes == num_votes or not num_votes
    assert packed.num_networks == max(1, exported.num_votes)
    wrong = {"file": exported.accuracy, "predict": exported.accuracy_of_predict}
    wrong_percent = {name: 100.0 - 100.0 * right for name, right in wrong.items() if right is not None}
    assert wrong_percent["file"] == pytest.approx(_wrong(predicted, Y[test_rows]))
    assert wrong_percent["predict"] == pytest.approx(results["binary P"]["errors_percent"][0][0][-1])
    output = {0: "binary D", 3: "binary 3 votes"}.get(exported.num_votes)
    if output is not None:
        assert wrong_percent["file"] == pytest.approx(results[output]["errors_percent"][0][0][-1])
    assert exported.num_rows == len(test_rows)
    assert exported.num_bytes == packed.num_bytes
    assert exported.float_bytes == 4 * max(1, exported.num_votes) * (5 * 5 + 5 + 5 * 4 + 4 + 4 + 1)


def test_impossible_exports(data: Any, tmp_path: Path) -> None:
    X, Y, folds = data
    path = tmp_path / "net.ebp"
    for config in (CrossValidationConfig(weights=("real",)), CrossValidationConfig(methods=("arow",))):
        with pytest.raises(
            ValueError, match="export writes a network of binary weights; add binary to weights and ebp"
        ):
            CrossValidation(config, X, Y, folds, export=path)
    with pytest.raises(ValueError, match="packed networks need inputs with exact sums"):
        CrossValidation(CrossValidationConfig(input_coding="raw"), X, Y, folds, export=path)
    with pytest.raises(ValueError, match="export must be a file, got the folder"):
        CrossValidation(CrossValidationConfig(), X, Y, folds, export=tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"weights": ("quaternary",)}, "weights may list real, binary, ternary, each once, got quaternary"),
        ({"weights": ()}, "weights may list .* got nothing"),
        ({"weights": ("real", "real")}, "weights may list .* each once, got real, real"),
        ({"methods": ("ebp", "svm")}, "methods may list ebp, bp_ce, bp_mse, bp_clipped, arow, each once, got svm"),
        ({"hidden": (5, 0)}, "hidden must list positive widths such as 500,500, got 5,0"),
        ({"epochs": 0}, "epochs must be at least 1, got 0"),
        ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
        ({"num_seeds": 0}, "num_seeds must be at least 1, got 0"),
        ({"num_rival_seeds": 0}, "num_rival_seeds must be at least 1, got 0"),
        ({"input_coding": "log"}, "input_coding must be one of auto, raw, .* sign, got 'log'"),
        ({"num_votes": -1}, "num_votes must not be negative, got -1; 0 is for none"),
    ],
)
def test_impossible_configs(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CrossValidationConfig(**fields)


def test_data_that_do_not_fit(data: Any) -> None:
    X, Y, folds = data
    with pytest.raises(ValueError, match="softmax needs more than two classes, got two; leave it out"):
        CrossValidation(CrossValidationConfig(softmax=True), X, Y, folds)
    with pytest.raises(ValueError, match=r"a row for each of 60 targets, got \[59, 5\]"):
        CrossValidation(CrossValidationConfig(), X[1:], Y, folds)
    with pytest.raises(ValueError, match=r"labels must be -1 and \+1, got 0, 1; map 0 to -1 with 2 \* Y - 1"):
        CrossValidation(CrossValidationConfig(), X, (Y + 1) / 2, folds)


def test_folds_that_do_not_fit() -> None:
    good = (range(6), range(6, 9))
    for rows, test_rows in checked_folds(iter([good]), 9):
        np.testing.assert_array_equal(rows, np.arange(6))
        np.testing.assert_array_equal(test_rows, [6, 7, 8])
    for folds, message in (
        ([], "folds must hold at least one pair"),
        ([good, (range(6), [])], "fold 1 must have training and test rows from 0 to 8, got others"),
        ([(range(6), [9])], "fold 0 must have training and test rows from 0 to 8"),
        ([(range(6), [-1])], "fold 0 must have training and test rows from 0 to 8"),
        ([(range(6), [5, 6])], "test rows of fold 0 must not be training rows, and 1 are"),
    ):
        with pytest.raises(ValueError, match=message):
            checked_folds(folds, 9)


def test_posterior(rng: np.random.Generator) -> None:
    """Entropy in nats over all weights; decided: variance below a hundredth of the prior's, 1 for signs."""
    network = EBPNetwork((30, 20, 2), ["binary", "real"], head="multiclass", dtype="float64")
    for h in network.h:
        h.assign(rng.normal(scale=3.0, size=h.shape))
    found = posterior_scalars(network)
    assert list(found) == ["layer_1/entropy_nats", "layer_1/decided_percent", "layer_2/entropy_nats"]
    p = 1 / (1 + np.exp(-2 * network.h[0].numpy()))
    entropy = -np.mean(p * np.log(p) + (1 - p) * np.log1p(-p))
    assert found["layer_1/entropy_nats"] == pytest.approx(entropy, rel=1e-9)
    decided = [4 * q * (1 - q) < 0.01 for q in p.ravel()]
    assert found["layer_1/decided_percent"] == pytest.approx(100 * np.mean(decided), rel=1e-12)
    assert 10 < found["layer_1/decided_percent"] < 90
    assert found["layer_2/entropy_nats"] == pytest.approx(network.entropy()[1], rel=1e-12)


def test_histograms_take_some_of_many_weights(rng: np.random.Generator) -> None:
    network = EBPNetwork((500, 450, 1))
    shapes = posterior_shapes(network)
    assert list(shapes) == ["layer_1/h", "layer_2/h"]
    np.testing.assert_array_equal(shapes["layer_1/h"], network.h[0].numpy().reshape(-1)[::3])  # of 225,000
    np.testing.assert_array_equal(shapes["layer_2/h"], network.h[1].numpy().reshape(-1))
