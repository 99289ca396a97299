"""`DARNDensity`: a density of bits as a scikit-learn estimator: a chain of logistic regressions, a masked network, a
DARN, or a mean of them, as validation rows choose."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, DensityMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from darn.model.categories import as_categories, columns_of
from darn.model.config import check_numbers, check_whole
from darn.model.model import DARN, DARNConfig
from darn.more.blame import blame
from darn.more.completion import warn_of_few_draws
from darn.more.mixture import (
    Density,
    Mixture,
    completion_of,
    drawn,
    log_prob,
    log_prob_by_column,
    log_prob_of_known,
    member_log_prob,
    name_of,
)
from darn.train.chain_fitting import filled
from darn.train.density_choice import KINDS, NEAR, DensityChoice, choose_density
from darn.train.optimization import TrainingConfig
from darn.train.rivals import OPTIMIZER, as_sizes
from darn.train.selection import Choice, SearchConfig, choose, few_steps
from darn.train.training import Course, Trainer
from darn.train.variables import Variables, moments
from gpflow_deep_base.cost import tell
from gpflow_deep_base.numbers.columns import as_numbers

__all__ = ["DARNDensity"]

_BINS = 16  # of a column of numbers of a frame
_FEW_ROWS = 150  # to train on: with fewer no DARN is tried beside other kinds, of which none takes a minute
_FAR = 4.0 * NEAR  # behind the best of other kinds, from which on no DARN is trained after its search


class DARNDensity(ClassNamePrefixFeaturesOutMixin, TransformerMixin, DensityMixin, BaseEstimator):  # type: ignore[misc]
    """Density of rows of bits, chosen by validation rows: a DARN with a linear autoregressive decoder (Gregor et al.,
    2014, Section 5.1), a chain of logistic regressions (`darn.Chain`), a masked network (`darn.MaskedNetwork`), trees
    and mixtures of these, or the mean of several.

        >>> import numpy as np
        >>> from darn import DARNDensity
        >>> first = np.random.default_rng(0).integers(0, 2, (200, 1))
        >>> X = np.concatenate([first, first], axis=1)  # two bits that are equal
        >>> density = DARNDensity(architecture="chain").fit(X)
        >>> equal, different = density.score_samples([[1, 1], [1, 0]])
        >>> bool(equal > different + 2.0)  # nats
        True

    Of `hidden`, `units`, `learning_rate` and `weight_decay`, validation rows choose what is None, see `darn.choose`;
    what is given stays, and the density is a DARN then. Where all are given nothing is chosen, and training takes
    seconds. So does a chain alone.

    Values may be missing (NaN, pd.NA, or masked): rows are scored by their known values, and learnt from, with what is
    missing drawn three times given the known values, each time by a chain that was fitted to the rows so filled.

    Samples of bits that stand for categories may be impossible rows, with two levels of a category or none, unless
    `categories` says which columns belong together, or rows come as a frame: a column of levels is one category there,
    and one of numbers other than 0 and 1 has ordered bins, of which one is 1 (of few values, a bin each). log p is that
    of levels and bins, minus infinity for a level that no training row has, and some nats less for a number beyond
    those of the training rows, the more the further it is. By column it is that of the frame's columns, and
    :meth:`sample` gives a frame.

        >>> import pandas as pd
        >>> frame = pd.DataFrame({"size": ["S", "L"] * 50, "price": [3, 9] * 50})
        >>> density = DARNDensity(architecture="chain").fit(frame)
        >>> sorted({*map(tuple, density.sample(20).to_numpy().tolist())})
        [('L', 9), ('S', 3)]

    :param hidden: stochastic units of each layer, or one whole number; () for none.
    :param units: deterministic units between stochastic layers, likewise.
    :param learning_rate: of RMSProp.
    :param weight_decay: decoupled, in units of the learning rate.
    :param architecture: "auto" tries chains, networks and, with 150 rows to train on, DARNs, see above; "chain"
        chains, trees and mixtures alone; "made" networks in place of the chains; "darn" DARNs alone. Each has a
        likelihood of its own for each column, see :meth:`score_samples`.
    :param bins: numbers other than 0 and 1 become at most so many ordered bins of about as many rows; None: 16 of a
        frame's, while an array of such numbers is refused.
    :param categories: columns of each category, as [(0, 1, 2), (5, 6)]: of its levels at most one is 1, or exactly one
        if that is so in all rows. Each is one variable of a chain, a network or a DARN with a linear decoder, and no
        sample is impossible.
    :param model: further fields of the `DARNConfig`, such as {"visible_conditional": "made", "conditional_units": 500,
        "orders": 16}: a MADE is often the better density. Of the columns given the stochastic units there are "linear",
        "factorial", "nade", "made" and "eonade"; "dtype" is that of the computations.
    :param search: how DARNs are chosen; its patience stops their training, too. None: `SearchConfig()`, which tries 18
        candidates in 60,000 steps, or 4 in 2,000 to 6,000 beside other kinds. The training of the best comes after it.
    :param max_steps: most steps of the training of a DARN, and of each candidate; twice as many where validation rows
        chose a learning rate that falls to 0.
    :param batch_size: rows of a step of a DARN.
    :param num_samples: importance samples of each row where the likelihood is not exact, which it is for at most 12
        stochastic units.
    :param threshold: bits are X > threshold; None: X are zeros and ones.
    :param random_state: of all that is random.
    :param verbose: 0 prints nothing; 1 what is tried, its cost and what is chosen; 2 also each round of the search.

    Fitted attributes: `model_` (a `DARN`, a `Chain`, a `MaskedNetwork` or a `Mixture`, for `darn.save_density`),
    `density_choice_` (the `DensityChoice` among all kinds, whose `table()` has them; None if there were only DARNs),
    `variables_` (names of the bits that a frame or numbers became, and which are one variable; None for bits),
    `choice_` (the `Choice` among DARNs; None if there was none), `valid_nats_` (of the validation rows, nats a row:
    -log p, or of a DARN alone the description length), `n_steps_` of the DARN, `n_features_in_`.
    """

    model_: Density
    density_choice_: DensityChoice | None
    choice_: Choice | None
    variables_: Variables | None

    def __init__(
        self,
        hidden: int | Sequence[int] | None = None,
        units: int | Sequence[int] | None = None,
        *,
        learning_rate: float | None = None,
        weight_decay: float | None = None,
        architecture: str = "auto",
        categories: Sequence[Sequence[int]] | None = None,
        bins: int | None = None,
        model: Mapping[str, Any] | None = None,
        search: SearchConfig | None = None,
        max_steps: int = 20_000,
        batch_size: int = 100,
        num_samples: int = 1000,
        threshold: float | None = None,
        random_state: int | np.random.RandomState | None = 0,
        verbose: int = 0,
    ) -> None:
        self.hidden = hidden
        self.units = units
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.architecture = architecture
        self.categories = categories
        self.bins = bins
        self.model = model
        self.search = search
        self.max_steps = max_steps
        self.batch_size = batch_size
        self.num_samples = num_samples
        self.threshold = threshold
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: ArrayLike, y: object = None, sample_weight: ArrayLike | None = None) -> DARNDensity:
        """Choose, train until validation rows say stop, and keep the best parameters.

        :param X: [N, n_x], at least two rows; zeros and ones, a frame, or numbers with `threshold` or `bins`. NaN,
            pd.NA and masked cells are missing. Sparse matrices, as those of `OneHotEncoder`, are taken, and held as a
            byte a bit.
        :param y: ignored.
        :param sample_weight: of the rows, [N]: one of weight 2 counts as two rows. DARNs are trained on as many rows,
            each as often as its weight says.
        """
        self._check_settings()
        # Bits, where they are missing, and their weights.
        x, is_missing, _ = self._bits(X, reset=True)
        groups = self._groups
        weights = None
        if sample_weight is not None:
            weights = _check_sample_weight(sample_weight, x, dtype=np.float64)
            if weights.min() < 0:
                raise ValueError(
                    f"sample_weight must not be negative, got {weights.min():g} of row {weights.argmin()}."
                )
            # A row of weight 0 is as if it were not there.
            kept = np.flatnonzero(weights)
            if len(kept) < 2:
                raise ValueError(f"sample_weight must be positive of two rows or more, got {len(kept)} such rows.")
            x = x[kept]
            weights = weights[kept]
            is_missing = None if is_missing is None else is_missing[kept]
        # What is tried, and a seed for each of the steps below.
        kinds, has_darn = self._kinds()
        random = check_random_state(self.random_state)
        seed = int(random.randint(2**31 - 1))
        order = random.permutation(len(x))
        num_valid = min(max(1, round((self.search or SearchConfig()).validation_fraction * len(x))), len(x) - 1)
        self.choice_ = self.density_choice_ = None
        self.n_steps_ = 0
        self._seed = seed
        # Missing bits are drawn given the known ones.
        if is_missing is not None:
            self._say(1, f"{is_missing.mean():.1%} of the values are missing: they are drawn given the known ones")
            x = filled(x, is_missing, groups=groups, weights=weights, seed=seed)
        # Training and validation rows.
        parts = [np.sort(part) for part in (order[num_valid:], order[:num_valid])]
        x, valid = (x[part] for part in parts)
        x_weights, valid_weights = (None if weights is None else weights[part] for part in parts)
        # Trees, mixtures, chains and networks.
        if kinds:
            self._say(1, f"trying trees, mixtures and {' and '.join(kinds)}s on {len(x):,} rows")
            self.density_choice_ = choose_density(
                x,
                valid,
                seed=seed,
                groups=groups,
                kinds=kinds,
                weights=x_weights,
                valid_weights=valid_weights,
                report=lambda line: self._say(2, line),
            )
        # A DARN, which stands beside these.
        if has_darn and kinds and len(x) < _FEW_ROWS:
            self._say(
                1, f"DARNs are not tried on {len(x)} rows: they are for {_FEW_ROWS} or more, or architecture='darn'"
            )
        elif has_darn:
            start = time.process_time()
            rng = np.random.default_rng([seed, 8])
            course = self._trained(_resampled(x, x_weights, rng), _resampled(valid, valid_weights, rng), seed)
            if course is not None:
                self.model_ = model = course.best()
                self.valid_nats_ = course.best_value
                self.n_steps_ = course.best_step
                if self.density_choice_ is not None:
                    log_p = member_log_prob(model, valid, num_samples=self.num_samples, seed=seed, warns=False)
                    seconds = time.process_time() - start
                    self.density_choice_ = self.density_choice_.with_rival(name_of(model), model, log_p, seconds)
        # The best by the validation rows, or a mean of several.
        if self.density_choice_ is not None:
            self.model_ = self.density_choice_.model
            self.valid_nats_ = self.density_choice_.valid_nats
            self._say(1, self.density_choice_.table())
        return self

    def score_samples(self, X: ArrayLike, by_column: bool = False) -> NDArray[np.float64]:
        """log p(x) of each row in nats, [N]: exact but for DARNs with more than 12 stochastic units, where it is by
        importance sampling with noise that all rows share, so that the rows beside a row do not change it. A warning
        says if less than 50 of the samples count (median of the rows), or than half of them.

        Of a row with missing values it is log p(known values), exact where few values are missing, see `complete`.

        :param X: [N, n_x]; NaN, pd.NA and masked cells are missing.
        :param by_column: [N, n_x], or the columns of a frame: log p(x_j | those before it), whose sum is log p(x). The
            lowest one says which value of an odd row is to blame. Of a mean of several densities, and of the stochastic
            units of a DARN, what is no sum over columns is shared by all alike.
        :raises ValueError: for other rows, or columns of rows with missing values, or of a DARN that averages orders.
        """
        x, is_missing, beyond = self._fitted_bits(X)
        if by_column:
            if is_missing is not None:
                raise ValueError("by_column is for rows without missing values; complete them first.")
            by_bit = log_prob_by_column(self.model_, x, num_samples=self.num_samples, seed=self._seed)
            return by_bit if self.variables_ is None else self.variables_.by_column(by_bit) - beyond
        if is_missing is None:
            return log_prob(self.model_, x, num_samples=self.num_samples, seed=self._seed) - beyond.sum(axis=1)
        return log_prob_of_known(
            self.model_, x, is_missing, num_samples=self.num_samples, seed=self._seed
        ) - beyond.sum(axis=1)

    def blame(self, X: ArrayLike) -> NDArray[np.float64]:
        """By how much log p of a row would be higher if the value of a column were the best other one, [N, n_x] or the
        columns of a frame, nats: the largest says which value of an odd row is to blame. See `darn.blame`; it scores
        each row once a column.

        :param X: [N, n_x].
        :raises ValueError: for other rows, or missing values.
        """
        x, is_missing, beyond = self._fitted_bits(X)
        if is_missing is not None:
            raise ValueError("X must have no missing values, got some; complete them first.")
        gains = blame(self.model_, x, groups=self._groups, num_samples=self.num_samples, seed=self._seed)
        return gains if self.variables_ is None else self.variables_.by_column(gains, np.maximum) + beyond

    def score(self, X: ArrayLike, y: object = None) -> float:
        """Mean of `score_samples`: nats a row; higher is better, so it serves cross-validation."""
        return float(self.score_samples(X).mean())

    def sample(self, n_samples: int = 1, random_state: int | np.random.RandomState | None = None) -> Any:
        """Independent draws of rows, zeros and ones [n_samples, n_x]; of a frame or of `bins`, a frame of pandas with
        levels, truth values and the middle number, date or time of each bin.

        :param random_state: None: that of the estimator, so that each call gives the same rows.
        """
        check_is_fitted(self, "model_")
        if not isinstance(n_samples, int | np.integer) or n_samples < 1:
            raise ValueError(f"n_samples must be at least 1, a whole number, got {n_samples!r}.")
        random = check_random_state(self.random_state if random_state is None else random_state)
        bits = drawn(self.model_, n_samples, int(random.randint(2**31 - 1)))
        return bits if self.variables_ is None else self.variables_.frame(bits)

    def transform(self, X: ArrayLike) -> np.ndarray:
        """The code h of each row: the more probable value of each stochastic unit of the DARNs in the model by
        q(h | x), from the bottom up, [N, n_h]. A chain has none: architecture="darn" gives a code.
        """
        x, is_missing, _ = self._fitted_bits(X)
        if is_missing is not None:
            # Missing bits are the more probable value given the known ones.
            x = np.where(is_missing, self._probabilities(x, is_missing) > 0.5, x).astype(np.uint8)
        # The codes of all DARNs in the model, with noise that makes each bit its more probable value.
        codes = [np.zeros([len(x), 0], (self.model or {}).get("dtype", "float32"))]
        for model in self._darns():
            noise = tuple(tf.zeros([len(x), n], model.dtype) for n in model.config.hidden)
            codes += [bits.numpy() for bits in model.encode(tf.constant(x, model.dtype), noise).h]
        return np.concatenate(codes, axis=1)

    def complete(self, X: ArrayLike, mask: ArrayLike | None = None) -> Any:
        """The known bits, and of each missing one the probability that it is 1 given the known ones, [N, n_x]. Of a
        frame or of `bins`, a frame of pandas with a column for each level and bin.

        See `darn.complete` and `darn.Chain.complete` for where these are exact.

        :param X: [N, n_x]; what stands where values are missing does not matter.
        :param mask: booleans [N, n_x], True where a value is missing; None: where X is NaN or masked.
        """
        check_is_fitted(self, "model_")
        # Which cells of X are missing, by the mask or by X itself.
        numbers = self._numbers(X, reset=False)
        if issparse(numbers):
            numbers = numbers.toarray()
        is_missing = _missing(X, numbers) if mask is None else np.asarray(mask)
        shape = numbers.shape if self.variables_ is None else (len(numbers), len(self.variables_.columns))
        if mask is not None and (is_missing.dtype != bool or is_missing.shape != shape):
            raise ValueError(
                f"mask must be booleans of the shape of X, {shape}, True where a value is missing, got "
                f"{is_missing.dtype} {is_missing.shape}; leave it out if X is NaN there."
            )
        if hasattr(mask, "columns") and self.variables_ is None:
            validate_data(self, mask, reset=False, skip_check_array=True)  # its names
        # A frame or `bins`: a cell that is missing lacks all its bits.
        if self.variables_ is not None:
            bits = self.variables_.bits(np.where(_missing(X, numbers), np.nan, numbers))
            is_missing = np.isnan(bits) if mask is None else is_missing[:, self.variables_.owners]
            numbers = bits
        probabilities = self._probabilities(self._as_bits(np.where(is_missing, 0, numbers)), is_missing)
        return probabilities if self.variables_ is None else self.variables_.named(probabilities)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True
        return tags

    # Private.

    @property
    def _n_features_out(self) -> int:
        """Columns of :meth:`transform`, which scikit-learn names darndensity0, darndensity1, ..."""
        return sum(sum(model.config.hidden) for model in self._darns())

    def _probabilities(self, rows: NDArray[np.uint8], is_missing: NDArray[np.bool_]) -> NDArray[np.float64]:
        """The known bits, and of each missing one the probability that it is 1, [N, n_x]."""
        completed = completion_of(self.model_, rows, is_missing, seed=self._seed)
        warn_of_few_draws(completed)
        return completed.probabilities

    def _darns(self) -> list[DARN]:
        """Those in the model."""
        members = self.model_.members if isinstance(self.model_, Mixture) else (self.model_,)
        return [member for member in members if isinstance(member, DARN)]

    def _check_settings(self) -> None:
        if self.bins is not None and (not isinstance(self.bins, int | np.integer) or self.bins < 2):
            raise ValueError(f"bins must be a whole number, at least 2, got {self.bins!r}.")
        for name in ("max_steps", "batch_size", "num_samples"):
            check_whole(name, getattr(self, name))
        check_numbers(self, "threshold")
        if self.threshold is not None and np.isnan(self.threshold):
            raise ValueError("threshold must be a number, or None, got nan.")
        columns_of(self.categories or ())

    def _say(self, level: int, text: str) -> None:
        if self.verbose >= level:
            print(text, flush=True)

    def _kinds(self) -> tuple[tuple[str, ...], bool]:
        """What is tried beside trees and mixtures, and whether DARNs are."""
        if not isinstance(self.model, Mapping | None):
            raise ValueError(f"model must be a dictionary of fields of DARNConfig, or None, got {self.model!r}.")
        if not isinstance(self.search, SearchConfig | None):
            raise ValueError(f"search must be a SearchConfig, or None, got {self.search!r}.")
        # Fields of a DARN in `model`, and those that are parameters of the estimator.
        fields = dict(self.model or {})
        own_names = ("hidden", "units", "learning_rate", "weight_decay")
        known_names = {field.name for field in dataclasses.fields(DARNConfig)} - {"visible", "categories", *own_names}
        for name in fields.keys() - known_names:
            raise ValueError(
                f"model must have fields of DARNConfig but visible, categories, {' and '.join(own_names[:2])}, "
                f"got {name!r}."
            )
        # What says that a DARN is wanted.
        given_names = [name for name in own_names if getattr(self, name) is not None]
        given_names += [f"{name} in model" for name in fields if name != "dtype"]
        kinds: dict[str, tuple[str, ...]] = {"auto": KINDS, "chain": ("chain",), "made": ("network",), "darn": ()}
        if self.architecture not in kinds:
            raise ValueError(f"architecture must be 'auto', 'chain', 'made' or 'darn', got {self.architecture!r}.")
        if self.architecture in ("chain", "made") and given_names:
            raise ValueError(
                f"{given_names[0]} is for a DARN, got architecture={self.architecture!r}; leave one of them out."
            )
        is_darn = self.architecture == "darn" or bool(given_names)
        return (() if is_darn else kinds[self.architecture]), is_darn or self.architecture == "auto"

    def _trained(self, x: NDArray, valid: NDArray, seed: int) -> Course | None:
        """A DARN, chosen where nothing else is given; None if those that were tried are far behind other kinds."""
        # The model and how it is trained, given or chosen.
        model, training = self._configs(x, valid, seed)
        if self.density_choice_ is not None and self.choice_ is not None:
            tried = self.choice_.trials[0].valid_nats
            if tried > (1.0 + _FAR) * self.density_choice_.valid_nats:
                self._say(1, f"DARNs are far behind after their search, {tried:.3f} nats: none is trained further")
                return None
        trainer = Trainer(DARN(model, seed=seed, data=x), training, num_data=len(x))
        course = Course(trainer, x, valid, seed=seed, batch_size=self.batch_size)
        cosine = None if self.choice_ is None else training.cosine
        until = cosine or self.max_steps
        patience = None if cosine else (self.search or SearchConfig()).search_patience
        if self.density_choice_ is not None:
            # Beside others it must come near them to be trained to its end.
            course.advance(min(few_steps(x.shape[1]), until), patience)
            if course.best_value > (1.0 + NEAR) * self.density_choice_.valid_nats:
                return course
        course.advance(until, patience)
        return course

    def _configs(self, x: NDArray, valid: NDArray, seed: int) -> tuple[DARNConfig, TrainingConfig]:
        # What is given of the model and of its training; None is chosen.
        sizes = {name: getattr(self, name) for name in ("hidden", "units")}
        model: dict[str, Any] = {name: value if value is None else as_sizes(value) for name, value in sizes.items()}
        if model["hidden"] == ():
            model["units"] = model["units"] or ()  # there is nothing to choose
        training: dict[str, Any] = {"learning_rate": self.learning_rate, "weight_decay": self.weight_decay}
        is_chosen = None in (*model.values(), *training.values())
        model |= self.model or {}
        if self._groups:
            model["categories"] = as_categories(self._groups, x, valid)
        # The others are chosen by a search.
        if is_chosen:
            search = dataclasses.replace(self.search or SearchConfig(), search_steps=self.max_steps)
            search = search if self.density_choice_ is None else search.beside_others(x.shape[1])
            words = "trying DARNs, which may take minutes; architecture='chain' takes seconds"
            self._say(1, words)
            if not self.verbose:
                tell(words)
            self.choice_ = choose(
                x,
                valid,
                seed=seed,
                search=search,
                batch_size=self.batch_size,
                model=model,
                training=training,
                report=lambda line: self._say(2, line),
            )
            return self.choice_.model, self.choice_.training
        return DARNConfig(visible=x.shape[1], **model), TrainingConfig(**OPTIMIZER, **training)

    def _fitted_bits(self, X: ArrayLike) -> tuple[NDArray[np.uint8], NDArray[np.bool_] | None, NDArray[np.float64]]:
        check_is_fitted(self, "model_")
        return self._bits(X, reset=False)

    @property
    def _groups(self) -> Sequence[Sequence[int]]:
        """Bits that are one variable."""
        return (self.categories or ()) if self.variables_ is None else self.variables_.groups

    def _numbers(self, X: ArrayLike, *, reset: bool) -> Any:
        """The numbers of X, [N, F], perhaps sparse."""
        # A frame becomes numbers, of which scikit-learn checks the width; names are those of the frame.
        frame = X
        X = as_numbers(frame, self, reset=reset, may_miss=True)
        if reset and hasattr(self, "table_encoder_"):
            X = moments(self.table_encoder_, frame)
        return validate_data(
            self,
            X,
            reset=reset,
            accept_sparse="csr",
            ensure_min_samples=2 if reset else 1,
            dtype="numeric",
            ensure_all_finite="allow-nan",
        )

    def _bits(
        self, X: ArrayLike, *, reset: bool
    ) -> tuple[NDArray[np.uint8], NDArray[np.bool_] | None, NDArray[np.float64]]:
        """Bits [N, n_x]; where they are missing, None if none is; and `Variables.beyond`, [N, C], without columns for
        bits."""
        x = self._numbers(X, reset=reset)
        if reset:
            self.variables_ = None
        # Dense rows: a frame or `bins` become bits, and the rest must be bits already.
        if not issparse(x):
            is_missing = _missing(X, x)
            if reset and self.threshold is None and self._has_variables(X, x[~is_missing]):
                self.variables_ = self._variables(X, np.where(is_missing, np.nan, x))
            beyond = np.zeros([len(x), 0])
            if self.variables_ is not None:
                numbers = np.where(is_missing, np.nan, x)
                x = self.variables_.bits(numbers)
                beyond = self.variables_.beyond(numbers)
                is_missing = np.isnan(x)
            return self._as_bits(np.where(is_missing, 0, x)), is_missing if is_missing.any() else None, beyond
        # Sparse rows: only values that are stored can be 1.
        if self.threshold is not None and self.threshold < 0:
            raise ValueError(f"threshold must not be negative for a sparse X, got {self.threshold}; give X.toarray().")
        x.sum_duplicates()
        self._as_bits(x.data[None])  # its errors, before room is made for all zeros
        bits: NDArray[np.uint8] = (x > (self.threshold or 0)).astype(np.uint8).toarray()
        return bits, None, np.zeros([len(bits), 0])

    def _has_variables(self, X: ArrayLike, values: np.ndarray) -> bool:
        """Whether rows are more than bits: a frame with levels or other numbers, or an array of numbers with `bins`."""
        if hasattr(self, "table_encoder_"):
            return True
        return (self.bins is not None or hasattr(X, "columns")) and not np.isin(values, (0, 1)).all()

    def _variables(self, X: ArrayLike, numbers: np.ndarray) -> Variables:
        encoder = getattr(self, "table_encoder_", None)
        if encoder is not None and self.categories:
            raise ValueError("categories are columns of an array, and those of a frame are found; leave them out.")
        names = getattr(self, "feature_names_in_", [f"x{number}" for number in range(numbers.shape[1])])
        return Variables.of(numbers, encoder, self.bins or _BINS, list(names), self.categories or ())

    def _as_bits(self, x: np.ndarray) -> NDArray[np.uint8]:
        wrong = np.isnan(x) if self.threshold is not None else (x != 0) & (x != 1)
        if wrong.any():
            row, column = np.argwhere(wrong)[0]
            value = x[row, column]
            remedy = "encode X first, as OneHotEncoder does"
            if np.isnan(value):
                remedy = "say by the mask that it is missing, or impute it"
            elif self.threshold is None:
                remedy = f"give threshold, whose bits are X > threshold, bins=16, or {remedy}"
            raise ValueError(f"X must be 0 or 1 everywhere, got {value} in row {row}, column {column}; {remedy}.")
        return (x > (self.threshold or 0)).astype(np.uint8)


def _missing(X: ArrayLike, x: np.ndarray) -> NDArray[np.bool_]:
    """Where values are missing: NaN in x, which was made of X, or masked there."""
    is_missing: NDArray[np.bool_] = np.isnan(x) if x.dtype.kind == "f" else np.zeros(x.shape, bool)
    return is_missing | np.ma.getmaskarray(X) if np.ma.isMaskedArray(X) else is_missing


def _resampled(rows: np.ndarray, weights: np.ndarray | None, rng: np.random.Generator) -> np.ndarray:
    """As many of the rows, each as often as its weight says, rounded up or down at random."""
    if weights is None:
        return rows
    # Evenly spaced points on the sums of the weights: each row as often as there are points in its interval.
    ends = np.cumsum(weights) / weights.sum()
    places = np.searchsorted(ends, (np.arange(len(rows)) + rng.uniform()) / len(rows), side="right")
    return rows[np.minimum(places, len(rows) - 1)]
