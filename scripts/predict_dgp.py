#!/usr/bin/env python3
"""Predict the rows of a table with a model that gpflow-deep train trained.

    gpflow-deep predict --run_dir=runs/houses --data=new_houses.csv --output=predictions.csv

The output has one row for each row of --data, in the same order. Regression and counts: `mean` and `std` of the target,
and the limits `lower` and `upper` of its central 95%: quantiles of the mixture that the deep GP predicts, whatever its
likelihood. Classification: the most probable label and the probability of each. All in the units of the data. If --data
has the target, `log_density` (nats) is added and scores are printed. --run_dir=runs/houses/gp is the single-layer GP.
Columns are read as in training. A missing value or an unknown level is an error, unless --missing or --unknown, here or
in training, say what becomes of it.
"""

import functools
from dataclasses import dataclass
from pathlib import Path

import gpflow_deep_runs.early  # noqa: F401 (what is wrong is said before TensorFlow starts)
from gpflow_deep_runs import cli
from gpflow_deep_runs.cli.flags import at_least, group
from gpflow_deep_runs.data.files.libraries import pd
from gpflow_deep_runs.data.tables import NewRows, Schema, apply_schema
from gpflow_deep_runs.run import Devices, devices

from gpflow_deep import Predictor, float_type
from gpflow_deep_base.files import atomic_path


@dataclass(frozen=True)
class Flags:
    """Predict the rows of a table with a model that gpflow-deep train trained.

    :param run_dir: folder of the run.
    :param data: table with the columns of the training data: .csv, .tsv or .txt (also packed), .parquet or .npz.
    :param output: file to write, .csv or .csv.gz; it is replaced if it exists.
    :param num_predict_samples: draws of the inner layers; as in training if not given.
    """

    run_dir: str
    data: str
    table: NewRows = group()
    devices: Devices = group(omit=("strategy", "replicas"))
    output: str = "predictions.csv"
    num_predict_samples: int | None = None

    def __post_init__(self) -> None:
        if not Path(self.output).name.endswith((".csv", ".csv.gz")):
            raise ValueError(f"--output must end in .csv or .csv.gz, got {self.output}.")
        at_least(self, {"num_predict_samples": 1})


def main(flags: Flags) -> None:
    """From the folder of a run and a table to predictions."""
    flags.devices.prepare()
    folder = Path(flags.run_dir).expanduser()
    # As in training: the float type, the columns and their units.
    with float_type(Predictor.stored_float(folder)):
        predictor = Predictor.load(folder)
        X, Y = apply_schema(Schema.from_json(predictor.schema), flags.data, flags.table)
        predicted = predictor.predict(X, Y, num_samples=flags.num_predict_samples)
    table = pd.DataFrame(predictor.columns(predicted))
    # One row for each row of the table; scores only where it has the target.
    with atomic_path(flags.output) as temporary:
        table.to_csv(temporary, index=False)
    print(f"{len(table)} predictions written to {flags.output}")
    if Y is not None:
        for name, value in predictor.scores(Y, predicted).items():
            print(f"{name}: {value:.6g}")


command = functools.partial(cli.run, main, explain=devices.explain)

if __name__ == "__main__":
    command()
