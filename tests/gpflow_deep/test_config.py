"""`gpflow_deep.train.config`: a model by its settings is the one that the presets build, and 0 is a value."""

from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow import likelihoods
from gpflow.kernels import SquaredExponential
from gpflow.utilities import parameter_dict

from gpflow_deep import (
    DeepGP,
    LatentConfig,
    LatentVariableLayer,
    ModelConfig,
    Trainer,
    TrainingConfig,
    modern,
    paper2017,
)
from gpflow_deep.judge.evaluation import evaluate
from gpflow_deep.judge.forecasts import LinearModel
from gpflow_deep.model.initialization import residual_variance
from gpflow_deep_base.numbers.groups import by_group
from tests.gpflow_deep.builders import make_data


def _assert_same(model: DeepGP, other: DeepGP) -> None:
    a, b = parameter_dict(model), parameter_dict(other)
    assert list(a) == list(b)
    for name, parameter in a.items():
        np.testing.assert_array_equal(parameter.numpy(), b[name].numpy(), err_msg=name)
        assert parameter.trainable == b[name].trainable, name
    assert [layer.precision for layer in model.layers] == [layer.precision for layer in other.layers]
    assert [layer.whiten for layer in model.layers] == [layer.whiten for layer in other.layers]
    assert (model.num_data, model.num_samples) == (other.num_data, other.num_samples)


def _config(**settings: Any) -> ModelConfig:
    fields = {"num_inducing": 5, "likelihood": "gaussian", **settings}
    return ModelConfig(**by_group(ModelConfig, fields))


def test_paper2017(rng: np.random.Generator) -> None:
    X, Y = make_data(rng, 20, 3)
    _assert_same(_config().build(X, Y, seed=7), paper2017(X, Y, 2, num_inducing=5, seed=7))
    settings: dict[str, Any] = {"num_samples": 3, "hidden_dim": 2, "whiten": False, "input_propagation": True}
    settings |= {"precision": "full", "noise_variance": 0.02}
    built = _config(num_layers=3, num_predict_samples=8, **settings).build(X, Y, num_data=900)
    _assert_same(built, paper2017(X, Y, 3, num_inducing=5, num_data=900, **settings))
    assert built.num_predict_samples == 8


def test_modern_and_natural_gradients(rng: np.random.Generator) -> None:
    X, Y = make_data(rng, 20, 3)
    _assert_same(_config(preset="modern").build(X, Y), modern(X, Y, 2, num_inducing=5))
    built = _config(preset="modern", natgrad=True).build(X, Y)
    _assert_same(built, modern(X, Y, 2, num_inducing=5, natural_gradients=True))
    built, plain = _config(natgrad=True).build(X, Y), paper2017(X, Y, 2, num_inducing=5)
    for parameter in (plain.layers[-1].q_mu, plain.layers[-1].q_sqrt):
        gpflow.set_trainable(parameter, False)
    _assert_same(built, plain)


def test_no_noise_is_not_the_presets_noise(rng: np.random.Generator) -> None:
    X, Y = make_data(rng, 20, 3)
    assert _config(noise_variance=0.0).build(X, Y).layers[0].noise_variance is None
    by_preset: Any = _config().build(X, Y).layers[0].noise_variance
    np.testing.assert_allclose(by_preset, 1e-5)


@pytest.mark.parametrize("preset", ["paper2017", "modern"])
def test_kernels(preset: Any, rng: np.random.Generator) -> None:
    """Variance and lengthscales of every layer; what is not given is the preset's."""
    X, Y = make_data(rng, 20, 16)
    by_preset = (4 / 3, np.sqrt(2.0)) if preset == "modern" else (1.0, 1.0)  # 16 inputs, then 2 outputs and 16 inputs
    for settings, lengthscales, variance in (
        ({"lengthscale": 0.3}, (0.3, 0.3), 1.0),
        ({"kernel_variance": 2.5}, by_preset, 2.5),
        ({"ard": False}, by_preset, 1.0),
    ):
        built = _config(preset=preset, hidden_dim=2, input_propagation=True, **settings).build(X, Y)
        for layer, lengthscale, dim in zip(built.layers, lengthscales, (16, 18), strict=True):
            assert type(layer.kernel) is SquaredExponential
            shape = () if settings == {"ard": False} else (dim,)
            np.testing.assert_allclose(layer.kernel.lengthscales, np.full(shape, lengthscale), rtol=1e-14)
            np.testing.assert_allclose(layer.kernel.variance, variance, rtol=1e-14)


