"""`gpflow_deep.posteriors.sampling` and `gpflow_deep.posteriors.ensemble`: the chain finds the posterior, and the
model predicts from it."""

import dataclasses
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.likelihoods import Gaussian

from gpflow_deep import (
    BayesianLinearLayer,
    DeepGP,
    DeepGPRegressor,
    GaussHermite,
    Patches,
    Sampler,
    SamplingConfig,
    Sobol,
    SVGPLayer,
    Trainer,
    WeightedConvolutionalLayer,
    load_model,
    save_model,
)
from gpflow_deep.posteriors.ensemble import InducingSamples
from gpflow_deep.posteriors.noise_search import NoiseSearch
from gpflow_deep.posteriors.sampling import _stream
from gpflow_deep.train.presets import with_sigma_points
from gpflow_deep.train.sampled_training import SampledTrainer, trainer_for
from gpflow_deep.train.training import TrainingConfig
from tests.gpflow_deep.builders import COVARIANCE_SHAPES, make_layer

N, M = 20, 4
SLOW = [pytest.mark.slow, pytest.mark.ci]


def two_layers(rng: np.random.Generator, **options: Any) -> DeepGP:
    layers = [make_layer(rng, 2, 2, M, noise_variance=0.01), make_layer(rng, 2, 1, M)]
    return DeepGP(layers, Gaussian(0.1), num_data=N, num_predict_samples=6, **options)


def sampled(rng: np.random.Generator, K: int = 3, **options: Any) -> DeepGP:
    """A model with random numbers in place of samples."""
    model = two_layers(rng, **options)
    model.samples = InducingSamples(K, model.layers)
    for _ in range(K):
        model.samples.keep([tf.constant(rng.standard_normal(v.shape[1:])) for v in model.samples.values])
    return model


def test_one_layer_against_the_exact_posterior(rng: np.random.Generator) -> None:
    """With a Gaussian likelihood the posterior of v is N(S A y / s2, S), S^-1 = I + A A' / s2, A = L^-1 k(Z, X).

    40 independent targets are 40 chains, of which 20 samples each are kept, 40 steps apart: 800 draws that are nearly
    independent. The chains start from another Gaussian; h = 0.3 adds about h^2 / 4 to the variances.
    """
    X, noise, L, K = rng.uniform(-2, 2, (N, 1)), 0.1, 40, 20
    Y = np.sin(2 * X) + np.sqrt(noise) * rng.standard_normal((N, L))
    layer = SVGPLayer(gpflow.kernels.SquaredExponential(), np.linspace(-2, 2, M)[:, None], num_latent_gps=L)
    model = DeepGP([layer], Gaussian(noise), num_data=N)
    A = np.linalg.solve(layer.factors().Luu.numpy(), layer.kernel(layer.inducing_variable.Z, X).numpy())
    S = np.linalg.inv(np.eye(M) + A @ A.T / noise)
    mean, root = S @ A @ Y / noise, np.linalg.cholesky(S)
    layer.q_mu.assign(mean + root @ np.ones((M, L)))
    layer.q_sqrt.assign(0.8 * np.tile(root, [L, 1, 1]))
    config = SamplingConfig(num_kept=K, burn_in=200, sampling_steps=40 * K, temperature=1.0, friction=0.4)
    sampler = Sampler(model, X, Y, config)
    sampler.advance(0, sampler.num_steps)
    assert model.samples is not None
    w = np.linalg.solve(root, model.samples.values[0].numpy() - mean)  # standard normal, [K, M, L]
    w = np.swapaxes(w, 0, 1).reshape(M, -1)
    assert np.all(np.abs(w.mean(axis=1)) < 5 / np.sqrt(K * L))
    assert np.all(np.abs(np.cov(w) - np.eye(M)) < 5 * np.sqrt(2 / (K * L)) + 0.05)
    trust = sampler.trust()
    assert trust["layer 1 of 1"].effective > K / 2
    assert abs(trust["functions"].r_hat - 1) < 0.1
    for found, right in zip(model.predict_f(X), exact_moments(X, layer, mean, S), strict=True):
        assert np.mean(np.abs(found - right)) < 0.4 * np.mean(np.abs(right))  # of 20 samples for each target


