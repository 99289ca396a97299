"""Shapes that are unknown while tracing: all that GPflow's SVGP accepts, with one layer and with two.

Tensors of unknown rank come from `tf.data.Dataset.from_generator` and `tf.py_function` without shapes.
"""

from collections.abc import Iterator
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf

from gpflow_deep import DeepGP, SVGPLayer
from tests.gpflow_deep.builders import COVARIANCE_SHAPES, make_data, make_model, random_q, spread_inputs

#: What may be known of X: [N, 2].
KNOWN = [
    pytest.param(None, id="rank unknown"),
    pytest.param([None, None], id="sizes unknown", marks=pytest.mark.slow),
    pytest.param([7, None], id="columns unknown", marks=pytest.mark.slow),
]


@pytest.fixture(params=[(2, 2), (2, 2, 2)], ids=["1 layer", "2 layers"])
def model(request: pytest.FixtureRequest, rng: np.random.Generator) -> DeepGP:
    return make_model(rng, request.param, num_data=30, num_predict_samples=4)


def compiled(function: Any, *shapes: Any) -> Any:
    signature = [tf.TensorSpec(shape, tf.float64) for shape in shapes]
    return tf.function(function, input_signature=signature, autograph=False)


def assert_equal(found: Any, expected: Any, rtol: float = 1e-9) -> None:
    for a, b in zip(tf.nest.flatten(found), tf.nest.flatten(expected), strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-9)


@pytest.mark.parametrize("known", KNOWN)
def test_bound_and_gradient(rng: np.random.Generator, model: DeepGP, known: Any) -> None:
    def gradients(X: tf.Tensor, Y: tf.Tensor) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            loss = model.training_loss((X, Y), seed=1)
        return [loss, *tape.gradient(loss, model.trainable_variables)]

    X, Y = make_data(rng, 7, 2, 2)
    assert_equal(compiled(gradients, known, known)(X, Y), gradients(tf.constant(X), tf.constant(Y)), rtol=1e-7)


@pytest.mark.parametrize("known", KNOWN)
def test_predictions_at_points(rng: np.random.Generator, model: DeepGP, known: Any) -> None:
    factors = model.cached_factors()

    def everything(X: tf.Tensor, Y: tf.Tensor) -> list[Any]:
        parts = [model.predict_f(X, full_output_cov=True, factors=factors), model.predict_y(X, factors=factors)]
        parts += [model.predict_log_density((X, Y), factors=factors), model.predict_components(X, factors=factors)]
        samples = model.predict_f_samples(X, 3, False, seed=1, factors=factors)
        return [*parts, samples, *model.predict_all_layers(X, 3, factors=factors)]

    X, Y = make_data(rng, 7, 2, 2)
    assert_equal(compiled(everything, known, known)(X, Y), everything(tf.constant(X), tf.constant(Y)))


@pytest.mark.slow
def test_joint_predictions(rng: np.random.Generator, model: DeepGP) -> None:
    def everything(X: tf.Tensor) -> list[Any]:
        parts: list[Any] = [model.predict_f(X, *shape) for shape in COVARIANCE_SHAPES[1:]]
        parts += [model.predict_components(X, True), model.predict_all_layers(X, 2, True).covs]
        return [*parts, model.predict_f_samples(X, 3, seed=1), model.predict_f_samples(X, seed=1)]

    X = spread_inputs(rng, 4, 2)
    assert_equal(compiled(everything, None)(X), everything(tf.constant(X)), rtol=1e-6)  # roots of joint covariances


@pytest.mark.slow
def test_batches_of_unknown_rank(rng: np.random.Generator, model: DeepGP) -> None:
    def everything(X: tf.Tensor, Y: tf.Tensor) -> list[Any]:
        parts: list[Any] = [model.predict_f(X, *shape) for shape in COVARIANCE_SHAPES]
        parts += [model.predict_y(X), model.predict_log_density((X, Y))]
        return [*parts, model.predict_f_samples(X, 3, seed=1), model.predict_f_samples(X, 3, False, seed=1)]

    X, Y = rng.uniform(-2, 2, (2, 3, 4, 2)), rng.standard_normal((2, 3, 4, 2))
    found = compiled(everything, None, None)(X, Y)
    assert_equal(found, everything(tf.constant(X), tf.constant(Y)), rtol=1e-6)
    assert found[-1].shape == (2, 3, 3, 4, 2)


