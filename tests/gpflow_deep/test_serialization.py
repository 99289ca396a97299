"""`gpflow_deep.serialization`: a loaded model is the saved one, and what cannot be saved is refused before writing."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow import kernels, likelihoods
from gpflow.inducing_variables import (
    InducingPoints,
    SeparateIndependentInducingVariables,
    SharedIndependentInducingVariables,
)
from gpflow.utilities import parameter_dict

from gpflow_deep import DeepGP, DeepGPQuad, GaussHermite, SVGPLayer, modern, paper2017
from gpflow_deep.serialization import load_model, save_model


def _data(rng: np.random.Generator, likelihood: likelihoods.Likelihood | None) -> tuple[np.ndarray, np.ndarray]:
    X = rng.normal(size=(40, 3))
    if likelihood is None or isinstance(likelihood, likelihoods.Gaussian | likelihoods.StudentT):
        return X, rng.normal(size=(40, 2))
    return X, rng.integers(2, size=(40, 1)).astype(float)


def _perturb(model: DeepGP, rng: np.random.Generator) -> None:
    """Move every parameter, so that no value is its default."""
    for parameter in model.parameters:
        variable = parameter.unconstrained_variable
        variable.assign(variable + 0.1 * rng.normal(size=variable.shape))


def _assert_same(model: DeepGP, loaded: DeepGP, X: np.ndarray) -> None:
    """Bit for bit, as unconstrained values are stored and the operations are the same."""
    assert type(loaded) is type(model)
    expected, got = parameter_dict(model), parameter_dict(loaded)
    assert list(expected) == list(got)
    for name, parameter in expected.items():
        np.testing.assert_array_equal(parameter.numpy(), got[name].numpy(), err_msg=name)
        assert parameter.trainable == got[name].trainable, name
    for a, b in zip(model.predict_y(X), loaded.predict_y(X), strict=True):
        np.testing.assert_array_equal(a, b)


LIKELIHOODS: dict[str, Callable[[], likelihoods.Likelihood | None]] = {
    "default": lambda: None,
    "gaussian_of_two": lambda: likelihoods.Gaussian(variance=np.array([0.2, 0.3])),
    "studentt": lambda: likelihoods.StudentT(scale=0.3, df=4.0),
    "poisson": lambda: likelihoods.Poisson(binsize=2.0),
    "bernoulli": likelihoods.Bernoulli,
    "robustmax": lambda: likelihoods.MultiClass(3),
    "softmax": lambda: likelihoods.Softmax(3),
    "ordinal": lambda: likelihoods.Ordinal(np.array([-0.5, 0.5])),
}


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_every_likelihood(name: str, rng: np.random.Generator, tmp_path: Path) -> None:
    likelihood = LIKELIHOODS[name]()
    X, Y = _data(rng, likelihood)
    model = paper2017(X, Y, 2, num_inducing=5, likelihood=likelihood, num_samples=3)
    model.num_predict_samples, model.prediction_seed = 7, 11
    _perturb(model, rng)
    save_model(model, tmp_path / "model.npz")
    loaded = load_model(tmp_path / "model.npz")
    _assert_same(model, loaded, X[:6])
    assert (loaded.num_samples, loaded.num_predict_samples, loaded.prediction_seed) == (3, 7, 11)
    np.testing.assert_array_equal(model.elbo((X, Y), seed=1), loaded.elbo((X, Y), seed=1))
    assert [path.name for path in tmp_path.iterdir()] == ["model.npz"]


@pytest.mark.parametrize(
    "settings",
    [{"whiten": False}, {"input_propagation": True}, {"hidden_dim": 2}, {"hidden_dim": 5}, {"noise_variance": None}],
    ids=str,
)
def test_presets(settings: dict[str, Any], rng: np.random.Generator, tmp_path: Path) -> None:
    X, Y = _data(rng, None)
    model = paper2017(X, Y, 3, num_inducing=5, **settings)
    model.num_predict_samples = 5
    _perturb(model, rng)
    save_model(model, tmp_path / "model.npz")
    _assert_same(model, load_model(tmp_path / "model.npz"), X[:6])


def test_untrainable_parameters_stay_so(rng: np.random.Generator, tmp_path: Path) -> None:
    X, Y = _data(rng, None)
    model = modern(X, Y, 2, num_inducing=5)
    save_model(model, tmp_path / "model.npz")
    loaded = load_model(tmp_path / "model.npz")
    assert not loaded.layers[-1].q_mu.trainable
    assert len(loaded.trainable_variables) == len(model.trainable_variables)


def _layer(kernel: kernels.Kernel, inducing: Any, **settings: Any) -> SVGPLayer:
    return SVGPLayer(kernel, inducing, **settings)


def _three(make: Callable[[], kernels.Kernel]) -> list[kernels.Kernel]:
    return [make() for _ in range(2)]


LAYERS: dict[str, Callable[[np.ndarray], SVGPLayer]] = {
    "combination": lambda Z: _layer(
        kernels.Matern52(lengthscales=[1.0, 2.0], active_dims=[0, 2])
        + kernels.Linear(active_dims=slice(1, 3)) * kernels.RationalQuadratic()
        + kernels.White(),
        Z,
        num_latent_gps=2,
    ),
    "shared": lambda Z: _layer(
        kernels.SharedIndependent(kernels.Matern32(), 2), SharedIndependentInducingVariables(InducingPoints(Z))
    ),
    "separate": lambda Z: _layer(
        kernels.SeparateIndependent(_three(kernels.SquaredExponential)),
        SeparateIndependentInducingVariables([InducingPoints(Z), InducingPoints(Z + 1)]),
    ),
    "coregionalised": lambda Z: _layer(
        kernels.LinearCoregionalization(_three(kernels.Exponential), W=np.ones([2, 2])), Z, q_diag=True
    ),
    "constant_mean": lambda Z: _layer(
        kernels.Constant() + kernels.Matern12(),
        Z,
        num_latent_gps=2,
        mean_function=gpflow.functions.Constant([0.0, 0.0]),
    ),
}


@pytest.mark.parametrize("name", LAYERS)
def test_every_kernel_and_inducing_variable(name: str, rng: np.random.Generator, tmp_path: Path) -> None:
    model = DeepGP([LAYERS[name](rng.normal(size=(4, 3)))], likelihoods.Gaussian(), num_data=30)
    _perturb(model, rng)
    save_model(model, tmp_path / "model.npz")
    _assert_same(model, load_model(tmp_path / "model.npz"), rng.normal(size=(6, 3)))


def test_quadrature(rng: np.random.Generator, tmp_path: Path) -> None:
    X, Y = _data(rng, None)
    layers = paper2017(X, Y, 2, num_inducing=4, hidden_dim=1).layers
    for model in (
        DeepGPQuad(layers, likelihoods.Gaussian(), num_nodes=6),
        DeepGP(layers, likelihoods.Gaussian(), integrator=GaussHermite(5)),
    ):
        save_model(model, tmp_path / "model.npz")
        loaded = load_model(tmp_path / "model.npz")
        assert loaded.integrator == model.integrator
        _assert_same(model, loaded, X[:6])


def test_float32(rng: np.random.Generator, tmp_path: Path) -> None:
    gpflow.config.set_default_float(np.float32)
    X, Y = (part.astype(np.float32) for part in _data(rng, None))
    model = paper2017(X, Y, 2, num_inducing=4)
    save_model(model, tmp_path / "model.npz")
    _assert_same(model, load_model(tmp_path / "model.npz"), X[:6])
    gpflow.config.set_default_float(np.float64)
    with pytest.raises(ValueError, match=r"float32 model.*set_default_float\(np.float32\)"):
        load_model(tmp_path / "model.npz")


class _OwnKernel(kernels.SquaredExponential):
    """A user's kernel, of which the file could not say what it computes."""


