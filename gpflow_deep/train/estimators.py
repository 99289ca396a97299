"""Deep GPs as scikit-learn's estimators.

    model = DeepGPRegressor().fit(X_train, y_train)                 # arrays or data frames of numbers, in any units
    mean, std = model.predict(X_test, return_std=True)
    low, high = model.predict_quantiles(X_test, [0.025, 0.975]).T
    model.log_density(X_test, y_test)                               # log p(y_n), nats, in the units of y

    DeepGPClassifier().fit(X_train, labels).predict_proba(X_test)

They can be cloned, searched over, put into pipelines and pickled. Inputs and targets are standardised inside. A fit is
a function of the data and `random_state`. Rows cannot be weighted: `fit` refuses `sample_weight`.

What the estimators of scikit-learn have in common: parameters, training, and the way into a pickle.
"""

from __future__ import annotations

import dataclasses
import numbers
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, overload

import gpflow
import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, MultiOutputMixin, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, check_consistent_length, check_is_fitted, column_or_1d, validate_data

from gpflow_deep_base.numbers.columns import as_numbers
from gpflow_deep_base.numbers.groups import by_group, flat

from ..judge.forecasts import label_numbers
from ..judge.modes import PROMINENCE, Modes
from ..posteriors.sampling import SamplingConfig
from .choosing.choice import FREE
from .choosing.selection import can_choose, fit_chosen
from .config import ModelConfig
from .course import TrainingConfig
from .fitting import Fitted, count_rows, fit, pass_over, start, worse_than_simplest
from .predictor import Predictor, float_type
from .training import Trainer

__all__ = ["DeepGPClassifier", "DeepGPEstimator", "DeepGPRegressor"]

Array = NDArray[np.float64]

CHECK_ROWS = 2000
"""Rows on which a fitted model is compared with the simplest one."""

_SHARED = ("num_layers", "num_inducing", "kernel", "likelihood", "posterior", "latent_dim")
"""Parameters that are fields of the model."""

_SIZES = ("num_layers", "num_inducing", "hidden_dim", "num_samples", "num_predict_samples", "num_importance_samples")
_COUNTS = (*_SIZES, "latent_dim", "patch", "stride", "channels", "sigma_points", "batch_size", "max_iter")
_NUMBERS = ("learning_rate", "kl_weight")
_OPTIONAL = ("hidden_dim", "learning_rate", "stride", "kl_weight")
_CHOSEN = ("num_layers", "num_inducing")
_CONFIGS: dict[str, tuple[type, ...]] = {
    "model": (ModelConfig, Mapping),
    "training": (TrainingConfig,),
    "sampling": (SamplingConfig,),
}


