import numpy as np
import pytest
import tensorflow as tf
from scipy import special, stats

from ebp.network.heads import log_ndtr, mills_ratio

TAIL = np.array([-1000, -300, -100, -39, -30.1, -29.9, -20, -8, -5, -4.001, -3.999, -1, -1e-3, 0, 0.5, 2, 5])


def exact_ratio(z: np.ndarray) -> np.ndarray:
    """phi(z) / Phi(z) in float64, from SciPy's log Phi, which keeps its digits for z < 0."""
    return np.exp(stats.norm.logpdf(z) - special.log_ndtr(z))


def test_the_oracle_agrees_with_a_continued_fraction() -> None:
    """Phi(-x) / phi(x) = 1 / (x + 1 / (x + 2 / (x + 3 / ...))), which converges fast for large x."""
    x = np.array([10.0, 100.0, 1000.0])
    tail = x.copy()
    for k in range(200, 0, -1):
        tail = x + k / tail
    # float64 rounds the log of about -x^2 / 2, hence 1e-16 x^2 / 2 at worst
    np.testing.assert_allclose(exact_ratio(-x), tail, rtol=1e-9)


def test_float32_ratio_is_exact_to_rounding() -> None:
    # one erfcx in float32 (a few units of 6e-8), and the rounding of z itself for z > 0, where the slope is z
    np.testing.assert_allclose(mills_ratio(tf.constant(TAIL, tf.float32)), exact_ratio(TAIL), rtol=1e-6)


def test_float64_ratio() -> None:
    np.testing.assert_allclose(mills_ratio(tf.constant(TAIL, tf.float64)), exact_ratio(TAIL), rtol=1e-9)


@pytest.mark.parametrize("dtype", [tf.float32, tf.float64])
def test_ratio_is_finite_far_out(dtype: tf.DType) -> None:
    z = tf.constant([-1e18, -1e6, 10.0, 100.0, 1e6], dtype)
    with tf.GradientTape() as tape:
        tape.watch(z)
        r = mills_ratio(z)
    np.testing.assert_allclose(r[:2], [1e18, 1e6], rtol=1e-6)
    np.testing.assert_allclose(r[2:], 0.0, atol=1e-20)
    slope = tape.gradient(r, z)
    np.testing.assert_allclose(slope[:2], -1.0, rtol=1e-5)
    np.testing.assert_allclose(slope[2:], 0.0, atol=1e-20)


@pytest.mark.parametrize(("dtype", "rtol"), [(tf.float32, 1e-5), (tf.float64, 1e-9)])
def test_derivative(dtype: tf.DType, rtol: float) -> None:
    """-r (z + r), where z + r = 1 / (x + 2 / (x + 3 / (x + ...))) for z = -x.

    At z = -4, where the code goes over to the fraction, z + r = 0.2 is a difference of numbers of 4: 20 rounding units.
    """
    z = TAIL
    with tf.GradientTape() as tape:
        x = tf.constant(z, dtype)
        tape.watch(x)
        r = mills_ratio(x)
    excess = z + exact_ratio(z)
    far = -z[z < -2]
    tail = far.copy()
    for k in range(500, 1, -1):
        tail = far + k / tail
    excess[z < -2] = 1 / tail
    np.testing.assert_allclose(tape.gradient(r, x), -exact_ratio(z) * excess, rtol=rtol)


@pytest.mark.parametrize(("dtype", "rtol"), [(tf.float32, 1e-6), (tf.float64, 1e-12)])
def test_log_ndtr(dtype: tf.DType, rtol: float) -> None:
    z = np.array([-1000.0, -50.0, -8.0, -1.001, -0.999, 0.0, 1.0, 4.0])
    np.testing.assert_allclose(log_ndtr(tf.constant(z, dtype)), special.log_ndtr(z), rtol=rtol)
