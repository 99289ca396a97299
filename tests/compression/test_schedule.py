"""Learning rate and weight of the KL in each step against the piecewise formulas, and settings that are refused."""

import math
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from compression.train.schedule import SHRINK_BELOW, RecipeConfig, kl_weight_at, learning_rate_at, most_left
from tests.compression.recipes import recipe_config

STEPS = 5  # in an epoch


def kl_weights(config: RecipeConfig, epochs: int) -> np.ndarray:
    return np.array([float(kl_weight_at(config, tf.constant(float(t)), STEPS)) for t in range(epochs * STEPS)])


def test_weight_of_the_kl_grows_stays_and_falls() -> None:
    config = recipe_config(pretrain_epochs=7, epochs=4, warmup=2, kl_weight=0.6, polish_epochs=2, polish_kl=0.05)
    expected = [0.6 * (t + 1) / 10 for t in range(10)] + [0.6] * 10 + [0.05] * 10
    np.testing.assert_allclose(kl_weights(config, 6), expected, rtol=1e-6)


@pytest.mark.parametrize(("warmup", "first"), [(0, [0.5, 0.5]), (0.1, [0.5, 0.5]), (0.4, [0.25, 0.5])])
def test_a_warmup_of_less_than_an_epoch(warmup: float, first: list[float]) -> None:
    np.testing.assert_allclose(kl_weights(RecipeConfig(epochs=1, warmup=warmup, kl_weight=0.5), 1)[:2], first)


def test_a_warmup_that_is_longer_than_the_epochs_is_cut_by_polishing() -> None:
    config = recipe_config(epochs=1, warmup=10, polish_epochs=1, polish_kl=0.0)
    np.testing.assert_allclose(kl_weights(config, 2), [t / 50 for t in range(1, 6)] + [0.0] * 5, rtol=1e-6)


@pytest.mark.parametrize("decay", ["none", "linear", "cosine"])
@pytest.mark.parametrize("is_bayesian", [False, True])
def test_learning_rate_falls_to_zero_over_the_phase(decay: Any, is_bayesian: bool) -> None:
    config = recipe_config(
        pretrain_epochs=2,
        pretrain_learning_rate=0.5,
        epochs=3,
        polish_epochs=1,
        learning_rate=0.2,
        decay=decay,
        decay_from=0.25,
    )
    peak, total = (0.2, 4 * STEPS) if is_bayesian else (0.5, 2 * STEPS)
    for t in range(total + 1):
        left = 1.0 - max(0.0, t / total - 0.25) / 0.75
        factor = {"none": 1.0, "linear": left, "cosine": 0.5 - 0.5 * math.cos(math.pi * left)}[decay]
        found = learning_rate_at(config, tf.constant(float(t)), STEPS, is_bayesian=is_bayesian)
        assert float(found) == pytest.approx(peak * factor, abs=1e-7)


def test_a_decay_that_begins_after_the_end_is_none() -> None:
    config = RecipeConfig(learning_rate=0.2, decay_from=1.0)
    assert float(learning_rate_at(config, tf.constant(300.0), STEPS, is_bayesian=True)) == pytest.approx(0.2)


def test_units_are_removed_every_so_many_epochs_and_before_polishing() -> None:
    settings: dict[str, Any] = {"epochs": 9, "shrink_every": 2}
    for more, removed in (
        ({}, [2, 4, 6, 8]),
        ({"shrink_from": 4}, [4, 6, 8]),
        ({"shrink_every": 0}, []),
        ({"epochs": 8}, [2, 4, 6]),  # after the last epoch it is up to what comes then
    ):
        config = recipe_config(**{**settings, **more})
        assert [(done, most_left(config, done)) for done in range(12) if most_left(config, done) is not None] == [
            (done, SHRINK_BELOW) for done in removed
        ]
    polished = recipe_config(epochs=8, polish_epochs=1)
    assert [most_left(polished, done) for done in (7, 8, 9)] == [None, 1.0, None]


def test_epochs_of_all_phases_are_counted() -> None:
    assert recipe_config(pretrain_epochs=2, epochs=3, polish_epochs=4).num_epochs == 9


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epochs": 0}, "epochs must be finite and at least 1, got 0"),
        ({"warmup": -1.0}, "warmup must be finite and at least 0, got -1.0"),
        ({"kl_weight": math.nan}, "kl_weight must be finite and at least 0, got nan"),
        ({"learning_rate": math.inf}, "learning_rate must be finite"),
        ({"shrink_every": -1}, "shrink_every must be"),
        ({"scale_speed": 0.0}, "scale_speed must be positive and finite, got 0.0"),
        ({"std_cap": 0.0}, "std_cap must be positive and finite, got 0.0"),
        ({"decay_from": 1.5}, "decay_from must be between 0 and 1, got 1.5"),
        ({"initial_log_std": math.nan}, "initial_log_std must be finite"),
        ({"prior": "gnn"}, "prior must be one of gnj, ghs, svd, got 'gnn'"),
        ({"kl": "full"}, "kl must be one of approximate, exact, got 'full'"),
        ({"decay": "step"}, "decay must be one of none, linear, cosine, got 'step'"),
        ({"threshold": ()}, "threshold must be one number, or one for each layer"),
        ({"threshold": (math.nan,)}, "threshold must be one number"),
        ({"prior": "ghs", "kl": "exact"}, "kl=exact needs the prior gnj or svd, got ghs"),
        ({"last_teacher": 3.0}, "last_teacher=3.0 is for the last phase; give last_epochs, or leave it out"),
        ({"last_epochs": 1, "last_teacher": 0.0}, "last_teacher must be positive and finite, got 0"),
    ],
)
def test_impossible_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        recipe_config(**settings)
