"""Likelihoods of GPflow in Keras: their parameters are weights of a layer, their log densities are a loss.

    loss = - (1 / B) sum_n E[log p(y_n | f_n)],   f_n ~ N(mean_n, variance_n) or, from draws, the draw of f_n alone

With the KL terms that the `GPLayer`s add it is minus the bound of Eq. (17) of Salimbeni and Deisenroth (2017) over N.
"""

from __future__ import annotations

from typing import NamedTuple

import gpflow
import keras
import tensorflow as tf
from gpflow.functions import Function
from gpflow.likelihoods import Likelihood, MultiClass

from ..layers.protocol import check_likelihood
from ..model import likelihoods
from ..train.predictor import float_type
from .origins import attach, origin_of
from .stored import Config, from_text, to_text
from .weights import Weights

__all__ = ["DeepGPLikelihoodLoss", "LikelihoodLayer"]


class Density(NamedTuple):
    """p(y | f).

    :ivar likelihood: of GPflow.
    :ivar float_type: in which it computes.
    :ivar seed_generator: of Keras, for likelihoods that integrate by Monte Carlo.
    """

    likelihood: Likelihood
    float_type: str
    seed_generator: keras.random.SeedGenerator

    @classmethod
    def of(cls, text: str) -> Density:
        """One whose parameters no layer has."""
        return cls(from_text(text, "likelihood"), gpflow.default_float().__name__, keras.random.SeedGenerator())


@keras.saving.register_keras_serializable("gpflow_deep")
class LikelihoodLayer(keras.layers.Layer):
    """Passes its inputs on; its weights are the parameters of a likelihood, such as the variance of the noise.

    It is the last layer of a model, and `DeepGPLikelihoodLoss` finds it there. It has a copy of the likelihood.

    :param likelihood: of GPflow; it must not depend on the inputs X.
    :param num_data: number N of training rows; needed only where parameters have priors.
    :param options: of `keras.layers.Layer`.
    :raises ValueError: if it is no likelihood, cannot be saved, or depends on X, or `num_data` is needed.
    """

    def __init__(self, likelihood: Likelihood, *, num_data: int | None = None, **options: object) -> None:
        super().__init__(autocast=False, **options)
        check_likelihood(likelihood)
        # A loss sees no inputs; log priors of parameters are shared out over the rows.
        if any(isinstance(part, Function) for part in likelihood.submodules):
            raise ValueError(
                f"the likelihood must not depend on the inputs X, which a loss does not see, got a "
                f"{type(likelihood).__name__} with a function of X; use a DeepGP."
            )
        if num_data is None and any(parameter.prior is not None for parameter in likelihood.trainable_parameters):
            raise ValueError("num_data must be given where parameters of the likelihood have priors, got None.")
        self.num_data = num_data
        self.float_type = gpflow.default_float().__name__
        self._text = to_text(likelihood, "likelihood")
        self.seed_generator = keras.random.SeedGenerator()

    @property
    def likelihood(self) -> Likelihood:
        """The likelihood with its parameters."""
        if not self.built:
            self.build()
        self._weights_of_likelihood.link()
        return self._likelihood

    @property
    def density(self) -> Density:
        """What a loss takes the mean of."""
        return Density(self.likelihood, self.float_type, self.seed_generator)

    def build(self, input_shape: tuple[int | None, ...] | None = None) -> None:
        """Make the weights."""
        with tf.init_scope(), float_type(self.float_type):
            self._likelihood = from_text(self._text, "likelihood")
            self._weights_of_likelihood = Weights(self, self._likelihood)

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """The inputs. Priors of the parameters are added to the losses."""
        if self.num_data is not None:
            log_prior = sum(parameter.log_prior_density() for parameter in self.likelihood.trainable_parameters)
            self.add_loss(tf.cast(-log_prior / self.num_data, keras.backend.floatx()))
        return attach(tf.identity(inputs), origin_of(inputs)._replace(likelihood_layer=self))

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        """That of the inputs."""
        return tuple(input_shape)

    def get_config(self) -> Config:
        """The arguments, with the likelihood as text."""
        config = {name: value for name, value in super().get_config().items() if name != "autocast"}
        return {**config, "likelihood": self._text, "num_data": self.num_data, "float_type": self.float_type}

    @classmethod
    def from_config(cls, config: Config) -> LikelihoodLayer:
        """A new layer with the same arguments, and the parameters' values as they were at the start."""
        config = dict(config)
        with float_type(config.pop("float_type")):
            return cls(from_text(config.pop("likelihood"), "likelihood"), **config)


