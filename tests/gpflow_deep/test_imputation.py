"""`gpflow_deep.train.choosing.imputation`: draws of the inner outputs, and the model that is made from them."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import logsumexp
from scipy.stats import multivariate_normal, norm

from gpflow_deep import DeepGPClassifier, DeepGPRegressor, ModelConfig, TrainingConfig, load_model, report, save_model
from gpflow_deep.train.choosing import imputation, selection, single_layer
from gpflow_deep.train.choosing.choice import FREE
from gpflow_deep.train.choosing.imputation import INNER, Imputed, impute
from gpflow_deep.train.choosing.single_layer import SingleLayer

Array = NDArray[np.float64]


def steps(count: int) -> tuple[Array, Array]:
    """A jump that no stationary kernel fits."""
    X = (np.arange(count)[:, None] + 0.5) / count
    return X, np.where(X[:, 0] > 0.5, 1.0, -1.0)


@pytest.fixture(scope="module")
def drawn() -> tuple[Imputed, Array, Array]:
    """Draws of few rows of two inputs and two targets."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.5, 1.5, (14, 2))
    Y = np.stack([np.tanh(4 * X[:, 0]), np.sin(2 * X[:, 1])], axis=1)
    single = SingleLayer(INNER, np.log([1.0, 1.0, 1.0, 1e-6]), None, 0.0, 0)
    return impute(single, INNER, X, Y, seed=0), X, Y


def test_inner_outputs_have_the_posterior_of_given_parameters() -> None:
    """Beside draws of the prior, weighted by the likelihood: means within five standard errors of both."""
    rng = np.random.default_rng(1)
    X = np.array([[-1.0], [-0.2], [0.9]])
    Y = np.array([[-1.0], [0.4], [0.8]])
    single = SingleLayer(INNER, np.log([1.0, 1.0, 0.1]), None, 0.0, 0)
    chain = imputation._Chains(single, INNER, X, Y, 0, 1)
    chain.outer[-1] = np.log(0.1)
    root = imputation._root(INNER, chain.inner, X)
    kept = []
    for _ in range(6000):
        chain._draw(root, chain.F[0])
        kept.append(chain.F[0, :, 0].copy())
    blocks = np.array(kept).reshape(30, 200, 3).mean(axis=1)  # far longer than the chain remembers
    # By importance sampling.
    prior = (root @ rng.standard_normal((3, 20_000))).T
    logs = np.empty(len(prior))
    for number, F in enumerate(prior):
        K = imputation._covariance(INNER, chain.outer, X + F[:, None], X + F[:, None]) + 0.1 * np.eye(3)
        logs[number] = multivariate_normal.logpdf(Y[:, 0], np.zeros(3), K)
    weights = np.exp(logs - logsumexp(logs))
    mean = weights @ prior
    error = np.sqrt(np.square(weights) @ np.square(prior - mean) + blocks.var(axis=0, ddof=1) / len(blocks))
    assert np.all(np.abs(mean) + np.abs(blocks.mean(axis=0)) > 0)
    assert np.all(np.abs(blocks.mean(axis=0) - mean) < 5 * error)
    assert np.max(5 * error) < 0.15  # a third of the prior's standard deviation would be seen


def test_the_same_seed_gives_the_same_draws(drawn: tuple[Imputed, Array, Array]) -> None:
    imputed, X, Y = drawn
    single = SingleLayer(INNER, np.log([1.0, 1.0, 1.0, 1e-6]), None, 0.0, 0)
    np.testing.assert_array_equal(impute(single, INNER, X, Y, seed=0).draws, imputed.draws)
    assert np.any(impute(single, INNER, X, Y, seed=1).draws != imputed.draws)


def test_rows_are_met(drawn: tuple[Imputed, Array, Array]) -> None:
    imputed, X, Y = drawn
    means, variances = imputed.predict(X, Y, X, seed=0)
    assert np.max(np.abs(means.mean(axis=0) - Y)) < 0.02
    assert np.all(variances > 0)
    assert np.sqrt(means.var(axis=0).max() + variances.max()) < 0.05


def test_the_model_predicts_what_the_draws_do(drawn: tuple[Imputed, Array, Array]) -> None:
    """Means and standard deviations of mixtures; those by NumPy are of 144 components, those of the model of 256."""
    imputed, X, Y = drawn
    config = ModelConfig(preset="modern", posterior="imputed", num_predict_samples=256)
    model = selection.build_imputed(imputed, X, Y, config)
    assert model.is_sampled
    assert model.num_members == len(imputed.draws)
    X_new = np.random.default_rng(2).uniform(-1.5, 1.5, (40, 2))
    means, variances = imputed.predict(X, Y, X_new, seed=0)
    mean, variance = (np.asarray(part) for part in model.predict_f(X_new))
    spread = np.sqrt(means.var(axis=0) + variances.mean(axis=0)[:, None])
    # Components of one W are not independent: the standard error is at most that of as many as there are W.
    error = np.sqrt(means.var(axis=0) / len(imputed.draws))
    assert np.all(np.abs(mean - means.mean(axis=0)) < 2 * error + 0.005)
    np.testing.assert_allclose(np.sqrt(variance), spread, rtol=0.5, atol=0.005)
    assert np.median(np.abs(np.sqrt(variance) / spread - 1)) < 0.1


