#!/usr/bin/env python3
"""Train networks of sign neurons by expectation backpropagation, and test them on folds of the data.

    gpflow-deep ebp --run_dir=runs/first
    gpflow-deep ebp --run_dir=runs/i6 --dataset=reuters_i6 --data_dir=DATA --weights=real,binary --num_seeds=10
    gpflow-deep ebp --run_dir=runs/mnist --dataset=mnist --data_dir=DATA --hidden=500,500 --epochs=10 --export=mnist.ebp
    gpflow-deep ebp --run_dir=runs/own --data=table.csv --target=kind
    gpflow-deep ebp --run_dir=runs/texts --data=reviews.jsonl
    gpflow-deep ebp --run_dir=runs/first --resume

Networks are trained for each seed and each fold of a cross-validation (or the standard split of the data), and tested
after every epoch: EBP-D is the network of the most probable weights, EBP-P the mean over the posterior. Nothing is
chosen by test errors. Ctrl-C finishes the running epoch and saves; --resume goes on to the same bits.

The folder of the run gets:

    result.json   errors of all kinds of weights, seeds, folds and epochs, and their means
    units.jsonl   what each epoch of a network gave on each fold, a JSON line each
    coding.json   how inputs are coded for the network of the first seed and fold, which --export writes
    model_binary.npz, ...   this network of each kind of --weights, for gpflow-deep ebp-predict; its probabilities are
                  calibrated by the test rows of its fold; columns.json, words.json: how columns or documents become
                  inputs
    plots/        the table as bar charts
    scalars.jsonl, tensorboard/, checkpoints/
"""

import dataclasses
import functools
import json
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import gpflow_deep_runs.early  # noqa: F401 (what is wrong is said before TensorFlow starts)
from gpflow_deep_runs import cli
from gpflow_deep_runs.cli.flags import at_least, group
from gpflow_deep_runs.data import inputs, views
from gpflow_deep_runs.data.documents import is_documents
from gpflow_deep_runs.data.rows import Rows
from gpflow_deep_runs.run import Devices, Settings, Shown, devices, open_run

import numpy as np
import tensorflow as tf
from ebp import (
    EBPNetwork,
    InputCoding,
    InputCodingWarning,
    Predictor,
    Prepared,
    common_fraction_bits,
    encode_labels,
    errors_percent,
    export_checked,
    fit_epoch,
)
from ebp import prepare as prepared
from ebp.estimators.evaluation import posterior_scalars, posterior_shapes, probability_scores
from ebp.network.coding import recommended
from ebp.packed.export import Exported
from gpflow_deep_base import quiet
from gpflow_deep_base.files import write_json, write_text
from gpflow_deep_base.page import Bars, Panel, Panels, Part, Table, reliability
from gpflow_deep_base.seeds import named_seed, numpy_rng
from gpflow_deep_base.text import aligned, plus_minus, within

Results = Mapping[str, Mapping[str, Any]]

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
        at_least(self, {"epochs": 1, "batch_size": 1, "num_seeds": 1, "num_votes": 0})


@dataclass(frozen=True)
class Flags:
    """Train networks of sign neurons by expectation backpropagation, and test them on folds of the data.

    Without --dataset and --data, these are trained on the data set breast_cancer.

    :param num_folds: folds of the cross-validation of data without a standard split.
    :param max_folds: train and test on the first folds only; on all if not given.
    :param export: also write the binary network of the first seed and fold to this file, packed.
    """

    run: Settings = group(
        log_every=1,
        eval_every=1,
        checkpoint_every=2**31 - 1,
        checkpoint_seconds=30.0,
        omit=("num_steps", "batch_size", "log_every", "eval_every", "checkpoint_every"),
    )
    devices: Devices = group(omit=("strategy", "replicas"))
    source: views.Source = group()
    table: views.TableSpec = group()
    texts: views.TextSpec = group()
    networks: Networks = group()
    num_folds: int = 8
    max_folds: int | None = None
    export: str | None = None

    def __post_init__(self) -> None:
        at_least(self, {"num_folds": 2, "max_folds": 1})
        views.check_table(self.source, self.table)


