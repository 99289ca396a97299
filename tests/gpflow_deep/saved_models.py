"""Deep GPs of every part that GPflow has, of users' own parts and of all ways to hold a parameter; for tests of saving.

Each case makes a small model and data that it trains on. What is defined here are a user's classes and functions: a
fresh process finds them when it imports this module.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow import Parameter, functions, kernels, likelihoods
from gpflow.inducing_variables import (
    FallbackSeparateIndependentInducingVariables,
    FallbackSharedIndependentInducingVariables,
    InducingPatches,
    InducingPoints,
    Multiscale,
    SeparateIndependentInducingVariables,
    SharedIndependentInducingVariables,
)
from gpflow.kernels.categorical import Categorical
from gpflow.utilities import positive, set_trainable

from gpflow_deep import (
    BayesianLinearLayer,
    ConvolutionalLayer,
    DeepGP,
    DeepGPQuad,
    DeepSigmaPointProcess,
    FeatureLayer,
    GaussHermite,
    MonteCarlo,
    Patches,
    SVGPLayer,
    WeightedConvolutionalLayer,
    load_model,
    modern,
    paper2017,
)

tfb, tfd = tfp.bijectors, tfp.distributions

N, D, M = 8, 3, 3
"""Rows, columns, inducing points."""


class Trained(NamedTuple):
    """A model, and data for it."""

    model: DeepGP
    X: np.ndarray
    Y: np.ndarray


Case = Callable[[np.random.Generator], Trained]


# A user's own parts.


class OwnKernel(kernels.SquaredExponential):
    """A kernel whose constructor has another signature than its attributes."""

    def __init__(self, roughness: float, *parts: str) -> None:
        super().__init__(lengthscales=1.0 / roughness)
        self.parts, self.settings = parts, {"roughness": roughness, "more": [1, (2, None)]}

    def K_r2(self, r2: tf.Tensor) -> tf.Tensor:
        return super().K_r2(r2) * self.settings["roughness"]


class Network(functions.MeanFunction):
    """Trainable layers in lists and dictionaries, as in a network that somebody wrote for themselves."""

    def __init__(self, rng: np.random.Generator, widths: Sequence[int]) -> None:
        super().__init__()
        self.layers = [
            {"W": tf.Variable(0.3 * rng.normal(size=shape)), "b": Parameter(np.zeros(shape[1]))}
            for shape in pairwise(widths)
        ]
        self.activation = tf.tanh
        self.mask = rng.uniform(size=widths[-1]) < 0.8
        self.limits = slice(None), float("inf"), np.float64(3.0)

    def __call__(self, X: tf.Tensor) -> tf.Tensor:
        for layer in self.layers:
            X = self.activation(tf.tensordot(X, layer["W"], 1) + layer["b"])
        return tf.where(self.mask, X, 0.0)


class KerasFunction(functions.MeanFunction):
    """A Keras network, whose weights GPflow trains as variables of this function."""

    def __init__(self) -> None:
        super().__init__()
        parts = [keras.layers.Dense(2, activation="tanh"), keras.layers.BatchNormalization(), keras.layers.Dense(D)]
        network = keras.Sequential([keras.Input((D,), dtype="float64"), *parts])
        network.layers[1].trainable = False
        self.a_weights = [weight.value for weight in network.trainable_variables]
        self.network = network

    def __call__(self, X: tf.Tensor) -> tf.Tensor:
        flat = self.network(tf.reshape(X, [-1, D]))
        return tf.reshape(tf.cast(flat, X.dtype), tf.concat([tf.shape(X)[:-1], [D]], axis=0))


class OwnLikelihood(likelihoods.ScalarLikelihood):
    """Laplace noise around the function."""

    def __init__(self) -> None:
        super().__init__()
        self.width = Parameter(0.4, transform=positive())

    def _scalar_log_prob(self, X: tf.Tensor, F: tf.Tensor, Y: tf.Tensor) -> tf.Tensor:
        return tfd.Laplace(F, self.width).log_prob(Y)

    def _conditional_mean(self, X: tf.Tensor, F: tf.Tensor) -> tf.Tensor:
        return tf.identity(F)

    def _conditional_variance(self, X: tf.Tensor, F: tf.Tensor) -> tf.Tensor:
        return tf.fill(tf.shape(F), 2.0 * tf.square(tf.convert_to_tensor(self.width)))


class OwnInducing(InducingPoints):
    """Inducing points with something beside them."""

    def __init__(self, Z: np.ndarray) -> None:
        super().__init__(Z)
        self.source = {"rows": np.arange(len(Z)), "by": "hand"}


class OwnLayer(SVGPLayer):
    """A layer with a trainable factor on its mean."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.factor = Parameter(0.9, transform=tfb.Sigmoid(tf.constant(0.5, tf.float64), tf.constant(2.0, tf.float64)))

    def outputs(self, X: tf.Tensor, moments: Any, **options: Any) -> tuple[tf.Tensor, tf.Tensor]:
        mean, cov = super().outputs(X, moments, **options)
        return self.factor * mean, cov


