"""Networks of several kinds of weights, and rivals beside them, cross-validated: with each seed on each fold of data.

    config = CrossValidationConfig(weights=("real", "binary"), methods=("ebp", "arow"))
    results = CrossValidation(config, X, Y, folds).run()                         # or unit by unit, by run_unit(number)

A unit of work is an epoch of expectation backpropagation, or a rival's tuning and all of its epochs. Errors are in
percent of the test rows of a fold, after each epoch: "D" of the network of the most probable weights (EBP-D), "P" of
the mean over the posterior (EBP-P), "votes" of networks drawn from it. Nothing is chosen by them; the "best" epoch of
the results, that of the smallest mean error as in the paper, is optimistic.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import scipy.sparse
import tensorflow as tf
from numpy.typing import ArrayLike, NDArray

from gpflow_deep_base.seeds import named_seed, numpy_rng

from ..network.coding import InputCoding, Kind, common_fraction_bits, recommended
from ..network.heads import check_labels
from ..network.inputs import Matrix
from ..network.network import EBPNetwork
from ..network.prepared import InputCodingWarning, Prepared, prepare
from ..network.training import fit_epoch
from ..packed.export import Exported, export_checked
from .baselines import RIVALS, tuned_rival
from .fold_results import (
    EpochResult,
    Result,
    RivalResult,
    errors_percent,
    network_results,
    probability_scores,
    read_results,
    rival_results,
    written_results,
)

__all__ = [
    "METHODS",
    "WEIGHTS",
    "CrossValidation",
    "CrossValidationConfig",
    "Fold",
    "Unit",
    "checked_folds",
    "posterior_scalars",
    "posterior_shapes",
]

#: Training rows, drawn by the seed, whose labels choose what is exported.
MAX_CHOOSING = 5000

#: Weights of a layer in a histogram.
MAX_SHOWN = 100_000

#: A discrete weight is decided if its variance is below so much of the prior's.
DECIDED = 0.01

METHODS = ("ebp", *RIVALS)
WEIGHTS = ("real", "binary", "ternary")


@dataclass(frozen=True)
class CrossValidationConfig:
    """What is compared.

    :param weights: kinds of weights to train by expectation backpropagation, each on its own: real, binary, ternary.
    :param methods: what to train: ebp, and backpropagation of the cross-entropy (bp_ce) or of the squared error
        (bp_mse), or tested with the signs of its weights (bp_clipped), and arow.
    :param hidden: widths of the hidden layers; empty for none.
    :param epochs: passes over the training data.
    :param batch_size: examples whose updates are added; 1 for the online Bayes update of the paper.
    :param num_seeds: number of seeds: the first one and those after it.
    :param num_rival_seeds: number of these seeds for all methods but ebp; their tuning takes time.
    :param input_coding: how inputs are coded for networks, learned from training rows, see ebp/network/coding.py; auto
        chooses by the data.
    :param softmax: for several classes, a softmax in place of one sign neuron for each class.
    :param dtype: precision of expectation backpropagation.
    :param num_votes: also test, and export, the vote of this many networks drawn from the posterior; 0: no vote is
        tested, and the export is of the most probable weights, 5 votes or 11, by the labels of training rows.
    :raises ValueError: naming the field that is out of range.
    """

    weights: tuple[str, ...] = ("binary",)
    methods: tuple[str, ...] = ("ebp",)
    hidden: tuple[int, ...] = (120,)
    epochs: int = 3
    batch_size: int = 10
    num_seeds: int = 1
    num_rival_seeds: int = 1
    input_coding: Literal["auto", "raw", "scaled", "root", "common", "zscore", "centred", "sign"] = "auto"
    softmax: bool = False
    dtype: Literal["float32", "float64"] = "float32"
    num_votes: int = 0

    def __post_init__(self) -> None:
        for name, allowed in (("weights", WEIGHTS), ("methods", METHODS)):
            values: tuple[str, ...] = getattr(self, name)
            unknown = [value for value in values if value not in allowed]
            if unknown or not values or len(set(values)) < len(values):
                wrong_names = ", ".join(unknown or values) or "nothing"
                raise ValueError(f"{name} may list {', '.join(allowed)}, each once, got {wrong_names}.")
        if self.input_coding not in ("auto", *get_args(Kind)):
            kinds = ", ".join(("auto", *get_args(Kind)))
            raise ValueError(f"input_coding must be one of {kinds}, got {self.input_coding!r}.")
        if not all(width >= 1 for width in self.hidden):
            raise ValueError(
                f"hidden must list positive widths such as 500,500, got {','.join(map(str, self.hidden))}."
            )
        for name in ("epochs", "batch_size", "num_seeds", "num_rival_seeds"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}.")
        if self.num_votes < 0:
            raise ValueError(f"num_votes must not be negative, got {self.num_votes}; 0 is for none.")


class Unit(NamedTuple):
    """An epoch of expectation backpropagation, or all epochs of a rival, with a seed on a fold.

    :ivar method: the kind of weights, or the rival.
    """

    method: str
    seed: int
    fold: int
    epoch: int


def units_of(config: CrossValidationConfig, seeds: range, num_folds: int) -> list[Unit]:
    """All units of work, in order."""
    units = []
    # Networks epoch by epoch; rivals as a whole, with the first seeds only.
    for seed in seeds:
        for fold in range(num_folds):
            for weights in config.weights if "ebp" in config.methods else ():
                units += [Unit(weights, seed, fold, epoch) for epoch in range(config.epochs)]
            if seed < seeds.start + config.num_rival_seeds:
                units += [Unit(method, seed, fold, 0) for method in config.methods if method != "ebp"]
    return units


Folds = Iterable[tuple[ArrayLike, ArrayLike]]
"""Pairs of row numbers (training, test), as of `sklearn.model_selection.KFold(8).split(X)`."""


class Fold(NamedTuple):
    """A fold's coded training rows [N, D] with targets [N, C], the same of its test rows, and the coding."""

    X: Any
    Y: NDArray[np.float64]
    X_test: Any
    Y_test: NDArray[np.float64]
    coding: InputCoding


