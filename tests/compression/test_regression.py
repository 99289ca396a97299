"""The settings of a recipe count for targets, too; `test_compress_network.py` sees that errors are those of files."""

import dataclasses
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import compression as bc
from compression.train import engine, keras_training
from compression.train.recipes import regression
from compression.train.recipes.regression import compress_regression
from tests.compression.recipes import recipe_config

N, D = 60, 5


@pytest.fixture
def parts(rng: np.random.Generator) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """The target is a function of one of the inputs."""
    X = rng.normal(size=(N, D)).astype(np.float32)
    return dict.fromkeys(("train", "valid", "test"), (X, 3.0 * np.tanh(X[:, :1])))


def network() -> keras.Model:
    """What the targets are of the first input."""
    model = keras.Sequential([keras.Input([D]), keras.layers.Dense(8, "tanh"), keras.layers.Dense(1)])
    model.set_weights([np.eye(D, 1) @ np.ones([1, 8]), np.zeros(8), np.full([8, 1], 3 / 8), np.zeros(1)])
    return model


def test_settings_reach_the_phases(parts: dict, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """And thresholds are checked by the tolerance, in percent of the variance of the targets."""
    called: list[Any] = []

    def fit_recipe(config: Any, training: Any, model: keras.Model, weights: Any, checked: Any) -> keras.Model:
        called.append((config, training, weights))
        bayesian = bc.compress(model, num_train=N)
        first = bc.bayesian_layers(bayesian)[0]
        first.z_log_var_scaled.assign(np.where(np.arange(D) == 0, 5.0, -18.0) / first.scale_speed)
        is_pruned.append(checked(bayesian)[first.name] < 5.0)
        return model

    is_pruned: list[bool] = []  # the only input that matters
    monkeypatch.setattr(regression, "fit_recipe", fit_recipe)
    for tolerance in (50.0, 1e9):
        config = recipe_config(
            epochs=6, warmup=2, polish_epochs=3, polish_kl=0.02, shrink_every=2, decay="linear", kl_weight=0.5,
            learning_rate=0.01, prune_tolerance=tolerance,
        )  # fmt: skip
        compress_regression(config, network(), parts, tmp_path / "n.bcz", batch_size=20, seed=3)
        used, training, weights = called[-1]
        assert used == dataclasses.replace(config, ending=dataclasses.replace(config.ending, last_epochs=3))
        assert (training.loss, training.seed) == ("mse", 3)
        assert float(training.optimizer.learning_rate) == pytest.approx(0.01)
        assert training.data.train["batch_size"] == 20
        assert weights == [0.5, 0.15, 0.05, 0.015]
    assert is_pruned == [False, True]


def test_the_plain_phase_has_its_rate_which_falls(parts: dict, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """From a part of it on, as of a recipe with labels."""
    monkeypatch.setattr(regression, "fit_recipe", lambda config, training, model, *_: model)
    rates: list[float] = []

    def noted(optimizer: keras.optimizers.Optimizer, steps: int, **settings: Any) -> Any:
        rate = engine.falling_rate(optimizer, steps, **settings)
        assert rate is not None
        rates.extend(float(rate(float(step))) for step in range(steps))
        return rate

    monkeypatch.setattr(keras_training, "falling_rate", noted)
    config = recipe_config(pretrain_epochs=4, pretrain_learning_rate=0.1, decay="linear", decay_from=0.5)
    model = network()
    model.layers[1].bias.assign([1.0])
    start = model.get_weights()
    found = compress_regression(config, model, parts, tmp_path / "n.bcz", batch_size=N)
    assert sorted(set(rates), reverse=True) == pytest.approx([0.1, 0.05])  # of epochs 0, 1, 2 and 3
    assert np.any(model.get_weights()[0] != start[0])
    assert found.plain["valid"] == found.shrunk["valid"] == found.plain["test"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"shift": 1}, "shift=1 and flip=False are for images with labels"),
        ({"last_epochs": 1, "last_teacher": 3.0}, "last_teacher=3.0 is for labels, not for targets"),
        ({"threshold": (1.0, 2.0, 3.0)}, "one for each of 2 layers, got 3"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(
    settings: dict[str, Any], message: str, parts: dict, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=message):
        compress_regression(recipe_config(**settings), network(), parts, tmp_path / "n.bcz")
