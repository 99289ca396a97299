"""`DARNDensity`: a DARN as a scikit-learn estimator, whose architecture validation rows choose."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, DensityMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from darn.candidates import OPTIMIZER, as_sizes
from darn.completion import complete
from darn.distribution import log_prob
from darn.fitting import Course
from darn.model import DARN, DARNConfig
from darn.optimization import TrainingConfig
from darn.selection import Choice, SearchConfig, choose
from darn.training import Trainer

__all__ = ["DARNDensity"]

#: Most stochastic units whose states are summed: 2^12 take about as long as 4,000 importance samples.
MAX_EXACT_UNITS = 12

_BLOCK = 1000  # rows at a time


class DARNDensity(TransformerMixin, DensityMixin, BaseEstimator):  # type: ignore[misc]
    """Density of rows of bits: a DARN with a linear autoregressive decoder (Gregor et al., 2014, Section 5.1).

    :param hidden: stochastic units of each layer, or one whole number; None: chosen by validation rows, as what is None
        of `units`, `learning_rate` and `weight_decay`, see `darn.choose`. () for none.
    :param units: deterministic units between stochastic layers. :param learning_rate: of RMSProp.
    :param weight_decay: decoupled, in units of the learning rate.
    :param candidates: how many to choose among, before the neighbours of the best.
    :param search_seconds: after so many seconds the best candidate so far is chosen; 0 for no limit. The training of
        what was chosen comes after it.
    :param validation_fraction: share of the rows that choose, and that stop the training.
    :param max_steps: most steps of the training, and of each candidate; twice as many where validation rows chose a
        learning rate that falls to 0.
    :param patience: evaluations in a row without improvement after which training stops.
    :param num_samples: importance samples of each row where the likelihood is not exact, which it is for at most 12
        stochastic units.
    :param threshold: bits are X > threshold; None: X are zeros and ones.
    :param dtype: of the computations, "float32" or "float64".
    :param random_state: of all that is random.

    Fitted attributes: `model_` (the `DARN`), `choice_` (the `Choice`; None if `hidden` was given), `valid_nats_`
    (description length of the validation rows, nats a row), `n_steps_`, `n_features_in_`.
    """

    model_: DARN
    choice_: Choice | None

    def __init__(
        self,
        hidden: int | Sequence[int] | None = None,
        units: int | Sequence[int] | None = None,
        *,
        learning_rate: float | None = None,
        weight_decay: float | None = None,
        candidates: int = 18,
        search_seconds: float = 900.0,
        validation_fraction: float = 0.1,
        max_steps: int = 20_000,
        patience: int = 10,
        batch_size: int = 100,
        num_samples: int = 1000,
        threshold: float | None = None,
        dtype: str = "float32",
        random_state: Any = 0,
    ) -> None:
        self.hidden = hidden
        self.units = units
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.candidates = candidates
        self.search_seconds = search_seconds
        self.validation_fraction = validation_fraction
        self.max_steps = max_steps
        self.patience = patience
        self.batch_size = batch_size
        self.num_samples = num_samples
        self.threshold = threshold
        self.dtype = dtype
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: Any = None) -> DARNDensity:
        """Choose, train until validation rows say stop, and keep the best parameters.

        :param X: [N, n_x], at least two rows; zeros and ones, or numbers with `threshold`.
        :param y: ignored.
        """
        x = self._bits(X, reset=True)
        if not 0 < self.validation_fraction < 1:
            raise ValueError(f"validation_fraction must be in (0, 1), got {self.validation_fraction}.")
        random = check_random_state(self.random_state)
        seed, order = int(random.randint(2**31 - 1)), random.permutation(len(x))
        num_valid = min(max(1, round(self.validation_fraction * len(x))), len(x) - 1)
        x, valid = x[order[num_valid:]], x[order[:num_valid]]
        model, training = self._configs(x, valid, seed)
        trainer = Trainer(DARN(model, seed=seed, data=x), training, num_data=len(x))
        course = Course(trainer, x, valid, seed=seed, batch_size=self.batch_size)
        if self.choice_ is not None and training.cosine is not None:
            course.advance(training.cosine)
        else:
            course.advance(self.max_steps, self.patience)
        self.model_, self.valid_nats_, self.n_steps_ = course.best(), course.best_value, course.best_step
        self._seed = seed
        return self

    def score_samples(self, X: ArrayLike) -> NDArray[np.float64]:
        """log p(x) of each row in nats, [N]: exact for at most 12 stochastic units, else by importance sampling with
        noise that all rows share, so that the rows beside a row do not change it.
        """
        x = self._fitted_bits(X)
        settings: dict[str, Any] = {"num_samples": self.num_samples, "max_exact_units": MAX_EXACT_UNITS}
        blocks = [x[start : start + _BLOCK] for start in range(0, len(x), _BLOCK)]
        found = [log_prob(self.model_, block, seed=self._seed, **settings).numpy() for block in blocks]
        return np.concatenate(found).astype(np.float64)

    def score(self, X: ArrayLike, y: Any = None) -> float:
        """Mean of `score_samples`: nats a row; higher is better, so it serves cross-validation."""
        return float(self.score_samples(X).mean())

    def sample(self, n_samples: int = 1, random_state: Any = None) -> NDArray[np.uint8]:
        """Independent draws of rows, zeros and ones [n_samples, n_x].

        :param random_state: None: that of the estimator, so that each call gives the same rows.
        """
        check_is_fitted(self, "model_")
        if n_samples < 1:
            raise ValueError(f"n_samples must be at least 1, got {n_samples}.")
        random = check_random_state(self.random_state if random_state is None else random_state)
        return self.model_.sample(n_samples, int(random.randint(2**31 - 1))).x.numpy().astype(np.uint8)

    def transform(self, X: ArrayLike) -> NDArray[Any]:
        """The code h of each row: the more probable value of each stochastic unit by q(h | x), from the bottom up,
        [N, n_h].
        """
        x = self._fitted_bits(X)
        noise = tuple(tf.zeros([len(x), n], self.model_.dtype) for n in self.model_.config.hidden)
        h = self.model_.encode(tf.constant(x, self.model_.dtype), noise).h
        return np.concatenate([bits.numpy() for bits in h], axis=1) if h else np.zeros([len(x), 0], self.dtype)

    def complete(self, X: ArrayLike, mask: ArrayLike) -> NDArray[np.float64]:
        """The known bits, and of each missing one the probability that it is 1 given the known ones, [N, n_x].

        :param X: [N, n_x]; what stands where bits are missing does not matter.
        :param mask: booleans [N, n_x], True where a bit is missing.
        """
        mask = np.asarray(mask, bool)
        x = self._fitted_bits(np.where(mask, 0, np.asarray(X, float)))
        return complete(self.model_, x, mask, seed=self._seed)

    # Private.

    def _configs(self, x: NDArray, valid: NDArray, seed: int) -> tuple[DARNConfig, TrainingConfig]:
        given = {"learning_rate": self.learning_rate, "weight_decay": self.weight_decay}
        units = None if self.units is None else as_sizes(self.units)
        model = {"units": units, "dtype": self.dtype}
        self.choice_ = None
        if self.hidden is None:
            search = SearchConfig(
                candidates=self.candidates,
                search_steps=self.max_steps,
                search_patience=self.patience,
                search_seconds=self.search_seconds,
            )
            self.choice_ = choose(
                x, valid, seed=seed, search=search, batch_size=self.batch_size, model=model, training=given
            )
            return self.choice_.model, self.choice_.training
        known: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        hidden = as_sizes(self.hidden)
        config = DARNConfig(visible=x.shape[1], hidden=hidden, units=units or (), dtype=self.dtype)  # type: ignore[arg-type]
        return config, TrainingConfig(**OPTIMIZER, **known)

    def _fitted_bits(self, X: ArrayLike) -> NDArray[np.uint8]:
        check_is_fitted(self, "model_")
        return self._bits(X, reset=False)

    def _bits(self, X: ArrayLike, *, reset: bool) -> NDArray[np.uint8]:
        least = 2 if reset else 1
        x: NDArray[Any] = validate_data(self, X, reset=reset, dtype="numeric", ensure_min_samples=least)
        if self.threshold is not None:
            return (x > self.threshold).astype(np.uint8)
        wrong = (x != 0) & (x != 1)
        if wrong.any():
            row, column = np.argwhere(wrong)[0]
            raise ValueError(
                f"X must be 0 or 1 everywhere, got {x[row, column]} in row {row}, column {column}; give threshold, "
                "whose bits are X > threshold, or encode X first, as OneHotEncoder does."
            )
        return x.astype(np.uint8)