def checked_folds(folds: Folds, num_rows: int) -> list[tuple[NDArray[np.intp], NDArray[np.intp]]]:
    """The folds as arrays.

    :raises ValueError: if there are none, or one has no training or no test rows, rows that are not among the
        `num_rows`, or test rows that are training rows, too.
    """
    pairs = [(np.asarray(rows, np.intp), np.asarray(test_rows, np.intp)) for rows, test_rows in folds]
    if not pairs:
        raise ValueError("folds must hold at least one pair of training and test rows, got none.")
    # Each fold has training and test rows among those of the data, and no row is both.
    for number, pair in enumerate(pairs):
        all_rows = np.concatenate(pair)
        if not all(len(rows) for rows in pair) or all_rows.min() < 0 or all_rows.max() >= num_rows:
            raise ValueError(f"fold {number} must have training and test rows from 0 to {num_rows - 1}, got others.")
        if common := np.intersect1d(*pair).size:
            raise ValueError(f"test rows of fold {number} must not be training rows, and {common} are.")
    return pairs


Prepare = Callable[[Any, Any], tuple[Any, Any]]
"""Raw inputs of the training and test rows of a fold -> the same, for example with missing values put in."""


def coded(
    kind: str,
    X: Any,
    Y: NDArray[np.float64],
    rows: NDArray[np.intp],
    test_rows: NDArray[np.intp],
    prepare: Prepare = lambda *parts: parts,
) -> Fold:
    """The rows of a fold; what the coding has to know is learned from the training rows alone."""
    X_train, X_test = prepare(X[rows], X[test_rows])
    coding = InputCoding.fit(kind, X_train)
    return Fold(coding.transform(X_train), Y[rows], coding.transform(X_test), Y[test_rows], coding)


