#!/usr/bin/env python3
"""How good are the probabilities of real weights whose precisions are learned, beside those of first-order EBP?

    ebp_classification.py --sets=breast_cancer,wine,digits --output=classification.json

Ten folds of the tables that scikit-learn has, drawn by class with one seed; nothing is chosen by test rows. Printed are
means over folds with their standard errors: error in percent, log loss in nats, expected calibration error in percent
(15 bins), and CPU seconds of a fit. All have their default settings; logistic regression gets standardised inputs.
"""

import warnings
from collections.abc import Callable
from typing import Any

import bench
from absl import flags
from sklearn import datasets
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from ebp import EBPClassifier, EBPGaussianClassifier

SETS: dict[str, Callable[..., Any]] = {
    "breast_cancer": datasets.load_breast_cancer,
    "wine": datasets.load_wine,
    "digits": datasets.load_digits,
}
MODELS: dict[str, Callable[[], Any]] = {
    "second order": EBPGaussianClassifier,
    "five of second order": lambda: EBPGaussianClassifier(num_networks=5),
    "first order, real": lambda: EBPClassifier(50, weights="real", batch_size=10),
    "first order, real, not calibrated": lambda: EBPClassifier(50, weights="real", batch_size=10, calibrate=False),
    "first order, binary": lambda: EBPClassifier(50, batch_size=10),
    "logistic regression": lambda: make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)),
}


def define_flags(fv: flags.FlagValues) -> None:
    flags.DEFINE_list("sets", list(SETS), f"Some of {', '.join(SETS)}.", flag_values=fv)
    flags.DEFINE_integer("folds", 10, "Folds.", 2, flag_values=fv)
    bench.define_common(fv, threads=1, output="Write each fold's numbers to this file, a JSON line each.")


def main(options: flags.FlagValues) -> None:
    warnings.simplefilter("ignore")
    lines: list[dict[str, Any]] = []
    threadpool_limits(options.threads or None)
    for name in options.sets:
        X, y = SETS[name](return_X_y=True)
        folds = list(StratifiedKFold(options.folds, shuffle=True, random_state=0).split(X, y))
        for model, make in MODELS.items():
            found = [bench.classifier_scores(make, X[rows], y[rows], X[test], y[test]) for rows, test in folds]
            lines += [{"set": name, "model": model, "fold": fold, **one} for fold, one in enumerate(found)]
            print(f"{name:13} {model:33} " + bench.means(found), flush=True)
            bench.keep_lines(lines)
    bench.print_machine()


if __name__ == "__main__":
    bench.run(define_flags, main)
