"""`gpflow_deep.train.estimators`: scikit-learn's checks, and that what they say is what the model says, in the units
of y."""

import inspect
import pickle
import pickletools
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from scipy.stats import norm
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import QuantileTransformer
from sklearn.utils.estimator_checks import parametrize_with_checks

from gpflow_deep import DeepGPClassifier, DeepGPRegressor, ModelConfig, TrainingConfig
from tests.golden.compare import environment
from tests.statistical import assert_mean_close

ROOT = Path(__file__).resolve().parent.parent.parent

pytestmark = pytest.mark.filterwarnings(
    "ignore:after . steps the model is worse"
)  # few steps are enough for most tests

SMALL: dict[str, Any] = {
    "num_layers": 2,
    "num_inducing": 8,
    "kernel": "squared_exponential",
    "model": {"num_predict_samples": 20},
    "max_iter": 3,
}
SHALLOW: dict[str, Any] = {**SMALL, "num_layers": 1, "max_iter": 2}
QUICKEST: dict[str, Any] = {**SHALLOW, "num_inducing": 4, "model": {"num_predict_samples": 4}, "max_iter": 1}
TRAINED: dict[str, Any] = {
    **SMALL,
    "model": {"natgrad": True, "num_predict_samples": 20},
    "max_iter": 100,
    "learning_rate": 0.1,
}


def houses(rng: np.random.Generator, num_rows: int = 60) -> tuple[pd.DataFrame, pd.Series]:
    """Inputs and targets in units of their own."""
    X = pd.DataFrame({"area": 100 + 20 * rng.normal(size=num_rows), "age": 40 * rng.random(num_rows)})
    price = 3000 * X["area"] + 90_000 * np.sin(X["age"] / 6) + 10_000 * rng.normal(size=num_rows)
    return X, price.rename("price")


@pytest.fixture(scope="module")
def data() -> tuple[pd.DataFrame, pd.Series]:
    return houses(np.random.default_rng(5), 90)


@pytest.fixture(scope="module")
def regressor(data: Any) -> DeepGPRegressor:
    """A trained one, with natural gradients for speed; do not change it."""
    return DeepGPRegressor(**TRAINED).fit(*data)


@pytest.fixture(scope="module")
def classifier(data: Any) -> DeepGPClassifier:
    X, y = data
    labels = np.where(y > y.median(), "dear", "cheap")
    return DeepGPClassifier(**{**TRAINED, "num_layers": 1}).fit(X, labels)


# scikit-learn's own checks. Those of quality get more steps than the others.


@pytest.mark.ci
@pytest.mark.slow
@parametrize_with_checks([DeepGPRegressor(**QUICKEST, likelihood="gaussian"), DeepGPClassifier(**QUICKEST)])
def test_scikit_learns_checks(estimator: Any, check: Any, eagerly: None, global_generator: None) -> None:
    if "check_regressors_train" in str(check) or "check_classifiers_train" in str(check):
        tf.config.run_functions_eagerly(False)
        estimator = clone(estimator).set_params(**{**TRAINED, "num_layers": 1, "max_iter": 40})
    check(estimator)


# Numbers.


def test_regression_in_the_units_of_y(regressor: DeepGPRegressor, data: Any) -> None:
    X, y = data
    mean, std = regressor.predict(X, return_std=True)
    assert mean.shape == std.shape == (90,)
    assert 8000 < np.median(std) < 20_000
    assert regressor.score(X, y) > 0.95
    low, middle, high = regressor.predict_quantiles(X).T
    assert 0.85 < np.mean((low <= y) & (y <= high)) <= 1.0
    np.testing.assert_allclose((high - low) / std, 2 * norm.ppf(0.975), rtol=0.05)  # nearly Gaussian
    np.testing.assert_allclose(middle, mean, atol=0.1 * float(np.min(std)))
    np.testing.assert_allclose(regressor.log_density(X, y), norm.logpdf(y, mean, std), atol=0.1)


def test_scaled_targets_shift_the_log_density_by_the_log_of_the_scale(data: Any, eagerly: None) -> None:
    X, y = data
    one, thousand = (DeepGPRegressor(**SHALLOW).fit(X, s * y) for s in (1.0, 1000.0))
    difference = one.log_density(X, y) - thousand.log_density(X, 1000 * y)
    np.testing.assert_allclose(difference, np.log(1000), rtol=1e-6)
    np.testing.assert_allclose(thousand.predict(X), 1000 * one.predict(X), rtol=1e-6)


