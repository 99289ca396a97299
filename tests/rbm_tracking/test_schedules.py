"""Learning rates over the updates, and that another one compiles nothing."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from rbm_tracking.track.settings import SMLConfig
from rbm_tracking.track.updates import learning
from rbm_tracking.track.updates.schedules import learning_rate_at, without_rate


def rates(config: SMLConfig, *steps: int) -> np.ndarray:
    return learning_rate_at(config, tf.constant(steps), tf.float64).numpy()


def test_rates_fall_as_they_should() -> None:
    falling = SMLConfig.paper(learning_rate=0.2, schedule="linear", decay_steps=1000, hold=0.4)
    np.testing.assert_allclose(rates(falling, 0, 400, 700, 999, 1000, 5000), [0.2, 0.2, 0.1, 0.2 / 600, 0, 0])
    cosine = dataclasses.replace(falling, schedule="cosine")
    expected = [0.2, 0.2, 0.1, 0.1 * (1 - np.cos(np.pi / 600)), 0, 0]
    np.testing.assert_allclose(rates(cosine, 0, 400, 700, 999, 1000, 5000), expected, atol=1e-15)
    np.testing.assert_allclose(rates(SMLConfig.paper(learning_rate=0.2, schedule="constant"), 0, 10**6), [0.2, 0.2])
    paper = SMLConfig.paper(learning_rate=0.1, learning_rate_decay=100.0)
    np.testing.assert_allclose(rates(paper, 0, 99, 199, 999), [0.1, 0.1, 0.05, 0.01])


def test_any_function_may_give_the_rate() -> None:
    halved = SMLConfig.paper(learning_rate=5.0, schedule=lambda step: 0.1 * 0.5**step)
    np.testing.assert_allclose(rates(halved, 0, 1, 3), [0.1, 0.05, 0.0125])
    keras = tf.keras.optimizers.schedules.CosineDecay(0.1, 100)
    np.testing.assert_allclose(rates(SMLConfig.paper(schedule=keras), 0, 50, 100), [0.1, 0.05, 0.0], atol=1e-7)
    with pytest.raises(ValueError, match=r"schedule must give .* got -1.0 for update 7"):
        rates(SMLConfig.paper(schedule=lambda step: 1.0 if step < 7 else -1.0), 6, 7)


def test_another_rate_compiles_nothing() -> None:
    first = SMLConfig.paper(learning_rate=0.1, schedule="linear", decay_steps=100, momentum=0.5)
    other = SMLConfig.paper(learning_rate_decay=9.0, momentum=0.5)
    assert without_rate(first) == without_rate(other) != without_rate(SMLConfig.paper())
    before = learning._compiled.cache_info().misses
    for config in (first, other, dataclasses.replace(first, learning_rate=0.01)):
        learning.compiled_updates(config, jit_compile=False)
    assert learning._compiled.cache_info().misses <= before + 1
