"""What all Bayesian layers share: the Gaussian posterior of the weights, masks, noise, the KL as a loss."""

import math
import random
from typing import Any

import keras
import tensorflow as tf

from . import kl

__all__ = ["PACKAGE", "BayesianLayer", "StdCap"]

PACKAGE = "gpflow_deep_compression"  # under which Keras registers the layers in saved models

_VARIANCE_FLOOR = 1e-30  # the square root has an infinite slope at 0


@keras.saving.register_keras_serializable(package=PACKAGE)
class StdCap(keras.constraints.Constraint):
    """Keeps a log variance, stored divided by `scale_speed`, at most 2 log(std); the optimizer applies it."""

    def __init__(self, std: float, scale_speed: float = 1.0) -> None:
        if not (math.isfinite(std) and std > 0.0):
            raise ValueError(f"std_cap must be a positive number, got {std}; None sets no cap.")
        self.std = float(std)
        self.scale_speed = float(scale_speed)

    def __call__(self, w: tf.Tensor) -> tf.Tensor:
        """The capped values."""
        return tf.minimum(w, tf.cast(2.0 * math.log(self.std) / self.scale_speed, w.dtype))

    def get_config(self) -> dict[str, float]:
        """For Keras: the arguments."""
        return {"std": self.std, "scale_speed": self.scale_speed}


