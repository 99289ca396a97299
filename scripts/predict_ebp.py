#!/usr/bin/env python3
"""Predict the labels of new rows with a network that gpflow-deep ebp trained.

    gpflow-deep ebp-predict --run_dir=runs/own --data=new.csv --output=predictions.csv
    gpflow-deep ebp-predict --run_dir=runs/texts --data=new.jsonl

The output has one row for each row of --data, in the same order: `label`, the most probable one, and the probability of
each, by the mean over the posterior (EBP-P) of the network of the first seed and fold. Its probabilities are calibrated
by the test rows of this fold, which it has not learned. If --data has labels, `log_density` (nats) is added and scores
are printed. Rows are read as in training: columns of a table by their names, documents by the words of the training
documents, a sparse matrix by the number of its columns.
"""

import functools
from dataclasses import dataclass
from pathlib import Path

import gpflow_deep_runs.early  # noqa: F401 (what is wrong is said before TensorFlow starts)
from gpflow_deep_runs import cli
from gpflow_deep_runs.cli.flags import group
from gpflow_deep_runs.data.files import inputs
from gpflow_deep_runs.data.files.libraries import pd
from gpflow_deep_runs.data.table.spec import NewRows, TableSpec
from gpflow_deep_runs.run import Devices, devices

import numpy as np
from ebp import Predictor
from gpflow_deep_base.files import atomic_path, entries


@dataclass(frozen=True)
class Flags:
    """Predict the labels of new rows with a network that gpflow-deep ebp trained.

    :param run_dir: folder of the run.
    :param data: rows like those of the training data: a table, documents (.jsonl) or a sparse matrix (.npz).
    :param target: key or array of the labels of documents or of a sparse matrix, if not as in training.
    :param features: key of the text of documents, if not "text".
    :param weights: real, binary or ternary, if the run has several; the first of its --weights if not given.
    :param output: file to write, .csv or .csv.gz; it is replaced if it exists.
    """

    run_dir: str
    data: str
    table: NewRows = group()
    devices: Devices = group(omit=("strategy", "replicas"))
    target: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    weights: str | None = None
    output: str = "predictions.csv"

    def __post_init__(self) -> None:
        if not Path(self.output).name.endswith((".csv", ".csv.gz")):
            raise ValueError(f"--output must end in .csv or .csv.gz, got {self.output}.")


def main(flags: Flags) -> None:
    """From the folder of a run and new rows to predictions."""
    flags.devices.prepare()
    folder = Path(flags.run_dir).expanduser()
    # Rows are read as in training: the same columns or words, in the same order.
    predictor = Predictor.load(model_file(folder, flags.weights))
    X, numbers = inputs.read(
        folder,
        flags.data,
        num_columns=predictor.network.layer_sizes[0],
        class_names=predictor.class_names,
        new=flags.table,
        keys=TableSpec(target=flags.target, features=flags.features),
    )
    predicted = predictor.predict(X)
    table = pd.DataFrame(predictor.columns(predicted, numbers))
    with atomic_path(flags.output) as temporary:
        table.to_csv(temporary, index=False)
    print(f"{len(table)} predictions written to {flags.output}")
    if numbers is not None:
        print(f"error_percent: {100 * np.mean(predicted.numbers != numbers):.6g}")
        print(f"log_density_nats: {table['log_density'].mean():.6g}")


def model_file(folder: Path, weights: str | None) -> Path:
    """The network of a run.

    :raises ValueError: if there is none, or none of these weights.
    """
    model_files = {path.stem.removeprefix("model_"): path for path in entries(folder, "model_*.npz")}
    if not model_files:
        raise ValueError(
            f"--run_dir must be a run of gpflow-deep ebp whose first fold is done, {folder} has no model_*.npz."
        )
    # Of several, the first that the flags of the run name.
    if weights is None:
        order = first_weights(folder / "flags.txt")
        return next((model_files[kind] for kind in order if kind in model_files), next(iter(model_files.values())))
    if weights not in model_files:
        raise ValueError(f"--weights must be one of the run, {', '.join(model_files)}, got {weights}.")
    return model_files[weights]


def first_weights(path: Path) -> list[str]:
    """The --weights of a run in their order."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    return [kind for line in lines if line.startswith("--weights=") for kind in line.partition("=")[2].split(",")]


command = functools.partial(cli.run, main, explain=devices.explain)

if __name__ == "__main__":
    command()
