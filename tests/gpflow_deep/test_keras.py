"""`gpflow_deep.keras`: the bound and the predictions of a `DeepGP`, and what Keras promises of layers and losses."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import gpflow
import keras
import numpy as np
import pytest
import tensorflow as tf
from gpflow.likelihoods import (
    Bernoulli,
    Gaussian,
    HeteroskedasticTFPConditional,
    Likelihood,
    MultiClass,
    Ordinal,
    Poisson,
    Softmax,
    StudentT,
    SwitchedLikelihood,
)
from scipy.stats import norm

from gpflow_deep import (
    DeepGP,
    float_type,
    inducing_inputs,
    linear_mean,
)
from gpflow_deep.judge import evaluation
from gpflow_deep.keras import DeepGPLikelihoodLoss, GPLayer, LikelihoodLayer, Predictor, adapt, stored
from tests.golden.compare import environment
from tests.gpflow_deep.saved_models import OwnKernel

ROOT = Path(__file__).resolve().parents[2]
N, D, M = 60, 3, 5
FLOAT32 = 1e-6
"""Relative rounding error of what Keras gets of a layer, a few units of float32."""


@pytest.fixture
def X(rng: np.random.Generator) -> np.ndarray:
    return rng.standard_normal((N, D)).astype(np.float32)


@pytest.fixture
def Y(X: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return np.sin(2 * X[:, 0]) + 0.1 * rng.standard_normal(N)


def gp_layer(units: int = 1, **options: Any) -> GPLayer:
    return GPLayer(units, **{"num_data": N, "num_inducing": M, "seed": 0, **options})


def sequential(*layers: keras.Layer) -> keras.Sequential:
    return keras.Sequential([keras.Input((D,)), *layers])


def randomised(model: keras.Model, rng: np.random.Generator) -> keras.Model:
    """With weights that are not those of the start."""
    for weight in model.trainable_weights:
        weight.assign(weight.numpy() + 0.2 * rng.standard_normal(weight.shape))
    return model


def deep(rng: np.random.Generator, likelihood: Likelihood, units: int = 1) -> keras.Sequential:
    inner = gp_layer(2, mean_function="linear", q_sqrt_scale=0.3)
    return randomised(sequential(inner, gp_layer(units), LikelihoodLayer(likelihood)), rng)


def as_deep_gp(model: keras.Sequential) -> DeepGP:
    """The same layers and likelihood in GPflow."""
    *gps, end = model.layers
    return DeepGP([layer.gp for layer in gps], end.likelihood, num_data=N)


# What it computes


def test_one_layer_has_the_bound_of_svgp(X: np.ndarray, Y: np.ndarray, rng: np.random.Generator) -> None:
    """Loss and KL terms together are minus the bound over N, whatever the batch's share; draws change nothing."""
    model = randomised(sequential(gp_layer(), LikelihoodLayer(StudentT())), rng)
    gp, likelihood = model.layers[0].gp, model.layers[1].likelihood
    svgp = gpflow.models.SVGP(
        gp.kernel, likelihood, gp.inducing_variable, q_mu=gp.q_mu.numpy(), q_sqrt=gp.q_sqrt.numpy(), num_data=N
    )
    elbo = svgp.elbo((X[:20].astype(np.float64), Y[:20, None])).numpy()
    for training in (False, True):
        loss = DeepGPLikelihoodLoss()(Y[:20], model(X[:20], training=training)) + sum(model.losses)
        assert float(loss) == pytest.approx(-elbo / N, rel=FLOAT32)


def test_predictions_are_those_of_a_deep_gp(X: np.ndarray, Y: np.ndarray, rng: np.random.Generator) -> None:
    """Components, moments, quantiles and log densities of two layers with the same Sobol points."""
    model = deep(rng, Gaussian(0.1))
    reference, predictor = as_deep_gp(model), Predictor(model)
    means, variances = reference.predict_components(X.astype(np.float64), num_samples=32)
    found = predictor.components(X)
    np.testing.assert_allclose(found[0], means, rtol=FLOAT32, atol=FLOAT32)
    np.testing.assert_allclose(found[1], variances, rtol=20 * FLOAT32, atol=FLOAT32)
    predicted: Any = predictor.predict(X, Y)
    mean, variance = reference.predict_y(X.astype(np.float64))
    np.testing.assert_allclose(predicted.mean, mean, rtol=FLOAT32, atol=FLOAT32)
    np.testing.assert_allclose(predicted.std, np.sqrt(variance), rtol=20 * FLOAT32)
    log_density = reference.predict_log_density((X.astype(np.float64), Y[:, None]))
    np.testing.assert_allclose(predicted.log_density, log_density, atol=1e-4)
    (median,) = predictor.quantiles(X, [0.5])
    shares = norm.cdf((median - found[0]) / np.sqrt(found[1] + model.layers[-1].likelihood.variance.numpy()))
    np.testing.assert_allclose(shares.mean(axis=0), 0.5, atol=1e-9)
    assert evaluation.evaluate(predictor, (X, Y)).log_density.value == pytest.approx(
        log_density.numpy().mean(), abs=1e-4
    )