LIKELIHOODS = {
    "robust max": lambda: gpflow.likelihoods.MultiClass(3),
    "softmax": lambda: gpflow.likelihoods.Softmax(3),
}


@pytest.mark.parametrize("name", LIKELIHOODS)
@pytest.mark.parametrize("widths", [pytest.param((2, 3), marks=pytest.mark.slow), (2, 2, 3)])
def test_classes(rng: np.random.Generator, name: str, widths: tuple[int, ...]) -> None:
    model = make_model(rng, widths, LIKELIHOODS[name](), num_predict_samples=4)
    X, Y = rng.uniform(-1, 1, (7, 2)), rng.integers(0, 3, (7, 1)).astype(float)

    def everything(X: tf.Tensor, Y: tf.Tensor) -> list[Any]:
        return [model.elbo((X, Y), seed=1), model.predict_y(X), model.predict_log_density((X, Y))]

    assert_equal(compiled(everything, None, None)(X, Y), everything(tf.constant(X), tf.constant(Y)))


@pytest.mark.slow
@pytest.mark.parametrize("whiten", [True, False])
@pytest.mark.parametrize("q_diag", [True, False])
def test_scipy_minimises_a_bound_of_unknown_shapes(rng: np.random.Generator, whiten: bool, q_diag: bool) -> None:
    """One layer with the same parts as an SVGP: three steps of L-BFGS end at the same bound."""
    X, Y = make_data(rng, 12, 1, 2)
    Z, (q_mu, q_sqrt) = spread_inputs(rng, 5, 1), random_q(rng, 5, 2, q_diag=q_diag)
    options: dict[str, Any] = {"q_mu": q_mu, "q_sqrt": q_sqrt, "q_diag": q_diag, "whiten": whiten, "num_latent_gps": 2}
    bounds = []
    for is_ours in (True, False):
        parts = [gpflow.kernels.SquaredExponential(), gpflow.likelihoods.Gaussian(), gpflow.mean_functions.Constant()]
        if is_ours:
            layer = SVGPLayer(parts[0], Z, mean_function=parts[2], **options)
            model: Any = DeepGP([layer], parts[1])
        else:
            model = gpflow.models.SVGP(parts[0], parts[1], Z, mean_function=parts[2], **options)
        elbo = tf.function(model.elbo, input_signature=[(tf.TensorSpec(None, tf.float64),) * 2])
        closure = tf.function(lambda elbo=elbo: -elbo((X, Y)))
        gpflow.optimizers.Scipy().minimize(closure, model.trainable_variables, options={"maxiter": 3})
        bounds.append(float(model.elbo((X, Y))))
    np.testing.assert_allclose(bounds[0], bounds[1], rtol=1e-6)


def test_generator_without_shapes_trains(rng: np.random.Generator, model: DeepGP) -> None:
    X, Y = make_data(rng, 12, 2, 2)

    def batches() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for i in range(0, 12, 4):
            yield X[i : i + 4], Y[i : i + 4]

    dataset = tf.data.Dataset.from_generator(batches, (tf.float64, tf.float64))
    assert dataset.element_spec[0].shape.rank is None
    closure = model.training_loss_closure(iter(dataset), seed=1)
    for i in range(0, 12, 4):
        np.testing.assert_allclose(closure(), model.training_loss((X[i : i + 4], Y[i : i + 4]), seed=1), rtol=1e-9)


@pytest.mark.parametrize("known", [None, [None, None]])
def test_wrong_number_of_columns_is_found_when_the_graph_runs(rng: np.random.Generator, known: Any) -> None:
    predict = compiled(make_model(rng, (2, 1)).predict_f, known)
    with pytest.raises(tf.errors.InvalidArgumentError, match="X must have 2 columns, as many as the first layer takes"):
        predict(np.zeros((4, 3)))


def test_number_of_columns_that_no_layer_tells(rng: np.random.Generator) -> None:
    """Inducing variables of a class of the user's own: the layer takes what the kernel takes."""

    class OwnPoints(gpflow.inducing_variables.InducingPoints):
        pass

    q_mu, q_sqrt = random_q(rng, 5, 1)
    layer = SVGPLayer(gpflow.kernels.Matern52(), OwnPoints(spread_inputs(rng, 5, 3)), q_mu=q_mu, q_sqrt=q_sqrt)
    assert layer.input_dim is None
    model, X = DeepGP([layer], gpflow.likelihoods.Gaussian()), rng.standard_normal((4, 3))
    assert_equal(compiled(model.predict_y, None)(X), model.predict_y(X))
