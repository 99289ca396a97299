"""Networks of each kind of weights, seed and fold of a cross-validation, an epoch at a time: `gpflow-deep ebp`.

    training = Training(Networks(weights=("real", "binary"), epochs=3), X, labels, folds)
    for number in range(len(training.units)):
        training.run_unit(number)
    network_results(training.results)["binary P"]["last_percent"]

Nothing is chosen by test rows. What a unit gives depends on its seed and fold and on the epochs before it.
"""

from __future__ import annotations

import dataclasses
import json
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import tensorflow as tf

from ebp.network.coding import Matrix
from gpflow_deep_base.numbers.scores import standard_error
from gpflow_deep_base.seeds import named_seed, numpy_rng

from ..network.coding import InputCoding, common_fraction_bits, recommended
from ..network.heads import encode_labels
from ..network.network import EBPNetwork
from ..packed.export import Exported, export_checked
from ..training.prepared import InputCodingWarning, Prepared, prepare
from ..training.training import fit_epoch
from .estimators import errors_percent, posterior_scalars, posterior_shapes, probability_scores

__all__ = ["WEIGHTS", "Fold", "Networks", "Result", "Training", "Unit", "mean_and_error", "network_results", "prefix"]

WEIGHTS = ("real", "binary", "ternary")

#: Training rows, drawn by the seed, whose labels choose what is exported.
MAX_CHOOSING = 5000


@dataclass(frozen=True)
class Networks:
    """What is trained.

    :param weights: kinds of weights to train by expectation backpropagation, each on its own: real, binary, ternary.
    :param hidden: widths of the hidden layers; empty for none.
    :param epochs: passes over the training data.
    :param batch_size: examples whose updates are added; 1 for the online Bayes update of the paper.
    :param num_seeds: number of seeds: the first one and those after it.
    :param input_coding: how inputs are coded for networks, learned from training rows, see ebp/network/coding.py; auto
        chooses by the data.
    :param softmax: for several classes, a softmax in place of one sign neuron for each class.
    :param dtype: precision of expectation backpropagation.
    :param num_votes: also test, and export, the vote of this many networks drawn from the posterior; 0: no vote is
        tested, and the export is of the most probable weights, 5 votes or 11, by the labels of training rows.
    :raises ValueError: naming the field that is out of range.
    """

    weights: tuple[str, ...] = ("binary",)
    hidden: tuple[int, ...] = (120,)
    epochs: int = 3
    batch_size: int = 10
    num_seeds: int = 1
    input_coding: Literal["auto", "raw", "scaled", "root", "common", "zscore", "centred", "sign"] = "auto"
    softmax: bool = False
    dtype: Literal["float32", "float64"] = "float32"
    num_votes: int = 0

    def __post_init__(self) -> None:
        unknown = [name for name in self.weights if name not in WEIGHTS]
        if unknown or not self.weights or len(set(self.weights)) < len(self.weights):
            wrong_names = ", ".join(unknown or self.weights) or "nothing"
            raise ValueError(f"weights may list {', '.join(WEIGHTS)}, each once, got {wrong_names}.")
        if not all(width >= 1 for width in self.hidden):
            raise ValueError(
                f"hidden must list positive widths such as 500,500, got {','.join(map(str, self.hidden))}."
            )
        for name, least in {"epochs": 1, "batch_size": 1, "num_seeds": 1, "num_votes": 0}.items():
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, got {getattr(self, name)}.")


class Unit(NamedTuple):
    """An epoch of a kind of weights, with a seed on a fold."""

    weights: str
    seed: int
    fold: int
    epoch: int


@dataclass(frozen=True)
class Result:
    """What a unit gave.

    :ivar method: the kind of weights.
    :ivar seconds: of the training, without the test.
    :ivar errors_percent: of the test rows, by output: "D", "P", "votes".
    :ivar log_loss_nats: of EBP-P's probabilities, mean over the test rows.
    :ivar calibration_error_percent: of EBP-P's probabilities, see `gpflow_deep_base.numbers.scores`.
    """

    method: str
    seed: int
    fold: int
    epoch: int
    seconds: float
    errors_percent: dict[str, float]
    log_loss_nats: float
    calibration_error_percent: float