@quiet.without_warnings()  # folds of different sizes are traced more than once
def main(flags: Flags) -> None:
    """One run, from the data to the report."""
    flags.devices.prepare()
    data = load(flags)
    training = Training(flags, data)
    # What is put in for missing values is learned from the training part of the first fold.
    data = data.learned(training.folds[0][0])
    settings = replace(flags.run, num_steps=len(training.units))
    with (
        quiet.without_warnings(),
        open_run(settings, cli.flags.text(flags), data, name="ebp", changed=cli.flags.changed(flags)) as run,
    ):
        # Files by which new rows are read alike.
        coding = training.fold(0).coding
        num_folds = len(training.folds)
        write_json(run.path / "coding.json", coding.to_json())
        inputs.keep(run.path, data, flags.texts)
        sizes = " - ".join(map(str, training.layer_sizes))
        print(within(f"inputs {coding.kind}, {num_folds} folds; network {sizes}"), flush=True)
        # A step is a unit: an epoch of a network on a fold.
        run.fit(
            lambda first, count: run_unit(training, first, run.path, data),
            state=training.state,
            scalars=lambda line: line,
            evaluate=lambda step: {},
            show=lambda: Shown(histograms=training.histograms()),
        )
        write_text(run.path / "units.jsonl", training.text())
        # Mean errors with standard errors; the exported network, if one was asked for.
        results = network_results(training.found, flags.networks.num_votes)
        lines = [aligned(table(results)), note(results)]
        if training.exported is not None:
            lines.append(f"{flags.export}: {training.exported.summary}")
            if training.exported.caution is not None:
                lines.append(f"caution: {training.exported.caution}")
        run.finish(
            {
                "rows": data.sizes["all"],
                "num_folds": num_folds,
                "class_names": data.class_names,
                "layer_sizes": training.layer_sizes,
                "input_coding": coding.kind,
                "batch_size": flags.networks.batch_size,
                "epochs": flags.networks.epochs,
                "seeds": list(range(settings.seed, settings.seed + flags.networks.num_seeds)),
                "models": results,
            },
            text="\n".join(lines),
            metrics=metrics(results),
            verdict=verdict(results),
            parts=[errors_part(results), *reliability_parts(training, run.path, data, results)],
        )


def load(flags: Flags) -> Rows:
    """The data, in one part: bags of words, or the rows of a table with labels."""
    source = flags.source
    texts = views.names("text")
    tables = views.names("supervised")
    if source.data is None and source.dataset not in (None, *texts, *tables):
        known_names = ", ".join([*texts, *tables])
        raise ValueError(f"--dataset must be one of {known_names}, got {source.dataset!r}; for own data use --data.")
    # Bags of words or rows of a table: by the name of the data set, or the kind of file.
    is_text = source.dataset in texts or (source.data is not None and is_documents(source.data))
    if flags.texts.given() and not (is_text and source.data):
        raise ValueError(
            f"--{flags.texts.given()[0]} is for documents and sparse matrices of your own, given by --data."
        )
    view: views.View = "text" if is_text else "supervised"
    data = views.load(source, view, table=flags.table, texts=flags.texts, default="breast_cancer", split=None)
    if data.task == "regression":
        raise ValueError(
            f"the target {', '.join(data.target_names)!r} of {data.name!r} is a number, and this script classifies; "
            "give --task=binary or --task=multiclass if its values are labels."
        )
    return data


# What is to be done, and doing it.


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
    :ivar calibration_error_percent: of EBP-P's probabilities, see `gpflow_deep_base.scores`.
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

    X: Any
    Y: np.ndarray
    X_test: Any
    Y_test: np.ndarray
    coding: InputCoding


