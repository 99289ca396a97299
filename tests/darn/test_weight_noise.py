"""Adaptive weight noise against automatic differentiation and TFP's KL."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

from darn.model.weight_noise import WeightNoise, fit_prior
from tests.statistical import assert_mean_close

NUM_DATA = 50


def make(kind: str, seed: tf.Tensor) -> WeightNoise:
    first, second = tf.unstack(tf.random.experimental.stateless_split(seed, 2))
    variables = [
        tf.Variable(tf.random.stateless_normal([3, 2], first, dtype=tf.float64)),
        tf.Variable(tf.random.stateless_normal([4], second, dtype=tf.float64)),
    ]
    noise = WeightNoise(variables, initial_std=0.1, kind=kind)
    for variance in noise.log_variances:
        variance.assign_add(tf.random.stateless_normal(variance.shape, first, dtype=tf.float64))
    return noise


def test_the_kl_is_that_of_gaussians(seed: tf.Tensor) -> None:
    noise = make("graves", seed)
    expected = 0.0
    for mu, rho in zip(noise.variables_, noise.log_variances, strict=True):
        prior = fit_prior(mu, tf.exp(rho))
        q = tfp.distributions.Normal(mu, tf.exp(0.5 * rho))
        p = tfp.distributions.Normal(prior.mean, tf.sqrt(prior.variance))
        expected += tf.reduce_sum(tfp.distributions.kl_divergence(q, p))
    np.testing.assert_allclose(noise.kl(), expected, rtol=1e-10)


def test_the_prior_is_the_best(seed: tf.Tensor, rng: np.random.Generator) -> None:
    """Any other prior has a larger KL."""
    mu, std = tf.constant(rng.normal(size=7)), tf.constant(rng.uniform(0.1, 2.0, size=7))
    best = fit_prior(mu, tf.square(std))
    q = tfp.distributions.Normal(mu, std)

    def kl(mean: float, variance: float) -> float:
        p = tfp.distributions.Normal(tf.constant(mean, tf.float64), tf.sqrt(tf.constant(variance, tf.float64)))
        return float(tf.reduce_sum(tfp.distributions.kl_divergence(q, p)))

    least = kl(float(best.mean), float(best.variance))
    assert least < min(kl(float(best.mean) + d, float(best.variance)) for d in (-0.01, 0.01))
    assert least < min(kl(float(best.mean), float(best.variance) * f) for f in (0.98, 1.02))


@pytest.mark.parametrize("kind", ["graves", "reparameterised"])
def test_without_data_the_gradients_are_those_of_the_kl(kind: str, seed: tf.Tensor) -> None:
    """The prior is at its optimum, so it may be differentiated through or not."""
    noise = make(kind, seed)
    with tf.GradientTape() as tape:
        kl = noise.kl() / NUM_DATA
    expected = tape.gradient(kl, [*noise.variables_, *noise.log_variances])
    zero = [tf.zeros_like(v) for v in noise.variables_]
    d_mean, d_log_variance = noise.gradients(noise.variables_, zero, noise.draw(seed), NUM_DATA, 10)
    for gradient, value in zip([*d_mean, *d_log_variance], expected, strict=True):
        np.testing.assert_allclose(gradient, value, rtol=1e-9)


def test_the_reparameterised_gradient_is_the_chain_rule(seed: tf.Tensor) -> None:
    noise = make("reparameterised", seed)
    eps = noise.draw(seed)
    with tf.GradientTape() as tape:
        loss = tf.add_n([tf.reduce_sum(tf.sin(w)) for w in noise.perturbed(eps)]) + noise.kl() / NUM_DATA
    expected = tape.gradient(loss, [*noise.variables_, *noise.log_variances])
    slopes = [tf.cos(w) for w in noise.perturbed(eps)]
    d_mean, d_log_variance = noise.gradients(noise.variables_, slopes, eps, NUM_DATA, 10)
    for gradient, value in zip([*d_mean, *d_log_variance], expected, strict=True):
        np.testing.assert_allclose(gradient, value, rtol=1e-9)


def test_graves_gradient_is_the_fisher_information_of_one_example(seed: tf.Tensor) -> None:
    """For a mean of B independent gradients with variance F and mean 0, B g^2 / 2 has the mean F / 2."""
    batch, fisher = 20, 1.7
    noise = WeightNoise([tf.Variable(tf.zeros([4000], tf.float64))], initial_std=0.3, kind="graves")
    each = np.sqrt(fisher) * tf.random.stateless_normal([batch, 4000], seed, dtype=tf.float64)
    g = tf.reduce_mean(each, axis=0)
    _, (d_log_variance,) = noise.gradients(noise.variables_, [g], noise.draw(seed), NUM_DATA, batch)
    # variance and prior are equal for all weights with mean 0: the KL's part is zero
    assert_mean_close(d_log_variance / (0.5 * 0.3**2 * fisher), 1.0, min_detectable=0.2)


def test_draws_have_the_wanted_spread(seed: tf.Tensor) -> None:
    noise = WeightNoise([tf.Variable(tf.fill([3, 3000], 2.0))], initial_std=0.2)
    (w,) = noise.perturbed(noise.draw(seed))
    assert_mean_close(np.ravel(w) - 2.0, 0.0, min_detectable=0.02)
    assert_mean_close(np.ravel(np.square(w - 2.0)), 0.04, min_detectable=0.01)


@pytest.mark.parametrize(
    ("arguments", "message"), [({"kind": "other"}, "one of graves"), ({"initial_std": 0}, "positive")]
)
def test_bad_settings_are_refused(arguments: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        WeightNoise([tf.Variable([1.0])], **arguments)
