#!/usr/bin/env python3
"""Is the classification RBM better than a logistic regression on the features of the same RBM, or on the pixels?

    rbm_classifier.py
    rbm_classifier.py --data_dir=DATA --sets=mnist --hidden=500 --updates=10000 --epochs=20

Images as bits (intensity above one half). The RBM is one of rows and labels; features are the probabilities of its
hidden units given the pixels alone. A validation part, a fifth of the training rows, chooses C of logistic regression
and whether the RBM goes up the gradient of its conditional. Errors are in % of the test rows: three folds of five of
scikit-learn's digits; the 10,000 test images of MNIST, one run for each seed.
"""

import time
from collections.abc import Iterator
from typing import NamedTuple

import bench
import numpy as np
from absl import flags
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, train_test_split

from rbm_tracking import RBMClassifier, TrackedRBM, TrainingConfig


class Split(NamedTuple):
    """Rows of bits and labels, to train with and to test."""

    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray


def splits(name: str, arguments: flags.FlagValues) -> Iterator[Split]:
    if name == "digits":
        X, y = load_digits(return_X_y=True)
        for train, test in list(StratifiedKFold(5, shuffle=True, random_state=0).split(X, y))[:3]:
            yield Split(1.0 * (X[train] > 8), y[train], 1.0 * (X[test] > 8), y[test])
        return
    # The validation part goes to the training rows, of which each seed draws others.
    data = bench.load(name, arguments.data_dir, "supervised")
    X, y = (np.concatenate([getattr(part, key) for part in (data.train, data.valid)]) for key in ("X", "Y"))
    for seed in map(int, arguments.seeds):
        rows = np.random.default_rng(seed).permutation(len(X))[: arguments.rows]
        test = data.test
        yield Split(bits(X[rows]), y[rows].ravel(), bits(test.X), np.ravel(test.Y))


def bits(X: np.ndarray) -> NDArray[np.float64]:
    """Intensities of any scale above the middle of theirs."""
    middle = (X.min() + X.max()) / 2
    return (middle < X).astype(np.float64)


def logistic(X: np.ndarray, y: np.ndarray, valid: tuple[np.ndarray, np.ndarray]) -> LogisticRegression:
    """With the C that is best on validation rows."""
    models = [LogisticRegression(C=C, max_iter=300).fit(X, y) for C in (0.01, 0.1, 1.0)]
    return max(models, key=lambda model: model.score(*valid))


def run(split: Split, arguments: flags.FlagValues) -> dict[str, float]:
    """Errors in %, and CPU seconds of the RBM."""
    # The same RBM as it is trained, and after passes up the gradient of its conditional.
    X, X_valid, y, y_valid = train_test_split(split.X, split.y, test_size=0.2, stratify=split.y, random_state=0)
    start = time.process_time()
    rbm = TrackedRBM(
        arguments.hidden,
        learning_rate=0.1,
        max_updates=arguments.updates,
        training=TrainingConfig(generator="hash"),
        random_state=0,
    )
    plain = RBMClassifier(rbm, epochs=0).fit(X, y)
    seconds = time.process_time() - start
    tuned = RBMClassifier(rbm, epochs=arguments.epochs).fit(X, y)
    best = max((plain, tuned), key=lambda model: model.score(X_valid, y_valid))
    # Its features are those of the pixels alone, for which labels are not given.
    weights = plain.parameters_.W
    offsets = plain.parameters_.c

    def features(rows: np.ndarray) -> np.ndarray:
        return expit(rows @ np.asarray(weights).T + np.asarray(offsets))

    # The rivals, with the C that the same validation rows prefer.
    on_features = logistic(features(X), y, (features(X_valid), y_valid))
    on_pixels = logistic(X, y, (X_valid, y_valid))
    # Shares of right labels, of all that was fitted.
    scores = {
        "RBM of rows and labels": plain.score(split.X_test, split.y_test),
        f"after {arguments.epochs} epochs": tuned.score(split.X_test, split.y_test),
        "RBM, chosen": best.score(split.X_test, split.y_test),
        "logistic regression on its features": on_features.score(features(split.X_test), split.y_test),
        "logistic regression on pixels": on_pixels.score(split.X_test, split.y_test),
    }
    return {name: 100 * (1 - score) for name, score in scores.items()} | {"seconds": seconds}


def define_flags(fv: flags.FlagValues) -> None:
    flags.DEFINE_list("sets", ["digits"], "digits, mnist.", fv)
    flags.DEFINE_string("data_dir", None, "Folder of the data sets.", fv)
    flags.DEFINE_list("seeds", ["0"], "Seeds of the training rows of MNIST.", fv)
    flags.DEFINE_integer("rows", 10_000, "Training rows of MNIST.", 100, flag_values=fv)
    flags.DEFINE_integer("hidden", 200, "Hidden units.", 1, flag_values=fv)
    flags.DEFINE_integer("updates", 4000, "Updates of the RBM.", 1, flag_values=fv)
    flags.DEFINE_integer("epochs", 60, "Passes up the gradient of the conditional.", 0, flag_values=fv)
    bench.define_common(fv, threads=1)


def main(FLAGS: flags.FlagValues) -> None:
    rows: list[bench.Row] = []
    for name in FLAGS.sets:
        for number, split in enumerate(splits(name, FLAGS)):
            rows.append({"set": name, "split": number, **run(split, FLAGS)})
            print(
                ", ".join(f"{k} {v:.2f}" if isinstance(v, float) else f"{k} {v}" for k, v in rows[-1].items()),
                flush=True,
            )
            bench.keep({"rows": rows}, "by name")


if __name__ == "__main__":
    bench.run(define_flags, main)