class Fold(NamedTuple):
    """A fold's coded training rows [N, D] with targets [N, C], the same of its test rows, and the coding."""

    X: Matrix
    Y: np.ndarray
    X_test: Matrix
    Y_test: np.ndarray
    coding: InputCoding


class Training:
    """Networks of each kind of weights, seed and fold, an epoch at a time.

    All that changes is in :meth:`state`.

    :param networks: what is trained.
    :param X: inputs [N, D], dense or sparse, in the units of the data.
    :param labels: numbers of classes 0, 1, ..., [N].
    :param folds: pairs of row numbers (training, test). What is learned or chosen in a fold, the coding of inputs among
        it, is learned from its training rows.
    :param class_names: of the numbers.
    :param first_seed: of the seeds.
    :param fill: training and test rows of a fold to the same without missing values; None where there are none.
    :param dataset: name of a known data set, whose coding is recommended.
    :param export: also write the binary network of the first seed and fold to this file, packed.

    :ivar units: all units of work, in order: `run_unit(number)` makes one of them.
    :ivar layer_sizes: inputs, hidden layers, outputs.
    :ivar network: the network that was trained last.
    :ivar exported: what was written to `export`, or None.
    :raises ValueError: if data and settings do not fit together, or nothing could be written to `export`.
    """

    def __init__(
        self,
        networks: Networks,
        X: Matrix,
        labels: np.ndarray,
        folds: Sequence[tuple[np.ndarray, np.ndarray]],
        *,
        class_names: Sequence[str] | None = None,
        first_seed: int = 0,
        fill: Callable[[Matrix, Matrix], tuple[Matrix, Matrix]] | None = None,
        dataset: str = "",
        export: str | None = None,
    ) -> None:
        self._X = X
        self._class_names = tuple(class_names or ())
        num_classes = len(self._class_names) or int(labels.max()) + 1
        self._Y, _ = encode_labels(labels, np.arange(num_classes))
        self._fill = fill
        self._export = export
        self.networks = networks
        self.first_seed = first_seed
        if networks.softmax and self._Y.shape[1] == 1:
            raise ValueError("softmax needs more than two classes, got two; leave it out.")
        # Sizes, coding and units of work follow from the data and the settings.
        self.folds = folds
        self.layer_sizes = (X.shape[1], *networks.hidden, self._Y.shape[1])
        coding = networks.input_coding
        self.input_coding = recommended(dataset, X) if coding == "auto" else coding
        self.units = [
            Unit(weights, seed, fold, epoch)
            for seed in range(self.first_seed, self.first_seed + self.networks.num_seeds)
            for fold in range(len(self.folds))
            for weights in self.networks.weights
            for epoch in range(self.networks.epochs)
        ]
        # What changes: the network, and what was recorded, as JSON lines that a checkpoint holds.
        self.network = self._new_network(self.units[0])
        self.exported: Exported | None = None
        self._records = tf.Variable("")
        self._fold: tuple[int, Fold] | None = None
        self._prepared: tuple[int, Prepared] | None = None
        self._last: Unit | None = None
        self._has_warned = False
        if self._export is not None:
            self._check_export(self._export)

    def state(self) -> dict[str, EBPNetwork | tf.Variable]:
        """All that changes, by name, for a checkpoint: numbers of the last network, and what was recorded."""
        return {"network": self.network, "records": self._records}

    def text(self) -> str:
        """What was found, a line of JSON for each unit that is done."""
        return str(self._records.numpy().decode())

    @property
    def results(self) -> list[Result]:
        """What each unit that is done gave, in their order."""
        return [Result(**json.loads(line)) for line in self.text().splitlines()]

    def fold(self, number: int) -> Fold:
        """Rows of a fold; their coding is learned from the training rows alone."""
        if self._fold is None or self._fold[0] != number:
            rows, test_rows = self.folds[number]
            X = self._X[rows]
            X_test = self._X[test_rows]
            if self._fill is not None:
                X, X_test = self._fill(X, X_test)
            # Test rows have no part in what their coding is.
            coding = InputCoding.fit(self.input_coding, X)
            fold = Fold(coding.transform(X), self._Y[rows], coding.transform(X_test), self._Y[test_rows], coding)
            self._fold = number, fold
            self._prepared = None
        return self._fold[1]

    def run_unit(self, number: int) -> dict[str, float]:
        """Do a unit of work, the next one.

        :return: errors in percent of the test rows, the mean log P(y) of examples before they were learned, in nats;
            of the first seed and fold also `posterior_scalars`. Tags are "binary/seed_0_fold_0/test/error_d_percent"
            and so on.
        """
        unit = self.units[number]
        fold = self.fold(unit.fold)
        order_seed = int(numpy_rng(unit.seed, f"order/{unit.fold}").integers(2**31))
        self.network = self._network_for(unit)
        # Training, which alone is timed.
        start = time.monotonic()
        data = self._prepare(unit.fold, fold)
        stats = fit_epoch(self.network, data, batch_size=self.networks.batch_size, seed=order_seed, epoch=unit.epoch)
        seconds = time.monotonic() - start
        # Test errors of EBP-D, EBP-P and votes, and how good the probabilities of EBP-P are.
        num_votes = self.networks.num_votes
        errors = errors_percent(self.network, fold.X_test, fold.Y_test, num_votes=num_votes, seed=order_seed)
        loss, calibration = probability_scores(self.network, fold.X_test, fold.Y_test)
        if self._export is not None and unit == self._exported_unit():
            self.exported = self._write(self._export, fold, order_seed)
        result = Result(*unit, seconds, errors, loss, calibration)
        self._records.assign(f"{self.text()}{json.dumps(dataclasses.asdict(result))}\n")
        self._last = unit
        scalars = {f"test/error_{name.lower()}_percent": error for name, error in errors.items()}
        scalars |= {"test/log_loss_nats": loss, "test/calibration_error_percent": calibration}
        scalars["train/log_evidence_nats"] = stats.log_evidence
        scalars["train/damped_percent"] = 100.0 * stats.damped_steps / stats.num_steps
        if self._is_shown():
            scalars |= posterior_scalars(self.network)
        return {f"{prefix(unit)}/{tag}": value for tag, value in scalars.items()}

    def histograms(self) -> dict[str, np.ndarray]:
        """`posterior_shapes` by tag after an epoch on the first seed and fold; else nothing."""
        if self._last is None or not self._is_shown():
            return {}
        return {f"{prefix(self._last)}/{tag}": h for tag, h in posterior_shapes(self.network).items()}

    def _is_shown(self) -> bool:
        return self._last is not None and (self._last.seed, self._last.fold) == (self.first_seed, 0)

    def _new_network(self, unit: Unit) -> EBPNetwork:
        head = "binary" if self.layer_sizes[-1] == 1 else "softmax" if self.networks.softmax else "multiclass"
        seed = named_seed(unit.seed, f"init/{unit.fold}")
        return EBPNetwork(self.layer_sizes, unit.weights, head=head, seed=seed, dtype=self.networks.dtype)

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

    def _prepare(self, number: int, fold: Fold) -> Prepared:
        """Checked training rows. What there is to say about their coding is said of one fold."""
        if self._prepared is None or self._prepared[0] != number:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always", InputCodingWarning)
                self._prepared = number, prepare(self.network, fold.X, fold.Y)
            if caught and not self._has_warned:
                self._has_warned = True
                for warning in caught:
                    warnings.warn(warning.message, warning.category, stacklevel=4)
        return self._prepared[1]

    # Export.

    def _exported_unit(self) -> Unit:
        return Unit("binary", self.first_seed, 0, self.networks.epochs - 1)

    def _check_export(self, path: str) -> None:
        if self._exported_unit() not in self.units:
            raise ValueError("export writes a network of binary weights; add binary to --weights.")
        if Path(path).is_dir():
            raise ValueError(f"export must be a file, got the folder {path}; add a name.")
        self._fraction_bits(self.fold(0))

    def _fraction_bits(self, fold: Fold) -> int | None:
        """Of raw inputs; a coding decides it otherwise."""
        return common_fraction_bits(fold.X, fold.X_test) if fold.coding.kind == "raw" else None

    def _write(self, path: str, fold: Fold, seed: int) -> Exported:
        """The file, with the way of export that training rows choose; the test rows only say how good it is."""
        rows = numpy_rng(seed, "export").permutation(fold.X.shape[0])[:MAX_CHOOSING]
        numbers = (fold.Y_test[:, 0] > 0).astype(int) if fold.Y_test.shape[1] == 1 else np.argmax(fold.Y_test, axis=1)
        # Labels as the file gives them.
        classes = self._class_names or None
        unnamed = np.array([-1, 1])[numbers] if fold.Y_test.shape[1] == 1 else numbers
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # `caution` of what is returned, which reports say
            return export_checked(
                self.network,
                path,
                fold.X_test,
                unnamed if classes is None else np.asarray(classes)[numbers],
                fraction_bits=self._fraction_bits(fold),
                coding=fold.coding,
                classes=classes,
                num_votes=self.networks.num_votes or "auto",
                seed=seed,
                chosen_by=fold.X[rows],
            )