class CrossValidation:
    """Networks and their rivals on some data: what has to be done, and what was found.

    :param config: what is compared.
    :param X: raw inputs [N, D], an array or a SciPy sparse matrix.
    :param Y: targets -1 and +1, [N, 1] or [N, C] with one +1 in a row, as `encode_labels` codes labels.
    :param folds: pairs of row numbers (training, test), as of `sklearn.model_selection.KFold(8).split(X)`. Whatever is
        learned or chosen in a fold, the coding of inputs among it, is learned from its training rows.
    :param prepare: what is done with the raw inputs of a fold's training and test rows before they are coded, learned
        from its training rows, such as putting in missing values: (X, X_test) to the same.
    :param seed: the first seed.
    :param dataset: name of the data set, by which input_coding="auto" knows some of them.
    :param export: file to which the binary network of the first seed and fold is written, packed, after its last epoch.
    :param classes: names of the classes [C] for that file.
    :ivar units: all units of work, in order: `run_unit(number)` makes one of them.
    :ivar layer_sizes: inputs, hidden layers, outputs.
    :ivar network: the network that was trained last.
    :ivar exported: what was written to `export`, or None.
    :raises ValueError: if data, folds and `config` do not fit together, or nothing could be written to `export`.

    All that changes is in :meth:`state`; what a unit finds depends on its seed and fold and on the epochs before it.
    """

    def __init__(
        self,
        config: CrossValidationConfig,
        X: Matrix,
        Y: ArrayLike,
        folds: Folds,
        *,
        prepare: Prepare = lambda *parts: parts,
        seed: int = 0,
        dataset: str = "",
        export: str | PathLike[str] | None = None,
        classes: Any = None,
    ) -> None:
        Y = np.asarray(Y)
        Y = check_labels(Y, Y.shape[1] if Y.ndim == 2 else 1)
        X = X.tocsr() if scipy.sparse.issparse(X) else np.asarray(X)
        if X.ndim != 2 or X.shape[0] != len(Y):
            raise ValueError(f"X must be [N, D] with a row for each of {len(Y)} targets, got {list(X.shape)}.")
        if config.softmax and Y.shape[1] == 1:
            raise ValueError("softmax needs more than two classes, got two; leave it out.")
        self.config = config
        self.first_seed = seed
        # What is to be done, and the first network.
        self.folds = checked_folds(folds, len(Y))
        self.layer_sizes = (X.shape[1], *config.hidden, Y.shape[1])
        self.input_coding = recommended(dataset, X) if config.input_coding == "auto" else config.input_coding
        self.units = units_of(config, range(seed, seed + config.num_seeds), len(self.folds))
        self.network = self._new_network(self.units[0])
        self.exported: Exported | None = None
        self._records = tf.Variable("")  # `found` as JSON lines, so that a checkpoint holds it
        # Data, and what is made of them for the fold in work.
        self._X = X
        self._Y = Y
        self._prepare_fold = prepare
        self._export = export
        self._classes = classes
        self._fold: tuple[int, Fold] | None = None
        self._prepared: tuple[int, Prepared] | None = None
        self._last: Unit | None = None
        self._has_warned = False
        if export is not None:
            self._check_export()

    def state(self) -> dict[str, Any]:
        """All that changes, by name, for a checkpoint: numbers of the last network, and what was recorded."""
        return {"network": self.network, "records": self._records}

    def fold(self, number: int) -> Fold:
        """Rows of a fold; their coding is learned from the training rows alone."""
        if self._fold is None or self._fold[0] != number:
            self._fold = number, coded(self.input_coding, self._X, self._Y, *self.folds[number], self._prepare_fold)
            self._prepared = None
        return self._fold[1]

    def run(self) -> dict[str, dict[str, Any]]:
        """All units that are left, and :meth:`results`."""
        for number in range(self.num_done, len(self.units)):
            self.run_unit(number)
        return self.results()

    @property
    def num_done(self) -> int:
        """How many units are done, which is the number of the next one."""
        return self._text().count("\n")

    @property
    def found(self) -> list[Result]:
        """What each unit that is done gave, in their order."""
        return read_results(self._text())

    def _text(self) -> str:
        return str(self._records.numpy().decode())

    def run_unit(self, number: int) -> dict[str, float]:
        """Do the next unit.

        :param number: of the unit, for the caller to be sure.
        :return: errors in percent of the test rows, and of networks the mean log P(y) of examples before they were
            learned, in nats; of the first seed and fold also `posterior_scalars`. Tags are
            "binary/seed_0_fold_0/test/error_d_percent" and so on.
        :raises ValueError: if another unit is the next one.
        """
        if number != self.num_done:
            raise ValueError(f"units are done in their order, and the next one is {self.num_done}, got {number}.")
        unit = self.units[number]
        scalars, result = self._epoch(unit) if unit.method in WEIGHTS else self._rival(unit)
        # A line of JSON for each unit; their number says which one is next.
        self._records.assign(self._text() + written_results([result]))
        self._last = unit
        if self._is_shown():
            scalars |= posterior_scalars(self.network)
        return {f"{_prefix(unit)}/{tag}": value for tag, value in scalars.items()}

    def histograms(self) -> dict[str, NDArray[Any]]:
        """`posterior_shapes` by tag after an epoch on the first seed and fold; else nothing."""
        if self._last is None or not self._is_shown():
            return {}
        return {f"{_prefix(self._last)}/{tag}": h for tag, h in posterior_shapes(self.network).items()}

    def results(self) -> dict[str, dict[str, Any]]:
        """What was found, see `network_results` and `rival_results`.

        :return: method, as "binary D" or "arow", to errors in percent, their means and standard errors, and seconds.
        :raises ValueError: if units are left.
        """
        results = self.found
        by_method = dict[str, dict[str, Any]]()
        if len(results) < len(self.units):
            raise ValueError(f"results need all {len(self.units)} units, and {len(results)} are done; call run.")
        # A network has results of each of its outputs, a rival has one.
        for method in dict.fromkeys(unit.method for unit in self.units):
            epochs = [result for result in results if isinstance(result, EpochResult) and result.method == method]
            rivals = [result for result in results if isinstance(result, RivalResult) and result.method == method]
            by_method |= network_results(epochs, self.config.num_votes) if epochs else {method: rival_results(rivals)}
        return by_method

    # Private.

    def _is_shown(self) -> bool:
        unit = self._last
        return unit is not None and unit.method in WEIGHTS and (unit.seed, unit.fold) == (self.first_seed, 0)

    def _new_network(self, unit: Unit) -> EBPNetwork:
        weights = unit.method if unit.method in WEIGHTS else "real"
        head = "binary" if self.layer_sizes[-1] == 1 else "softmax" if self.config.softmax else "multiclass"
        seed = named_seed(unit.seed, f"init/{unit.fold}")
        return EBPNetwork(self.layer_sizes, weights, head=head, seed=seed, dtype=self.config.dtype)

    def _network_for(self, unit: Unit) -> EBPNetwork:
        """The network to train. A checkpoint has restored its numbers alone, not its kind of weights."""
        if unit.epoch > 0 and self._last is not None:
            return self.network
        # After a checkpoint: a network of the unit's kind, with the restored numbers.
        network = self._new_network(unit)
        if unit.epoch > 0:
            network.assign(self.network.posterior)
            network.step.assign(self.network.step)
        return network

    def _epoch(self, unit: Unit) -> tuple[dict[str, float], EpochResult]:
        config = self.config
        fold = self.fold(unit.fold)
        seed = _order_seed(unit)
        self.network = self._network_for(unit)
        # Training, which alone is timed.
        start = time.monotonic()
        if self._prepared is None or self._prepared[0] != unit.fold:
            self._prepared = unit.fold, self._prepare(fold)
        stats = fit_epoch(self.network, self._prepared[1], batch_size=config.batch_size, seed=seed, epoch=unit.epoch)
        seconds = time.monotonic() - start
        # Test errors of EBP-D, EBP-P and votes; and the export after the last epoch.
        errors = errors_percent(self.network, fold.X_test, fold.Y_test, num_votes=config.num_votes, seed=seed)
        if self._export is not None and unit == self._exported_unit():
            self.exported = self._write(fold, seed)
        scalars = {f"test/error_{name.lower()}_percent": error for name, error in errors.items()}
        scalars["train/log_evidence_nats"] = stats.log_evidence
        scalars["train/damped_percent"] = 100.0 * stats.damped_steps / stats.num_steps
        # How good the probabilities of EBP-P are.
        loss, calibration = probability_scores(self.network, fold.X_test, fold.Y_test)
        scalars |= {"test/log_loss_nats": loss, "test/calibration_error_percent": calibration}
        return scalars, EpochResult(*unit, seconds, errors, loss, calibration)

    def _prepare(self, fold: Fold) -> Prepared:
        """Checked training rows. What there is to say about their coding is said of one fold."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", InputCodingWarning)
            prepared = prepare(self.network, fold.X, fold.Y)
        if caught and not self._has_warned:
            self._has_warned = True
            for warning in caught:
                warnings.warn(warning.message, warning.category, stacklevel=4)
        return prepared

    def _rival(self, unit: Unit) -> tuple[dict[str, float], RivalResult]:
        fold = self.fold(unit.fold)
        start = time.monotonic()
        # Tuned on a part of the fold's training rows, then trained on all of them.
        tuned = tuned_rival(
            unit.method,
            self.layer_sizes,
            (fold.X, fold.Y),
            (fold.X_test, fold.Y_test),
            epochs=self.config.epochs,
            batch_size=self.config.batch_size,
            init_seed=named_seed(unit.seed, f"init/{unit.fold}"),
            seed=_order_seed(unit),
        )
        scalars = {"test/error_percent": tuned.test_errors[-1], "train/tuned_value": tuned.value}
        seconds = time.monotonic() - start
        result = RivalResult(*unit[:3], seconds, tuned.value, tuned.is_at_edge, tuned.test_errors)
        return scalars, result

    # Export.

    def _exported_unit(self) -> Unit:
        return Unit("binary", self.first_seed, 0, self.config.epochs - 1)

    def _check_export(self) -> None:
        if self._exported_unit() not in self.units:
            raise ValueError("export writes a network of binary weights; add binary to weights and ebp to methods.")
        if Path(self._export or "").is_dir():
            raise ValueError(f"export must be a file, got the folder {self._export}; add a name.")
        self._fraction_bits(self.fold(0))

    def _fraction_bits(self, fold: Fold) -> int | None:
        """Of raw inputs; a coding decides it otherwise."""
        return common_fraction_bits(fold.X, fold.X_test) if fold.coding.kind == "raw" else None

    def _write(self, fold: Fold, seed: int) -> Exported:
        """The file, with the way of export that training rows choose; the test rows only say how good it is."""
        assert self._export is not None
        rows = numpy_rng(seed, "export").permutation(fold.X.shape[0])[:MAX_CHOOSING]
        # Labels of the test rows as the file gives them.
        if fold.Y_test.shape[1] == 1:
            labels = fold.Y_test[:, 0].astype(int)
            numbers = (labels > 0).astype(int)
        else:
            labels = numbers = np.argmax(fold.Y_test, axis=1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # `caution` of what is returned, which reports say
            return export_checked(
                self.network,
                self._export,
                fold.X_test,
                labels if self._classes is None else np.asarray(self._classes)[numbers],
                fraction_bits=self._fraction_bits(fold),
                coding=fold.coding,
                classes=self._classes,
                num_votes=self.config.num_votes or "auto",
                seed=seed,
                chosen_by=fold.X[rows],
            )


def _prefix(unit: Unit) -> str:
    return f"{unit.method}/seed_{unit.seed}_fold_{unit.fold}"


def _order_seed(unit: Unit) -> int:
    """Seed of the order of the rows and of votes."""
    return int(numpy_rng(unit.seed, f"order/{unit.fold}").integers(2**31))


def posterior_scalars(network: EBPNetwork) -> dict[str, float]:
    """How much is known of the weights of each layer.

    :return: "layer_1/entropy_nats", the mean entropy of a weight in nats; and of discrete weights
        "layer_1/decided_percent", how many of them have less than a hundredth of the prior's
        variance.
    """
    scalars = {}
    shapes = posterior_shapes(network)
    priors = network.architecture.priors
    for number, (h, prior, entropy) in enumerate(zip(shapes.values(), priors, network.entropy(), strict=True), start=1):
        scalars[f"layer_{number}/entropy_nats"] = entropy
        if prior.is_discrete:
            # Little is left of the prior's variance.
            decided = prior.var(tf.constant(h)) < DECIDED * prior.var(tf.zeros([], h.dtype))
            scalars[f"layer_{number}/decided_percent"] = 100.0 * float(tf.reduce_mean(tf.cast(decided, h.dtype)))
    return scalars


def posterior_shapes(network: EBPNetwork) -> dict[str, NDArray[Any]]:
    """ "layer_1/h", ... to at most about 100,000 of its h, evenly spaced, for histograms."""
    return {
        f"layer_{number}/h": tf.reshape(h, [-1])[:: 1 + int(np.prod(h.shape)) // MAX_SHOWN].numpy()
        for number, h in enumerate(network.h, start=1)
    }