def test_a_prediction_depends_on_its_row_alone(X: np.ndarray, rng: np.random.Generator) -> None:
    model = deep(rng, Gaussian())
    many = Predictor(model, num_samples=4).components(X)
    few = Predictor(model, num_samples=4, batch_rows=4 * 20).components(X[::-1])
    np.testing.assert_allclose(few[0][:, ::-1], many[0], rtol=FLOAT32, atol=FLOAT32)


def test_draws_while_training(X: np.ndarray, rng: np.random.Generator) -> None:
    """They have the layer's moments, differ between calls, and come again with the seed."""
    rows = np.repeat(X[:1], 4000, axis=0)
    layer = randomised(sequential(gp_layer()), rng).layers[0]
    mean, variance = layer.gp.predict(X[:1].astype(np.float64))
    draws = layer(rows, training=True).numpy()
    error = np.sqrt(variance[0, 0] / len(rows))
    assert abs(draws.mean() - mean[0, 0]) < 5 * error
    assert draws.var() == pytest.approx(float(variance[0, 0]), rel=5 * np.sqrt(2 / len(rows)))
    assert not np.array_equal(draws, layer(rows, training=True))
    again = keras.models.clone_model(keras.Sequential([layer])).layers[0]
    again.build((None, D))
    again.set_weights(layer.get_weights())
    np.testing.assert_array_equal(again(rows, training=True), draws)
    np.testing.assert_allclose(layer(X[:1]), mean, rtol=FLOAT32, atol=FLOAT32)


def test_moments_on_request(X: np.ndarray, Y: np.ndarray, rng: np.random.Generator) -> None:
    draws = randomised(sequential(gp_layer(), LikelihoodLayer(Gaussian())), rng)
    moments = sequential(gp_layer(outputs="moments"), LikelihoodLayer(Gaussian()))
    moments.set_weights(draws.get_weights())
    F = moments(X, training=True)
    assert F.shape == moments.compute_output_shape((N, D)) == (N, 2, 1)
    np.testing.assert_array_equal(F[:, 0], draws(X))
    assert float(DeepGPLikelihoodLoss()(Y, F)) == float(DeepGPLikelihoodLoss()(Y, draws(X)))


def test_other_operations_make_draws_of_moments(X: np.ndarray, Y: np.ndarray, rng: np.random.Generator) -> None:
    """What a model does behind its GP layer is in the loss, too: minus log p(y | f) of twice the mean."""
    model = randomised(sequential(gp_layer(), keras.layers.Rescaling(2.0), LikelihoodLayer(Gaussian())), rng)
    variance = model.layers[-1].likelihood.variance.numpy()
    expected = -norm(2 * model.layers[0](X).numpy()[:, 0], np.sqrt(variance)).logpdf(Y).mean()
    assert float(DeepGPLikelihoodLoss()(Y, model(X))) == pytest.approx(expected, rel=1e-5)
    means, variances = Predictor(model).components(X)
    assert means.shape == (32, N, 1)
    assert not variances.any()


LIKELIHOODS: list[tuple[Likelihood, int, str]] = [
    (Bernoulli(), 1, "label"),
    (HeteroskedasticTFPConditional(), 2, "number"),
    (MultiClass(3), 3, "label"),
    (Ordinal(np.array([0.3])), 1, "label"),
    (Poisson(), 1, "label"),
    (Softmax(3), 3, "label"),
    (SwitchedLikelihood([Gaussian(), StudentT()]), 1, "switched"),
]


