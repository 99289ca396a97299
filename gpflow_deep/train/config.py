"""A deep GP by its settings: `ModelConfig` builds one of the presets, with kernels and likelihood chosen by name.

config = ModelConfig(num_layers=3, likelihood="studentt")
model = config.build(X, Y)                                      # X and Y in standardised units
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from gpflow.kernels import Kernel, Linear, Matern32, Matern52, SquaredExponential
from gpflow.likelihoods import Bernoulli, Gaussian, Likelihood, MultiClass, Poisson, Softmax, StudentT

from gpflow_deep_base.numbers.groups import flat, grouped

from ..layers import Encoder, LatentVariableLayer
from ..model.deep_gp import NUM_PREDICT_SAMPLES, DeepGP
from ..model.initialization import residual_variance
from ..model.likelihoods import Task
from ..posteriors.sigma_points import KL_WEIGHT, NUM_POINTS
from .images import ImageConfig, PatchConfig, convolutional, shape_of_images
from .presets import modern, paper2017, with_global_inducing, with_sigma_points

__all__ = [
    "KERNELS",
    "LIKELIHOODS",
    "LINEAR",
    "KernelName",
    "LatentConfig",
    "LayerConfig",
    "ModelConfig",
    "PointConfig",
    "make_kernel",
]

#: Stationary kernels by name.
KERNELS: dict[str, type[SquaredExponential | Matern52 | Matern32]] = {
    "squared_exponential": SquaredExponential,
    "matern52": Matern52,
    "matern32": Matern32,
}

#: Behind the name of a kernel: the last layer's has a linear part, too.
LINEAR = "+linear"

#: The likelihoods of each task; "auto" is the first one, but for latent variables.
LIKELIHOODS: dict[Task, tuple[str, ...]] = {
    "regression": ("gaussian", "studentt", "poisson"),
    "binary": ("bernoulli", "robustmax", "softmax"),
    "multiclass": ("robustmax", "softmax"),
}

Posterior = Literal["gaussian", "sghmc", "global", "sigma_points", "imputed"]

KernelName = Literal[
    "squared_exponential",
    "matern52",
    "matern32",
    "squared_exponential+linear",
    "matern52+linear",
    "matern32+linear",
    "convolutional",
]

_PRESETS = {"paper2017": paper2017, "modern": modern}

_DENSE_ONLY = ("natgrad", "hidden_dim", "noise_variance", "whiten", "input_propagation", "posterior", "latent_dim")

NUM_LATENT_SAMPLES = 256
"""Default number of components of a prediction with latent variables, whose mixture has a form of its own."""


@dataclass(frozen=True)
class LayerConfig:
    """What layers have in common, and where their kernels start.

    :param noise_variance: of the noise between layers at the start, 0 for none; the preset's if not given.
    :param whiten: hold q(L^-1 u) instead of q(u).
    :param input_propagation: give every layer the inputs beside the outputs below it.
    :param lengthscale: of all kernels at the start; the preset's if not given.
    :param kernel_variance: of all kernels at the start; 1 if not given.
    :param ard: one lengthscale for each input of a layer.
    """

    noise_variance: float | None = None
    whiten: bool = True
    input_propagation: bool = False
    lengthscale: float | None = None
    kernel_variance: float | None = None
    ard: bool = True

    def __post_init__(self) -> None:
        for name in ("lengthscale", "kernel_variance"):
            value = getattr(self, name)
            if value is not None and not (value > 0 and np.isfinite(value)):
                raise ValueError(f"{name} must be a finite number above 0, got {value}; leave it out for the preset's.")
        if self.noise_variance is not None and not (self.noise_variance >= 0 and np.isfinite(self.noise_variance)):
            raise ValueError(f"noise_variance must be a finite number and not negative, got {self.noise_variance}.")


@dataclass(frozen=True)
class PointConfig:
    """The mixture of posterior="sigma_points".

    :param sigma_points: how many points the mixture of sigma_points has.
    :param kl_weight: of the KL in its objective; chosen by held-out rows if not given.
    """

    sigma_points: int = NUM_POINTS
    kl_weight: float | None = None

    def __post_init__(self) -> None:
        if self.sigma_points < 1 or not (self.kl_weight is None or 0 <= self.kl_weight < math.inf):
            raise ValueError(
                "sigma_points must be at least 1 and kl_weight finite and not negative, got "
                f"{self.sigma_points} and {self.kl_weight}."
            )


@dataclass(frozen=True)
class LatentConfig:
    """Latent variables of rows.

    :param latent_dim: number of latent variables of each row, further inputs that nobody measured, for targets on
        several branches and noise of any form: see `LatentVariableLayer`. An encoder tells them from a row.
    :param num_importance_samples: samples of latent variables in the bound of each row, which rises with them.
    """

    latent_dim: int = 0
    num_importance_samples: int = 1

    def __post_init__(self) -> None:
        if self.latent_dim < 0 or self.num_importance_samples < 1:
            raise ValueError(
                "latent_dim must not be negative and num_importance_samples at least 1, got "
                f"{self.latent_dim} and {self.num_importance_samples}."
            )
        if not self.latent_dim and self.num_importance_samples > 1:
            raise ValueError(
                f"num_importance_samples={self.num_importance_samples} needs latent variables; give latent_dim=1, or "
                "num_samples for more draws."
            )


@grouped
@dataclass(frozen=True)
class ModelConfig:
    """Which deep GP.

    :param num_layers: number of layers; 1 is a sparse variational GP.
    :param num_inducing: number of inducing inputs of every layer.
    :param num_samples: draws of the inner layers per point in the bound.
    :param num_predict_samples: draws of the inner layers in predictions; 256 with latent variables, unless changed.
    :param preset: starting values: of the paper of 2017, or those found to train better later.
    :param natgrad: natural gradients for the last layer, Adam for the rest; or else Adam for all.
    :param hidden_dim: outputs of the inner layers; min(30, inputs) if not given.
    :param precision: of the inner layers: full is the model's float type throughout, mixed has the largest products in
        float32, fast all that grows with the data.
    :param likelihood: of the targets; auto: gaussian, bernoulli or robustmax, after the task, and studentt for a
        regression with latent variables, which leave it outliers only.
    :param posterior: of the inducing values: gaussian is what training finds; sghmc are samples, drawn from there on;
        global is one that is correlated across layers; sigma_points is Gaussian, trained by the predictive density;
        imputed are draws of the inner outputs at few rows without noise, see `imputation`.
    :param kernel: of a layer's inputs; with "+linear" the last layer has a linear kernel beside it, for a trend. Or
        convolutional, of patches of images: a weighted mean over the patches in the last layer, images of the patches'
        responses in the layers below.
    :param layers: what all layers have in common, and where their kernels start.
    :param points: the mixture of posterior="sigma_points".
    :param images: what the convolutional kernel is told about the images that rows are.
    :param latents: latent variables of rows.
    """

    num_layers: int = 2
    num_inducing: int = 100
    num_samples: int = 1
    num_predict_samples: int = NUM_PREDICT_SAMPLES
    preset: Literal["paper2017", "modern"] = "paper2017"
    natgrad: bool = False
    hidden_dim: int | None = None
    precision: Literal["full", "mixed", "fast"] = "mixed"
    likelihood: Literal["auto", "gaussian", "studentt", "poisson", "bernoulli", "robustmax", "softmax"] = "auto"
    posterior: Posterior = "gaussian"
    kernel: KernelName = "squared_exponential"
    layers: LayerConfig = LayerConfig()
    points: PointConfig = PointConfig()
    images: ImageConfig = ImageConfig()  # noqa: RUF009 (frozen, too)
    latents: LatentConfig = LatentConfig()

    def __post_init__(self) -> None:
        for name in ("num_layers", "num_inducing", "num_samples", "num_predict_samples", "hidden_dim"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}.")
        # Names.
        if self.preset not in ("paper2017", "modern"):
            raise ValueError(f"preset must be one of paper2017, modern, got {self.preset!r}.")
        if self.posterior not in get_args(Posterior):
            raise ValueError(f"posterior must be one of {', '.join(get_args(Posterior))}, got {self.posterior!r}.")
        # What posteriors and presets cannot have.
        if self.posterior in ("global", "imputed") and (self.natgrad or self.layers.input_propagation):
            raise ValueError(f"posterior={self.posterior} cannot have natgrad or input_propagation; leave them out.")
        if self.posterior != "sigma_points" and self.points != PointConfig():
            raise ValueError(f"sigma_points and kl_weight need posterior=sigma_points, got posterior={self.posterior}.")
        if self.posterior == "sigma_points" and self.natgrad:
            raise ValueError("posterior=sigma_points cannot have natgrad, whose steps are those of a bound.")
        if self.preset == "modern" and (self.layers.noise_variance is not None or not self.layers.whiten):
            raise ValueError("noise_variance and whiten=false need preset=paper2017; leave them out for modern.")
        self._check_kernel()
        self._check_latents()
        if self.latents.latent_dim and self.num_predict_samples == NUM_PREDICT_SAMPLES:
            object.__setattr__(self, "num_predict_samples", NUM_LATENT_SAMPLES)

    def _check_latents(self) -> None:
        if self.latents.latent_dim and self.posterior != "gaussian":
            raise ValueError(f"latent_dim needs posterior=gaussian, got posterior={self.posterior}; leave one out.")
        if self.latents.num_importance_samples > 1 and self.natgrad:
            raise ValueError("num_importance_samples above 1 cannot have natgrad, whose steps are those of one sample.")

    def _check_kernel(self) -> None:
        if self.kernel not in get_args(KernelName):
            raise ValueError(f"kernel must be one of {', '.join(get_args(KernelName))}, got {self.kernel!r}.")
        # Images have settings of their own, and cannot have some of the others.
        fields = flat(ModelConfig, vars(self))
        defaults = flat(ModelConfig, vars(ModelConfig))
        names = _DENSE_ONLY if self.is_convolutional else [field.name for field in dataclasses.fields(ImageConfig)]
        if changed := [name for name in names if fields[name] != defaults[name]]:
            other = "squared_exponential" if self.is_convolutional else "convolutional"
            raise ValueError(f"{', '.join(changed)} need kernel={other}, got kernel={self.kernel}; leave them out.")

    @property
    def is_convolutional(self) -> bool:
        """Whether rows are images."""
        return self.kernel == "convolutional"

    def plain(self, num_layers: int) -> ModelConfig:
        """The same model with so many layers, a Gaussian posterior of a bound and no latent variables, to compare."""
        return dataclasses.replace(
            self, num_layers=num_layers, posterior="gaussian", points=PointConfig(), latents=LatentConfig()
        )

    def for_task(self, task: Task, targets: Iterable[np.ndarray] = ()) -> ModelConfig:
        """The same model with the likelihood that "auto" stands for.

        :param targets: Y [N, P] of each part of the data, in its own units.
        :raises ValueError: if the likelihood is not one of the task, or cannot have these targets.
        """
        # The first of the task, unless it is given; tails are left to latent variables.
        allowed = LIKELIHOODS[task]
        if self.likelihood not in ("auto", *allowed):
            raise ValueError(f"likelihood must be one of {', '.join(allowed)} for {task}, got {self.likelihood}.")
        default = "studentt" if self.latents.latent_dim and task == "regression" else allowed[0]
        likelihood: Any = default if self.likelihood == "auto" else self.likelihood
        if likelihood == "poisson" and any(np.any((Y < 0) | (Y % 1 != 0)) for Y in targets):
            raise ValueError("likelihood=poisson needs targets that are counts 0, 1, 2, ...; use gaussian.")
        return dataclasses.replace(self, likelihood=likelihood)

    def for_data(
        self,
        task: Task,
        parts: Iterable[tuple[np.ndarray, np.ndarray]],
        image_size: tuple[int, int] | None = None,
    ) -> ModelConfig:
        """`for_task`, and the shape of the images that rows are, if the kernel is one of images.

        :param parts: X [N, D] and Y [N, P] of each part of the data, in its own units.
        :param image_size: height and width, if they are known; `image_shape` goes before them.
        :raises ValueError: as `for_task`; or if rows cannot be images of that shape.
        """
        parts = list(parts)
        config = self.for_task(task, [Y for _, Y in parts])
        if not self.is_convolutional:
            return config
        # The given shape, or the known size with as many channels as fill a row.
        num_columns = parts[0][0].shape[1]
        shape = self.images.image_shape
        if not shape and image_size is not None:
            shape = (*image_size, num_columns // math.prod(image_size))
        images = dataclasses.replace(self.images, image_shape=shape_of_images(num_columns, shape))
        return dataclasses.replace(config, images=images)

    def build(
        self, X: np.ndarray, Y: np.ndarray, *, num_classes: int = 2, num_data: int | None = None, seed: int = 0
    ) -> DeepGP:
        """The model before the first step of training.

        :param X: training inputs [N, D] in standardised units, or a sample of them (then give `num_data`).
        :param Y: training targets [N, P], likewise; for classification labels 0, 1, ... in one column.
        :param num_classes: number of labels.
        :param num_data: size of the training set; the number of rows of X if None.
        :param seed: of k-means, which places the inducing inputs.
        :raises ValueError: if the likelihood is not chosen yet, or as `paper2017` or `convolutional` does.
        """
        if self.is_convolutional:
            return self._build_convolutional(X, Y, num_classes, num_data, seed)
        likelihood = self._likelihood(num_classes, X, Y)
        latents = None
        # Latent variables are further inputs, from an encoder.
        if self.latents.latent_dim:
            encoder = Encoder(X.shape[1] + Y.shape[1], self.latents.latent_dim, seed=seed)
            latents = LatentVariableLayer(X.shape[1], self.latents.latent_dim, encoder=encoder)
            X = latents.extend(X, seed=seed)
        noise_variance = self.layers.noise_variance
        # The layers of the preset, above the latent variables if there are some.
        model = _PRESETS[self.preset](
            X,
            Y,
            self.num_layers,
            num_inducing=self.num_inducing,
            likelihood=likelihood,
            hidden_dim=self.hidden_dim,
            kernels=self._kernels(X.shape[1]),
            noise_variance="preset" if noise_variance is None else noise_variance or None,
            whiten=self.layers.whiten,
            input_propagation=self.layers.input_propagation,
            num_samples=self.num_samples,
            num_data=num_data,
            precision=self.precision,
            natural_gradients=self.natgrad,
            seed=seed,
        )
        if latents is not None:
            model = DeepGP(
                [latents, *model.layers],
                likelihood,
                num_data=model.num_data,
                num_samples=self.num_samples,
                num_importance_samples=self.latents.num_importance_samples,
            )
        model.num_predict_samples = self.num_predict_samples
        # Another posterior of the same layers.
        if self.posterior == "sigma_points":
            weight = self.points.kl_weight
            return with_sigma_points(model, self.points.sigma_points, KL_WEIGHT if weight is None else weight)
        return with_global_inducing(model, (X, Y)) if self.posterior in ("global", "imputed") else model

    def _build_convolutional(
        self, X: np.ndarray, Y: np.ndarray, num_classes: int, num_data: int | None, seed: int
    ) -> DeepGP:
        # Patches have the kernel that layers have elsewhere.
        config = PatchConfig(
            patch=self.images.patch,
            stride=self.images.stride,
            channels=self.images.channels,
            places=self.images.places,
            lengthscale=self.layers.lengthscale,
            kernel_variance=1.0 if self.layers.kernel_variance is None else self.layers.kernel_variance,
            ard=self.layers.ard,
        )
        model = convolutional(
            X,
            Y,
            self.images.image_shape,
            self.num_layers,
            likelihood=self._likelihood(num_classes, X, Y),
            config=config,
            num_inducing=self.num_inducing,
            num_samples=self.num_samples,
            num_data=num_data,
            precision=self.precision,
            seed=seed,
        )
        model.num_predict_samples = self.num_predict_samples
        return model

    def _likelihood(self, num_classes: int, X: np.ndarray, Y: np.ndarray) -> Likelihood:
        """The likelihood before training; that of real numbers with the noise of the preset."""

        # Noise of the preset: what least squares leaves, or the paper's.
        def gaussian() -> Likelihood:
            return Gaussian(variance=residual_variance(X, Y) if self.preset == "modern" else 0.01)

        def student_t(df: float = 3.0) -> Likelihood:
            if self.preset != "modern":
                return StudentT(scale=0.1, df=df)
            return StudentT(scale=np.sqrt(residual_variance(X, Y) * (df - 2) / df), df=df)  # of this variance

        makers: dict[str, Callable[[], Likelihood]] = {
            "gaussian": gaussian,
            "studentt": student_t,
            "poisson": Poisson,
            "bernoulli": Bernoulli,
            "robustmax": lambda: MultiClass(num_classes),
            "softmax": lambda: Softmax(num_classes),
        }
        if self.likelihood not in makers:
            raise ValueError(f"likelihood must be chosen to build a model, got {self.likelihood}; call for_task.")
        return makers[self.likelihood]()

    def _kernels(self, input_dim: int) -> list[Kernel] | None:
        """One kernel for each layer, or None for those of the preset."""
        # The preset makes its own where nothing is asked for.
        is_usual = self.kernel == "squared_exponential"
        if is_usual and self.layers.lengthscale is None and self.layers.kernel_variance is None and self.layers.ard:
            return None
        # Inputs of each layer.
        hidden_dim = min(30, input_dim) if self.hidden_dim is None else self.hidden_dim
        dims = [input_dim] + [hidden_dim + (input_dim if self.layers.input_propagation else 0)] * (self.num_layers - 1)
        variance = 1.0 if self.layers.kernel_variance is None else self.layers.kernel_variance
        kernels = []
        for number, dim in enumerate(dims, start=1):
            value = self.layers.lengthscale
            if value is None:
                value = _PRESETS[self.preset].starting_lengthscale(dim)
            # Only the last layer has the linear part of the kernel's name.
            name = self.kernel if number == self.num_layers else self.kernel.removesuffix(LINEAR)
            lengthscales = np.full(dim, value) if self.layers.ard else value
            kernels.append(make_kernel(name, dim, lengthscales=lengthscales, variance=variance))
        return kernels


def make_kernel(name: str, num_inputs: int, *, lengthscales: np.ndarray | float = 1.0, variance: float = 1.0) -> Kernel:
    """A kernel by its name, with a linear part of variance 0.1 / D if the name has one.

    :param name: as in `ModelConfig`, not convolutional.
    :param num_inputs: columns of the inputs, D.
    :param lengthscales: of the stationary part, [D] or one.
    :param variance: of the stationary part.
    """
    kernel = KERNELS[name.removesuffix(LINEAR)](variance=variance, lengthscales=lengthscales)
    return kernel + Linear(variance=0.1 / num_inputs) if name.endswith(LINEAR) else kernel