def test_what_cannot_be_saved_is_refused_and_nothing_is_written(rng: np.random.Generator, tmp_path: Path) -> None:
    Z, target = rng.normal(size=(4, 3)), tmp_path / "model.npz"
    target.write_bytes(b"an older model")
    cases: list[tuple[str, DeepGP]] = [
        ("kernel _OwnKernel", DeepGP([SVGPLayer(_OwnKernel(), Z)], likelihoods.Gaussian())),
        ("kernel Cosine", DeepGP([SVGPLayer(kernels.Cosine(), Z)], likelihoods.Gaussian())),
        ("likelihood Beta", DeepGP([SVGPLayer(kernels.Matern12(), Z)], likelihoods.Beta())),
        ("likelihood Poisson", DeepGP([SVGPLayer(kernels.Matern12(), Z)], likelihoods.Poisson(tf.nn.softplus))),
        (
            "mean function Polynomial",
            DeepGP(
                [SVGPLayer(kernels.Matern12(), Z, mean_function=gpflow.functions.Polynomial(2, 3))],
                likelihoods.Gaussian(),
            ),
        ),
    ]
    for part, model in cases:
        with pytest.raises(ValueError, match=f"the {part} .*cannot be saved"):
            save_model(model, target)
    transformed = DeepGP([SVGPLayer(kernels.Matern12(), Z)], likelihoods.Gaussian(variance_lower_bound=0.5))
    with pytest.raises(ValueError, match=r"\.likelihood\.variance cannot be saved: its transform"):
        save_model(transformed, target)
    assert target.read_bytes() == b"an older model"
    assert [path.name for path in tmp_path.iterdir()] == ["model.npz"]


def test_damaged_files(rng: np.random.Generator, tmp_path: Path) -> None:
    path = tmp_path / "model.npz"
    with pytest.raises(ValueError, match=r"model\.npz is no complete file"):
        load_model(path)
    save_model(DeepGP([SVGPLayer(kernels.Matern12(), rng.normal(size=(4, 3)))], likelihoods.Gaussian()), path)
    content = path.read_bytes()
    with np.load(path) as stored:
        arrays = dict(stored)
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match="is no complete file"):
        load_model(path)

    def rewritten(**changes: Any) -> None:
        np.savez(path, **{**arrays, **changes})

    np.savez(path, **{name: value for name, value in arrays.items() if name != ".likelihood.variance"})
    with pytest.raises(ValueError, match=r"has not the parameters of its structure: \.likelihood\.variance"):
        load_model(path)
    rewritten(**{".likelihood.variance": np.zeros(3)})
    with pytest.raises(ValueError, match=r"\.likelihood\.variance must be float64 \[\], got float64 \[3\]"):
        load_model(path)
    config = json.loads(str(arrays["config"]))
    rewritten(config=np.array(json.dumps({**config, "format": 99})))
    with pytest.raises(ValueError, match="must have format 1, got 99"):
        load_model(path)
    del config["model"]["layers"][0]["whiten"]
    rewritten(config=np.array(json.dumps(config)))
    with pytest.raises(ValueError, match="damaged structure"):
        load_model(path)
