"""Deep GPs with the settings of a publication, in one call.

    model = gpflow_deep.paper2017(X, Y, num_layers=2)
    train_step = gpflow_deep.make_train_step(model, tf.keras.optimizers.Adam(0.01))

`paper2017` is the model of Salimbeni & Deisenroth (2017); `modern` starts with the noise that least squares leaves, has
none between the layers, and lengthscales that grow with the number of inputs where there are many. Both expect
standardised inputs (and, for regression, standardised targets): subtract the mean and divide by the standard deviation
of the training set.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from gpflow.config import default_float
from gpflow.inducing_variables import InducingPoints
from gpflow.kernels import Kernel, SquaredExponential
from gpflow.likelihoods import Bernoulli, Gaussian, Likelihood, MultiClass, Ordinal, Softmax, SwitchedLikelihood
from gpflow.utilities import set_trainable
from scipy.cluster.vq import vq

from ..layers import GlobalInducingLayer, Precision, SVGPLayer
from ..model.deep_gp import DeepGP
from ..model.initialization import inducing_inputs, linear_mean, linear_projection, residual_variance
from ..posteriors.sigma_points import KL_WEIGHT, NUM_POINTS, DeepSigmaPointProcess

__all__ = [
    "Preset",
    "check_targets",
    "finite_matrix",
    "modern",
    "num_outputs",
    "paper2017",
    "with_global_inducing",
    "with_sigma_points",
]

MAX_VARIANCE = 1e4
"""Of the first kernel at the rows, in units of the variance of the targets: more is told."""

CHECK_ROWS = 100
"""Rows at which it is looked at."""


@dataclass(frozen=True)
class Preset:
    """Where a deep GP starts; call it with data to get the model.

    Squared-exponential kernels with ARD lengthscales and variance 1, min(30, D) outputs in every inner layer, fixed
    linear mean functions, 100 inducing inputs by k-means, inner `q_sqrt` scaled by 1e-5.

    :param lengthscale: of all kernels: 1, or "scaled" for max(1, sqrt(D) / 3) of D inputs, so that the rows of a table
        with many inputs are not all far from each other.
    :param likelihood_variance: of a Gaussian likelihood; "residual" for what least squares leaves.
    :param noise_variance: of the noise between layers; None for none.
    """

    lengthscale: Literal["one", "scaled"]
    likelihood_variance: float | Literal["residual"]
    noise_variance: float | None

    def __call__(
        self,
        X: np.ndarray,
        Y: np.ndarray,
        num_layers: int = 2,
        *,
        num_inducing: int = 100,
        likelihood: Likelihood | None = None,
        hidden_dim: int | None = None,
        kernels: Sequence[Kernel] | Kernel | None = None,
        Z: np.ndarray | None = None,
        noise_variance: float | Literal["preset"] | None = "preset",
        whiten: bool = True,
        input_propagation: bool = False,
        num_samples: int = 1,
        num_data: int | None = None,
        precision: Precision = "mixed",
        natural_gradients: bool = False,
        seed: int = 0,
    ) -> DeepGP:
        """The model before the first step of training.

        :param X: training inputs [N, D], or a sample of them (then give `num_data`).
        :param Y: training targets [N, Q]; for classification labels 0, 1, ... in one column.
        :param num_layers: L; 1 gives a sparse variational GP.
        :param num_inducing: M, in every layer.
        :param likelihood: any GPflow likelihood; Gaussian if None.
        :param hidden_dim: width of the inner layers; min(30, D) if None.
        :param kernels: one kernel per layer in place of the default ones, or that of the only layer.
        :param Z: inducing inputs of the first layer [M, D] in place of k-means.
        :param noise_variance: of the noise between layers; None for none.
        :param whiten: hold q(L^-1 u) instead of q(u).
        :param input_propagation: give every layer the inputs X beside the outputs of the layer below.
        :param num_samples: S of the bound; 1 in the paper.
        :param num_data: size N of the training set; the number of rows of X if None.
        :param precision: of the inner layers, see `gpflow_deep.layers.Precision`; the last layer, on which the
            likelihood depends directly, is always "full" unless this is "fast". "full" opts out of mixed precision.
        :param natural_gradients: whether the last layer's `q_mu` and `q_sqrt` are marked untrainable, so that Adam
            leaves them to `gpflow.optimizers.NaturalGradient`; `make_train_step(model, optimizer, natgrad_gamma=0.1)`
            uses both. For likelihoods other than Gaussian start with `natgrad_gamma=0.01`: larger steps can leave the
            positive-definite covariances.
        :param seed: of k-means.
        :raises ValueError: if X or Y are not finite matrices of equal length, or the labels do not fit the likelihood.
        """
        # Data that the model can have.
        X = finite_matrix("X", X)
        Y = finite_matrix("Y", Y)
        if len(X) != len(Y):
            raise ValueError(f"X and Y must have equally many rows, got {len(X)} and {len(Y)}.")
        if num_layers < 1:
            raise ValueError(f"num_layers must be at least 1, got {num_layers}.")
        kernels = [kernels] if isinstance(kernels, Kernel) else kernels
        if kernels is not None and len(kernels) != num_layers:
            raise ValueError(f"kernels must have one kernel for each of the {num_layers} layers, got {len(kernels)}.")
        if likelihood is None:
            # With the noise that least squares leaves, where the preset says so.
            is_residual = self.likelihood_variance == "residual"
            likelihood = Gaussian(variance=residual_variance(X, Y) if is_residual else self.likelihood_variance)
        check_targets(likelihood, Y)
        if kernels is not None:
            warn_of_scale(kernels[0], X, Y)
        # Inducing inputs of the first layer; those of others are what the mean functions below make of them.
        D = X.shape[1]
        Z = finite_matrix("Z", inducing_inputs(X, num_inducing, seed=seed) if Z is None else Z)
        if Z.shape[1] != D:
            raise ValueError(f"Z must have the {D} columns of X, got {Z.shape[1]}.")
        hidden_dim = min(30, D) if hidden_dim is None else hidden_dim
        propagated = D if input_propagation else 0
        layers = []
        for number in range(1, num_layers):
            layer = SVGPLayer(
                self._kernel(X.shape[1]) if kernels is None else kernels[number - 1],
                Z,
                num_latent_gps=hidden_dim,
                mean_function=linear_mean(X, hidden_dim),
                q_sqrt_scale=1e-5,
                whiten=whiten,
                noise_variance=self.noise_variance if noise_variance == "preset" else noise_variance,
                input_propagation=propagated,
                precision=precision,
                name=f"layer_{number}",
            )
            # What the next layer reads at the start.
            W = linear_projection(X, hidden_dim)
            X, Z = (np.concatenate([part[:, :propagated], part @ W], axis=1) for part in (X, Z))
            layers.append(layer)
        # The last layer has mean zero, and the prior as its q(u).
        last = SVGPLayer(
            self._kernel(X.shape[1]) if kernels is None else kernels[-1],
            Z,
            num_latent_gps=num_outputs(likelihood, Y),
            whiten=whiten,
            precision="fast" if precision == "fast" else "full",
            name=f"layer_{num_layers}",
        )
        if natural_gradients:
            set_trainable(last.q_mu, False)
            set_trainable(last.q_sqrt, False)
        num_data = len(Y) if num_data is None else num_data
        return DeepGP([*layers, last], likelihood, num_data=num_data, num_samples=num_samples)

    def starting_lengthscale(self, num_inputs: int) -> float:
        """Of each input of a kernel."""
        return max(1.0, np.sqrt(num_inputs) / 3) if self.lengthscale == "scaled" else 1.0

    def _kernel(self, num_inputs: int) -> Kernel:
        value = self.starting_lengthscale(num_inputs)
        return SquaredExponential(lengthscales=np.full(num_inputs, value, dtype=default_float()))


paper2017 = Preset(lengthscale="one", likelihood_variance=0.01, noise_variance=1e-5)
"""The deep GP of the 2017 paper: train everything with Adam(0.01) on minibatches of min(10000, N)."""

modern = Preset(lengthscale="scaled", likelihood_variance="residual", noise_variance=None)
"""The deep GP that starts with the noise of the data: it is useful after fewer steps, with Adam(0.03)."""


def with_global_inducing(
    model: DeepGP, data: tuple[np.ndarray, np.ndarray] | None = None, *, inner_precision: float = 100.0
) -> DeepGP:
    """A model with the same kernels, mean functions, likelihood and first inducing inputs, and global inducing outputs
    (Ober and Aitchison 2021): a posterior that is correlated across layers. See `GlobalInducingLayer`.

    :param model: a deep GP before training, each layer a `SVGPLayer`; its parameters become those of the new one.
    :param data: training rows (X [N, D], Y [N, P]) to start from if the likelihood is Gaussian: the last layer's
        pseudo-outputs are the mean targets of the rows nearest to each inducing input, with the precision of a mean of
        so many. With an inducing input at each row, a single layer starts as the exact posterior. Without data they
        are 0, with precision 1.
    :param inner_precision: precision of the pseudo-outputs of all but the last layer.
    :raises ValueError: if a layer has what global inducing outputs cannot have: several kernels or inducing variables,
        noise, propagated inputs.
    """
    # The same layers with other posteriors.
    layers: list[GlobalInducingLayer] = []
    for layer in model.layers:
        is_plain = isinstance(layer, SVGPLayer) and type(layer.inducing_variable) is InducingPoints
        if not is_plain or layer.noise_variance is not None or layer.input_propagation:
            raise ValueError(
                f"global inducing outputs need SVGPLayers with InducingPoints, without noise between layers and "
                f"propagated inputs, got {layer.label}; use preset=modern, or posterior=gaussian."
            )
        new = GlobalInducingLayer(
            layer.kernel,
            layer.num_latent_gps,
            Z=None if layers else layer.inducing_variable.Z,  # only the first layer has inducing inputs of its own
            num_inducing=int(layer.q_mu.shape[0]),
            input_dim=layer.input_dim,
            mean_function=layer.mean_function,
            precision=1.0 if layer is model.layers[-1] else inner_precision,
        )
        layers.append(new)
    # Starting values by the rows, and the settings of the model.
    if data is not None and type(model.likelihood) is Gaussian and model.likelihood.variance is not None:
        _observe(layers, *data, noise=float(model.likelihood.variance.numpy()))
    names = ("num_data", "num_samples", "num_predict_samples", "prediction_seed", "integrator", "predict_integrator")
    return DeepGP(layers, model.likelihood, **{name: getattr(model, name) for name in names})


def _observe(layers: Sequence[GlobalInducingLayer], X: np.ndarray, Y: np.ndarray, *, noise: float) -> None:
    """Pseudo-outputs of the last layer from the rows nearest to each inducing input; a precision of 1 where none is."""
    assert layers[0].Z is not None  # of mypy: it is the first
    # Mean targets of the rows nearest to each inducing input.
    U = layers[0].Z.numpy()
    nearest, _ = vq(X, U)
    counts = np.bincount(nearest, minlength=len(U))[:, None]
    sums = np.stack([np.bincount(nearest, column, len(U)) for column in np.transpose(Y)], axis=1)
    # The inducing inputs of the last layer are what the mean functions make of Z.
    for layer in layers[:-1]:
        U = layer.mean_function(U)
    # An inducing input is as good as a mean over its rows, given what the mean function says already.
    last = layers[-1]
    last.pseudo_outputs.assign(np.where(counts > 0, sums / np.maximum(counts, 1) - last.mean_function(U), 0.0))
    last.precisions.assign(np.where(counts > 0, counts / noise, 1.0) * np.ones_like(sums))


def with_sigma_points(
    model: DeepGP, num_points: int = NUM_POINTS, kl_weight: float = KL_WEIGHT
) -> DeepSigmaPointProcess:
    """A model with the same layers and likelihood that is trained by the density it predicts, see `sigma_points`.

    :param model: a deep GP; its layers become those of the new one.
    :param num_points: sigma points of its mixture.
    :param kl_weight: of the KL in the objective.
    :raises ValueError: if the layers have latent variables or global inducing outputs, or a number is out of range.
    """
    options = {name: getattr(model, name) for name in ("num_data", "num_predict_samples", "prediction_seed")}
    return DeepSigmaPointProcess(model.layers, model.likelihood, num_points=num_points, kl_weight=kl_weight, **options)


def finite_matrix(name: str, value: np.ndarray) -> np.ndarray:
    """`value` as a finite [N, D] array of the default float type, or an error that says what is wrong with it."""
    try:
        array: np.ndarray = np.asarray(value, dtype=default_float())
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be an array of numbers ({error}); encode text columns first.") from error
    # A shape that a hint may mend.
    if array.ndim != 2 or 0 in array.shape:
        hint = f"use {name}[:, None] for one column" if array.ndim == 1 else "give at least one row and one column"
        raise ValueError(f"{name} must be a matrix with rows of data points, got shape {list(array.shape)}; {hint}.")
    if not np.all(np.isfinite(array)):
        bad = ~np.isfinite(array)
        row, column = np.argwhere(bad)[0]
        raise ValueError(
            f"{name} must be finite, got {int(bad.sum())} NaN or infinite entries, the first in row {row}, column "
            f"{column}; remove those rows or fill in the values."
        )
    return array


def warn_of_scale(kernel: Kernel, X: np.ndarray, Y: np.ndarray) -> None:
    """Say so if a function of this kernel is far larger at X [N, D] than targets Y [N, Q] are: of a linear kernel on
    rows that are not standardised."""
    variance = float(np.mean(kernel(X[:CHECK_ROWS], full_cov=False)))
    of_targets = float(np.var(Y)) or 1.0
    if variance > MAX_VARIANCE * of_targets:
        warnings.warn(
            f"the first kernel has variance {variance:.1e} at these rows, and the targets have {of_targets:.1e}, so "
            "that the bound starts very low: standardise the rows, as by gpflow_deep.Units.fit(X, Y, 'gaussian')."
            "transform(X, Y), or give linear and polynomial kernels a smaller variance.",
            UserWarning,
            stacklevel=3,
        )


def num_outputs(likelihood: Likelihood, Y: np.ndarray) -> int:
    """Latent functions that a likelihood needs for targets Y [N, Q]."""
    if isinstance(likelihood, SwitchedLikelihood):
        return Y.shape[1] - 1
    return Y.shape[1] if likelihood.latent_dim is None else int(likelihood.latent_dim)


def check_targets(likelihood: Likelihood, Y: np.ndarray) -> None:
    """:raises ValueError: if the labels Y [N, 1] are not those of the likelihood, or this is none."""
    if not isinstance(likelihood, Likelihood):
        raise ValueError(f"likelihood must be one of GPflow, as gpflow.likelihoods.Gaussian(), got {likelihood!r}.")
    if isinstance(likelihood, Bernoulli):
        num_classes = 2
    elif isinstance(likelihood, MultiClass | Softmax):
        num_classes = int(likelihood.latent_dim or 0)
    elif isinstance(likelihood, Ordinal):
        num_classes = int(likelihood.num_bins)
    else:
        return
    labels = np.unique(Y)
    if not np.all(np.isin(labels, np.arange(num_classes))):
        shown = ", ".join(f"{label:g}" for label in labels[:6]) + (", ..." if len(labels) > 6 else "")
        raise ValueError(
            f"Y must have labels 0 to {num_classes - 1} for {type(likelihood).__name__}, got {shown}; recode them."
        )
