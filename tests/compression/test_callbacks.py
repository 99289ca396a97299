"""Warm-up and shrinking while training; a network on the digits that prunes and still classifies."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from sklearn.datasets import load_digits

import compression as bc
from tests.compression.networks import dense_network


def compiled(model: keras.Model, learning_rate: float = 1e-3, *, eager: bool = True) -> keras.Model:
    model.compile(
        keras.optimizers.SGD(learning_rate, momentum=0.9) if eager else keras.optimizers.Adam(learning_rate),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
        jit_compile=False,
        run_eagerly=eager,
    )
    return model


class Weights(keras.callbacks.Callback):
    """Records the weight of the KL in each batch."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[float] = []

    def on_train_batch_begin(self, batch: int, logs: object = None) -> None:
        self.seen.append(float(self.model.layers[-1].kl_weight))


def test_warmup_is_linear_in_batches(rng: np.random.Generator) -> None:
    model = dense_network("gnj", rng)
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True), run_eagerly=True)
    x, y = rng.normal(size=(12, 12)).astype("float32"), rng.integers(0, 3, size=12)
    weights = Weights()
    model.fit(x, y, batch_size=4, epochs=3, verbose=0, callbacks=[bc.KLWarmup(2), weights])
    np.testing.assert_allclose(weights.seen, [1 / 6, 2 / 6, 3 / 6, 4 / 6, 5 / 6, 1, 1, 1, 1], rtol=1e-6)
    resumed = Weights()
    model.fit(x, y, batch_size=4, epochs=2, initial_epoch=1, verbose=0, callbacks=[bc.KLWarmup(2), resumed])
    assert resumed.seen == weights.seen[3:6]
    assert bc.KLWarmup(0).weight_at(0) == 1.0
    assert [bc.KLWarmup(4, 0.2).weight_at(epoch) for epoch in (0, 2, 9)] == pytest.approx([0, 0.1, 0.2])


def test_fit_that_shrinks(rng: np.random.Generator) -> None:
    x, y = rng.normal(size=(32, 12)).astype("float32"), rng.integers(0, 3, size=32)
    model = compiled(dense_network("gnj", rng), 1e-6)  # more moves scores across thresholds, with some noise
    for layer in model.layers:
        layer.z_mean_scaled.assign(np.full(layer.z_mean.shape, 1.0 / layer.scale_speed))
        layer.z_log_var_scaled.assign(np.where(np.arange(layer.z_mean.shape[0]) % 2, 9.0, -9.0) / layer.scale_speed)
    shrinking = bc.ShrinkDuringTraining(start=2, every=2)
    small, history = shrinking.fit(model, x, y, epochs=4, batch_size=16, verbose=0, callbacks=[bc.KLWarmup(1)])
    assert small is not model
    assert [layer.kernel_mean.shape for layer in small.layers if isinstance(layer, bc.DenseGNJ)] == [
        (6, 5),
        (5, 4),
        (4, 3),
    ]
    assert len(history["loss"]) == len(history["accuracy"]) == 4
    assert int(small.optimizer.iterations) == 8
    assert small.run_eagerly is True
    assert shrinking.kept["first"].inputs.tolist() == [0, 2, 4, 6, 8, 10]


def mean_error(y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
    """A metric of the user's own."""
    return tf.reduce_mean(tf.abs(y_pred - tf.cast(y_true, y_pred.dtype)))


@pytest.mark.parametrize(
    "loss", [lambda y, f: tf.reduce_mean(tf.square(y - f)), mean_error], ids=["lambda", "function"]
)
def test_losses_and_metrics_of_the_users_own_go_on(loss: object, rng: np.random.Generator) -> None:
    x, y = rng.normal(size=(32, 12)).astype("float32"), rng.normal(size=(32, 3)).astype("float32")
    model = dense_network("gnj", rng)
    metrics = [mean_error, lambda y, f: tf.reduce_max(f)]
    model.compile(keras.optimizers.SGD(1e-4), loss, metrics=metrics, run_eagerly=True)
    for layer in model.layers:
        layer.z_log_var_scaled.assign(np.where(np.arange(layer.z_mean.shape[0]) % 2, 9.0, -9.0) / layer.scale_speed)
    small, history = bc.ShrinkDuringTraining(start=1).fit(model, x, y, epochs=2, batch_size=16, verbose=0)
    assert small is not model
    assert small.loss is loss
    assert len(history["mean_error"]) == 2
    assert int(small.optimizer.iterations) == 4


def test_what_cannot_be_shrunk_is_refused_before_it_is_trained(rng: np.random.Generator) -> None:
    class OwnStep(keras.Model):
        def train_step(self, data: object) -> dict[str, object]:
            return dict(super().train_step(data))

    def refused(model: keras.Model, match: str) -> None:
        with pytest.raises(ValueError, match=match):
            bc.ShrinkDuringTraining(start=30).fit(model, np.zeros((1, 12)), np.zeros(1), epochs=40, verbose=0)

    model = dense_network("gnj", rng)
    refused(model, "compile")
    own = OwnStep(model.inputs, model.outputs)
    own.compile("sgd", "mse")
    refused(own, "OwnStep has a train_step of its own")


def test_fit_that_does_not_pay_to_shrink(rng: np.random.Generator) -> None:
    x, y = rng.normal(size=(8, 12)).astype("float32"), rng.integers(0, 3, size=8)
    model = compiled(dense_network("gnj", rng))
    same, history = bc.ShrinkDuringTraining(min_saving=0.5, thresholds=np.inf).fit(model, x, y, epochs=2, verbose=0)
    assert same is model
    assert len(history["loss"]) == 2


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="epochs must be 0 or more"):
        bc.KLWarmup(-1)
    with pytest.raises(ValueError, match="start and every must be at least 1"):
        bc.ShrinkDuringTraining(every=0)
    with pytest.raises(ValueError, match="weight of the KL must be 0 or more"):
        bc.set_kl_weight(keras.Sequential(), -0.5)


@pytest.mark.slow
@pytest.mark.parametrize("prior", ["gnj", "ghs"])
def test_digits_are_pruned_and_still_read(prior: str) -> None:
    digits = load_digits()
    x, y = (digits.data / 8.0 - 1.0).astype("float32"), digits.target
    he = [keras.initializers.HeNormal(seed=seed) for seed in (0, 1)]
    layers = [
        keras.Input([64]),
        keras.layers.Dense(50, activation="relu", kernel_initializer=he[0]),
        keras.layers.Dense(10, kernel_initializer=he[1]),
    ]
    data = {"x": x[:1500], "y": y[:1500], "batch_size": 64, "shuffle": False, "verbose": 0}
    plain = compiled(keras.Sequential(layers), 5e-3, eager=False)
    plain.fit(**data, epochs=10)
    model = compiled(bc.compress(plain, num_train=1500, prior=prior, initial_log_std=-4.5), 5e-3, eager=False)
    model, _ = bc.ShrinkDuringTraining(start=20, every=20).fit(model, **data, epochs=60, callbacks=[bc.KLWarmup(15)])
    shrunk = bc.shrink_details(model)
    accuracy = np.mean(shrunk.model.predict(x[1500:], verbose=0).argmax(1) == y[1500:])
    assert sum(shrunk.kept_weights) < 0.6 * (64 * 50 + 50 * 10)
    assert accuracy > 0.85