def prefix(unit: Unit) -> str:
    """Of the tags of a unit."""
    return f"{unit.weights}/seed_{unit.seed}_fold_{unit.fold}"


def network_results(results: Sequence[Result], num_votes: int = 0) -> dict[str, dict[str, Any]]:
    """Means over seeds and folds.

    :param results: of all seeds, folds and epochs of each kind of weights.
    :return: "binary D", "binary P" and "binary 10 votes", say, to "last_percent" of the last epoch with
        "last_standard_error" (see :func:`mean_and_error`), "errors_percent" [seeds][folds][epochs] and
        "seconds_per_epoch"; P also has "log_loss_nats" and "calibration_error_percent" of the last epoch.
    """
    by_output: dict[str, dict[str, Any]] = {}
    for method in dict.fromkeys(result.method for result in results):
        # Units are in order: seed by seed, fold by fold, epoch by epoch.
        found = [result for result in results if result.method == method]
        num_seeds, num_folds = (len({getattr(result, name) for result in found}) for name in ("seed", "fold"))
        last = [result for result in found if result.epoch == max(result.epoch for result in found)]
        seconds = float(np.mean([result.seconds for result in found]))
        for output in found[0].errors_percent:
            title = f"{num_votes} votes" if output == "votes" else output
            errors = np.reshape([result.errors_percent[output] for result in found], (num_seeds, num_folds, -1))
            mean, standard_error = mean_and_error(errors[:, :, -1])
            by_output[f"{method} {title}"] = {
                "last_percent": mean,
                "last_standard_error": standard_error,
                "errors_percent": errors.tolist(),
                "seconds_per_epoch": seconds,
            }
        # EBP-P has probabilities, too.
        by_output[f"{method} P"] |= {
            name: float(np.mean([getattr(result, name) for result in last]))
            for name in ("log_loss_nats", "calibration_error_percent")
        }
    return by_output


def mean_and_error(values: np.ndarray) -> tuple[float, float | None]:
    """Mean of values [seeds, folds], and its standard error over seeds or, of one seed, over folds; None of one."""
    sample = values.mean(axis=1) if len(values) > 1 else values[0]
    return float(sample.mean()), standard_error(sample) if len(sample) > 1 else None
