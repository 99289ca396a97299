"""What the estimators of scikit-learn have in common: parameters, training, and the way into a pickle."""

from __future__ import annotations

import numbers
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from gpflow_deep_base.columns import as_numbers

from ..model.deep_gp import NUM_PREDICT_SAMPLES
from ..posteriors.sampling import SamplingConfig
from ..posteriors.sigma_points import NUM_POINTS
from .choice import FREE
from .config import ModelConfig
from .course import TrainingConfig
from .fitting import Fitted, count_rows, fit, pass_over, start, worse_than_simplest
from .predictor import Predictor, float_type
from .selection import can_choose, fit_chosen
from .training import Trainer

__all__ = ["DeepGPEstimator"]

Array = NDArray[np.float64]

CHECK_ROWS = 2000
"""Rows on which a fitted model is compared with the simplest one."""

_SIZES = ("num_layers", "num_inducing", "hidden_dim", "num_samples", "num_predict_samples", "latent_dim")
_OF_TRAINING = ("num_importance_samples", "batch_size", "max_iter", "n_iter_no_change")
_COUNTS = (*_SIZES, *_OF_TRAINING, "patch", "stride", "channels", "sigma_points")
_NUMBERS = ("learning_rate", "tol", "validation_fraction", "kl_weight")
_OPTIONAL = ("hidden_dim", "learning_rate", "stride", "kl_weight")
_CHOSEN = ("num_layers", "num_inducing")


