"""Cholesky with escalating jitter, quadratic forms and the fast squared-exponential kernel."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf

from gpflow_deep.layers.moments import (
    MAX_JITTER_FACTOR,
    add_diagonal,
    condition_number,
    quadratic_form,
    robust_cholesky,
    scaled_rbf,
)
from tests.gpflow_deep.oracles import rbf


def spd(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Positive definite matrices [..., M, M] with condition number below 100."""
    root = rng.standard_normal(shape) / np.sqrt(shape[-1])
    return root @ np.swapaxes(root, -1, -2) + 0.1 * np.eye(shape[-1])


# Cholesky.


@pytest.mark.parametrize("shape", [(4, 4), (3, 4, 4), (2, 3, 4, 4)])
@pytest.mark.parametrize("compiled", [False, True])
def test_cholesky_has_the_value_and_gradient_of_tensorflow(
    rng: np.random.Generator, shape: tuple[int, ...], compiled: bool
) -> None:
    K, weight = tf.constant(spd(rng, *shape)), tf.constant(rng.standard_normal(shape))

    def ours(K: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(K)
            L = robust_cholesky(K, label="K", jitter=1e-6)
            loss = tf.reduce_sum(weight * tf.sin(L))
        return L, tape.gradient(loss, K)

    L, gradient = (tf.function(ours, autograph=False) if compiled else ours)(K)
    with tf.GradientTape() as tape:
        tape.watch(K)
        expected = tf.linalg.cholesky(K + 1e-6 * tf.eye(4, dtype=K.dtype))
        loss = tf.reduce_sum(weight * tf.sin(expected))
    np.testing.assert_allclose(L, expected, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(gradient, tape.gradient(loss, K), rtol=1e-10, atol=1e-12)


def test_cholesky_adds_gpflows_jitter(rng: np.random.Generator) -> None:
    K = spd(rng, 3, 3)
    L = robust_cholesky(tf.constant(K), label="K").numpy()
    np.testing.assert_allclose(L @ L.T, K + 1e-6 * np.eye(3), rtol=1e-13)
    with gpflow.config.as_context(gpflow.config.Config(jitter=1e-2)):
        L = robust_cholesky(tf.constant(K), label="K").numpy()
    np.testing.assert_allclose(L @ L.T, K + 1e-2 * np.eye(3), rtol=1e-13)


def second_order(function, x: np.ndarray, direction: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Hessian times `direction` by two tapes, and by central differences of the gradient."""

    def gradient(x: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = function(x)
        return tape.gradient(loss, x)

    x_tensor = tf.constant(x)
    with tf.GradientTape() as tape:
        tape.watch(x_tensor)
        inner = tf.reduce_sum(gradient(x_tensor) * direction)
    h = 1e-5
    differences = gradient(tf.constant(x + h * direction)) - gradient(tf.constant(x - h * direction))
    return tape.gradient(inner, x_tensor).numpy(), differences.numpy() / (2 * h)


def test_cholesky_second_order_gradient(rng: np.random.Generator) -> None:
    weight, direction = rng.standard_normal((4, 4)), spd(rng, 4, 4)
    exact, numeric = second_order(
        lambda K: tf.reduce_sum(weight * tf.sin(robust_cholesky(K, label="K"))), spd(rng, 4, 4), direction
    )
    # Central differences: truncation h^2 times a fourth derivative (up to 1e4 at eigenvalues of 0.1), about 1e-6.
    np.testing.assert_allclose(exact, numeric, rtol=1e-5, atol=1e-5 * np.max(np.abs(numeric)))


@pytest.mark.parametrize("compiled", [False, True])
def test_singular_matrix_gets_more_jitter(compiled: bool) -> None:
    """The matrix of ones minus 3e-5 I: the first jitter that makes it positive is 1e-4."""
    K = tf.constant(np.ones((5, 5)) - 3e-5 * np.eye(5))

    def factor(K: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(K)
            L = robust_cholesky(K, label="K", jitter=1e-6)
            loss = tf.reduce_sum(L)
        return L, tape.gradient(loss, K)

    L, gradient = (tf.function(factor, autograph=False) if compiled else factor)(K)
    np.testing.assert_allclose(L @ tf.transpose(L) - K, 1e-4 * np.eye(5), rtol=0, atol=1e-14)
    assert np.all(np.isfinite(gradient))
    with tf.GradientTape() as tape:  # the gradient is that of the successful attempt
        tape.watch(K)
        loss = tf.reduce_sum(tf.linalg.cholesky(add_diagonal(K, tf.constant(1e-4, tf.float64))))
    np.testing.assert_allclose(gradient, tape.gradient(loss, K), rtol=1e-8)


def test_one_bad_matrix_in_a_batch(rng: np.random.Generator) -> None:
    K = np.stack([spd(rng, 3, 3), np.ones((3, 3)) - 3e-5 * np.eye(3)])
    L = robust_cholesky(tf.constant(K), label="K", jitter=1e-6).numpy()
    np.testing.assert_allclose(L @ np.swapaxes(L, 1, 2) - K, np.tile(1e-4 * np.eye(3), [2, 1, 1]), atol=1e-12)


@pytest.mark.parametrize("compiled", [False, True])
def test_hopeless_matrix_is_an_error_that_says_why(compiled: bool) -> None:
    def factor(K: tf.Tensor) -> tf.Tensor:
        details = [("lengthscales", tf.constant([3.25, 7.5]))]
        return robust_cholesky(K, label="layer 2 of 3: Kuu", details=details)

    factor = tf.function(factor, autograph=False) if compiled else factor
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        factor(tf.constant(np.diag([1.0, -1.0, 4.0])))
    message = str(caught.value)
    for part in ("layer 2 of 3: Kuu", "largest jitter tried", "condition number", "inf", "lengthscales", "3.25"):
        assert part in message, f"{part} is not in: {message}"
    assert "Standardise the inputs" in message


@pytest.mark.parametrize("compiled", [False, True])
def test_nan_is_an_error(compiled: bool) -> None:
    K = np.eye(3)
    K[1, 0] = K[0, 1] = np.nan
    factor = lambda K: robust_cholesky(K, label="layer 1 of 2: Kuu")  # noqa: E731
    factor = tf.function(factor, autograph=False) if compiled else factor
    with pytest.raises(tf.errors.InvalidArgumentError, match="layer 1 of 2: Kuu"):
        factor(tf.constant(K))


def test_jitter_has_a_limit() -> None:
    """Diagonal of mean 1: the last jitter tried is at most MAX_JITTER_FACTOR; what needs more is an error."""
    barely = np.ones((4, 4)) - 0.05 * MAX_JITTER_FACTOR * np.eye(4)
    assert np.all(np.isfinite(robust_cholesky(tf.constant(barely), label="K")))
    with pytest.raises(tf.errors.InvalidArgumentError):
        robust_cholesky(tf.constant(np.ones((4, 4)) - 3 * MAX_JITTER_FACTOR * np.eye(4)), label="K")


def test_condition_number(rng: np.random.Generator) -> None:
    Q, _ = np.linalg.qr(rng.standard_normal((4, 4)))
    K = np.stack([Q @ np.diag([1.0, 2.0, 3.0, 50.0]) @ Q.T, np.diag([2.0, 2.0, 2.0, 4.0])])
    np.testing.assert_allclose(condition_number(tf.constant(K)), 50.0, rtol=1e-10)
    assert condition_number(tf.constant(np.diag([1.0, 0.0]))) == np.inf


# Quadratic forms.


def form_by_einsum(A: tf.Tensor, S: tf.Tensor) -> tf.Tensor:
    return tf.einsum("mb,pmk,kb->bp", A, S, A) if A.shape.rank == 2 else tf.einsum("pmb,pmk,pkb->bp", A, S, A)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("is_shared", [True, False])
def test_quadratic_form_value_and_gradient(rng: np.random.Generator, is_shared: bool, compiled: bool) -> None:
    A = tf.constant(rng.standard_normal((4, 6) if is_shared else (3, 4, 6)))
    S, weight = tf.constant(spd(rng, 3, 4, 4)), rng.standard_normal((6, 3))
    results = []
    for form in (quadratic_form, form_by_einsum):

        def with_gradients(A: tf.Tensor, S: tf.Tensor, form=form) -> tuple[tf.Tensor, list[tf.Tensor]]:
            with tf.GradientTape() as tape:
                tape.watch([A, S])
                value = form(A, S)
                loss = tf.reduce_sum(weight * tf.sin(value))
            return value, tape.gradient(loss, [A, S])

        results.append((tf.function(with_gradients, autograph=False) if compiled else with_gradients)(A, S))
    (value, (dA, dS)), (expected, (expected_dA, expected_dS)) = results
    np.testing.assert_allclose(value, expected, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(dA, expected_dA, rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(dS, expected_dS, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("is_shared", [True, False])
def test_quadratic_form_second_order_gradient(rng: np.random.Generator, is_shared: bool) -> None:
    A, S = rng.standard_normal((4, 6) if is_shared else (3, 4, 6)), spd(rng, 3, 4, 4)
    exact, numeric = second_order(
        lambda A: tf.reduce_sum(tf.sin(quadratic_form(A, tf.constant(S)))), A, rng.standard_normal(A.shape)
    )
    # h^2 times third derivatives of sin(a'Sa), up to 1e3, and rounding 1e-16 / h.
    np.testing.assert_allclose(exact, numeric, rtol=1e-6, atol=1e-6 * np.max(np.abs(numeric)))


# The kernel.


@pytest.mark.parametrize("ard", [True, False])
def test_scaled_rbf_is_gpflows_kernel(rng: np.random.Generator, ard: bool) -> None:
    Z, X = tf.constant(rng.standard_normal((5, 3))), tf.constant(rng.standard_normal((7, 3)))
    kernel = gpflow.kernels.SquaredExponential(variance=1.7, lengthscales=[0.5, 1.0, 2.0] if ard else 0.8)

    def fast() -> tf.Tensor:
        return scaled_rbf(Z, X, tf.convert_to_tensor(kernel.variance), tf.convert_to_tensor(kernel.lengthscales))

    results = []
    for function in (fast, lambda: kernel(Z, X)):
        with tf.GradientTape() as tape:
            tape.watch([Z, X])
            value = function()
            loss = tf.reduce_sum(tf.sin(3 * value))
        results.append((value, tape.gradient(loss, [Z, X, *kernel.trainable_variables])))
    np.testing.assert_allclose(results[0][0], results[1][0], rtol=1e-12)
    np.testing.assert_allclose(
        results[0][0], rbf(Z.numpy(), X.numpy(), kernel.variance.numpy(), kernel.lengthscales.numpy()), rtol=1e-12
    )
    for ours, gpflows in zip(results[0][1], results[1][1], strict=True):
        np.testing.assert_allclose(ours, gpflows, rtol=1e-9, atol=1e-12)


def test_scaled_rbf_far_from_the_origin(rng: np.random.Generator) -> None:
    """Centring: with an offset of 1e4 the expanded square would lose 1e8 * 1e-16 = 1e-8 without it."""
    Z, X = rng.standard_normal((5, 2)), rng.standard_normal((7, 2))
    K = scaled_rbf(tf.constant(Z + 1e4), tf.constant(X + 1e4), tf.constant(2.0, tf.float64), tf.ones(2, tf.float64))
    np.testing.assert_allclose(K, rbf(Z + 1e4, X + 1e4, 2.0, 1.0), rtol=1e-11)


def test_scaled_rbf_in_float32_on_unscaled_inputs(rng: np.random.Generator) -> None:
    """The exponent's rounding error is 6e-8 * (1e4 / 0.05)^2 = 2e3 here: no kernel value may exceed the variance."""
    Z = tf.constant(1e4 * rng.standard_normal((40, 2)), tf.float32)
    K = scaled_rbf(Z, Z, tf.constant(2.0), tf.constant([0.05, 0.05]))
    assert np.all(np.isfinite(K))
    assert np.max(K) <= np.float32(2.0) * (1 + 1e-6)
