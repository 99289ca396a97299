"""Draws of latent GPs: they have the variances that they are given, and no other."""

from pathlib import Path

import gpflow
import numpy as np
import pytest
import tensorflow as tf

from gpflow_deep.layers.moments import LayerMoments, draw, root_of_joint, root_of_variance

PACKAGE = Path(__file__).resolve().parent.parent.parent.parent / "gpflow_deep"


@pytest.mark.parametrize("jitter", [1e-6, 1e-2])
@pytest.mark.parametrize("variance", [0.0, 1e-9, 1e-3, 4.0])
def test_a_draw_has_the_given_variance_whatever_the_jitter_is(variance: float, jitter: float) -> None:
    """Tolerance: the joint covariance gets 100 units in the last place at first, 2.2e-14 of the variance."""
    mean, noise = tf.zeros([1, 3, 2], tf.float64), tf.ones([1, 3, 2], tf.float64)
    marginal = LayerMoments(mean, tf.fill([1, 3, 2], tf.constant(variance, tf.float64)))
    joint = LayerMoments(mean, tf.linalg.diag(tf.fill([1, 2, 3], tf.constant(variance, tf.float64))))
    with gpflow.config.as_context(gpflow.config.Config(jitter=jitter)):
        for moments, full_cov in ((marginal, False), (joint, True)):
            drawn = draw(moments, noise, full_cov=full_cov, label="layer")
            np.testing.assert_allclose(drawn, np.full([1, 3, 2], np.sqrt(variance)), rtol=1e-12, atol=1e-15)


def test_the_slope_of_the_root_is_finite_and_right() -> None:
    variances = tf.constant([-1e-9, 0.0, 1e-300, 1e-12, 1e-6, 4.0], tf.float64)
    with tf.GradientTape() as tape:
        tape.watch(variances)
        root = root_of_variance(variances)
    slopes = tape.gradient(root, variances).numpy()
    assert np.all(np.isfinite(slopes))
    np.testing.assert_allclose(slopes[-2:], [0.5e3, 0.25], rtol=1e-12)
    np.testing.assert_allclose(root, [0.0, 0.0, 1e-294, 1e-6, 1e-3, 2.0], rtol=1e-12)


@pytest.mark.parametrize("dtype", [tf.float64, tf.float32])
@pytest.mark.parametrize("kind", ["certain", "equal rows", "rounding"])
def test_joint_roots_of_singular_covariances_have_finite_slopes(kind: str, dtype: tf.DType) -> None:
    """Also where nothing but rounding is left, with eigenvalues below 0. What a root adds is at most ten times the
    least that makes the matrix positive, or ten times `JOINT_ROUNDING` roundings of its variance."""
    N, eps = 5, np.finfo(dtype.as_numpy_dtype).eps
    noise = np.random.default_rng(0).normal(size=[N, N]) * eps
    matrix = {"certain": np.zeros([N, N]), "equal rows": np.full([N, N], 2.0), "rounding": noise + noise.T}[kind]
    cov = tf.constant(matrix[None], dtype)
    with tf.GradientTape() as tape:
        tape.watch(cov)
        root = root_of_joint(cov, label="layer")
        total = tf.reduce_sum(root)
    assert np.all(np.isfinite(tape.gradient(total, cov)))
    least = max(0.0, -np.min(np.linalg.eigvalsh(matrix)))
    allowed = 10 * least + 10 * 100 * eps * np.max(matrix, initial=0.0) + 1e-29
    np.testing.assert_allclose(root @ tf.linalg.matrix_transpose(root), matrix[None], rtol=0, atol=allowed)


def test_only_covariances_of_inducing_outputs_have_the_jitter_of_gpflow() -> None:
    """A constant that a global setting moves is no part of a model: GPflow adds it to Kuu, and so do we, there only,
    by one function, and only where a layer has no jitter of its own."""
    texts = {path.name: path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py")}
    readers = {name for name, text in texts.items() if "default_jitter" in text}
    # Besides, the record in files, comments, and the Kuu of kernels that are compared before a model is built.
    assert readers == {"moments.py", "serialization.py", "diagnostics.py", "single_layer.py", "svgp.py"}
    assert "default_jitter()" not in texts["svgp.py"]
    assert {name for name, text in texts.items() if "jitter_of(self" in text} == {"svgp.py", "global_inducing.py"}
