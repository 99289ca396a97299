"""`gpflow_deep.train.predictor`: units of the data, densities of the mixture, and what is saved is what is loaded."""

import json
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pytest
from scipy import stats
from scipy.special import logsumexp

from gpflow_deep import (
    DeepGP,
    ModelConfig,
    Predicted,
    Predictor,
    Scale,
    Units,
    float_type,
)
from gpflow_deep.judge.evaluation import evaluate
from gpflow_deep.train import predictor
from tests.gpflow_deep import oracles
from tests.gpflow_deep.builders import make_data, make_model
from tests.statistical import assert_mean_close


def _units(D: int = 2, P: int = 1) -> Units:
    """Scales that nothing has by accident."""
    return Units(Scale(np.full(D, 3.0), np.full(D, 1.5)), Scale(np.arange(P) - 40.0, 7.0 + np.arange(P)))


def _raw(units: Units, X: np.ndarray, Y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return units.x.inverse_transform(X), units.y.inverse_transform(Y)


def _mixture_log_density(
    units: Units, Y: np.ndarray, means: np.ndarray, variances: np.ndarray, noise: float
) -> np.ndarray:
    """log of the mean over S of N(y_n | mean_sn, var_sn), of components [S, N, P] that are taken to raw units first."""
    means, deviations = means * units.y.scale + units.y.mean, np.sqrt(variances + noise) * units.y.scale
    return logsumexp(stats.norm.logpdf(Y, means, deviations).sum(axis=-1), axis=0) - np.log(len(means))


@pytest.mark.parametrize("P", [1, 2])
def test_one_layer_is_gaussian_in_the_units_of_the_data(P: int, rng: np.random.Generator) -> None:
    """All numbers from NumPy: log density in nats, RMSE and deviations in raw units; two targets add up."""
    model, units = make_model(rng, (2, P)), _units(P=P)
    x, y = make_data(rng, 12, 2, P)
    X, Y = _raw(units, x, y)
    mean, var = oracles.Layer(model.layers[0]).marginals(x)
    mean, std = mean * units.y.scale + units.y.mean, np.sqrt(var + 0.1) * units.y.scale
    expected = stats.norm.logpdf(Y, mean, std).sum(axis=1)
    found: Any = Predictor(model, units, target_names=["a", "b"][:P])
    for predicted in (found.evaluate(X, Y), found.predict(X, Y)):
        np.testing.assert_allclose(predicted.mean, mean, rtol=1e-8)
        np.testing.assert_allclose(predicted.log_density, expected, rtol=1e-8)
    scores = found.score(X, Y)
    assert scores["log_likelihood_nats"] == pytest.approx(np.mean(expected), rel=1e-9)
    assert scores["rmse"] == pytest.approx(np.sqrt(np.mean((Y - mean) ** 2)), rel=1e-9)
    assert found.scores(Y, found.predict(X, Y)) == pytest.approx(scores, rel=1e-8)
    predicted = found.predict(X)
    assert predicted.log_density is None
    np.testing.assert_allclose(predicted.std, std, rtol=1e-7)
    np.testing.assert_allclose(predicted.lower, mean - 1.959963984540054 * std, rtol=1e-7)
    np.testing.assert_allclose(predicted.upper, mean + 1.959963984540054 * std, rtol=1e-7)


def test_a_mixture_over_draws_of_inducing_outputs_is_traced_once(rng: np.random.Generator) -> None:
    """Whatever the number of rows; again only for what is no number: another count of draws, another kernel."""
    x, y = make_data(rng)
    config = ModelConfig(2, 5, num_predict_samples=4, preset="modern", posterior="global", likelihood="gaussian")
    model: Any = config.build(x, y)
    units = _units()
    X, _ = _raw(units, x, y)
    found: Any = Predictor(model, units)
    traces = 0
    build = model.predict_components

    def counted(*arguments: Any, **options: Any) -> Any:
        nonlocal traces
        traces += 1
        return build(*arguments, **options)

    model.predict_components = counted
    for count in (12, 7, 1):
        means, _ = build(x[:count])
        expected = units.y.inverse_transform(np.mean(means, axis=0))
        np.testing.assert_allclose(found.predict(X[:count]).mean, expected, rtol=1e-9)
    assert traces == 1
    # Parameters and the seed of draws are no part of the trace.
    model.layers[0].kernel.lengthscales.assign(0.5 * model.layers[0].kernel.lengthscales)
    model.prediction_seed = 7
    expected = units.y.inverse_transform(np.mean(build(x)[0], axis=0))
    np.testing.assert_allclose(found.predict(X).mean, expected, rtol=1e-9)
    assert traces == 1
    model.layers[0].kernel = gpflow.kernels.Matern52(lengthscales=[1.0, 2.0])
    expected = units.y.inverse_transform(np.mean(build(x)[0], axis=0))
    np.testing.assert_allclose(found.predict(X).mean, expected, rtol=1e-9)
    found.predict(X, num_samples=8)
    assert traces == 3


def test_a_deep_gp_has_the_density_of_its_mixture(rng: np.random.Generator) -> None:
    """Moments, density and quantiles of S = 30 components, each computed in the units of the data."""
    model, units = make_model(rng, num_predict_samples=30), _units()
    x, y = make_data(rng)
    X, Y = _raw(units, x, y)
    means, variances = (np.asarray(part) for part in model.predict_components(x))
    assert means.shape == (30, 12, 1)
    expected = _mixture_log_density(units, Y, means, variances, 0.1)
    assert np.std(means, axis=0).mean() > 0.05  # the components differ, so the mean of their logs would be another
    found: Any = Predictor(model, units)
    np.testing.assert_allclose(found.evaluate(X, Y).log_density, expected, rtol=0, atol=1e-6)
    predicted = found.predict(X, Y)
    np.testing.assert_allclose(predicted.log_density, expected, rtol=0, atol=1e-8)
    raw_means = means * units.y.scale + units.y.mean
    raw_deviations = np.sqrt(variances + 0.1) * units.y.scale
    np.testing.assert_allclose(predicted.mean, raw_means.mean(axis=0), rtol=1e-9)
    second = np.mean(raw_deviations**2 + raw_means**2, axis=0) - raw_means.mean(axis=0) ** 2
    assert predicted.std is not None
    np.testing.assert_allclose(predicted.std**2, second, rtol=1e-6)
    for limit, probability in ((predicted.lower, 0.025), (predicted.upper, 0.975)):
        below = stats.norm.cdf(limit, raw_means, raw_deviations).mean(axis=0)
        np.testing.assert_allclose(below, probability, rtol=0, atol=1e-9)


def test_another_unit_of_the_target_shifts_the_log_density(rng: np.random.Generator) -> None:
    """Targets times 1000: the RMSE is 1000 times as large, and each log density less by log 1000."""
    X, Y = make_data(rng, 40)
    config = ModelConfig(num_inducing=10, likelihood="gaussian", num_predict_samples=20)
    model = config.build(*Units.fit(X, Y, "gaussian").transform(X, Y))
    predictors: Any = [Predictor(model, Units.fit(X, targets, "gaussian")) for targets in (Y, 1000 * Y)]
    plain, scaled = predictors
    a, b = plain.score(X, Y), scaled.score(X, 1000 * Y)
    assert b["rmse"] == pytest.approx(1000 * a["rmse"], rel=1e-12)
    assert b["log_likelihood_nats"] - a["log_likelihood_nats"] == pytest.approx(-np.log(1000.0), abs=1e-11)
    first, second = plain.predict(X, Y), scaled.predict(X, 1000 * Y)
    assert first.log_density is not None
    np.testing.assert_allclose(second.log_density, first.log_density - np.log(1000.0), rtol=0, atol=1e-9)
    for name in ("mean", "std", "lower", "upper"):
        np.testing.assert_allclose(getattr(second, name), 1000 * getattr(first, name), rtol=1e-9)


def test_prediction_in_batches(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows in the right order, and one factorisation of each layer for all of them. One layer needs no draws."""
    model = make_model(rng, (2, 1))
    found: Any = Predictor(model, _units())
    calls: list[int] = []
    X, Y = _raw(_units(), *make_data(rng, 11))
    whole = found.predict(X, Y)
    compute = model.cached_factors
    monkeypatch.setattr(predictor, "BATCH_ROWS", 4)

    def counted(**options: Any) -> Any:
        calls.append(1)
        return compute(**options)

    monkeypatch.setattr(model, "cached_factors", counted)
    parts = found.predict(X, Y)
    assert len(calls) == 1
    for a, b in zip(whole, parts, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


def _classifier(rng: np.random.Generator, likelihood: Any, classes: tuple[str, ...]) -> tuple[Any, Any, Any]:
    X, labels = rng.normal(3.0, 2.0, size=(30, 2)), rng.integers(len(classes), size=(30, 1))
    units = Units.fit(X, labels, likelihood)
    config = ModelConfig(num_layers=1, num_inducing=5, likelihood=likelihood)
    model = config.build(*units.transform(X, labels), num_classes=len(classes))
    last = model.layers[-1]
    last.q_mu.assign(2 * rng.standard_normal(last.q_mu.shape))
    task: Any = "binary" if len(classes) == 2 else "multiclass"
    return Predictor(model, units, task=task, target_names=["kind"], class_names=classes), X, labels


@pytest.mark.parametrize(
    ("likelihood", "classes"),
    [("bernoulli", ("no", "yes")), ("softmax", ("no", "yes")), ("robustmax", ("ape", "bee", "cow"))],
)
def test_labels(likelihood: str, classes: tuple[str, ...], rng: np.random.Generator) -> None:
    """Probabilities of the labels, of which the density is one, and the names of the most probable."""
    found, X, labels = _classifier(rng, likelihood, classes)
    predicted = found.predict(X, labels)
    columns = found.columns(predicted)
    assert list(columns) == ["label", *(f"probability_{name}" for name in classes), "log_density"]
    probabilities = np.stack([columns[f"probability_{name}"] for name in classes], axis=1)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, atol=2e-2 if likelihood == "softmax" else 2e-3)
    assert list(columns["label"]) == [classes[i] for i in probabilities.argmax(axis=1)]
    of_label = probabilities[np.arange(30), labels[:, 0]]
    # Softmax is averaged over draws of its own, and robust-max by quadrature.
    atol = {"softmax": 0.2, "robustmax": 2e-3, "bernoulli": 1e-9}[likelihood]
    np.testing.assert_allclose(columns["log_density"], np.log(of_label), rtol=0, atol=atol)
    scores = found.score(X, labels)
    assert scores["accuracy"] == np.mean(probabilities.argmax(axis=1) == labels[:, 0])
    assert scores["log_likelihood_nats"] == pytest.approx(np.mean(columns["log_density"]), abs=1e-2)
    with pytest.raises(ValueError, match="labels have no interval"):
        _ = predicted.interval


def test_columns_of_a_regression(rng: np.random.Generator) -> None:
    X, _ = _raw(_units(P=2), *make_data(rng, 5, 2, 2))
    found: Any = Predictor(make_model(rng, (2, 2, 2)), _units(P=2), target_names=["a", "b"])
    predicted = found.predict(X)
    columns = found.columns(predicted)
    names = ("mean", "std", "lower", "upper")
    assert list(columns) == [f"{name}_{target}" for target in "ab" for name in names]
    for name in names:
        np.testing.assert_array_equal(columns[f"{name}_b"], getattr(predicted, name)[:, 1])
    assert Predictor(make_model(rng, (2, 2, 2)), _units(P=2)).target_names == ("y0", "y1")
    with pytest.raises(ValueError, match=r"target_names must be one for each of the 2 targets, got \['y'\]"):
        Predictor(make_model(rng, (2, 2, 2)), _units(P=2), target_names=["y"])
    one = Predictor(make_model(rng), _units())
    assert list(one.columns(one.predict(X))) == list(names)


def test_interval_says_what_it_is(rng: np.random.Generator) -> None:
    x, y = make_data(rng)
    X, Y = _raw(_units(), x, y)
    gaussian: Any = Predictor(make_model(rng), _units()).predict(X)
    lower, upper, what = gaussian.interval
    assert what == "95%"
    np.testing.assert_array_equal(lower, gaussian.lower)
    np.testing.assert_array_equal(upper, gaussian.upper)
    other: Any = Predictor(make_model(rng, likelihood=gpflow.likelihoods.StudentT(scale=0.3)), _units()).predict(X, Y)
    assert other.interval[2] == "95%"
    found: Any = Predicted(other.mean, other.std)  # as of a likelihood without a distribution function
    lower, upper, what = found.interval
    assert what == "2 std. dev."
    np.testing.assert_allclose((upper - lower) / 4, other.std, rtol=1e-12)
    np.testing.assert_allclose((upper + lower) / 2, other.mean, rtol=1e-12)


@pytest.mark.parametrize("likelihood", [None, gpflow.likelihoods.StudentT(scale=0.3)], ids=["gaussian", "studentt"])
def test_quantiles_are_those_of_what_is_predicted(likelihood: Any, rng: np.random.Generator) -> None:
    """Of draws of y: the share below a quantile is its level, within 5 standard errors."""
    X, Y = _raw(_units(), *make_data(rng))
    options = {} if likelihood is None else {"likelihood": likelihood}
    known = Predictor(make_model(rng, (2, 1), **options), _units())
    predicted: Any = known.predict(X, Y)
    found = known.quantiles(X, [0.025, 0.2, 0.975])
    assert found.shape == (3, *Y.shape)
    np.testing.assert_allclose(found[0], predicted.lower, rtol=1e-9)
    np.testing.assert_allclose(found[2], predicted.upper, rtol=1e-9)
    forecast: Any = known.forecast(X, Y)
    np.testing.assert_allclose(forecast.predictive.cdf(found[1]), 0.2, atol=1e-9)
    np.testing.assert_allclose(forecast.log_density, predicted.log_density, rtol=1e-9)
    np.testing.assert_allclose(forecast.mean, predicted.mean, rtol=1e-9)
    model, units = known.model, known.units
    means, variances = (np.asarray(m) for m in model.predict_components(units.x.transform(X)))
    draws = 20_000
    some = rng.integers(len(means), size=draws)
    f = means[some] + np.sqrt(variances[some]) * rng.normal(size=(draws, *Y.shape))
    if likelihood is None:
        y = f + np.sqrt(np.asarray(model.likelihood.variance)) * rng.normal(size=f.shape)
    else:
        y = f + 0.3 * rng.standard_t(3.0, size=f.shape)
    share = np.mean(units.y.inverse_transform(y) <= found[1], axis=0)
    np.testing.assert_allclose(share, 0.2, atol=5 * np.sqrt(0.2 * 0.8 / draws))


def test_labels_have_no_quantiles(rng: np.random.Generator) -> None:
    x, y = make_data(rng)
    units = Units(_units().x, Scale.identity(1))
    model = make_model(rng, likelihood=gpflow.likelihoods.Bernoulli())
    known = Predictor(model, units, task="binary", class_names=("no", "yes"))
    X = units.x.inverse_transform(x)
    with pytest.raises(ValueError, match="labels have no quantiles"):
        known.quantiles(X, [0.5])
    forecast = known.forecast(X, (y > 0).astype(np.int64))
    assert forecast.predictive is None


def test_scores_in_the_units_of_the_data(rng: np.random.Generator) -> None:
    """Targets in a unit a thousand times smaller: the mean log density shifts by -log 1000, RMSE and CRPS grow."""
    x, y = make_data(rng)
    model, units = make_model(rng, (2, 1)), _units()
    X, Y = _raw(units, x, y)
    scaled = Units(units.x, Scale(1000 * units.y.mean, 1000 * units.y.scale))
    plain: Any = evaluate(Predictor(model, units), (X, Y))
    large: Any = evaluate(Predictor(model, scaled), (X, 1000 * Y))
    np.testing.assert_allclose(large.log_density.value, plain.log_density.value - np.log(1000), rtol=1e-12)
    np.testing.assert_allclose(large.rmse, 1000 * np.array(plain.rmse), rtol=1e-9)
    np.testing.assert_allclose(large.crps, 1000 * np.array(plain.crps), rtol=1e-9)
    assert large.coverage == plain.coverage


def test_evaluate_follows_the_parameters(rng: np.random.Generator) -> None:
    """It is compiled once and used between steps of training."""
    model, units = make_model(rng, (2, 1)), _units()
    X, Y = _raw(units, *make_data(rng))
    found: Any = Predictor(model, units)
    before = found.evaluate(X, Y).mean
    model.layers[0].q_mu.assign_add(np.ones([6, 1]))
    after = found.evaluate(X, Y).mean
    mean, _ = oracles.Layer(model.layers[0]).marginals(units.x.transform(X))
    np.testing.assert_allclose(after, mean * 7.0 - 40.0, rtol=1e-8)
    assert np.max(np.abs(after - before)) > 0.1


def _assert_same_predictions(a: Any, b: Any, X: np.ndarray, Y: np.ndarray) -> None:
    for left, right in zip(a.predict(X, Y), b.predict(X, Y), strict=True):
        np.testing.assert_array_equal(left, right)
    assert a.score(X, Y) == b.score(X, Y)


def test_saved_and_loaded(rng: np.random.Generator, tmp_path: Path) -> None:
    X, Y = _raw(_units(P=2), *make_data(rng, 12, 2, 2))
    schema = {"columns": [{"name": "x0", "levels": None}]}
    saved = Predictor(make_model(rng, (2, 2, 2)), _units(P=2), target_names=["a", "b"], schema=schema)
    saved.save(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["inputs.json", "model.npz"]
    assert Predictor.stored_float(tmp_path) == "float64"
    loaded = Predictor.load(tmp_path)
    _assert_same_predictions(saved, loaded, X, Y)
    assert (loaded.task, loaded.target_names, loaded.class_names) == ("regression", ("a", "b"), ())
    assert loaded.schema["columns"] == schema["columns"]
    labels, X, Y = _classifier(rng, "softmax", ("no", "yes"))
    labels.save(tmp_path)
    loaded = Predictor.load(tmp_path)
    assert (loaded.task, loaded.target_names, loaded.class_names) == ("binary", ("kind",), ("no", "yes"))
    _assert_same_predictions(labels, loaded, X, Y)


def test_float32(rng: np.random.Generator, tmp_path: Path) -> None:
    X, Y = make_data(rng, 20)
    with float_type("float32"):
        units = Units.fit(X, Y, "gaussian")
        model = ModelConfig(num_inducing=4, likelihood="gaussian").build(*units.transform(X, Y))
        saved = Predictor(model, units)
        assert saved.evaluate(X, Y).mean.dtype == np.float64
        saved.save(tmp_path)
    assert gpflow.default_float() is np.float64
    assert Predictor.stored_float(tmp_path) == "float32"
    with pytest.raises(ValueError, match="float32 model, but GPflow's default is float64"):
        Predictor.load(tmp_path)
    with float_type(Predictor.stored_float(tmp_path)):
        _assert_same_predictions(saved, Predictor.load(tmp_path), X, Y)


def test_damaged_folders(rng: np.random.Generator, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"must be the folder of a trained deep GP, but has no inputs\.json"):
        Predictor.load(tmp_path)
    found: Any = Predictor(make_model(rng), _units())
    found.save(tmp_path)
    inputs = tmp_path / "inputs.json"
    stored = json.loads(inputs.read_text())
    inputs.write_text("{")
    with pytest.raises(ValueError, match=r"inputs\.json is damaged"):
        Predictor.load(tmp_path)
    inputs.write_text(json.dumps({**stored, "schema": {}}))
    with pytest.raises(ValueError, match=r"inputs\.json is damaged \(KeyError\('task'\)\)"):
        Predictor.load(tmp_path)
    inputs.write_text(json.dumps({**stored, "schema": {**stored["schema"], "task": "ranking"}}))
    with pytest.raises(ValueError, match=r"inputs\.json is damaged .*it has the task 'ranking'"):
        Predictor.load(tmp_path)
    inputs.write_text(json.dumps({**stored, "x_scale": Scale.identity(3).to_json()}))
    with pytest.raises(ValueError, match=r"must have equally many inputs, got 2 and 3: .*take both from one run"):
        Predictor.load(tmp_path)
    inputs.write_text(json.dumps(stored))
    (tmp_path / "model.npz").unlink()
    with pytest.raises(ValueError, match=r"has no model\.npz: no checkpoint was reached yet"):
        Predictor.load(tmp_path)


def test_failures_are_clear(rng: np.random.Generator) -> None:
    model: DeepGP = make_model(rng)
    found: Any = Predictor(model, _units())
    X, Y = _raw(_units(), *make_data(rng))
    with pytest.raises(ValueError, match="scores need log densities, got predictions without targets"):
        found.scores(Y, Predicted(Y))
    model.layers[0].inducing_variable.Z.unconstrained_variable.assign(np.full([6, 2], np.nan))
    for function in (found.evaluate, found.predict):
        with pytest.raises(FloatingPointError, match=r"^prediction failed: Cholesky factorisation failed in layer 1"):
            function(X, Y)


def test_draws_of_targets(rng: np.random.Generator) -> None:
    """Their moments are those of `predict`, in the units of the data; joint over rows; a function of the number."""
    units = _units()
    found, (X, Y) = Predictor(make_model(rng), units), _raw(units, *make_data(rng, 4))
    drawn, predicted = found.sample_y(X, 2000, rng=3), found.predict(X)
    assert drawn.shape == (2000, *Y.shape)
    assert predicted.std is not None
    assert_mean_close(drawn, predicted.mean, min_detectable=0.2 * predicted.std)
    assert_mean_close(np.square(drawn - predicted.mean), np.square(predicted.std), min_detectable=predicted.std**2)
    np.testing.assert_array_equal(found.sample_y(X, 3, rng=3), found.sample_y(X, 3, rng=np.random.RandomState(3)))
    first, second = (found.sample_y(X, 3, rng=np.random.default_rng(4)) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    same_row = found.sample_y(np.repeat(X[:1], 2, axis=0), 500)
    assert np.corrcoef(same_row[:, :, 0].T)[0, 1] > 0.2  # of one function
    labels, X, _ = _classifier(rng, "softmax", ("no", "yes"))
    with pytest.raises(ValueError, match="labels have no quantiles"):
        labels.sample_y(X, 2)


def test_modes_are_in_the_units_of_the_data(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    units = _units()
    found, (X, _) = Predictor(make_model(rng), units), _raw(units, *make_data(rng, 5))
    whole = found.modes(X)
    monkeypatch.setattr(predictor, "BATCH_ROWS", 2)
    for part, expected in zip(found.modes(X), whole, strict=True):
        np.testing.assert_allclose(part, expected, rtol=1e-6)
    std = found.predict(X).std
    assert std is not None
    middle = found.quantiles(X, [0.5])[0]
    assert np.all(np.abs(whole.values[..., 0] - middle) < 2 * std)
    assert whole.densities.shape == whole.values.shape