@pytest.mark.parametrize(
    ("likelihood", "units", "kind"), LIKELIHOODS, ids=[type(part).__name__ for part, *_ in LIKELIHOODS]
)
def test_any_likelihood(likelihood: Likelihood, units: int, kind: str, X: np.ndarray, rng: np.random.Generator) -> None:
    """All its parameters and those of the layer have gradients; a stored copy has the same loss and predictions."""
    labels = rng.integers(0, 2, (N, 1))
    Y = {"label": labels[:, 0], "number": X[:, :1], "switched": np.concatenate([X[:, :1], labels], axis=1)}[kind]
    model = sequential(gp_layer(units), LikelihoodLayer(likelihood))
    with tf.GradientTape() as tape:
        loss = DeepGPLikelihoodLoss()(Y, model(X, training=True)) + sum(model.losses)
    assert all(gradient is not None for gradient in tape.gradient(loss, model.trainable_weights))
    assert len(model.trainable_weights) == 5 + len(likelihood.trainable_parameters)
    copy = keras.Sequential.from_config(model.get_config())
    copy.set_weights(model.get_weights())
    if kind != "switched":
        np.testing.assert_array_equal(Predictor(copy).predict(X).mean, Predictor(model).predict(X).mean)


def test_targets_may_be_weighted(X: np.ndarray, Y: np.ndarray) -> None:
    model = sequential(gp_layer(), LikelihoodLayer(Gaussian()))
    weights = np.arange(N) % 2
    odd = DeepGPLikelihoodLoss()(Y[1::2], model(X[1::2]))
    assert float(DeepGPLikelihoodLoss(reduction="sum")(Y, model(X), weights)) == pytest.approx(
        float(odd) * N / 2, rel=1e-6
    )


# What Keras promises


def test_fit_trains_every_weight_and_finds_the_function(X: np.ndarray, Y: np.ndarray) -> None:
    """A network without `keras.Input`, whose weights are made in `fit`; metrics are those of f."""
    gp = gp_layer(mean_function="linear")
    model = keras.Sequential([keras.layers.Dense(4, "tanh"), gp, LikelihoodLayer(Gaussian())])
    model.compile(keras.optimizers.Adam(0.05), DeepGPLikelihoodLoss(), metrics=["mae"])
    model.fit(X, Y, batch_size=N, epochs=1, verbose=0)
    before = model.get_weights()
    history = model.fit(X, Y, batch_size=N, epochs=100, verbose=0).history
    fixed = [not weight.trainable for weight in model.weights]
    for old, weight, is_fixed in zip(before, model.weights, fixed, strict=True):
        assert np.array_equal(old, weight.numpy()) == is_fixed, weight.path
    assert history["loss"][-1] < history["loss"][0] - 0.5
    assert np.mean(np.abs(model.predict(X, verbose=0)[:, 0] - Y)) < 0.5 * np.mean(np.abs(Y))
    lines: list[str] = []
    model.summary(print_fn=lines.append)
    counts = {"Z": 4 * M, "q_mu": M, "q_sqrt": M * (M + 1) // 2, "kernel": 1 + 4, "mean function": 4 + 1}
    assert str(sum(counts.values())) in "".join(lines)
    assert {variable.ref() for variable in gp.gp.variables} == {weight.value.ref() for weight in gp.weights}


def test_keras_losses_and_other_models(X: np.ndarray, rng: np.random.Generator) -> None:
    """A functional model with two branches, trained by a loss of Keras, in float64."""
    inputs = keras.Input((D,))
    f = gp_layer(2, dtype="float64")(keras.layers.Dense(2, dtype="float64")(inputs))
    joined = keras.layers.Concatenate(dtype="float64")([f, inputs])
    model = keras.Model(inputs, gp_layer(2, dtype="float64")(joined))
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), run_eagerly=True)
    labels = (X[:, 0] > 0).astype(int)
    assert np.isfinite(model.train_on_batch(X, labels))
    assert model(X).dtype == tf.float64
    predictor = Predictor(model, Softmax(2), num_samples=4)
    assert predictor.task == "multiclass"
    probabilities = predictor.predict(X, labels)
    np.testing.assert_allclose(probabilities.mean.sum(axis=1), 1.0)
    assert probabilities.labels.shape == (N,)


FRESH = """
import sys, keras, numpy as np
import gpflow_deep
assert "gpflow_deep.keras" not in sys.modules
gpflow_deep.keras.GPLayer
X = np.load("X.npy")
model = keras.models.load_model("model.keras")
np.save("again.npy", model.predict(X, verbose=0))
np.save("quantiles.npy", gpflow_deep.keras.Predictor(model).quantiles(X, [0.1, 0.9]))
before = model.get_weights()
model.fit(X, X[:, 0], verbose=0)
changed = [not np.array_equal(old, new) for old, new in zip(before, model.get_weights())]
assert changed == [weight.trainable for weight in model.weights], changed
"""


