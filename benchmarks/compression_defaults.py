#!/usr/bin/env python3
"""What do `compression.fit` and `compression.pack` make of small networks for tables, with their default settings?

    compression_defaults.py --data_dir=DATA --datasets=boston,digits --seeds=0,1,2 --threads=1 --output=defaults.json

Each network has two layers of 64 ReLU units and is trained by Adam until the error on the validation rows, 15 % of the
training rows of the split of this number, has not fallen for a while; then the best weights are taken. `fit` has its
defaults; `pack` has the training rows' inputs for calibration, and may add, on training and validation rows together, a
tenth of a standard error of the validation rows. Inputs and targets are standardised, so errors of regression are
shares of the variance; of labels, shares that are wrong. adult has no label here: its column
72, of 123, is predicted by the others without column 73, its complement.

--methods=magnitude gives the same networks to `fit(method=Magnitude())`, the rival that prunes single weights: with its
defaults, and --values values that the weights of a layer share in the end.

"rise" is the error of the file over that of the trained network on the same test rows, in standard errors of the
trained network's error ("rise_se") and of the paired difference ("rise_paired"). "smaller": the weights and biases of
the trained network in float32 over the bytes of the file.
"""

import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import bench
import keras
import numpy as np
from absl import flags

import compression as bc
from gpflow_deep_base.numbers.scores import standard_error

DATASETS = ("boston", "energy", "kin8nm", "power", "adult", "digits")
_ADULT_TARGET = 71
_ADULT_LEFT_OUT = (71, 72)


class Part(NamedTuple):
    """Inputs [N, D], and targets [N, 1] or labels [N]."""

    X: np.ndarray
    Y: np.ndarray


def define_flags(fv: flags.FlagValues) -> None:
    flags.DEFINE_list("datasets", list(DATASETS), "Data sets.", flag_values=fv)
    flags.DEFINE_string("data_dir", None, "Folder with the files of the known data sets.", flag_values=fv)
    flags.DEFINE_list(
        "seeds", ["0", "1", "2"], "Splits of the data, and seeds of networks and batches.", flag_values=fv
    )
    flags.DEFINE_list("methods", ["bayesian"], "Of compression.fit: bayesian, magnitude.", flag_values=fv)
    flags.DEFINE_integer("values", 16, "Values of a layer that magnitude pruning ends with.", 1, flag_values=fv)
    bench.define_common(fv)


def parts_of(dataset: str, data_dir: str | None, seed: int) -> list[Part]:
    """Training, validation and test rows."""
    if dataset == "adult":
        rows = bench.load(dataset, data_dir, "binary")
        raw_parts = [
            Part(np.delete(p.X, _ADULT_LEFT_OUT, 1), p.X[:, _ADULT_TARGET]) for p in (rows.train, rows.valid, rows.test)
        ]
    else:
        split = 0 if dataset == "digits" else seed  # it has one
        rows = bench.load(dataset, data_dir, "supervised", split=split, valid_fraction=0.15)
        raw_parts = [Part(p.X, p.Y) for p in (rows.train, rows.valid, rows.test)]
    # Inputs, and targets of regression, in units of the training rows' deviations.
    mean = raw_parts[0].X.mean(axis=0)
    scale = raw_parts[0].X.std(axis=0)
    scale = np.where(scale > 0, scale, 1)
    if dataset in ("adult", "digits"):
        targets = [np.ravel(part.Y).astype(np.int32) for part in raw_parts]
    else:
        targets = [((part.Y - raw_parts[0].Y.mean()) / raw_parts[0].Y.std()).astype(np.float32) for part in raw_parts]
    return [Part(((p.X - mean) / scale).astype(np.float32), Y) for p, Y in zip(raw_parts, targets, strict=True)]


