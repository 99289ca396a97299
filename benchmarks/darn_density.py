#!/usr/bin/env python3
"""What is a density of rows of bits good for: odd rows and missing bits, beside independent columns and neighbours?

    darn_density.py --output=density.json
    darn_density.py --choose

On scikit-learn's digits, 64 bits: `DARNDensity` learns all digits but the eights, and log p(x) tells eights of unseen
rows from the others (AUC); and it gives the probabilities of bits that are missing, a quarter of all at random (log
loss in nats a bit). Beside it: independent columns, and the ten nearest neighbours (their distance; the mean of their
missing bits, with half a row of each value added).
"""

import os
import time
from collections.abc import Sequence

os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
from absl import app, flags
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split

from darn import DARNDensity
from experiment.files import write_json
from experiment.run.devices import apply_threads
from experiment.run.folder import provenance

ODD, NEIGHBOURS, SHARE = 8, 10, 0.25
NAMES = ("DARN", "independent columns", "ten neighbours")


def define_flags(flag_values: flags.FlagValues = flags.FLAGS) -> None:
    """Define this script's flags."""
    fv = flag_values
    flags.DEFINE_boolean("choose", False, "Let validation rows choose the architecture.", flag_values=fv)
    flags.DEFINE_integer("rows", 300, "Unseen rows with missing bits; at most all.", 1, flag_values=fv)
    flags.DEFINE_integer("threads", 1, "CPU threads of TensorFlow; all else has one.", 0, flag_values=fv)
    flags.DEFINE_string("output", None, "Write the results to this JSON file.", flag_values=fv)


def main(argv: Sequence[str]) -> None:
    """Train, and print a table."""
    FLAGS = flags.FLAGS
    if len(argv) > 1:
        raise app.UsageError(f"no arguments besides flags, got {argv[1:]}")
    apply_threads(FLAGS.threads)
    images, labels = load_digits(return_X_y=True)
    train, test, train_labels, is_of = train_test_split((images >= 8).astype(int), labels, random_state=0)
    train, is_odd = train[train_labels != ODD], is_of == ODD
    start = time.process_time()
    density = DARNDensity() if FLAGS.choose else DARNDensity(hidden=16, units=100, learning_rate=1e-3)
    density.fit(train)
    seconds, config = time.process_time() - start, density.model_.config
    print(f"{len(train)} rows; {config.hidden} stochastic, {config.units} deterministic units, {seconds:.0f} s of CPU")
    mean = (train.sum(axis=0) + 0.5) / (len(train) + 1)
    odd = (-density.score_samples(test), -log_p(test, mean[None]), distances(train, test))
    known = test[~is_odd][: FLAGS.rows]
    is_missing = np.random.default_rng(0).uniform(size=known.shape) < SHARE
    p = (density.complete(known, is_missing), np.broadcast_to(mean, known.shape), filled(train, known, is_missing))
    found = {
        "auc": [float(roc_auc_score(is_odd, score)) for score in odd],
        "log_loss_nats": [log_loss(known, each, is_missing) for each in p],
    }
    print("| |", " | ".join(NAMES), "|\n|---|---|---|---|")
    for name, numbers in found.items():
        print(f"| {name} |", " | ".join(f"{number:.3f}" for number in numbers), "|")
    if FLAGS.output:
        write_json(FLAGS.output, {**provenance("", seed=0), "columns": NAMES, "seconds": seconds, **found})


def log_p(x: NDArray, p: NDArray) -> NDArray:
    """log-probability of rows of independent bits, [N], nats."""
    return np.where(x, np.log(p), np.log1p(-p)).sum(axis=1)


def distances(train: NDArray, x: NDArray) -> NDArray:
    """Mean number of different bits to the nearest rows, [N]."""
    return np.sort((x[:, None] != train[None]).sum(axis=2), axis=1)[:, :NEIGHBOURS].mean(axis=1)


def filled(train: NDArray, x: NDArray, is_missing: NDArray) -> NDArray:
    """Means of the rows that are nearest by the known bits, [N, n_x]."""
    near = [
        np.argsort(((row != train) & ~mask).sum(axis=1), kind="stable")[:NEIGHBOURS]
        for row, mask in zip(x, is_missing, strict=True)
    ]
    return np.stack([(train[rows].sum(axis=0) + 0.5) / (NEIGHBOURS + 1) for rows in near])


def log_loss(x: NDArray, p: NDArray, is_missing: NDArray) -> float:
    """Mean over the missing bits of -log p, nats; p is kept 1e-3 away from 0 and 1."""
    p = np.clip(p, 1e-3, 1 - 1e-3)
    return float(-np.where(x, np.log(p), np.log1p(-p))[is_missing].mean())


if __name__ == "__main__":
    define_flags()
    app.run(main)
