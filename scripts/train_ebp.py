#!/usr/bin/env python3
"""Train networks of sign neurons by expectation backpropagation, and the paper's rivals beside them.

    gpflow-deep ebp --run_dir=runs/first
    gpflow-deep ebp --run_dir=runs/i6 --dataset=reuters_i6 --data_dir=DATA --weights=real,binary --num_seeds=10 \\
        --methods=ebp,bp_ce,bp_mse,bp_clipped,arow
    gpflow-deep ebp --run_dir=runs/mnist --dataset=mnist --data_dir=DATA --hidden=500,500 --epochs=10 --export=mnist.ebp
    gpflow-deep ebp --run_dir=runs/own --data=table.csv --target=kind
    gpflow-deep ebp --run_dir=runs/texts --data=reviews.jsonl
    gpflow-deep ebp --run_dir=runs/first --resume

Networks are trained for each seed and each fold of a cross-validation (or the standard split of the data), and tested
after every epoch: EBP-D is the network of the most probable weights, EBP-P the mean over the posterior. Nothing is
chosen by test errors; "best epoch", the epoch with the smallest mean test error as in the paper, is optimistic. The
learning rates of backpropagation and r of AROW are chosen on rows set aside from each training part. Ctrl-C finishes
the running epoch (or the running fold of a rival) and saves; --resume goes on to the same bits.

The folder of the run gets:

    result.json   errors of all methods, seeds, folds and epochs, and their means
    units.jsonl   what each epoch of a network, or each rival, gave on each fold, a JSON line each
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
from gpflow_deep_runs.data import inputs, views
from gpflow_deep_runs.data.documents import is_documents
from gpflow_deep_runs.data.rows import Rows
from gpflow_deep_runs.run import Devices, Settings, Shown, devices, open_run

import numpy as np
from ebp import CrossValidation, CrossValidationConfig, Predictor, encode_labels
from ebp.estimators.baselines import RIVALS
from ebp.estimators.cross_validation import WEIGHTS
from ebp.estimators.fold_results import written_results
from gpflow_deep_base import quiet
from gpflow_deep_base.files import write_json, write_text
from gpflow_deep_base.page import Bars, Panel, Panels, Part, Table, reliability
from gpflow_deep_base.text import aligned, plus_minus, within

Results = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Flags:
    """Train networks of sign neurons by expectation backpropagation, and the paper's rivals beside them.

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
    validation: CrossValidationConfig = group()
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
    validation = new_validation(flags, data)
    # What is put in for missing values is learned from the training part of the first fold.
    data = data.learned(validation.folds[0][0])
    settings = replace(flags.run, num_steps=len(validation.units))
    with (
        quiet.without_warnings(),
        open_run(settings, cli.flags.text(flags), data, name="ebp", changed=cli.flags.changed(flags)) as run,
    ):
        # Files by which new rows are read alike.
        coding = validation.fold(0).coding
        num_folds = len(validation.folds)
        write_json(run.path / "coding.json", coding.to_json())
        inputs.keep(run.path, data, flags.texts)
        sizes = " - ".join(map(str, validation.layer_sizes))
        print(within(f"inputs {coding.kind}, {num_folds} folds; network {sizes}"), flush=True)
        # A step is a unit: an epoch of a network on a fold, or a rival on a fold.
        run.fit(
            lambda first, count: run_unit(validation, first, run.path, data),
            state=validation.state,
            scalars=lambda line: line,
            evaluate=lambda step: {},
            show=lambda: Shown(histograms=validation.histograms()),
        )
        write_text(run.path / "units.jsonl", written_results(validation.found))
        # Mean errors with standard errors; the exported network, if one was asked for.
        results = validation.results()
        lines = [aligned(table(results)), *notes(results)]
        if validation.exported is not None:
            lines.append(f"{flags.export}: {validation.exported.summary}")
            if validation.exported.caution is not None:
                lines.append(f"caution: {validation.exported.caution}")
        run.finish(
            {
                "rows": data.sizes["all"],
                "num_folds": num_folds,
                "class_names": data.class_names,
                "layer_sizes": validation.layer_sizes,
                "input_coding": coding.kind,
                "batch_size": flags.validation.batch_size,
                "epochs": flags.validation.epochs,
                "seeds": list(range(settings.seed, settings.seed + flags.validation.num_seeds)),
                "models": results,
            },
            text="\n".join(lines),
            metrics=metrics(results),
            verdict=verdict(results),
            parts=[errors_part(results), *reliability_parts(validation, run.path, data, results)],
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


def known_name(flags: Flags, data: Rows) -> str:
    """Of a known data set; an own file may have the same name."""
    return "" if flags.source.data else data.name


def run_unit(validation: CrossValidation, number: int, folder: Path, data: Rows) -> dict[str, float]:
    """A unit of work; after the last epoch on the first seed and fold its network is kept, with its calibration."""
    scalars = validation.run_unit(number)
    unit = validation.units[number]
    # The network to predict with is that of the first seed and fold after the last epoch.
    is_first = (unit.seed, unit.fold) == (validation.first_seed, 0)
    if unit.method in WEIGHTS and is_first and unit.epoch == validation.config.epochs - 1:
        rows, test_rows = validation.folds[0]
        X, Y = data.parts["all"]
        _, X_test = data.filled(X[rows], X[test_rows])
        # Its test rows, which it has not learned, calibrate its probabilities.
        predictor = Predictor(validation.network, validation.fold(0).coding, data.class_names)
        predictor.calibrated(X_test, Y[test_rows, 0]).save(folder / f"model_{unit.method}.npz")
    return scalars


def reliability_parts(
    validation: CrossValidation, folder: Path, data: Rows, results: dict[str, dict[str, Any]]
) -> list[Part]:
    """How far the probabilities can be trusted: numbers of all folds, and a curve of the first one."""
    parts: list[Part] = [Table("Reliability", reliability_table(results), "Of the probabilities after the last epoch.")]
    rows, test_rows = validation.folds[0]
    X, Y = data.parts["all"]
    _, X_test = data.filled(X[rows], X[test_rows])
    # A curve for each kind of weights whose network was kept.
    panels = []
    for method in WEIGHTS:
        path = folder / f"model_{method}.npz"
        if path.exists():
            # As the network says them: its calibration was learned from these rows.
            predicted = replace(Predictor.load(path), calibration=None).predict(X_test)
            confidence = np.exp(predicted.log_p.max(axis=1))
            is_right = predicted.numbers == Y[test_rows, 0]
            panels.append(reliability(f"EBP {method} P", confidence, is_right))
    if panels:
        note = "Test rows of the first fold, in ten groups; bars are 95% intervals. Below the line: too sure."
        parts.append(Panels("Reliability", panels, note))
    return parts


def new_validation(flags: Flags, data: Rows) -> CrossValidation:
    """What is to be done with the data."""
    X, labels = data.parts["all"]
    Y, _ = encode_labels(labels[:, 0], np.arange(len(data.class_names)))
    folds = data.folds(flags.num_folds)[: flags.max_folds]
    return CrossValidation(
        flags.validation,
        X,
        Y,
        folds,
        prepare=data.filled,
        seed=flags.run.seed,
        dataset=known_name(flags, data),
        export=flags.export,
        classes=data.class_names or None,
    )


def errors_part(results: Results) -> Panels:
    """Errors of the last epoch and of the best one."""
    names = [title_of(method) for method in results]
    panels = []
    for kind in ("last", "best"):
        bars = Bars([result[f"{kind}_percent"] for result in results.values()], names=names)
        panels.append(Panel(f"{kind} epoch", [bars], "test error (%)"))
    return Panels("Errors", panels)


# What is said of the results: method, as "binary D" or "arow", to its numbers.


def title_of(method: str) -> str:
    """What a method is called in tables."""
    return RIVALS.get(method) or f"EBP {method}"


def error_of(result: Mapping[str, Any], kind: str) -> str:
    """The mean error in percent after the "last" or "best" epoch, and its standard error, where there is one."""
    return plus_minus(result[f"{kind}_percent"], result[f"{kind}_standard_error"], digits=2)


def table(results: Results) -> list[list[str]]:
    """Errors in percent with their standard errors, and seconds, as cells of text."""
    cells = [["", "last epoch", "best epoch", "seconds"]]
    for method, result in results.items():
        errors = [error_of(result, kind) for kind in ("last", "best")]
        seconds = result.get("seconds_per_epoch", result.get("seconds_per_fold"))
        cells.append([title_of(method), *errors, f"{seconds:.2f}"])
    return cells


def notes(results: Results) -> list[str]:
    """What the numbers of the table are, and which grids were too narrow, as lines of text."""
    over = "seeds" if any(len(result["errors_percent"]) > 1 for result in results.values()) else "folds"
    lines = [
        f"test error in percent, mean ± standard error over {over}; seconds of an epoch (EBP) or of tuning and training"
    ]
    at_edge = [title_of(name) for name, result in results.items() if result.get("folds_at_edge_of_grid", 0) > 0]
    if at_edge:
        lines.append(f"in some folds the best value was at the edge of its grid: {'; '.join(at_edge)}")
    return lines


def metrics(results: Results) -> dict[str, float | None]:
    """What runs are compared by, of the outputs with probabilities whose log loss is smallest after the last epoch."""
    networks = [numbers for numbers in results.values() if "log_loss_nats" in numbers]
    if not networks:
        return {"error_percent": min(numbers["last_percent"] for numbers in results.values())}
    best = min(networks, key=lambda numbers: numbers["log_loss_nats"])
    return {
        "log_density_nats": -best["log_loss_nats"],
        "error_percent": best["last_percent"],
        "calibration_error": best["calibration_error_percent"] / 100.0,
    }


def verdict(results: Results) -> str:
    """The best of our outputs beside the best rival, by their errors after the last epoch."""
    ours = [name for name in results if name not in RIVALS]
    rivals = [name for name in results if name in RIVALS]
    parts = []
    # The best of ours, then the best rival.
    for names in filter(None, (ours, rivals)):
        best = min(names, key=lambda name: results[name]["last_percent"])
        parts.append(f"{title_of(best)} {error_of(results[best], 'last')} % errors")
    return "; best rival: ".join(parts) + "."


def reliability_table(results: Results) -> list[list[str]]:
    """How far the probabilities can be trusted, as cells of text: log loss and calibration error of each output."""
    rows = [["", "log loss, nats", "calibration error, %"]]
    for name, numbers in results.items():
        if "log_loss_nats" in numbers:
            loss = numbers["log_loss_nats"]
            error = numbers["calibration_error_percent"]
            rows.append([title_of(name), f"{loss:.4f}", f"{error:.2f}"])
    return rows


command = functools.partial(cli.run, main, explain=devices.explain)

if __name__ == "__main__":
    command()