def trained(train: Part, valid: Part, loss: keras.Loss | str, num_outputs: int) -> keras.Model:
    """The network with the lowest validation loss of a training."""
    layers = [keras.layers.Dense(64, "relu"), keras.layers.Dense(64, "relu"), keras.layers.Dense(num_outputs)]
    model = keras.Sequential([keras.Input(train.X.shape[1:]), *layers])
    model.compile("adam", loss)
    # Small tables take more epochs until the error stops falling.
    is_small = len(train.X) < 3000
    stop = keras.callbacks.EarlyStopping(patience=30 if is_small else 10, restore_best_weights=True)
    model.fit(
        *train, validation_data=valid, epochs=500 if is_small else 100, batch_size=32, verbose=0, callbacks=[stop]
    )
    return model


def errors(model: keras.Model, part: Part) -> np.ndarray:
    """Of each row: the squared error, or whether the label is wrong, [N]."""
    outputs = np.concatenate([np.asarray(model(part.X[i : i + 1000])) for i in range(0, len(part.X), 1000)])
    if part.Y.ndim == 1:
        return (outputs.argmax(axis=1) != part.Y).astype(float)
    return np.square(outputs[:, 0].astype(np.float64) - part.Y[:, 0])


def rows_of(dataset: str, data_dir: str | None, seed: int, methods: Sequence[str]) -> Iterator[bench.Row]:
    """What each method makes of one network."""
    keras.utils.set_random_seed(seed)
    parts = parts_of(dataset, data_dir, seed)
    train, valid, _ = parts
    is_label = train.Y.ndim == 1
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True) if is_label else "mse"
    start = time.process_time()
    model = trained(train, valid, loss, int(train.Y.max()) + 1 if is_label else 1)
    # All methods get the same trained network.
    row = {"dataset": dataset, "seed": seed, "train_seconds": time.process_time() - start}
    for method in methods:
        yield row | {"method": method} | compressed(model, parts, loss, seed, method)


def compressed(model: keras.Model, parts: Sequence[Part], loss: keras.Loss | str, seed: int, method: str) -> bench.Row:
    """Errors, sizes and CPU seconds of one network by one method."""
    train, valid, test = parts
    way = bc.Magnitude(values=flags.FLAGS.values) if method == "magnitude" else bc.Bayesian()
    starts = [time.process_time()]
    small = bc.fit(model, *train, loss=loss, validation_data=valid, method=way, seed=seed)
    starts.append(time.process_time())
    # The file may be as much worse as a tenth of a standard error on the validation rows. What rounding costs, all rows
    # say that are no test rows, with less of chance than few that were set aside.
    known = Part(np.concatenate([train.X, valid.X]), np.concatenate([train.Y, valid.Y]))
    with tempfile.TemporaryDirectory() as folder:
        packed = bc.pack(
            small,
            f"{folder}/model.bcz",
            calibration=train.X,
            validate=lambda network: float(errors(network, known).mean()),
            max_rise=0.1 * standard_error(errors(model, valid)),
            original=model,
        )
        before = errors(model, test)
        after = errors(bc.load(packed.path), test)
    starts.append(time.process_time())
    # The rise in standard errors of the test rows, and of their differences.
    rise = float(after.mean() - before.mean())
    return {
        "error_before": float(before.mean()),
        "error_small": float(errors(small, test).mean()),
        "error_file": float(after.mean()),
        "rise_se": rise / standard_error(before),
        "rise_paired": rise / max(standard_error(after - before), 1e-12),
        "parameters_before": model.count_params(),
        "parameters": small.count_params(),
        "nonzero": sum(int(np.count_nonzero(weights)) for weights in small.get_weights()),
        "bytes": packed.bytes,
        "smaller": packed.file_rate,
        "seconds": np.diff(starts).tolist(),
    }


def main(flag: flags.FlagValues) -> None:
    rows = (
        row
        for dataset in flag.datasets
        for seed in map(int, flag.seeds)
        for row in rows_of(dataset, flag.data_dir, seed, flag.methods)
    )
    bench.write_rows(rows, "of each data set: as gpflow_deep_runs.data.sets checks")


if __name__ == "__main__":
    bench.run(define_flags, main)
