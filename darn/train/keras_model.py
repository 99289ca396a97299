"""A DARN as a Keras model: `compile`, `fit` with callbacks, `evaluate`, `predict`, and files of Keras.

    network = KerasDARN(DARN(DARNConfig(x.shape[1], (16,), (100,)), data=x))
    network.compile("adam")
    network.fit(x, validation_data=(x_valid,), epochs=50, callbacks=[tf.keras.callbacks.EarlyStopping(patience=5)])
    network.darn                                # the DARN, trained

The loss is the description length (Eq. 15). Noise is a function of the seed and the number of the step, so that weights
and optimizer from a callback such as `BackupAndRestore` go on as they would have; which rows a step gets is Keras'
affair: `shuffle=False`, or batches that come as a function of the step, make a run that goes on the same bit for bit.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from darn.model.description_length import code_lengths
from darn.model.gradients import check_estimator, estimate
from darn.model.model import DARN, DARNConfig, check_data
from darn.more.distribution import assertions
from gpflow_deep_base.seeds import as_seed

__all__ = ["KerasDARN"]


@tf.keras.utils.register_keras_serializable("darn")
class KerasDARN(tf.keras.Model):  # type: ignore[misc]
    """Trains a DARN by Keras, whose weights are its variables.

    :ivar darn: the model.

    :param darn: a model.
    :param estimator: of the gradient through bits, see `gradients`.
    :param entropy: "sampled" or "exact", see `gradients`.
    :param seed: of the noise of training and of `evaluate`.
    :raises ValueError: if the estimator does not fit the model.
    """

    def __init__(
        self, darn: DARN, *, estimator: str = "darn", entropy: str = "sampled", seed: int = 0, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        check_estimator(darn, estimator, entropy)
        as_seed(seed)  # refuses what is none
        if estimator == "rloo":
            raise ValueError("estimator='rloo' needs several draws for each row; use darn.Trainer.")
        self.darn = darn
        self.estimator = estimator
        self.entropy = entropy
        self.seed = seed
        self.means = [tf.keras.metrics.Mean(name=name) for name in ("loss", "kl")]
        self.built = True

    @property
    def metrics(self) -> list[tf.keras.metrics.Metric]:
        """Means over the rows of an epoch: the description length and, of it, what the stochastic units carry; nats."""
        return self.means

    @property
    def trainable_weights(self) -> list[tf.Variable]:
        """Variables of the DARN that training changes."""
        return list(self.darn.trainable_variables) if self.trainable else []

    @property
    def trainable_variables(self) -> list[tf.Variable]:
        """The same."""
        return self.trainable_weights

    @property
    def non_trainable_weights(self) -> list[tf.Variable]:
        """Its other variables."""
        trainable = {id(variable) for variable in self.trainable_weights}
        return [variable for variable in self.darn.variables if id(variable) not in trainable]

    @property
    def weights(self) -> list[tf.Variable]:
        """All of them, which `get_weights`, `set_weights` and files hold."""
        return list(self.darn.variables)

    def compile(self, optimizer: object = "adam", *, jit_compile: bool = False, **kwargs: Any) -> None:
        """As Keras does, without a loss: the model has its own.

        :param jit_compile: XLA: faster steps for small models, after up to a minute.
        """
        super().compile(optimizer=optimizer, jit_compile=jit_compile, **kwargs)

    def get_compile_config(self) -> dict[str, Any]:
        """What files hold of :meth:`compile`."""
        return {"optimizer": tf.keras.optimizers.serialize(self.optimizer), "jit_compile": self.jit_compile}

    def compile_from_config(self, config: dict[str, Any]) -> None:
        """Compile as before, so that an optimizer's state can be restored."""
        # The optimizer's variables are made now, for a file restores them next.
        self.compile(tf.keras.optimizers.deserialize(config["optimizer"]), jit_compile=config["jit_compile"])
        self.optimizer.build(self.trainable_weights)

    def fit(self, x: object = None, *arguments: object, **options: Any) -> tf.keras.callbacks.History:
        """As Keras does. Arrays and tensors are checked at once, rows of a data set when they come.

        :raises ValueError: for arrays that the model cannot have produced, such as NaN.
        """
        for part, name in ((x, "x"), (options.get("validation_data"), "validation_data")):
            self._check(part, name)
        return super().fit(x, *arguments, **options)

    def evaluate(self, x: object = None, *arguments: object, **options: Any) -> float | list[float] | dict[str, float]:
        """As Keras does, likewise."""
        self._check(x, "x")
        return super().evaluate(x, *arguments, **options)

    def predict(self, x: object, *arguments: object, **options: Any) -> NDArray:
        """As Keras does, likewise: log p(x) of each row, nats."""
        self._check(x, "x")
        return super().predict(x, *arguments, **options)

    def call(self, x: tf.Tensor) -> tf.Tensor:
        """log p(x), [B], nats: what `predict` gives; see `DARN.log_prob`."""
        return self.darn.log_prob(self._rows(x), seed=self.seed)

    def train_step(self, data: tf.Tensor | tuple[tf.Tensor, ...]) -> dict[str, tf.Tensor]:
        """One update by a minibatch: x, or a tuple whose first part it is."""
        x = self._rows(data)
        # Noise of each step by its number.
        key = tf.random.fold_in(as_seed(self.seed), tf.cast(self.optimizer.iterations, tf.int32))
        noise, orders, _ = tf.unstack(tf.random.experimental.stateless_split(key, 3))
        # Eq. (15): the description length, whose gradient is the estimator's.
        with tf.GradientTape() as tape:
            estimated = estimate(
                self.darn.in_training(orders),
                x,
                self.darn.encoder_noise(tf.shape(x)[0], noise),
                estimator=self.estimator,
                entropy=self.entropy,
            )
            loss = tf.reduce_mean(estimated.loss)
        variables = self.trainable_weights
        gradients = tape.gradient(loss, variables, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        self.optimizer.apply(gradients, variables)
        return self._noted(estimated.prior + estimated.bits_back, estimated.visible)

    def test_step(self, data: tf.Tensor | tuple[tf.Tensor, ...]) -> dict[str, tf.Tensor]:
        """The description length of a minibatch, by noise that is the same in each evaluation."""
        prior, bits_back, visible = code_lengths(self.darn, self._rows(data), as_seed(self.seed))
        return self._noted(prior + bits_back, visible)

    def get_config(self) -> dict[str, Any]:
        """What :meth:`from_config` makes such a model of."""
        settings = {"darn": self.darn.config.to_json(), "estimator": self.estimator}
        return {**super().get_config(), **settings, "entropy": self.entropy, "seed": self.seed}

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: object = None) -> KerasDARN:
        """A new model with the settings that :meth:`get_config` gave."""
        del custom_objects
        return cls(**{**config, "darn": DARN(DARNConfig.from_json(config["darn"]))})

    def save_own_variables(self, store: MutableMapping[str, NDArray]) -> None:
        """Put all weights into a file of Keras."""
        for number, variable in enumerate(self.weights):
            store[str(number)] = variable.numpy()

    def load_own_variables(self, store: MutableMapping[str, NDArray]) -> None:
        """Take all weights from such a file.

        :raises ValueError: if the file holds others.
        """
        stored = {int(name): np.asarray(store[name]) for name in store.keys()}  # noqa: SIM118
        if [stored[i].shape for i in sorted(stored)] != [tuple(variable.shape) for variable in self.weights]:
            raise ValueError("the file holds weights of another DARN than this one; make it with the same DARNConfig.")
        for number, variable in enumerate(self.weights):
            variable.assign(stored[number])

    def _rows(self, data: tf.Tensor | tuple[tf.Tensor, ...]) -> tf.Tensor:
        # Rows of a data set are seen in the graph alone, which checks them.
        x = tf.cast(data[0] if isinstance(data, tuple | list) else data, self.darn.dtype)
        with tf.control_dependencies(assertions(x, self.darn.config)):
            return tf.identity(x)

    def _check(self, data: object, name: str) -> None:
        # Of a tuple the first part are the rows; those of a data set are checked as they come.
        data = data[0] if isinstance(data, tuple | list) and len(data) else data
        if isinstance(data, np.ndarray | tf.Tensor):
            check_data(data, self.darn.config, name)

    def _noted(self, kl: tf.Tensor, visible: tf.Tensor) -> dict[str, tf.Tensor]:
        for mean, values in zip(self.means, (kl + visible, kl), strict=True):
            mean.update_state(values)
        return {mean.name: mean.result() for mean in self.means}
