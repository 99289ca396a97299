"""`gpflow_deep.posteriors.chain`: a step leaves the right distribution as it is, whatever the noise of the
gradients."""

import numpy as np
import pytest
import tensorflow as tf

from gpflow_deep.posteriors import chain

CHAINS, STEPS = 4000, 400


def stationary(precision: float, size: float, alpha: float) -> float:
    """Variance of z in z' = z + p', p' = (1 - alpha) p - size (precision z + noise) + ..., of which sqrt(2 alpha size)
    is the standard deviation of all noise: from the linear equations of the second moments."""
    A = np.array([[1 - size * precision, 1 - alpha], [-size * precision, 1 - alpha]])  # of (z, p)
    Q = 2 * alpha * size * np.ones((2, 2))
    return float(np.linalg.solve(np.eye(4) - np.kron(A, A), Q.ravel())[0])


@pytest.mark.parametrize(("step_size", "noise", "T"), [(0.1, 0.0, 1.0), (0.2, 3.0, 1.0), (0.3, 30.0, 0.2)])
def test_stationary_distribution_of_a_conjugate_model(
    step_size: float, noise: float, T: float, seed: tf.Tensor
) -> None:
    """U = precision z^2 / 2, with gradients whose noise has a known variance: exact up to O(h^2), and that is known."""
    precision, friction = 2.0, 0.1
    eps = tf.random.stateless_normal([STEPS, 2, CHAINS], seed, dtype=tf.float64)
    start = tf.random.stateless_normal([CHAINS], tf.random.fold_in(seed, 1), dtype=tf.float64) * np.sqrt(T / precision)
    state = chain.start(start)._replace(variance=tf.fill([CHAINS], tf.constant(noise, tf.float64)))

    @tf.function(autograph=False)
    def run(state: chain.ChainState) -> chain.ChainState:
        def body(t: tf.Tensor, state: chain.ChainState) -> tuple[tf.Tensor, chain.ChainState]:
            gradient = precision * state.z + np.sqrt(noise) * eps[t, 0]
            options = {"step_size": step_size, "friction": friction, "temperature": T}
            return t + 1, chain.move(state, gradient, eps[t, 1], weight=tf.constant(0.0), **options)

        return tf.while_loop(lambda t, state: t < STEPS, body, (tf.constant(0), state))[1]

    z = run(state).z.numpy()
    size = min(step_size**2, 0.5 * T / noise) if noise else step_size**2
    expected = T * stationary(precision, size, max(friction, size * noise / T))
    assert abs(expected * precision / T - 1) < 0.05  # O(h^2)
    assert abs(z.var() / expected - 1) < 5 * np.sqrt(2 / CHAINS)
    assert abs(z.mean()) < 5 * np.sqrt(expected / CHAINS)


def test_variance_of_gradients_is_measured(rng: np.random.Generator) -> None:
    """From differences of successive gradients, averaged over the steps: half of their mean square is the variance."""
    count = 100
    gradients = 3.0 + 2.0 * rng.standard_normal((count, 50))
    state = chain.start(tf.zeros([50], tf.float64))._replace(gradient=tf.constant(gradients[0]))
    for t in range(1, count):
        options = {"step_size": 0.1, "friction": 0.1, "weight": tf.constant(1.0 / t, tf.float64)}
        state = chain.move(state, tf.constant(gradients[t]), tf.zeros([50], tf.float64), **options)
    expected = 0.5 * np.mean(np.square(np.diff(gradients, axis=0)), axis=0)
    np.testing.assert_allclose(state.variance, expected, rtol=1e-12)  # a running mean: rounding only
    assert abs(np.mean(state.variance) / 4.0 - 1) < 5 * np.sqrt(3 / (50 * count))


def test_trust(rng: np.random.Generator, caplog: pytest.LogCaptureFixture) -> None:
    """Independent draws count in full; draws of an autoregression by (1 - a) / (1 + a); a drift shows in R-hat."""
    K = 1000
    eps = rng.standard_normal((K, 40))
    slow = np.zeros_like(eps)
    for k in range(1, K):
        slow[k] = 0.9 * slow[k - 1] + eps[k]
    independent, correlated = chain.trust(tf.constant(eps)), chain.trust(tf.constant(slow))
    assert 0.7 * K < independent.effective < 1.3 * K
    assert abs(independent.r_hat - 1) < 0.01
    assert 0.5 < correlated.effective / (K / 19) < 2.0
    drifting = chain.trust(tf.constant(eps + 4.0 * np.linspace(0, 1, K)[:, None]))
    assert drifting.largest_r_hat >= drifting.r_hat > 1.2
    assert caplog.records == []
    with pytest.raises(ValueError, match="at least 4 samples, got 3"):
        chain.trust(tf.zeros([3, 2]))