@pytest.mark.slow
@pytest.mark.ci
def test_keras_file_in_a_fresh_process(X: np.ndarray, Y: np.ndarray, tmp_path: Path) -> None:
    """Predictions are the same, bit for bit, and training goes on with all parameters, those of the likelihood, too.
    The package imports its Keras layers when they are used."""
    kernel = gpflow.kernels.Matern52() + gpflow.kernels.Linear(active_dims=[0])
    gpflow.set_trainable(kernel.kernels[1].variance, False)
    inner = gp_layer(2, mean_function="linear", kernel=gpflow.kernels.SharedIndependent(kernel, 2))
    model = sequential(keras.layers.Dense(3), inner, gp_layer(), LikelihoodLayer(StudentT()))
    adapt(model, X)
    model.compile("adam", DeepGPLikelihoodLoss())
    model.fit(X, Y, verbose=0)
    model.save(tmp_path / "model.keras")
    np.save(tmp_path / "X.npy", X)
    subprocess.run([sys.executable, "-c", FRESH], cwd=tmp_path, env=environment(ROOT), check=True)
    # To rounding: with several threads sums may be in another order there.
    again, quantiles = (np.load(tmp_path / name) for name in ("again.npy", "quantiles.npy"))
    np.testing.assert_allclose(again, model.predict(X, verbose=0), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(quantiles, Predictor(model).quantiles(X, [0.1, 0.9]), rtol=1e-13, atol=1e-13)


def test_a_file_has_the_loss(X: np.ndarray, Y: np.ndarray, tmp_path: Path, rng: np.random.Generator) -> None:
    """Also one with a likelihood of its own, with parameters that are not trained."""
    model = randomised(sequential(gp_layer(3)), rng)
    model.compile("adam", DeepGPLikelihoodLoss(MultiClass(3)), run_eagerly=True)
    labels = rng.integers(0, 3, N)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert isinstance(loaded.loss, DeepGPLikelihoodLoss)
    loaded.run_eagerly = True
    assert loaded.test_on_batch(X, labels) == model.test_on_batch(X, labels)
    np.testing.assert_array_equal(Predictor(loaded).predict(X).mean, Predictor(model).predict(X).mean)


def test_a_kernel_of_the_users_own(X: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A clone has it by itself; a file needs the class, as it does for a layer of the user's own."""
    model = sequential(gp_layer(kernel=OwnKernel(0.7)))
    clone = keras.models.clone_model(model)
    np.testing.assert_allclose(clone.layers[0].gp.kernel.lengthscales, 1 / 0.7)
    model.save(tmp_path / "model.keras")
    monkeypatch.setattr(stored, "written", {})
    with pytest.raises((TypeError, ValueError), match=r"custom_objects=\{\\?\"OwnKernel\\?\": OwnKernel"):
        keras.models.load_model(tmp_path / "model.keras")
    given = {"OwnKernel": OwnKernel}
    loaded = keras.models.load_model(tmp_path / "model.keras", custom_objects=given)
    np.testing.assert_array_equal(loaded(X), model(X))
    monkeypatch.setitem(keras.saving.get_custom_objects(), "tests>OwnKernel", OwnKernel)
    np.testing.assert_array_equal(keras.models.load_model(tmp_path / "model.keras")(X), model(X))


def test_a_clone_starts_anew(X: np.ndarray, rng: np.random.Generator) -> None:
    """With the values that parts were given, and nothing shared."""
    kernel = gpflow.kernels.RBF(lengthscales=np.array([1.0, 2.0, 3.0]))
    model = randomised(sequential(gp_layer(kernel=kernel), LikelihoodLayer(Gaussian(0.3))), rng)
    clone = keras.models.clone_model(model)
    np.testing.assert_allclose(clone.layers[0].gp.kernel.lengthscales, [1.0, 2.0, 3.0])
    np.testing.assert_allclose(kernel.lengthscales, [1.0, 2.0, 3.0])
    assert clone.layers[1].likelihood.variance.numpy() == pytest.approx(0.3)
    clone.set_weights(model.get_weights())
    np.testing.assert_array_equal(clone(X), model(X))
    randomised(clone, rng)
    assert not np.array_equal(clone(X), model(X))


def test_types(X: np.ndarray) -> None:
    """The GP computes in GPflow's type of the time when it was made, whatever Keras' and today's types are."""
    with float_type("float32"):
        single = sequential(gp_layer())
    double = sequential(gp_layer())
    assert {weight.dtype for weight in single.weights} == {"float32"}
    assert {weight.dtype for weight in double.weights} == {"float64"}
    assert single(X).dtype == double(X).dtype == tf.float32
    assert keras.models.clone_model(single).layers[0].gp.dtype == tf.float32
    with float_type("float32"):
        np.testing.assert_array_equal(double(X), double(X))
    mixed = sequential(gp_layer(dtype="mixed_bfloat16"), LikelihoodLayer(Gaussian()))
    assert mixed(X).dtype == tf.bfloat16
    assert mixed.layers[0].gp.dtype == tf.float64


def test_adapt(X: np.ndarray, rng: np.random.Generator) -> None:
    """Each layer gets what comes into it: centres, scales and principal components."""
    scaled = (X * np.array([1.0, 10.0, 0.1])).astype(np.float32)
    model = sequential(keras.layers.Rescaling(2.0), gp_layer(2, mean_function="linear"), gp_layer())
    adapt(model, scaled)
    features = 2 * scaled.astype(np.float64)
    first, last = model.layers[1].gp, model.layers[2].gp
    np.testing.assert_allclose(first.inducing_variable.Z, inducing_inputs(features, M), rtol=1e-6)
    np.testing.assert_allclose(first.kernel.lengthscales, np.sqrt(D) * features.std(axis=0), rtol=1e-6)
    np.testing.assert_allclose(first.mean_function.A, linear_mean(features, 2).A, rtol=1e-5, atol=1e-6)
    below = model.layers[1](features.astype(np.float32)).numpy()
    np.testing.assert_allclose(last.inducing_variable.Z, inducing_inputs(below, M), rtol=1e-5, atol=1e-5)


def test_adapt_leaves_the_identity(X: np.ndarray) -> None:
    """What a "linear" mean function of as many outputs as inputs is."""
    model = sequential(gp_layer(D, mean_function="linear"), gp_layer())
    adapt(model, X)
    np.testing.assert_allclose(model.layers[0](X), X, atol=1e-5)


def test_a_unit_that_is_nearly_dead_does_not_count(X: np.ndarray, Y: np.ndarray, caplog: Any) -> None:
    """One row of which comes through, with a small number: one step of Adam for inducing inputs is many times that."""
    features = np.column_stack([10 * X, np.zeros(N), np.where(np.arange(N) == 7, 1e-4, 0)]).astype(np.float32)
    gp = gp_layer(num_inducing=N // 2)
    model = keras.Sequential([keras.Input((D + 2,)), gp, LikelihoodLayer(Gaussian())])
    adapt(model, features)
    lengthscales = gp.gp.kernel.lengthscales.numpy()
    scale = features.astype(np.float64).std(axis=0)
    np.testing.assert_allclose(lengthscales[:D], np.sqrt(D + 2) * scale[:D], rtol=1e-6)
    np.testing.assert_allclose(lengthscales[D:], np.sqrt(D + 2) * np.median(scale[scale > 0]), rtol=1e-6)
    assert "inputs 4" in caplog.text
    assert "Normalization" in caplog.text
    model.compile(keras.optimizers.Adam(0.1), DeepGPLikelihoodLoss())
    model.fit(features, Y, epochs=40, batch_size=N, verbose=0)
    assert np.corrcoef(gp(features).numpy()[:, 0], Y)[0, 1] > 0.5


def test_priors_are_in_the_losses(X: np.ndarray) -> None:
    import tensorflow_probability as tfp

    plain, kernel = sequential(gp_layer(kernel=gpflow.kernels.RBF())), gpflow.kernels.RBF()
    kernel.variance.prior = tfp.distributions.Gamma(np.float64(2), np.float64(3))
    with_prior = sequential(gp_layer(kernel=kernel))
    for model in (plain, with_prior):
        model(X)
    expected = -kernel.variance.log_prior_density().numpy() / N
    assert float(with_prior.losses[0] - plain.losses[0]) == pytest.approx(expected, rel=1e-5)
    likelihood: Any = Gaussian()
    likelihood.variance.prior = tfp.distributions.Gamma(np.float64(2), np.float64(3))
    end = sequential(LikelihoodLayer(likelihood, num_data=N))
    end(X)
    assert float(end.losses[0]) == pytest.approx(-likelihood.variance.log_prior_density().numpy() / N, rel=1e-6)
    with pytest.raises(ValueError, match="num_data must be given"):
        LikelihoodLayer(likelihood)


# Errors


NO_LIKELIHOODS: list[Any] = [Gaussian, "gaussian"]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: gp_layer(0), "units must be at least 1, got 0"),
        (lambda: gp_layer(num_data=0), "num_data must be at least 1"),
        (lambda: gp_layer(outputs="mean"), "outputs must be 'draws' or 'moments', got 'mean'"),
        (lambda: gp_layer(mean_function="constant"), "mean_function must be 'zero', 'linear'"),
        (lambda: gp_layer().gp, "must know its inputs"),
        (lambda: gp_layer()(np.zeros([2, 2, 3])), "put a Flatten layer before it"),
        (lambda: sequential(gp_layer(kernel=gpflow.kernels.RBF(lengthscales=[1.0, 2.0]))), "a kernel of 3 inputs"),
        (lambda: sequential(gp_layer(inducing_variable=np.zeros([2, 2]))), "parts for 3 inputs and 1 outputs"),
        (lambda: LikelihoodLayer(Poisson(invlink=lambda f: f)), "likelihood.invlink is the function"),
        (lambda: DeepGPLikelihoodLoss(Gaussian()), "a loss trains no parameters, got Gaussian with variance"),
        (lambda: DeepGPLikelihoodLoss()(np.zeros(2), np.zeros([2, 1])), "there is no likelihood"),
        (
            lambda: DeepGPLikelihoodLoss(Bernoulli())(np.zeros([2, 2]), np.zeros([2, 1])),
            "give the numbers of the labels",
        ),
        (lambda: DeepGPLikelihoodLoss(Poisson())(np.zeros([2, 2]), np.zeros([2, 1])), "must have 1 columns, got 2"),
        (lambda: DeepGPLikelihoodLoss(Softmax(3))(np.zeros(2), np.zeros([2, 1])), "must have 3 latent functions"),
        (lambda: DeepGPLikelihoodLoss(MultiClass(2))(np.zeros(2), np.zeros([2, 2])), "is constant in draws of f"),
        (lambda: DeepGPLikelihoodLoss(Poisson())(np.zeros(2), np.zeros([2, 3, 1])), r"\[N, P\] or \[N, 2, P\]"),
        (lambda: LikelihoodLayer(Gaussian(gpflow.functions.Constant())), "must not depend on the inputs"),
        (lambda: Predictor(sequential(keras.layers.Dense(1))), "must have a GPLayer, got Dense"),
        (
            lambda: LikelihoodLayer(NO_LIKELIHOODS[0]),
            r"likelihood must be one of gpflow\.likelihoods, such as Gaussian\(\), got",
        ),
        (lambda: DeepGPLikelihoodLoss(NO_LIKELIHOODS[1]), r"such as Gaussian\(\), got 'gaussian'"),
        (
            lambda: Predictor(sequential(gp_layer(), LikelihoodLayer(Gaussian()))).predict(
                np.zeros([4, D]), np.zeros(8)
            ),
            r"Y must have shape \[N, P\] or \[N\] with N = 4 as X, got \[8\]",
        ),
        (lambda: Predictor(sequential(gp_layer())), "the model has no likelihood"),
        (lambda: Predictor(sequential(gp_layer()), Gaussian(), num_samples=0), "num_samples must be at least 1, got 0"),
    ],
)
def test_errors(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_stored_parts_of_strangers(X: np.ndarray) -> None:
    """Damaged and unknown parts are refused in one line, and nothing is imported for them."""
    config: dict[str, Any] = gp_layer(kernel=gpflow.kernels.RBF()).get_config()
    for old, new, message in (
        ("gpflow.kernels:SquaredExponential", "antigravity:Kernel", "the stored kernel cannot be read: .*antigravity"),
        ('"arrays":{', '"arrays":{"more":["|O",[1],"AAAAAAAAAAA="],', "has the type .*O"),
        ('"part"', '"parts"', "the stored kernel cannot be read"),
    ):
        damaged = {**config, "kernel": config["kernel"].replace(old, new)}
        assert damaged["kernel"] != config["kernel"]
        with pytest.raises(ValueError, match=message):
            GPLayer.from_config(damaged)
    assert "antigravity" not in sys.modules
