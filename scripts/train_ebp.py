#!/usr/bin/env python3
"""Train networks of sign neurons by expectation backpropagation, and the paper's rivals beside them.

    train_ebp.py --run_dir=runs/first
    train_ebp.py --run_dir=runs/i6 --dataset=reuters_i6 --data_dir=DATA --weights=real,binary --seeds=10 \\
        --methods=ebp,bp_ce,bp_mse,bp_clipped,arow
    train_ebp.py --run_dir=runs/mnist --dataset=mnist --data_dir=DATA --hidden=500,500 --epochs=10 --export=mnist.ebp
    train_ebp.py --run_dir=runs/own --data=table.csv --target=kind
    train_ebp.py --run_dir=runs/first --resume

Networks are trained for each seed and each fold of a cross-validation (or the standard split of the data), and tested
after every epoch: EBP-D is the network of the most probable weights, EBP-P the mean over the posterior. Nothing is
chosen by test errors; "best epoch", the epoch with the smallest mean test error as in the paper, is optimistic. The
learning rates of backpropagation and r of AROW are chosen on rows set aside from each training part. Ctrl-C finishes
the running epoch (or the running fold of a rival) and saves; --resume goes on to the same bits.

The folder of the run gets:

    result.json   errors of all methods, seeds, folds and epochs, and their means
    coding.json   how inputs are coded for the network of the first seed and fold, which --export writes
    plots/        the table as a bar chart
    scalars.jsonl, tensorboard/, checkpoints/
"""

import importlib.util
import math
import os
import sys
import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple

if importlib.util.find_spec("experiment") is None:  # run from a checkout that is not installed
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf
from absl import app, flags, logging

import ebp
from ebp import baselines
from ebp.coding import InputCoding, fraction_bits
from ebp.packed import PackedNetwork, export_network
from experiment import checkpoints, run_dir
from experiment.data import tables
from experiment.data.rows import Indices
from experiment.data.sets import supervised as datasets
from experiment.data.sets import text as text_data
from experiment.flags import apply_threads, define_common_flags, flags_text
from experiment.loop import Interrupted, train
from experiment.report import plots
from experiment.scalars import ScalarWriter
from experiment.script import run_script
from experiment.seeds import named_seed, numpy_rng

METHODS = {
    "ebp": "",
    "bp_ce": "BP, cross-entropy",
    "bp_mse": "BP, squared error",
    "bp_clipped": "BP, clipped to signs",
    "arow": "AROW",
}
WEIGHTS = ("real", "binary", "ternary")

FLAGS = flags.FLAGS
define_common_flags()
for unused in ("num_steps", "split", "log_every", "eval_every", "checkpoint_every", "float32"):
    delattr(FLAGS, unused)
FLAGS.set_default("batch_size", 10)
flags.DEFINE_list("weights", ["binary"], f"Kinds of weights, each trained on its own: {', '.join(WEIGHTS)}.")
flags.DEFINE_list("hidden", ["120"], "Widths of the hidden layers.")
flags.DEFINE_integer("epochs", 3, "Passes over the training data.", 1)
flags.DEFINE_integer("folds", 8, "Folds of the cross-validation of data without a standard split.", 2)
flags.DEFINE_integer("max_folds", None, "Train and test on the first folds only.", 1)
flags.DEFINE_integer("seeds", 1, "Number of seeds: --seed and those after it.", 1)
flags.DEFINE_list("methods", ["ebp"], f"What to train: {', '.join(METHODS)}.")
flags.DEFINE_integer("rival_seeds", 1, "Number of seeds of all methods but ebp; their tuning takes time.", 1)
flags.DEFINE_string("input_coding", "auto", "auto, raw, scaled, common, zscore, centred, sign: see ebp.coding.")
flags.DEFINE_boolean("softmax", False, "For several classes: a softmax in place of one sign neuron for each class.")
flags.DEFINE_enum("dtype", "float32", ["float32", "float64"], "Precision of expectation backpropagation.")
flags.DEFINE_integer("votes", 0, "Test (and export) also the vote of this many networks drawn from the posterior.", 0)
flags.DEFINE_string("export", None, "Write the binary network of the first seed and fold to this file, packed.")

