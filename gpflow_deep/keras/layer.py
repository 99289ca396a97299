"""Gaussian processes as one layer of a Keras model: a whitened sparse variational GP, `SVGPLayer`, with weights.

    f = m(x) + A' q_mu + sqrt(k(x, x) - A'A + A' S A) eps          Eqs. (7), (8) and (15) of [1]

While a model is trained, the layer adds KL[q(u) || p(u)] / N to its losses and returns draws of f, so that a loss that
averages -log p(y | f) over rows makes Keras maximise the bound of Eq. (17) divided by N.

[1] Salimbeni and Deisenroth, "Doubly Stochastic Variational Inference for Deep Gaussian Processes", NIPS 2017.
"""

from __future__ import annotations

import logging
from typing import Literal

import gpflow
import keras
import numpy as np
import tensorflow as tf
from gpflow.inducing_variables import InducingPoints, InducingVariables
from gpflow.kernels import Kernel, MultioutputKernel, SquaredExponential
from gpflow.mean_functions import Identity, Linear, MeanFunction
from gpflow.utilities import set_trainable
from numpy.typing import ArrayLike

from gpflow_deep_base.storage.limits import one_line

from ..layers.svgp import SVGPLayer
from ..model.initialization import inducing_inputs, linear_projection
from ..train.predictor import float_type
from . import passes
from .origins import Origin, attach
from .stored import Config, from_text, to_text
from .weights import Weights

__all__ = ["GPLayer"]

LOG = logging.getLogger(__name__)
NEARLY_CONSTANT = 0.01
"""Standard deviation of an input, in units of the median of all, below which it is not taken for a scale."""

_STORED = ("kernel", "inducing_variable", "mean_function")