def test_draws_have_the_predicted_moments_and_are_joint(regressor: DeepGPRegressor, data: Any) -> None:
    """Two equal rows share the function, not the noise: their difference has twice the variance of the noise."""
    X = pd.concat([data[0][:6], data[0][:1]])
    names = [list(inspect.signature(kind.sample_y).parameters) for kind in (DeepGPRegressor, GaussianProcessRegressor)]
    assert names[0] == names[1]
    drawn = regressor.sample_y(X, 2000, random_state=1)
    assert drawn.shape == (7, 2000)
    mean, std = regressor.predict(X, return_std=True)
    assert_mean_close(drawn[0], mean[0], num_se=5, min_detectable=0.15 * std[0])
    np.testing.assert_allclose(drawn.std(axis=1), std, rtol=5 / np.sqrt(2 * 2000) + 0.03)
    noise = regressor.predictor_.model.likelihood.variance.numpy() * regressor.predictor_.units.y.scale[0] ** 2
    np.testing.assert_allclose(np.var(drawn[0] - drawn[6]), 2 * noise, rtol=5 * np.sqrt(2 / 2000) + 0.01)
    np.testing.assert_array_equal(regressor.sample_y(X, 3, random_state=1), regressor.sample_y(X, 3, random_state=1))


def test_too_many_rows_for_joint_draws(regressor: DeepGPRegressor) -> None:
    with pytest.raises(ValueError, match=r"X must have at most \d+ rows for joint draws from this model, got 200000;"):
        regressor.sample_y(pd.DataFrame(np.zeros([200_000, 2]), columns=["area", "age"]))


def test_several_targets(data: Any, eagerly: None) -> None:
    X, y = data
    Y = np.stack([y, -y], axis=1)
    model = DeepGPRegressor(**SMALL).fit(X, Y)
    mean, std = model.predict(X, return_std=True)
    assert mean.shape == std.shape == (90, 2)
    assert model.predict_quantiles(X, [0.1, 0.9]).shape == (90, 2, 2)
    assert np.all(np.diff(model.predict_quantiles(X, [0.1, 0.9]), axis=-1) > 0)
    assert model.sample_y(X[:4], 3).shape == (4, 2, 3)
    assert model.log_density(X, Y).shape == (90,)
    with pytest.raises(ValueError, match=r"y must have columns of shape \(2,\) as in fit, got \(\)"):
        model.log_density(X, y)


@pytest.mark.parametrize("likelihood", ["studentt", "poisson"])
def test_other_likelihoods(likelihood: str, data: Any, eagerly: None) -> None:
    X, y = data
    y = np.round(y / 100_000) if likelihood == "poisson" else y
    model = DeepGPRegressor(**SMALL, likelihood=likelihood).fit(X, y)
    low, high = model.predict_quantiles(X, [0.05, 0.95]).T
    assert np.all(low < high)
    drawn = model.sample_y(X[:5], 20)
    assert np.all(drawn % 1 == 0) == (likelihood == "poisson")
    assert np.all(np.isfinite(model.log_density(X, y)))


def test_classes_by_name(classifier: DeepGPClassifier, data: Any) -> None:
    X, y = data
    labels = np.where(y > y.median(), "dear", "cheap")
    assert list(classifier.classes_) == ["cheap", "dear"]
    p = classifier.predict_proba(X)
    np.testing.assert_allclose(p.sum(axis=1), 1.0, rtol=1e-12)
    np.testing.assert_array_equal(classifier.predict(X), classifier.classes_[p.argmax(axis=1)])
    assert classifier.score(X, labels) > 0.85
    by_hand = np.log(p[np.arange(90), (labels == "dear").astype(int)])
    np.testing.assert_allclose(classifier.log_density(X, labels), by_hand, rtol=1e-6)
    np.testing.assert_allclose(classifier.predict_log_proba(X), np.log(p))
    with pytest.raises(ValueError, match=r"y must have the labels \['cheap', 'dear'\], got 'free', too"):
        classifier.log_density(X, np.full(90, "free"))