CHECKPOINT_SECONDS = 30.0
IMAGES = ("mnist", "rectangles_images")
COLUMNS = ("D", "P", "votes")

#: Errors in percent from Table 1 of the paper, and for MNIST from Cheng, Soudry, Mao and Lan (2015).
PUBLISHED = {
    "reuters_i6": {"real D": 14.5, "real P": 11.35, "binary D": 21.7, "binary P": 9.95, "arow": 11.72, "bp": 13.3},
    "ng20_comp_hw": {"real D": 5.06, "real P": 4.96, "binary D": 7.54, "binary P": 4.44, "arow": 5.79, "bp": 7.02},
    "amazon_apparel_books": {"real D": 2.14, "real P": 2.09, "binary D": 2.45, "binary P": 2.01, "arow": 2.24},
    "mnist": {"real P": 1.66, "binary P": 2.12},
}


class Data(NamedTuple):
    """Raw inputs X [N, D], dense or sparse; Y -1 and +1, [N, 1] or [N, C]; pairs of training and test rows."""

    name: str
    X: Any
    Y: np.ndarray
    class_names: tuple[str, ...]
    folds: tuple[tuple[Indices, Indices], ...]
    coding: str
    sha256: str
    source: str


class Unit(NamedTuple):
    """A step of the run: an epoch of expectation backpropagation, or all epochs of a rival, with a seed on a fold."""

    method: str  # the kind of weights, or the rival
    seed: int
    fold: int
    epoch: int


class Part(NamedTuple):
    """A fold's training and test rows, coded."""

    X: Any
    Y: np.ndarray
    X_test: Any
    Y_test: np.ndarray
    coding: InputCoding


def load_data() -> Data:
    """Read the data and fix the folds."""
    if FLAGS.data is None and (FLAGS.target is not None or FLAGS.task is not None):
        raise ValueError("--target and --task describe your own table; give it with --data, or leave them out.")
    name = FLAGS.dataset or "breast_cancer"
    if FLAGS.data is None and name in text_data.names():
        text = text_data.load(name, FLAGS.data_dir)
        folds = text_data.folds(len(text.labels), FLAGS.folds)
        coding, Y = text.coding, text.labels[:, None].astype(np.float64)
        return Data(name, text.X, Y, text.class_names, folds[: FLAGS.max_folds], coding, text.sha256, text.source)
    if FLAGS.data is not None:
        dataset = tables.read_table(FLAGS.data, target=FLAGS.target, task=FLAGS.task)
    elif name in datasets.names():
        dataset = datasets.load(name, FLAGS.data_dir)
    else:
        known = ", ".join([*text_data.names(), *datasets.names()])
        raise ValueError(f"--dataset must be one of {known}, got {name!r}; for own data use --data.")
    if dataset.task == "regression":
        raise ValueError(
            f"the target {dataset.target_name!r} of {dataset.name!r} is a number, and this script classifies; give "
            "--task=binary or --task=multiclass if its values are labels."
        )
    order = np.arange(len(dataset.X))
    if dataset.splits is None:
        order = numpy_rng(0, f"folds/{len(order)}").permutation(len(order))
    folds = text_data.folds(len(order), FLAGS.folds) if dataset.splits is None else dataset.splits
    Y, _ = ebp.encode_labels(dataset.Y[order, 0], np.arange(len(dataset.class_names)))
    coding = "common" if dataset.name in IMAGES else "zscore"
    return Data(
        dataset.name,
        dataset.X[order],
        Y,
        dataset.class_names,
        folds[: FLAGS.max_folds],
        coding,
        dataset.sha256,
        dataset.source,
    )


