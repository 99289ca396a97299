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

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import gpflow_deep_runs.early  # noqa: F401 (what is wrong is said before TensorFlow starts)
from gpflow_deep_runs import cli
from gpflow_deep_runs.cli.flags import at_least, group
from gpflow_deep_runs.data import views
from gpflow_deep_runs.data.files import inputs
from gpflow_deep_runs.data.files.documents import is_documents
from gpflow_deep_runs.data.rows import Rows
from gpflow_deep_runs.run import Devices, Settings, Shown, devices, open_run

import numpy as np
from ebp import Predictor
from ebp.estimators.folds import WEIGHTS, Networks, Training, network_results
from gpflow_deep_base.files import write_json, write_text
from gpflow_deep_base.page import Bars, Panel, Panels, Part, Table, reliability
from gpflow_deep_base.runtime import quiet
from gpflow_deep_base.text import aligned, plus_minus, within

Results = Mapping[str, Mapping[str, Any]]


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
    training = new_training(flags, data)
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
        results = network_results(training.results, flags.networks.num_votes)
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


def new_training(flags: Flags, data: Rows) -> Training:
    """All units of work on the data, before the first one."""
    X, labels = data.parts["all"]
    return Training(
        flags.networks,
        X,
        labels[:, 0],
        data.folds(flags.num_folds)[: flags.max_folds],
        class_names=data.class_names,
        first_seed=flags.run.seed,
        fill=data.filled,
        dataset="" if flags.source.data else data.name,  # a file of one's own may have the name of a known one
        export=flags.export,
    )


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