def test_three_classes(data: Any, eagerly: None) -> None:
    X, y = data
    labels = np.digitize(y, np.quantile(y, [0.3, 0.7]))
    p = DeepGPClassifier(**SMALL).fit(X, labels).predict_proba(X)
    assert p.shape == (90, 3)
    np.testing.assert_allclose(p.sum(axis=1), 1.0, rtol=1e-12)


# Training.


def test_a_fit_is_a_function_of_the_data_and_the_random_state(data: Any, eagerly: None) -> None:
    settings = {**SMALL, "max_iter": 1}
    means = [DeepGPRegressor(**settings, random_state=s).fit(*data).predict(data[0]) for s in (1, 1, 2)]
    np.testing.assert_array_equal(means[0], means[1])
    assert np.any(means[0] != means[2])


def test_training_stops_when_the_bound_has_settled(data: Any) -> None:
    """With a tolerance that no rise can exceed: after the windows of patience and the fall of the learning rate."""
    training = TrainingConfig(tol=1e6, n_iter_no_change=1)
    model = DeepGPRegressor(**{**SMALL, "max_iter": 10_000}, training=training).fit(*data)
    assert model.n_iter_ == 200 + 200  # half of all
    assert model.bounds_.shape == (4,)
    assert model.validation_scores_.shape == (0,)


def test_early_stopping_and_progress(data: Any, eagerly: None, capsys: pytest.CaptureFixture[str]) -> None:
    model = DeepGPRegressor(**SMALL, early_stopping=0.2, verbose=True).fit(*data)
    assert "held-out log density" in capsys.readouterr().out
    assert model.validation_scores_.shape == (1,)
    assert model.predictor_.model.num_data == 72


def test_worse_than_least_squares_says_so(data: Any, eagerly: None) -> None:
    with pytest.warns(
        ConvergenceWarning,
        match=r"after 1 steps the model is worse than least squares: .* on its training rows\. Raise max_iter",
    ):
        DeepGPRegressor(**{**SMALL, "max_iter": 1}).fit(*data)


def test_streams(data: Any, eagerly: None, capsys: pytest.CaptureFixture[str]) -> None:
    """Every row of a part is in one batch; all rows seen count; from a pickle it goes on as it would have."""
    X, y = data
    model = DeepGPRegressor(**SMALL, batch_size=16, verbose=True).partial_fit(X[:40], y[:40])
    assert (model.n_iter_, model.predictor_.model.num_data) == (3, 40)
    copy = pickle.loads(pickle.dumps(model))
    for each in (model, copy):
        each.partial_fit(X[40:], y[40:])
    assert (copy.n_iter_, float(copy.predictor_.model.num_data or 0)) == (7, 90)
    np.testing.assert_array_equal(copy.predict(X), model.predict(X))
    out = capsys.readouterr().out.splitlines()
    assert [line.split(": bound ")[0] for line in out] == ["40 rows, step 3", "90 rows, step 7", "90 rows, step 7"]


def test_a_stream_after_a_fit_has_the_full_learning_rate(data: Any, eagerly: None) -> None:
    """It had fallen to 0; also in a copy; and a new one counts from the next part on."""
    X, y = data
    model = DeepGPRegressor(**{**SMALL, "max_iter": 2}, learning_rate=0.5).fit(X, y)
    for each in (model, pickle.loads(pickle.dumps(model))):
        before = each.predict(X)
        each.set_params(learning_rate=0.25).partial_fit(X, y)
        assert float(each._trainer.optimizer.learning_rate) == 0.25
        assert (each.n_iter_, float(each.predictor_.model.num_data or 0)) == (3, 180)
        assert np.ptp(each.predict(X) - before) > 0.05 * np.std(y)


def test_rows_without_a_label_are_refused(data: Any) -> None:
    labels = pd.Series(np.where(np.arange(90) < 50, "dear", "cheap"), dtype=object)
    labels[7] = None
    with pytest.raises(ValueError, match="y must have labels of one type, and one in every row"):
        DeepGPClassifier(**SMALL).fit(data[0], labels)


def test_streams_of_labels(data: Any, eagerly: None) -> None:
    X, y = data
    labels = np.where(y > y.median(), "dear", "cheap")
    with pytest.raises(ValueError, match="classes must be given with the first rows"):
        DeepGPClassifier(**SMALL).partial_fit(X, labels)
    model = DeepGPClassifier(**SMALL).partial_fit(X[:1], labels[:1], classes=["cheap", "dear", "free"])
    model.partial_fit(X, labels)
    assert model.predict_proba(X).shape == (90, 3)


