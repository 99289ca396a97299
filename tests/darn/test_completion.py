"""Missing bits against enumeration, by models whose encoders are trained."""

import functools
import warnings
from typing import Any

import numpy as np
import pytest

from darn import DARN, DARNConfig, Trainer, TrainingConfig, complete, exact_log_likelihood
from darn.more.completion import completed
from tests.darn.rows import every_row

N_X = 10
KINDS: dict[str, dict[str, Any]] = {
    "linear": {"hidden": (6,), "units": (8,)},
    "factorial": {"hidden": (8,), "units": (10,), "visible_conditional": "factorial"},
    "skips": {"hidden": (4, 3), "skip": True, "visible_conditional": "factorial"},
    "two layers": {"hidden": (4, 3), "visible_conditional": "factorial"},
    "linear encoder": {"hidden": (6,), "encoder": "linear", "visible_conditional": "factorial"},
    "no units": {"hidden": (), "visible_conditional": "made", "conditional_units": 5},
    "independent": {"hidden": (), "visible_conditional": "factorial"},
    "orders": {"hidden": (2,), "visible_conditional": "made", "conditional_units": 5, "orders": 2},
}


@functools.cache
def rows() -> np.ndarray:
    """Three patterns with noise."""
    rng = np.random.default_rng(0)
    return (rng.integers(0, 2, (3, N_X))[rng.integers(0, 3, 500)] ^ (rng.uniform(size=(500, N_X)) < 0.1)).astype(int)


@functools.cache
def trained(kind: str) -> DARN:
    x = rows()
    model = DARN(DARNConfig(N_X, dtype="float64", **KINDS[kind]), seed=1, data=x)
    trainer = Trainer(model, TrainingConfig(learning_rate=0.02), num_data=len(x))
    for i in range(2):
        trainer.advance(x, np.random.default_rng(i).integers(0, len(x), (200, 50)), i)
    return model


@functools.cache
def probabilities(kind: str) -> np.ndarray:
    return np.exp(exact_log_likelihood(trained(kind), every_row(N_X)))


def enumerated(kind: str, x: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """From the probabilities of all rows, one row after the other."""
    found, every, p = x.astype(float), every_row(N_X), probabilities(kind)
    for i, (row, missing) in enumerate(zip(x, mask, strict=True)):
        weights = p * np.all((every == row) | missing, axis=1)
        found[i, missing] = (weights @ every / weights.sum())[missing]
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_few_states_are_summed_exactly(kind: str, rng: np.random.Generator) -> None:
    """No row has more than 16 missing bits and units; a factorial decoder may have any number of missing bits."""
    x = rows()[:40]
    most = N_X if "factorial" in KINDS[kind].values() else 16 - sum(KINDS[kind]["hidden"])
    mask = rng.uniform(size=x.shape).argsort(axis=1) < rng.integers(0, min(most, N_X) + 1, len(x))[:, None]
    found = complete(trained(kind), np.where(mask, 7, x), mask)
    np.testing.assert_allclose(found, enumerated(kind, x, mask), atol=1e-9)
    np.testing.assert_array_equal(found[~mask], x[~mask])


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "orders"])
def test_more_are_drawn_until_the_draws_suffice(kind: str, rng: np.random.Generator) -> None:
    """With 800 effective samples the standard error is at most 0.018: beyond six of it once in 5e8 of 160 bits."""
    x = rows()[:40]
    mask = rng.uniform(size=x.shape) < 0.4
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = complete(trained(kind), np.where(mask, 7, x), mask, seed=3, max_exact_bits=0, min_effective=800)
    expected = enumerated(kind, x, mask)
    np.testing.assert_allclose(found, expected, atol=0.11)
    assert np.sqrt(np.square(found - expected)[mask].mean()) < 0.02


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "orders"])
@pytest.mark.parametrize("is_exact", [True, False])
def test_how_probable_the_known_bits_are(kind: str, is_exact: bool, rng: np.random.Generator) -> None:
    """A mean of draws with 2,000 effective ones has a standard error of at most 1 / sqrt(2,000) of its value: beyond
    six of it once in 5e8 of 20 rows."""
    x = rows()[:20]
    mask = rng.uniform(size=x.shape) < 0.4
    found = completed(trained(kind), x, mask, max_exact_bits=16 if is_exact else 0, min_effective=2000)
    p = probabilities(kind)
    for row, missing, log_known in zip(x, mask, found.log_known, strict=True):
        if missing.any():
            expected = np.log(p[((every_row(N_X) == row) | missing).all(axis=1)].sum())
            assert log_known == pytest.approx(expected, abs=1e-9 if is_exact else 6.0 / np.sqrt(2000.0))
    np.testing.assert_array_equal(np.isnan(found.log_known), ~mask.any(axis=1))


def test_an_encoder_that_is_sure_of_the_wrong_code_is_no_harm(rng: np.random.Generator) -> None:
    x = rows()[:8]
    mask = rng.uniform(size=x.shape) < 0.4
    model = trained("factorial")
    bias = model.encoders[0].conditional.bias
    before = bias.numpy()
    bias.assign(-bias + np.where(rng.uniform(size=8) < 0.5, 20.0, -20.0))
    try:
        found = complete(model, x, mask, max_exact_bits=0, min_effective=400)
    finally:
        bias.assign(before)
    np.testing.assert_allclose(found, enumerated("factorial", x, mask), atol=0.15)


def test_too_few_draws_are_warned_of() -> None:
    x = rows()[:20]
    with pytest.warns(
        UserWarning, match=r"missing bits of 20 of 20 rows have fewer than 200 effective .* after 20 draws"
    ) as found:
        complete(trained("factorial"), x, np.arange(N_X) < 5 + 0 * x, max_exact_bits=0, max_samples=20)
    assert [warning.filename for warning in found] == [__file__]


def test_what_is_wrong_is_said() -> None:
    x, model = rows(), trained("linear")
    with pytest.raises(ValueError, match="booleans of the shape of x"):
        complete(model, x, np.ones((1, N_X), bool))
    with pytest.raises(ValueError, match="booleans of the shape of x"):
        complete(model, x, np.ones_like(x))
    with pytest.raises(ValueError, match="x must be 0 or 1 everywhere, got 2"):
        complete(model, 2 + 0 * x, x > 0)
    with pytest.raises(ValueError, match="max_exact_bits must be from 0 to 16, got 17"):
        complete(model, x, x > 0, max_exact_bits=17)
    for wrong in ({"max_samples": 0}, {"min_effective": 0.0}):
        with pytest.raises(ValueError, match="max_samples must be at least 1 and min_effective positive"):
            complete(model, x, x > 0, **wrong)
    with pytest.raises(ValueError, match="cannot be drawn in order, and are too many"):
        complete(trained("orders"), x, x > 0, max_exact_bits=3)