class Training:
    """Networks of each kind of weights, seed and fold, an epoch at a time.

    All that changes is in :meth:`state`; what a unit finds depends on its seed and fold and on the epochs before it.

    :ivar folds: pairs of row numbers (training, test). What is learned or chosen in a fold, the coding of inputs among
        it, is learned from its training rows.
    :ivar units: all units of work, in order: `run_unit(number)` makes one of them.
    :ivar layer_sizes: inputs, hidden layers, outputs.
    :ivar network: the network that was trained last.
    :ivar exported: what was written to --export, or None.
    :raises ValueError: if data and flags do not fit together, or nothing could be written to --export.
    """

    def __init__(self, flags: Flags, data: Rows) -> None:
        self._X, labels = data.parts["all"]
        self._Y, _ = encode_labels(labels[:, 0], np.arange(len(data.class_names)))
        self._data = data
        self._export = flags.export
        self.networks = flags.networks
        self.first_seed = flags.run.seed
        if flags.networks.softmax and self._Y.shape[1] == 1:
            raise ValueError("softmax needs more than two classes, got two; leave it out.")
        self.folds = data.folds(flags.num_folds)[: flags.max_folds]
        self.layer_sizes = (self._X.shape[1], *self.networks.hidden, self._Y.shape[1])
        # A file of one's own may have the name of a known data set.
        name = "" if flags.source.data else data.name
        coding = self.networks.input_coding
        self.input_coding = recommended(name, self._X) if coding == "auto" else coding
        self.units = [
            Unit(weights, seed, fold, epoch)
            for seed in range(self.first_seed, self.first_seed + self.networks.num_seeds)
            for fold in range(len(self.folds))
            for weights in self.networks.weights
            for epoch in range(self.networks.epochs)
        ]
        self.network = self._new_network(self.units[0])
        self.exported: Exported | None = None
        self._records = tf.Variable("")  # `found` as JSON lines, so that a checkpoint holds it
        self._fold: tuple[int, Fold] | None = None
        self._prepared: tuple[int, Prepared] | None = None
        self._last: Unit | None = None
        self._has_warned = False
        if self._export is not None:
            self._check_export(self._export)

    def state(self) -> dict[str, Any]:
        """All that changes, by name, for a checkpoint: numbers of the last network, and what was recorded."""
        return {"network": self.network, "records": self._records}

    def text(self) -> str:
        """What was found, a line of JSON for each unit that is done."""
        return str(self._records.numpy().decode())

    @property
    def found(self) -> list[Result]:
        """What each unit that is done gave, in their order."""
        return [Result(**json.loads(line)) for line in self.text().splitlines()]

    def fold(self, number: int) -> Fold:
        """Rows of a fold; their coding is learned from the training rows alone."""
        if self._fold is None or self._fold[0] != number:
            rows, test_rows = self.folds[number]
            X, X_test = self._data.filled(self._X[rows], self._X[test_rows])
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
                self._prepared = number, prepared(self.network, fold.X, fold.Y)
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
        classes = self._data.class_names or None
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


def run_unit(training: Training, number: int, folder: Path, data: Rows) -> dict[str, float]:
    """A unit of work; after the last epoch on the first seed and fold its network is kept, with its calibration."""
    scalars = training.run_unit(number)
    unit = training.units[number]
    # The network to predict with is that of the first seed and fold after the last epoch.
    is_first = (unit.seed, unit.fold) == (training.first_seed, 0)
    if is_first and unit.epoch == training.networks.epochs - 1:
        rows, test_rows = training.folds[0]
        X, Y = data.parts["all"]
        _, X_test = data.filled(X[rows], X[test_rows])
        # Its test rows, which it has not learned, calibrate its probabilities.
        predictor = Predictor(training.network, training.fold(0).coding, data.class_names)
        predictor.calibrated(X_test, Y[test_rows, 0]).save(folder / f"model_{unit.weights}.npz")
    return scalars


# What is said of the results: kind of weights and output, as "binary D", to its numbers.