class OwnModel(DeepGP):
    """A model that remembers more than its parents."""

    def __init__(self, note: str, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.history = [(0, 1.5, None), (1, float("nan"), note)]
        self.kinds = {"a", "b"}


class OwnBijector(tfp.bijectors.Bijector):
    """x -> scale sinh(x)."""

    def __init__(self, scale: float, validate_args: bool = False, name: str = "scaled_sinh") -> None:
        parameters = dict(locals())
        self.scale = scale
        super().__init__(forward_min_event_ndims=0, validate_args=validate_args, parameters=parameters, name=name)

    def _forward(self, x: tf.Tensor) -> tf.Tensor:
        return self.scale * tf.sinh(x)

    def _inverse(self, y: tf.Tensor) -> tf.Tensor:
        return tf.asinh(y / self.scale)

    def _forward_log_det_jacobian(self, x: tf.Tensor) -> tf.Tensor:
        return tf.math.log(self.scale * tf.cosh(x))


@dataclass(frozen=True)
class OwnIntegrator(MonteCarlo):
    """No `tf.Module`: whoever loads a model of it has to give the class."""

    factor: float = 1.0

    def noise(self, *args: Any, **options: Any) -> list[tf.Tensor]:
        return [self.factor * eps for eps in super().noise(*args, **options)]


def own_link(x: tf.Tensor) -> tf.Tensor:
    """Positive, and linear for large x."""
    return 0.5 * (x + tf.sqrt(tf.square(x) + 1.0))


def own_conditional(F: tf.Tensor) -> tfp.distributions.Distribution:
    return tfd.Laplace(F[..., :1], tf.exp(F[..., 1:]))


OWN = (
    *(OwnKernel, Network, KerasFunction, OwnLikelihood, OwnInducing, OwnLayer, OwnModel, OwnBijector, OwnIntegrator),
    *(own_link, own_conditional),
)
"""What has to be given to `load_model`."""


# Data.


def real(rng: np.random.Generator, X: np.ndarray, P: int = 1) -> np.ndarray:
    return np.sin(X[:, :1]) + 0.2 * rng.normal(size=(len(X), P))


def counts(rng: np.random.Generator, X: np.ndarray) -> np.ndarray:
    return rng.poisson(2.0, size=(len(X), 1)).astype(float)


def labels(rng: np.random.Generator, X: np.ndarray, C: int = 2) -> np.ndarray:
    return rng.integers(C, size=(len(X), 1)).astype(float)


def unit(rng: np.random.Generator, X: np.ndarray) -> np.ndarray:
    return rng.uniform(0.1, 0.9, size=(len(X), 1))


def switches(rng: np.random.Generator, X: np.ndarray) -> np.ndarray:
    return np.concatenate([real(rng, X), labels(rng, X)], axis=1)


# Cases of one kind.


def layer(rng: np.random.Generator, kernel: kernels.Kernel, inducing: Any = None, **settings: Any) -> SVGPLayer:
    Z = rng.normal(size=(M, D)) if inducing is None else inducing
    made = settings.pop("make", SVGPLayer)(kernel, Z, **settings)
    made.q_mu.assign(0.5 * rng.normal(size=made.q_mu.shape))
    return made


def inner(rng: np.random.Generator, kernel: kernels.Kernel | None = None, **settings: Any) -> SVGPLayer:
    settings = {"num_latent_gps": D, "mean_function": functions.Identity(D), **settings}
    return layer(rng, kernels.SquaredExponential() if kernel is None else kernel, **settings)


def deep(*layers: SVGPLayer, likelihood: Any = None, make: Any = DeepGP, **settings: Any) -> DeepGP:
    likelihood = likelihoods.Gaussian(0.1) if likelihood is None else likelihood
    if make not in (DeepGPQuad, DeepSigmaPointProcess):
        settings.setdefault("num_samples", 2)
    return make(layers, likelihood, num_data=3 * N, num_predict_samples=3, prediction_seed=5, **settings)


def of_likelihood(make: Callable[[], Any], Y: Callable[..., np.ndarray] = real, P: int = 1, **options: Any) -> Case:
    def case(rng: np.random.Generator) -> Trained:
        X = rng.normal(size=(N, D))
        last = layer(rng, kernels.SquaredExponential(), num_latent_gps=P)
        return Trained(deep(inner(rng), last, likelihood=make()), X, Y(rng, X, **options))

    return case


def of_first(make: Callable[[np.random.Generator], Any], width: int) -> Case:
    """A layer of another kind before a layer of Gaussian processes."""

    def case(rng: np.random.Generator) -> Trained:
        X = rng.normal(size=(N, D))
        last = layer(rng, kernels.SquaredExponential(), rng.normal(size=(M, width)))
        return Trained(deep(make(rng), last), X, real(rng, X))

    return case


def of_kernel(make: Callable[[], kernels.Kernel], columns: Callable[..., np.ndarray] | None = None) -> Case:
    """The kernel is in the first layer, so that it sees the data."""

    def case(rng: np.random.Generator) -> Trained:
        X, Z = (rng.normal(size=(n, D)) for n in (N, M))
        if columns is not None:
            X, Z = columns(rng, X), columns(rng, Z)
        first = layer(rng, make(), Z, num_latent_gps=2)
        last = layer(rng, kernels.Matern32(), rng.normal(size=(M, 2)))
        return Trained(deep(first, last), X, real(rng, X))

    return case


def of_layer(make: Callable[[np.random.Generator], SVGPLayer], P: int = 2) -> Case:
    """One layer, which is the last one."""

    def case(rng: np.random.Generator) -> Trained:
        X = rng.normal(size=(N, D))
        return Trained(deep(make(rng)), X, real(rng, X, P))

    return case


def of_mean(make: Callable[[np.random.Generator], functions.MeanFunction]) -> Case:
    def case(rng: np.random.Generator) -> Trained:
        X = rng.normal(size=(N, D))
        return Trained(deep(inner(rng, mean_function=make(rng)), layer(rng, kernels.Matern52())), X, real(rng, X))

    return case


def changed(change: Callable[[DeepGP], Any]) -> Case:
    """Two plain layers with some parameters changed."""

    def case(rng: np.random.Generator) -> Trained:
        X = rng.normal(size=(N, D))
        model = deep(inner(rng), layer(rng, kernels.SquaredExponential(lengthscales=np.ones(D))))
        change(model)
        return Trained(model, X, real(rng, X))

    return case


def with_labels(rng: np.random.Generator, X: np.ndarray) -> np.ndarray:
    """The last column has labels 0, 1, 2."""
    return np.concatenate([X[:, :-1], np.arange(len(X))[:, None] % 3], axis=1)


def to_parameter(value: Any, **settings: Any) -> Parameter:
    return Parameter(np.asarray(value, np.float64), **settings)


def f64(*values: float) -> tf.Tensor:
    return tf.constant(values[0] if len(values) == 1 else values, tf.float64)


# The cases.


def categorical() -> kernels.Kernel:
    state = np.random.get_state()  # noqa: NPY002 (GPflow draws from it)
    kernel = Categorical(
        kernels.SquaredExponential(active_dims=[0, 1]), kernels.SquaredExponential(active_dims=[2]), num_labels=3
    )
    np.random.set_state(state)  # noqa: NPY002
    return kernel


def change_points() -> kernels.Kernel:
    kernel = kernels.ChangePoints([kernels.Matern12(), kernels.Linear()], [0.3], steepness=2.0)
    kernel.active_dims = [1]
    return kernel


def hierarchical() -> kernels.Kernel:
    nodes = [
        kernels.HierarchyNode("always", [0], np.array([[-3.0, 3.0]])),
        kernels.HierarchyNode("sometimes", [1], np.array([[-3.0, 3.0]]), kernels.ActivityCondition({2: 1})),
    ]
    return kernels.ArcHierarchical(nodes, active_dims=[0, 1, 2])


def heteroskedastic() -> likelihoods.Likelihood:
    return likelihoods.HeteroskedasticTFPConditional(tfd.Laplace, tfb.Chain([tfb.Shift(f64(0.01)), tfb.Softplus()]))


def trained_robust_max() -> likelihoods.Likelihood:
    link = likelihoods.RobustMax(3, epsilon=0.02)
    set_trainable(link.epsilon, True)
    return likelihoods.MultiClass(3, invlink=link)


LIKELIHOODS: dict[str, Case] = {
    "gaussian": of_likelihood(lambda: likelihoods.Gaussian(0.2)),
    "gaussian_of_two": of_likelihood(lambda: likelihoods.Gaussian(np.array([0.2, 0.3])), P=2),
    "gaussian_scale": of_likelihood(lambda: likelihoods.Gaussian(scale=0.4)),
    "gaussian_lower_bound": of_likelihood(lambda: likelihoods.Gaussian(0.7, variance_lower_bound=0.5)),
    "gaussian_variance_function": of_likelihood(
        lambda: likelihoods.Gaussian(variance=functions.Polynomial(2, D, w=[0.3] + 9 * [0.01]))
    ),
    "gaussian_scale_function": of_likelihood(
        lambda: likelihoods.Gaussian(scale=functions.Linear(0.1 * np.ones((D, 1)), np.ones(1)))
    ),
    "gaussian_monte_carlo": of_likelihood(likelihoods.GaussianMC),
    "student_t": of_likelihood(lambda: likelihoods.StudentT(scale=0.3, df=4.0)),
    "student_t_scale_function": of_likelihood(
        lambda: likelihoods.StudentT(scale=functions.Constant([0.3]) + functions.Linear(0.01 * np.ones((D, 1))))
    ),
    "exponential": of_likelihood(likelihoods.Exponential, unit),
    "gamma": of_likelihood(lambda: likelihoods.Gamma(shape=2.0), unit),
    "gamma_softplus": of_likelihood(lambda: likelihoods.Gamma(tf.nn.softplus), unit),
    "beta": of_likelihood(lambda: likelihoods.Beta(scale=3.0), unit),
    "poisson": of_likelihood(lambda: likelihoods.Poisson(binsize=2.0), counts),
    "poisson_softplus": of_likelihood(lambda: likelihoods.Poisson(tf.math.softplus), counts),
    "poisson_bijector": of_likelihood(lambda: likelihoods.Poisson(tfb.Softplus()), counts),
    "poisson_bound_method": of_likelihood(lambda: likelihoods.Poisson(tfb.Softplus().forward), counts),
    "poisson_own_link": of_likelihood(lambda: likelihoods.Poisson(own_link), counts),
    "bernoulli": of_likelihood(likelihoods.Bernoulli, labels),
    "bernoulli_logistic": of_likelihood(lambda: likelihoods.Bernoulli(tf.sigmoid), labels),
    "robust_max": of_likelihood(lambda: likelihoods.MultiClass(3), labels, P=3, C=3),
    "robust_max_trained": of_likelihood(trained_robust_max, labels, P=3, C=3),
    "softmax": of_likelihood(lambda: likelihoods.Softmax(3), labels, P=3, C=3),
    "ordinal": of_likelihood(lambda: likelihoods.Ordinal(np.array([-0.5, 0.5])), labels, C=3),
    "heteroskedastic": of_likelihood(likelihoods.HeteroskedasticTFPConditional, P=2),
    "heteroskedastic_laplace": of_likelihood(heteroskedastic, P=2),
    "conditional": of_likelihood(lambda: likelihoods.MultiLatentTFPConditional(2, own_conditional), P=2),
    "switched": of_likelihood(
        lambda: likelihoods.SwitchedLikelihood([likelihoods.Gaussian(0.1), likelihoods.StudentT()]), switches
    ),
    "own_likelihood": of_likelihood(OwnLikelihood),
}

KERNELS: dict[str, Case] = {
    **{
        f"kernel_{name.lower()}": of_kernel(getattr(kernels, name))
        for name in (
            *("SquaredExponential", "Exponential", "Matern12", "Matern32", "Matern52", "RationalQuadratic"),
            *("Cosine", "Linear", "Polynomial", "White", "Constant"),
        )
    },
    "ard": of_kernel(lambda: kernels.Matern52(lengthscales=[1.0, 2.0], active_dims=[0, 2])),
    "periodic": of_kernel(lambda: kernels.Periodic(kernels.Matern32(active_dims=[1]), period=2.0)),
    **{f"arc_cosine_{i}": of_kernel(partial(kernels.ArcCosine, i)) for i in range(3)},
    "coregion": of_kernel(
        lambda: kernels.Coregion(3, 2, active_dims=[2]) * kernels.Matern12(active_dims=slice(0, 2)), with_labels
    ),
    "change_points": of_kernel(change_points),
    "categorical": of_kernel(categorical, with_labels),
    "hierarchical": of_kernel(hierarchical, with_labels),
    "nested": of_kernel(
        lambda: (
            kernels.Matern52(lengthscales=[1.0, 2.0], active_dims=[0, 2])
            + kernels.Linear(active_dims=slice(1, 3)) * (kernels.RationalQuadratic() + kernels.ArcCosine())
            + kernels.White(1e-3)
        )
    ),
    "own_kernel": of_kernel(lambda: OwnKernel(1.3, "a", "b")),
    "own_kernel_nested": of_kernel(lambda: kernels.Periodic(OwnKernel(0.7)) + OwnKernel(1.1) * kernels.Cosine()),
}


def network() -> Any:
    parts = [keras.layers.Dense(4, activation="tanh"), keras.layers.BatchNormalization(), keras.layers.Dense(2)]
    return keras.Sequential([keras.Input((D,), dtype="float64"), *parts])


def patches(rng: np.random.Generator) -> SVGPLayer:
    kernel = kernels.Convolutional(kernels.SquaredExponential(), [1, D], [1, 2])
    return layer(rng, kernel, InducingPatches(rng.normal(size=(M, 2))))


def two(make: Callable[[], kernels.Kernel] = kernels.SquaredExponential) -> list[kernels.Kernel]:
    return [make(), make()]


def points(rng: np.random.Generator) -> InducingPoints:
    return InducingPoints(rng.normal(size=(M, D)))


LAYERS: dict[str, Case] = {
    "shared_independent": of_layer(lambda rng: layer(rng, kernels.SharedIndependent(kernels.Matern32(), 2))),
    "separate_independent": of_layer(lambda rng: layer(rng, kernels.SeparateIndependent([*two()]))),
    "coregionalised": of_layer(
        lambda rng: layer(rng, kernels.LinearCoregionalization(two(kernels.Cosine), rng.normal(size=(2, 2))))
    ),
    "one_coregionalised": of_layer(
        lambda rng: layer(rng, kernels.LinearCoregionalization([kernels.Matern12()], rng.normal(size=(2, 1))))
    ),
    "shared_points": of_layer(
        lambda rng: layer(rng, kernels.SeparateIndependent(two()), SharedIndependentInducingVariables(points(rng)))
    ),
    "separate_points": of_layer(
        lambda rng: layer(
            rng, kernels.SeparateIndependent(two()), SeparateIndependentInducingVariables([points(rng), points(rng)])
        )
    ),
    "fallback_shared": of_layer(
        lambda rng: layer(
            rng,
            kernels.SharedIndependent(kernels.ArcCosine(), 2),
            FallbackSharedIndependentInducingVariables(points(rng)),
        )
    ),
    "fallback_separate": of_layer(
        lambda rng: layer(
            rng,
            kernels.SeparateIndependent(two()),
            FallbackSeparateIndependentInducingVariables([points(rng), points(rng)]),
        )
    ),
    "multiscale": of_layer(
        lambda rng: layer(
            rng, kernels.SquaredExponential(), Multiscale(rng.normal(size=(M, D)), 0.2 * np.ones((M, D)))
        ),
        P=1,
    ),
    "own_inducing": of_layer(lambda rng: layer(rng, kernels.Matern32(), OwnInducing(rng.normal(size=(M, D)))), P=1),
    "own_layer": of_layer(lambda rng: layer(rng, kernels.Matern32(), make=OwnLayer), P=1),
    "q_diag": of_layer(lambda rng: layer(rng, kernels.Matern12(), q_diag=True, num_latent_gps=2)),
    "not_whitened": of_layer(lambda rng: layer(rng, kernels.Matern12(), whiten=False, num_latent_gps=2)),
    "noise": of_layer(lambda rng: layer(rng, kernels.Matern12(), noise_variance=0.1, num_latent_gps=2)),
    "fast": of_layer(lambda rng: layer(rng, kernels.SquaredExponential(), precision="fast", num_latent_gps=2)),
    "patches": of_layer(patches, P=1),
    "convolutional": of_first(
        lambda rng: ConvolutionalLayer(kernels.Matern32(), rng.normal(size=(M, 2)), Patches((1, D, 1), (1, 2)), 2), 4
    ),
    "weighted_convolutional": of_first(
        lambda rng: WeightedConvolutionalLayer(
            kernels.SquaredExponential(), rng.normal(size=(M, 4)), Patches((1, D, 1), (1, 2), place_scale=0.7), 2
        ),
        2,
    ),
    "bayesian_linear": of_first(lambda rng: BayesianLinearLayer(D, 2), 2),
    "features_keras": of_first(lambda rng: FeatureLayer(network(), D), 2),
    "features_module": of_first(lambda rng: FeatureLayer(Network(rng, [D, 4, 2]), D), 2),
    "features_function": of_first(lambda rng: FeatureLayer(tf.sin, D), D),
    "input_propagation": of_layer(lambda rng: layer(rng, kernels.Matern12(), input_propagation=1), P=2),
}

MEANS: dict[str, Case] = {
    "mean_zero": of_mean(lambda rng: functions.Zero(D)),
    "mean_constant": of_mean(lambda rng: functions.Constant(rng.normal(size=D))),
    "mean_linear": of_mean(lambda rng: functions.Linear(rng.normal(size=(D, D)), rng.normal(size=D))),
    "mean_polynomial": of_mean(lambda rng: functions.Polynomial(2, D, D)),
    "mean_sum_of_products": of_mean(
        lambda rng: functions.Identity(D) + functions.Linear(rng.normal(size=(D, D))) * functions.Constant(np.ones(D))
    ),
    "mean_network": of_mean(lambda rng: Network(rng, [D, 4, D])),
    "mean_keras": of_mean(lambda rng: KerasFunction()),
}


def prior_on_constrained(model: DeepGP) -> None:
    kernel = model.layers[0].kernel
    kernel.lengthscales.prior = tfd.LogNormal(f64(0.3), f64(1.0))
    kernel.variance.prior = tfd.Gamma(f64(2.0), f64(3.0))
    model.likelihood.variance.prior = tfd.HalfNormal(np.float64(1.0))


def prior_on_unconstrained(model: DeepGP) -> None:
    lengthscales = model.layers[0].kernel.lengthscales
    lengthscales.prior, lengthscales.prior_on = tfd.Normal(f64(0.0), f64(2.0)), "unconstrained"


def prior_of_vectors(model: DeepGP) -> None:
    """A linear operator inside a distribution, and a distribution of a distribution."""
    scale = tf.linalg.LinearOperatorLowerTriangular(np.eye(D) + 0.1)
    model.layers[-1].kernel.lengthscales.prior = tfd.MultivariateNormalLinearOperator(np.ones(D), scale)
    model.layers[0].inducing_variable.Z.prior = tfd.Sample(tfd.StudentT(f64(3.0), f64(0.0), f64(1.0)), [M, D])


def prior_transformed(model: DeepGP) -> None:
    base = tfd.Independent(tfd.Normal(np.zeros(D), f64(1.0)), 1)
    model.layers[-1].kernel.lengthscales.prior = tfd.TransformedDistribution(
        base, tfb.Chain([tfb.Scale(f64(2.0)), tfb.Exp()])
    )


def prior_of_priors(model: DeepGP) -> None:
    """The prior's scale is a parameter with a prior of its own, which the model holds, too."""
    model.scale = Parameter(1.2, transform=positive(), prior=tfd.HalfCauchy(f64(0.0), f64(1.0)))
    for part in model.layers:
        part.kernel.variance.prior = tfd.HalfNormal(model.scale)


def with_trainable(model: DeepGP) -> None:
    set_trainable(model.layers[0].kernel.variance, False)
    set_trainable(model.layers[-1].inducing_variable, False)
    set_trainable(model.likelihood, False)


def with_shared_kernel(model: DeepGP) -> None:
    model.layers[-1].kernel = model.layers[0].kernel


def with_shared_parameter(model: DeepGP) -> None:
    model.layers[-1].kernel.variance = model.layers[0].kernel.variance
    model.layers[-1].inducing_variable = model.layers[0].inducing_variable


def with_transforms(model: DeepGP) -> None:
    chain = tfb.Chain(
        [tfb.Shift(f64(0.1)), tfb.Scale(f64(2.0)), tfb.Softplus(f64(0.7)), tfb.Invert(tfb.Scale(f64(3.0)))]
    )
    model.layers[0].kernel.lengthscales = to_parameter(1.3, transform=chain)
    model.layers[0].kernel.variance = to_parameter(0.8, transform=tfb.Sigmoid(f64(0.1), f64(4.0)))
    model.layers[-1].kernel.lengthscales = to_parameter([0.5, 1.0, 2.0], transform=tfb.Exp(), trainable=False)
    model.layers[-1].kernel.variance = to_parameter(1.1, transform=OwnBijector(2.0))


def with_trained_transform(model: DeepGP) -> None:
    """The transform has a variable, which is trained beside the parameter's own one."""
    model.slope = tf.Variable(1.5, dtype=tf.float64)
    model.layers[0].kernel.variance = to_parameter(0.8, transform=tfb.Chain([tfb.Scale(model.slope), tfb.Softplus()]))


def with_bare_values(model: DeepGP) -> None:
    """Constants and variables in place of parameters."""
    model.layers[0].kernel.variance = f64(0.9)
    model.layers[0].kernel.lengthscales = np.float64(1.1)
    model.layers[-1].inducing_variable.Z = tf.Variable(model.layers[-1].inducing_variable.Z.numpy(), trainable=False)


def of_preset(make: Callable[..., DeepGP], **settings: Any) -> Case:
    def case(rng: np.random.Generator) -> Trained:
        X = rng.normal(size=(N, D))
        Y = real(rng, X, 2)
        model = make(X, Y, num_inducing=M, **{"num_layers": 2, **settings})
        model.num_predict_samples = 3
        return Trained(model, X, Y)

    return case


def of_model(make: Any, **settings: Any) -> Case:
    def case(rng: np.random.Generator) -> Trained:
        X = rng.normal(size=(N, D))
        first = layer(rng, kernels.SquaredExponential(), num_latent_gps=1)
        last = layer(rng, kernels.SquaredExponential(), rng.normal(size=(M, 1)))
        return Trained(deep(first, last, make=make, **settings), X, real(rng, X))

    return case


MODELS: dict[str, Case] = {
    "prior_on_constrained": changed(prior_on_constrained),
    "prior_on_unconstrained": changed(prior_on_unconstrained),
    "prior_of_vectors": changed(prior_of_vectors),
    "prior_transformed": changed(prior_transformed),
    "prior_of_priors": changed(prior_of_priors),
    "trainable": changed(with_trainable),
    "shared_kernel": changed(with_shared_kernel),
    "shared_parameter": changed(with_shared_parameter),
    "transforms": changed(with_transforms),
    "trained_transform": changed(with_trained_transform),
    "bare_values": changed(with_bare_values),
    "paper2017": of_preset(paper2017, num_layers=3),
    "wider": of_preset(paper2017, hidden_dim=5),
    "modern": of_preset(modern, hidden_dim=2),
    "quadrature_model": of_model(DeepGPQuad, num_nodes=4),
    "sigma_points": of_model(DeepSigmaPointProcess, num_points=4),
    "quadrature": of_model(DeepGP, integrator=GaussHermite(3)),
    "own_model": of_model(lambda *args, **settings: OwnModel("a note", *args, **settings)),
    "own_integrator": of_model(DeepGP, integrator=OwnIntegrator(0.5)),
}

CASES: dict[str, Case] = {**LIKELIHOODS, **KERNELS, **LAYERS, **MEANS, **MODELS}


# What a model does.


def train(model: DeepGP, X: np.ndarray, Y: np.ndarray, steps: int, seed: int) -> None:
    """Steps of a new Adam, each by its own seed."""
    optimizer, variables = tf.keras.optimizers.Adam(0.02), model.trainable_variables
    for step in range(steps):
        with tf.GradientTape() as tape:
            loss = model.training_loss((X, Y), seed=tf.constant([seed, step]))
        gradients = tape.gradient(loss, variables)  # none for the inducing points of a constant kernel
        optimizer.apply_gradients([pair for pair in zip(gradients, variables, strict=True) if pair[0] is not None])


def outcome(trained: Trained) -> dict[str, np.ndarray]:
    """Predictions, log densities of data and priors and flags; and all variables after one more step of training."""
    model, X, Y = trained
    mean, variance = model.predict_y(X[:3])
    found = {
        "mean": mean.numpy(),
        "variance": variance.numpy(),
        "log_density": model.predict_log_density((X[:3], Y[:3])).numpy(),
        "log_prior": model.log_prior_density().numpy(),
        "parameters": np.array([parameter.name for parameter in model.parameters]),
        "is_trainable": np.array([parameter.trainable for parameter in model.parameters]),
        "num_trainable": np.array(len(model.trainable_variables)),
        "num_objects": np.array(len(set(map(id, model.submodules)))),
    }
    train(model, X, Y, steps=1, seed=1)
    return found | {f"variable_{i}": variable.numpy() for i, variable in enumerate(model.variables)}


def write_outcomes(folder: Path) -> None:
    """Load every case/model.npz in a folder, with its data.npz, and write outcome.npz beside it: in a fresh process."""
    for case in folder.iterdir():
        with np.load(case / "data.npz") as data:
            trained = Trained(load_model(case / "model.npz", custom_objects=OWN), data["X"], data["Y"])
        np.savez(case / "outcome.npz", **outcome(trained))