def exact_moments(X: np.ndarray, layer: SVGPLayer, mean: np.ndarray, S: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of f at X: A' mean, and k(x, x) - A'A + A' S A for each target."""
    A = np.linalg.solve(layer.factors().Luu.numpy(), layer.kernel(layer.inducing_variable.Z, X).numpy())
    variance = 1.0 - np.sum(A * A, axis=0) + np.einsum("mn,mk,kn->n", A, S, A)
    return A.T @ mean, np.repeat(variance[:, None], mean.shape[1], axis=1)


@pytest.mark.parametrize("integrator", [Sobol(), GaussHermite(3)])
def test_predictions_are_mixtures_over_samples(integrator: Any, rng: np.random.Generator) -> None:
    """Component s of the mixture is that of a model with the s K / S-th sample as its inducing outputs."""
    model = sampled(rng, predict_integrator=integrator)
    samples: Any = model.samples
    X = rng.standard_normal((7, 2))
    means, variances = model.predict_components(X)
    S = len(means)
    assert (3 * 9 if isinstance(integrator, GaussHermite) else 6) == S
    noise = integrator.noise([2], S, 7, tf.constant([0, 0], tf.int32), tf.float64)[0]
    noise = tf.tile(noise, [3, 1, 1]) if isinstance(integrator, GaussHermite) else noise
    weights = model.component_weights().numpy()
    np.testing.assert_allclose(weights.sum(), 1.0, rtol=1e-12)
    for k in range(3):
        for layer, values in zip(model.layers, samples.values, strict=True):
            layer.q_mu.assign(values[k])
            layer.q_sqrt.assign(1e-9 * np.eye(M)[None].repeat(layer.num_latent_gps, axis=0))
        own = slice(k * S // 3, (k + 1) * S // 3)
        steps = model.propagate(X, [noise[own]])
        np.testing.assert_allclose(means[own], steps.means[-1], rtol=1e-6, atol=1e-8)  # cond(Kuu) times rounding
        np.testing.assert_allclose(variances[own], steps.covs[-1], rtol=1e-6, atol=1e-8)
    mean, variance = model.predict_f(X)
    np.testing.assert_allclose(mean, np.tensordot(weights, means, 1), rtol=1e-10)
    second = np.tensordot(weights, variances + np.square(means), 1)
    np.testing.assert_allclose(variance, second - np.square(mean), rtol=1e-8, atol=1e-10)


def test_all_predictions_of_samples(rng: np.random.Generator, tmp_path: Path) -> None:
    """Shapes, a posterior's cache in either float type, and a file; draws of any number."""
    model, X, Y = sampled(rng), rng.standard_normal((5, 2)), rng.standard_normal((5, 1))
    assert model.is_sampled
    for full_cov, full_output_cov in COVARIANCE_SHAPES:
        mean, cov = model.predict_f(X, full_cov=full_cov, full_output_cov=full_output_cov)
        assert (mean.shape[0], cov.shape.rank) == (5, 2 + full_cov + full_output_cov)
    expected = model.predict_y(X)
    for options, tolerance in (({}, 1e-12), ({"dtype": tf.float32}, 1e-3)):
        for found, right in zip(model.posterior(**options).predict_y(X), expected, strict=True):
            np.testing.assert_allclose(found, right, rtol=tolerance, atol=tolerance)
    np.testing.assert_array_equal(model.posterior("variable").predict_log_density((X, Y)).shape, [5])
    for S in (2, 3, 7):
        assert model.predict_f_samples(X, S, seed=1).shape == model.predict_f_samples(X, S, False, seed=1).shape
        assert model.predict_all_layers(X, S).means[0].shape == (S, 5, 2)
    save_model(model, tmp_path / "model.npz")
    loaded = load_model(tmp_path / "model.npz")
    for found, right in zip(loaded.predict_y(X), expected, strict=True):
        np.testing.assert_array_equal(found, right)
    functions = (m.sample_functions(4, seed=3)(X) for m in (model, loaded))
    np.testing.assert_array_equal(*functions)


def test_functions_go_through_the_samples(rng: np.random.Generator) -> None:
    """At the inducing inputs of a single layer a function has the values of its sample, L v, up to the jitter; all of
    them are as likely, and together they are spread evenly."""
    layer = make_layer(rng, 1, 1, M)
    model = DeepGP([layer], Gaussian(0.1), num_data=N)
    samples = model.samples = InducingSamples(2, model.layers)
    for _ in range(2):
        samples.keep([tf.constant(rng.standard_normal((M, 1)))])
    Z, at_Z = layer.inducing_variable.Z, (layer.factors().Luu @ samples.values[0]).numpy()  # [2, M, 1]
    firsts = set[int]()
    for seed in range(12):
        found = model.sample_functions(1, seed=seed)(Z), model.predict_f_samples(Z, 1, seed=seed)
        for values in (*found, model.posterior().predict_f_samples(Z, seed=seed)[None]):
            which = int(np.argmin(np.abs(values - at_Z).max(axis=(1, 2))))
            np.testing.assert_allclose(values[0], at_Z[which], atol=0.02)  # 5 sqrt(10 jitter of 1e-6)
            firsts.add(which)
        together = model.sample_functions(4, seed=seed)(Z).numpy()
        np.testing.assert_allclose(np.sort(together, axis=0), np.sort(at_Z[[0, 0, 1, 1]], axis=0), atol=0.02)
    assert firsts == {0, 1}


def test_each_sample_is_as_likely(rng: np.random.Generator) -> None:
    """Over 600 seeds for a single function; for three of six, and six layers of an ensemble, each exactly once."""
    samples: Any = sampled(rng, 6).samples
    first = [np.asarray(v[:, 0, 0]) for v in samples.values]
    counts = np.zeros(6)
    for seed in range(600):
        s = tf.constant([seed, 0])
        a, b = (np.flatnonzero(first[i] == float(samples.chosen(i, 1, s)[0, 0, 0])) for i in (0, 1))
        assert a == b  # the same sample in every layer
        counts[a] += 1
    assert np.all(np.abs(counts - 100) < 5 * np.sqrt(600 / 6 * 5 / 6))
    for seed in range(5):
        s = tf.constant([seed, 1])
        np.testing.assert_array_equal(np.sort(samples.chosen(0, 6, s)[:, 0, 0]), np.sort(first[0]))
        half = [int(np.flatnonzero(first[0] == float(v))[0]) for v in samples.chosen(0, 3, s)[:, 0, 0]]
        assert sorted(half) in ([0, 2, 4], [1, 3, 5])


def test_training_on_is_refused_or_samples_anew(rng: np.random.Generator) -> None:
    """Samples would stay what they are while q moves. The bound is that of q(u) all the same."""
    model, X = two_layers(rng), rng.standard_normal((N, 2))
    data, step = (tf.constant(X), tf.constant(X[:, :1])), Trainer(model)
    step.advance(lambda t: data, 0, 1, tf.constant([0, 0]))  # compiled without samples
    sampler = Sampler(model, *data, SamplingConfig(num_kept=4, burn_in=1, sampling_steps=4, temperature=1.0))
    step.advance(lambda t: data, 1, 1, tf.constant([0, 0]))  # not yet sampled
    sampler.advance(0, sampler.num_steps)
    refusal = r"must predict from q\(u\), got one that predicts from samples.*set model.samples = None"
    with pytest.raises(ValueError, match=refusal):
        step.advance(lambda t: data, 2, 1, tf.constant([0, 0]))
    with pytest.raises(ValueError, match=refusal):
        model.training_loss_closure(data)()
    assert np.isfinite(model.elbo(data))
    model.samples = None
    step.advance(lambda t: data, 2, 1, tf.constant([0, 0]))


def chain_of(seed: int, config: SamplingConfig) -> tuple[Sampler, tf.train.Checkpoint]:
    rng = np.random.default_rng(seed)
    model, X = two_layers(rng), rng.standard_normal((N, 2))
    sampler = Sampler(model, X, np.sin(X[:, :1]), config, batch_size=8, seed=5)
    return sampler, tf.train.Checkpoint(model=model, sampler=sampler)


@pytest.mark.parametrize("stop", [33, *(pytest.param(stop, marks=SLOW) for stop in (9, 45, 60))])
def test_a_chain_can_be_taken_up_anywhere(stop: int, tmp_path: Path) -> None:
    """Stopped while a noise or temperatures are tried, hyperparameters move or samples are kept: bit for bit as in one
    piece."""
    options: dict[str, Any] = {"num_kept": 4, "burn_in": 6, "sampling_steps": 12, "window": 6, "noise_tries": 2}
    config = SamplingConfig(**options, hyper_steps=6, hyper_rate=0.05)
    whole, _ = chain_of(0, config)
    whole.advance(0, whole.num_steps)
    first, checkpoint = chain_of(0, config)
    first.advance(0, stop)
    checkpoint.write(str(tmp_path / "stopped"))
    sampler, checkpoint = chain_of(0, config)
    checkpoint.read(str(tmp_path / "stopped")).assert_consumed()
    sampler.advance(stop, sampler.num_steps - stop)
    assert sampler.model.is_sampled
    for found, right in zip(sampler.model.variables, whole.model.variables, strict=True):
        np.testing.assert_array_equal(found, right)
    assert whole.temperature in (1.0, 0.3, 0.1, 0.03)
    samples: Any = whole.model.samples
    assert np.all(np.std(samples.values[0], axis=0) > 0)


def test_hyperparameters_that_are_worse_are_not_taken() -> None:
    """Steps of Adam that are far too large: held-out rows refuse them, and all is as before but for the samples."""
    config = SamplingConfig(num_kept=4, burn_in=6, sampling_steps=4, hyper_steps=40, window=6, temperature=1.0)
    sampler, _ = chain_of(1, dataclasses.replace(config, hyper_rate=1.0))
    before = [variable.numpy() for variable in sampler.model.trainable_variables]
    sampler.advance(0, 30)
    moved = sampler.model.trainable_variables
    assert any(not np.array_equal(*pair) for pair in zip(before, moved, strict=True))
    sampler.advance(30, sampler.num_steps - 30)
    assert sampler.gain == 0.0
    for found, right in zip(sampler.model.trainable_variables, before, strict=True):
        np.testing.assert_array_equal(found, right)


def test_a_search_for_the_noise_ends_near_the_best() -> None:
    """Rows of variance 0.02, from 0.5: the variance falls in growing steps, goes back, and is never worse than before.

    A variance within a factor of 1.5 of that of the rows is at most 0.04 nats per row worse than it.
    """
    rows = 0.02 * np.random.default_rng(0).standard_normal(400) ** 2

    def log_densities(variance: float) -> np.ndarray:
        return -0.5 * (np.log(variance) + rows / variance)

    variance: Any = Gaussian(0.5).variance
    search, best = NoiseSearch(variance, 1e-6), log_densities(0.5)
    first = best.mean()
    search.begin()
    for number in range(8):
        tried = log_densities(float(variance.numpy()))
        if search.judge(tried - best, is_last=number == 7):
            assert tried.mean() > best.mean()
            best = tried
    found = log_densities(float(variance.numpy())).mean()
    assert found == best.mean() == pytest.approx(first + search.gain)
    assert abs(np.log(float(variance.numpy()) / np.mean(rows))) < np.log(1.5)


def test_a_search_for_the_noise_stays_above_the_lower_bound_and_where_it_was() -> None:
    variance: Any = Gaussian(2e-6).variance
    search = NoiseSearch(variance, 1e-6)
    search.begin()
    search.judge(np.ones(5), is_last=False)
    assert 1e-6 < float(variance.numpy()) < 1.1e-6
    search.begin()
    before = float(search._best)
    search.judge(-np.ones(5), is_last=False)
    search.judge(np.array([3.0, -2.9]), is_last=True)  # a gain of less than its standard error
    assert float(variance.numpy()) == pytest.approx(before, rel=1e-9)
    assert search.gain == 0.0


def test_held_out_rows_choose_the_noise_of_a_chain() -> None:
    """Rows without noise, and a model that has a lot of it: it falls, by what held-out rows say."""
    rng = np.random.default_rng(3)
    X = rng.standard_normal((60, 1))
    layer = make_layer(rng, 1, 1, 8)
    layer.inducing_variable.Z.assign(np.linspace(-2.5, 2.5, 8)[:, None])
    layer.kernel.lengthscales.assign(np.ones(1))
    config = SamplingConfig(num_kept=4, burn_in=200, sampling_steps=40, window=200, noise_tries=3)
    model = DeepGP([layer], Gaussian(0.3), num_data=60)
    sampler = Sampler(model, X, np.sin(2 * X), config, seed=1)
    sampler.advance(0, sampler.num_steps)
    assert float(model.likelihood.variance.numpy()) < 0.1
    assert sampler.gain > 0.2


def test_models_and_data_without_a_chain(rng: np.random.Generator) -> None:
    model, X, Y = two_layers(rng), np.zeros((N, 2)), np.zeros((N, 1))
    with pytest.raises(ValueError, match="a DeepSigmaPointProcess has no posterior to sample"):
        Sampler(with_sigma_points(two_layers(rng)), X, Y)
    with pytest.raises(ValueError, match="X and Y must have as many rows, got 20 and 7"):
        Sampler(model, X, Y[:7])
    with pytest.raises(ValueError, match="batch_size must be at least 1, got 0"):
        Sampler(model, X, Y, batch_size=0)


def test_noise_that_is_not_free_stays() -> None:
    model, X = two_layers(np.random.default_rng(0)), np.zeros((N, 2))
    gpflow.set_trainable(model.likelihood.variance, False)
    assert Sampler(model, X, X[:, :1], SamplingConfig()).num_steps == 6600


@pytest.mark.slow
@pytest.mark.ci
def test_training_and_then_a_chain(rng: np.random.Generator) -> None:
    model, X = two_layers(rng), rng.standard_normal((N, 2))
    data = X, np.sin(X[:, :1])
    config = SamplingConfig(num_kept=4, burn_in=2, sampling_steps=4, temperature=0.5)
    trainer = trainer_for("sghmc", model, data, TrainingConfig(), config, 5, batch_size=N, seed=0)
    assert isinstance(trainer, SampledTrainer)
    assert isinstance(trainer_for("gaussian", model, data, TrainingConfig(), config, 5, batch_size=N, seed=0), Trainer)
    trainer.advance(lambda step: tuple(map(tf.constant, data)), 0, 7, tf.constant([0, 1]))
    assert (trainer.max_steps, trainer.is_done(7), model.is_sampled) == (11, False, False)
    trainer.advance(lambda step: tuple(map(tf.constant, data)), 7, 4, tf.constant([0, 1]))
    assert (trainer.is_done(11), model.is_sampled) == (True, True)
    assert set(trainer.about()["trust"]) == {"layer 1 of 2", "layer 2 of 2", "functions"}
    with pytest.raises(ValueError, match="one device and all 20 training rows in memory, got 3"):
        trainer_for("sghmc", model, (X[:3], X[:3]), TrainingConfig(), config, 5, batch_size=N, seed=0)


@pytest.mark.filterwarnings("ignore:after .* steps the model is worse")  # the targets are exactly linear
@pytest.mark.slow
@pytest.mark.ci
def test_estimator(rng: np.random.Generator) -> None:
    X = rng.standard_normal((30, 2))
    sampling = SamplingConfig(num_kept=4, burn_in=2, sampling_steps=4, temperature=0.5)
    options: dict[str, Any] = {"num_inducing": 5, "max_iter": 3, "sampling": sampling}
    model = DeepGPRegressor(posterior="sghmc", **options).fit(X, X[:, 0])
    assert model.predictor_.model.is_sampled
    assert model.trust_["functions"].effective > 0
    assert model.predict_quantiles(X[:3]).shape == (3, 3)
    with pytest.raises(ValueError, match="a chain needs all rows"):
        DeepGPRegressor(posterior="sghmc").partial_fit(X, X[:, 0])
    with pytest.raises(ValueError, match="sigma_points, imputed, got 'vi'"):
        DeepGPRegressor(posterior="vi").fit(X, X[:, 0])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_kept": 3}, "num_kept must be at least 4, got 3"),
        ({"sampling_steps": 5}, "sampling_steps must be at least num_kept = 32, got 5"),
        ({"noise_tries": -1}, "noise_tries must be at least 0, got -1"),
        ({"step_size": 0.0}, "step_size must be a finite number above 0"),
        ({"friction": 1.5}, "friction must be above 0 and at most 1, got 1.5"),
        ({"held_out": 1.0}, "held_out must be between 0 and 1, got 1.0"),
        ({"hyper_steps": 5, "burn_in": 3}, "burn_in must be at least window = 400, got 3"),
    ],
)
def test_bad_settings(settings: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SamplingConfig(**settings)


def test_layers_without_inducing_outputs(rng: np.random.Generator) -> None:
    layers = [make_layer(rng, 2, 2, M), BayesianLinearLayer(2, 1)]
    with pytest.raises(ValueError, match="layer 2 of 2, a BayesianLinearLayer; use posterior='gaussian'"):
        Sampler(DeepGP(layers, Gaussian()), np.zeros((N, 2)), np.zeros((N, 1)))
    patches = Patches((4, 3, 1), (2, 2))
    of_images = WeightedConvolutionalLayer(gpflow.kernels.SquaredExponential(), rng.standard_normal((M, 4)), patches, 1)
    with pytest.raises(ValueError, match="got layer 1 of 1, a WeightedConvolutionalLayer; use posterior='gaussian'"):
        Sampler(DeepGP([of_images], Gaussian()), np.zeros((N, 12)), np.zeros((N, 1)))
    sampler, _ = chain_of(0, SamplingConfig())
    with pytest.raises(ValueError, match="must have made all of its 12600 steps"):
        sampler.trust()


def test_streams_of_draws_differ_for_all_integers() -> None:
    seeds = [0, 1, 2**31, 2**31 + 1, 2**62 - 1]
    streams = {tuple(_stream(seed, number).numpy()) for seed in seeds for number in (3, 5, 7)}
    assert len(streams) == 15
    np.testing.assert_array_equal(_stream(4, 3), [4, 3])