def network_results(results: Sequence[Result], num_votes: int) -> dict[str, dict[str, Any]]:
    """Means over seeds and folds.

    :param results: of all seeds, folds and epochs of each kind of weights.
    :return: "binary D", "binary P" and "binary 10 votes", say, to "last_percent" of the last epoch with
        "last_standard_error" (see :func:`mean_and_error`), "errors_percent" [seeds][folds][epochs] and
        "seconds_per_epoch"; P also has "log_loss_nats" and "calibration_error_percent" of the last epoch.
    """
    by_output: dict[str, dict[str, Any]] = {}
    for method in dict.fromkeys(result.method for result in results):
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
    return float(sample.mean()), float(sample.std(ddof=1) / np.sqrt(len(sample))) if len(sample) > 1 else None


def reliability_parts(training: Training, folder: Path, data: Rows, results: dict[str, dict[str, Any]]) -> list[Part]:
    """How far the probabilities can be trusted: numbers of all folds, and a curve of the first one."""
    parts: list[Part] = [Table("Reliability", reliability_table(results), "Of the probabilities after the last epoch.")]
    rows, test_rows = training.folds[0]
    X, Y = data.parts["all"]
    _, X_test = data.filled(X[rows], X[test_rows])
    # A curve for each kind of weights whose network was kept.
    panels = []
    for weights in WEIGHTS:
        path = folder / f"model_{weights}.npz"
        if path.exists():
            # As the network says them: its calibration was learned from these rows.
            predicted = replace(Predictor.load(path), calibration=None).predict(X_test)
            confidence = np.exp(predicted.log_p.max(axis=1))
            is_right = predicted.numbers == Y[test_rows, 0]
            panels.append(reliability(f"EBP {weights} P", confidence, is_right))
    if panels:
        note = "Test rows of the first fold, in ten groups; bars are 95% intervals. Below the line: too sure."
        parts.append(Panels("Reliability", panels, note))
    return parts


def errors_part(results: Results) -> Panels:
    """Errors of the last epoch."""
    bars = Bars([result["last_percent"] for result in results.values()], names=[f"EBP {name}" for name in results])
    return Panels("Errors", [Panel("last epoch", [bars], "test error (%)")])


def error_of(result: Mapping[str, Any]) -> str:
    """The mean error in percent after the last epoch, and its standard error, where there is one."""
    return plus_minus(result["last_percent"], result["last_standard_error"], digits=2)


def table(results: Results) -> list[list[str]]:
    """Errors in percent with their standard errors, and seconds, as cells of text."""
    rows = [[f"EBP {name}", error_of(found), f"{found['seconds_per_epoch']:.2f}"] for name, found in results.items()]
    return [["", "test error", "seconds"], *rows]


def note(results: Results) -> str:
    """What the numbers of the table are."""
    over = "seeds" if any(len(result["errors_percent"]) > 1 for result in results.values()) else "folds"
    return f"test error in percent after the last epoch, mean ± standard error over {over}; seconds of an epoch"


def metrics(results: Results) -> dict[str, float | None]:
    """What runs are compared by, of the outputs with probabilities whose log loss is smallest after the last epoch."""
    networks = [numbers for numbers in results.values() if "log_loss_nats" in numbers]
    best = min(networks, key=lambda numbers: numbers["log_loss_nats"])
    return {
        "log_density_nats": -best["log_loss_nats"],
        "error_percent": best["last_percent"],
        "calibration_error": best["calibration_error_percent"] / 100.0,
    }


def verdict(results: Results) -> str:
    """The best of the outputs by their errors after the last epoch."""
    best = min(results, key=lambda name: results[name]["last_percent"])
    return f"EBP {best} {error_of(results[best])} % errors."


def reliability_table(results: Results) -> list[list[str]]:
    """How far the probabilities can be trusted, as cells of text: log loss and calibration error of each output."""
    rows = [["", "log loss, nats", "calibration error, %"]]
    for name, numbers in results.items():
        if "log_loss_nats" in numbers:
            loss = numbers["log_loss_nats"]
            error = numbers["calibration_error_percent"]
            rows.append([f"EBP {name}", f"{loss:.4f}", f"{error:.2f}"])
    return rows


command = functools.partial(cli.run, main, explain=devices.explain)

if __name__ == "__main__":
    command()