def test_learns_from_a_stream(data: Any) -> None:
    X, y = data
    model = DeepGPRegressor(**{**TRAINED, "num_layers": 1, "batch_size": 30})
    for i in range(25):
        model.partial_fit(X[: 90 - i % 3], y[: 90 - i % 3])
        model.partial_fit(X[i % 4 : 20], y[i % 4 : 20])  # parts of several sizes
    assert model.score(X, y) > 0.9
    step: Any = model._trainer._step
    assert step.experimental_get_tracing_count() <= 3


# As a part of scikit-learn.


def test_pickle_has_no_tensors_and_loads_in_a_fresh_process(
    regressor: DeepGPRegressor, data: Any, tmp_path: Path
) -> None:
    content = pickle.dumps(regressor)
    needed = {str(argument).split(" ")[0].split(".")[0] for _, argument, _ in pickletools.genops(content) if argument}
    assert needed.isdisjoint({"tensorflow", "gpflow", "keras", "tensorflow_probability"})
    (tmp_path / "model.pickle").write_bytes(content)
    data[0].to_pickle(tmp_path / "X.pickle")
    program = "import pickle, pandas, numpy; m = pickle.load(open('model.pickle', 'rb'))\n"
    program += "numpy.save('mean', m.predict(pandas.read_pickle('X.pickle')))"
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env=environment(ROOT), check=True)
    np.testing.assert_array_equal(np.load(tmp_path / "mean.npy"), regressor.predict(data[0]))


def test_grid_search_and_pipelines_over_frames(data: Any, eagerly: None) -> None:
    search = GridSearchCV(
        make_pipeline(QuantileTransformer(n_quantiles=20), DeepGPRegressor(**{**SMALL, "max_iter": 1})),
        {"deepgpregressor__num_layers": [1, 2]},
        cv=2,
    ).fit(*data)
    assert search.predict(data[0]).shape == (90,)
    assert search.best_params_["deepgpregressor__num_layers"] in (1, 2)


def test_names_of_features(regressor: DeepGPRegressor, data: Any) -> None:
    X, _ = data
    assert list(regressor.feature_names_in_) == ["area", "age"]
    assert regressor.n_features_in_ == 2
    with pytest.raises(ValueError, match="feature names should match"):
        regressor.predict(X.rename(columns={"age": "years"}))
    for estimator in (clone(regressor), DeepGPClassifier()):
        with pytest.raises(NotFittedError):
            estimator.predict(X)


def test_weights_are_refused(data: Any) -> None:
    X, y = data
    message = r"DeepGPRegressor\.fit takes X and y only, got sample_weight\. Rows cannot be weighted: leave"
    with pytest.raises(TypeError, match=message):
        DeepGPRegressor().fit(X, y, sample_weight=np.ones(90))
    with pytest.raises(TypeError, match=message.replace("fit takes", "partial_fit takes")):
        DeepGPRegressor().partial_fit(X, y, sample_weight=np.ones(90))
    with pytest.raises(
        TypeError, match=r"DeepGPClassifier\.partial_fit takes X, y and classes only, got sample_weight"
    ):
        DeepGPClassifier().partial_fit(X, y > 0, classes=[False, True], sample_weight=np.ones(90))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_layers": 0}, "num_layers must be at least 1, got 0"),
        ({"likelihood": "bernoulli"}, "likelihood must be one of gaussian, studentt, poisson for regression"),
        ({"learning_rate": -1.0}, "learning_rate must be a finite number above 0"),
        ({"model": {"preset": "old"}}, "preset must be one of paper2017, modern, got 'old'"),
        ({"max_iter": 0}, "max_iter must be at least 1, got 0"),
        ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
        ({"max_iter": 1.5}, "max_iter must be a whole number, got 1.5"),
        ({"num_layers": "2"}, "num_layers must be a whole number or 'auto', got '2'"),
        ({"num_layers": 1, "max_iter": 0}, "max_iter must be at least 1, got 0"),
        ({"kernel": "rbf"}, "kernel must be one of squared_exponential, matern52, .* got 'rbf'"),
        ({"model": {"hidden_dim": True}}, "hidden_dim must be a whole number or None, got True"),
        ({"learning_rate": "fast"}, "learning_rate must be a number or None, got 'fast'"),
        ({"model": {"depth": 2}}, "model must have fields of ModelConfig, got depth"),
        ({"model": {"layers": 2}}, "layers of ModelConfig must be a LayerConfig, got 2"),
        ({"model": [2]}, r"model must be a ModelConfig or a Mapping, got \[2\]"),
        ({"training": {"tol": 0.1}}, "training must be a TrainingConfig, got {'tol': 0.1}"),
        ({"sampling": 3}, "sampling must be a SamplingConfig, got 3"),
        ({"early_stopping": 1.0}, r"early_stopping must be a bool or a share of rows below 1, got 1\.0"),
        ({"early_stopping": "yes"}, "early_stopping must be a bool or a share of rows below 1, got 'yes'"),
    ],
    ids=str,
)
def test_wrong_parameters_are_refused(settings: dict[str, Any], message: str, data: Any) -> None:
    for fit in ("fit", "partial_fit"):
        if fit == "fit" or "max_iter" not in settings:
            with pytest.raises((TypeError, ValueError), match=f"^{message}"):
                getattr(DeepGPRegressor(**{**SMALL, **settings}), fit)(*data)


