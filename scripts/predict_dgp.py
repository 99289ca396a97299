#!/usr/bin/env python3
"""Predict the rows of a table with a model that train_dgp.py trained.

    predict_dgp.py --run_dir=runs/houses --data=new_houses.csv --output=predictions.csv

The output has one row for each row of --data, in the same order. Regression: `mean` and `std` of the target and, for a
Gaussian likelihood, the limits `lower` and `upper` of its central 95%: quantiles of the mixture that the deep GP
predicts. Classification: the most probable label and the probability of each. All in the units of the data. If --data
has the target, `log_density` (nats) is added and scores are printed.
"""

import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Any

if importlib.util.find_spec("experiment") is None:  # run from a checkout that is not installed
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import gpflow
import numpy as np
import pandas as pd
import tensorflow as tf
from absl import app, flags
from gpflow.likelihoods import Gaussian

from experiment.data.rows import Standardizer
from experiment.data.tables import TableSchema, apply_schema
from experiment.files import atomic_path
from experiment.flags import apply_threads
from experiment.script import run_program
from gpflow_deep import DeepGP
from gpflow_deep.scores import metrics, mixture_quantiles
from gpflow_deep.serialization import load_model

FLAGS = flags.FLAGS
flags.DEFINE_string("run_dir", None, "Folder of the run.", required=True)
flags.DEFINE_string("data", None, "Table with the columns of the training data: .csv, .csv.gz, .parquet or .npz.")
flags.DEFINE_string("output", "predictions.csv", "File to write, .csv or .csv.gz; it is replaced if it exists.")
flags.DEFINE_integer("num_predict_samples", None, "Draws of the inner layers; as in training if not given.", 1)
flags.DEFINE_integer("threads", 0, "CPU threads; 0 lets TensorFlow choose.", 0)
flags.mark_flag_as_required("data")

BATCH_ROWS = 10_000


class Stored:
    """What the run keeps for predictions."""

    def __init__(self, folder: Path) -> None:
        path = folder / "inputs.json"
        try:
            stored = json.loads(path.read_text(encoding="utf-8"))
            self.schema = TableSchema.from_json(stored["schema"])
            self.x_scale = Standardizer.from_json(stored["x_scale"])
            self.y_scale = Standardizer.from_json(stored["y_scale"])
            is_float32 = bool(stored["float32"])
        except FileNotFoundError as error:
            raise ValueError(f"--run_dir={folder} must be a run of train_dgp.py, but has no {path.name}.") from error
        except (KeyError, TypeError, json.JSONDecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"{path} is damaged ({error!r}); train again, or take an undamaged copy.") from error
        if is_float32:
            gpflow.config.set_default_float(np.float32)
        if not (folder / "model.npz").exists():
            raise ValueError(f"--run_dir={folder} has no model.npz: no checkpoint was reached yet; continue training.")
        self.model = load_model(folder / "model.npz")
        D = len(self.schema.feature_names)
        if not self.model.layers[0].input_dim == D == len(self.x_scale.mean):
            raise ValueError(
                f"{folder}/model.npz has {self.model.layers[0].input_dim} inputs, but inputs.json {D}: they are of "
                "different runs; take both from one run."
            )


def predict(stored: Stored, X: np.ndarray, Y: np.ndarray | None) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Columns of the output for some rows, and the means [N, P] (probabilities [N, C] or [N, 1] of classes)."""
    model, schema = stored.model, stored.schema
    dtype = gpflow.default_float()
    inputs = tf.constant(stored.x_scale.transform(X).astype(dtype))
    factors = model.cached_factors()
    mean, var = (np.asarray(moment, np.float64) for moment in model.predict_y(inputs, factors=factors))
    columns: dict[str, np.ndarray] = {}
    if schema.task == "regression":
        mean, std = stored.y_scale.inverse_transform(mean), np.sqrt(var) * stored.y_scale.scale
        found = {"mean": mean, "std": std, **limits(stored, model, inputs, factors)}
        for p, target in enumerate(schema.targets):
            suffix = f"_{target}" if len(schema.targets) > 1 else ""
            columns.update({name + suffix: value[:, p] for name, value in found.items()})
    else:
        probabilities = np.concatenate([1 - mean, mean], axis=1) if mean.shape[1] == 1 else mean
        columns["label"] = np.array(schema.class_names, dtype=object)[np.argmax(probabilities, axis=1)]
        columns.update({f"probability_{c}": probabilities[:, i] for i, c in enumerate(schema.class_names)})
    if Y is not None:
        targets = tf.constant(stored.y_scale.transform(Y).astype(dtype))
        log_density = np.asarray(model.predict_log_density((inputs, targets), factors=factors), np.float64)
        columns["log_density"] = log_density - np.log(stored.y_scale.scale).sum()
    return columns, mean


def limits(stored: Stored, model: DeepGP, inputs: tf.Tensor, factors: Any) -> dict[str, np.ndarray]:
    """Lower and upper limits [N, P] of the central 95%; nothing if the likelihood is not Gaussian."""
    if not isinstance(model.likelihood, Gaussian):
        return {}
    means, variances = model.predict_components(inputs, factors=factors)
    quantiles = mixture_quantiles(means, variances + model.likelihood.variance, [0.025, 0.975])
    lower, upper = (stored.y_scale.inverse_transform(quantile) for quantile in quantiles)
    return {"lower": lower, "upper": upper}


def run() -> None:
    output = Path(FLAGS.output)
    if not output.name.endswith((".csv", ".csv.gz")):
        raise ValueError(f"--output must end in .csv or .csv.gz, got {output}.")
    apply_threads(FLAGS.threads)
    stored = Stored(Path(FLAGS.run_dir).expanduser())
    if FLAGS.num_predict_samples is not None:
        stored.model.num_predict_samples = FLAGS.num_predict_samples
    X, Y = apply_schema(stored.schema, FLAGS.data)
    parts = []
    for start in range(0, len(X), BATCH_ROWS):
        rows = slice(start, start + BATCH_ROWS)
        parts.append(predict(stored, X[rows], None if Y is None else Y[rows]))
    table = pd.concat([pd.DataFrame(columns) for columns, _ in parts], ignore_index=True)
    with atomic_path(output) as temporary:
        table.to_csv(temporary, index=False)
    print(f"{len(table)} predictions written to {output}")
    if Y is not None:
        mean = np.concatenate([mean for _, mean in parts])
        for name, value in metrics(stored.schema.task, Y, mean, table["log_density"].to_numpy()).items():
            print(f"{name}: {value:.6g}")


def main(argv: list[str]) -> int:
    return run_program(argv, run)


if __name__ == "__main__":
    app.run(main)
