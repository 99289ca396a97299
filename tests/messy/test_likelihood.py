"""What reading a messy table costs against preparing it by hand: nothing, in nats per test row of the same model."""

from dataclasses import replace
from typing import Any, NamedTuple

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from numpy.typing import NDArray

from experiment.data.batches import ArrayBatches
from experiment.data.rows import divide
from experiment.data.tables import read_table
from experiment.run import Seeds
from gpflow_deep import ModelConfig, Trainer, TrainingConfig
from tests.messy.by_hand import PREPARED, filled
from tests.messy.make_tables import FOLDER, TABLES, make
from tests.messy.test_messy import spec_of

FOLDS, STEPS = 3, 200


class Comparison(NamedTuple):
    """Mean log density of the test rows, nats: ours, by hand, and the standard error of the mean difference."""

    ours: float
    by_hand: float
    error: float


def log_density(train: Any, test: Any, task: Any, num_classes: int) -> NDArray[np.float64]:
    """Of each test row, nats, by a single-layer GP: exact for numbers, with 100 inducing inputs for labels."""
    x_mean, x_scale = train[0].mean(axis=0), train[0].std(axis=0)
    x_scale[x_scale == 0] = 1
    inputs = [(X - x_mean) / x_scale for X in (train[0], test[0])]
    if task == "regression":
        mean, scale = train[1].mean(), train[1].std()
        targets = [(Y - mean) / scale for Y in (train[1], test[1])]
        return _exact(inputs[0], targets[0], inputs[1], targets[1]) - float(np.log(scale))
    config = ModelConfig(num_layers=1, num_inducing=100, preset="modern").for_task(task)
    model = config.build(inputs[0], train[1], num_classes=num_classes)
    batches = ArrayBatches((inputs[0], train[1]), batch_size=len(inputs[0]), seed=0)
    Trainer(model, TrainingConfig(learning_rate=0.03)).advance(batches, 0, STEPS, Seeds(0)("train"))
    return np.ravel(model.predict_log_density((inputs[1], test[1])))


def _exact(X: Any, Y: Any, X_test: Any, Y_test: Any) -> NDArray[np.float64]:
    """GP regression after the steps of Adam, which ends at the same point whatever the order of the inputs."""
    kernel = gpflow.kernels.Matern52(lengthscales=np.full(X.shape[1], np.sqrt(X.shape[1])))
    model = gpflow.models.GPR((X, Y), kernel, likelihood=gpflow.likelihoods.Gaussian(0.1))
    adam, variables = tf.keras.optimizers.Adam(0.05), model.trainable_variables

    @tf.function
    def step() -> None:
        with tf.GradientTape() as tape:
            loss = model.training_loss()
        adam.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))

    for _ in range(STEPS):
        step()
    return np.ravel(model.predict_log_density((X_test, Y_test)))


def compared(name: str) -> Comparison:
    """Cross-validation on the rows of a table, with our inputs and with those prepared by hand."""
    made = make(name)
    path = FOLDER / made.file
    rows, prepared = read_table(path, spec_of(made)), PREPARED[name](path)
    num_data, num_classes = len(prepared.y), len(rows.class_names)
    order = np.random.default_rng(0).permutation(num_data)
    tests = [np.sort(part) for part in np.array_split(order, FOLDS)]
    splits = tuple((np.setdiff1d(order, test), test) for test in tests)
    rows = replace(rows, splits=splits)
    ours, by_hand = [], []
    for number, (train, test) in enumerate(splits):
        parts = divide(rows, split=number, valid_fraction=0)
        ours.append(log_density(parts.train, parts.test, made.task, num_classes))
        X, Y = filled(prepared.X, train), prepared.y[:, None]
        by_hand.append(log_density((X[train], Y[train]), (X[test], Y[test]), made.task, num_classes))
    a, b = np.concatenate(ours), np.concatenate(by_hand)
    return Comparison(a.mean(), b.mean(), (a - b).std() / np.sqrt(num_data))


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize("name", TABLES)
def test_reading_is_as_good_as_preparation_by_hand(name: str) -> None:
    """The allowance is two standard errors of the paired difference over all rows: an error of 2.3 % in each test."""
    tf.random.set_seed(0)
    found = compared(name)
    print(f"{name}: {found.ours:.4f}, by hand {found.by_hand:.4f}, difference {found.ours - found.by_hand:+.4f} "
          f"+- {found.error:.4f} nats per row")  # fmt: skip
    assert found.ours - found.by_hand >= -2 * found.error
