"""log p(x) by enumeration and by importance sampling, against brute force."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from darn.model.description_length import description_length, exact_log_likelihood, importance_log_likelihood
from darn.model.model import DARN, DARNConfig

N_X = 5
KINDS: dict[str, dict] = {
    "factorial": {"hidden": (4,), "units": (6,), "visible_conditional": "factorial"},
    "visible": {"hidden": (4,), "visible_conditional": "linear"},
    "deep": {"hidden": (3, 2), "skip": True, "visible_conditional": "nade", "conditional_units": 4},
    "mixture": {"hidden": (2,), "visible_conditional": "eonade", "orders": 3, "conditional_units": 4},
    "fully visible": {"hidden": (), "visible_conditional": "made", "conditional_units": 4},
}


def make(kind: str, seed: tf.Tensor, **changes) -> DARN:
    model = DARN(DARNConfig(visible=N_X, dtype="float64", **{**KINDS[kind], **changes}), seed=seed)
    for i, variable in enumerate(model.trainable_variables):
        key = tf.random.experimental.stateless_fold_in(seed, i)
        variable.assign_add(0.5 * tf.random.stateless_normal(variable.shape, key, dtype=tf.float64))
    return model


def brute_force(model: DARN, x: np.ndarray) -> np.ndarray:
    """log sum_h p(x, h), one h at a time."""
    total = np.full(len(x), -np.inf)
    for state in itertools.product([0.0, 1.0], repeat=model.num_hidden):
        h = tf.repeat(tf.constant([state], tf.float64), len(x), axis=0)
        layers = tuple(tf.split(h, model.config.hidden, axis=1)) if model.config.hidden else ()
        total = np.logaddexp(total, model.log_joint(tf.constant(x, tf.float64), layers).numpy())
    return total


@pytest.mark.parametrize("kind", KINDS)
def test_exact_is_brute_force(kind: str, seed: tf.Tensor, rng: np.random.Generator) -> None:
    model, x = make(kind, seed), (rng.uniform(size=(7, N_X)) < 0.5).astype(np.uint8)
    np.testing.assert_allclose(exact_log_likelihood(model, x), brute_force(model, x), rtol=1e-9)


def test_many_states_are_streamed(seed: tf.Tensor, rng: np.random.Generator) -> None:
    """14 units are several blocks of states; float32 agrees with float64."""
    x = (rng.uniform(size=(300, N_X)) < 0.5).astype(np.uint8)
    model = DARN(DARNConfig(N_X, (14,), (5,), visible_conditional="factorial"), seed=seed, data=x)
    wide = DARN(DARNConfig(N_X, (14,), (5,), visible_conditional="factorial", dtype="float64"), seed=seed)
    for variable, value in zip(wide.variables, model.variables, strict=True):
        variable.assign(tf.cast(value, variable.dtype))
    exact = exact_log_likelihood(wide, x)
    np.testing.assert_allclose(exact_log_likelihood(model, x), exact, atol=1e-4)
    h = wide.prior.sample(20_000, seed)
    log_visible = [
        wide.log_visible(tf.repeat(tf.constant(row[None], tf.float64), 20_000, axis=0), (h,)) for row in x[:2]
    ]
    for estimate, value in zip(np.mean(np.exp(log_visible), axis=1), exact[:2], strict=True):
        assert np.log(estimate) == pytest.approx(value, abs=0.2)


@pytest.mark.parametrize("kind", ["deep", "mixture"])
def test_importance_sampling_comes_from_below_and_gets_better(
    kind: str, seed: tf.Tensor, rng: np.random.Generator
) -> None:
    model, x = make(kind, seed), (rng.uniform(size=(20, N_X)) < 0.5).astype(np.uint8)
    exact = exact_log_likelihood(model, x).mean()
    bound = -description_length(model, x, seed=seed, num_samples=50).total.mean()
    few, many = (importance_log_likelihood(model, x, seed=seed, num_samples=S, repeats=10) for S in (3, 300))
    half = few.interval[1] - few.mean
    assert bound < few.mean + 2 * half  # the bound is the case S = 1
    assert few.mean < exact + 2 * half
    assert few.mean < many.mean
    np.testing.assert_allclose(many.mean, exact, atol=4 * (many.interval[1] - many.mean) + 0.01)


def test_the_estimate_does_not_depend_on_padding(seed: tf.Tensor, rng: np.random.Generator) -> None:
    model, x = make("factorial", seed), (rng.uniform(size=(7, N_X)) < 0.5).astype(np.uint8)
    estimated = importance_log_likelihood(model, x, seed=seed, num_samples=2000, repeats=2, batch_size=4)
    np.testing.assert_allclose(estimated.log_likelihood, exact_log_likelihood(model, x), atol=0.3)
    assert estimated.repeats.shape == (2,)
    assert estimated.interval[0] <= estimated.mean <= estimated.interval[1]


def test_effective_numbers_of_samples(seed: tf.Tensor, rng: np.random.Generator) -> None:
    """All S where q is the posterior, in several chunks; one of one; few where q is nearly sure of the wrong state."""
    x = (rng.uniform(size=(3, N_X)) < 0.5).astype(np.uint8)
    model = DARN(DARNConfig(visible=N_X, hidden=(2,), dtype="float64"), seed=seed)
    for variable in model.trainable_variables:
        variable.assign(tf.zeros_like(variable))
    np.testing.assert_allclose(importance_log_likelihood(model, x, seed=seed, num_samples=70).effective, 70.0)
    model.encoders[0].conditional.bias.assign([-6.0, 0.0])  # a half of the posterior has a chance of 1 / 404
    effective = importance_log_likelihood(model, x, seed=seed, num_samples=2000, repeats=4).effective
    expected = 2000 / (0.25 / (404 / 405) + 0.25 * 405)  # S / E[w^2] for E[w] = 1
    np.testing.assert_allclose(effective, expected, rtol=0.7)
    other = make("factorial", seed)
    np.testing.assert_allclose(importance_log_likelihood(other, x, seed=seed, num_samples=1).effective, 1.0)


def test_chunks_are_masked_to_the_wanted_number_of_samples(
    seed: tf.Tensor, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With chunks of 64 samples, 100 are two chunks, the second of which counts in part."""
    model, x = make("factorial", seed), (rng.uniform(size=(3, N_X)) < 0.5).astype(np.uint8)
    monkeypatch.setattr("darn.model.description_length._BLOCK_NUMBERS", 64 * 3 * 5)
    small = importance_log_likelihood(model, x, seed=seed, num_samples=100, repeats=50)
    monkeypatch.setattr("darn.model.description_length._BLOCK_NUMBERS", 100 * 3 * 5)
    large = importance_log_likelihood(model, x, seed=seed, num_samples=100, repeats=50)
    half = small.interval[1] - small.mean
    assert abs(small.mean - large.mean) < 4 * half
    assert small.repeats.std() == pytest.approx(large.repeats.std(), rel=0.5)


def test_too_many_units_are_one_clear_error(seed: tf.Tensor) -> None:
    with pytest.raises(ValueError, match="at most 16 stochastic units, got 17; use importance_log_likelihood"):
        exact_log_likelihood(make("factorial", seed, hidden=(9, 8)), np.zeros((2, N_X)))


def test_bad_arguments_are_refused(seed: tf.Tensor) -> None:
    model = make("factorial", seed)
    with pytest.raises(ValueError, match="must be 0 or 1"):
        exact_log_likelihood(model, np.full((2, N_X), 0.5))
    with pytest.raises(ValueError, match="at least 1"):
        importance_log_likelihood(model, np.zeros((2, N_X)), seed=seed, num_samples=0)