@keras.saving.register_keras_serializable("gpflow_deep")
class GPLayer(keras.layers.Layer):
    """P Gaussian processes of the D inputs: [N, D] -> [N, P].

    It computes in GPflow's default float type at the time when it is made, float64 unless changed; inputs are cast to
    it, and outputs to Keras' type, float32 unless changed. It has copies of the GPflow objects that it is given:
    `layer.gp` is the `SVGPLayer` with its own ones, whose parameters are the weights.

    :param units: number of outputs P.
    :param num_data: number N of training rows.
    :param num_inducing: number M of inducing inputs. They start as standard-normal numbers; see `adapt`.
    :param kernel: any GPflow kernel, for all outputs, or a multi-output kernel; by default a squared exponential with
        a lengthscale sqrt(D) for each input.
    :param inducing_variable: to start with, in place of `num_inducing`: an array [M, D], or one of GPflow.
    :param mean_function: "zero"; "linear" for what inner layers of a deep GP need, a fixed one that passes the inputs
        on (by their principal components, if P < D and `adapt` is called); or one of GPflow's.
    :param outputs: "draws" returns draws while training and the mean otherwise; "moments" always mean and variance,
        [N, 2, P]. `DeepGPLikelihoodLoss` integrates over f with either; any other loss that is a negative log
        density is taken of draws.
    :param q_sqrt_scale: standard deviation of q at the start, in units of the prior's; 1e-5 is usual for inner layers.
    :param seed: of the draws and of the starting inducing inputs; by default from `keras.utils.set_random_seed`.
    :param options: of `keras.layers.Layer`, such as `name` and `dtype`.
    :raises ValueError: if an argument is out of range, or a part cannot be saved.
    """

    def __init__(
        self,
        units: int,
        *,
        num_data: int,
        num_inducing: int = 100,
        kernel: Kernel | None = None,
        inducing_variable: np.ndarray | InducingVariables | None = None,
        mean_function: Literal["zero", "linear"] | MeanFunction = "zero",
        outputs: Literal["draws", "moments"] = "draws",
        q_sqrt_scale: float = 1.0,
        seed: int | None = None,
        **options: object,
    ) -> None:
        super().__init__(**options)
        for name, value in (("units", units), ("num_data", num_data), ("num_inducing", num_inducing)):
            if value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}.")
        if outputs not in ("draws", "moments"):
            raise ValueError(f"outputs must be 'draws' or 'moments', got {outputs!r}.")
        if isinstance(mean_function, str) and mean_function not in ("zero", "linear"):
            raise ValueError(f"mean_function must be 'zero', 'linear' or GPflow's, got {mean_function!r}.")
        # Plain values, as a configuration keeps them.
        self.units = int(units)
        self.num_data = int(num_data)
        self.num_inducing = int(num_inducing)
        self.outputs = outputs
        self.q_sqrt_scale = float(q_sqrt_scale)
        self.seed = seed
        self.float_type = gpflow.default_float().__name__
        # Parts as text, so that each build has its own.
        parts = {"kernel": kernel, "inducing_variable": inducing_variable, "mean_function": mean_function}
        self._texts = {name: to_text(part, name) for name, part in parts.items()}
        self.seed_generator = keras.random.SeedGenerator(seed)
        self.supports_jit = False  # repeated Cholesky factorisations and their errors need TensorFlow's graphs
        self._gp: SVGPLayer | None = None

    @property
    def gp(self) -> SVGPLayer:
        """The GPs with their parameters.

        :raises ValueError: before the layer knows its inputs.
        """
        if self._gp is None:
            raise ValueError(f"{self.name} must know its inputs: call the model once, or start it with keras.Input.")
        self._weights_of_gp.link()
        return self._gp

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        """Make the weights.

        :raises ValueError: if kernel, inducing inputs or mean function do not fit the inputs or `units`.
        """
        if len(input_shape) != 2 or input_shape[-1] is None:
            raise ValueError(
                f"{self.name} must have inputs [N, D] with D known, got shape {tuple(input_shape)}; put a "
                "Flatten layer before it, and use outputs='moments' only in the last layer."
            )
        D = int(input_shape[-1])
        with tf.init_scope(), float_type(self.float_type):  # also where Keras only looks at shapes
            self._gp = self._made(D)
            self._weights_of_gp = Weights(self, self._gp)
        self.input_spec = keras.layers.InputSpec(ndim=2, axes={-1: D})

    def adapt(self, features: ArrayLike) -> None:
        """Start from data, before training: inducing inputs by k-means; also the default kernel's lengthscales,
        sqrt(D) standard deviations of each input (of an input that hardly varies the median one), and the principal
        components of a "linear" mean function.

        :param features: what comes into the layer, [N, D]; some thousands of rows are enough. `gpflow_deep.keras.adapt`
            hands every GP layer of a model what comes into it.
        :raises ValueError: if the inducing variables are not points that all outputs share.
        """
        X = np.asarray(features, np.float64)
        # The layer may see its inputs for the first time.
        if not self.built:
            self.build(X.shape)
        gp = self.gp
        if type(gp.inducing_variable) is not InducingPoints:
            raise ValueError(
                f"{self.name} must have inducing points that all outputs share to be adapted, got "
                f"{type(gp.inducing_variable).__name__}; place them yourself."
            )
        with float_type(self.float_type):
            # Inducing inputs at the centres of the rows.
            M = int(gp.q_mu.shape[0])
            gp.inducing_variable.Z.assign(inducing_inputs(X, M, seed=self.seed or 0))
            # The default kernel's lengthscales, and the fixed mean function's projection.
            if from_text(self._texts["kernel"], "kernel") is None:
                gp.kernel.lengthscales.assign(np.sqrt(X.shape[1]) * self._scales(X))
            is_linear = from_text(self._texts["mean_function"], "mean_function") == "linear"
            if is_linear and type(gp.mean_function) is Linear:  # `Identity` is one, too, but has nothing to assign
                gp.mean_function.A.assign(linear_projection(X, self.units))

    def call(self, inputs: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Draws, means or moments, as `outputs` says."""
        gp = self.gp
        state = passes.current()
        with float_type(self.float_type):
            if state is not None and state.adapts:
                self.adapt(inputs)
            # Eqs. (7) and (8), in the float type of the GPs.
            X = tf.cast(inputs, self.float_type)
            factors = gp.factors()
            # KL and log priors per row; a pass for predictions adds no losses.
            if state is None:
                log_prior = sum(parameter.log_prior_density() for parameter in gp.trainable_parameters)
                self.add_loss(tf.cast((gp.prior_kl(factors) - log_prior) / self.num_data, keras.backend.floatx()))
            latent = gp.latent_moments(X, factors)
            moments = tf.stack(gp.outputs(X, latent), axis=1)
            if state is not None and state.head is self:
                return moments
            # A draw while training, or the mean.
            noise = self._noise(tf.shape(X)[0], state, training=training)
            F = moments[:, 0] if noise is None else gp.sample(X, latent, noise)[0]
            returned = moments if state is None and self.outputs == "moments" else F
            return attach(tf.cast(returned, self.compute_dtype), Origin(moments))

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        """[N, P] or [N, 2, P]."""
        return (input_shape[0], 2, self.units) if self.outputs == "moments" else (input_shape[0], self.units)

    def get_config(self) -> Config:
        """The arguments, with GPflow's parts as text: the values with which they were given, not the trained ones."""
        names = ("units", "num_data", "num_inducing", "outputs", "q_sqrt_scale", "seed", "float_type")
        return {**super().get_config(), **{name: getattr(self, name) for name in names}, **self._texts}

    @classmethod
    def from_config(cls, config: Config) -> GPLayer:
        """A new layer with the same arguments, and with weights as they were at the start."""
        config = dict(config)
        with float_type(config.pop("float_type")):
            return cls(**{key: from_text(value, key) if key in _STORED else value for key, value in config.items()})

    # Private.

    def _made(self, D: int) -> SVGPLayer:
        # Parts that were not given: a squared exponential, and inducing inputs from N(0, I) until the layer is adapted.
        kernel, inducing, mean = (from_text(self._texts[name], name) for name in _STORED)
        if kernel is None:
            kernel = SquaredExponential(lengthscales=np.full(D, np.sqrt(D)))
        if inducing is None:
            rng = np.random.default_rng(self.seed_generator.get_config()["seed"])
            inducing = rng.standard_normal((self.num_inducing, D))
        if isinstance(mean, str):
            mean = None if mean == "zero" else _linear(D, self.units)
        count = None if isinstance(kernel, MultioutputKernel) else self.units
        # Whether the parts fit the inputs and the outputs.
        requirement = f"{self.name} must have parts for {D} inputs and {self.units} outputs"
        try:
            gp = SVGPLayer(
                kernel, inducing, num_latent_gps=count, mean_function=mean, q_sqrt_scale=self.q_sqrt_scale, name="gp"
            )
            gp.prior_covariance()
        except (tf.errors.InvalidArgumentError, ValueError) as error:
            raise ValueError(f"{requirement}: {one_line(error)}") from error
        if gp.output_dim != self.units or gp.input_dim not in (None, D):
            raise ValueError(
                f"{requirement}, got a kernel and inducing variables for {gp.input_dim} inputs and {gp.output_dim} "
                "outputs."
            )
        gp.label = self.name
        return gp

    def _scales(self, X: np.ndarray) -> np.ndarray:
        """Standard deviations of the inputs X: [D], and their median where one is nearly constant.

        Inputs are what one layer returns, in one unit. Taken as it is, the scale of a unit that is dead but for a few
        rows would be so small that one step of an optimiser moved the inducing inputs away from all rows.
        """
        scale = X.std(axis=0)
        median = float(np.median(scale[scale > 0])) if np.any(scale > 0) else 1.0
        is_small = scale < NEARLY_CONSTANT * median
        if np.any(is_small & (scale > 0)):
            LOG.warning(
                "%s: inputs %s vary less than a hundredth as much as the others and get their lengthscale; if they "
                "should count, put a keras.layers.Normalization before the layer.",
                *(self.name, ", ".join(map(str, np.flatnonzero(is_small & (scale > 0))))),
            )
        return np.where(is_small, median, scale)

    def _noise(self, num_rows: tf.Tensor, state: passes.Pass | None, *, training: bool) -> tf.Tensor | None:
        """Standard-normal numbers [1, N, L] if the layer is to draw."""
        if state is not None:
            # Of a prediction [S, 1, L], for S draws of N / S rows.
            noise = state.noise.get(id(self))
            return None if noise is None else tf.repeat(noise[:, 0], num_rows // tf.shape(noise)[0], axis=0)[None]
        if not training or self.outputs == "moments":
            return None
        shape = [1, num_rows, self.gp.num_latent_gps]
        return tf.random.stateless_normal(shape, tf.cast(self.seed_generator.next(), tf.int32), dtype=self.float_type)


def _linear(D: int, P: int) -> MeanFunction:
    """The fixed mean function of an inner layer, without data: the identity, cut off or padded with zeros."""
    if D == P:
        return Identity(D)
    dtype = gpflow.default_float()
    mean = Linear(A=np.eye(D, P, dtype=dtype), b=np.zeros(P, dtype))
    set_trainable(mean, False)
    return mean