def schedule(data: Data) -> list[Unit]:
    """All steps of the run, in order."""
    units = []
    for seed in range(FLAGS.seed, FLAGS.seed + FLAGS.seeds):
        for fold in range(len(data.folds)):
            for weights in FLAGS.weights if "ebp" in FLAGS.methods else []:
                units += [Unit(weights, seed, fold, epoch) for epoch in range(FLAGS.epochs)]
            if seed < FLAGS.seed + FLAGS.rival_seeds:
                units += [Unit(method, seed, fold, 0) for method in FLAGS.methods if method != "ebp"]
    return units


def check_flags(data: Data) -> None:
    for name, allowed in (("weights", WEIGHTS), ("methods", tuple(METHODS))):
        values: list[str] = list(getattr(FLAGS, name))
        unknown = [value for value in values if value not in allowed]
        if unknown or not values:
            raise ValueError(f"--{name} may list {', '.join(allowed)}, got {', '.join(unknown) or 'nothing'}.")
    if not all(width.isdigit() and int(width) > 0 for width in FLAGS.hidden if width):
        raise ValueError(f"--hidden must list positive widths such as 500,500, got {','.join(FLAGS.hidden)}.")
    if FLAGS.softmax and data.Y.shape[1] == 1:
        raise ValueError("--softmax needs more than two classes; leave it out.")
    if FLAGS.export is not None and not ("binary" in FLAGS.weights and "ebp" in FLAGS.methods):
        raise ValueError("--export writes a network of binary weights; add binary to --weights and ebp to --methods.")


