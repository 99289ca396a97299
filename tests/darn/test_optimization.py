"""Adam in one kernel, and learning rates that rise and fall."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from darn.model.model import DARN, DARNConfig
from darn.train.optimization import FusedAdam, LearningRate, NoiseConfig, TrainingConfig, make_optimizer
from darn.train.training import Trainer
from gpflow_deep_base.numbers.groups import by_group


@pytest.mark.parametrize("settings", [{}, {"beta_1": 0.5, "weight_decay": 0.1}])
def test_fused_adam_is_adam(rng: np.random.Generator, settings: dict[str, float]) -> None:
    """Keras rounds beta_2 to float32: 1 - beta_2 is off by 1.3e-5, a step of 0.1 by half as much, five by 3.3e-6."""
    start, gradients = rng.normal(size=(3, 4)), rng.normal(size=(5, 3, 4))
    found = []
    for kind in (FusedAdam, tf.keras.optimizers.Adam):
        variable, optimizer = tf.Variable(start), kind(0.1, **settings)
        optimizer.build([variable])
        for gradient in gradients:
            optimizer.apply([tf.constant(gradient)], [variable])
        found.append([variable.numpy(), *(v.numpy() for v in optimizer.variables)])
    for own, other in zip(*found, strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-7, atol=5e-6)


def test_learning_rates() -> None:
    def rates(**settings: float | None) -> list[float]:
        return [float(LearningRate(2.0, **settings)(t)) for t in (0, 4, 10, 20)]  # type: ignore[arg-type]

    np.testing.assert_allclose(rates(), 2.0)
    np.testing.assert_allclose(rates(half_life=10), 2.0 * 0.5 ** (np.array([0, 4, 10, 20]) / 10), rtol=1e-6)
    np.testing.assert_allclose(rates(warm_up=10), [0.2, 1.0, 2.0, 2.0], rtol=1e-6)
    np.testing.assert_allclose(rates(cosine=10), [2.0, 1 + np.cos(0.4 * np.pi), 0.0, 0.0], atol=1e-6)
    optimizer = make_optimizer("adam", 2.0, warm_up=10, cosine=100)
    assert float(optimizer.learning_rate) == pytest.approx(0.2)
    for name in ("warm_up", "noise_from"):
        with pytest.raises(ValueError, match=f"{name} must be finite and not negative"):
            TrainingConfig(**by_group(TrainingConfig, {name: -1}))


def test_weight_noise_starts_at_its_step(rng: np.random.Generator) -> None:
    """Before, steps are those without noise; from it on, log-variances move."""
    x = (rng.random((20, 6)) < 0.5).astype(np.uint8)
    rows = np.arange(20).reshape(2, 10).repeat(3, axis=0)
    models = []
    for noise in (NoiseConfig(), NoiseConfig("graves", noise_from=6), NoiseConfig("graves", noise_from=3)):
        config = TrainingConfig(learning_rate=0.01, noise=noise)
        trainer = Trainer(DARN(DARNConfig(6, (3,)), seed=1), config, num_data=20)
        trainer.advance(x, rows, 0)
        models.append(trainer)
    plain, late, early = ([v.numpy() for v in each.model.trainable_variables] for each in models)
    for a, b in zip(plain, late, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7)
    assert any(not np.allclose(a, b, atol=1e-4) for a, b in zip(plain, early, strict=True))
    for trainer, moves in zip(models[1:], (False, True), strict=True):
        assert trainer.noise is not None
        assert any(np.ptp(v) > 0 for v in trainer.noise.log_variances) == moves


def test_weight_noise_ends_at_its_step(rng: np.random.Generator) -> None:
    """From there on the log-variances stay and the objective is without noise and its KL; the parameters go on."""
    x = (rng.random((20, 6)) < 0.5).astype(np.uint8)
    rows = np.arange(20).reshape(2, 10).repeat(3, axis=0)
    config = TrainingConfig(learning_rate=0.01, noise=NoiseConfig("graves", noise_until=6))
    trainer = Trainer(DARN(DARNConfig(6, (3,)), seed=1), config, num_data=20)
    noisy = trainer.advance(x, rows, 0).objective
    assert trainer.noise is not None
    before = [v.numpy() for v in (*trainer.noise.log_variances, *trainer.model.trainable_variables)]
    plain = trainer.advance(x, rows, 0).objective
    after = [v.numpy() for v in (*trainer.noise.log_variances, *trainer.model.trainable_variables)]
    moved = [not np.array_equal(a, b) for a, b in zip(before, after, strict=True)]
    count = len(trainer.noise.log_variances)
    assert any(np.ptp(v) > 0 for v in before[:count])
    assert not any(moved[:count])
    assert all(moved[count:])
    assert noisy.min() > plain.max() + 0.5 * float(trainer.noise.kl()) / 20
    with pytest.raises(ValueError, match="noise_until must be after noise_from=6, got 6"):
        NoiseConfig(noise_from=6, noise_until=6)


@pytest.mark.parametrize("optimizer", ["adam", "rmsprop"])
def test_weight_decay_leaves_the_variances_of_weights_alone(rng: np.random.Generator, optimizer: Any) -> None:
    """A decay of log-variances would draw standard deviations to 1."""
    x = (rng.random((20, 6)) < 0.5).astype(np.uint8)
    found = []
    for decay in (0.0, 0.5):
        config = TrainingConfig(
            optimizer=optimizer, learning_rate=0.01, noise=NoiseConfig("graves"), weight_decay=decay
        )
        trainer = Trainer(DARN(DARNConfig(6, (3,)), seed=1), config, num_data=20)
        trainer.advance(x, np.arange(20).reshape(1, 20), 0)
        assert trainer.noise is not None
        found.append([v.numpy() for v in trainer.noise.log_variances])
        weights = [v.numpy() for v in trainer.model.trainable_variables]
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)
    without = Trainer(
        DARN(DARNConfig(6, (3,)), seed=1), TrainingConfig(optimizer=optimizer, learning_rate=0.01), num_data=20
    )
    assert any(not np.allclose(a, b) for a, b in zip(weights, without.model.trainable_variables, strict=True))


def test_running_means_of_many_steps(rng: np.random.Generator) -> None:
    """After the first 100 steps they move at each tenth, by the decay of ten: close to those that always move."""
    x = (rng.random((40, 6)) < 0.5).astype(np.uint8)
    trainer = Trainer(DARN(DARNConfig(6, (3,)), seed=1), TrainingConfig(learning_rate=0.01, average=0.95), num_data=40)
    means = [v.numpy() for v in trainer.averages]
    for t in range(1, 161):
        trainer.advance(x, rng.integers(0, 40, (1, 10)), 0)
        decay = min(0.95, t / (t + 10))
        means = [
            decay * m + (1 - decay) * v.numpy() for m, v in zip(means, trainer.model.trainable_variables, strict=True)
        ]
        if t == 100:
            for own, expected in zip(trainer.averages, means, strict=True):
                np.testing.assert_allclose(own, expected, rtol=1e-4, atol=1e-6)
    for own, expected in zip(trainer.averages, means, strict=True):
        np.testing.assert_allclose(own, expected, atol=0.03)