class BayesianLayer(keras.layers.Layer):
    """Weights w_ij = z_i w~_ij with q(w~_ij) = N(mean_ij, e^log_var_ij) and a scale z_i for each group of weights.

    Abstract: subclasses add the scales (`scales.py`) and the linear map (`layers.py`).

    Attributes, after the layer is built:

    - ``kernel_mean``, ``bias``, ``mask``: variables. ``mask`` is 0 for groups that are switched off, in training and
      in inference; it is not trained.
    - ``kl_weight``: scalar variable, not trained, 1 at first; the weight of the KL in the loss (for warm-up).
    - ``noise_state``: int64 [2] = (seed, number of draws so far); the noise is a pure function of it.

    :param num_train: number of training examples N. The loss of a batch is a mean over examples, so the layer adds
        kl_weight * KL / N to it. It is added in training only: `evaluate` reports the loss of the data.
    :param activation: Keras activation, applied to the output.
    :param use_bias: add a bias. It is a plain parameter, added after the scale: a filter that is switched off gives
        exactly activation(bias).
    :param std_cap: largest standard deviation of w~ (Sec. 5 "constraining the standard deviations"); None for none.
    :param scale_speed: log variances and the parameters of the scales are stored divided by this factor, so that Adam
        moves them this many times faster. 1 is the paper.
    :param initial_log_std: log standard deviation of all posteriors at first; -9 is the paper.
    :param kernel_initializer: of the means; He's is the paper.
    :param seed: of the noise and of the initial means; None draws one from Python's `random`, which
        `keras.utils.set_random_seed` sets.
    :raises ValueError: if an argument is out of range.
    """

    default_threshold: float

    def __init__(
        self,
        *,
        num_train: float,
        activation: object = None,
        use_bias: bool = True,
        std_cap: float | None = None,
        scale_speed: float = 4.0,
        initial_log_std: float = -9.0,
        kernel_initializer: object = "he_normal",
        bias_initializer: object = "zeros",
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        # What is out of range is said when the layer is made, not in the first step.
        if isinstance(num_train, bool) or not (math.isfinite(num_train) and num_train >= 1):
            raise ValueError(f"num_train must be the number of training examples, at least 1, got {num_train}.")
        if not (math.isfinite(scale_speed) and scale_speed > 0.0):
            raise ValueError(f"scale_speed must be a positive number, got {scale_speed}; 1 is the paper's Adam.")
        if self.compute_dtype != self.variable_dtype:
            raise ValueError(
                f"{type(self).__name__} needs one dtype, got the policy {self.dtype_policy.name}; pass dtype='float32'."
            )
        self.num_train = int(num_train) if int(num_train) == num_train else float(num_train)
        self.activation = keras.activations.get(activation)
        self.use_bias = bool(use_bias)
        self.std_cap = None if std_cap is None else float(std_cap)
        self.scale_speed = float(scale_speed)
        self.initial_log_std = float(initial_log_std)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)
        self.seed = random.randrange(2**30) if seed is None else int(seed)
        self.is_sampling = False
        self._log_var_constraint = None if std_cap is None else StdCap(std_cap, self.scale_speed)

    # The model.

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        """For Keras: make the variables."""
        # q(w~): the means by the initializer, seeded like the noise, and the log variances.
        shape = self._kernel_shape(input_shape)
        initializer = self.kernel_initializer
        config: dict[str, Any] = getattr(initializer, "get_config", dict)()
        if config.get("seed", 0) is None:
            initializer = type(initializer).from_config({**config, "seed": self.seed})
        self.kernel_mean = self.add_parameter("kernel_mean", shape, initializer)
        self.kernel_log_var_scaled = self.add_parameter(
            "kernel_log_var_scaled",
            shape,
            2.0 * self.initial_log_std / self.scale_speed,
            constraint=self._log_var_constraint,
        )
        self._build_scales(shape)
        if self.use_bias:
            self.bias = self.add_parameter("bias", self._bias_shape(shape), self.bias_initializer)
        # What is not trained: groups that are switched off, the weight of the KL, the state of the noise.
        self.mask = self.add_parameter("mask", self._groups_shape(shape), 1.0, trainable=False)
        self.kl_weight = self.add_parameter("kl_weight", (), 1.0, trainable=False, aggregation="only_first_replica")
        # No aggregation: every replica advances its own copy alike. To wait for the others here would interleave their
        # passes, and Keras collects the losses of one pass at a time.
        self.noise_state = self.add_weight(
            name="noise_state",
            shape=(2,),
            dtype="int64",
            initializer=lambda shape, dtype: tf.constant([self.seed, 0], dtype),
            trainable=False,
        )

    def add_parameter(
        self, name: str, shape: tuple[int, ...], initializer: str | keras.Initializer, **kwargs: Any
    ) -> keras.Variable:
        """`add_weight`, where the initializer may be a number."""
        if isinstance(initializer, float):
            initializer = keras.initializers.Constant(initializer)
        return self.add_weight(name=name, shape=shape, initializer=initializer, **kwargs)

    def variable_role(self, name: str) -> str:
        """How the variable `name` is cut when units are removed: see `compression.graph.removal.cutting.cut`."""
        # Variables of the kernel, of the layer as a whole, of its outputs, and of its groups.
        if name in ("kernel_mean", "kernel_log_var_scaled"):
            return "kernel"
        if name in ("kl_weight", "noise_state") or name.startswith("s_"):
            return "scalar"
        return "out" if name == "bias" else self._group_role

    @property
    def kernel_log_var(self) -> tf.Tensor:
        """Log variance of w~, of the shape of the kernel."""
        return self.scale_speed * tf.convert_to_tensor(self.kernel_log_var_scaled)

    def call(self, inputs: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Outputs with noise in training, with the posterior means else."""
        # The variational bound of a batch: its mean loss plus KL / N, Eq. (8) and the terms of the scales.
        if training:
            if self.losses:
                raise ValueError(
                    f"the layer {self.name} is called twice in one pass: its KL would count twice. "
                    f"Give each place in the model a layer of its own."
                )
            self.add_loss(self.kl_weight / self.num_train * self.kl_divergence())
        if training or self.is_sampling:
            # Local reparametrisation in training; in inference the posterior means, Eqs. (10) and (19).
            outputs = self._sample(inputs)
        else:
            outputs = self._linear(inputs, self.posterior_mean_kernel())
        return self.activation(outputs + self.bias if self.use_bias else outputs)

    # The objective.

    def kl_divergence(self) -> tf.Tensor:
        """KL(q || p) of the groups that are not masked, in nats; without `kl_weight`."""
        return tf.add_n(list(self.kl_parts().values()))

    def kl_parts(self) -> dict[str, tf.Tensor]:
        """The terms of :meth:`kl_divergence` by name ("weights", Eq. 8, and those of the scales), in nats."""
        # Eq. (8): the scales cancel, so what is left is the KL of N(mean, e^log_var) to N(0, 1).
        weights = kl.gaussian_kl(tf.convert_to_tensor(self.kernel_mean), self.kernel_log_var)
        return {"weights": tf.reduce_sum(self.group_to_kernel(self.mask) * weights), **self._scale_kl_parts()}

    # Pruning and prediction.

    def prune_scores(self) -> tf.Tensor:
        """A group is pruned where this is at or above the threshold; of the shape of `mask`."""
        raise NotImplementedError

    def posterior_mean_kernel(self, mask: tf.Tensor = None) -> tf.Tensor:
        """Masked posterior mean of the weights, Eqs. (10) and (19), of the shape of the kernel.

        :param mask: 0 or 1 for each group, of the shape of `mask`, the layer's own by default.
        """
        # E w = E z E w~; a scale that overflows does no harm where its group is switched off.
        mask = tf.cast(self.mask if mask is None else mask, self.compute_dtype)
        return self.group_to_kernel(tf.math.multiply_no_nan(self.scale_moments()[0], mask)) * self.kernel_mean

    def posterior_variance_kernel(self) -> tf.Tensor:
        """Marginal variance of each weight, Eqs. (11) and (20), of the shape of the kernel."""
        # Var(z w~) = Var z (Var w~ + (E w~)^2) + Var w~ (E z)^2.
        mean, variance = (self.group_to_kernel(moment) for moment in self.scale_moments())
        kernel_var = tf.exp(self.kernel_log_var)
        return variance * (kernel_var + tf.square(self.kernel_mean)) + kernel_var * tf.square(mean)

    def scale_moments(self) -> tuple[tf.Tensor, tf.Tensor]:
        """Mean and variance of the scales z, each of the shape of `mask`."""
        raise NotImplementedError

    def group_to_kernel(self, values: tf.Tensor) -> tf.Tensor:
        """One value for each group, shaped to be broadcast against the kernel."""
        raise NotImplementedError

    # Keras.

    def get_config(self) -> dict[str, Any]:
        """For Keras: the arguments."""
        return {
            **super().get_config(),
            "num_train": self.num_train,
            "activation": keras.activations.serialize(self.activation),
            "use_bias": self.use_bias,
            "std_cap": self.std_cap,
            "scale_speed": self.scale_speed,
            "initial_log_std": self.initial_log_std,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "bias_initializer": keras.initializers.serialize(self.bias_initializer),
            "seed": self.seed,
        }

    # What subclasses provide.

    _group_role: str

    def _kernel_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int, ...]:
        raise NotImplementedError

    def _groups_shape(self, kernel_shape: tuple[int, ...]) -> tuple[int, ...]:
        raise NotImplementedError

    def _bias_shape(self, kernel_shape: tuple[int, ...]) -> tuple[int, ...]:
        return kernel_shape[-1:]

    def _build_scales(self, kernel_shape: tuple[int, ...]) -> None:
        raise NotImplementedError

    def _scale_kl_parts(self) -> dict[str, tf.Tensor]:
        raise NotImplementedError

    def _linear(self, inputs: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
        raise NotImplementedError

    def _sample(self, inputs: tf.Tensor) -> tf.Tensor:
        """Outputs before the bias, with noise of their own for each example (Algorithms 1-4)."""
        raise NotImplementedError

    def _add_noise(self, mean: tf.Tensor, variance: tf.Tensor, noise: tf.Tensor) -> tf.Tensor:
        return mean + tf.sqrt(tf.maximum(variance, _VARIANCE_FLOOR)) * noise

    def _normal(self, shape: Any) -> tf.Tensor:
        """Standard normal noise of shape [rows, ...]; each call advances `noise_state`.

        Within `tf.distribute.Strategy.run` these are this replica's rows of the noise for the rows of all replicas, of
        which each has equally many. So the replicas together have the noise of one device.
        """
        # Noise is a function of the seed and of the number of draws, which counts on.
        state = tf.identity(tf.convert_to_tensor(self.noise_state))
        self.noise_state.assign(tf.add(state, [0, 1]))
        seed = tf.cast(state % (2**31 - 1), tf.int32)
        # Draw the rows of all replicas, and take those of this one.
        context = tf.distribute.get_replica_context()
        if context is None or context.num_replicas_in_sync == 1:
            return tf.random.stateless_normal(shape, seed, dtype=self.compute_dtype)
        shape = tf.convert_to_tensor(shape)
        rows = shape[0]
        others = shape[1:]
        full_shape = tf.concat([[rows * context.num_replicas_in_sync], others], axis=0)
        start = rows * tf.cast(context.replica_id_in_sync_group, tf.int32)
        return tf.random.stateless_normal(full_shape, seed, dtype=self.compute_dtype)[start : start + rows]