class Run:
    """The state of a run, and what its steps do."""

    def __init__(self, data: Data, run: run_dir.RunDir, units: list[Unit]) -> None:
        self.data, self.run, self.units = data, run, units
        hidden = [int(width) for width in FLAGS.hidden if width]
        self.layer_sizes = (data.X.shape[1], *hidden, data.Y.shape[1])
        self.step = tf.Variable(0, dtype=tf.int64)
        # A row for each unit. An epoch: errors D, P and of votes, seconds. A rival: seconds, value, whether it is at an
        # edge of its grid, errors.
        self.records = tf.Variable(np.full([len(units), FLAGS.epochs + 4], np.nan))
        self.network = self.new_network(units[0])
        self._part: tuple[int, Part] | None = None
        self._prepared: tuple[int, ebp.Prepared] | None = None
        self._last_save = time.monotonic()

    def restore(self) -> int | None:
        """Go back to the newest checkpoint; the network in it is that of the last epoch that was trained."""
        restored = checkpoints.restore(self.run.checkpoint_dir, **self._stateful())
        if restored and restored < len(self.units) and self.units[restored].epoch > 0:
            network = self.new_network(self.units[restored])
            network.assign(self.network.posterior)
            network.step.assign(self.network.step)
            self.network = network
        return restored

    def save(self) -> None:
        checkpoints.save(self.run.checkpoint_dir, self.step, **self._stateful())
        self._last_save = time.monotonic()

    def save_now_and_then(self) -> None:
        if time.monotonic() - self._last_save > CHECKPOINT_SECONDS:
            self.save()

    def _stateful(self) -> dict[str, Any]:
        return {"network": self.network, "step": self.step, "records": self.records}

    def new_network(self, unit: Unit) -> ebp.EBPNetwork:
        weights = unit.method if unit.method in WEIGHTS else "real"
        head = "binary" if self.layer_sizes[-1] == 1 else "softmax" if FLAGS.softmax else "multiclass"
        seed = named_seed(unit.seed, f"init/{unit.fold}")
        return ebp.EBPNetwork(self.layer_sizes, weights, head=head, seed=seed, dtype=FLAGS.dtype)

    def part(self, fold: int) -> Part:
        """A fold's rows; the coding is learned from its training rows."""
        if self._part is None or self._part[0] != fold:
            (rows, test_rows), X, Y = self.data.folds[fold], self.data.X, self.data.Y
            kind = self.data.coding if FLAGS.input_coding == "auto" else FLAGS.input_coding
            coding = InputCoding.fit(kind, X[rows])
            parts = coding.transform(X[rows]), Y[rows], coding.transform(X[test_rows]), Y[test_rows]
            self._part, self._prepared = (fold, Part(*parts, coding)), None
        return self._part[1]

    def train_step(self, unit: Unit, _: tf.Tensor) -> dict[str, float]:
        """One unit; returns what to log."""
        part = self.part(unit.fold)
        if unit.method in WEIGHTS:
            return self._epoch(unit, part)
        return self._rival(unit, part)

    def _epoch(self, unit: Unit, part: Part) -> dict[str, float]:
        if unit.epoch == 0:
            self.network = self.new_network(unit)
        network, start = self.network, time.monotonic()
        if self._prepared is None or self._prepared[0] != unit.fold:
            self._prepared = unit.fold, self._prepare(part)
        seed = int(numpy_rng(unit.seed, f"order/{unit.fold}").integers(2**31))
        stats = ebp.fit_epoch(network, self._prepared[1], batch_size=FLAGS.batch_size, seed=seed, epoch=unit.epoch)
        seconds = time.monotonic() - start
        outputs = {"D": network.deterministic_scores(part.X_test), "P": network.predict_scores(part.X_test)}
        if FLAGS.votes:
            outputs["votes"] = network.vote(part.X_test, FLAGS.votes, seed)
        errors = {name: float(baselines.error_percent(scores, part.Y_test)) for name, scores in outputs.items()}
        self._record([*(errors.get(name, np.nan) for name in COLUMNS), seconds])
        if FLAGS.export is not None and unit.epoch == FLAGS.epochs - 1 and unit == self._export_unit():
            export(network, part, seed)
        scalars = {f"test/error_{name.lower()}_percent": error for name, error in errors.items()}
        damped = 100.0 * stats.damped_steps / stats.num_steps
        return {**scalars, "train/log_evidence_nats": stats.log_evidence, "train/damped_percent": damped}

    def _export_unit(self) -> Unit:
        return next(unit for unit in self.units if unit.method == "binary" and unit.epoch == FLAGS.epochs - 1)

    def _prepare(self, part: Part) -> ebp.Prepared:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", ebp.InputCodingWarning)
            prepared = ebp.prepare(self.network, part.X, part.Y)
        for message in {str(warning.message) for warning in caught}:
            logging.log_first_n(logging.WARNING, "%s", 1, message)
        return prepared

    def _rival(self, unit: Unit, part: Part) -> dict[str, float]:
        start = time.monotonic()
        seed = int(numpy_rng(unit.seed, f"order/{unit.fold}").integers(2**31))
        length = float(np.sqrt(np.mean(row_squares(part.X))))
        train_X, test_X = (baselines.equal_lengths(X, length) for X in (part.X, part.X_test))

        def make(values: Any, X: Any) -> baselines.Bank:
            if unit.method == "arow":
                return baselines.AROW(self.layer_sizes[0], self.layer_sizes[-1], values)
            return baselines.Backpropagation(
                self.layer_sizes,
                values,
                X,
                loss="squared" if unit.method == "bp_mse" else "cross_entropy",
                batch_size=FLAGS.batch_size,
                clipped=unit.method == "bp_clipped",
                seed=named_seed(unit.seed, f"init/{unit.fold}"),
            )

        tuned = baselines.tuned_errors(
            make,
            baselines.R_VALUES if unit.method == "arow" else baselines.LEARNING_RATES,
            (train_X, part.Y),
            (test_X, part.Y_test),
            epochs=FLAGS.epochs,
            seed=seed,
        )
        self._record([time.monotonic() - start, tuned.value, float(tuned.is_at_edge), *tuned.test_errors])
        return {"test/error_percent": tuned.test_errors[-1], "train/tuned_value": tuned.value}

    def _record(self, values: list[float]) -> None:
        row = np.full(self.records.shape[1], np.nan)
        row[: len(values)] = values
        self.records[int(self.step)].assign(row)

    def log(self, writer: ScalarWriter, t: int, scalars: dict[str, float]) -> None:
        """Scalars of every unit; of the first seed and fold also what the posterior looks like."""
        unit = self.units[t - 1]
        prefix = f"{unit.method}/seed_{unit.seed}_fold_{unit.fold}"
        if unit.method in WEIGHTS and (unit.seed, unit.fold) == (FLAGS.seed, 0):
            for number, (h, prior, entropy) in enumerate(
                zip(self.network.h, self.network.architecture.priors, self.network.entropy(), strict=True), start=1
            ):
                some = tf.reshape(h, [-1])[:: 1 + int(np.prod(h.shape)) // 100_000]
                scalars[f"layer_{number}/entropy_nats"] = entropy
                if prior.is_discrete:
                    decided = prior.var(some) < 0.01 * prior.var(tf.zeros([], h.dtype))
                    scalars[f"layer_{number}/decided_percent"] = 100.0 * float(
                        tf.reduce_mean(tf.cast(decided, h.dtype))
                    )
                writer.histogram(t, f"{prefix}/layer_{number}/h", some)
        writer.write(t, {f"{prefix}/{tag}": value for tag, value in scalars.items()})

    def results(self) -> dict[str, dict[str, Any]]:
        """Method -> its errors, [seeds][folds][epochs], and their summary."""
        records, found = self.records.numpy(), {}
        for method in dict.fromkeys(unit.method for unit in self.units):
            seeds = sorted({unit.seed for unit in self.units if unit.method == method})
            rows = {unit: row for unit, row in zip(self.units, records, strict=True) if unit.method == method}

            def table(columns: Any, method: str = method, seeds: Any = seeds, rows: Any = rows) -> np.ndarray:
                epochs = range(FLAGS.epochs if method in WEIGHTS else 1)
                units = [
                    [[Unit(method, seed, fold, epoch) for epoch in epochs] for fold in range(len(self.data.folds))]
                    for seed in seeds
                ]
                return np.array([[[rows[unit][columns] for unit in fold] for fold in seed] for seed in units])

            if method in WEIGHTS:
                seconds = float(np.mean(table(3)))
                for column, name in enumerate(COLUMNS[: 3 if FLAGS.votes else 2]):
                    label = f"{FLAGS.votes} {name}" if name == "votes" else name
                    found[f"{method} {label}"] = {**summary(table(column)), "seconds_per_epoch": seconds}
            else:
                errors = table(slice(3, 3 + FLAGS.epochs))[:, :, 0]
                found[method] = {
                    **summary(errors),
                    "tuned_values": table(1)[..., 0].tolist(),
                    "folds_at_edge_of_grid": int(np.sum(table(2))),
                    "seconds_per_fold": float(np.mean(table(0))),
                }
        return found


def row_squares(X: Any) -> np.ndarray:
    """Squared length of each row."""
    square = X.multiply(X) if hasattr(X, "multiply") else np.square(X, dtype=np.float64)
    return np.asarray(square.sum(axis=1)).reshape(-1)


def summary(errors: np.ndarray) -> dict[str, Any]:
    """Means of errors [seeds, folds, epochs] with their standard errors, over seeds or, of one seed, over folds.

    The best epoch is that of each seed's smallest mean over folds.
    """
    by_seed = errors.mean(axis=1)  # [seeds, epochs]
    best = by_seed.argmin(axis=1)
    result: dict[str, Any] = {}
    for name, epochs in (("last", np.full(len(errors), errors.shape[2] - 1)), ("best", best)):
        values = np.array([seed[:, epoch] for seed, epoch in zip(errors, epochs, strict=True)])  # [seeds, folds]
        of = values.mean(axis=1) if len(values) > 1 else values[0]
        error = float(of.std(ddof=1) / np.sqrt(len(of))) if len(of) > 1 else None
        result[f"{name}_percent"], result[f"{name}_standard_error"] = float(of.mean()), error
    return {**result, "best_epochs": (best + 1).tolist(), "errors_percent": errors.tolist()}


def export(network: ebp.EBPNetwork, part: Part, seed: int) -> None:
    """Write the packed network, and check that it and the float network agree on all test rows."""
    bits = export_bits(part)
    size = export_network(FLAGS.export, network, fraction_bits=bits, num_votes=FLAGS.votes, seed=seed)
    packed = PackedNetwork.load(FLAGS.export)
    if FLAGS.votes:
        ours, theirs = packed.vote(part.X_test), network.vote(part.X_test, FLAGS.votes, seed)
    else:
        scale = math.sqrt(network.architecture.fan_ins[-1])
        ours, theirs = packed.scores(part.X_test) / scale, network.deterministic_scores(part.X_test)
    num_different = int(np.sum(np.any(ours != theirs, axis=1)))
    if num_different:
        raise ValueError(
            f"--export: {num_different} of {len(ours)} test rows differ between the packed and the float network; the "
            "inputs are too large for exact sums, use --dtype=float64 or another --input_coding."
        )
    floats = 4 * max(1, FLAGS.votes) * sum(int(np.prod(v.shape)) for v in (*network.h, *network.b))
    print(
        f"{FLAGS.export}: {size} bytes, {floats / size:.1f} times less than float32; the same outputs on all "
        f"{len(ours)} test rows"
    )


def export_bits(part: Part) -> int | None:
    """`fraction_bits` of the coded inputs; None if they are signs."""
    if part.coding.kind == "sign":
        return None
    each = [fraction_bits(X) for X in (part.X, part.X_test)]
    if None in each:
        raise ValueError(
            f"--export needs inputs with exact sums, and --input_coding={part.coding.kind} leaves fractions; use "
            "another."
        )
    return max(bits for bits in each if bits is not None)


def title(method: str) -> str:
    return METHODS.get(method) or f"EBP {method}"


def published(name: str, method: str) -> float | None:
    return PUBLISHED.get(name, {}).get("bp" if method in ("bp_ce", "bp_mse") else method)


def table(name: str, models: dict[str, dict[str, Any]]) -> str:
    """The summary as aligned text."""

    def cell(value: float | None, error: float | None) -> str:
        return "" if value is None else f"{value:.2f}" + ("" if error is None else f" ± {error:.2f}")

    lines = [["", "last epoch", "best epoch", "published", "seconds"]]
    for method, result in models.items():
        cells = [cell(result[f"{kind}_percent"], result[f"{kind}_standard_error"]) for kind in ("last", "best")]
        seconds = result.get("seconds_per_epoch", result.get("seconds_per_fold"))
        lines.append([title(method), *cells, cell(published(name, method), None), f"{seconds:.2f}"])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(line, widths, strict=True)))
        for line in lines
    )


