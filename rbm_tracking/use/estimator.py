"""The tracked RBM as a scikit-learn estimator: a `BernoulliRBM` that knows its log-likelihood."""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from gpflow_deep_base.cost import Cost
from gpflow_deep_base.numbers.columns import as_numbers
from gpflow_deep_base.runtime.threads import one_blas_thread
from gpflow_deep_base.stopping import Best
from rbm_tracking import evaluation
from rbm_tracking.estimates import strata
from rbm_tracking.estimates.ais import Bracket, linear_schedule
from rbm_tracking.estimates.trajectories import Trajectory, distances, half_precision, is_node, trajectory
from rbm_tracking.estimates.trajectory_tempering import tempered, trajectory_bracket
from rbm_tracking.model import plain
from rbm_tracking.model.checks import linear_ladder
from rbm_tracking.model.conditionals import Imputed, impute
from rbm_tracking.model.exact import log_z_exact, num_terms
from rbm_tracking.model.families.groups import blocks
from rbm_tracking.model.families.softmax import Softmax
from rbm_tracking.model.random import Execution, Generator
from rbm_tracking.model.rbm import RBM, activations, initial_rbm, low_rank_rbm
from rbm_tracking.model.units import (
    FAMILIES,
    UNITS,
    Layer,
    UnitsConfig,
    UnitsName,
    choose_units,
    hidden_units,
    layer,
)
from rbm_tracking.model.visible import Bernoulli, Visible
from rbm_tracking.track.evidence import (
    Z_95,
    Annealing,
    Choice,
    Evidence,
    Verdict,
    flag_names,
    is_better,
    is_even,
    is_in_doubt,
    judge,
    rise,
    statement,
    stronger,
)
from rbm_tracking.track.filtering import known
from rbm_tracking.track.settings import FALLING, DecayConfig, PenaltyConfig
from rbm_tracking.track.tempering import initial_chains, sample
from rbm_tracking.track.updates.learning import (
    Observed,
    SMLConfig,
    SMLState,
    compiled_updates,
    initial_state,
    sml_update,
)
from rbm_tracking.track.updates.plain_updates import plain_updates
from rbm_tracking.track.updates.schedules import learning_rate_at, without_rate
from rbm_tracking.use.averages import averaged, settled
from rbm_tracking.use.estimator_config import TrainingConfig, check_whole
from rbm_tracking.use.estimator_rows import (
    Matrix,
    Rows,
    as_categories,
    at_temperature,
    check_groups,
    check_values,
    checked,
    drawn,
    drawn_given,
    filled,
    is_numeric,
    log_probs_unnormalised,
    minibatches,
    one_hot,
    packed,
    refill,
    resampled,
)
from rbm_tracking.use.evaluation import Evaluations
from rbm_tracking.use.frames import FrameUnits, as_floats, units_of_frame
from rbm_tracking.use.search import DECAY, WIDTH, Trial, best_trial
from rbm_tracking.use.training import not_finite

__all__ = ["TrackedRBM"]

_FLOATS = (np.float64, np.float32)
_BLOCK = 100  # updates in one compiled call
_BLOCK_OF_GAPS = 20  # updates with one draw of what is absent
_SCORE_ROWS = 5000
_MOST_HELD_OUT = 10_000  # rows, dense
_FEW_ROWS = 10  # below it none is set aside
_PASSES = 50
_LEAST_UPDATES = 800
# up to both a graph is done before XLA has compiled it
_MOST_WEIGHTS = 20_000
_MOST_UPDATES = 10_000
_MOST_TERMS = 2.0**32  # of log Z by enumeration, which is about a second
_RATE = 0.1
_HIGHEST_RATE = 0.5
_RATE_TIMES_UNITS = 32.0
_SHARE_OF_NUMBERS = 0.3  # of a rate: hidden units without bounds have larger gradients
_MANY_IN_BATCH = 50  # rows; with fewer the gradient is too noisy for a high rate
# ratios of the updates of parameters along the way; coarse where they only check log Z
_FINE = 1.15
_COARSE = 1.5

Array = NDArray[np.float64]
Along = Literal["temperatures", "trajectory"]


class _Best(NamedTuple):
    state: SMLState
    model: SMLState
    observed: Observed
    verdict: Verdict
    choice: Choice
    num_nodes: int  # of the parameters along the way


