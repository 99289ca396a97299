"""Networks of real weights for processors without floating point: each weight rounded as far as its posterior allows.

A weight of 8, 4 or 2 bits is one of the odd numbers from 1 - 2^bits to 2^bits - 1, times a step of its neuron. Rounding
one moves the others: given the rounded ones, the posterior of a neuron's weights has another mean. With the precision P
of the weights that are not rounded yet and the error e of one of them,

    m_rest -= C_rest,i / C_ii e,    C = P^-1.

`EBPGaussianClassifier` keeps the diagonal of P. What is off it follows from rows: a row with the inputs v, for which
the neuron is active, adds a multiple of v v', and the multiple is such that the traces agree. Layers are rounded one
after the other, and each makes good what the ones before it have changed, likewise.

    network = round_network(classifier, X, bits=4, inputs="uint8")
    network.predict(X)                                           # by whole numbers of 32 bits, as in C
    classifier, bits = fit_within(classifier, X, y, 1500)        # as wide as 1,500 bytes of flash allow
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import scipy.optimize
import scipy.special
from numpy.typing import NDArray
from sklearn.base import clone

from ebp.network.coding import Matrix

from ..second_order.second_order import Gaussian, forward
from ..training.passes import held_folds
from .signs import INT32_MAX

#: A fitted `EBPGaussianClassifier`, which stands on a floor above.
Classifier: TypeAlias = Any

__all__ = ["BITS", "RANGES", "RoundedLayer", "RoundedNetwork", "fit_within", "round_network"]

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

#: Bits that a weight of a hidden layer may have. Those of the last layer have 8.
BITS = (8, 4, 2)

#: Types of raw inputs, and what they hold.
RANGES = {"int8": (-128, 127), "uint8": (0, 255), "int16": (-(2**15), 2**15 - 1)}

#: Largest output of a hidden unit, so that sums of a layer fit in 32 bits.
MAX_UNIT = 4095

#: Steps that are tried, over the least one that reaches the largest weight.
STEPS = np.geomspace(0.05, 1.05, 17)

#: Rows by which weights are rounded, at most.
MAX_ROWS = 4000

#: Bytes of the code of a function, with some to spare: gcc -Os makes 310 to 340 of it on x86-64.
CODE_BYTES = 380


@dataclass(frozen=True)
class RoundedLayer:
    """Sums q'x + b of whole numbers; of a hidden layer, then (sum >> shift) within 0 and `MAX_UNIT`.

    :ivar codes: c of each weight, q = 2 c + 1 - 2^bits, [n_in, n_out].
    :ivar bits: of a weight.
    :ivar biases: b, [n_out].
    :ivar shift: None of the last layer.
    """

    codes: Integers
    bits: int
    biases: Integers
    shift: int | None

    def sums(self, values: Integers) -> Integers:
        """[N, n_out]."""
        return np.asarray(values @ (2 * self.codes + 1 - 2**self.bits) + self.biases)

    def units(self, values: Integers) -> Integers:
        """Outputs of a hidden layer, [N, n_out]."""
        assert self.shift is not None
        return np.clip(self.sums(values) >> self.shift, 0, MAX_UNIT)


@dataclass(frozen=True, eq=False)
class RoundedNetwork:
    """A network of whole numbers.

    :ivar inputs: type of a raw input, a key of `RANGES`.
    :ivar used: numbers of the inputs that are read, [n].
    :ivar num_inputs: of a row.
    :ivar layers: the last one has an output for each class, or one for two classes.
    :ivar classes: names, [C].
    :ivar multiplier: of the difference to the largest score in `binary_logits`.
    :ivar cut: bits that are cut off such a difference before, so that the product has 32.
    """

    inputs: str
    used: Integers
    num_inputs: int
    layers: tuple[RoundedLayer, ...]
    classes: np.ndarray
    multiplier: int
    cut: int

    @property
    def num_bytes(self) -> int:
        """Of weights and biases in C."""
        return sum(len(layer.biases) * (-(-len(layer.codes) * layer.bits // 8) + 4) for layer in self.layers)

    def scores(self, X: Matrix) -> Integers:
        """Scores of the classes for raw rows [N, num_inputs], [N, C]; of two classes that of the first is 0.

        :raises ValueError: if an input is not a whole number of the type.
        """
        X = np.asarray(X)
        least, most = RANGES[self.inputs]
        if X.ndim != 2 or X.shape[1] != self.num_inputs:
            raise ValueError(f"rows must be of shape [N, {self.num_inputs}], got {list(X.shape)}.")
        if not (np.all(np.rint(X) == X) and np.all(least <= X) and np.all(most >= X)):
            raise ValueError(f"inputs must be whole numbers from {least} to {most} for {self.inputs}.")
        # Whole numbers through all layers, as C has them.
        values = X.astype(np.int64)[:, self.used]
        for layer in self.layers[:-1]:
            values = layer.units(values)
        scores = self.layers[-1].sums(values)
        return np.pad(scores, ((0, 0), (1, 0))) if len(self.classes) == 2 else scores

    def predict(self, X: Matrix) -> np.ndarray:
        """The class with the largest score, the first of several, [N]."""
        return np.asarray(self.classes[np.argmax(self.scores(X), axis=1)])

    def predict_proba(self, X: Matrix) -> Array:
        """Probabilities as C gives them, in 255 parts of one, [N, C]; they sum to one but for rounding."""
        scores = self.scores(X)
        # Powers of two by a table of sixteenths and a shift, in 255 parts of their sum.
        gaps = scores.max(axis=1, keepdims=True) - scores
        power = np.minimum((np.minimum(gaps >> self.cut, 65535) * self.multiplier) >> 12, 255)  # sixteenths of a bit
        parts = HALVES[power & 15] >> (power >> 4)
        total = parts.sum(axis=1, keepdims=True)
        return np.asarray((parts * 255 + (total >> 1)) // total / 255.0)


#: 2^15 2^(-k / 16).
HALVES: Integers = np.rint(2.0**15 * 2.0 ** (-np.arange(16) / 16.0)).astype(np.int64)


def round_network(model: Classifier, X: Matrix, *, bits: int = 4, inputs: str = "uint8") -> RoundedNetwork:
    """A fitted `EBPGaussianClassifier` of one network of relu units, in whole numbers.

    :param model: the classifier, of `units="relu"` and one network.
    :param X: rows such as the training rows, by which weights are rounded, [N, D], whole numbers of the type `inputs`.
    :param bits: of a weight of a hidden layer, one of `BITS`.
    :param inputs: type of a raw input, a key of `RANGES`.
    :raises ValueError: if the model is of another kind, or a sum may not fit in 32 bits.
    """
    if bits not in BITS:
        raise ValueError(f"bits must be one of {', '.join(map(str, BITS))}, got {bits!r}.")
    if inputs not in RANGES:
        raise ValueError(f"inputs must be one of {', '.join(RANGES)} for real weights, got {inputs!r}.")
    posteriors: Sequence[object] = getattr(model, "posteriors_", ())
    is_fitted = len(posteriors) == 1 and isinstance(posteriors[0], Gaussian)
    if not is_fitted or getattr(model, "units", None) != "relu":
        raise ValueError(
            "real weights are exported of one network of relu units that was trained by fit; give a fitted "
            f"EBPGaussianClassifier(num_networks=1), got {model!r}."
        )
    rows = np.asarray(X, np.float64)
    if rows.ndim != 2 or rows.shape[1] != model.n_features_in_:
        raise ValueError(f"rows must be of shape [N, {model.n_features_in_}], got {list(rows.shape)}.")
    if len(rows) > MAX_ROWS:
        rows = rows[np.linspace(0, len(rows) - 1, MAX_ROWS).astype(int)]
    moments = model._units
    posterior = _of_columns(model.posteriors_[0], model._decorrelation)
    scale = np.where(moments.varies, 1.0 / moments.scale, 0.0)
    used = np.flatnonzero(moments.varies)
    # Sums with real weights, which those with rounded ones have to meet.
    floats = forward(posterior, moments.standardised(rows), "relu")
    values = rows[:, used].astype(np.int64)
    # An input of the layer is factor x + offset, of a whole number x.
    factor = scale[used]  # from a whole number to an input of the layer, but for the part in the bias
    offset = -moments.mean[used] * scale[used]
    layers = []
    for number, (mean, gain) in enumerate(zip(posterior.mean, posterior.gain, strict=True)):
        is_last = number == len(posterior.mean) - 1
        # Inputs that do not vary are not read.
        if not number:
            kept_inputs = np.append(used, len(mean) - 1)
            mean = mean[kept_inputs]
            gain = gain[kept_inputs]
        root = np.sqrt(len(posterior.mean[number]))
        weights = mean[:-1] * factor[:, None] / root
        biases = (mean[-1] + offset @ mean[:-1]) / root
        spread = np.maximum(factor, 1e-300)[:, None] / root  # a weight's standard deviation a priori
        layer, steps = _rounded(
            _Layer(weights, biases, 1.0 / spread**2, gain[:-1]),
            floats[number].mu,
            values,
            8 if is_last else bits,
            is_last=is_last,
        )
        layers.append(layer)
        _check_sums(layer, RANGES[inputs] if not number else (0, MAX_UNIT))
        # Inputs of the next layer: whole numbers again, of known size.
        if not is_last:
            assert layer.shift is not None
            values = layer.units(values)
            factor = steps * 2.0**layer.shift
            offset = np.zeros(len(steps))
    # Probabilities are powers of two of scores, as near as can be to those of the model.
    draft = RoundedNetwork(inputs, used, rows.shape[1], tuple(layers), model.classes_, 1, 0)
    multiplier, cut = _fitted_power(draft.scores(rows), model.predict_proba(rows))
    return RoundedNetwork(inputs, used, rows.shape[1], tuple(layers), model.classes_, multiplier, cut)


def fit_within(
    model: Classifier, X: np.ndarray, y: np.ndarray, max_bytes: int, *, inputs: str = "uint8"
) -> tuple[Classifier, int]:
    """The classifier whose C takes at most so many bytes, and how many bits its hidden weights have.

    Tried are the widest hidden layers that fit with 2, 4 and 8 bits, and none. Each learns the rows but for those held
    back, at most three parts in turn, and what has the most of these right learns all rows.

    :param model: an `EBPGaussianClassifier`, of which all parameters but `hidden` count; it is not changed.
    :param X: training rows, [N, D], whole numbers of the type `inputs`.
    :param y: their labels, [N].
    :param max_bytes: of constants and code, for which 380 bytes are taken.
    :param inputs: type of a raw input, a key of `RANGES`.
    :raises ValueError: if nothing fits.
    """
    # Bytes of the constants beside hidden units, and of each of these.
    classes, numbers = np.unique(y, return_inverse=True)
    num_outputs = 1 if len(classes) == 2 else len(classes)
    num_used = int(np.sum(np.ptp(X, axis=0) > 0))
    room = max_bytes - CODE_BYTES - 4 * num_outputs - (0 if num_used == X.shape[1] else -(-X.shape[1] // 8))
    widths = {bits: room // (-(-num_used * bits // 8) + 4 + num_outputs) for bits in sorted(BITS)}
    tried: list[tuple[tuple[int, ...], int]] = [((width,), bits) for bits, width in widths.items() if width > 0]
    if num_used * num_outputs <= room:
        tried.append(((), 8))
    if not tried:
        least = max_bytes - room + min(num_used * num_outputs, -(-num_used // 4) + 4 + num_outputs)
        raise ValueError(f"max_bytes must be at least {least} for {num_used} inputs, got {max_bytes}.")
    # Rows held back that each has right.
    rights = []
    for hidden, bits in tried:
        right = 0
        for held in held_folds(len(X), 0, strata=numbers):
            learned = np.delete(np.arange(len(X)), held)
            fitted = clone(model).set_params(hidden=hidden).fit(X[learned], y[learned])
            network = round_network(fitted, X[learned], bits=bits, inputs=inputs)
            right += int(np.sum(network.predict(X[held]) == y[held]))
        rights.append(right)
    hidden, bits = tried[int(np.argmax(rights))]
    return clone(model).set_params(hidden=hidden).fit(X, y), bits


def _of_columns(posterior: Gaussian, decorrelation: Array | None) -> Gaussian:
    """The posterior of weights of the columns themselves, where the network has these without correlations."""
    if decorrelation is None:
        return posterior
    mean = posterior.mean[0]
    variance = posterior.var[0]
    # Sums stay what they are; of the covariance of the weights only the diagonal is kept.
    mean = np.vstack([decorrelation @ mean[:-1], mean[-1:]])
    variance = np.vstack([decorrelation**2 @ variance[:-1], variance[-1:]])
    gain = np.maximum(1.0 / variance - 1.0, 0.0)
    return Gaussian((mean, *posterior.mean[1:]), (gain, *posterior.gain[1:]))


class _Layer(NamedTuple):
    """Real weights of whole numbers as inputs.

    :ivar weights: posterior means, [n_in, n_out].
    :ivar biases: [n_out].
    :ivar prior: precisions a priori of the weights to each input, [n_in, 1].
    :ivar gain: lambda, how much more precise they are than that, [n_in, n_out].
    """

    weights: Array
    biases: Array
    prior: Array
    gain: Array


def _rounded(
    floats: _Layer, wanted: Array, values: Integers, bits: int, *, is_last: bool
) -> tuple[RoundedLayer, Array]:
    """A layer, and the step of each neuron.

    :param wanted: its sums with real weights everywhere, [N, n_out].
    :param values: inputs of the layer, by layers before that are rounded already, [N, n_in].
    """
    weights, biases, prior, gain = floats
    most = 2**bits - 1
    rows = np.concatenate([values, np.ones((len(values), 1))], axis=1)
    # The steps to try, as multiples of the least one that reaches the neuron's largest weight.
    largest = np.maximum(np.max(np.abs(weights), axis=0), np.finfo(np.float64).tiny)
    if is_last:  # scores of classes are compared, so they have one step
        largest = np.full_like(largest, largest.max())
    tried: Array = STEPS[:, None] * largest[None] / float(most)  # [T, n_out]
    candidates = []
    errors = []
    for output in range(len(biases)):
        # P of the neuron: its posterior's diagonal, with correlations by the rows for which it is active.
        active = np.ones(len(rows)) if is_last else (wanted[:, output] > 0).astype(np.float64)
        second = rows.T @ (rows * active[:, None])
        row_trace = float(np.sum(np.diag(second)[:-1] / prior[:, 0]))
        multiple = max(float(np.sum(gain[:, output])), 1.0) / row_trace if row_trace > 0 else 1.0
        least = 1e-9 * multiple * np.trace(second) / len(second) if row_trace > 0 else 1.0
        P = multiple * second + np.diag(np.append(prior[:, 0], 0.0) + least)
        target: Array = np.append(weights[:, output], biases[output])
        # What rounding of the layers before has changed is made good by this one, as far as its posterior allows.
        residual = active * (wanted[:, output] - rows @ target)
        target = target + np.linalg.solve(P, multiple * (rows.T @ residual))
        candidates.append(_tried_steps(target, P, np.asarray(tried[:, output]), most))
        # The loss of rounding w: (w - m)' P (w - m).
        errors.append(np.einsum("ti,ij,tj->t", candidates[-1] - target, P, candidates[-1] - target))
    # The best step of each neuron, or of all outputs together.
    best = np.argmin(errors, axis=1)
    if is_last:
        best[:] = np.argmin(np.sum(errors, axis=0))
    neurons = np.arange(len(biases))
    steps = tried[best, neurons]
    multiples = np.stack([candidates[neuron][best[neuron]] for neuron in neurons], axis=1) / steps  # [n_in + 1, n_out]
    # Odd multiples of the step as codes, and biases as multiples of it.
    codes = np.rint((multiples[:-1] + most) / 2.0).astype(np.int64)
    limited = np.rint(np.clip(multiples[-1], -(2.0**30), 2.0**30)).astype(np.int64)
    shift = None
    layer = RoundedLayer(codes, bits, limited, 0)
    # A shift after which nearly all sums fit in 12 bits.
    if not is_last:
        largest_sum = max(1, int(np.quantile(layer.sums(values).max(axis=1), 0.999)))
        shift = max(0, largest_sum.bit_length() - 12)
    return RoundedLayer(codes, bits, limited, shift), steps


def _tried_steps(target: Array, P: Array, steps: Array, most: int) -> Array:
    """Weights rounded to odd multiples of each step, the bias last and not rounded, [T, n]."""
    # Weights that are known best first, the bias last.
    order = np.append(np.argsort(-np.diag(P)[:-1], kind="stable"), len(P) - 1)
    covariance = np.linalg.inv(P[np.ix_(order, order)])
    upper = np.linalg.cholesky(covariance).T  # row i: C_i,rest over the root of C_ii, given those before
    ordered = np.tile(target[order], (len(steps), 1))
    for place in range(len(order) - 1):
        # Round one, and move the rest: m_rest -= C_rest,i / C_ii e.
        odd = np.clip(2.0 * np.rint((ordered[:, place] / steps - 1.0) / 2.0) + 1.0, -most, most)
        error = (ordered[:, place] - odd * steps) / upper[place, place]
        ordered[:, place:] -= error[:, None] * upper[place, place:]
        ordered[:, place] = odd * steps
    # Back in the order of the inputs.
    rounded = np.empty_like(ordered)
    rounded[:, order] = ordered
    return rounded


def _check_sums(layer: RoundedLayer, limits: tuple[int, int]) -> None:
    weights = np.abs(2 * layer.codes + 1 - 2**layer.bits)
    largest = int(np.max(weights.sum(axis=0) * max(-limits[0], limits[1]) + np.abs(layer.biases)))
    if largest > INT32_MAX:
        raise ValueError("sums of a layer may not fit in 32 bits; give inputs of 8 bits, fewer of them, or fewer bits.")


def _fitted_power(scores: Integers, probabilities: Array) -> tuple[int, int]:
    """Multiplier and cut by which powers of two of scores are nearest to probabilities, in nats."""
    gaps = (scores.max(axis=1, keepdims=True) - scores).astype(np.float64)
    unit = max(1.0, float(np.median(gaps.max(axis=1))))

    def loss(log_rate: float) -> float:
        log_p = scipy.special.log_softmax(-np.exp(log_rate) * gaps / unit, axis=1)
        return -float(np.mean(np.sum(probabilities * log_p, axis=1)))

    # The rate in nats per unit of a score, then in sixteenths of a bit.
    rate = np.exp(scipy.optimize.minimize_scalar(loss, bounds=(-5.0, 5.0), method="bounded").x) / unit  # nats
    sixteenths = 16.0 * rate / np.log(2.0)
    # Differences of up to 16 bits, times a multiplier of 16 bits, over 2^12.
    cut = max(0, int(np.ceil(np.log2(256.0 / sixteenths / 65535.0))))
    return int(np.clip(np.rint(sixteenths * 2.0**cut * 2.0**12), 1, 65535)), cut