def draw_bars(path: Path, data: Data, models: dict[str, dict[str, Any]]) -> None:
    """Errors of the last epoch (wide) and of the best one (narrow), and what was published."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(2.0 + 0.9 * len(models), 4.0), dpi=100, layout="constrained")
    FigureCanvasAgg(figure)
    panel = figure.subplots()
    x = np.arange(len(models))
    for kind, width, colour in (("last", 0.8, "C0"), ("best", 0.4, "C1")):
        heights = [result[f"{kind}_percent"] for result in models.values()]
        spreads = [result[f"{kind}_standard_error"] or 0.0 for result in models.values()]
        panel.bar(x, heights, width, yerr=spreads, color=colour, label=f"{kind} epoch", capsize=3)
    known = [(i, value) for i, method in enumerate(models) if (value := published(data.name, method)) is not None]
    if known:
        panel.plot(*zip(*known, strict=True), "k_", markersize=16, label="published")
    panel.set_xticks(x, [title(method).replace(", ", ",\n").replace(" ", "\n", 1) for method in models], fontsize=8)
    panel.set(ylabel="test error (%)", title=f"{data.name}, {len(data.folds)} folds")
    panel.legend()
    with run_dir.atomic_path(path) as temporary:
        figure.savefig(temporary, format="png")


def run_all(start: float) -> None:
    apply_threads(FLAGS.threads)
    data = load_data()
    check_flags(data)
    record = run_dir.provenance(data.sha256, seed=FLAGS.seed, data_source=data.source)
    run = run_dir.open_run(FLAGS.run_dir, flags_text=flags_text(), provenance=record, resume=FLAGS.resume)
    units = schedule(data)
    state = Run(data, run, units)
    first = state.part(0)
    if FLAGS.export is not None:
        export_bits(first)  # its error, if any, before the training
    run_dir.write_json(run.path / "coding.json", first.coding.to_json())
    sizes = " - ".join(map(str, state.layer_sizes))
    print(f"{data.name}: {data.source}")
    print(f"{len(data.Y)} rows, inputs {first.coding.kind}, {len(data.folds)} folds; network {sizes}", flush=True)
    restored = state.restore() if FLAGS.resume else None
    with ScalarWriter(run, resume_step=restored) as writer:

        def after_step(t: int, scalars: dict[str, float]) -> None:
            state.log(writer, t, scalars)
            state.save_now_and_then()

        try:
            train(
                state.train_step,
                units.__getitem__,
                step=state.step,
                num_steps=len(units),
                seed=named_seed(FLAGS.seed, "train"),
                after_step=after_step,
                progress=FLAGS.progress,
                max_seconds=FLAGS.max_seconds,
            )
        except Interrupted:
            state.save()
            raise
        models = state.results()
        if restored != len(units):
            state.save()
        if plots.is_available():
            draw_bars(run.plots_dir / "errors.png", data, models)
            if restored != len(units):
                writer.image(len(units), "plots/errors", run.plots_dir / "errors.png")
        else:
            logging.warning("Matplotlib is not installed, so there will be no plot; `pip install matplotlib`.")
    print("\n" + table(data.name, models))
    over = "seeds" if FLAGS.seeds > 1 else "folds"
    print(
        f"test error in percent, mean ± standard error over {over}; seconds of an epoch (EBP) or of tuning and training"
    )
    at_edge = [title(name) for name, result in models.items() if result.get("folds_at_edge_of_grid", 0) > 0]
    if at_edge:
        print(f"in some folds the best value was at the edge of its grid: {'; '.join(at_edge)}")
    run_dir.write_json(
        run.result_file,
        {
            "dataset": data.name,
            "rows": len(data.Y),
            "num_folds": len(data.folds),
            "class_names": data.class_names,
            "layer_sizes": state.layer_sizes,
            "input_coding": first.coding.kind,
            "batch_size": FLAGS.batch_size,
            "epochs": FLAGS.epochs,
            "seeds": list(range(FLAGS.seed, FLAGS.seed + FLAGS.seeds)),
            "published_percent": PUBLISHED.get(data.name, {}),
            "models": models,
            "wall_seconds": time.monotonic() - start,
            "flags": flags_text().splitlines(),
        },
    )
    print(f"written to {run.path}")


def explain(error: Exception) -> tuple[str, int] | None:
    if isinstance(error, (tf.errors.ResourceExhaustedError, MemoryError)):
        return f"out of memory; lower --batch_size or --hidden, or leave out rivals. {error}", 1
    return None


def main(argv: list[str]) -> int:
    if not FLAGS["verbosity"].present:
        tf.get_logger().setLevel("ERROR")  # folds of different sizes are traced more than once
    return run_script(argv, run_all, explain)


if __name__ == "__main__":
    app.run(main)