@pytest.mark.parametrize(
    ("task", "name", "kind"),
    [
        ("regression", "auto", likelihoods.Gaussian),
        ("regression", "studentt", likelihoods.StudentT),
        ("regression", "poisson", likelihoods.Poisson),
        ("binary", "auto", likelihoods.Bernoulli),
        ("binary", "softmax", likelihoods.Softmax),
        ("multiclass", "auto", likelihoods.MultiClass),
    ],
)
def test_likelihoods(task: Any, name: Any, kind: type, rng: np.random.Generator) -> None:
    X, labels = rng.normal(size=(20, 2)), rng.integers(2, size=(20, 1))
    classes = 3 if task == "multiclass" else 2
    model = _config(likelihood=name).for_task(task).build(X, labels, num_classes=classes)
    assert type(model.likelihood) is kind
    if kind in (likelihoods.MultiClass, likelihoods.Softmax):
        assert model.layers[-1].num_latent_gps == classes


def test_likelihood_has_to_fit_the_task(rng: np.random.Generator) -> None:
    with pytest.raises(
        ValueError, match=r"^likelihood must be one of robustmax, softmax for multiclass, got bernoulli\.$"
    ):
        ModelConfig(likelihood="bernoulli").for_task("multiclass")
    with pytest.raises(ValueError, match="likelihood must be chosen to build a model, got auto; call for_task"):
        ModelConfig().build(*make_data(rng, 20))
    counts, negative = np.array([[0.0], [3.0]]), np.array([[-1.0]])
    assert ModelConfig(likelihood="poisson").for_task("regression", [counts]).likelihood == "poisson"
    assert ModelConfig().for_task("regression", [negative]).likelihood == "gaussian"
    assert ModelConfig(latents=LatentConfig(1)).for_task("regression", [negative]).likelihood == "studentt"
    assert ModelConfig(latents=LatentConfig(1), likelihood="gaussian").for_task("regression").likelihood == "gaussian"
    assert ModelConfig(latents=LatentConfig(1)).for_task("binary").likelihood == "bernoulli"
    for bad in (negative, np.array([[0.5]])):
        with pytest.raises(ValueError, match=r"likelihood=poisson needs targets that are counts 0, 1, 2, \.\.\."):
            ModelConfig(likelihood="poisson").for_task("regression", [counts, bad])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_layers": 0}, "num_layers must be at least 1, got 0"),
        ({"num_inducing": -3}, "num_inducing must be at least 1, got -3"),
        ({"num_samples": 0}, "num_samples must be at least 1, got 0"),
        ({"num_predict_samples": 0}, "num_predict_samples must be at least 1, got 0"),
        ({"hidden_dim": 0}, "hidden_dim must be at least 1, got 0"),
        ({"lengthscale": 0.0}, "lengthscale must be a finite number above 0, got 0.0"),
        ({"lengthscale": -1.0}, "lengthscale must be a finite number above 0, got -1.0"),
        ({"kernel_variance": 0.0}, "kernel_variance must be a finite number above 0, got 0.0"),
        ({"kernel_variance": np.inf}, "kernel_variance must be a finite number above 0, got inf"),
        ({"noise_variance": -1e-3}, "noise_variance must be a finite number and not negative, got -0.001"),
        ({"noise_variance": np.nan}, "noise_variance must be a finite number and not negative, got nan"),
        ({"preset": "modern", "noise_variance": 0.0}, "noise_variance and whiten=false need preset=paper2017"),
        ({"preset": "modern", "whiten": False}, "noise_variance and whiten=false need preset=paper2017"),
    ],
    ids=str,
)
def test_impossible_settings_are_refused_by_name(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        ModelConfig(**by_group(ModelConfig, settings))


def test_modern_starts_from_the_noise_of_least_squares(rng: np.random.Generator) -> None:
    """Gaussian and Student's t with that variance; `paper2017` keeps the paper's; labels and counts the default."""
    X, Y = rng.normal(size=(200, 3)), rng.normal(size=(200, 1))
    noise = residual_variance(X, Y)
    for preset, variance in (("modern", noise), ("paper2017", 0.01)):
        built = _config(preset=preset).build(X, Y).likelihood
        np.testing.assert_allclose(built.variance, variance, rtol=1e-10)
    t = _config(preset="modern", likelihood="studentt").build(X, Y).likelihood
    np.testing.assert_allclose(t.conditional_variance(X, np.zeros((200, 1))), noise, rtol=1e-10)
    np.testing.assert_allclose(_config(likelihood="studentt").build(X, Y).likelihood.scale, 0.1, rtol=1e-10)
    for name in ("bernoulli", "poisson"):
        labels = (Y > 0).astype(float)
        built, default = (
            _config(preset=p, likelihood=name).build(X, labels).likelihood for p in ("modern", "paper2017")
        )
        for ours, theirs in zip(built.parameters, default.parameters, strict=True):
            np.testing.assert_array_equal(ours.numpy(), theirs.numpy())


def test_a_short_run_on_noisy_data_is_not_below_least_squares(rng: np.random.Generator) -> None:
    """Noise of 0.6 of the variance, 300 steps; from the paper's 0.01 such a model is far below.

    Tolerance: the training rows are fitted by both, so the 400 test rows tell them apart by less than 0.03 nats.
    """
    X = rng.normal(size=(800, 4))
    Y = X @ np.full((4, 1), np.sqrt(0.1)) + np.sqrt(0.6) * rng.normal(size=(800, 1))
    train, test = (X[:400], Y[:400]), (X[400:], Y[400:])
    linear = evaluate(LinearModel.fit(*train), test).log_density.value
    model = _config(preset="modern", num_inducing=20).build(*train)
    trainer = Trainer(model, TrainingConfig(learning_rate=0.03))
    trainer.advance(lambda step: train, 0, 300, tf.constant([0, 1]))
    assert evaluate(model, test).log_density.value > linear - 0.03


def test_latent_variables(rng: np.random.Generator) -> None:
    """The preset on [x, w], with an encoder of [x, y]; predictions from more components."""
    X, Y = make_data(rng, 20, 3)
    built = _config(preset="modern", latent_dim=2, num_importance_samples=4, num_samples=3).build(X, Y, num_data=90)
    latents, first = built.layers[:2]
    assert isinstance(latents, LatentVariableLayer)
    assert (latents.input_dim, latents.num_latent_gps, first.input_dim) == (3, 2, 5)
    assert (built.num_data, built.num_samples, built.num_importance_samples) == (90, 3, 4)
    np.testing.assert_allclose(built.likelihood.variance, residual_variance(X, Y))
    assert built.num_predict_samples == 256
    assert _config(latent_dim=1, num_predict_samples=50).build(X, Y).num_predict_samples == 50
    assert np.isfinite(built.elbo((X[:5], Y[:5]), seed=0))
    kernels = _config(latent_dim=1, lengthscale=0.3, input_propagation=True).build(X, Y).layers[1:]
    assert [layer.kernel.lengthscales.shape for layer in kernels] == [(4,), (8,)]
    plain = _config(preset="modern", latent_dim=2, num_importance_samples=4).plain(1)
    assert (plain.latents, plain.num_layers) == (LatentConfig(0, 1), 1)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"latent_dim": -1}, "latent_dim must not be negative and num_importance_samples at least 1, got -1 and 1"),
        ({"num_importance_samples": 0}, "latent_dim must not be negative and num_importance_samples at least 1"),
        ({"num_importance_samples": 5}, "num_importance_samples=5 needs latent variables; give latent_dim=1"),
        ({"latent_dim": 1, "posterior": "global"}, "latent_dim needs posterior=gaussian, got posterior=global"),
        ({"latent_dim": 1, "posterior": "sghmc"}, "latent_dim needs posterior=gaussian, got posterior=sghmc"),
        ({"latent_dim": 1, "posterior": "sigma_points"}, "latent_dim needs posterior=gaussian"),
        ({"latent_dim": 1, "kernel": "convolutional"}, "latent_dim need kernel=squared_exponential"),
        (
            {"latent_dim": 1, "num_importance_samples": 2, "natgrad": True},
            "num_importance_samples above 1 cannot have natgrad",
        ),
    ],
    ids=str,
)
def test_what_latent_variables_cannot_have(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        ModelConfig(**by_group(ModelConfig, settings))