class DeepGPEstimator(BaseEstimator):
    """What both estimators have: parameters, training, and the way to a file.

    :param num_layers: number of layers; 1 is a GP, exact or by inducing inputs. "auto" for numbers: the single layer
        unless held-out rows say that two or three are better, see `selection`; two for labels.
    :param num_inducing: number of inducing inputs of every layer. "auto": a single layer has one at each of up to 1,000
        rows, and of more rows 100 to 400, for as long as its bound rises; deeper models have 100.
    :param likelihood: as in `ModelConfig`. "auto": Gaussian, or Student's t where intervals are too wide in the middle
        and held-out rows agree; Gaussian if `num_layers` is given and above 1 (Student's t with latent variables);
        Bernoulli for two classes, robust-max for more.
    :param hidden_dim: outputs of the inner layers; min(30, inputs) if None.
    :param preset: starting values, as in `ModelConfig`.
    :param natgrad: natural gradients for the last layer, Adam for the rest; or else Adam for all.
    :param posterior: "gaussian" is the variational one; "sghmc" draws samples from there on, and predicts from them;
        "global" is a variational one that is correlated across layers; "sigma_points" is Gaussian, trained by the
        predictive density, for thousands of noisy rows. "auto": Gaussian, unless `num_layers` is chosen, too, and
        held-out rows are predicted better by two layers that are global, of some 200 rows without noise, or sigma
        points, of more than 1,000 rows whose noise is not Gaussian or not the same everywhere.
    :param sampling: how they are drawn, a `SamplingConfig`; its defaults if None.
    :param kernel: "squared_exponential", "matern52" or "matern32", each also as "...+linear" with a linear part, or
        "convolutional" for rows that are images; pixels are not standardised then. "auto": by the marginal likelihood,
        or bound, of a single layer; squared exponential for labels.
    :param image_shape: height and width, and channels if there are several, of the images; with that kernel only, as
        are `patch`, `stride`, `channels` and `places`. See `ModelConfig`.
    :param patch: height and width of a patch.
    :param stride: distance of neighbouring patches.
    :param channels: of the images between layers.
    :param places: whether the response to a patch may depend on its place.
    :param sigma_points: of `posterior="sigma_points"`: how many.
    :param kl_weight: of the KL in its objective; a tenth of the rows chooses it if None, see
        `fitting.choose_kl_weight`.
    :param latent_dim: latent variables of each row, for targets on several branches and noise of any form; 0 for none.
    :param num_importance_samples: samples of them for each row and step of training; see `ModelConfig`.
    :param num_samples: draws of the inner layers for each row and step of training.
    :param num_predict_samples: draws of the inner layers in predictions; 256 with latent variables, unless changed.
    :param learning_rate: step size of Adam; it falls to 0 over the last half of the steps. 0.03 for minibatches, and
        0.01 for steps with all rows, if None; 0.01 in `partial_fit`.
    :param batch_size: rows of a minibatch.
    :param max_iter: largest number of steps, or iterations of L-BFGS of a single layer with Gaussian noise.
    :param tol: rise of the smoothed bound (or of the held-out log density) that counts, nats per row.
    :param n_iter_no_change: windows of 100 steps without such a rise, after which the learning rate falls to 0.
    :param early_stopping: hold out rows, end when their log density has stopped rising, and keep the best parameters.
    :param validation_fraction: of the rows, held out with `early_stopping`.
    :param random_state: number or generator for held-out rows, inducing inputs, batches and draws; None for new ones in
        every fit.
    :param verbose: 0 prints nothing; 1 prints what is tried and chosen, a line for every 100 steps of the last training
        and for every part of a stream; 2 also for the steps of candidates.

    :ivar choice_: what was tried and taken, a `Choice`, which prints as a table; None if nothing was to be chosen.
    :ivar predictor_: the trained model in the units of the data, a `Predictor`.
    :ivar n_iter_: steps made.
    :ivar bounds_: mean bound of each window of 100 steps of `fit`, nats per row.
    :ivar validation_scores_: mean log density of the held-out rows after each window; empty without them.
    :ivar kl_weight_: how the weight of the KL was chosen, a `KLWeight`; None if it was given, or not needed.
    :ivar trust_: effective sample sizes and split R-hat of the samples, see `Sampler.trust`; empty without samples.
    :ivar n_features_in_: inputs.
    :ivar feature_names_in_: their names, if X was a data frame.
    """

    def __init__(
        self,
        num_layers: int | str = "auto",
        *,
        num_inducing: int | str = "auto",
        likelihood: str = "auto",
        hidden_dim: int | None = None,
        preset: str = "modern",
        natgrad: bool = False,
        posterior: str = "auto",
        sampling: SamplingConfig | None = None,
        num_samples: int = 1,
        num_predict_samples: int = NUM_PREDICT_SAMPLES,
        learning_rate: float | None = None,
        batch_size: int = 1000,
        max_iter: int = 5000,
        tol: float = 1e-3,
        n_iter_no_change: int = 5,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        random_state: int | np.random.RandomState | None = 0,
        verbose: bool | int = False,
        kernel: str = "auto",
        image_shape: Sequence[int] | None = None,
        patch: int = 5,
        stride: int | None = None,
        channels: int = 4,
        places: bool = True,
        sigma_points: int = NUM_POINTS,
        kl_weight: float | None = None,
        latent_dim: int = 0,
        num_importance_samples: int = 1,
    ) -> None:
        self.num_layers = num_layers
        self.num_inducing = num_inducing
        self.likelihood = likelihood
        self.hidden_dim = hidden_dim
        self.preset = preset
        self.natgrad = natgrad
        self.posterior = posterior
        self.sampling = sampling
        self.num_samples = num_samples
        self.num_predict_samples = num_predict_samples
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.tol = tol
        self.n_iter_no_change = n_iter_no_change
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.random_state = random_state
        self.verbose = verbose
        self.kernel = kernel
        self.image_shape = image_shape
        self.patch = patch
        self.stride = stride
        self.channels = channels
        self.places = places
        self.sigma_points = sigma_points
        self.kl_weight = kl_weight
        self.latent_dim = latent_dim
        self.num_importance_samples = num_importance_samples

    # Training.

    def _fit(self, X: Array, Y: Array, class_names: Sequence[str] = ()) -> None:
        """Train on checked arrays, [N, D] and [N, P]."""
        self._check_parameters()
        seed = self._new_seed()
        fitted = self._fitted(X, Y, class_names, seed)
        self._keep(fitted.predictor, fitted.trainer, seed)
        self.n_iter_ = fitted.num_steps
        self.kl_weight_ = fitted.kl_weight
        self.trust_ = {} if fitted.sampler is None else fitted.sampler.trust()
        self.bounds_, self.validation_scores_ = np.array(fitted.bounds), np.array(fitted.scores)
        self.choice_ = fitted.choice
        self._warn_if_poor(fitted, X, Y)

    def _fitted(self, X: Array, Y: Array, class_names: Sequence[str], seed: int) -> Fitted:
        """The model that is asked for; the data choose the rest where they can."""
        config = self._config()
        validation_fraction = self.validation_fraction if self.early_stopping else 0.0
        show = print if self.verbose else None
        is_single = config.num_layers == 1 and self.likelihood in ("auto", "gaussian")
        free = [name for name in FREE if getattr(self, name) == "auto"]
        free = [] if free == ["posterior"] else free  # which is chosen with the depth only
        if (is_single or free) and not self.early_stopping and can_choose(config, len(class_names)):
            return fit_chosen(
                config,
                free,
                X,
                Y,
                training=self._training(),
                max_iter=self.max_iter,
                batch_size=self.batch_size,
                seed=seed,
                show=show,
                show_steps=self.verbose > 1,
            )
        return fit(
            config,
            X,
            Y,
            training=self._training(),
            max_iter=self.max_iter,
            batch_size=self.batch_size,
            validation_fraction=validation_fraction,
            class_names=class_names,
            seed=seed,
            show=show,
            sampling=SamplingConfig() if self.sampling is None else self.sampling,
        )

    def _partial_fit(self, X: Array, Y: Array, class_names: Sequence[str] = ()) -> None:
        """One pass over checked arrays, from the first of which the model is made."""
        self._check_parameters()
        choice = getattr(self, "choice_", None)
        posterior = (self._config() if choice is None else choice.config).posterior
        if posterior != "gaussian":
            raise ValueError(
                f"posterior must be gaussian in partial_fit, got {posterior!r}: a chain needs all rows; fit with "
                "posterior='gaussian' before."
            )
        if not hasattr(self, "predictor_"):
            seed, training = self._new_seed(), self._training()
            made = start(self._config(), X, Y, training=training, class_names=class_names, seed=seed)
            self._keep(*made, seed)
            self.n_iter_ = 0
        else:
            count_rows(self.predictor_.model, len(X))
        trainer = self._trainer_now()
        trainer.course, trainer.optimizer.learning_rate = None, self._training().rate  # of a stream it never falls
        where = {"first": self.n_iter_, "batch_size": self.batch_size, "seed": self._seed}
        self.n_iter_ += pass_over(self.predictor_, trainer, X, Y, **where)
        if self.verbose:
            num_rows = float(np.asarray(self.predictor_.model.num_data))
            bound = trainer.scalars()["train/elbo_nats"] / num_rows
            print(f"{num_rows:.0f} rows, step {self.n_iter_}: bound {bound:.4f} nats per row")

    def _check_parameters(self) -> None:
        """Types; the values are checked where they are used."""
        for names, kind, what in ((_COUNTS, numbers.Integral, "whole number"), (_NUMBERS, numbers.Real, "number")):
            for name in names:
                value, is_optional = getattr(self, name), name in _OPTIONAL
                if name in _CHOSEN and isinstance(value, str) and value == "auto":
                    continue
                if not ((isinstance(value, kind) and not isinstance(value, bool)) or (value is None and is_optional)):
                    other = " or None" if is_optional else " or 'auto'" if name in _CHOSEN else ""
                    raise TypeError(f"{name} must be a {what}{other}, got {value!r}.")

    def _refuse(self, arguments: dict[str, Any], taken: str = "fit takes X and y") -> None:
        """A clear word on what is not taken; `sample_weight=None` is what some callers say for no weights."""
        if names := [name for name, value in arguments.items() if name != "sample_weight" or value is not None]:
            raise TypeError(
                f"{type(self).__name__}.{taken} only, got {', '.join(names)}. Rows cannot be weighted: "
                "leave sample_weight out, or draw rows in proportion to their weights."
            )

    def _config(self) -> ModelConfig:
        """With the usual number or name for what is chosen by the data, if it is."""
        return ModelConfig(
            num_layers=2 if self.num_layers == "auto" else int(self.num_layers),
            num_inducing=100 if self.num_inducing == "auto" else int(self.num_inducing),
            num_samples=self.num_samples,
            num_predict_samples=self.num_predict_samples,
            preset=self.preset,  # type: ignore[arg-type]
            natgrad=self.natgrad,
            posterior="gaussian" if self.posterior == "auto" else self.posterior,  # type: ignore[arg-type]
            sigma_points=self.sigma_points,
            kl_weight=self.kl_weight,
            hidden_dim=self.hidden_dim,
            likelihood=self.likelihood,  # type: ignore[arg-type]
            kernel="squared_exponential" if self.kernel == "auto" else self.kernel,  # type: ignore[arg-type]
            image_shape=() if self.image_shape is None else tuple(self.image_shape),
            patch=self.patch,
            stride=self.stride,
            channels=self.channels,
            places=self.places,
            latent_dim=self.latent_dim,
            num_importance_samples=self.num_importance_samples,
        )

    def _training(self) -> TrainingConfig:
        return TrainingConfig(self.learning_rate, tol=self.tol, n_iter_no_change=self.n_iter_no_change)

    def _new_seed(self) -> int:
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _keep(self, predictor: Predictor, trainer: Trainer, seed: int) -> None:
        self.predictor_, self._trainer, self._seed = predictor, trainer, seed
        self._float = np.dtype(gpflow.default_float()).name

    def _warn_if_poor(self, fitted: Fitted, X: Array, Y: Array) -> None:
        """Say so if the model is worse than least squares, or than one rate, or than the frequencies of classes."""
        rows = np.random.default_rng(self._seed).permutation(len(X))[:CHECK_ROWS]
        predictor, some = fitted.predictor, (X[rows], Y[rows])
        log_density = float(np.mean(np.asarray(predictor.forecast(*some).log_density)))
        if text := worse_than_simplest(predictor.model.likelihood, log_density, some, some):
            text = f"after {fitted.num_steps} steps the model is {text} on its training rows"
            warnings.warn(f"{text}. Raise max_iter, or lower tol.", ConvergenceWarning, stacklevel=4)

    # Prediction.

    def _inputs(self, X: Any) -> Array:
        check_is_fitted(self)
        X = as_numbers(X, self, reset=False)
        return np.asarray(validate_data(self, X, dtype=np.float64, reset=False))

    @contextmanager
    def _in_float(self) -> Iterator[None]:
        with float_type(self._float):
            yield

    # Copies and files.

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        if "predictor_" in state:
            with self._in_float(), tempfile.TemporaryDirectory() as folder:
                self.predictor_.save(folder)
                state["predictor_"] = {path.name: path.read_bytes() for path in Path(folder).iterdir()}
            state["_trainer"] = [np.asarray(variable) for variable in self._trainer_now().optimizer.variables]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if "predictor_" in state:
            with self._in_float(), tempfile.TemporaryDirectory() as folder:
                for name, content in state["predictor_"].items():
                    (Path(folder) / name).write_bytes(content)
                self.predictor_ = Predictor.load(folder)

    def _trainer_now(self) -> Trainer:
        """The trainer, made again where the estimator comes from a pickle."""
        if not isinstance(self._trainer, Trainer):
            trainer = Trainer(self.predictor_.model, self._training())
            for variable, value in zip(trainer.optimizer.variables, self._trainer, strict=True):
                variable.assign(value)
            self._trainer = trainer
        return self._trainer
