"""The tracker as an object of its own, for parameters and tempered samples from anywhere (Sections 3.2-3.4).

NumPy in float64, and no framework: what is observed may come from a loop in PyTorch, JAX or NumPy.

    tracker = PartitionTracker(linear_ladder(10))
    for parameters, samples in training:        # samples [M, N, n_v], samples[i] from q_{beta[i]} of these parameters
        tracked = tracker.observe(parameters, samples, learning_rate=0.01)

What the model is, a :class:`Family` says. The default is the RBM with bits on both sides, of which the parameters are
(W [n_h, n_v], b [n_v], c [n_h]); :func:`rbm_family` is that of an RBM with other visible units.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rbm_tracking.model.checks import check_ladder, check_rbm
from rbm_tracking.model.visible import NUMPY, Bernoulli, Visible, own_slopes
from rbm_tracking.track.evidence import FLAGS, LIMITS, Tracking, flag_names
from rbm_tracking.track.filtering import (
    BIAS_DRIFT,
    Estimate,
    FilterState,
    anchor,
    bridge,
    half_width,
    health_flags,
    inflation,
    initial_filter,
    lag,
    log_mean_exp,
    log_z_std,
    predict,
    update,
)

__all__ = ["BERNOULLI", "Family", "PartitionTracker", "Residuals", "Tracked", "rbm_family"]

Array = NDArray[np.float64]
Parameters: TypeAlias = Any
"""Whatever a family takes as parameters: a tuple of arrays, or an object of another framework."""

_FIRST = 10  # observations, of which each is compared with the model
_EVERY = 5  # later ones, of which one is
_DISCREPANCY_RATE = 0.1  # at which what is found there is averaged
_LEAST_VARIANCE = 1e-12
_FEW_PARTICLES = 10  # of which the energy alone says too little
_MEMORY = 50  # looks, over which statistics of one sign are averaged
_BLOCKS = 20  # of looks, whose means tell the error of that
_LEAST_LOOKS = 10
_STILL = 10  # observations in a row of samples that do not move
_UNKNOWN_DRIFT = 1e-5  # sigma_b^2 where the learning rate is not given


class Family(NamedTuple):
    """A family q_beta of models, beta from 1, the model, to 0, where log Z is known.

    `log_q(parameters, v, betas)`: log q~ of the samples v [M, N, ...], unnormalised, at each of the inverse
    temperatures betas [K, M], nats, [K, M, N]; betas[k, i] is for the samples v[i].
    `log_z_last(parameters)`: log Z at beta = 0, nats.
    `check(parameters, v)`: raises ValueError if they are not what they should be.
    `gram(parameters, v)`: inner products of the gradients d log q~ / d parameters at samples v [N, ...] of beta = 1,
    [N, N], by which the closed form of the bias is computed; None if that is not wanted.
    `residuals(parameters, v, betas, rng)`: by which foreign samples are known, statistics of the samples v [M, N, ...]
    at the inverse temperatures betas [M] that have the mean 0 if these are samples of the family; each of them is
    judged by itself. None if there are none.
    """

    log_q: Callable[[Parameters, Array, Array], Array]
    log_z_last: Callable[[Parameters], float]
    check: Callable[[Parameters, Array], object] = lambda parameters, v: None
    gram: Callable[[Parameters, Array], Array] | None = None
    residuals: Callable[[Parameters, Array, Array, np.random.Generator], Sequence["Residuals"]] | None = None


class Residuals(NamedTuple):
    """Statistics of samples with the mean 0: `values` [M, N, K] and their `variances` [M, K]. Samples are foreign where
    their squared means exceed `limit` variances in all, and what exact samples would give by chance. With
    `have_one_sign` all K would be wrong in the same direction, again and again: the mean over K and over observations
    is asked for, and `limit` is in standard deviations of one sample."""

    values: Array
    variances: Array
    limit: float
    have_one_sign: bool = False


class Tracked(NamedTuple):
    """log Z and its standard deviation, nats, the reasons not to trust them (none: an empty list), and half of the 95 %
    interval, which is the lag of the samples where that is more than 1.96 standard deviations, nats."""

    log_z: float
    log_z_std: float
    flags: list[str]
    half_width: float


class PartitionTracker:
    """Tracks log Z of a sequence of models from samples of their tempered families.

    Successive parameters must be close (a step of gradient ascent, or some), since the change of log Z is estimated by
    weighting the samples that were seen last.

        >>> import numpy as np
        >>> from rbm_tracking import PartitionTracker, linear_ladder
        >>> tracker = PartitionTracker(linear_ladder(3))
        >>> W, b, c = np.zeros((2, 5)), np.zeros(5), np.zeros(2)  # all states of 5 + 2 bits are as probable
        >>> v = np.random.default_rng(0).integers(0, 2, (3, 10, 5)).astype(float)  # of the model: [M, N, n_v]
        >>> bool(abs(tracker.observe((W, b, c), v).log_z - 7 * np.log(2)) < 1e-6)
        True

    Samples that are not the model's give a wrong log Z. The first ten observations and every fifth are looked at, and
    the flag `samples` raised, where they are not as far apart as their temperatures, or the family can tell them by
    more (:attr:`Family.residuals`; of an RBM v - E[v | h] with h drawn given v, and the energy of that between the
    layers), and where none of them moves from one observation to the next.

    :param beta: inverse temperatures [M], from 1 to 0.
    :param family: what the model is; by default an RBM of bits with the family beta (h'Wv + c'h) + b'v.
    :param bias_variance: variance by which the bias b of the estimate at beta = 1 may change from one observation to
        the next; by default 10^-3 times the learning rate, as in the paper, or 10^-5 where that is not given. With
        samples that did not drive the change of the parameters there is no bias: set it and `initial_bias_variance`
        to 0.
    :param initial_bias_variance: of b before the first observation.
    :param sigma_z: expected size of a change of log Z, infinite in the paper.
    :param log_z: guess of the first log partition functions, [M]; by default those of the first bridge estimates.
    :raises ValueError: if the ladder does not decrease from 1 to 0, or another argument is not as described.
    """

    def __init__(
        self,
        beta: ArrayLike,
        *,
        family: Family | None = None,
        bias_variance: float | None = None,
        initial_bias_variance: float = 1.0,
        sigma_z: float = np.inf,
        log_z: ArrayLike | None = None,
    ) -> None:
        self.beta = check_ladder(beta)
        for name, value in {
            "bias_variance": bias_variance or 0.0,
            "initial_bias_variance": initial_bias_variance,
        }.items():
            if not 0 <= value < np.inf:
                raise ValueError(f"{name} must be finite and not negative, got {value}.")
        if not sigma_z > 0:
            raise ValueError(f"sigma_z must be positive, got {sigma_z}.")
        if log_z is not None and np.shape(log_z) != self.beta.shape:
            raise ValueError(
                f"log_z must be one guess for each of {len(self.beta)} temperatures, got shape {np.shape(log_z)}."
            )
        self.state: FilterState | None = None
        self._family = BERNOULLI if family is None else family
        self._bias_variance = bias_variance
        self._initial_bias_variance = initial_bias_variance
        self._sigma_z = sigma_z
        self._first_log_z = log_z
        self._last: _Seen | None = None
        self._count = 0
        self._looks: dict[int, Array] = {}  # averages of each of the residuals
        self._signed: dict[int, deque[float]] = {}  # means of those that have one sign
        self._is_foreign = False
        self._num_still = 0  # observations in a row
        self._shape: tuple[tuple[int, ...], ...] = ()
        self._current: tuple[FilterState, float, bool] | None = None

    def observe(
        self,
        parameters: object,
        samples: ArrayLike | None = None,
        *,
        beta: ArrayLike | None = None,
        learning_rate: float | None = None,
    ) -> Tracked:
        """Take in the next parameters, and samples [M, N, ...] of their family at each temperature.

        Observe every update or every k-th: the change of log Z since the last samples is estimated from them alone, as
        one step, so that the updates between need not be seen. What that costs is the spread of the weights
        q~_new / q~_old: their log deviates in proportion to k, hence the variance of the change grows with k^2, and the
        flag `ess` is raised where fewer than 3 of the N samples are left effective.

        :param samples: None: only log Z of these parameters is wanted, as far as the last samples tell it; nothing is
            remembered.
        :param beta: the ladder of these samples, if it has changed; it keeps its length.
        :param learning_rate: of the step of plain gradient ascent that the samples at beta = 1 are about to drive. The
            first order of the bias that this gives the estimate of the change is then subtracted (Section 3.2).
        :raises ValueError: if shapes do not fit, or the family refuses samples or parameters.
        """
        if learning_rate is not None and not 0 <= learning_rate < np.inf:
            raise ValueError(f"learning_rate must be finite and not negative, got {learning_rate}.")
        if samples is None:
            return self._between(parameters)
        v = self._check(parameters, samples, beta)
        # log q~ of the samples at their own temperatures and at both neighbours
        betas = np.stack([self.beta, np.append(self.beta[1:], 0.0), np.insert(self.beta[:-1], 0, 1.0)])
        log_q, hotter, colder = self._family.log_q(parameters, v, betas)
        d_upper = (hotter - log_q)[:-1]
        d_lower = (log_q - colder)[1:]
        # What the last samples predict; at first there are the bridges alone.
        log_z_last = float(self._family.log_z_last(parameters))
        state, known_bias, is_rare = self._moved(parameters, log_z_last)
        if state is None:
            state = anchor(self._start(d_upper, d_lower, log_z_last, v.shape[1]), log_z_last)
        # O^(dbeta) of Eq. (4) between neighbours are measurements.
        acceptance = np.exp(np.minimum(d_upper - d_lower, 0.0)).mean(axis=1)
        state = update(state, bridge(d_upper, d_lower, np.diff(state.mean[:-1])), acceptance)
        self.state = state
        self._current = (state, known_bias, is_rare)
        self._look_at(parameters, v, (d_upper, d_lower))
        self._num_still = self._num_still + 1 if self._is_still(v) else 0
        # What the next observation needs of this one.
        drift = _UNKNOWN_DRIFT if learning_rate is None else BIAS_DRIFT * learning_rate
        drift = drift if self._bias_variance is None else self._bias_variance
        self._last = _Seen(v, log_q, self._reuse_bias(parameters, v[0], learning_rate), drift)
        return self._tracked()

    @property
    def log_z(self) -> float:
        """log Z of the last parameters, nats.

        :raises ValueError: before the first observation.
        """
        return float(self._observed()[0].mean[0])

    @property
    def log_z_std(self) -> float:
        """Standard deviation of log Z, nats.

        :raises ValueError: before the first observation.
        """
        return float(log_z_std(self._observed()[0]))

    @property
    def tracking(self) -> Tracking:
        """What `evidence.judge` has to know of the filter.

        :raises ValueError: before the first observation.
        """
        state, known_bias, is_rare = self._observed()
        bias = float(state.mean[-1]) + known_bias
        flags = int(health_flags(state, bias)) | (FLAGS["ess"] if is_rare else 0)
        # Samples of something else, or that do not move, tell nothing of this model.
        flags |= FLAGS["samples"] if self._is_foreign or self._num_still >= _STILL else 0
        return Tracking(self.log_z, self.log_z_std, float(lag(state, bias)), flags)

    def _tracked(self) -> Tracked:
        state, known_bias, _ = self._observed()
        names = flag_names(self.tracking.flags)
        return Tracked(self.log_z, self.log_z_std, names, float(half_width(state, float(state.mean[-1]) + known_bias)))

    def _observed(self) -> tuple[FilterState, float, bool]:
        if self._current is None:
            raise ValueError("PartitionTracker has not observed anything yet; call observe(parameters, samples) first.")
        return self._current

    def _between(self, parameters: object) -> Tracked:
        """log Z of parameters without samples of their own."""
        if self._last is None:
            raise ValueError("the first observation needs samples; call observe(parameters, samples) first.")
        self._family.check(parameters, self._last.v)
        state, known_bias, is_rare = self._moved(parameters, float(self._family.log_z_last(parameters)))
        assert state is not None
        self._current = state, known_bias, is_rare
        return self._tracked()

    def _moved(self, parameters: object, log_z_last: float) -> tuple[FilterState | None, float, bool]:
        """The filter at new parameters, before their samples; the known bias; whether few samples were left."""
        if self.state is None or self._last is None:
            return None, 0.0, False
        last = self._last
        # O^(dt) of Eq. (3) by the last samples, less the bias that is known.
        change = log_mean_exp(self._family.log_q(parameters, last.v, self.beta[None])[0] - last.log_q)
        unbiased = Estimate(np.append(change.value[0] - last.bias, change.value[1:]), change.variance, change.ess)
        # The filter's prediction, with zeta_M set to what is known.
        factor = inflation(self.state.health)
        moved = predict(self.state, unbiased, bias_variance=last.drift, sigma_z=self._sigma_z, factor=factor)
        return anchor(moved, log_z_last), last.bias, bool(change.ess.min() < LIMITS.min_ess)

    def _reuse_bias(self, parameters: object, v: Array, learning_rate: float | None) -> float:
        """-rate tr Cov(phi) / N, phi = d log q~ / d parameters, see `learning.reuse_bias`."""
        if learning_rate is None or self._family.gram is None:
            return 0.0
        # By products of the phi of samples, [N, N]: Cov itself is as large as the parameters squared.
        gram = self._family.gram(parameters, v)
        count = len(v)
        return float(-learning_rate * (np.trace(gram) - gram.sum() / count) / ((count - 1.0) * count))

    def _look_at(self, parameters: object, v: Array, neighbours: tuple[Array, Array]) -> None:
        """At first, and every fifth time, see whether these are samples of the family, and of its temperatures.

        r has the mean 0 at each of K entries, and independent particles. sum_k (mean_n r_nk)^2 / var_k without the
        terms of one particle with itself then has the mean 0 and the deviation sqrt(2 K / (N (N - 1))). It is about
        twice the divergence of the samples in nats. An average over T observations has 1 / sqrt(T) of that deviation
        if these are independent, and all of it if samples stay as they are. Which of it, the means tell: their scatter
        over time is what N particles give, or less by the share that stays.
        """
        count = self._count
        self._count = self._count + 1
        if count >= _FIRST and count % _EVERY:
            return
        rate = max(1 / (count + 1), _DISCREPANCY_RATE)
        self._is_foreign = False
        # Statistics with the mean 0: those of temperatures, then those of the family.
        everything = [_slopes(*neighbours)]
        if self._family.residuals is not None:
            everything += self._family.residuals(parameters, v, self.beta, np.random.default_rng([0, count]))
        for number, (residuals, variances, largest, have_one_sign) in enumerate(everything):
            num_particles, num_entries = residuals.shape[1:]
            pairs = num_particles * (num_particles - 1)
            scaled = residuals / np.sqrt(np.maximum(variances, _LEAST_VARIANCE))[:, None]
            if have_one_sign:
                signed = self._signed.setdefault(number, deque(maxlen=_MEMORY))
                signed.append(float(scaled.mean() * np.sqrt(num_entries)))
                self._is_foreign |= _is_shifted(np.array(signed), num_particles, largest)
                continue
            # sum_k (mean_n r_nk)^2 / var_k without the terms of a particle with itself
            discrepancy = (scaled.sum(axis=1) ** 2 - (scaled**2).sum(axis=1)).sum(axis=-1) / pairs
            # Averages over the observations of the means, their squares and the discrepancy.
            means = scaled.sum(axis=1) / np.sqrt(num_particles)
            new = np.stack([means, means**2, np.broadcast_to(discrepancy[:, None], means.shape)])
            before = self._looks.get(number, np.zeros_like(new))
            mean, square, mean_discrepancy = self._looks[number] = before + rate * (new - before)
            # The share that stays from one observation to the next, by the scatter of the means over time.
            scatter = np.mean(square - mean**2, axis=-1) - 2 * np.sqrt(2 * rate / num_entries)
            share = np.clip(1 - scatter, 0.0, 1.0)
            deviation = np.sqrt(2 * num_entries / pairs * np.minimum(share**2 + rate, 1.0))
            self._is_foreign |= bool((mean_discrepancy[:, 0] > largest + LIMITS.max_deviations * deviation).any())

    def _is_still(self, v: Array) -> bool:
        """Whether no sample has moved since the last observation, though most of those at beta = 0 differ, where the
        next ones should know nothing of the last."""
        if self._last is None or not np.array_equal(v, self._last.v):
            return False
        last = v[-1].reshape(len(v[-1]), -1)
        return 2 * len(np.unique(last, axis=0)) > len(last)

    def _check(self, parameters: object, samples: ArrayLike, beta: ArrayLike | None) -> Array:
        array = np.asarray(samples)
        num_temps = len(self.beta)
        if array.ndim < 2 or array.shape[0] != num_temps or array.shape[1] < 2:
            raise ValueError(
                f"samples must have the shape [M, N, ...] = [{num_temps}, at least 2, ...], got {array.shape}."
            )
        self._family.check(parameters, array)
        ladder = self.beta if beta is None else check_ladder(beta)
        if len(ladder) != num_temps:
            raise ValueError(f"beta must keep its {num_temps} temperatures, got {len(ladder)}.")
        shape = _shape(parameters)
        if self._last is not None and shape != self._shape:
            raise ValueError(
                f"the parameters must keep their shapes {self._shape}, got {shape}; use a new tracker for a new model."
            )
        self.beta = ladder
        self._shape = shape
        return array.astype(np.float64)

    def _start(self, d_upper: Array, d_lower: Array, log_z_last: float, num_chains: int) -> FilterState:
        log_z = self._first_log_z
        if log_z is None:
            # Bridges from the middle of both means; log Z adds up from beta = 0, where it is known.
            middle = (d_upper + d_lower).mean(axis=1) / 2
            steps = bridge(d_upper, d_lower, middle, iterations=5).value
            log_z = log_z_last - np.append(np.cumsum(steps[::-1])[::-1], 0.0)
        return initial_filter(log_z, bias_variance=self._initial_bias_variance, expected_ess=num_chains / 2)


class _Seen(NamedTuple):
    """The last samples, their log q~ at their own temperatures; the bias and its drift on the way to the next."""

    v: Array
    log_q: Array
    bias: float
    drift: float


def _is_shifted(means: Array, num_particles: int, limit: float) -> bool:
    """Whether the means of N standardised particles, one of each look, are not around 0.

    Their error is that of means of blocks of looks, as chains forget slowly; and what chains do not forget at all shows
    in a scatter over looks that is less than that of N particles.
    """
    count = len(means)
    if count < _LEAST_LOOKS:
        return False
    blocks = np.array([block.mean() for block in np.array_split(means, min(_BLOCKS, count))])
    of_blocks = blocks.var(ddof=1) / len(blocks)
    kept = 1.0 - num_particles * means.var(ddof=1) * (1.0 + 2.0 * np.sqrt(2.0 / count))
    error = np.sqrt(max(of_blocks, max(kept, 1.0 / count) / num_particles))
    return bool(abs(means.mean()) > max(limit, LIMITS.max_errors * error))


def _slopes(d_upper: Array, d_lower: Array) -> Residuals:
    """By which it is seen whether samples are as far apart as their temperatures.

    Of d = log q~[i+1] - log q~[i] the odds that a sample is of i + 1, and not of i, are exp(d - log s), s = Z[i+1] /
    Z[i]: these are the scores of a factor of d in a logistic regression, which is 1.

    :param d_upper: d at N samples of i, [M-1, N].
    :param d_lower: d at those of i + 1.
    :return: values [1, 2 N, M-1].
    """
    # The probability that a sample is of i + 1, at the s of the bridge.
    log_s = bridge(d_upper, d_lower, (d_upper + d_lower).mean(axis=1) / 2, iterations=5).value
    d = np.concatenate([d_upper, d_lower], axis=1)
    is_lower = np.arange(d.shape[1]) >= d_upper.shape[1]
    p = NUMPY.sigmoid(d - log_s[:, None])
    spread = p * (1 - p)
    # The score of the factor of d, after the constant has been projected out.
    off = d - (spread * d).sum(axis=1, keepdims=True) / np.maximum(spread.sum(axis=1, keepdims=True), _LEAST_VARIANCE)
    values = (is_lower - p) * off
    return Residuals(values.T[None], (spread * off**2).mean(axis=1)[None], LIMITS.max_slope)


def _shape(parameters: object) -> tuple[tuple[int, ...], ...]:
    """Shapes of the parts of parameters that are a sequence, else of the one array."""
    return tuple(np.shape(part) for part in parameters) if isinstance(parameters, (tuple, list)) else ()


# Restricted Boltzmann machines.


class _Arrays(NamedTuple):
    """An RBM in float64, with what its units are."""

    W: Array
    b: Array
    c: Array
    visible: Visible
    hidden: Visible

    def activations(self, v: Array) -> Array:
        """Wv + c, [..., n_v] to [..., n_h], as one product of two matrices."""
        a = v.reshape(-1, v.shape[-1]) @ self.W.T + self.c
        return np.asarray(a.reshape(*v.shape[:-1], len(self.c)))


def rbm_family(visible: Visible) -> Family:
    """RBMs with such visible units and hidden bits, with parameters (W [n_h, n_v], b [n_v], c [n_h]).

    A fourth part, if there is one, takes the place of `visible` for these parameters, for example where precisions of
    Gaussian units are learnt, and a fifth one that of hidden bits.
    """

    def arrays(parameters: Parameters) -> _Arrays:
        W, b, c = (np.asarray(part, np.float64) for part in parameters[:3])
        return _Arrays(W, b, c, *parameters[3:5], *(visible, Bernoulli())[len(parameters) - 3 :])

    def log_q(parameters: Parameters, v: Array, betas: Array) -> Array:
        rbm = arrays(parameters)
        x = betas[:, :, None, None] * rbm.activations(v)
        of_visible = v @ rbm.b + rbm.visible.log_measure(v)
        return np.asarray(rbm.hidden.log_normaliser(x) + of_visible)

    def log_z_last(parameters: Parameters) -> float:
        # At beta = 0 the layers know nothing of each other, and hidden units have no field.
        rbm = arrays(parameters)
        return float(rbm.visible.log_normaliser(rbm.b) + rbm.hidden.log_normaliser(np.zeros(len(rbm.c))))

    def check(parameters: Parameters, v: Array) -> None:
        if not isinstance(parameters, tuple | list) or len(parameters) < 3:
            raise ValueError(
                f"parameters must be (W, b, c), in this order, got {type(parameters).__name__} {str(parameters)[:50]}."
            )
        rbm = arrays(parameters)
        check_rbm(rbm)
        if v.ndim != 3 or v.shape[2] != len(rbm.b):
            raise ValueError(f"samples must have the shape [M, N, n_v] = [..., {len(rbm.b)}], got {v.shape}.")
        rbm.visible.check(v.reshape(-1, len(rbm.b)), name="samples")

    def gram(parameters: Parameters, v: Array) -> Array:
        rbm = arrays(parameters)
        a = rbm.activations(v)
        h = rbm.hidden.mean(a)
        # phi = (h v', v, h): products of two samples are (v'v) (h'h) + v'v + h'h
        vv = v @ v.T
        hh = h @ h.T
        products = vv * hh + vv + hh
        slopes = own_slopes(rbm.visible, rbm.hidden, v, a)
        return products + sum(np.asarray(slope) @ np.asarray(slope).T for slope in slopes)

    def residuals(parameters: Parameters, v: Array, betas: Array, rng: np.random.Generator) -> Sequence[Residuals]:
        rbm = arrays(parameters)
        beta = betas[:, None, None]
        # h drawn given v, and the field that it puts on v
        x = beta * rbm.activations(v)
        h = rbm.hidden.draw(x, rng.random((*x.shape[:-1], rbm.hidden.num_noise(x.shape[-1]))))
        coupled = beta * (h.reshape(-1, h.shape[-1]) @ rbm.W).reshape(v.shape)
        field = coupled + rbm.b
        # v - E[v | h], with the variances of v given h
        off = v - rbm.visible.mean(field)
        variances = np.asarray(rbm.visible.variance(field))
        means = Residuals(off, variances.mean(axis=1), LIMITS.max_discrepancy)
        # weights or temperatures of another size show in the energy beta h'Wv alone
        of_energy = (coupled**2 * variances).sum(axis=-1, keepdims=True)
        energy = (coupled * off).sum(axis=-1, keepdims=True)
        energies = Residuals(energy, of_energy.mean(axis=1), LIMITS.max_energy)
        # of a ladder that is too hot or too cold all over they have one sign
        ladder = Residuals(energies.values[:-1].T, energies.variances[:-1].T, LIMITS.max_shift, have_one_sign=True)
        return (means, ladder) if v.shape[1] < _FEW_PARTICLES else (means, ladder, energies)

    return Family(log_q, log_z_last, check, gram, residuals)


BERNOULLI = rbm_family(Bernoulli())
"""The RBM of bits, parameters (W, b, c), with the family beta (h'Wv + c'h) + b'v."""