@keras.saving.register_keras_serializable("gpflow_deep")
class DeepGPLikelihoodLoss(keras.losses.Loss):
    """Minus the expected log density of the targets, nats, averaged over the rows.

    Targets are [N, P] or, for P = 1, [N]; labels are the integers 0, 1, ... Predictions are those of a `GPLayer` as the
    model returns them, which know mean and variance of f: as GPflow's likelihoods do it, the expectation is in closed
    form, by quadrature or by draws. If other operations come between, they are taken as draws of f.

    :param likelihood: of GPflow, without trainable parameters; None for that of the model's `LikelihoodLayer`.
    :param options: `name` and `reduction` of `keras.losses.Loss`.
    :raises ValueError: if the likelihood has trainable parameters, because a loss does not train any.
    """

    def __init__(self, likelihood: Likelihood | None = None, **options: object) -> None:
        super().__init__(**{"name": "deep_gp_likelihood_loss", **options})
        if likelihood is not None:
            check_likelihood(likelihood)
        if likelihood is not None and likelihood.trainable_parameters:
            parameters = gpflow.utilities.parameter_dict(likelihood)
            names = ", ".join(name.strip(".") for name, parameter in parameters.items() if parameter.trainable)
            raise ValueError(
                f"a loss trains no parameters, got {type(likelihood).__name__} with {names}: put "
                "gpflow_deep.keras.LikelihoodLayer(likelihood) at the end of the model, and use DeepGPLikelihoodLoss()."
            )
        self._text = None if likelihood is None else to_text(likelihood, "likelihood")
        self.density = None if self._text is None else Density.of(self._text)

    def __call__(self, y_true: tf.Tensor, y_pred: tf.Tensor, sample_weight: tf.Tensor | None = None) -> tf.Tensor:
        """The loss of a batch.

        :raises ValueError: if shapes do not fit the likelihood, or there is none.
        """
        # Its own likelihood, or that of the layer which the predictions went through.
        origin = origin_of(y_pred)
        density = self.density
        if density is None and origin.likelihood_layer is not None:
            density = origin.likelihood_layer.density
        if density is None:
            raise ValueError(
                "there is no likelihood: put a gpflow_deep.keras.LikelihoodLayer at the end of the model, and give the "
                "loss what the model returns, as it is; or give a likelihood to the loss."
            )
        # Moments, if a GP layer is right before; in the float type of the GPs.
        F = y_pred if origin.moments is None else origin.moments
        of_rows = _OfRows(density, name=self.name, reduction=self.reduction)
        return tf.cast(of_rows(y_true, F, sample_weight), self.dtype)

    def get_config(self) -> Config:
        """The arguments, with the likelihood as text."""
        kind = None if self.density is None else self.density.float_type
        return {**super().get_config(), "likelihood": self._text, "float_type": kind}

    @classmethod
    def from_config(cls, config: Config) -> DeepGPLikelihoodLoss:
        """A loss with the same arguments."""
        options = {"name": config["name"], "reduction": config["reduction"]}
        if config["likelihood"] is None:
            return cls(**options)
        with float_type(config["float_type"]):
            return cls(from_text(config["likelihood"], "likelihood"), **options)


class _OfRows(keras.losses.Loss):
    """Minus E[log p(y_n | f_n)], [N], for moments [N, 2, P]; or minus log p(y_n | f_n) for draws [N, P]."""

    def __init__(self, density: Density, **options: object) -> None:
        super().__init__(**options, dtype=density.float_type)
        self.density = density

    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        with float_type(self.density.float_type):
            # One column of targets may come without its axis, as Keras' own losses take it.
            likelihood = self.density.likelihood
            F = y_pred
            Y = y_true[:, None] if y_true.shape.rank == 1 else y_true
            _check_predictions(likelihood, F)
            # The likelihood reads no inputs, and draws, if it does, by Keras' seeds.
            X = tf.zeros([tf.shape(Y)[0], 0], F.dtype)
            seed = tf.cast(self.density.seed_generator.next(), tf.int32)
            # Of a draw of f its log density, of moments the expectation of it.
            if F.shape.rank == 2:
                return -likelihoods.log_prob(likelihood, X, F[None], Y, seed)[0]
            mean = F[None, :, 0]
            variance = F[None, :, 1]
            return -likelihoods.variational_expectations(likelihood, X, mean, variance, Y, seed)[0]


def _check_predictions(likelihood: Likelihood, F: tf.Tensor) -> None:
    name = type(likelihood).__name__
    if F.shape.rank not in (2, 3) or (F.shape.rank == 3 and F.shape[1] != 2):
        raise ValueError(f"predictions must be those of a GPLayer, [N, P] or [N, 2, P], got shape {F.shape}.")
    if F.shape.rank == 2 and isinstance(likelihood, MultiClass):
        raise ValueError(
            f"{name} is constant in draws of f, so that they train nothing; use what a GPLayer returns, as it is."
        )
    P = F.shape[-1]
    needed = likelihood.latent_dim
    if needed not in (None, P):
        raise ValueError(f"{name} must have {needed} latent functions, got a GPLayer of {P} units.")