class DeepGPEstimator(BaseEstimator):
    """What both estimators have: parameters, training, and the way to a file.

    :param num_layers: number of layers; 1 is a GP, exact or by inducing inputs. "auto" for numbers: the single layer
        unless held-out rows say that two or three are better, see `selection`; two for labels.
    :param num_inducing: number of inducing inputs of every layer. "auto": a single layer has one at each of up to 1,000
        rows, and of more rows 100 to 400, for as long as its bound rises; deeper models have 100.
    :param likelihood: as in `ModelConfig`. "auto": Gaussian, or Student's t where few rows are strong evidence of
        outliers, or held-out rows of many agree; Gaussian if `num_layers` is given and above 1 (Student's t with latent
        variables); Bernoulli for two classes, robust-max for more.
    :param posterior: "gaussian" is the variational one; "sghmc" draws samples from there on, and predicts from them;
        "global" is a variational one that is correlated across layers; "sigma_points" is Gaussian, trained by the
        predictive density, for thousands of noisy rows; "imputed" are draws of the inner outputs of two layers, for up
        to 200 rows without noise and up to 10 inputs. "auto": Gaussian, unless `num_layers` is chosen, too, and
        held-out rows are predicted better by two layers that are imputed, or by sigma points, of more than 1,000 rows
        whose noise is not Gaussian or not the same everywhere.
    :param kernel: "squared_exponential", "matern52" or "matern32", each also as "...+linear" with a linear part, or
        "convolutional" for rows that are images; pixels are not standardised then. "auto": by the marginal likelihood,
        or bound, of a single layer; squared exponential for labels.
    :param latent_dim: latent variables of each row, for targets on several branches and noise of any form; 0 for none.
    :param learning_rate: step size of Adam; it falls to 0 over the last half of the steps. 0.03 for minibatches, and
        0.01 for steps with all rows, if None; 0.01 in `partial_fit`.
    :param batch_size: rows of a minibatch.
    :param max_iter: largest number of steps, or iterations of L-BFGS of a single layer with Gaussian noise.
    :param early_stopping: hold out a tenth of the rows, or this share of them, end when their log density has stopped
        rising, and keep the best parameters.
    :param model: further fields of the `ModelConfig`, such as {"hidden_dim": 5, "num_predict_samples": 64}, or
        {"patch": 7, "stride": 2} for images, whatever group they are in; or a `ModelConfig`, of which the fields count
        that are not its defaults. What is given above goes before them. Starting values are those of its preset
        "modern" unless it says {"preset": "paper2017"}.
    :param training: how steps are made and when they end: a `TrainingConfig`; its defaults if None.
    :param sampling: how samples are drawn with `posterior="sghmc"`: a `SamplingConfig`; its defaults if None.
    :param random_state: number or generator for held-out rows, inducing inputs, batches and draws; None for new ones in
        every fit.
    :param verbose: 0 prints nothing; 1 prints what is tried and chosen, a line for every 100 steps of the last training
        and for every part of a stream; 2 also for the steps of candidates.

    :ivar choice_: what was tried and taken, a `Choice`, which prints as a table; None if nothing was to be chosen.
    :ivar predictor_: the trained model in the units of the data, a `Predictor`.
    :ivar n_iter_: steps made.
    :ivar is_settled_: whether training settled before `max_iter`, as the bound rose no more.
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
        kernel: str = "auto",
        likelihood: str = "auto",
        posterior: str = "auto",
        latent_dim: int = 0,
        learning_rate: float | None = None,
        batch_size: int = 1000,
        max_iter: int = 5000,
        early_stopping: bool | float = False,
        model: ModelConfig | Mapping[str, object] | None = None,
        training: TrainingConfig | None = None,
        sampling: SamplingConfig | None = None,
        random_state: int | np.random.RandomState | None = 0,
        verbose: bool | int = False,
    ) -> None:
        self.num_layers = num_layers
        self.num_inducing = num_inducing
        self.kernel = kernel
        self.likelihood = likelihood
        self.posterior = posterior
        self.latent_dim = latent_dim
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.early_stopping = early_stopping
        self.model = model
        self.training = training
        self.sampling = sampling
        self.random_state = random_state
        self.verbose = verbose

    # Training.

    def _fit(self, X: Array, Y: Array, class_names: Sequence[str] = ()) -> None:
        """Train on checked arrays, [N, D] and [N, P]."""
        # The model, and what its training says.
        self._check_parameters()
        seed = self._new_seed()
        fitted = self._fitted(X, Y, class_names, seed)
        self._keep(fitted.predictor, fitted.trainer, seed)
        self.n_iter_ = fitted.num_steps
        self.is_settled_ = fitted.is_settled
        self.kl_weight_ = fitted.kl_weight
        self.trust_ = {} if fitted.sampler is None else fitted.sampler.trust()
        self.bounds_ = np.array(fitted.bounds)
        self.validation_scores_ = np.array(fitted.scores)
        self.choice_ = fitted.choice
        self._warn_if_poor(fitted, X, Y)

    def _fitted(self, X: Array, Y: Array, class_names: Sequence[str], seed: int) -> Fitted:
        """The model that is asked for; the data choose the rest where they can."""
        config = self._config()
        fields = self._given()
        show = print if self.verbose else None
        # A search where fields are left open, and for a single layer, which L-BFGS trains to the end.
        is_single = config.num_layers == 1 and fields.get("likelihood", "auto") in ("auto", "gaussian")
        free = [name for name in FREE if fields.get(name, "auto") == "auto"]
        free = [] if free == ["posterior"] else free  # which is chosen with the depth only
        is_found = is_single or free or config.posterior == "imputed"
        if is_found and not self.early_stopping and can_choose(config, len(class_names)):
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
        # What is given, by steps.
        return fit(
            config,
            X,
            Y,
            training=self._training(),
            max_iter=self.max_iter,
            batch_size=self.batch_size,
            validation_fraction=0.1 if self.early_stopping == 1 else float(self.early_stopping),
            class_names=class_names,
            seed=seed,
            show=show,
            sampling=SamplingConfig() if self.sampling is None else self.sampling,
        )

    def _partial_fit(self, X: Array, Y: Array, class_names: Sequence[str] = ()) -> None:
        """One pass over checked arrays, from the first of which the model is made."""
        self._check_parameters()
        # A stream has no end, so nothing that needs all rows can go on.
        choice = getattr(self, "choice_", None)
        posterior = (self._config() if choice is None else choice.config).posterior
        if posterior != "gaussian":
            raise ValueError(
                f"posterior must be gaussian in partial_fit, got {posterior!r}: a chain needs all rows; fit with "
                "posterior='gaussian' before."
            )
        # The model of the first rows, or one more part for it.
        if not hasattr(self, "predictor_"):
            seed = self._new_seed()
            training = self._training()
            predictor_and_trainer = start(self._config(), X, Y, training=training, class_names=class_names, seed=seed)
            self._keep(*predictor_and_trainer, seed)
            self.n_iter_ = 0
        else:
            count_rows(self.predictor_.model, len(X))
        # The learning rate of a stream never falls.
        trainer = self._trainer_now()
        trainer.course = None
        trainer.optimizer.learning_rate = self._training().rate
        self.n_iter_ += pass_over(
            self.predictor_, trainer, X, Y, first=self.n_iter_, batch_size=self.batch_size, seed=self._seed
        )
        if self.verbose:
            num_rows = float(np.asarray(self.predictor_.model.num_data))
            bound = trainer.scalars()["train/elbo_nats"] / num_rows
            print(f"{num_rows:.0f} rows, step {self.n_iter_}: bound {bound:.4f} nats per row")

    def _check_parameters(self) -> None:
        """Types; the values are checked where they are used."""
        for name, kinds in _CONFIGS.items():
            if not isinstance(value := getattr(self, name), (*kinds, type(None))):
                raise TypeError(f"{name} must be a {' or a '.join(k.__name__ for k in kinds)}, got {value!r}.")
        # A share of rows that are set aside, or whether any are.
        is_share = isinstance(self.early_stopping, numbers.Real) and 0 <= self.early_stopping < 1
        if not is_share and not isinstance(self.early_stopping, bool | np.bool_):
            raise ValueError(f"early_stopping must be a bool or a share of rows below 1, got {self.early_stopping!r}.")
        # Numbers, some of which may be None or "auto".
        values = {**self.get_params(deep=False), **self._given()}
        for names, kind, noun in ((_COUNTS, numbers.Integral, "whole number"), (_NUMBERS, numbers.Real, "number")):
            for name in names:
                value = values.get(name, 1)
                is_optional = name in _OPTIONAL
                if name in _CHOSEN and isinstance(value, str) and value == "auto":
                    continue
                if not ((isinstance(value, kind) and not isinstance(value, bool)) or (value is None and is_optional)):
                    other = " or None" if is_optional else " or 'auto'" if name in _CHOSEN else ""
                    raise TypeError(f"{name} must be a {noun}{other}, got {value!r}.")

    def _refuse(self, arguments: Mapping[str, object], taken: str = "fit takes X and y") -> None:
        """A clear word on what is not taken; `sample_weight=None` is what some callers say for no weights."""
        if names := [name for name, value in arguments.items() if name != "sample_weight" or value is not None]:
            raise TypeError(
                f"{type(self).__name__}.{taken} only, got {', '.join(names)}. Rows cannot be weighted: "
                "leave sample_weight out, or draw rows in proportion to their weights."
            )

    def _given(self) -> dict[str, Any]:
        """Fields of the model that are given, by parameters or in `model`.

        :raises TypeError: if there is no such field.
        """
        defaults = flat(ModelConfig, {field.name: field.default for field in dataclasses.fields(ModelConfig)})
        # Of a whole configuration those fields that are not the defaults.
        if isinstance(self.model, ModelConfig):
            fields = flat(ModelConfig, vars(self.model))
            fields = {name: value for name, value in fields.items() if value != defaults[name]}
        else:
            fields = flat(ModelConfig, self.model or {})
        if unknown := sorted(set(fields) - set(defaults)):
            raise TypeError(f"model must have fields of ModelConfig, got {', '.join(unknown)}; see its help.")
        # Parameters of the estimator go before `model`.
        parameters = {name: getattr(self, name) for name in _SHARED}
        unset = {"latent_dim": 0}
        return {**fields, **{name: value for name, value in parameters.items() if value != unset.get(name, "auto")}}

    def _config(self) -> ModelConfig:
        """With the usual number or name for what is chosen by the data, if it is."""
        fields: dict[str, Any] = {"preset": "modern", **self._given()}
        if "image_shape" in fields:
            fields["image_shape"] = tuple(fields["image_shape"])
        return ModelConfig(**by_group(ModelConfig, fields))

    def _training(self) -> TrainingConfig:
        training = TrainingConfig() if self.training is None else self.training
        return (
            training if self.learning_rate is None else dataclasses.replace(training, learning_rate=self.learning_rate)
        )

    def _new_seed(self) -> int:
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _keep(self, predictor: Predictor, trainer: Trainer, seed: int) -> None:
        self.predictor_ = predictor
        self._trainer = trainer
        self._seed = seed
        self._float = np.dtype(gpflow.default_float()).name

    def _warn_if_poor(self, fitted: Fitted, X: Array, Y: Array) -> None:
        """Say so if the model is worse than least squares, or than one rate, or than the frequencies of classes."""
        rows = np.random.default_rng(self._seed).permutation(len(X))[:CHECK_ROWS]
        # What least squares says too well of its own rows, by Akaike, corrected for few rows (Hurvich and Tsai 1989).
        num_parameters = X.shape[1] + 2
        num_spare = len(rows) - num_parameters - 1
        if num_spare < 1:
            return
        optimism = num_parameters * Y.shape[1] / num_spare
        # The model on the same rows, in words if it is behind.
        predictor = fitted.predictor
        checked_rows = (X[rows], Y[rows])
        log_density = float(np.mean(np.asarray(predictor.forecast(*checked_rows).log_density)))
        if text := worse_than_simplest(
            predictor.model.likelihood, log_density, checked_rows, checked_rows, margin=optimism
        ):
            text = f"after {fitted.num_steps} steps the model is {text} on its training rows"
            warnings.warn(f"{text}. Raise max_iter, or lower training.tol.", ConvergenceWarning, stacklevel=4)

    # Prediction.

    def _inputs(self, X: ArrayLike) -> Array:
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
        # The model as its files, and the memory of the optimiser, so that a stream goes on as it would have.
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


_PARAMETERS = (DeepGPEstimator.__doc__ or "").split("\n", 1)[-1].strip()


class DeepGPRegressor(MultiOutputMixin, RegressorMixin, DeepGPEstimator):
    __doc__ = f"""A deep GP for targets that are numbers, [N] or [N, P].

    A step, and the deviation of a new target on it:

        >>> import numpy as np
        >>> from gpflow_deep import DeepGPRegressor
        >>> X = np.linspace(-1.0, 1.0, 60)[:, None]
        >>> y = np.sign(X[:, 0]) + 0.1 * np.sin(40.0 * X[:, 0])
        >>> model = DeepGPRegressor(num_layers=1, num_inducing=20, kernel="matern52", likelihood="gaussian").fit(X, y)
        >>> mean, std = model.predict([[-0.5], [0.5]], return_std=True)
        >>> bool(mean[0] < -0.8 and mean[1] > 0.8 and max(std) < 0.5)
        True

    {_PARAMETERS}
    """

    def fit(self, X: ArrayLike, y: ArrayLike, **refused: object) -> DeepGPRegressor:
        """Train on inputs X [N, D] and targets y [N] or [N, P], numbers in any units.

        :raises ValueError: if the arrays or the parameters do not fit.
        :raises FloatingPointError: if a step of training fails.
        """
        self._refuse(refused)
        X, Y = self._rows(X, y, reset=True)
        self._fit(X, Y)
        return self

    def partial_fit(self, X: ArrayLike, y: ArrayLike, **refused: object) -> DeepGPRegressor:
        """One pass over some more rows of a stream, in minibatches, each row once.

        The first rows give units and inducing inputs: some thousands that are typical of the stream are best.
        """
        self._refuse(refused, "partial_fit takes X and y")
        X, Y = self._rows(X, y, reset=not hasattr(self, "predictor_"))
        if hasattr(self, "predictor_"):
            with self._in_float():
                self._partial_fit(X, Y)
        else:
            self._partial_fit(X, Y)
        return self

    @overload
    def predict(self, X: ArrayLike, return_std: Literal[False] = False) -> Array: ...

    @overload
    def predict(self, X: ArrayLike, return_std: Literal[True]) -> tuple[Array, Array]: ...

    def predict(self, X: ArrayLike, return_std: bool = False) -> Array | tuple[Array, Array]:
        """Means of new targets, and their standard deviations with the noise: of the shape that y had."""
        inputs = self._inputs(X)
        with self._in_float():
            predicted = self.predictor_.predict(inputs)
        assert predicted.std is not None  # of mypy: numbers have it
        mean = self._shaped(predicted.mean)
        return (mean, self._shaped(predicted.std)) if return_std else mean

    def predict_quantiles(self, X: ArrayLike, levels: Sequence[float] = (0.025, 0.5, 0.975)) -> Array:
        """Quantiles of new targets: [N, levels], or [N, P, levels] for y of two dimensions."""
        inputs = self._inputs(X)
        with self._in_float():
            quantiles = self.predictor_.quantiles(inputs, levels)
        return self._shaped(np.moveaxis(quantiles, 0, -1))

    def log_density(self, X: ArrayLike, y: ArrayLike) -> Array:
        """log p(y_n | x_n) of each row, [N], nats, in the units of y (of all its columns together)."""
        inputs = self._inputs(X)
        targets = np.asarray(check_array(y, ensure_2d=False, dtype=np.float64))
        check_consistent_length(inputs, targets)
        self._check_shape(targets)
        with self._in_float():
            return np.asarray(self.predictor_.predict(inputs, targets.reshape(len(targets), -1)).log_density)

    def sample_y(self, X: ArrayLike, n_samples: int = 1, random_state: int | np.random.RandomState | None = 0) -> Array:
        """Draws of new targets, joint over all rows: functions from the model, and noise.

        :return: [N, n_samples], or [N, P, n_samples] for y of two dimensions, as of `GaussianProcessRegressor`.
        :raises ValueError: if X has so many rows that the covariances between them would fill the memory.
        """
        inputs = self._inputs(X)
        rng = check_random_state(random_state)
        with self._in_float():
            targets = self.predictor_.sample_y(inputs, n_samples, rng=rng)
        return self._shaped(np.moveaxis(targets, 0, -1))

    def predict_modes(self, X: ArrayLike, *, prominence: float = PROMINENCE) -> Modes:
        """Where the densities of new targets are highest: [N, C] each, or [N, P, C] for y of two dimensions.

        :param prominence: and what is returned as of `Predictor.modes`.
        """
        inputs = self._inputs(X)
        with self._in_float():
            modes = self.predictor_.modes(inputs, prominence=prominence)
        return Modes(*map(self._shaped, modes))

    def _rows(self, X: ArrayLike, y: ArrayLike, *, reset: bool) -> tuple[Array, Array]:
        rows = as_numbers(X, self, reset=reset)
        inputs, Y = validate_data(self, rows, y, dtype=np.float64, multi_output=True, y_numeric=True, reset=reset)
        Y = np.asarray(Y, np.float64)
        if reset:
            self._target_shape = Y.shape[1:]
        self._check_shape(Y)
        return inputs, Y.reshape(len(Y), -1)

    def _check_shape(self, Y: Array) -> None:
        if Y.shape[1:] != self._target_shape:
            raise ValueError(f"y must have columns of shape {self._target_shape} as in fit, got {Y.shape[1:]}.")

    def _shaped(self, values: Array) -> Array:
        """[N, P, ...] as y was: [N, ...] if it had one dimension."""
        return values if self._target_shape else values[:, 0]


class DeepGPClassifier(ClassifierMixin, DeepGPEstimator):
    __doc__ = f"""A deep GP for labels of two or more classes, [N], of any type.

        >>> import numpy as np
        >>> from gpflow_deep import DeepGPClassifier
        >>> X = np.linspace(-1.0, 1.0, 60)[:, None]
        >>> y = np.where(np.abs(X[:, 0]) < 0.5, "inside", "outside")
        >>> model = DeepGPClassifier(num_layers=1, num_inducing=10, max_iter=300).fit(X, y)
        >>> model.predict([[0.0], [0.95]]).tolist()
        ['inside', 'outside']

    {_PARAMETERS}
    :ivar classes_: the labels, in the order of the probabilities.
    """

    def fit(self, X: ArrayLike, y: ArrayLike, **refused: object) -> DeepGPClassifier:
        """Train on inputs X [N, D] and labels y [N].

        :raises ValueError: if the arrays or the parameters do not fit, or there is only one class.
        :raises FloatingPointError: if a step of training fails.
        """
        self._refuse(refused)
        X, y = self._rows(X, y, reset=True)
        self._set_classes(y)
        self._fit(X, self._codes(y), [str(c) for c in self.classes_])
        return self

    def partial_fit(
        self, X: ArrayLike, y: ArrayLike, classes: ArrayLike | None = None, **refused: object
    ) -> DeepGPClassifier:
        """One pass over some more rows of a stream, in minibatches, each row once.

        :param classes: all labels that there may be, with the first rows; later it can be left out.
        """
        self._refuse(refused, "partial_fit takes X, y and classes")
        is_first = not hasattr(self, "predictor_")
        if is_first and classes is None:
            raise ValueError("classes must be given with the first rows: all labels that the stream may have.")
        X, y = self._rows(X, y, reset=is_first)
        if is_first:
            self._set_classes(np.asarray(classes))
            self._partial_fit(X, self._codes(y), [str(c) for c in self.classes_])
        else:
            with self._in_float():
                self._partial_fit(X, self._codes(y))
        return self

    def predict(self, X: ArrayLike) -> np.ndarray:
        """The most probable label of each row, [N]."""
        best = np.argmax(self.predict_proba(X), axis=1)
        return np.asarray(self.classes_[best])

    def predict_proba(self, X: ArrayLike) -> Array:
        """Probabilities of the labels `classes_`, [N, C]."""
        inputs = self._inputs(X)
        with self._in_float():
            p = self.predictor_.predict(inputs).mean
        p = np.concatenate([1 - p, p], axis=1) if p.shape[1] == 1 else p
        return np.asarray(p / p.sum(axis=1, keepdims=True))  # their sum is 1 but for errors of quadrature

    def predict_log_proba(self, X: ArrayLike) -> Array:
        """Their logarithms, [N, C]."""
        return np.log(self.predict_proba(X))

    def log_density(self, X: ArrayLike, y: ArrayLike) -> Array:
        """log p(y_n | x_n) of each row, [N], nats."""
        inputs = self._inputs(X)
        labels = self._codes(column_or_1d(y))
        check_consistent_length(inputs, labels)
        with self._in_float():
            return np.asarray(self.predictor_.predict(inputs, labels).log_density)

    def _rows(self, X: ArrayLike, y: ArrayLike, *, reset: bool) -> tuple[Array, np.ndarray]:
        inputs, labels = validate_data(self, as_numbers(X, self, reset=reset), y, dtype=np.float64, reset=reset)
        try:
            check_classification_targets(labels)
        except TypeError as error:  # of sorting them
            raise ValueError(f"y must have labels of one type, and one in every row ({error}).") from error
        return inputs, labels

    def _set_classes(self, y: np.ndarray) -> None:
        classes = np.unique(y)
        if len(classes) < 2:
            raise ValueError(f"y must have at least two classes, got one class: {classes[0]!r}.")
        self.classes_ = classes

    def _codes(self, y: np.ndarray) -> Array:
        """Labels as numbers 0, 1, ..., [N, 1]."""
        return label_numbers(self.classes_, y).astype(np.float64)[:, None]