def test_latent_variables(rng: np.random.Generator, eagerly: None) -> None:
    """Draws and modes of the mixture; a pickle predicts as the model does; what does not go together is refused."""
    X = rng.uniform(1, 2, (60, 1))
    y = 50 * rng.choice([-1, 1], 60) + rng.standard_normal(60)
    settings = {**SMALL, "latent_dim": 1, "model": {"num_importance_samples": 3, "num_predict_samples": 20}}
    model = DeepGPRegressor(**settings).fit(X, y)
    assert model.predictor_.model.num_importance_samples == 3
    assert model.sample_y(X[:4], 7).shape == (4, 7)
    modes = model.predict_modes(X[:4])
    assert modes.values.shape == modes.masses.shape == modes.densities.shape
    assert modes.values.shape[0] == 4
    assert np.all(modes.counts >= 1)
    np.testing.assert_allclose(np.nansum(modes.masses, axis=1), 1.0, atol=1e-6)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    np.testing.assert_array_equal(again.log_density(X, y), model.log_density(X, y))
    assert model.partial_fit(X, y).n_iter_ > 3
    with pytest.raises(ValueError, match="latent_dim needs posterior=gaussian, got posterior=global"):
        DeepGPRegressor(**settings, posterior="global").fit(X, y)
    with pytest.raises(TypeError, match=r"latent_dim must be a whole number, got 1\.5"):
        DeepGPRegressor(**{**settings, "latent_dim": 1.5}).fit(X, y)


def test_frames_of_categories_dates_and_gaps_have_labels(data: Any, eagerly: None) -> None:
    """As of `DeepGPRegressor`: levels, dates and gaps become columns of numbers, in a pickle as well."""
    X, y = data
    rng = np.random.default_rng(3)
    frame = X.assign(
        town=pd.Categorical(rng.choice(["Rome", "Oslo"], len(X))),
        sold=pd.Timestamp("2021-01-01") + pd.to_timedelta(rng.integers(0, 300, len(X)), unit="D"),
        age=X["age"].mask(rng.random(len(X)) < 0.2),
    )
    labels = np.where(y > y.median(), "dear", "cheap")
    model = DeepGPClassifier(**QUICKEST).fit(frame, labels)
    p = model.predict_proba(frame[:7])
    assert p.shape == (7, 2)
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict_proba(frame[:7]), p)


def test_parameters_that_people_turn_are_few() -> None:
    for kind in (DeepGPRegressor, DeepGPClassifier):
        assert len(inspect.signature(kind).parameters) <= 15


def test_fields_of_the_model_by_a_mapping_or_a_config(data: Any, eagerly: None) -> None:
    fields = {"hidden_dim": 1, "num_predict_samples": 3, "kernel": "matern52"}
    plain = {name: value for name, value in SHALLOW.items() if name not in ("kernel", "model")}
    for model in (fields, ModelConfig(**fields)):  # type: ignore[arg-type]
        found = DeepGPRegressor(**{**plain, "num_layers": 2}, model=model).fit(*data).predictor_.model
        assert found.layers[0].output_dim == 1
        assert found.num_predict_samples == 3
        assert type(found.layers[1].kernel).__name__ == "Matern52"