def test_functions_of_the_model_have_its_mean_and_go_through_the_rows(drawn: tuple[Imputed, Array, Array]) -> None:
    imputed, X, Y = drawn
    model = selection.build_imputed(imputed, X, Y, ModelConfig(preset="modern", posterior="imputed"))
    functions = model.sample_functions(64, seed=0)
    assert np.max(np.abs(functions(X) - Y)) < 0.05
    X_new = np.random.default_rng(3).uniform(-1.5, 1.5, (20, 2))
    drawn_values = np.asarray(functions(X_new))
    mean, variance = (np.asarray(part) for part in model.predict_f(X_new))
    # Four functions of each W: five standard errors of 64 draws, with features in place of the kernel.
    assert np.all(np.abs(drawn_values.mean(axis=0) - mean) < 5 * np.sqrt(variance / 64) + 0.02)


def test_a_saved_model_predicts_the_same(drawn: tuple[Imputed, Array, Array], tmp_path: Path) -> None:
    imputed, X, Y = drawn
    model = selection.build_imputed(imputed, X, Y, ModelConfig(preset="modern", posterior="imputed"))
    save_model(model, tmp_path / "model.npz")
    loaded = load_model(tmp_path / "model.npz")
    for one, other in zip(model.predict_y(X + 0.1), loaded.predict_y(X + 0.1), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_jump_takes_two_layers_by_default() -> None:
    """Twenty rows of a step: the CRPS is less than half of a plain GP's, within seconds."""
    X, y = steps(20)
    model = DeepGPRegressor().fit(X, y)
    assert model.choice_ is not None
    assert model.choice_.config.posterior == "imputed"
    assert "its log" in model.choice_.candidates[-2].note
    single = DeepGPRegressor(1, likelihood="gaussian").fit(X, y)
    X_new = np.linspace(0, 1, 101)[:, None]
    y_new = np.where(X_new[:, 0] > 0.5, 1.0, -1.0)
    scores = []
    for each in (model, single):
        mean, std = each.predict(X_new, return_std=True)
        u = (y_new - mean) / std
        scores.append(np.mean(std * (u * (2 * norm.cdf(u) - 1) + 2 * norm.pdf(u) - 1 / np.sqrt(np.pi))))
    assert scores[0] < 0.5 * scores[1]


def test_what_few_rows_cannot_tell_stays_one_layer(rng: np.random.Generator) -> None:
    """Two layers are taken if the CRPS is clearly smaller by a factor, and in the mean not clearly larger."""
    X, Y = rng.normal(size=(20, 2)), rng.normal(size=(20, 1))
    course = selection._Course(TrainingConfig(), 10, 10, 0.0, 0)
    search: Any = selection._Search(ModelConfig(preset="modern"), FREE, X, Y, course, None, show_steps=False)
    single = single_layer.search_exact(search.x, search.y, ("squared_exponential",))
    folds = [(np.arange(10), np.arange(10, 20))]
    crps = {"all": np.linspace(0.4, 0.6, 10), "half": np.tile([0.9, 1.1], 5), "one": np.append(np.full(9, 0.2), 5.0)}
    crps["far"] = np.append(np.full(9, 0.2), 50.0) + np.tile([0.0, 8.0], 5)
    taken = {}
    for name, values in crps.items():
        search._held_out = lambda *_: (None, selection.Scores(np.zeros(10), np.full(10, -1.0)))
        search._scores_of = lambda *_, values=values: selection.Scores(-values, -values)
        taken[name] = search._try_imputed(single, folds) is not None
    assert taken == {"all": True, "half": False, "one": True, "far": False}
    # Equal targets are met exactly by what has no noise: alone they tell nothing.
    search.Y[10:16] = 0.0
    for name, others in {"worse": 1.1, "better": 0.5}.items():
        values = np.append(np.full(6, 1e-4), others + np.linspace(0, 0.1, 4))
        search._scores_of = lambda *_, values=values: selection.Scores(-values, -values)
        taken[name] = search._try_imputed(single, folds) is not None
    assert (taken["worse"], taken["better"]) == (False, True)


def test_imputed_by_name(rng: np.random.Generator) -> None:
    """Without a comparison."""
    X, y = rng.uniform(size=(12, 1)), rng.normal(size=12)
    model = DeepGPRegressor(posterior="imputed").fit(X, y)
    assert model.predictor_.model.is_sampled
    assert model.choice_ is not None
    assert [row.name.startswith("2 layers") for row in model.choice_.candidates] == [False, False]
    assert np.max(np.abs(model.predict(X) - y)) < 0.1
    assert "fitted by draws of its inner outputs" in report.html(model, X, y)


@pytest.mark.parametrize("settings", [{}, {"num_layers": 3}, {"num_inducing": 20}, {"likelihood": "studentt"}])
def test_where_inner_outputs_cannot_be_drawn(settings: dict[str, Any], rng: np.random.Generator) -> None:
    count = 60 if settings else 301
    X, y = rng.normal(size=(count, 1)), rng.normal(size=count)
    with pytest.raises(ValueError, match=f"posterior=imputed takes two layers.*got {count} rows of 1 inputs.*gaussian"):
        DeepGPRegressor(posterior="imputed", **settings).fit(X, y)


def test_imputed_takes_no_labels(rng: np.random.Generator) -> None:
    X = rng.normal(size=(20, 1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ValueError, match="posterior=imputed takes rows of numbers in float64"):
            DeepGPClassifier(posterior="imputed").fit(X, X[:, 0] > 0)
