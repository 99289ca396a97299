"""`gpflow_deep.train.images`: where convolutional deep GPs start, that they learn, and what is no image."""

from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.utilities import parameter_dict

from gpflow_deep import (
    DeepGPClassifier,
    ImageConfig,
    ModelConfig,
    PatchConfig,
    Trainer,
    TrainingConfig,
    convolutional,
    load_model,
    save_model,
)
from gpflow_deep.train.images import PRIOR_VARIANCE, shape_of_images
from gpflow_deep_base.numbers.groups import by_group


def bars(rng: np.random.Generator, count: int, size: int = 8) -> tuple[np.ndarray, np.ndarray]:
    """Images of a bar of three pixels somewhere, grey levels from 0 to 255; the label says whether it stands."""
    X, labels = np.zeros((count, size, size)), rng.integers(0, 2, count)
    for image, label, (i, j) in zip(X, labels, rng.integers(0, size - 3, (count, 2)), strict=True):
        image[(slice(i, i + 3), j) if label else (i, slice(j, j + 3))] = rng.uniform(100, 255)
    return X.reshape(count, -1), labels[:, None].astype(float)


def test_inducing_patches_are_patches_of_the_images_at_their_places(rng: np.random.Generator) -> None:
    X, Y = rng.standard_normal((30, 7 * 6 * 2)), rng.standard_normal((30, 1))
    model = convolutional(X, Y, (7, 6, 2), num_inducing=12, config=PatchConfig(patch=3, stride=2))
    (layer,) = model.layers
    Z, scale = layer.gp.inducing_variable.Z.numpy(), layer.patches.place_scale
    found = layer.patches(X).numpy().reshape(-1, layer.patches.patch_dim)
    distances = np.abs(Z[:, None] - found[None]).max(axis=-1)
    np.testing.assert_allclose(distances.min(axis=1), 0.0, atol=1e-12)
    assert len(np.unique(Z, axis=0)) == 12
    np.testing.assert_allclose(layer.gp.kernel.lengthscales, scale * 0.2 * 7)  # of places a fifth of the image


def test_prior_variance_and_weights_at_the_start(rng: np.random.Generator) -> None:
    """That between images, in any units of the pixels; background counts as one patch."""
    X, Y = bars(rng, 20)
    for factor in (1.0, 1 / 255):
        model = convolutional(factor * X, Y, (8, 8), num_inducing=10, config=PatchConfig(patch=3))
        (layer,) = model.layers
        cov = layer.gp.kernel(layer.patches(factor * X).numpy().reshape(20 * 36, -1)).numpy().reshape(20, 36, 20, 36)
        cov = np.einsum("nkml,k,l->nm", cov, layer.weights / 36, layer.weights / 36)
        np.testing.assert_allclose(np.mean(np.diag(cov)) - np.mean(cov), PRIOR_VARIANCE, rtol=1e-6)
        pixels = layer.gp.inducing_variable.Z.numpy()[:, :9]
        assert np.sum(np.all(pixels == 0, axis=1)) <= 1


@pytest.mark.parametrize("num_layers", [1, 2])
def test_it_learns_and_is_saved(rng: np.random.Generator, num_layers: int, tmp_path: Any) -> None:
    """Bars at any place are told apart, which a GP of pixels cannot from so few; the file predicts the same."""
    X, Y = bars(rng, 100)
    config = PatchConfig(patch=3, channels=2, places=num_layers == 2)
    options: dict[str, Any] = {"likelihood": gpflow.likelihoods.Bernoulli(), "num_inducing": 12, "config": config}
    model = convolutional(X, Y, (8, 8), num_layers, **options)
    trainer = Trainer(model, TrainingConfig(0.05))
    trainer.advance(lambda step: (X, Y), 0, 60 if num_layers == 1 else 3, tf.constant([0, 1]))
    if num_layers == 1:
        assert np.mean((model.predict_y(X)[0].numpy() > 0.5) == Y) > 0.9
    save_model(model, tmp_path / "model.npz")
    again = load_model(tmp_path / "model.npz")
    for a, b in zip(model.predict_f(X[:5]), again.predict_f(X[:5]), strict=True):
        np.testing.assert_array_equal(a, b)


def test_config_builds_it(rng: np.random.Generator) -> None:
    X, Y = bars(rng, 20)
    config = ModelConfig(2, 6, kernel="convolutional", images=ImageConfig(patch=3, channels=2))
    config = config.for_data("binary", [(X, Y)], (8, 8))
    assert config.images.image_shape == (8, 8, 1)
    built = config.build(X, Y, num_data=900, seed=3)
    options: dict[str, Any] = {"likelihood": gpflow.likelihoods.Bernoulli(), "num_data": 900, "seed": 3}
    other = convolutional(X, Y, (8, 8), 2, num_inducing=6, config=PatchConfig(patch=3, channels=2), **options)
    a, b = parameter_dict(built), parameter_dict(other)
    assert list(a) == list(b)
    for name in a:
        np.testing.assert_array_equal(a[name], b[name], err_msg=name)


def test_no_images() -> None:
    assert shape_of_images(12, (3, 4)) == (3, 4, 1)
    with pytest.raises(
        ValueError, match=r"height x width x channels = 13 columns, got no image_shape; give image_shape"
    ):
        shape_of_images(13, ())
    with pytest.raises(ValueError, match="= 784 columns, got 28 x 27"):
        shape_of_images(784, (28, 27))
    with pytest.raises(ValueError, match="num_inducing must be at least 1, got 0"):
        convolutional(np.zeros((2, 64)), np.zeros((2, 1)), (8, 8), num_inducing=0)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"patch": 3}, "patch need kernel=convolutional"),
        ({"kernel": "convolutional", "natgrad": True, "hidden_dim": 3}, "natgrad, hidden_dim need kernel=squared_exp"),
        ({"kernel": "convolutional", "posterior": "sghmc"}, "posterior need kernel=squared_exponential"),
        ({"kernel": "convolutional", "stride": 0}, "stride must be at least 1, got 0"),
        ({"kernel": "rbf"}, "kernel must be one of squared_exponential, .*convolutional, got 'rbf'"),
    ],
)
def test_settings_that_do_not_go_together(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ModelConfig(**by_group(ModelConfig, settings))


def test_estimator(rng: np.random.Generator) -> None:
    X, Y = bars(rng, 60)
    options: dict[str, Any] = {"num_inducing": 8, "max_iter": 60, "num_layers": 1}
    fields = {"image_shape": (8, 8), "patch": 3, "places": False}
    model = DeepGPClassifier(kernel="convolutional", model=fields, **options)
    names = np.array(["lies", "stands"])[Y[:, 0].astype(int)]
    assert model.fit(X, names).score(X, names) > 0.8
    np.testing.assert_array_equal(model.predictor_.units.x.scale, 1.0)  # pixels stay as they are
    with pytest.raises(ValueError, match="= 64 columns, got 8 x 9"):
        wrong = DeepGPClassifier(kernel="convolutional", model={**fields, "image_shape": [8, 9]}, **options)
        wrong.fit(X, names)