class TrackedRBM(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Restricted Boltzmann machine trained by parallel tempering, with its log partition function tracked.

    :meth:`score_samples` are log-likelihoods in nats, not pseudo-likelihoods, since log Z is known at every update:

        >>> import numpy as np
        >>> from rbm_tracking import TrackedRBM
        >>> X = np.random.default_rng(0).integers(0, 2, (100, 6))
        >>> rbm = TrackedRBM(n_components=4, max_updates=100, batch_size=20, random_state=0).fit(X)
        >>> log_p = rbm.score_samples(X[:5])  # nats, [5]
        >>> bool(rbm.evidence_.low <= rbm.log_z_ <= rbm.evidence_.high)  # an interval, of a model so small a point
        True

    X holds 0 and 1. Values between them are taken as `BernoulliRBM` takes them, as probabilities (the intensities of
    pixels): fitting draws them anew at each visit, so that the model is one of binary rows; :meth:`transform` uses them
    as they are; the log-likelihood of such a row does not exist, and :meth:`score_samples` refuses it. Unlike there,
    values outside [0, 1] are an error.

    :param n_components: number of hidden units. None: 256, or fewer where validation rows are better off with these.
    :param learning_rate: epsilon_0 of the parameters' gradient ascent. None: 32 over the number of bits and categories,
        at least 0.1 and at most 0.5, in :meth:`fit` of nothing else with 50 rows in a minibatch or more; else 0.1. Of
        hidden units besides bits and spins three tenths of that.
    :param batch_size: rows in a minibatch.
    :param max_updates: updates of the parameters, each with a minibatch. None: fifty passes over the rows, at least
        800 updates and at most 10,000.
    :param n_iter: passes over the rows; if given, `max_updates` is the smaller of the two numbers.
    :param l2: weight decay. None: 1e-4, or more where validation rows are better off with that. It is raised, and the
        number of hidden units lowered if that is None, only after a fit whose validation score fell in the end.
    :param l1: how strongly weights are pulled to exactly 0.
    :param visible: what the visible units are: "auto", bits, and of a frame what its columns are: bits, categories, and
        numbers and dates, standardised, whose densities and samples are in the frame's units; "bernoulli", bits;
        "softmax", categories of one bit a level; "spin", -1 and 1; "gaussian", numbers, best standardised; "relu",
        numbers from 0 on; "drelu", numbers with a width for each sign. Several of them in one table: the columns of
        each, of softmax those of each category, as in `{"bernoulli": [0, 1], "gaussian": [2], "softmax": [[3, 4, 5]]}`.
        Units besides bits take X as it is, not as probabilities.
    :param hidden: what the hidden units are, one of these but softmax; or how many there are of each, as in
        `{"bernoulli": 20, "drelu": 10}`. dReLU units learn their shape, between a Gaussian one and one of two values.
    :param groups: of softmax units: the columns of each category; a number, if each category has so many, one after
        the other, as in an alignment of 21 letters; None for categories as they come, or for contiguous columns of
        which at most one is 1 in all rows. In :meth:`fit` a category with a 1 in all rows has one in all rows to come.
    :param early_stopping: set rows aside (`training.stopping.validation_fraction`), score them from time to time, stop
        when no score was better for long, and keep the best parameters.
    :param keep_trajectory: keep parameters along the way in :meth:`fit`, at even distances in the logarithm of the
        update, so that :meth:`bracket` and :meth:`sample` can follow it.
    :param training: all else that training and its checks can be told; None for `TrainingConfig()`.
    :param random_state: seed or `np.random.RandomState`; decides everything that is random.
    :param verbose: 0 prints nothing; 1 how much there is to do, and log Z at each evaluation; 2 also in between.

    Attributes after fitting: `components_` [n_components, n_features], `intercept_hidden_`, `intercept_visible_`;
    `log_z_` and its standard deviation `log_z_std_`, nats, of which 1.96 cover the 95 % interval that the lag of the
    particles widens; `evidence_`, the `evidence.Verdict` that they come from, with its reasons; `flags_`, reasons of
    the filter not to trust itself (none: an empty tuple);
    `n_updates_`; `validation_scores_`, a list of (update, mean log-likelihood in nats); `trials_`, a list of (hidden
    units, decay, mean log-likelihood of validation rows) of all fits that were made to choose; `rbm_`, the parameters
    for the functions of this package; `trajectory_`, those along the way with `keep_trajectory`. :meth:`bracket` checks
    log Z independently.
    """

    _frame: FrameUnits | None = None  # what a frame's columns are
    _state: SMLState
    _seed: tf.Tensor
    _observed: Observed
    _verdict: Verdict | None
    _kept: SMLState | None  # with the model's log Z
    _lower: Annealing | None  # what AIS says of the model's log Z
    _rate: float  # epsilon_0
    _jit: bool  # whether to compile with XLA
    _generator: Generator
    _along: Annealing | None  # and AIS along the parameters of training
    _rise: float  # of AIS from few temperatures to many
    _exact: float | None  # and enumeration
    _nodes: list[RBM]  # parameters along the way, in `fit`
    trajectory_: list[RBM]

    def __init__(
        self,
        n_components: int | None = None,
        *,
        learning_rate: float | None = None,
        batch_size: int = 100,
        max_updates: int | None = None,
        n_iter: int | None = None,
        l2: float | None = None,
        l1: float = 0.0,
        visible: Layer = "auto",
        hidden: Layer = "bernoulli",
        groups: Sequence[Sequence[int]] | int | None = None,
        early_stopping: bool = True,
        keep_trajectory: bool = False,
        training: TrainingConfig | None = None,
        verbose: int = 0,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.n_components = n_components
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.max_updates = max_updates
        self.n_iter = n_iter
        self.l2 = l2
        self.l1 = l1
        self.visible = visible
        self.hidden = hidden
        self.groups = groups
        self.early_stopping = early_stopping
        self.keep_trajectory = keep_trajectory
        self.training = training
        self.verbose = verbose
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: object = None, sample_weight: ArrayLike | None = None) -> "TrackedRBM":
        """Train from new parameters.

        Entries that are NaN are absent. They are drawn anew given the others of their row, by the parameters of every
        twenty updates, so that the gradient is that of the likelihood of what is there, if it is absent at random.
        Early stopping validates with rows that are whole, and is left out if there are fewer than 10 to set aside.

        :param X: [n_samples, n_features] of values in [0, 1], dense or sparse; a frame; with `visible="softmax"` also
            codes, texts or a frame of categories.
        :param y: not used.
        :param sample_weight: how much each row counts, [n_samples]: minibatches are drawn in proportion. Only ratios
            matter.
        :raises ValueError: if X or a parameter is not as described, or training diverges.
        """
        self._check_parameters()
        rows = self._validated(X, reset=True)
        self.random_state_ = check_random_state(self.random_state)
        weights = None if sample_weight is None else _check_sample_weight(sample_weight, rows, ensure_non_negative=True)
        if weights is not None:
            rows = rows[weights > 0]
            weights = weights[weights > 0]
        # Absent entries are filled in, and some rows set aside to validate with.
        rows, missing = filled(rows, self._known_groups(rows.shape[1]), self.random_state_)
        self._visible = self._units(rows)
        train, valid = self._held_out(rows, missing)
        # How many updates, of how many rows, at which rate.
        size = min(self.batch_size, len(train))
        total = self._num_updates(len(train), size)
        of_train = None if weights is None else weights[train]
        self._rate = self._first_rate(rows.shape[1], size)
        first = rows[train if weights is None else resampled(self.random_state_, weights[train], train)]
        absent = None if missing is None else missing[train]
        train_rows = Rows(rows[train], of_train, absent)
        # Fits of several widths and decays; what the best one left is taken over.
        trials = []

        def trial(width: int, decay: float) -> Trial:
            self._start(first, total, width, decay)
            self.validation_scores_: list[tuple[int, float]] = []
            choice, is_overfit = self._train(train_rows, self._validation(rows, weights, valid), total, size)
            trials.append((width, decay, np.nan if choice is None else choice.log_likelihood))
            return Trial(width, decay, choice, is_overfit, dict(vars(self)))

        with one_blas_thread():
            best = best_trial(self._given_width, self.l2, trial)
            self.__dict__.update(best.left)
            self.trials_ = trials
            # A population with modes that chains miss takes the last steps, and log Z is checked once more.
            sample = self._drawn(first[:: -(-first.shape[0] // _SCORE_ROWS)])
            if missing is None and len(valid):
                of_valid = None if weights is None else weights[valid]
                self._settle(sample, self._drawn(rows[valid]), of_valid)
            self._check_again(self._nodes, sample)
        self.trajectory_ = self._nodes if self.keep_trajectory else []
        del self._nodes
        return self

    def partial_fit(self, X: ArrayLike, y: object = None) -> "TrackedRBM":
        """One update with the rows X as minibatch; log Z is tracked on. Early stopping is :meth:`fit`'s alone.

        Arguments and errors as for :meth:`fit`. The first call takes the visible biases from X, so begin with many
        rows. Numbers of rows up to the next power of two share what is compiled.
        """
        # The first rows make the model, as in `fit`.
        is_first = not hasattr(self, "components_")
        self._check_parameters()
        rows = self._validated(X, reset=is_first)
        if np.isnan(rows.data if sparse.issparse(rows) else rows).any():
            raise ValueError("partial_fit needs rows without NaN; fit takes rows with absent entries.")
        self._rate = _RATE if self.learning_rate is None else self.learning_rate
        if is_first:
            self.random_state_ = check_random_state(self.random_state)
            self._visible = self._units(rows)
            self.validation_scores_ = []
            decay = DECAY if self.l2 is None else self.l2
            self._start(rows, self.max_updates or _MOST_UPDATES, self._given_width or WIDTH, decay)
        # The filter goes on from the log Z that enumeration found at the end of `fit`.
        if self._exact is not None:
            tracker = known(self._state.tracker, log_z_exact(self._state.rbm))
            self._state = self._state._replace(tracker=tracker)
        # Filled up with rows of weight 0, so that few sizes are compiled.
        count = rows.shape[0]
        padded = packed(self._drawn(rows), 1 << (count - 1).bit_length())
        weights = (np.arange(len(padded)) < count) / count
        # The rate is held where there is no last update to fall to.
        config = self._config()
        dtype = self._state.rbm.W.dtype
        config = dataclasses.replace(config, schedule="constant") if config.schedule in FALLING else config
        rate = learning_rate_at(config, self._state.step, dtype)
        state, observed = _update(without_rate(config), self._jit)(
            self._state, tf.constant(padded), tf.constant(weights, dtype), self._seed, rate
        )
        self._take(state, Observed._make(part.numpy() for part in observed))
        return self

    def bracket(
        self,
        n_temps: int = 1000,
        *,
        n_chains: int = 100,
        along: Along = "temperatures",
        random_state: int | np.random.RandomState | None = 0,
    ) -> Bracket:
        """Log Z of the parameters by AIS, from below, and by reverse AIS, from above; `evidence_` then knows of both.

        Reverse AIS starts from samples of parallel tempering, which go on from the chains of training. If its value is
        below that of AIS, beyond their errors, then the chains miss a mode.

        :param n_temps: temperatures, or steps along the trajectory.
        :param n_chains: chains of each.
        :param along: "temperatures"; or "trajectory", the parameters that training went through, which were kept.
        :raises ValueError: if `n_temps` or `n_chains` is below 2, or there is no such way.
        """
        check_is_fitted(self)
        check_whole(2, n_temps=n_temps, n_chains=n_chains)
        seed = tf.constant(check_random_state(random_state).randint(2**31 - 1, size=2), tf.int32)
        if self._is_along(along):
            path = self._path(self.trajectory_)
            both = trajectory_bracket(path, n_temps, num_chains=n_chains, seed=seed, **self._execution)
        else:
            config = evaluation.EvidenceConfig(final_ais_betas=str(n_temps), ais_chains=n_chains)
            both = evaluation.bracket(self._model, self._base_b, seed, config, **self._execution)
        # What AIS says is evidence from now on.
        lower, upper = (evaluation.annealing(result) for result in both)
        if self._lower is not None and along == "temperatures" and n_temps > 3 * self._settings.ais_temps:
            self._rise = rise(self._lower, lower)
        self._lower = stronger(self._lower, lower)
        tracked = evaluation.tracking(self._model, self._observed)
        evidence = Evidence(tracked, self._lower, upper, self._exact, along=self._along, rise=self._rise)
        self._verdict = judge(evidence, was_refuted=self.evidence_.is_refuted)
        return both

    def transform(self, X: ArrayLike) -> np.ndarray:
        """P(h = 1 | v = X), [n_samples, n_components], in the float type of X; of other hidden units E[h | v]."""
        check_is_fitted(self)
        v = self._validated(X, reset=False)
        return np.asarray(self._hidden.mean(self._field(v)), v.dtype)

    def _field(self, v: Matrix) -> np.ndarray:
        """Activations of the hidden units."""
        return np.asarray(
            safe_sparse_dot(v, self.components_.T.astype(v.dtype)) + self.intercept_hidden_.astype(v.dtype)
        )

    @property
    def _hidden(self) -> Visible:
        """The hidden units, with arrays."""
        hidden: Visible = plain.arrays(self._parameters.hidden)
        return hidden

    def score_samples(self, X: ArrayLike, *, return_interval: bool = False) -> Array | tuple[Array, Array, Array]:
        """log p(x) of rows, [n_samples], nats; all share the error of log Z, of deviation `log_z_std_`. Of Gaussian
        units that of the density.

        :param return_interval: also the ends, [n_samples] each, that follow from the 95 % interval of log Z.
        :raises ValueError: if X is not 0 and 1, or not what the visible units can be.
        """
        check_is_fitted(self)
        v = self._validated(X, reset=False)
        values = np.asarray(v.data if sparse.issparse(v) else v)
        if not is_numeric(self._layer) and not ((values == 0) | (values == 1)).all():
            raise ValueError(
                "score_samples needs rows of 0 and 1, of which there is a probability, got values between them; "
                "binarise X as the model should see it, for example X > 0.5."
            )
        # log q~ less log Z, which all rows share; of a frame in its own units
        log_q = log_probs_unnormalised(self._parameters, v)
        if self._frame is not None:
            log_q = log_q - self._frame.log_volume
        if return_interval:
            return log_q - self.log_z_, log_q - self.evidence_.high, log_q - self.evidence_.low
        return log_q - self.log_z_

    def score(self, X: ArrayLike, y: object = None) -> float:
        """Mean log-likelihood of binary rows, nats."""
        return float(np.mean(self.score_samples(X)))

    def gibbs(self, v: ArrayLike) -> np.ndarray:
        """One step of Gibbs sampling from rows v [n_samples, n_features]: h given v, then v given h."""
        check_is_fitted(self)
        # h given v, then v given h
        a = self._field(self._validated(v, reset=False))
        hidden = self._hidden
        visible = self._visible
        h = hidden.draw(a, self.random_state_.uniform(size=(len(a), hidden.num_noise(a.shape[1]))))
        noise = self.random_state_.uniform(size=(len(h), visible.num_noise(self.n_features_in_)))
        rows = visible.draw(h @ self.components_ + self.intercept_visible_, noise)
        return self._returned(rows) if is_numeric(self._layer) else rows.astype(bool)

    def sample(
        self,
        n_samples: int = 1,
        *,
        burn_in: int = 200,
        thin: int = 20,
        along: Along = "temperatures",
        temperature: float = 1.0,
        given: ArrayLike | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> np.ndarray:
        """New rows [n_samples, n_features] by parallel tempering, which goes on from the chains of training.

        :param burn_in: rounds before the first rows.
        :param thin: rounds between them and the next `n_chains` ones.
        :param along: "temperatures"; or "trajectory", new particles on the parameters that training went through, where
            a mode was lost that is far at every temperature.
        :param temperature: of the distribution of both layers: its energies are divided by it, so that below 1 rows are
            the more probable ones. Another than 1 has new chains.
        :param given: a row [n_features] with NaN in what is to be drawn: the other units stay as they are, in new
            chains of `burn_in` rounds each, which may not reach all modes.
        :param random_state: None goes on with that of fitting.
        :raises ValueError: if `n_samples` or `thin` are not positive, or there is no such way.
        """
        check_is_fitted(self)
        check_whole(1, n_samples=n_samples, thin=thin)
        check_whole(0, burn_in=burn_in)
        if not 0 < temperature < np.inf:
            raise ValueError(f"temperature must be positive and finite, got {temperature!r}.")
        if (is_along := self._is_along(along)) and (given is not None or temperature != 1):
            raise ValueError("along='trajectory' leads to the model itself: leave out `given` and `temperature`.")
        rng = self.random_state_ if random_state is None else check_random_state(random_state)
        seed = tf.constant(rng.randint(2**31 - 1, size=2), tf.int32)
        model = self._model
        noise = self._execution
        # Clamped units, another temperature or the way of training have new chains; else those of training go on.
        rbm = model.rbm if temperature == 1 else at_temperature(model.rbm, temperature)
        if given is not None:
            known = given if self._frame is None else self._frame.standardised(given)
            rows = drawn_given(rbm, known, n_samples, burn_in, np.random.default_rng(seed.numpy() % 2**31))
        elif temperature != 1:
            new = initial_chains(rbm, self._settings.ladder.n_temps, self._settings.ladder.n_chains, seed=seed)
            beta = model.ladder.beta.numpy()
            rows = sample(rbm, new, beta, n_samples, seed=seed, burn_in=burn_in, thin=thin, **noise)
        elif is_along:
            path = self._path(self.trajectory_)
            lengths = distances(path, seed=seed, **noise)
            num_chains = self._settings.ladder.n_chains
            rows = tempered(
                path, lengths, n_samples, num_chains=num_chains, seed=seed, burn_in=burn_in, thin=thin, **noise
            )
        else:
            chains = model.chains._replace(a=activations(model.rbm, model.chains.v))
            beta = model.ladder.beta.numpy()
            rows = sample(model.rbm, chains, beta, n_samples, seed=seed, burn_in=burn_in, thin=thin, **noise)
        return self._returned(rows)

    def impute(
        self, X: Matrix, mask: Matrix = None, *, n_chains: int = 20, n_steps: int = 200, random_state: int | None = 0
    ) -> Imputed:
        """Means of missing values given the others, and their errors: see :func:`conditionals.impute`.

        :param X: [n_samples, n_features]; what it holds where the mask is true does not matter. Categories as they come
            are taken as by :meth:`fit`; the result then has a probability for each level, in the order of `encoder_`.
        :param mask: the same shape, true where a value is missing. None: where X is NaN.
        :param n_chains: where means are not exact.
        :param n_steps: rounds of each chain.
        :raises ValueError: if shapes do not fit, or what is observed is not what the visible units can be.
        """
        check_is_fitted(self)
        rng = np.random.default_rng(random_state)
        # Rows as the units take them, NaN where a value is missing.
        rows: Matrix = X.toarray() if sparse.issparse(X) else X
        if self.visible != "softmax":
            rows = as_floats(self._columns(rows, reset=False))
        if mask is None:
            if self.visible == "softmax" and self.groups is None:
                rows = self._encoded(rows, reset=False)
            mask = np.isnan(as_floats(rows))
        is_missing: Matrix = mask.toarray() if sparse.issparse(mask) else mask
        found = impute(self._parameters, rows, is_missing, rng=rng, num_chains=n_chains, num_steps=n_steps)
        if self._frame is None:
            return found
        return found._replace(values=self._returned(found.values), error=found.error * self._frame.scale)

    @property
    def rbm_(self) -> RBM:
        """The parameters, for the functions of this package."""
        check_is_fitted(self)
        return self._parameters

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True
        tags.input_tags.positive_only = not is_numeric(self.visible)
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    @property
    def _settings(self) -> TrainingConfig:
        return TrainingConfig() if self.training is None else self.training

    @property
    def _execution(self) -> Execution:
        """How noise is made, and whether functions are compiled."""
        return {"generator": self._generator, "jit_compile": self._jit}

    def _is_along(self, along: Along) -> bool:
        """Whether to follow the trajectory."""
        if along not in get_args(Along):
            raise ValueError(f"along must be one of {', '.join(get_args(Along))}, got {along!r}.")
        if along == "trajectory" and not self.trajectory_:
            raise ValueError("along='trajectory' needs parameters along the way; fit with keep_trajectory=True.")
        return along == "trajectory"

    def _path(self, nodes: list[RBM], beta: float = evaluation.EvidenceConfig.trajectory_beta) -> Trajectory:
        """From independent units over nodes to the model; parameters that are no averages are smoothed."""
        smoothing = 0.0 if self._settings.average else min(evaluation.SMOOTHING, len(nodes) / 8)
        return trajectory([*nodes, self._parameters], base_b=self._base_b, smoothing=smoothing, beta=beta)

    def _check_parameters(self) -> None:
        limits = {"n_components": self.n_components, "max_updates": self.max_updates, "n_iter": self.n_iter}
        given_limits = {name: value for name, value in limits.items() if value is not None}
        check_whole(1, batch_size=self.batch_size, **given_limits)
        if self.training is not None and not isinstance(self.training, TrainingConfig):
            raise ValueError(f"training must be a TrainingConfig or None, got {type(self.training).__name__}.")
        if not isinstance(self.visible, Mapping) and self.visible not in (*UNITS, *FAMILIES):
            names = ", ".join(dict.fromkeys((*UNITS, *FAMILIES)))
            raise ValueError(f"visible must be one of {names}, or columns of some of them, got {self.visible!r}.")
        hidden_units(self.hidden, self.n_components)
        if self.groups is not None and self.visible != "softmax":
            raise ValueError(f"groups are of softmax units; give visible='softmax', got {self.visible!r}.")
        check_groups(self.groups)

    @property
    def _given_width(self) -> int | None:
        """Number of hidden units, as far as the user says so."""
        return sum(self.hidden.values()) if isinstance(self.hidden, Mapping) else self.n_components

    @property
    def evidence_(self) -> Verdict:
        """What is known of log Z."""
        if self._verdict is None:
            evidence = Evidence(evaluation.tracking(self._model, self._observed))
            self._verdict = judge(evidence, was_refuted=self._is_refuted)
        return self._verdict

    @property
    def log_z_(self) -> float:
        """Log Z, nats."""
        return self.evidence_.log_z

    @property
    def log_z_std_(self) -> float:
        """Its standard deviation, nats."""
        return (self.evidence_.high - self.evidence_.low) / (2 * Z_95)

    def _validated(self, X: Matrix, *, reset: bool) -> Matrix:
        """X as numbers, dense or CSR, after checking that it is in [0, 1]; in :meth:`fit` also NaN."""
        # Masked entries, categories as they come, and columns of a frame become numbers.
        if isinstance(X, np.ma.MaskedArray):
            X = np.ma.filled(X.astype(np.float64), np.nan)
        if self.visible == "softmax" and self.groups is None:
            X = self._encoded(X, reset=reset)
        if self.visible != "softmax" or self.groups is None:  # of groups, `checked` says what helps
            X = self._columns(X, reset=reset)
        # scikit-learn's checks, then those of the units
        types = (*_FLOATS, np.uint8, np.bool_) if reset else _FLOATS
        finite: bool | str = "allow-nan" if reset else True
        validate = functools.partial(
            validate_data, self, X, accept_sparse="csr", reset=reset, dtype=types, ensure_all_finite=finite
        )
        X = checked(validate, X, self._layer)
        if self.visible == "softmax" and self.groups is not None and not isinstance(self.groups, int | np.integer):
            is_grouped = np.isin(np.arange(X.shape[1]), [column for group in self.groups for column in group])
            check_values(X[:, is_grouped], "softmax")
            check_values(X[:, ~is_grouped], "bernoulli")
        else:
            check_values(X, self._layer)
        if not reset and hasattr(self, "_visible") and self._visible != Bernoulli():
            try:
                self._visible.check(X.toarray() if sparse.issparse(X) else X, name="X")
            except ValueError as error:
                if self._frame is None:
                    raise
                raise ValueError(f"{error} (A level of a frame that fit has not seen has no column.)") from error
        return X

    def _columns(self, X: ArrayLike, *, reset: bool) -> Matrix:
        """The columns of a frame as the units take them; anything else as it is."""
        X = as_numbers(X, self, reset=reset, may_miss=True)
        if reset:
            encoder = getattr(self, "table_encoder_", None)
            is_frame = encoder is not None or hasattr(X, "columns")
            self._frame = units_of_frame(encoder, X) if self.visible == "auto" and is_frame else None
        if self._frame is None or np.ndim(X) != 2 or np.shape(X)[1] != len(self._frame.scale):
            return X
        return self._frame.standardised(X)

    @property
    def _layer(self) -> Layer:
        """The visible units, or the columns of each family of them."""
        return self.visible if self._frame is None else self._frame.layer

    def _returned(self, rows: np.ndarray) -> np.ndarray:
        """Rows of the units as the user has them."""
        return rows if self._frame is None else self._frame.in_units_of_the_frame(rows)

    def _encoded(self, X: ArrayLike, *, reset: bool) -> Matrix:
        """A column for each level, where X has categories as they come; NaN in all columns of one that is absent."""
        if reset:
            self.encoder_ = as_categories(X)
        is_encoded = not reset and np.ndim(X) == 2 and np.shape(X)[1] == self.n_features_in_
        if self.encoder_ is None or (is_encoded and len(self.encoder_.categories_) != self.n_features_in_):
            return X
        return one_hot(self.encoder_, X)

    def _known_groups(self, n_features: int) -> Sequence[Sequence[int]]:
        """The columns of each category, as far as the user or the levels say so."""
        if not isinstance(self._layer, str):
            return tuple(tuple(group) for group in self._layer.get("softmax", ()))
        if self.visible == "softmax" and self.groups is None and self.encoder_ is not None:
            ends = np.cumsum([len(levels) for levels in self.encoder_.categories_])
            return tuple(
                tuple(range(end - len(levels), end))
                for end, levels in zip(ends.tolist(), self.encoder_.categories_, strict=True)
            )
        # As the user names them.
        if self.groups is None:
            return ()
        if isinstance(self.groups, int | np.integer):
            return blocks(int(self.groups), n_features)
        return tuple(tuple(int(column) for column in group) for group in self.groups)

    def _units(self, X: Matrix) -> Visible:
        """The visible units that all rows of X call for."""
        learn_variances = self._settings.learn_variances
        # Columns of several families, numbers of one family, then bits and categories.
        if not isinstance(self._layer, str):
            return layer(self._layer, self._drawn(X), learn_variances=learn_variances)
        if self.visible in ("relu", "drelu"):
            return layer({self.visible: range(X.shape[1])}, self._drawn(X), learn_variances=learn_variances)
        name: UnitsName = self.visible  # type: ignore[assignment]  # the others have returned
        config = UnitsConfig(visible=name, learn_variances=learn_variances)
        if config.visible in ("auto", "bernoulli") and self.groups is None:
            return Bernoulli()
        return choose_units(config, {"X": self._drawn(X)}, self._known_groups(X.shape[1]), part="X").visible

    def _held_out(self, X: Matrix, missing: NDArray[np.bool_] | None) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Rows to train with, and rows to validate with, which are whole (none without early stopping)."""
        settings = self._settings
        # Rows with gaps have no likelihood to validate by.
        everything = np.arange(X.shape[0])
        complete_rows = everything if missing is None else np.flatnonzero(~missing.any(axis=1))
        if not self.early_stopping or X.shape[0] < _FEW_ROWS:
            return everything, everything[:0]
        count = min(round(settings.stopping.validation_fraction * X.shape[0]), _MOST_HELD_OUT)
        if missing is not None:
            count = min(count, len(complete_rows) // 2)
            if count < _FEW_ROWS:
                return everything, everything[:0]
        if not 0 < count < X.shape[0]:
            raise ValueError(
                f"early_stopping with validation_fraction={settings.stopping.validation_fraction} of {X.shape[0]} rows "
                "leaves none; give more rows or another fraction."
            )
        valid = np.sort(self.random_state_.permutation(complete_rows)[:count])
        return np.setdiff1d(everything, valid), valid

    def _validation(self, X: Matrix, weights: np.ndarray | None, valid: NDArray[np.int64]) -> Evaluations | None:
        """What scores the rows to validate with; None if there are none."""
        if not len(valid):
            return None
        settings = self._settings
        betas = (
            max(2, settings.ais_temps // 4) if self._generator == "numpy" else settings.ais_temps
        )  # no more than training
        config = evaluation.EvidenceConfig(ais_betas=str(betas))
        of_rows = {} if weights is None else {"valid": weights[valid]}
        return Evaluations({"valid": self._drawn(X[valid])}, config, weights=of_rows)

    def _drawn(self, rows: ArrayLike) -> np.ndarray:
        """Dense rows as the units take them; probabilities of bits are drawn."""
        return drawn(rows, self._layer, self.random_state_)

    def _first_rate(self, n_v: int, size: int) -> float:
        """The learning rate that is given, or that suits so many bits and categories, each of which moves all
        activations once, however many columns it has."""
        if self.learning_rate is not None:
            return self.learning_rate
        # Each bit or category moves all activations once, however many columns it has.
        share = 1.0 if self.hidden in ("bernoulli", "spin") else _SHARE_OF_NUMBERS
        if not isinstance(self._visible, Bernoulli | Softmax) or size < _MANY_IN_BATCH:
            return share * _RATE
        groups = self._visible.groups if isinstance(self._visible, Softmax) else ()
        num_units = n_v - sum(len(group) - 1 for group in groups)
        return share * float(np.clip(_RATE_TIMES_UNITS / num_units, _RATE, _HIGHEST_RATE))

    def _new_seed(self) -> tf.Tensor:
        return tf.constant(self.random_state_.randint(2**31 - 1, size=2), tf.int32)

    def _num_updates(self, num_rows: int, size: int) -> int:
        """How many there are at most."""
        # Fifty passes, within limits; `n_iter` passes at most.
        a_pass = -(-num_rows // size)
        total = self.max_updates
        if total is None:
            total = min(max(_PASSES * a_pass, _LEAST_UPDATES), _MOST_UPDATES)
        return total if self.n_iter is None else min(total, -(-self.n_iter * num_rows // size))

    def _start(self, X: Matrix, total: int, width: int, decay: float) -> None:
        settings = self._settings
        self._decay_steps = total
        self._decay = decay
        # A graph pays where there is much to do.
        is_long = total > _MOST_UPDATES or width * X.shape[1] > _MOST_WEIGHTS
        self._jit = is_long if settings.jit_compile is None else settings.jit_compile
        best: Generator = "threefry" if self._jit else "numpy"
        self._generator = best if settings.generator is None else settings.generator
        # Parameters from the base rates of some rows, and noise or their leading modes.
        sample = X if X.shape[0] <= _SCORE_ROWS else X[self.random_state_.permutation(X.shape[0])[:_SCORE_ROWS]]
        data = self._drawn(sample)
        seed = self._new_seed()
        clip = 1 / (2 * len(data) + 2)
        hidden = hidden_units(self.hidden, width)
        rbm = initial_rbm(width, seed=seed, data=data, clip=clip, visible=self._visible, hidden=hidden)
        self._base_b = rbm.b.numpy()
        if settings.n_modes and (self._visible != Bernoulli() or self.hidden != "bernoulli"):
            wrong = f"visible={self.visible!r} and hidden={self.hidden!r}"
            raise ValueError(f"n_modes is for bits, got {wrong}; leave it out.")
        if settings.n_modes:
            rbm = low_rank_rbm(width, settings.n_modes, seed=seed, data=data, clip=clip)
        # Chains, ladder and filter.
        ladder = linear_ladder(settings.ladder.n_temps)
        config = self._config()
        self._state = initial_state(
            rbm, ladder, settings.ladder.n_chains, seed=self._new_seed(), data=data, config=config
        )
        self._forget()
        self._kept = None
        self._is_refuted = False
        self._seed = self._new_seed()
        self.n_updates_ = 0
        self.trajectory_ = []

    def _train(self, rows: Rows, watch: Evaluations | None, total: int, size: int) -> tuple[Choice | None, bool]:
        """Updates up to `total`, with early stopping if there are rows to validate with.

        :return: the best validation score, and whether it fell since then.
        """
        train = rows.X
        # Minibatches, and what is counted and kept along the way.
        batches = minibatches(self.random_state_, train.shape[0], size, rows.weights)
        best = None
        counted = Best()
        verdict: bool | None = None
        block = _BLOCK if rows.is_missing is None else _BLOCK_OF_GAPS
        seed = self._new_seed()
        every = self._settings.stopping.eval_every or evaluation.interval(train.shape[0], size)
        nodes: list[RBM] = []
        if self.verbose:
            early = (
                ""
                if watch is None
                else f", fewer if {self._settings.stopping.patience} evaluations in a row are no better"
            )
            of_model = f"{len(self._state.rbm.c)} hidden units with decay {self._decay:g}"
            of_rows = f"{total} updates of {size} of {train.shape[0]} rows"
            print(f"{of_rows}, {of_model}, evaluated every {every}{early}", flush=True)
        cost = Cost(total, "updates")
        while self.n_updates_ < total:
            # Updates up to the next evaluation, in blocks.
            until = min(total, (self.n_updates_ // every + 1) * every)
            first = self.n_updates_ + 1
            self._advance(rows, batches, min(until - self.n_updates_, block), size)
            cost(self.n_updates_)
            if self.verbose >= 2:
                print(f"update {self.n_updates_}: log Z {self.log_z_:.3f} nats", flush=True)
            if self._is_kept(first):
                nodes.append(half_precision(self._parameters))
            if self.n_updates_ < until:
                continue
            # An evaluation: the filter, AIS where it is needed, and the verdict.
            if watch is not None:
                by_ais = functools.partial(
                    evaluation.ais_scalars,
                    self._model,
                    self._base_b,
                    watch.config,
                    seed,
                    **self._execution,
                )
                watch(self._model, self._observed, by_ais)
                self._verdict = watch.verdict or self.evidence_
            if self.verbose:
                print(f"update {self.n_updates_}: {statement(self.evidence_)}", flush=True)
            if watch is None:
                continue
            self.validation_scores_.append((self.n_updates_, watch.choice.log_likelihood))
            # The best evaluation so far; patience counts those that are worse.
            verdict = is_better(watch.choice, Choice() if best is None else best.choice)
            counted = counted.judged(Best(self.n_updates_), is_better=verdict)
            if verdict:
                fields = self._state, self._model, self._observed, self.evidence_, watch.choice
                best = _Best(*fields, len(nodes))
            if counted.is_done(self._settings.stopping.patience):
                break
        # The state of the best evaluation is the model.
        if best is not None:
            self._take(best.state, best.observed)
            self._kept = best.model
            self._verdict = best.verdict
            del nodes[best.num_nodes :]
        self._nodes = nodes
        return (None if best is None else best.choice), verdict is False

    def _is_kept(self, first: int) -> bool:
        """Whether to keep the parameters after updates from `first` on: all of the way, or a few to check log Z by."""
        ratio = _FINE if self.keep_trajectory else _COARSE
        return any(is_node(step, ratio=ratio) for step in range(first, self.n_updates_ + 1))

    def _settle(self, rows: np.ndarray, valid: np.ndarray, valid_weights: np.ndarray | None) -> None:
        """The last steps by a population, if the rows set aside are better off, with its chains and its log Z."""
        settings = self._settings
        config = self._config()
        is_usual = config.method == "tempering" and config.penalties.sparsity_target is None
        if not (settings.stopping.last_steps and is_usual and self._state.average):
            return
        rbm = self._parameters
        seed = tf.random.fold_in(self._seed, -self.n_updates_)
        rng = plain.noise_of(seed.numpy(), 1)
        base_b = strata.with_maxima(rbm, strata.starts(rows, rbm.visible), rng)
        # Where few of the chains carry the weight of all, four times as many temperatures.
        for share in (32, 8):
            betas = linear_schedule(max(2, settings.ais_temps // share))
            population = strata.stratified(rbm, betas, base_b, base_b, seed=seed, generator="numpy", jit_compile=False)
            if is_even(evaluation.annealing(population)):
                break
        else:
            return
        shuffled = rng.permutation(rows)
        found = settled(
            rbm,
            shuffled,
            population,
            len(base_b),
            valid,
            valid_weights,
            settings.stopping.last_steps,
            config.penalties,
            rng,
        )
        if found is None:
            return
        # The model's chains at beta = 1 and its log Z are those of the population, with an error that lets AIS decide.
        model = self._model
        measured = found.population
        v, _, level = plain.arrays(model.chains)
        chosen = rng.choice(len(measured.v), v.shape[1], p=softmax(measured.log_weights))
        v = np.where((level == 0)[..., None], measured.v[chosen].astype(v.dtype), v)
        chains = model.chains._replace(v=tf.constant(v), a=activations(found.rbm, tf.constant(v)))
        mean, cov = (np.array(part) for part in (model.tracker.mean, model.tracker.cov))
        mean[0] = measured.log_z
        cov[0] = cov[:, 0] = 0.0
        cov[0, 0] = 1.0
        tracker = model.tracker._replace(mean=tf.constant(mean), cov=tf.constant(cov))
        nothing = np.zeros_like(self._observed.flags)  # to say of the filter, which this log Z is not from
        self._take(self._state._replace(average=found.rbm), self._observed._replace(lag=nothing, flags=nothing))
        self._kept = model._replace(rbm=found.rbm, chains=chains, tracker=tracker)
        self._is_refuted = False

    def _check_again(self, nodes: list[RBM], rows: np.ndarray) -> None:
        """Log Z of the model by enumeration, if that is cheap; else judge it by more AIS, for modes that the chains and
        the first one miss: from each cluster of the rows, and along the parameters of training."""
        settings = self._settings
        model = self._model
        was_refuted = self.evidence_.is_refuted
        # Enumeration, where it is cheap, ends the matter.
        if num_terms(model.rbm) <= _MOST_TERMS:
            self._exact = log_z_exact(model.rbm)
            evidence = Evidence(evaluation.tracking(model, self._observed), exact=self._exact)
            self._verdict = judge(evidence)
            return
        seed = tf.random.fold_in(self._seed, self.n_updates_)
        options = self._execution
        # AIS from each cluster of the rows.
        base_b = strata.starts(rows, model.rbm.visible)
        self._lower, self._rise = evaluation.checked_again(model.rbm, base_b, settings.ais_temps, seed, **options)
        # AIS along the parameters of training.
        self._along = evaluation.along_training(
            self._path(nodes, beta=1.0),
            max(2, settings.ais_temps // 8),
            tf.random.fold_in(seed, 1),
            **options,
        )
        # The verdict on all of it, with reverse AIS where AIS is below the filter.
        evidence = Evidence(evaluation.tracking(model, self._observed), self._lower, along=self._along, rise=self._rise)
        self._verdict = judge(evidence, was_refuted=was_refuted)
        if is_in_doubt(evidence, self._verdict):
            upper = evaluation.reverse(model, self._base_b, settings.ais_temps, seed, **options)
            self._verdict = judge(evidence._replace(reverse=upper), was_refuted=was_refuted)

    def _advance(self, rows: Rows, batches: Iterator[NDArray[np.int64]], count: int, size: int) -> None:
        """`count` updates in one compiled call."""
        # The rows of all minibatches, one after the other; absent entries are drawn by the parameters of now.
        chosen = np.concatenate([next(batches) for _ in range(count)])
        if rows.is_missing is not None:
            refill(rows, chosen, self._state.rbm, self.random_state_)
        data = packed(self._drawn(rows.X[chosen]), _BLOCK * size)
        index = np.arange(_BLOCK * size, dtype=np.int32).reshape(_BLOCK, size)
        # What is compiled is kept for each configuration.
        updates = compiled_updates(self._config(), jit_compile=self._jit)
        state, observed = updates(self._state, tf.constant(data), tf.constant(index), tf.constant(count), self._seed)
        self._take(state, Observed._make(part.numpy()[count - 1] for part in observed))

    def _config(self) -> SMLConfig:
        settings = self._settings
        return SMLConfig(
            learning_rate=self._rate,
            schedule=settings.schedule,
            method=settings.method,
            target_chains=settings.ladder.n_target_chains,
            gibbs_steps=settings.gibbs_steps,
            adaptive=settings.ladder.adaptive,
            centred=settings.centred,
            momentum=settings.momentum,
            average=settings.average,
            generator=self._generator,
            decay=DecayConfig(decay_steps=self._decay_steps),
            penalties=PenaltyConfig(self._decay, self.l1, settings.sparsity_target, settings.sparsity_cost),
        )

    def _take(self, state: SMLState, observed: Observed) -> None:
        """Make a state that training has reached the model's. Log Z is found when it is asked for.

        :raises ValueError: if it is not finite.
        """
        if wrong := not_finite(state, observed):
            raise ValueError(wrong)
        self._is_refuted = self._is_refuted if self._verdict is None else self._verdict.is_refuted
        self._state = state
        self._observed = observed
        self._forget()
        self.components_, self.intercept_visible_, self.intercept_hidden_ = (
            part.numpy().astype(np.float64) for part in self._parameters[:3]
        )
        self.flags_ = tuple(flag_names(int(observed.flags)))
        self.n_updates_ = int(state.step)

    def _forget(self) -> None:
        """What was known of log Z of other parameters."""
        self._verdict = None
        self._lower = None
        self._along = None
        self._rise = 0.0
        self._exact = None

    @property
    def _parameters(self) -> RBM:
        """Those of the model: the average, if there is one."""
        return self._state.average or self._state.rbm

    @property
    def _model(self) -> SMLState:
        """The state with the parameters of the model and their log Z."""
        if self._kept is None or int(self._kept.step) != int(self._state.step):
            self._kept = averaged(self._state, seed=self._seed, **self._execution)
        return self._kept


def _update_plain(
    config: SMLConfig, state: SMLState, rows: tf.Tensor, weights: tf.Tensor, seed: tf.Tensor, rate: tf.Tensor
) -> tuple[SMLState, Observed]:
    """One update with weighted rows in NumPy."""
    index = np.arange(len(rows))[None]
    rates = np.asarray(rate)[None]
    state, observed = plain_updates(config, state, rows.numpy(), index, 1, seed.numpy(), rates, weights.numpy())
    return state, Observed._make(part[0] for part in observed)


@functools.lru_cache(maxsize=32)
def _update(config: SMLConfig, jit_compile: bool) -> Callable[..., tuple[SMLState, Observed]]:
    """One update with weighted rows [B, n_v], compiled once for each configuration."""
    if config.generator == "numpy":
        return functools.partial(_update_plain, config)

    def run(
        state: SMLState, rows: tf.Tensor, weights: tf.Tensor, seed: tf.Tensor, rate: tf.Tensor
    ) -> tuple[SMLState, Observed]:
        return sml_update(state, tf.cast(rows, weights.dtype), seed=seed, config=config, weights=weights, rate=rate)

    return tf.function(run, jit_compile=jit_compile, autograph=False)
