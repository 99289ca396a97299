"""Estimators against enumeration (Appendix A)."""

import numpy as np
import pytest
import tensorflow as tf

from darn.model.gradients import (
    ESTIMATORS,
    darn_unit,
    estimate,
    gradient_report,
    straight_through_unit,
)
from darn.model.model import DARN, DARNConfig
from tests.darn.rows import every_row
from tests.statistical import assert_mean_close

N_X, N_H = 5, 4


def make(seed: tf.Tensor, **config) -> DARN:
    model = DARN(DARNConfig(visible=N_X, dtype="float64", **{"hidden": (N_H,), "units": (5,), **config}), seed=seed)
    for i, variable in enumerate(model.trainable_variables):
        key = tf.random.experimental.stateless_fold_in(seed, i)
        variable.assign_add(0.5 * tf.random.stateless_normal(variable.shape, key, dtype=tf.float64))
    return model


def rows(rng: np.random.Generator, num: int) -> np.ndarray:
    return (rng.uniform(size=(num, N_X)) < 0.5).astype(np.float64)


def states(logits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """All states of independent units, and their probabilities."""
    h = every_row(len(logits))
    q = 1 / (1 + np.exp(-logits))
    return h, np.prod(np.where(h, q, 1 - q), axis=1)


def mean_gradient(f, logits: np.ndarray) -> np.ndarray:
    """E over h of the gradient of `darn_unit` for f(h) with independent units, by enumeration."""
    h, weights = states(logits)
    a = tf.constant(np.tile(logits, (len(h), 1)))
    with tf.GradientTape() as tape:
        tape.watch(a)
        bits = darn_unit(a, tf.constant(np.where(h, -np.inf, np.inf)))
        total = tf.reduce_sum(f(bits))
    return weights @ tape.gradient(total, a).numpy()


def exact_gradient(f, logits: np.ndarray) -> np.ndarray:
    h, weights = states(logits)
    return weights @ (f(tf.constant(h, tf.float64)).numpy()[:, None] * (h - 1 / (1 + np.exp(-logits))))


def test_the_estimator_is_unbiased_for_functions_quadratic_in_each_unit(rng: np.random.Generator) -> None:
    """With a product over all units, and squares."""
    A, b = tf.constant(rng.normal(size=(N_H, N_H))), tf.constant(rng.normal(size=N_H))
    logits = 2 * rng.normal(size=N_H)

    def quadratic(h: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(h * (h @ A), -1) + tf.linalg.matvec(h, b) + tf.reduce_prod(h + 0.3, -1)

    np.testing.assert_allclose(mean_gradient(quadratic, logits), exact_gradient(quadratic, logits), atol=1e-12)


def test_the_estimator_is_biased_for_cubic_functions(rng: np.random.Generator) -> None:
    """The trapezoid rule for 3 h^2 gives 3/2 for the integral 1."""
    logits = 2 * rng.normal(size=N_H)
    q = 1 / (1 + np.exp(-logits))
    bias = mean_gradient(lambda h: tf.reduce_sum(h**3, -1), logits) - exact_gradient(
        lambda h: tf.reduce_sum(h**3, -1), logits
    )
    np.testing.assert_allclose(bias, 0.5 * q * (1 - q), rtol=1e-10)


def test_the_logit_form_is_the_formula_of_the_paper(rng: np.random.Generator) -> None:
    """dL/da = (dq/da) f'(h) / (2 q(h)), without its division."""
    logits, noise, slope = (tf.constant(rng.normal(size=(7, 3))) for _ in range(3))
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(logits)
        h = darn_unit(logits, noise)
        through = straight_through_unit(logits, noise)
        total, total_through = tf.reduce_sum(h * slope), tf.reduce_sum(through * slope)
    q = tf.sigmoid(logits)
    expected = q * (1 - q) * slope / (2 * tf.where(h > 0, q, 1 - q))
    np.testing.assert_array_equal(h, tf.cast(noise < logits, tf.float64))
    np.testing.assert_allclose(tape.gradient(total, logits), expected, rtol=1e-12)
    np.testing.assert_allclose(tape.gradient(total_through, logits), q * (1 - q) * slope, rtol=1e-12)


def test_saturated_units_have_finite_gradients() -> None:
    logits = tf.constant([-1000.0, 1000.0])
    with tf.GradientTape() as tape:
        tape.watch(logits)
        total = tf.reduce_sum(darn_unit(logits, tf.constant([0.3, -0.2])))
    np.testing.assert_array_equal(tape.gradient(total, logits), [0.0, 0.0])


@pytest.mark.parametrize("entropy", ["sampled", "exact"])
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_draws_have_the_moments_of_the_report(
    estimator: str, entropy: str, seed: tf.Tensor, rng: np.random.Generator
) -> None:
    """The report enumerates, `estimate` draws: the means and mean squares of the gradient agree."""
    model, num = make(seed), 4_000
    x = rows(rng, 1)
    moments = gradient_report(model, x, [estimator], entropy=entropy)[estimator]
    copies = 2 if estimator == "rloo" else 1
    baseline = tf.constant(expected_cost(model, x, entropy), tf.float64)  # of reinforce, as in the report
    with tf.GradientTape() as tape:
        estimated = estimate(
            model,
            tf.constant(np.repeat(x, num, axis=0)),
            model.encoder_noise(copies * num, seed),
            estimator=estimator,
            entropy=entropy,
            baseline=baseline,
        )
        loss = tf.reduce_sum(estimated.loss)
    gradients = tape.gradient(loss, estimated.logits[0]).numpy().reshape(copies, num, N_H).sum(axis=0)
    scale = np.sqrt(moments.variance[0]) + 1e-12
    assert_mean_close(gradients / scale, moments.mean[0] / scale, min_detectable=0.1)
    second = moments.variance[0] + moments.mean[0] ** 2
    assert_mean_close(gradients**2 / second, np.ones(N_H), min_detectable=1.0)


def expected_cost(model: DARN, x: np.ndarray, entropy: str) -> float:
    """E[f] by enumeration."""
    h = tf.constant(every_row(N_H), tf.float64)
    many = tf.constant(np.repeat(x, len(h), axis=0))
    log_q = model.log_q(many, (h,))
    mean_log_q = tf.reduce_sum(tf.exp(log_q) * log_q)
    cost = -model.log_joint(many, (h,)) + (log_q if entropy == "sampled" else mean_log_q)
    return float(tf.reduce_sum(tf.exp(log_q) * cost))


def test_the_exact_gradient_is_that_of_the_enumerated_objective(seed: tf.Tensor, rng: np.random.Generator) -> None:
    """By differentiating sum_h q(h | x) (log q - log p) with respect to the encoder's biases."""
    model, x = make(seed), rows(rng, 1)
    h = tf.constant(every_row(N_H), tf.float64)
    many = tf.constant(np.repeat(x, len(h), axis=0))
    with tf.GradientTape() as tape:
        log_q = model.log_q(many, (h,))
        total = tf.reduce_sum(tf.exp(log_q) * (log_q - model.log_joint(many, (h,))))
    expected = tape.gradient(total, model.encoders[0].conditional.bias)
    for entropy in ("sampled", "exact"):
        moments = gradient_report(model, x, ["rloo"], entropy=entropy)["rloo"]
        np.testing.assert_allclose(moments.exact[0], expected, rtol=1e-9)


def test_who_is_biased(seed: tf.Tensor, rng: np.random.Generator) -> None:
    model = make(seed)
    report = gradient_report(model, rows(rng, 5))
    for name in ("reinforce", "rloo", "disarm"):
        np.testing.assert_allclose(report[name].relative_bias, 0.0, atol=1e-9)
    bias = {name: np.median(moments.relative_bias) for name, moments in report.items()}
    assert 0 < bias["simpson"] < bias["darn"]
    std = {name: np.median(moments.relative_std) for name, moments in report.items()}
    assert std["darn"] < std["rloo"]


def test_the_baseline_of_a_row_is_the_mean_of_the_others(seed: tf.Tensor, rng: np.random.Generator) -> None:
    model, x = make(seed), tf.constant(rows(rng, 6))
    noise = model.encoder_noise(6, seed)
    costs = estimate(model, x, noise, estimator="reinforce").loss.numpy()
    gradients = []
    for baseline in (None, tf.constant((costs.sum() - costs) / 5.0)):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(estimate(model, x, noise, estimator="reinforce", baseline=baseline).loss)
        gradients.append(tape.gradient(loss, model.encoders[0].conditional.bias).numpy())
    np.testing.assert_allclose(gradients[0], gradients[1], rtol=1e-9)


@pytest.mark.parametrize("estimator", ["darn", "reinforce", "rloo"])
def test_losses_are_description_lengths_of_deep_models(
    estimator: str, seed: tf.Tensor, rng: np.random.Generator
) -> None:
    """The mean loss of all draws is the enumerated description length, and the parts add up."""
    model = make(seed, hidden=(2, 2), skip=True)
    x = rows(rng, 1)
    h = tf.constant(every_row(4), tf.float64)
    layers = tuple(tf.split(h, 2, axis=1))
    many = tf.constant(np.repeat(x, 16, axis=0))
    log_q = model.log_q(many, layers)
    exact = float(tf.reduce_sum(tf.exp(log_q) * (log_q - model.log_joint(many, layers))))
    copies = 2 if estimator == "rloo" else 1
    result = estimate(
        model, tf.constant(np.repeat(x, 3000, axis=0)), model.encoder_noise(3000 * copies, seed), estimator=estimator
    )
    assert_mean_close(result.loss, exact, min_detectable=0.2)
    np.testing.assert_allclose(result.loss, result.prior + result.bits_back + result.visible, rtol=1e-9)


def test_both_gradients_of_the_entropy_have_the_same_mean_in_deep_models(
    seed: tf.Tensor, rng: np.random.Generator
) -> None:
    model = make(seed, hidden=(2, 2), units=())
    x = rows(rng, 3)
    moments = {kind: gradient_report(model, x, ["rloo"], entropy=kind)["rloo"] for kind in ("sampled", "exact")}
    np.testing.assert_allclose(moments["sampled"].exact, moments["exact"].exact, rtol=1e-9)


@pytest.mark.parametrize(
    ("config", "arguments", "message"),
    [
        ({}, {"estimators": ["other"]}, "estimator must be one of"),
        ({}, {"entropy": "none"}, "entropy must be one of"),
        ({"hidden": (2, 2)}, {"estimators": ["disarm"]}, "needs one stochastic layer"),
        ({"hidden": (17,)}, {"estimators": ["darn"]}, "1 to 16 stochastic units, got 17"),
        ({"hidden": (13,)}, {"estimators": ["disarm"]}, "1 to 12 stochastic units, got 13"),
        ({"encoder": "linear"}, {"estimators": ["darn"]}, "needs a factorial encoder"),
        ({"hidden": ()}, {"estimators": ["darn"]}, "got 0"),
    ],
)
def test_what_cannot_be_reported_is_refused(
    config: dict, arguments: dict, message: str, seed: tf.Tensor, rng: np.random.Generator
) -> None:
    model = DARN(DARNConfig(visible=N_X, **{"hidden": (3,), **config}), seed=seed)
    with pytest.raises(ValueError, match=message):
        gradient_report(model, rows(rng, 1), **arguments)


def test_rloo_needs_two_samples(seed: tf.Tensor, rng: np.random.Generator) -> None:
    model = make(seed)
    with pytest.raises(ValueError, match="at least 2 samples"):
        estimate(model, tf.constant(rows(rng, 2)), model.encoder_noise(2, seed), estimator="rloo", num_samples=1)
